"""Schema-bound decoding for mlx: llguidance says which tokens may come next, a NumPy mask applies it.

Needs no Metal kernel, so it works the same on every device.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from grading.errors import EngineError

KEEP_GRAMMARS = 16


class Grammars:
    """Compiles schemas for one tokenizer and keeps the last few. Thread-safe."""

    def __init__(self, hf_tokenizer: Any, eos_ids: list[int]) -> None:
        from llguidance.hf import from_tokenizer

        self._tokenizer = from_tokenizer(hf_tokenizer, eos_token=eos_ids)
        self._eos_ids = eos_ids
        self._ready: dict[str, Any] = {}
        self._lock = threading.Lock()

    def constraint(self, schema: dict[str, Any]) -> Constraint:
        """A fresh constraint for one generation; a schema that cannot be compiled raises an EngineError."""
        from llguidance import LLMatcher

        text = json.dumps(schema)
        with self._lock:
            if text not in self._ready:
                # compact JSON only: else a model may write white space up to its token limit
                grammar = LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False})
                matcher = LLMatcher(self._tokenizer, grammar)
                if matcher.is_error():
                    raise EngineError(f"This schema cannot bind the decoding: {matcher.get_error()[:300]}")
                while len(self._ready) >= KEEP_GRAMMARS:
                    del self._ready[next(iter(self._ready))]
                self._ready[text] = matcher
            fresh = self._ready[text].deep_copy()
        return Constraint(fresh, self._tokenizer.vocab_size, self._eos_ids)


class Constraint:
    """A logits processor for one generation: call it with all tokens so far and logits of shape (1, V)."""

    def __init__(self, matcher: Any, vocab_size: int, eos_ids: list[int]) -> None:
        from llguidance.numpy import allocate_token_bitmask

        self._matcher = matcher
        self._eos_ids = eos_ids
        self._bits = allocate_token_bitmask(1, vocab_size)
        self._begun = False
        self.error = ""
        """Why decoding could not follow the schema, if so; then only the end token is allowed."""

    @property
    def complete(self) -> bool:
        """Whether what was generated so far satisfies the schema."""
        return bool(self._matcher.is_accepting())

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """The logits with every token that may not come next at minus infinity."""
        import mlx.core as mx

        if self._begun and not self._matcher.is_stopped():
            self._matcher.consume_token(int(tokens[-1].item()))
        self._begun = True
        return mx.where(mx.array(self._allowed(logits.shape[-1]))[None], logits, -mx.inf)

    def _allowed(self, width: int) -> Any:
        import numpy as np
        from llguidance.numpy import fill_next_token_bitmask

        allowed = np.zeros(width, dtype=bool)
        if self._matcher.is_error():
            self.error = self.error or str(self._matcher.get_error())[:300]
        if self._matcher.is_stopped():  # also on errors: the engine decodes one step ahead, let it end
            allowed[[i for i in self._eos_ids if i < width]] = True
            return allowed
        fill_next_token_bitmask(self._matcher, self._bits)
        known = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[:width].astype(bool)
        allowed[: known.size] = known
        return allowed
