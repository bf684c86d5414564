"""Whether a draft model makes an answer come sooner, and how many tokens it shall propose each time.

Predicted from what was measured, never typed in. Times in seconds, lengths in tokens. Pure values, which
`decode_loop.py` keeps as generations go on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grading.domain.messages import Message
from workers.machine.engines.estimators import AGAIN, NEARLY, LeastSquares, PrefillSpeed, WeightedMean
from workers.machine.engines.speculative.messages import (
    ACCEPTANCE_NOT_MEASURED,
    NEVER_PAYS,
    NOT_TRIED,
    NOTHING_LEFT,
    PREDICTED,
    STEP_NOT_MEASURED,
)

STEADY = 0.995
"""What a checked proposal still counts when the next one comes."""
LEAST_LEFT = 16
"""An answer that is longer than usual, or of an unknown length, is expected to have so many more tokens."""
FEW = 4
"""Steps without a draft that every answer begins with, so that it is always known how long they take."""


@dataclass(frozen=True)
class Rate:
    """How often something is so; old cases fade."""

    hits: float = 0.0
    tries: float = 0.0

    def seen(self, hits: int, tries: int) -> Rate:
        """With more cases."""
        keep = STEADY**tries
        return Rate(keep * self.hits + hits, keep * self.tries + tries)

    @property
    def value(self) -> float:
        """Between 0 and 1, and never quite either."""
        return (self.hits + 1) / (self.tries + 2)


@dataclass(frozen=True)
class ModelSpeeds:
    """What is known of a model and its draft model on this machine, one generation at a time."""

    plain: WeightedMean = field(default_factory=WeightedMean)
    """A step of the model without a draft."""
    draft: WeightedMean = field(default_factory=WeightedMean)
    """A token of the draft model."""
    check: LeastSquares = field(default_factory=LeastSquares)
    """A step of the model over several tokens: a part for the step, a part for each token."""
    reading: PrefillSpeed = field(default_factory=PrefillSpeed)
    """How long the draft model reads a prompt."""

    def round_s(self, tokens: int) -> float:
        """To propose so many tokens and check them, with the last one that was there before."""
        return tokens * self.draft.value + self.check.at(1, tokens + 1)


@dataclass(frozen=True)
class StageStatistics:
    """What is known of one stage's answers."""

    accepted: Rate = Rate()
    """A proposed token is the model's own, if all before it were."""
    output: WeightedMean = field(default_factory=WeightedMean)
    """How long answers are."""
    error: WeightedMean = field(default_factory=lambda: WeightedMean(0.1, 1.0))
    """How far predictions of drafting were off, as the absolute logarithm of their ratio."""
    since: int = 0
    """Answers that could have had a draft since the last that had one."""

    def left(self, written: int, most: int) -> int:
        """How many more tokens an answer will have that has `written`, and can have `most` more."""
        typical = self.output.value if self.output.weight else 0.0
        return max(1, min(most, max(LEAST_LEFT, round(typical) - written)))


@dataclass(frozen=True)
class Work:
    """An answer at some point, alone in the batch."""

    have: int
    """Tokens of prompt and answer that the draft model has read."""
    read: int
    """Those it has not."""
    written: int
    """Tokens of the answer so far."""
    most: int
    """Tokens the answer can still have."""


@dataclass(frozen=True)
class Choice:
    """How many tokens are proposed at a time, none for the direct way; and why.

    `expected_s` are the seconds until the end of the answer that both ways were expected to take.
    """

    tokens: int
    why: Message
    expected_s: Mapping[str, float]
    token_s: float | None = None
    """Seconds that a token written with drafts was expected to take."""


def a_round(rate: float, tokens: int) -> float:
    """Tokens that a round of so many proposals writes: those accepted until one is not, and one more."""
    return (1 - rate ** (tokens + 1)) / (1 - rate) if rate < 1 else tokens + 1


def choose(speeds: ModelSpeeds, habits: StageStatistics, work: Work, longest: int) -> Choice:
    """The number of proposals that should end the answer soonest, at most `longest`, or none."""
    left = habits.left(work.written, work.most)
    direct = {"direct": left * speeds.plain.value}
    if not speeds.plain.weight:
        return Choice(0, STEP_NOT_MEASURED(), {})
    if left < 2:
        return Choice(0, NOTHING_LEFT(), direct)
    known = habits.accepted.tries > 0
    rate = habits.accepted.value if known else 1.0
    reading = speeds.reading.seconds(work.have, work.read)
    rounds = {k: speeds.round_s(k) / a_round(rate, k) for k in range(1, longest + 1)}
    best = min(rounds, key=lambda k: (rounds[k], k))
    times = {**direct, "speculative": reading + left * rounds[best]}
    if not known and times["speculative"] < times["direct"]:
        return Choice(longest, ACCEPTANCE_NOT_MEASURED(), direct)
    both = {"direct": f"{times['direct']:.2f} s", "drafted": f"{times['speculative']:.2f} s"}
    if not known:
        return Choice(0, NEVER_PAYS(tokens=left, **both), times)
    why = PREDICTED(tokens=left, proposals=best, accepted=f"{rate:.0%}", **both)
    if times["speculative"] * math.exp(_doubt(habits)) < times["direct"]:
        return Choice(best, why, times, rounds[best])
    if habits.since >= AGAIN and times["speculative"] < NEARLY * times["direct"]:
        return Choice(best, NOT_TRIED(answers=habits.since), times, rounds[best])
    return Choice(0, why, times)


def _doubt(habits: StageStatistics) -> float:
    """By how much drafting must be better: half of what predictions were off, as for the hybrid engine."""
    return min(0.5 * habits.error.value, 0.1)


def checked(habits: StageStatistics, proposed: int, accepted: int) -> StageStatistics:
    """After a round: what comes behind the first proposal that was not accepted says nothing."""
    tries = accepted + (accepted < proposed)
    return replace(habits, accepted=habits.accepted.seen(accepted, tries))


def ended(
    habits: StageStatistics, output: int, token_s: float | None = None, predicted_s: float | None = None
) -> StageStatistics:
    """After an answer of so many tokens, alone; seconds a token with drafts, as taken and as expected."""
    error = habits.error
    if token_s and predicted_s:
        error = error.seen(abs(math.log(token_s / predicted_s)))
    since = 0 if token_s else habits.since + 1
    return replace(habits, output=habits.output.seen(output), error=error, since=since)
