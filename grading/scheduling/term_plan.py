"""What a term needs: waiting times by course and week, hours of work, energy, which machine to add."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grading.scheduling.capacity_plan import Machine, NobodyDoes
from grading.scheduling.flow import Cluster, Counts
from grading.scheduling.term import AN_HOUR, WEEK_H, Course, Work, arrivals
from grading.scheduling.term_simulation import Failures, Played, Term, losses

GROWTHS = (1.5, 2.0, 3.0, 4.0)
"""Times the students that are tried while the target is held."""
MOST_ADDED = 4
"""Machines that are added one after the other while the target is missed."""


@dataclass(frozen=True)
class Kind:
    """Machines that are alike; without watts their energy is unknown, without a price what they cost."""

    machine: Machine
    count: int
    mtbf_h: float = math.inf
    mttr_h: float = 0.0
    watts_idle: float | None = None
    watts_busy: float | None = None
    price: float | None = None


@dataclass(frozen=True)
class Waits:
    """Hours from coming to a grade; infinite where some are never graded."""

    submissions: int
    median_h: float
    p95_h: float
    worst_h: float


def waits(hours: Iterable[float]) -> Waits:
    """The summary of some."""
    ordered = sorted(hours)
    if not ordered:
        return Waits(0, 0.0, 0.0, 0.0)
    count = len(ordered)
    return Waits(count, ordered[(count - 1) // 2], ordered[math.ceil(0.95 * count) - 1], ordered[-1])


@dataclass(frozen=True)
class Used:
    """What the machines of a kind did."""

    kind: str
    count: int
    busy_h: float
    """Of all of them together, with a run in hand."""
    failures: int
    kwh: float | None
    kwh_idle: float | None
    """Of these, while it had nothing in hand."""


@dataclass(frozen=True)
class Addition:
    """One more machine of a kind."""

    kind: str
    p95_h: float
    """Of the worst week, with it."""
    price: float | None


@dataclass(frozen=True)
class TermPlan:
    """The answer."""

    submissions: int
    hours: float
    busy_h: float
    retries: int
    total: Waits
    weeks: Mapping[int, Waits]
    """Week from 1 -> all courses."""
    courses: Mapping[str, Waits]
    cells: Mapping[str, Mapping[int, Waits]]
    """Course -> week -> waits."""
    used: Sequence[Used]
    p95_h: float
    """Of the worst week."""
    additions: Sequence[Addition]
    """One more machine of each kind, the best first."""
    steps: Sequence[Addition]
    """Machines to add one after the other until the target is held, or no more were tried."""
    growth: Mapping[float, float]
    """Times the students -> p95 of the worst week, as far as the target is held and once beyond."""


@dataclass(frozen=True)
class Assumed:
    """Everything that a term is played from."""

    kinds: Sequence[Kind]
    stages: Sequence[str]
    courses: Sequence[Course]
    weeks: int
    target_h: float
    retried: float = 0.0
    seed: int = 1

    @property
    def hours(self) -> float:
        """Of the term."""
        return self.weeks * WEEK_H

    @property
    def counts(self) -> Counts:
        """Machines of each kind."""
        return tuple(kind.count for kind in self.kinds)


def plan_term(assumed: Assumed) -> TermPlan:
    """Play a term, then again with one more machine of each kind, and with more students or more machines.

    Raises NobodyDoes if a stage has no machine.
    """
    for stage in assumed.stages:
        if not any(stage in kind.machine.peer.speed_profiles for kind in assumed.kinds if kind.count):
            raise NobodyDoes(f"no machine has the stage {stage}")
    cluster = Cluster([kind.machine for kind in assumed.kinds], assumed.stages)
    work = arrivals(assumed.courses, assumed.seed, stages=len(assumed.stages))
    played = _played(assumed, cluster, assumed.counts, work)
    by_week, by_course, cells = _grouped(assumed.courses, work, played)
    p95_h = _worst_week(by_week)
    tried = _tried(by_week)
    part = [one for one in work if one.week in tried.played]
    additions = _additions(assumed, cluster, assumed.counts, part, tried.judged)
    held = p95_h <= assumed.target_h
    return TermPlan(
        sum(not one.batch for one in work),
        assumed.hours,
        played.busy_s / AN_HOUR,
        played.retries,
        waits(_hours(played, work)),
        by_week,
        by_course,
        cells,
        _used(assumed, cluster, played),
        p95_h,
        additions,
        [] if held else _steps(assumed, cluster, work, additions, tried),
        _growth(assumed, cluster, tried) if held else {},
    )


def _played(assumed: Assumed, cluster: Cluster, counts: Counts, work: Sequence[Work]) -> Played:
    failures = Failures(tuple(k.mtbf_h for k in assumed.kinds), tuple(k.mttr_h for k in assumed.kinds))
    changes = losses(counts, failures, assumed.hours, assumed.seed)
    return Term(work, cluster, counts, changes, assumed.retried, assumed.seed).play()


def _hours(played: Played, work: Sequence[Work]) -> list[float]:
    """Of those for which somebody waits."""
    return [(at - one.at_s) / AN_HOUR for at, one in zip(played.graded_s, work, strict=True) if not one.batch]


def _grouped(
    courses: Sequence[Course], work: Sequence[Work], played: Played
) -> tuple[dict[int, Waits], dict[str, Waits], dict[str, dict[int, Waits]]]:
    cells: dict[tuple[int, int], list[float]] = {}
    for at, one in zip(played.graded_s, work, strict=True):
        if not one.batch:
            cells.setdefault((one.course, one.week + 1), []).append((at - one.at_s) / AN_HOUR)
    weeks: dict[int, list[float]] = {}
    each: dict[str, list[float]] = {course.name: [] for course in courses}
    summaries: dict[str, dict[int, Waits]] = {course.name: {} for course in courses}
    for (course, week), hours in sorted(cells.items()):
        weeks.setdefault(week, []).extend(hours)
        each[courses[course].name].extend(hours)
        summaries[courses[course].name][week] = waits(hours)
    return (
        {week: waits(hours) for week, hours in sorted(weeks.items())},
        {name: waits(hours) for name, hours in each.items()},
        summaries,
    )


def _worst_week(weeks: Mapping[int, Waits]) -> float:
    return max((one.p95_h for one in weeks.values()), default=0.0)


@dataclass(frozen=True)
class _Tried:
    """Weeks, from 0, that are played with other machines or students."""

    judged: frozenset[int]
    """Of which the worst one counts."""
    played: frozenset[int]
    """These and those beside them, whose submissions are there at the same time."""


def _tried(weeks: Mapping[int, Waits]) -> _Tried:
    """The week that waits longest and the largest one; all where work is carried over from week to week."""
    longest = sorted(weeks, key=lambda week: -weeks[week].p95_h)[:1]
    largest = sorted(weeks, key=lambda week: -weeks[week].submissions)[:1]
    carried = any(one.worst_h > WEEK_H for one in weeks.values())
    judged = frozenset(week - 1 for week in (weeks if carried else [*longest, *largest]))
    return _Tried(judged, frozenset(week + by for week in judged for by in (-1, 0, 1)))


def _p95_h(
    assumed: Assumed, cluster: Cluster, counts: Counts, work: Sequence[Work], judged: Container[int]
) -> float:
    """Of the worst week."""
    played = _played(assumed, cluster, counts, work)
    weeks: dict[int, list[float]] = {}
    for at, one in zip(played.graded_s, work, strict=True):
        if not one.batch and one.week in judged:
            weeks.setdefault(one.week, []).append((at - one.at_s) / AN_HOUR)
    return _worst_week({week: waits(hours) for week, hours in weeks.items()})


def _more(counts: Counts, kind: int) -> Counts:
    return tuple(n + (k == kind) for k, n in enumerate(counts))


def _additions(
    assumed: Assumed, cluster: Cluster, counts: Counts, work: Sequence[Work], judged: Container[int]
) -> list[Addition]:
    """The best first."""
    found = [
        Addition(
            kind.machine.kind or kind.machine.name,
            _p95_h(assumed, cluster, _more(counts, number), work, judged),
            kind.price,
        )
        for number, kind in enumerate(assumed.kinds)
    ]
    return sorted(found, key=lambda one: one.p95_h)


def _steps(
    assumed: Assumed, cluster: Cluster, work: Sequence[Work], first: Sequence[Addition], tried: _Tried
) -> list[Addition]:
    """The best machine again and again until the target is held in all weeks."""
    names = [kind.machine.kind or kind.machine.name for kind in assumed.kinds]
    part = [one for one in work if one.week in tried.played]
    found: list[Addition] = []
    counts, offered = assumed.counts, first
    while True:
        best = offered[0]
        counts = _more(counts, names.index(best.kind))
        if best.p95_h <= assumed.target_h:
            weeks = range(assumed.weeks)
            best = replace(best, p95_h=_p95_h(assumed, cluster, counts, work, weeks))
        found.append(best)
        if best.p95_h <= assumed.target_h or len(found) == MOST_ADDED:
            return found
        offered = _additions(assumed, cluster, counts, part, tried.judged)


def _growth(assumed: Assumed, cluster: Cluster, tried: _Tried) -> dict[float, float]:
    found: dict[float, float] = {}
    for factor in GROWTHS:
        work = arrivals(assumed.courses, assumed.seed, factor, len(assumed.stages), tried.played)
        found[factor] = _p95_h(assumed, cluster, assumed.counts, work, tried.judged)
        if found[factor] > assumed.target_h:
            break
    return found


def _used(assumed: Assumed, cluster: Cluster, played: Played) -> list[Used]:
    """Hours and energy: idle watts of a machine that is on, and the rest while it has a run in hand."""
    found = []
    for number, kind in enumerate(assumed.kinds):
        busy_h, on_h = 0.0, 0.0
        for counts, seconds in played.spent.items():
            pace = cluster.pace(counts)
            shares = sum(s * pace.at(there).busy[number] for there, s in seconds.items())
            busy_h += counts[number] * shares / AN_HOUR
            on_h += counts[number] * sum(seconds.values()) / AN_HOUR
        played_h = sum(sum(seconds.values()) for seconds in played.spent.values()) / AN_HOUR
        on_h += kind.count * max(0.0, assumed.hours - played_h)
        kwh = kwh_idle = None
        if kind.watts_idle is not None and kind.watts_busy is not None:
            kwh = (on_h * kind.watts_idle + busy_h * (kind.watts_busy - kind.watts_idle)) / 1000
            kwh_idle = (on_h - busy_h) * kind.watts_idle / 1000
        name = kind.machine.kind or kind.machine.name
        found.append(Used(name, kind.count, busy_h, played.lost[number], kwh, kwh_idle))
    return found
