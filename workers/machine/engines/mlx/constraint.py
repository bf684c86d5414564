"""Schema-bound decoding: which tokens may come next so that an answer is valid and ends within its limit.

llguidance says which tokens the grammar allows, a NumPy mask applies it; without a Metal kernel, so it works
the same on every device. While there is plenty of room, the limit costs a comparison of two numbers. When
little is left, lists get no new items, texts share what is left, and at last only the tokens of a short valid
ending are allowed. What a model can still choose at no cost, such as a level, stays its choice.

By how much an ending can grow is read off the schema. What is not known there (`$ref`, `patternProperties`,
values of any type) counts as a short value: such an answer ends in time unless that nests deeply.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grading.domain.errors import EngineError, JobInvalid

GUARD = 12
"""Bytes that the rest of a character or an escape inside a text has at most, with room to spare."""
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LONGEST_FORMAT = 2 + 36
"""Bytes of the longest text that a `format` of fixed length asks for: a UUID in quotation marks."""


def rise(schema: dict[str, Any]) -> int:
    """Bytes by which the shortest ending can become longer while an answer is written, at most."""
    if "properties" in schema:
        return 2 + max((rise(part) for part in schema["properties"].values()), default=0)
    if "items" in schema:
        return 2 + _most(schema["items"])
    return max([_most(schema), *(rise(part) for part in _variants(schema))])


def _most(schema: dict[str, Any]) -> int:
    """Bytes of the longest shortest ending of a value that was begun somehow."""
    if "properties" in schema:
        tail, most = 1, _least(schema)
        for name, part in reversed(schema["properties"].items()):
            most = max(most, _said(name) + 2 + _most(part) + tail)
            tail += _said(name) + 2 + _least(part) if name in schema.get("required", ()) else 0
        return most
    if "items" in schema:
        return 2 + _most(schema["items"]) + _fewest(schema) * (1 + _least(schema["items"]))
    if "enum" in schema or "const" in schema:
        return max(_said(value) for value in schema.get("enum", [schema.get("const")]))
    digits = [_said(schema[key]) for key in BOUNDS if key in schema]
    parts = [_most(part) for part in _variants(schema)]
    if "format" in schema:
        digits.append(LONGEST_FORMAT)
    return max([GUARD + 2 + int(schema.get("minLength", 0)), *digits, *parts])


def _least(schema: dict[str, Any]) -> int:
    """Bytes of the value that an ending gives, at most."""
    if "properties" in schema:
        required = [n for n in schema["properties"] if n in schema.get("required", ())]
        return 2 + sum(_said(n) + 2 + _least(schema["properties"][n]) for n in required)
    if "items" in schema:
        return 2 + _fewest(schema) * (1 + _least(schema["items"]))
    return _most(schema)


def _fewest(schema: dict[str, Any]) -> int:
    return int(schema.get("minItems", 0))


def _variants(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, [])]


def _said(value: Any) -> int:
    """Bytes of a value as JSON, in the longer of its two spellings."""
    return max(len(json.dumps(value)), len(json.dumps(value, ensure_ascii=False).encode()))


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


KEEP_GRAMMARS = 16


@dataclass(frozen=True)
class _Grammar:
    """A compiled schema, and what its shortest answer takes."""

    matcher: Any
    rise: int
    start: Ending


class Grammars:
    """Compiles schemas for one tokenizer and keeps the last few. Thread-safe."""

    def __init__(self, hf_tokenizer: Any, eos_ids: list[int]) -> None:
        from llguidance.hf import from_tokenizer

        self._tokenizer = from_tokenizer(hf_tokenizer, eos_token=eos_ids)
        self._ready: dict[str, _Grammar] = {}
        self._lock = threading.Lock()

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self._tokenizer)

    def constraint(self, schema: dict[str, Any], max_tokens: int | None = None) -> Constraint:
        """A fresh constraint for one generation of at most `max_tokens` tokens, the end token among them.

        A schema that cannot be compiled raises an EngineError; one with no answer that short, JobInvalid.
        """
        text = json.dumps(schema)
        with self._lock:
            if text not in self._ready:
                ready = self._compiled(schema, text)
                while len(self._ready) >= KEEP_GRAMMARS:
                    del self._ready[next(iter(self._ready))]
                self._ready[text] = ready
            grammar = self._ready[text]
            fresh = grammar.matcher.deep_copy()
        if max_tokens is None:
            return Constraint(fresh, self._pieces)
        if max_tokens < grammar.start.need:
            raise JobInvalid(
                f"The shortest answer that follows the schema has {grammar.start.need} tokens of this model; "
                f"max_output_tokens = {max_tokens} must be raised."
            )
        return Constraint(fresh, self._pieces, Closing(self._pieces, grammar.rise, grammar.start), max_tokens)

    def _compiled(self, schema: dict[str, Any], text: str) -> _Grammar:
        from llguidance import LLMatcher

        # compact JSON only: else a model may write white space up to its token limit
        grammar = LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False})
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise EngineError(f"Constrained decoding with this schema failed: {matcher.get_error()[:300]}")
        start = self._pieces.ending(matcher)
        if start is None:
            raise EngineError("Constrained decoding with this schema failed: no answer follows it.")
        return _Grammar(matcher, rise(schema), start)


@dataclass(frozen=True)
class Following:
    """The tokens a batch goes on with; they may still be on their way."""

    array: Any

    @cached_property
    def tokens(self) -> list[int]:
        """Their ids; waits for the step that makes them and for nothing that was begun after it."""
        return list(self.array.tolist())


class Constraint:
    """A logits processor for one generation: call it with all tokens so far and logits of shape (1, V).

    With `closing`, the answer is complete within `max_tokens` tokens.
    """

    def __init__(
        self, matcher: Any, pieces: Pieces, closing: Closing | None = None, max_tokens: int = 0
    ) -> None:
        self._matcher = matcher
        self._pieces = pieces
        self._closing = closing
        self._left = max_tokens
        self._begun = False
        self._following: tuple[Following, int] | None = None
        self.error = ""
        """Why decoding could not follow the schema, if so; then only the end token is allowed."""

    @property
    def complete(self) -> bool:
        """Whether what was generated so far satisfies the schema."""
        return bool(self._matcher.is_accepting())

    @property
    def closed(self) -> bool:
        """Whether the token limit was near, so that something was cut off to end in time."""
        return self._closing is not None and self._closing.closed

    def fork(self) -> Constraint:
        """Another one that stands where this one does, and goes on by itself."""
        other = copy.copy(self)
        other._matcher, other._closing = self._matcher.deep_copy(), copy.copy(self._closing)
        return other

    def take(self, token: int) -> None:
        """A token came that it allowed; for who does not call it as a processor."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)

    def expect(self, following: Following, place: int) -> None:
        """Where the next call finds its token; see `hand_out`."""
        self._following = (following, place)

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """The logits with every token that may not come next at minus infinity."""
        import mlx.core as mx

        mx.async_eval(logits)  # type: ignore[no-untyped-call]  # runs while the mask is made
        if self._begun and not self._matcher.is_stopped():
            self._matcher.consume_token(self._last(tokens))
        self._begun, self._following = True, None
        return mx.where(mx.array(self.allowed(logits.shape[-1]))[None], logits, -mx.inf)

    def _last(self, tokens: Any) -> int:
        if self._following is None:
            return int(tokens[-1].item())
        following, place = self._following
        return following.tokens[place]

    def allowed(self, width: int) -> Any:
        """Which of the model's tokens may come next; it may have more of them than the tokenizer.

        To be called once for each token.
        """
        import numpy as np

        known = min(width, self._pieces.size)
        allowed = np.unpackbits(self._bits().view(np.uint8), count=known, bitorder="little").view(bool)
        return allowed if known == width else np.pad(allowed, (0, width - known))

    def _bits(self) -> Any:
        """Mask of the tokens that may come next."""
        left, self._left = self._left, self._left - 1
        if not self._matcher.is_stopped():
            bits = self._pieces.allowed(self._matcher)
            try:
                if self._closing is not None:
                    self._closing.narrow(self._matcher, bits, left)
            except ValueError as exc:
                self.error = str(exc)
            else:
                if not self._matcher.is_error():
                    return bits
        if self._matcher.is_error():
            self.error = self.error or str(self._matcher.get_error())[:300]
        # also on errors: the engine decodes one step ahead, let it end
        return self._pieces.only(self._pieces.end)


def hand_out(batch: Any, constraints: Mapping[int, Constraint | None]) -> None:
    """Tell the constraints of a mlx-lm batch, by uid, where the tokens of its next step will be.

    Nothing waits for them here: mlx-lm puts the step of the model together while the step before still
    computes, starts it, and only then do the constraints read the tokens, all masks beside the model. One
    that looks its token up in the context would wait for the model instead.
    """
    generating = getattr(batch, "_generation_batch", None)
    array = getattr(generating, "_next_tokens", None)
    if generating is None or array is None:
        return  # then they look them up
    following = Following(array)
    for place, uid in enumerate(generating.uids):
        if (constraint := constraints.get(uid)) is not None:
            constraint.expect(following, place)
