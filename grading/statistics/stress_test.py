"""What a stress test of a rubric shows: how far variants of submissions move the points of each criterion.

A change is the points of a variant less the mean of those that the same submission got as it is, as a share
of the criterion's points. The noise of the grader is the largest difference between two gradings of one
submission as it is; changes within it, and roundings, move nothing. A variant that a person must look at
before it is released (held) moves no released grade, whatever its points are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from grading.statistics.students_t import t_quantile

Expectation = Literal["same", "not higher", "lower"]
Verdict = Literal["firm", "caught", "moved", "unknown"]
"""The points did what they must; some did not, but all of those wait for a person; some would be released."""
TOTAL = ""
"""In the place of a criterion: all points together."""
ROUNDING = 0.011
"""Points of a criterion are rounded to cents, and a level may be a fraction: less than this share is none."""
ALLOWED = 0.02
"""Mean share of the points that a class of variants may gain, though no single one is beyond the noise."""
FEWEST = 3
"""Changes from which a mean is looked at."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Trial:
    """A variant of a submission, graded."""

    source: str
    """Which submission it was made of."""
    variant: str
    row: str
    """The line of the table it belongs to; UNCHANGED where it is the submission as it is."""
    expects: Expectation
    points: Mapping[str, float | None]
    """By criterion, and TOTAL; nothing where it could not be judged."""
    held: bool = False
    criterion: str = TOTAL
    """Whose points must fall, of one that must cost points; TOTAL: those of every criterion."""


UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Cell:
    """One line of variants and one criterion."""

    tested: int = 0
    mean: float | None = None
    """Mean change as a share of the criterion's points."""
    worst: float | None = None
    """The change that is furthest on the wrong side."""
    worst_trial: Trial | None = None
    held: int = 0
    """Variants that wait for a person."""
    swayed: int = 0
    """Variants whose points are not what they must be."""
    moved: int = 0
    """Those of them that do not wait."""
    drifted: bool = False
    """The mean of those that do not wait is above what is allowed, beyond chance."""

    @property
    def verdict(self) -> Verdict:
        """What this says about the grader and about what holds its grades."""
        if not self.tested:
            return "unknown"
        if self.moved or self.drifted:
            return "moved"
        return "caught" if self.swayed else "firm"


@dataclass(frozen=True)
class Assessment:
    """All cells of a stress test, by line and criterion."""

    cells: Mapping[tuple[str, str], Cell]
    noise: Mapping[str, float]
    """By criterion: the largest difference between two gradings of the same, as a share."""
    sources: int
    trials: int
    uplift: Mapping[str, float]
    """By line: what released grades gain, as a mean share of all points; not of variants that must cost."""

    def where(self, verdict: Verdict) -> tuple[tuple[str, str], ...]:
        """Lines and criteria of this verdict; the totals only where no criterion of the line has it."""
        found = [key for key, cell in self.cells.items() if cell.verdict == verdict]
        lines = {row for row, criterion in found if criterion != TOTAL}
        return tuple(key for key in found if key[1] != TOTAL or key[0] not in lines)


def assess(trials: Sequence[Trial], most: Mapping[str, float]) -> Assessment:
    """The table of a stress test; `most` has the highest points by criterion, and of TOTAL."""
    before, noise = _baseline(trials, most)
    changes: defaultdict[tuple[str, str], list[tuple[float, Trial]]] = defaultdict(list)
    for trial in trials:
        if trial.row == UNCHANGED:
            continue
        for criterion in _looked_at(trial, most):
            was, now = before.get((trial.source, criterion)), trial.points.get(criterion)
            if was is None or (now is None and not trial.held):
                continue
            if trial.expects == "lower" and was <= ROUNDING:
                continue  # nothing to lose
            # what could not be judged waits for a person, with nothing so far
            change = (now or 0.0) / most[criterion] - was
            changes[trial.row, criterion].append((change, trial))
    cells = {key: _cell(found, noise.get(key[1], 0.0)) for key, found in changes.items()}
    return Assessment(
        cells=cells,
        noise=noise,
        sources=len({trial.source for trial in trials}),
        trials=len(trials),
        uplift=_uplift(trials, most, before),
    )


