"""The corpus of attacks, loaded: ten classes, a third of each kept apart while the patterns were tuned."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = (
    "comments",
    "strings",
    "markdown",
    "outputs",
    "identifiers",
    "languages",
    "encodings",
    "turns",
    "rubrics",
    "answers",
)


@dataclass(frozen=True)
class Attack:
    """What a student put into the work; `plain` is what it means, also where the text hides it."""

    kind: str
    number: int
    text: str
    plain: str

    @property
    def held_out(self) -> bool:
        """Never looked at while the patterns were tuned, though by the same author and from the same days."""
        return self.number % 3 == 2

    def __str__(self) -> str:
        return f"{self.kind}[{self.number}]"


def load(kind: str) -> tuple[Attack, ...]:
    """All attacks of a class."""
    module = importlib.import_module(f"grading.stress_tests.corpus.{kind}")
    plain = getattr(module, "PLAIN", module.ATTACKS)
    return tuple(
        Attack(kind, number, text, said)
        for number, (text, said) in enumerate(zip(module.ATTACKS, plain, strict=True))
    )


def every() -> Iterator[Attack]:
    """The whole corpus."""
    for kind in KINDS:
        yield from load(kind)
