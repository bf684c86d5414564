"""Classes of a planted grader: what is released, what of it is wrong, what an oracle would release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from bench.guarantee.graders import DRIFTING, STEADY, Judgement, PlantedGrader, drawn
from grading.statistics.confidence import Features, score_when_graded
from grading.statistics.release_guarantee import Draw, Item, Target, guarantee, next_sample
from grading.statistics.score_drift import score_drift

ALIKE = 20
"""Classes with the same scores, each with errors and a sample of its own: planning a draw takes longest."""


@dataclass(frozen=True)
class Simulated:
    """Of all classes of one grader; shares are means."""

    grader: str
    classes: int
    exceeded: int
    """Classes in which more of what was released was wrong than the target allows."""
    nothing: int
    """Classes in which nothing was released."""
    released: float
    """Share of the class, with what was read of it."""
    unread: float
    oracle: float
    """The largest part from the safest on that the target allows, by somebody who knows all errors."""
    predicts: float
    """The chance that a wrong level has a higher score than a right one; 0.5 says nothing."""

    @property
    def of_oracle(self) -> float | None:
        """Released, as a share of what the oracle could release."""
        return self.released / self.oracle if self.oracle else None


def simulate(
    grader: PlantedGrader, classes: int, size: int, marks: int, target: Target, seed: int
) -> Simulated:
    """So many classes, each with one draw that is marked to its end."""
    chance = Random(f"{grader.name} {seed}")
    exceeded = nothing = 0
    released = unread = oracle = 0.0
    order: list[float] = []
    for number in range(classes):
        if number % ALIKE == 0:
            judgements = grader.scored(chance, size)
            items = [Item(f"{at:05}", score) for at, (score, _) in enumerate(judgements)]
            draw = next_sample(items, target, marks, chance.getrandbits(32))
        wrong = drawn(judgements, chance)
        mine = replace(draw, keys=tuple(chance.sample(draw.candidates, len(draw.keys))))
        found = guarantee(_marked(items, wrong, mine), target, [mine])
        bad = sum(wrong[int(key)] for key in found.unread)
        exceeded += bad > target.allowed(len(found.released))
        nothing += not found.released
        released += len(found.released) / size / classes
        unread += len(found.unread) / size / classes
        oracle += largest_allowed(judgements, wrong, target) / size / classes
        order += [area] if (area := predicts(judgements, wrong)) is not None else []
    mean = sum(order) / len(order) if order else 0.5
    return Simulated(grader.name, classes, exceeded, nothing, released, unread, oracle, mean)


def _marked(items: Sequence[Item], wrong: Sequence[bool], draw: Draw) -> list[Item]:
    read = set(draw.keys)
    return [replace(item, wrong=bad) if item.key in read else item
            for item, bad in zip(items, wrong, strict=True)]  # fmt: skip


def largest_allowed(judgements: Sequence[Judgement], wrong: Sequence[bool], target: Target) -> int:
    """What the oracle releases: nobody reads any of it."""
    by_score = sorted(range(len(wrong)), key=lambda at: (judgements[at][0], at))
    bad = best = 0
    for size, at in enumerate(by_score, start=1):
        bad += wrong[at]
        if bad <= target.allowed(size):
            best = size
    return best


def predicts(judgements: Sequence[Judgement], wrong: Sequence[bool]) -> float | None:
    """How well scores tell wrong levels from right ones: area under the curve, equal scores by half."""
    ranked = sorted((score, bad) for (score, _), bad in zip(judgements, wrong, strict=True))
    bads = sum(bad for _, bad in ranked)
    if not bads or bads == len(ranked):
        return None
    below = area = 0.0
    at = 0
    while at < len(ranked):
        end = at
        while end < len(ranked) and ranked[end][0] == ranked[at][0]:
            end += 1
        bad = sum(one for _, one in ranked[at:end])
        good = end - at - bad
        area += bad * (below + good / 2)
        below += good
        at = end
    return area / bads / (len(ranked) - bads)


@dataclass(frozen=True)
class DriftFound:
    """Of classes with a drift half way, and of as many without."""

    classes: int
    in_time: int
    """Alarms before more than a tenth of the class came after the drift."""
    median: int
    """Submissions from the drift to the alarm."""
    false_alarms: int


def simulate_drift(classes: int, size: int, seed: int, *, opinions: bool = False) -> DriftFound:
    """The guarantee is proven on the first half, the second half comes one by one.

    With `opinions`, the first half has second opinions, and those on the second half come later.
    """
    chance = Random(f"drift {seed}")
    half = size // 2
    waited, false = [], 0
    for number in range(classes):
        for grader in (DRIFTING, STEADY):
            judgements = grader.scored(chance, size)
            scores = [score for score, _ in judgements]
            if opinions:
                scores = [
                    score_when_graded(_features(one, chance, known=at < half))
                    for at, one in enumerate(judgements)
                ]
            found = score_drift(scores[:half], scores[half:], seed=number)
            if grader is DRIFTING:
                waited.append(found.seen if found.alarm else size)
            else:
                false += found.alarm
    waited.sort()
    in_time = sum(one <= size // 10 for one in waited)
    return DriftFound(classes, in_time, waited[classes // 2], false)


def _features(judgement: Judgement, chance: Random, *, known: bool) -> Features:
    """What a system knows of it: the model's doubt, and a second opinion that finds half of what is wrong."""
    score, wrong = judgement
    differs = chance.random() < wrong / 2 + 0.03
    return Features(doubt=score, from_second=2.0 * differs if known else None)
