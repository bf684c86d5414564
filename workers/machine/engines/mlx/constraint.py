"""Schema-bound decoding for mlx: llguidance says which tokens may come next, a NumPy mask applies it.

Needs no Metal kernel, so it works the same on every device.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grading.domain.errors import EngineError, JobInvalid
from workers.machine.engines.mlx.closing import Closing, Ending, Pieces
from workers.machine.engines.mlx.schema_growth import rise

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
            raise EngineError(f"This schema cannot bind the decoding: {matcher.get_error()[:300]}")
        start = self._pieces.ending(matcher)
        if start is None:
            raise EngineError("This schema cannot bind the decoding: no answer that follows it was found.")
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
