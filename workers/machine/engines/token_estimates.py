"""How many tokens a text has, without a tokenizer: an estimate from above that learns from counts."""

from __future__ import annotations

import math
import re
import threading
from collections import deque

_WORD = re.compile(r"[A-Za-z]+")
_DIGITS = "0123456789"
_SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_TEMPLATE_TOKENS = 64
"""What the model's own template puts around the messages."""
_REMEMBERED = 16
_MARGIN = 1.1
_LEAST, _MOST = 0.55, 4.0
_PARTIAL = 0.4
"""A count below this share of the estimate is not of the whole prompt, but of what was not cached."""


def careful(text: str) -> float:
    """Tokens as a careful tokenizer may need: one for three letters of a word, a digit, a new line."""
    words = sum((len(word) + 2) // 3 for word in _WORD.findall(text))
    digits = sum(map(text.count, _DIGITS))
    signs = sum(map(text.count, _SIGNS))
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    return words + digits + text.count("\n") + 0.8 * signs + foreign


class Sizes:
    """Estimates by model. What servers counted moves the estimate, never below the densest prompt of late."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, deque[float]] = {}

    def tokens(self, model: str, text: str) -> int:
        """At most so many tokens, to the best of what is known."""
        with self._lock:
            seen = self._seen.get(model)
            factor = min(max(max(seen) * _MARGIN, _LEAST), _MOST) if seen else 1.0
        return math.ceil(careful(text) * factor) + _TEMPLATE_TOKENS

    def learn(self, model: str, text: str, counted: int) -> None:
        """The server counted so many tokens for this text."""
        expected = careful(text)
        if expected <= 0 or counted < _PARTIAL * expected:
            return
        with self._lock:
            self._seen.setdefault(model, deque(maxlen=_REMEMBERED)).append(counted / expected)
