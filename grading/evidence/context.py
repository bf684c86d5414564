"""What a check is given and what it gives back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grading.evidence.scope import Scope, Scopes
from grading.model import Location
from grading.rubric import CheckBase, Rubric


@dataclass(frozen=True)
class Finding:
    """What a check found: a share from 0 to 1, or nothing where the check does not apply."""

    earned: float | None
    message: str
    location: Location | None = None


@dataclass(frozen=True)
class Context:
    """The hand-in, the rubric and the solution a check looks at; `where` is the criterion's."""

    documents: Scopes
    rubric: Rubric
    solution: Scopes
    where: str | None = None

    def scope(self, check: CheckBase, documents: Scopes | None = None) -> Scope:
        """The pieces a check looks at, in the hand-in or in other documents."""
        where = check.where if check.where is not None else self.where
        return (documents or self.documents).find(where, check.files)

    def accepted(self, name: str) -> tuple[str, ...]:
        """The name and those that count as the same."""
        return (name, *self.rubric.equivalents.get(name, ()))

    def narrowed(self, check: CheckBase) -> Context:
        """The context for checks inside a check."""
        where = check.where if check.where is not None else self.where
        return Context(self.documents, self.rubric, self.solution, where)


def listed(names: Iterable[str], at_most: int = 8) -> str:
    """`a, b and c`, shortened with a count."""
    items = list(dict.fromkeys(names))
    if len(items) > at_most:
        return f"{', '.join(items[:at_most])} and {len(items) - at_most} more"
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
