"""Disagreements about a criterion, grouped by what they share: each group is a question to the instructor.

Of each submission it is known who judged the criterion how, which names its code uses at the criterion's
place, which of the names that the rubric asks for are not there, and which checks it misses. A cause explains
a group where it is more frequent among the submissions in dispute than elsewhere. For a name used instead of
another one, elsewhere is where that other name stands; for all else, where nobody disagrees.

Causes are taken greedily, the most specific kind first: of one kind the cause with the largest product of
submissions and difference of shares, then again among the submissions that are left. So each submission is in
one group of a criterion, and the order in which submissions come changes nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Side = Literal["checks", "model", "second", "person", "student"]
"""Who judged: a student by asking for a regrade, which gives no level."""
CauseKind = Literal["name", "value", "missing", "language", "check", "unsupported", "other"]
KINDS: tuple[CauseKind, ...] = ("name", "value", "missing", "language", "check", "unsupported", "other")
"""The most specific first."""
STRUCTURES = frozenset(
    f"{name}()"
    for name in (
        "comprehension",
        "for",
        "function",
        "if",
        "lambda",
        "repeat",
        "switch",
        "try",
        "while",
        "with",
    )
)
"""Structures of code, which checks count as calls; where a function explains as much, that is the cause."""
LEAST = 3
"""Submissions below which a group is no question: it is quicker to look at each."""
CLEAR = 0.2
"""Least difference of the shares of a cause here and elsewhere; below, it explains nothing."""
MOST_NAMES = 60
"""Names of one submission that are looked at."""


@dataclass(frozen=True, order=True)
class Cause:
    """What may explain that a criterion is judged differently.

    kind         about                            instead
    name         the name the rubric asks for     the name that is used; calls end with `()`
    value        the check                        the test that fails, if it has tests
    missing      the check, which finds nothing
    language     the assignment's language        that of the work
    check        the check
    unsupported                                   why the model's level is not borne out
    """

    kind: CauseKind
    about: str = ""
    instead: str = ""

    @property
    def key(self) -> str:
        """Equal for equal causes."""
        return hashlib.sha256("\0".join((self.kind, self.about, self.instead)).encode()).hexdigest()[:32]


OTHER = Cause("other")


@dataclass(frozen=True)
class CriterionCase:
    """A criterion in one submission."""

    work: str
    criterion: str
    levels: tuple[tuple[Side, float | None], ...] = ()
    """Who judged it, and the level where there is one."""
    disputed: bool = False
    """They are too far apart, or a student asked for a regrade."""
    used: frozenset[str] = frozenset()
    """Names in its code that the rubric and the solution do not have; calls end with `()`."""
    present: frozenset[str] = frozenset()
    """Names the rubric asks for that are there."""
    absent: frozenset[str] = frozenset()
    """Names the rubric asks for that are not there."""
    faults: frozenset[Cause] = frozenset()
    """What checks say, and the language."""

    @property
    def apart(self) -> float:
        """Levels between the highest and the lowest."""
        known = [level for _, level in self.levels if level is not None]
        return max(known) - min(known) if known else 0.0


@dataclass(frozen=True)
class SideLevel:
    """What one side gave a group, in the mean."""

    side: Side
    level: float | None
    count: int


@dataclass(frozen=True)
class QuestionGroup:
    """Submissions whose criterion is disputed for one cause, those furthest apart first."""

    criterion: str
    cause: Cause
    works: tuple[str, ...]
    sides: tuple[SideLevel, ...] = ()

    @property
    def count(self) -> int:
        """Of submissions."""
        return len(self.works)


def grouped(cases: Iterable[CriterionCase]) -> tuple[QuestionGroup, ...]:
    """The groups of at least LEAST submissions, the largest first; those without a cause last."""
    by_criterion: dict[str, list[CriterionCase]] = defaultdict(list)
    for case in cases:
        by_criterion[case.criterion].append(case)
    found = [group for of_it in by_criterion.values() for group in _groups(of_it)]
    return tuple(sorted(found, key=_order))


def _order(group: QuestionGroup) -> tuple[bool, int, int, str, Cause]:
    cause = group.cause
    return cause == OTHER, -group.count, KINDS.index(cause.kind), group.criterion, cause


def _groups(cases: Sequence[CriterionCase]) -> list[QuestionGroup]:
    left = [case for case in cases if case.disputed]
    elsewhere = _Elsewhere(cases)
    found: list[QuestionGroup] = []
    for kind in KINDS[:-1]:
        while (best := _best(left, kind, elsewhere)) is not None:
            those = [case for case in left if best in _causes(case, kind)]
            left = [case for case in left if best not in _causes(case, kind)]
            found.append(_group(best, those))
    return [*found, _group(OTHER, left)] if len(left) >= LEAST else found


def _causes(case: CriterionCase, kind: CauseKind) -> frozenset[Cause]:
    if kind != "name":
        return frozenset(cause for cause in case.faults if cause.kind == kind)
    used = sorted(case.used)[:MOST_NAMES]
    pairs = ((absent, one) for absent in case.absent for one in used if _is_call(absent) == _is_call(one))
    return frozenset(Cause("name", absent, one) for absent, one in pairs)


def _is_call(name: str) -> bool:
    return name.endswith("()")


def _best(left: Sequence[CriterionCase], kind: CauseKind, elsewhere: _Elsewhere) -> Cause | None:
    """The cause of a kind that explains most, or None."""
    counts: dict[Cause, int] = defaultdict(int)
    for case in left:
        for cause in _causes(case, kind):
            counts[cause] += 1
    best, most = None, 0.0
    for cause, count in sorted(counts.items(), key=lambda one: (one[0].instead in STRUCTURES, one[0])):
        gain = count / len(left) - elsewhere.share(cause)
        if count >= LEAST and gain >= CLEAR and count * gain > most:
            best, most = cause, count * gain
    return best


class _Elsewhere:
    """How frequent causes are where they explain nothing."""

    def __init__(self, cases: Sequence[CriterionCase]) -> None:
        self._cases = cases
        self._agreed = [case for case in cases if not case.disputed]
        self._known: dict[Cause, float] = {}

    def share(self, cause: Cause) -> float:
        """From 0 to 1; 0 where there is nothing to compare with."""
        if cause not in self._known:
            self._known[cause] = self._share(cause)
        return self._known[cause]

    def _share(self, cause: Cause) -> float:
        if cause.kind == "name":
            those = [case for case in self._cases if cause.about in case.present]
            with_it = sum(cause.instead in case.used for case in those)
        else:
            those, with_it = self._agreed, sum(cause in case.faults for case in self._agreed)
        return with_it / len(those) if those else 0.0


def _group(cause: Cause, cases: Sequence[CriterionCase]) -> QuestionGroup:
    ordered = sorted(cases, key=lambda case: (-case.apart, case.work))
    levels: dict[Side, list[float | None]] = defaultdict(list)
    for case in cases:
        for side, level in case.levels:
            levels[side].append(level)
    sides = tuple(SideLevel(side, _mean(some), len(some)) for side, some in sorted(levels.items()))
    return QuestionGroup(cases[0].criterion, cause, tuple(case.work for case in ordered), sides)


def _mean(levels: Iterable[float | None]) -> float | None:
    known = [level for level in levels if level is not None]
    return math.fsum(known) / len(known) if known else None
