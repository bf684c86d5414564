"""Classes of submissions with several criteria: what is released as a whole, and what of it is wrong.

A planted grader judges each criterion. Its errors in the criteria of a submission are independent of each
other, or as likely in each (what is hard is hard in all), or the same in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from bench.guarantee.graders import GRADERS, Judgement, PlantedGrader
from bench.guarantee.simulation import ALIKE
from grading.statistics.joint_guarantee import NO_LIMIT, Work, joint_guarantee, next_joint_sample
from grading.statistics.pooled_guarantee import level_of, next_level_sample, pooled_guarantee
from grading.statistics.release_guarantee import Draw, Target

INDEPENDENT, ALIKE_HARD, SAME = "independent", "hard in all", "wrong in all"
NAMES = ("sharp", "gradual", "two kinds", "clean", "independent opinion", "overconfident", "adversarial 2 %")
"""The planted graders whose classes are made with several criteria."""
WEAK = next(grader for grader in GRADERS if grader.name == "gradual")


@dataclass(frozen=True)
class PlantedClass:
    """How the criteria of a submission are judged."""

    grader: PlantedGrader
    criteria: int
    errors: str = INDEPENDENT
    weak: bool = False
    """Whether the first criterion is judged by the gradual grader."""

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.grader.name}, one gradual" if self.weak else self.grader.name

    def scored(self, chance: Random, size: int) -> list[tuple[Judgement, ...]]:
        """Submissions, by their criteria."""
        return [self._judged(chance, at / size) for at in range(size)]

    def _judged(self, chance: Random, at: float) -> tuple[Judgement, ...]:
        if self.errors == INDEPENDENT:
            graders = [WEAK if self.weak and not one else self.grader for one in range(self.criteria)]
            return tuple(grader.judgement(chance, at) for grader in graders)
        return (self.grader.judgement(chance, at),) * self.criteria

    def drawn(self, judged: Sequence[tuple[Judgement, ...]], chance: Random) -> list[tuple[bool, ...]]:
        """Which levels are wrong this time."""
        if self.errors == SAME:
            at_once = [chance.random() for _ in judged]
            return [tuple(at < likely for _, likely in one) for one, at in zip(judged, at_once, strict=True)]
        return [tuple(chance.random() < likely for _, likely in one) for one in judged]


@dataclass(frozen=True)
class SimulatedSubmissions:
    """Of all classes of one kind; shares are means."""

    grader: str
    criteria: int
    errors: str
    classes: int
    exceeded: int
    """Classes in which more levels than allowed were wrong among what was released: of some criterion, or,
    where the target is for all criteria together, of all."""
    pooled: int
    """Classes in which more levels than allowed were wrong of all criteria together."""
    nothing: int
    released: float
    """Share of the class, with what was read of it."""
    unread: float
    oracle: float
    """The largest part from the safest on that the target allows."""

    @property
    def of_oracle(self) -> float | None:
        """Released, as a share of what the oracle could release."""
        return self.released / self.oracle if self.oracle else None


def planted_classes(criteria: int) -> Iterator[PlantedClass]:
    """Those that are measured."""
    by_name = {grader.name: grader for grader in GRADERS}
    for name in NAMES:
        for errors in (INDEPENDENT, ALIKE_HARD):
            yield PlantedClass(by_name[name], criteria, errors)
    yield PlantedClass(by_name["two kinds"], criteria, SAME)
    yield PlantedClass(by_name["clean"], criteria, weak=True)


def simulate_submissions(
    planted: PlantedClass, classes: int, size: int, marks: int, target: Target, seed: int, tries: int = 0,
    together: bool = False,
) -> SimulatedSubmissions:  # fmt: skip
    """So many classes, each with one draw that is marked to its end, after so many that proved nothing.

    Marked are so many submissions; or so many single levels, for a target of all criteria together.
    """
    chance = Random(f"{planted.name} {planted.criteria} {planted.errors} {seed}")
    prove, plan = (pooled_guarantee, next_level_sample) if together else (joint_guarantee, next_joint_sample)
    before = [NO_LIMIT] * tries
    exceeded = pooled = nothing = 0
    released = unread = oracle = 0.0
    for number in range(classes):
        if number % ALIKE == 0:
            judged = planted.scored(chance, size)
            works = [_work(at, one) for at, one in enumerate(judged)]
            draw = plan(works, target, marks, chance.getrandbits(32), before)
        wrong = planted.drawn(judged, chance)
        mine = replace(draw, keys=tuple(chance.sample(draw.candidates, len(draw.keys))))
        read = _read(works, mine, together)
        found = prove(_marked(works, wrong, read), target, [*before, mine])
        bad = _unread_wrong(found.released, wrong, read)
        too_many = sum(bad) > target.allowed(planted.criteria * len(found.released))
        exceeded += too_many if together else max(bad, default=0) > target.allowed(len(found.released))
        pooled += too_many
        nothing += not found.released
        released += len(found.released) / size / classes
        unread += len(found.unread) / size / classes
        oracle += largest_allowed(works, wrong, target, together) / size / classes
    return SimulatedSubmissions(
        planted.name, planted.criteria, planted.errors, classes, exceeded, pooled, nothing, released, unread,
        oracle,
    )  # fmt: skip


def _work(at: int, judged: Sequence[Judgement]) -> Work:
    scores = {str(criterion): score for criterion, (score, _) in enumerate(judged)}
    return Work(f"{at:05}", scores, dict.fromkeys(scores))


def _read(works: Sequence[Work], draw: Draw, together: bool) -> frozenset[tuple[str, str]]:
    """The levels that are marked."""
    if together:
        return frozenset(map(level_of, draw.keys))
    return frozenset((key, name) for key in draw.keys for name in works[0].wrong)


def _marked(
    works: Sequence[Work], wrong: Sequence[Sequence[bool]], read: frozenset[tuple[str, str]]
) -> list[Work]:
    return [
        replace(
            work,
            wrong={name: wrong[at][int(name)] if (work.key, name) in read else None for name in work.wrong},
        )
        for at, work in enumerate(works)
    ]


def _unread_wrong(
    released: Sequence[str], wrong: Sequence[Sequence[bool]], read: frozenset[tuple[str, str]]
) -> list[int]:
    """Of each criterion, the wrong levels that nobody read among what is released."""
    criteria = range(len(wrong[0]))
    return [sum(wrong[int(key)][one] for key in released if (key, str(one)) not in read) for one in criteria]


def largest_allowed(
    works: Sequence[Work], wrong: Sequence[Sequence[bool]], target: Target, together: bool = False
) -> int:
    """What the oracle releases: nobody reads any of it."""
    order = sorted(range(len(works)), key=lambda at: (works[at].score, at))
    bad, best = [0] * len(wrong[0]), 0
    for size, at in enumerate(order, start=1):
        bad = [count + one for count, one in zip(bad, wrong[at], strict=True)]
        within = sum(bad) <= target.allowed(size * len(bad)) if together else max(bad) <= target.allowed(size)
        if within:
            best = size
    return best
