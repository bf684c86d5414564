"""The chance that a person would give another level: from what is known of a judgement, one calibrated score.

The score is a logistic regression over a few features. Its weights are the most probable ones (maximum a
posteriori) given marks by people, with a normal prior around `DEFAULT`: without marks they are the default,
with few they stay near it, with many they are those of ordinary logistic regression.

`DEFAULT` is reasoned, not measured here. A model's own confidence predicts error best (arXiv 2603.29559:
seven models, ECE 0.10 to 0.17, AUC 0.67 for the best): two equally wide normal distributions with that AUC
lie 0.61 deviations apart, and with a deviation of about 0.15 that is a weight of 4. Next come checks and
model that differ, and two models of different families that do. The rest is weaker. All features are rare or
near `UNKNOWN` in ordinary work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

FEATURES_VERSION = 1
"""Rises whenever the meaning of a feature changes: weights fitted before no longer fit."""
APART_AT_MOST = 2.0
"""Levels from which a distance says no more."""
USUAL_TOKENS = 4_000
"""Of a prompt with a rubric and a work of some pages."""
STEPS = 25
SMALL = 1e-8


@dataclass(frozen=True)
class Features:
    """What is known of one judgement before a person looks at it; nothing for what is not known."""

    doubt: float | None = None
    """1 − the model's own confidence, from 0 to 1."""
    from_checks: float | None = None
    """Levels between the checks and the model."""
    from_second: float | None = None
    """Levels between the model and the second opinion."""
    unquoted: float = 0.0
    """Share of the model's quotes that are not in the work."""
    shortened: bool = False
    """The model did not see all of the work, or its answer was cut."""
    other_language: bool = False
    """The work is written in another language than the feedback is."""
    longer: float = 0.0
    """Doublings of `USUAL_TOKENS` that the prompt takes, from 0 on; not of the class, whose median moves."""
    highest: int = 4
    """The highest level: on a long scale two people are more often some levels apart."""
    criterion: str = ""
    """Which it is, for how much more or less often than others it is graded wrong; empty: not known."""


@dataclass(frozen=True)
class Weights:
    """Log-odds that a level is wrong, at no sign of it, and what each feature adds at its most."""

    intercept: float
    doubt: float
    from_checks: float
    from_second: float
    unquoted: float
    shortened: float
    other_language: float
    longer: float
    highest: float
    criteria: Mapping[str, float] = field(default_factory=dict)
    """What a criterion adds, of those that people marked."""

    def as_list(self) -> list[float]:
        """In the order of the fields, without `criteria`."""
        return [float(getattr(self, name)) for name in NAMES]


NAMES = tuple(one.name for one in fields(Weights) if one.name != "criteria")