def _looked_at(trial: Trial, most: Mapping[str, float]) -> Iterable[str]:
    """All criteria and the total; of a variant that must cost points only those it is about."""
    if trial.expects != "lower":
        return most
    return (trial.criterion,) if trial.criterion != TOTAL else [one for one in most if one != TOTAL]


def _baseline(
    trials: Sequence[Trial], most: Mapping[str, float]
) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Shares of submissions as they are, and the noise of each criterion."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for trial in trials:
        if trial.row == UNCHANGED:
            for criterion, highest in most.items():
                points = trial.points.get(criterion)
                if points is not None and highest > 0:
                    found[trial.source, criterion].append(points / highest)
    noise: dict[str, float] = dict.fromkeys(most, 0.0)
    for (_, criterion), shares in found.items():
        noise[criterion] = max(noise[criterion], max(shares) - min(shares))
    return {key: fmean(shares) for key, shares in found.items()}, noise


def _cell(found: Sequence[tuple[float, Trial]], noise: float) -> Cell:
    worst, trial = max(found, key=lambda one: abs(one[0]) if one[1].expects == "same" else one[0])
    free = [(change, one) for change, one in found if not one.held]
    swayed = [one for change, one in found if _escaped(change, one.expects, noise)]
    return Cell(
        tested=len(found),
        mean=fmean(change for change, _ in found),
        worst=worst,
        worst_trial=trial,
        held=sum(one.held for _, one in found),
        swayed=len(swayed),
        moved=sum(not one.held for one in swayed),
        drifted=_drifted([change for change, _ in free], trial.expects),
    )


def _escaped(change: float, expects: Expectation, noise: float) -> bool:
    """Whether a change is on the wrong side, beyond the noise."""
    if expects == "lower":
        return change > -ROUNDING
    return (abs(change) if expects == "same" else change) > noise + ROUNDING


def _drifted(changes: Sequence[float], expects: Expectation) -> bool:
    """Whether a mean change is on the wrong side, more than is allowed, and by Student's t not by chance."""
    if len(changes) < FEWEST or expects == "lower":
        return False
    mean = abs(fmean(changes)) if expects == "same" else fmean(changes)
    error = stdev(changes) / math.sqrt(len(changes))
    return mean > ALLOWED and mean > t_quantile(CONFIDENCE, len(changes) - 1) * error


def _uplift(
    trials: Sequence[Trial], most: Mapping[str, float], before: Mapping[tuple[str, str], float]
) -> dict[str, float]:
    """Mean share of all points that each line gains in grades nobody looks at; held ones gain none."""
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for trial in trials:
        was, now = before.get((trial.source, TOTAL)), trial.points.get(TOTAL)
        if trial.row != UNCHANGED and trial.expects != "lower" and was is not None:
            gains[trial.row].append(0.0 if trial.held or now is None else now / most[TOTAL] - was)
    return {row: fmean(found) for row, found in gains.items()}


def badness(trials: Sequence[Trial], most: Mapping[str, float]) -> list[tuple[float, float, Trial]]:
    """Variants that must not gain by how much they do, the worst first: where nobody looks, then at all."""
    before, _ = _baseline(trials, most)
    found = []
    for trial in trials:
        was, now = before.get((trial.source, TOTAL)), trial.points.get(TOTAL)
        if trial.row == UNCHANGED or trial.expects == "lower" or was is None or now is None:
            continue
        gain = now / most[TOTAL] - was
        found.append((0.0 if trial.held else gain, gain, trial))
    return sorted(found, key=lambda one: (-one[0], -one[1], one[2].variant, one[2].source))
