"""Answers of the test servers: valid instances of a schema or vectors, the same for the same prompt."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

from workers.machine.engines.instant import InstanceMaker

NUMBERED = re.compile(r"^[+ ]?\s*\d+\s*[|:│]\s?")
WORDS = ("clear", "steps", "data", "plot", "shows", "reason", "careful", "result", "names", "tested")
EMBEDDING = 8
"""Numbers of a vector."""
PROSE = "Here is what I think about the work: it is a good start, and the plot is easy to read."


class PromptedMaker(InstanceMaker):
    """Takes numbers and words from a hash of the prompt, and quotes from the lines of the user message."""

    def __init__(self, schema: dict[str, Any], system: str, user: str) -> None:
        super().__init__(schema)
        self._seed = hashlib.sha256(f"{system}\0{user}".encode()).digest()
        self._count = 0
        self._quotable = _quotable(user)

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        """A quote where the schema asks for one, else a few words."""
        if self._quotable and any("quote" in part for part in path):
            text = self._quotable[self._next(len(self._quotable))]
        else:
            text = " ".join(WORDS[self._next(len(WORDS))] for _ in range(6)).capitalize() + "."
        text = text[:high] if high is not None else text
        return text.ljust(low, ".")

    def integer(self, path: tuple[str, ...], low: int, high: int | None) -> int:
        """Anything within the bounds."""
        return low + self._next((high if high is not None else low + 3) - low + 1)

    def length(self, path: tuple[str, ...], low: int, high: int | None) -> int:
        """One or two items where the schema lets them."""
        return max(low, min(high if high is not None else 1, 1 + self._next(2)))

    def _next(self, below: int) -> int:
        self._count += 1
        digest = hashlib.sha256(self._seed + self._count.to_bytes(4, "big")).digest()
        return int.from_bytes(digest[:4], "big") % max(1, below)


def answer_text(schema: dict[str, Any] | None, system: str, user: str) -> str:
    """The text a test server answers: an instance as JSON, or prose without a schema."""
    if not schema:
        return PROSE
    return json.dumps(PromptedMaker(schema, system, user).make())


class EchoMaker(InstanceMaker):
    """Copies the shape it was shown: follows the schema and judges nothing."""

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        """Dots."""
        return "…"

    def integer(self, path: tuple[str, ...], low: int, high: int | None) -> int:
        """The lowest."""
        return low


def faulty_text(fault: str, schema: dict[str, Any] | None) -> str:
    """What a model answers instead with this fault; empty for faults that are not the model's."""
    if fault == "echo" and schema:
        return json.dumps(EchoMaker(schema).make(), ensure_ascii=False)
    return PROSE if fault == "prose" else ""


def pieces(text: str) -> list[str]:
    """The text in token-sized pieces."""
    return re.findall(r"\s?\w{1,6}|\s?[^\w\s]{1,3}|\s+", text)


def tokens(text: str) -> int:
    """About how many tokens a text has."""
    return max(1, len(text) // 4)


def _quotable(user: str) -> list[str]:
    found = []
    lines = user.splitlines()
    numbered = [line for line in lines if NUMBERED.match(line)]
    for line in numbered or lines:
        plain = NUMBERED.sub("", line).strip()
        if (
            12 <= len(plain) <= 120
            and re.search(r"[A-Za-z]{3}", plain)
            and not plain.startswith(("<", "#", "="))
        ):
            found.append(plain)
    return found


def embedding(text: str) -> list[float]:
    """A vector of length 1 that a text always has."""
    numbers = [byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()[:EMBEDDING]]
    size = math.hypot(*numbers)
    return [number / size for number in numbers]