DEFAULT = Weights(
    intercept=-4.3,
    doubt=4.0,
    from_checks=2.5,
    from_second=3.0,
    unquoted=1.0,
    shortened=0.7,
    other_language=0.3,
    longer=0.5,
    highest=1.0,
)
"""About one level in ten wrong where nothing is known, one in 60 where all signs are good."""
DEVIATIONS = Weights(1.5, 2.0, 1.5, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Of the prior: how far from the default each weight may be expected to lie."""
CRITERION_DEVIATION = 0.7
"""The same for what a criterion adds: twice the odds, or half of them."""
UNKNOWN: Mapping[str, float] = MappingProxyType({"doubt": 0.25, "from_checks": 0.2, "from_second": 0.2})
"""What stands for a feature that is not known: about its mean where it is."""


def score(found: Features, weights: Weights = DEFAULT) -> float:
    """The chance that a person's level is too far from this one, above 0 and below 1."""
    return _chance([*weights.as_list(), weights.criteria.get(found.criterion, 0.0)], [*_values(found), 1.0])


def score_when_graded(found: Features, weights: Weights = DEFAULT) -> float:
    """The same without the second opinion, which newer work does not have yet: to compare work over time."""
    return score(replace(found, from_second=None), weights)


@dataclass(frozen=True)
class Labelled:
    """A judgement that a person has judged, too."""

    group: str
    """Its submission: judgements of one stay together in `cross_fitted`."""
    features: Features
    wrong: bool
    weight: float = 1.0
    """Less than 1 for a level that a person gave knowing the model's."""
    blind: bool = True
    """The person did not know it."""


def fit(known: Sequence[Labelled], prior: Weights = DEFAULT) -> Weights:
    """The most probable weights given these, by Newton's method; the prior's without any."""
    names = sorted({one.features.criterion for one in known} - {""})
    places = {name: len(NAMES) + n for n, name in enumerate(names)}
    start = prior.as_list() + [0.0] * len(names)
    deviations = DEVIATIONS.as_list() + [CRITERION_DEVIATION] * len(names)
    rows = [(_present(one.features, places), one.wrong, one.weight) for one in known]
    now = list(start)
    for _ in range(STEPS if rows else 0):
        step = _step(now, start, deviations, rows)
        # far steps could overshoot where the curve is flat; the prior bounds how far a weight can be right
        longest = max(abs(one) for one in step)
        share = min(1.0, 2.0 / longest) if longest else 0.0
        now = [one + share * more for one, more in zip(now, step, strict=True)]
        if longest < SMALL:
            break
    fitted = dict(zip(NAMES, now, strict=False))
    return Weights(**fitted, criteria={name: now[at] for name, at in places.items()})


_Row = tuple[Sequence[tuple[int, float]], bool, float]
"""Places and values of the features that are not 0, whether the level is wrong, and what the row weighs."""


def _present(found: Features, places: Mapping[str, int]) -> list[tuple[int, float]]:
    present = [(at, value) for at, value in enumerate(_values(found)) if value]
    return [*present, (places[found.criterion], 1.0)] if found.criterion else present


def _step(
    now: Sequence[float], start: Sequence[float], deviations: Sequence[float], rows: Sequence[_Row]
) -> list[float]:
    """Newton's step uphill on the log of the posterior."""
    gradient = [(b0 - b) / d**2 for b0, b, d in zip(start, now, deviations, strict=True)]
    curvature = [[d**-2 if i == j else 0.0 for j in range(len(now))] for i, d in enumerate(deviations)]
    for present, wrong, weight in rows:
        chance = _logistic(sum(now[at] * value for at, value in present))
        pull, bend = weight * (wrong - chance), weight * chance * (1 - chance)
        for i, one in present:
            gradient[i] += pull * one
            for j, other in present:
                curvature[i][j] += bend * one * other
    return _solve(curvature, gradient)


@dataclass(frozen=True)
class Tried:
    """A score beside what a person found."""

    label: Labelled
    score: float

    @property
    def wrong(self) -> bool:
        """Whether the person found it wrong."""
        return self.label.wrong


def cross_fitted(known: Sequence[Labelled], folds: int = 5) -> list[Tried]:
    """The score of each by weights fitted without its group and those that share its fold."""
    groups = {group: n % folds for n, group in enumerate(sorted({one.group for one in known}))}
    tried: list[Tried] = []
    for fold in range(folds):
        here = [one for one in known if groups[one.group] == fold]
        if here:
            weights = fit([one for one in known if groups[one.group] != fold])
            tried += [Tried(one, score(one.features, weights)) for one in here]
    return tried


def _values(found: Features) -> list[float]:
    """The features from 0 to 1, that of `highest` from −1, in the order of the weights; first 1."""
    doubt = UNKNOWN["doubt"] if found.doubt is None else min(max(found.doubt, 0.0), 1.0)
    return [
        1.0,
        doubt,
        _distance(found.from_checks, UNKNOWN["from_checks"]),
        _distance(found.from_second, UNKNOWN["from_second"]),
        min(max(found.unquoted, 0.0), 1.0),
        float(found.shortened),
        float(found.other_language),
        min(max(found.longer, 0.0), 2.0) / 2,
        min(max(math.log2(max(found.highest, 1) / 4) / 2, -1.0), 1.0),
    ]


def _distance(levels: float | None, unknown: float) -> float:
    return unknown if levels is None else min(levels, APART_AT_MOST) / APART_AT_MOST


def _chance(weights: Sequence[float], values: Sequence[float]) -> float:
    return _logistic(sum(weight * value for weight, value in zip(weights, values, strict=True)))


def _logistic(odds: float) -> float:
    return 1 / (1 + math.exp(-min(max(odds, -30.0), 30.0)))


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """The solution of a positive definite system, by Gauss' elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for at in range(size):
        for below in range(at + 1, size):
            share = rows[below][at] / rows[at][at]
            rows[below] = [one - share * above for one, above in zip(rows[below], rows[at], strict=True)]
    found = [0.0] * size
    for at in reversed(range(size)):
        rest = sum(rows[at][k] * found[k] for k in range(at + 1, size))
        found[at] = (rows[at][size] - rest) / rows[at][at]
    return found
