"""Whether scores that come later are still those of the class that a guarantee was proven for.

A conformal test martingale (Vovk et al., "Retrain or not retrain", arXiv 2102.10439). Each later score is
ranked among all before it. If the order in which they came says nothing, these ranks are independent and
uniform, whatever the distribution of scores. Bets on ranks that are too high or too low, mixed over the times
at which a drift could begin, then ever win 1/risk with at most this risk (Ville's inequality). So it may be
looked at after each score.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

BETS = ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4))
"""Beta densities of the ranks, (1, 1) for none: higher or lower scores, by a little or much."""
SWITCH = 0.02
"""The part of the stakes laid anew among all bets after each score, as a drift may begin at any time."""


@dataclass(frozen=True)
class Drift:
    """What later scores say against being as those before."""

    seen: int
    """Later scores up to the alarm, or all."""
    alarm: bool
    against: float
    """What a stake of 1 against exchangeability won: 20 and more for an alarm at a risk of 5 %."""
    higher: bool
    """Whether the later scores are rather higher ones: more levels at risk."""


def score_drift(
    reference: Sequence[float], later: Sequence[float], risk: float = 0.05, seed: int = 0
) -> Drift:
    """The test of `later`, in the order in which they came, after those of `reference`.

    Without a drift it alarms in at most the part `risk` of classes. Among equal scores `seed` decides.
    """
    chance = Random(seed)
    before = sorted(reference)
    stakes = [1 / len(BETS)] * len(BETS)
    won, ranks = 1.0, 0.0
    for seen, score in enumerate(later, start=1):
        low, high = bisect_left(before, score), bisect_right(before, score)
        rank = (low + chance.random() * (high - low + 1)) / (len(before) + 1)
        before.insert(high, score)
        ranks += rank
        stakes = [stake * _density(rank, *bet) for stake, bet in zip(stakes, BETS, strict=True)]
        won = sum(stakes)
        if won >= 1 / risk:
            return Drift(seen, True, won, ranks > seen / 2)
        stakes = [(1 - SWITCH) * stake + SWITCH * won / len(BETS) for stake in stakes]
    return Drift(len(later), False, won, ranks > len(later) / 2)


def _density(rank: float, above: int, below: int) -> float:
    """Of a Beta distribution where one of the two is 1."""
    return above * below * rank ** (above - 1) * (1.0 - rank) ** (below - 1)
