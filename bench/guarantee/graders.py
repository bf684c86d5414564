"""Planted graders: judgements with the score a system would give them, and whether they are wrong.

Errors are drawn from the chances that a grader has; the score is what the system predicts of them, which need
not be right. Each class is made anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Judgement = tuple[float, float]
"""(score, chance that the level is wrong)."""
LEVELS = (0.1, 0.15, 0.25, 0.3, 0.2)
"""How often a person gives each of five levels."""
TOO_KIND = (0.3, 0.15, 0.03, 0.01, 0.01)
"""How often the grader that is biased by level is two levels above it."""


@dataclass(frozen=True)
class PlantedGrader:
    """One way to be wrong."""

    name: str
    says: str
    judgement: Callable[[Random, float], Judgement]
    """Of a submission that comes after this part of the class (0 to 1)."""

    def scored(self, chance: Random, size: int) -> list[Judgement]:
        """A class in the order in which it came."""
        return [self.judgement(chance, at / size) for at in range(size)]


def drawn(judgements: Sequence[Judgement], chance: Random) -> list[bool]:
    """Which of them are wrong this time."""
    return [chance.random() < likely for _, likely in judgements]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _sharp(hard: float) -> float:
    return 0.6 * _sigmoid(20 * (hard - 0.75))


def _gradual(hard: float) -> float:
    return 0.4 * _sigmoid(10 * (hard - 0.7))


def _kind(chance: Random) -> float:
    return 0.3 if chance.random() < 0.3 else 0.005


def _right(chance: float) -> Judgement:
    """A score that is what it says."""
    return chance, chance


def _by_level(chance: Random, at: float) -> Judgement:
    """The score knows the machine's level, the errors follow the person's."""
    level = chance.choices(range(5), LEVELS)[0]
    wrong = chance.random() < TOO_KIND[level]
    seen = min(4, level + 2) if wrong else level
    return _wrong_at(seen), float(wrong)


def _wrong_at(seen: int) -> float:
    """How likely the machine's level is wrong, by Bayes."""
    wrong = sum(LEVELS[level] * TOO_KIND[level] for level in range(5) if min(4, level + 2) == seen)
    return wrong / (wrong + LEVELS[seen] * (1 - TOO_KIND[seen]))


def _opinion(wrong: float, shared: float) -> Callable[[Random, float], Judgement]:
    """The score knows whether a second model agrees, as it does on 94 % of what is right."""

    def judgement(chance: Random, at: float) -> Judgement:
        agrees = wrong * shared, (1 - wrong) * 0.94
        differs = wrong * (1 - shared), (1 - wrong) * 0.06
        bad, good = agrees if chance.random() < sum(agrees) else differs
        return _right(bad / (bad + good))

    return judgement


def _overconfident(chance: Random, at: float) -> Judgement:
    wrong = _sharp(chance.random())
    return wrong / 3, wrong


def _drifted(chance: Random, at: float) -> Judgement:
    """From the half on work is harder than any before, and the score sees it."""
    return _right(_sharp(chance.random() if at < 0.5 else 0.5 + chance.random() / 2))


def _unseen_drift(chance: Random, at: float) -> Judgement:
    """From the half on the grader errs four times as often, at the same scores."""
    score = _sharp(chance.random())
    return score, score if at < 0.5 else min(1.0, 4 * score)


def _adversarial(chance: Random, at: float) -> Judgement:
    """2 % are made to get wrong levels, and to look safest of all."""
    return (0.0, 1.0) if chance.random() < 0.02 else _right(_sharp(chance.random()))


GRADERS = (
    PlantedGrader("sharp", "errs where work is hard, and says so", lambda c, _: _right(_sharp(c.random()))),
    PlantedGrader("gradual", "errs more the harder work is", lambda c, _: _right(_gradual(c.random()))),
    PlantedGrader("shallow", "0 to 20 % wrong: the score says little", lambda c, _: _right(0.2 * c.random())),
    PlantedGrader("two kinds", "30 % wrong of three in ten, else 0.5 %", lambda c, _: _right(_kind(c))),
    PlantedGrader("noise", "8 % wrong, the score says nothing", lambda c, _: (0.16 * c.random(), 0.08)),
    PlantedGrader("clean", "0.5 % wrong, the score says nothing", lambda c, _: (0.01 * c.random(), 0.005)),
    PlantedGrader("bias by level", "too kind to weak work; the score knows its own level only", _by_level),
    PlantedGrader("independent opinion", "12 % wrong; a second model shares 5 % of it", _opinion(0.12, 0.05)),
    PlantedGrader("correlated opinion", "8 % wrong; a second model shares half of it", _opinion(0.08, 0.5)),
    PlantedGrader("overconfident", "as sharp, but says a third of the chance", _overconfident),
    PlantedGrader("drifted half way", "from the half on four times as many errors, unseen", _unseen_drift),
    PlantedGrader("adversarial 2 %", "as sharp; 2 % are made to get wrong levels", _adversarial),
)
DRIFTING = PlantedGrader("drift", "as sharp; from the half on only hard work", _drifted)
STEADY = GRADERS[0]
