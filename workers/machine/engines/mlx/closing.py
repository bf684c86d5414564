"""How an answer that a token limit would cut is brought to a valid end before.

While there is plenty of room, nothing is done but compare two numbers. When little is left, lists get no new
items, texts share what is left, and at last only the tokens of a short valid ending are allowed. What a model
can still choose at no cost, such as a level, stays its choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from workers.machine.engines.mlx.schema_growth import GUARD

SEAM = 16
"""More tokens that an ending may need because it begins in the middle of a long piece."""
TEXT_SHARE = 12
"""Tokens kept for each text that still has to come."""
LONGEST_ENDING = 20_000
MOST_CANDIDATES = 64
_FREE = (b'"', b"q", b"#", b"~")
"""All of them may come next only where a text is free."""
_CHOICES = (b"]", b"}", b"null", b'"', b",", *(b"%d" % n for n in range(10)), b"-", b"t", b"f", b"[", b"{")
"""What an ending takes where the grammar leaves a choice, best first."""


@dataclass(frozen=True)
class Ending:
    """Tokens from here to a complete answer, the end token not among them, and the free texts on the way."""

    tokens: tuple[int, ...]
    texts: int

    @property
    def need(self) -> int:
        """How many tokens it takes, with the end token."""
        return len(self.tokens) + 1


class Pieces:
    """What the tokens of a vocabulary write, sorted by what they may do to the length of an ending.

    Masks are arrays of 32-bit words, a bit a token, lowest first.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.size = int(tokenizer.vocab_size)
        self.end = tuple(i for i in tokenizer.eos_tokens if i < self.size)
        self._bytes: list[bytes] = [
            b"" if tokenizer.is_special_token(i) else tokenizer.decode_bytes([i]) for i in range(self.size)
        ]
        self._free = [self.tokens(b) for b in _FREE]
        self._choices = [self.tokens(b) for b in _CHOICES]
        rest = {
            piece: i for i, piece in enumerate(self._bytes) if len(piece) == 1 and 0x80 <= piece[0] < 0xC0
        }
        self._rest_of_character = [[i] for i in rest.values()]
        self._quote = self.tokens(b'"')

    def tokens(self, text: bytes) -> list[int]:
        """Tokens that write exactly these bytes, as few as there are; none for a part of a character."""
        try:
            return list(self._tokenizer.greedy_tokenize(text.decode()))
        except UnicodeDecodeError:
            return []

    @cached_property
    def within(self) -> Any:
        """Mask of the tokens that write on a text or close it, and do nothing after that."""
        return self._mask(b'"' not in piece[:-1] for piece in self._bytes)

    @cached_property
    def words(self) -> Any:
        """Mask of the tokens that open, close and divide nothing."""
        return self._mask(not set(piece) & set(b'"[]{},:') for piece in self._bytes)

    @cached_property
    def openers(self) -> Any:
        """Mask of the tokens that open a text and perhaps begin it."""
        return self._mask(piece[:1] == b'"' and not set(piece[1:]) & set(b'"[]{},:') for piece in self._bytes)

    def has_quote(self, token: int) -> bool:
        """Whether it writes a quotation mark, and so may close a text."""
        return b'"' in self._bytes[token]

    def length(self, token: int) -> int:
        """How many bytes it writes."""
        return len(self._bytes[token])

    def _mask(self, kept: Iterator[bool]) -> Any:
        import numpy as np

        flags = np.zeros((self.size + 31) // 32 * 32, dtype=bool)
        flags[: self.size] = list(kept)
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def only(self, ids: Iterable[int]) -> Any:
        """Mask of these tokens."""
        import numpy as np

        bits = np.zeros((self.size + 31) // 32, dtype=np.uint32)
        for token in ids:
            _set(bits, token)
        return bits

    def starts(self, ids: Iterable[int]) -> set[int]:
        """The first bytes of these tokens."""
        return {self._bytes[i][0] for i in ids if self._bytes[i]}

    def in_text(self, matcher: Any) -> bool:
        """Whether any character may come next."""
        return all(matcher.validate_tokens(one) == len(one) for one in self._free)

    def leads(self, matcher: Any, tokens: tuple[int, ...]) -> bool:
        """Whether these tokens may follow and complete the answer."""
        if matcher.validate_tokens(list(tokens)) != len(tokens):
            return False
        at = matcher.deep_copy()
        return bool(at.consume_tokens(list(tokens)) and at.is_accepting())

    def choice(self, matcher: Any) -> list[int]:
        """What a short ending takes next where the grammar forces nothing; empty if nothing can follow."""
        for choices in (self._choices, self._rest_of_character):
            for tokens in choices:
                if matcher.validate_tokens(tokens) == len(tokens):
                    return tokens
        ids = listed(self.allowed(matcher))
        return [min(ids, key=self.length)] if ids else []

    def allowed(self, matcher: Any) -> Any:
        """Mask of what the grammar allows next."""
        import numpy as np

        bits = np.zeros((self.size + 31) // 32, dtype=np.uint32)
        matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        return bits

    def ending(self, matcher: Any) -> Ending | None:
        """A short ending from where the matcher stands; None where there is none. Leaves it as it is."""
        at, tokens, texts = matcher.deep_copy(), list[int](), 0
        while not at.is_accepting():
            step = at.compute_ff_tokens() or self.tokens(at.compute_ff_bytes())
            if not step:
                free = self.in_text(at)
                step = self._quote if free else self.choice(at)
                texts += free
            if not step or len(tokens) > LONGEST_ENDING or not at.consume_tokens(step):
                return None
            tokens += step
        return Ending(tuple(tokens), texts)


class Closing:
    """Narrows the masks of one generation so that it is complete within its tokens."""

    def __init__(self, pieces: Pieces, rise: int, start: Ending) -> None:
        self._pieces = pieces
        self._rise = rise + SEAM
        self._safe = self._enough(start)
        self._near = False
        self._forced: Ending | None = None
        """What is left of the ending whose first token was the only one allowed."""
        self._in_text: Ending | None = None
        """The ending from the text that was being written a token ago."""
        self._share = 0
        """Tokens that text may still have."""
        self.closed = False
        """Whether something the model may have wanted to write was cut off."""

    def _enough(self, way: Ending) -> int:
        """With more tokens than this, whatever comes next leaves room for an ending."""
        return way.need + self._rise + way.texts * TEXT_SHARE

    def narrow(self, matcher: Any, bits: Any, left: int) -> None:
        """Take from `bits` what the grammar allows but `left` tokens, this one among them, have no room for.

        Raises ValueError where no ending is found.
        """
        if not self._near and left > self._safe:
            return
        if self._in_text is not None and self._goes_on(matcher, self._in_text):
            self._narrow_text(matcher, self._in_text, bits)
            return
        way, self._forced, self._in_text = self._forced or self._found(matcher), None, None
        if not self._near:
            self._safe = self._enough(way)
            self._near = left <= self._safe
            if not self._near:
                return
        if self._pieces.in_text(matcher):
            self._share = (left - way.need - GUARD) // way.texts
            self._narrow_text(matcher, way, bits)
        else:
            self._narrow_choice(matcher, way, bits, left)

    def _found(self, matcher: Any) -> Ending:
        way = self._pieces.ending(matcher)
        if way is None:
            raise ValueError("no valid ending was found")
        return way

    def _goes_on(self, matcher: Any, way: Ending) -> bool:
        """Whether the text that `way` would close is still open, perhaps inside a character."""
        return not self._pieces.leads(matcher, way.tokens[1:])

    def _narrow_text(self, matcher: Any, way: Ending, bits: Any) -> None:
        """Let a text go on for its share of what is left, then close it; `way` is the ending without it."""
        self._in_text = way
        self._share -= 1
        writing = bits & self._pieces.within
        if self._share >= 0 and writing.any():
            bits[:] = writing
            return
        self.closed |= bool(writing.any())  # else the text is as long as it may be
        rest = self._found(matcher)
        if self._pieces.has_quote(rest.tokens[0]):
            self._in_text = None
        self._force(Ending(rest.tokens, way.texts - 1) if rest.tokens == way.tokens else rest, bits)

    def _narrow_choice(self, matcher: Any, way: Ending, bits: Any, left: int) -> None:
        """Leave what costs nothing, as the value of a number, and the way to the end."""
        if matcher.compute_ff_bytes():
            self._force(way, bits)
            return
        first = way.tokens[:1]
        calm = self._pieces.words
        if self._pieces.starts(first) - set(b"]}"):
            calm = calm | self._pieces.openers
        ids = sorted((i for i in listed(bits & calm) if i not in first), key=self._pieces.length)
        fitting = [i for i in ids[:MOST_CANDIDATES] if self._fits(matcher, i, way, left)]
        starts = self._pieces.starts([*first, *fitting])
        self.closed |= bool(self._pieces.starts(listed(bits)) - starts)
        self._force(way, bits)
        if fitting:
            self._forced = None
            for token in fitting:
                _set(bits, token)

    def _fits(self, matcher: Any, token: int, way: Ending, left: int) -> bool:
        """Whether there is an ending after this token that is short enough."""
        for rest in (way.tokens[1:], way.tokens):
            if self._pieces.leads(matcher, (token, *rest)):
                return len(rest) + 2 <= left
        at = matcher.deep_copy()
        found = self._pieces.ending(at) if at.consume_token(token) else None
        return found is not None and found.need + 1 <= left

    def _force(self, way: Ending, bits: Any) -> None:
        """Allow only the next token of an ending."""
        bits[:] = 0
        for token in way.tokens[:1] or self._pieces.end:
            _set(bits, token)
        self._forced = Ending(way.tokens[1:], way.texts)


def listed(bits: Any) -> list[int]:
    """The ids of the tokens in a mask."""
    import numpy as np

    return list(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist())


def _set(bits: Any, token: int) -> None:
    bits[token >> 5] |= 1 << (token & 31)
