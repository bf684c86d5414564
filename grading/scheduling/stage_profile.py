"""What is usual for one stage on a machine: seconds to the first token, seconds a token, tokens of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from grading.scheduling.cluster_view import Pace
from grading.scheduling.speed_curve import Curve, grown

JOBS = 50.0
"""Tokens of a usual job: the mean of about so many jobs."""
SHARE_WRITTEN = 0.7
"""Of the most a job may write, as long as none has ended."""
EXPECTED = 8.0
"""Until it did so many jobs itself, what other machines tell of their length makes up for those missing."""
OUTLIER = 4.0
"""A job that wrote more than so many times the usual counts as if it had written that."""
NEARLY = 0.95
"""Of a job that has written all that is usual, and is not over."""
BELOW = 0.5
"""Part of the slope that machines tell of fewer at once than were ever measured: one believed too fast with
little to do draws work that it should leave, which costs more than one believed too slow."""
LEAST_S = 0.001


@dataclass
class Usual:
    """All that was learned of a stage, and a first guess as long as that is nothing."""

    guess_full_s: float = 0.0
    """Seconds of a job with all slots in use, as the configuration says; 0: it says nothing."""
    step: Curve = field(default_factory=lambda: Curve(5, 100))
    """Seconds a token."""
    first: Curve = field(default_factory=lambda: Curve(1, 3))
    """Seconds to the first token."""
    mean: float = 0.0
    jobs: float = 0.0
    """Behind `mean`, bounded."""
    most: int = 0
    """Tokens a job may write."""
    expected: float = 0.0
    """Tokens of a usual job by what other machines know; 0: nothing."""
    mixed_s: float = 0.0
    mixed_others_s: float = 0.0
    """Of the seconds beside another model, those that the other one took by all that is known."""

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.step.known or (self.first.known and self.jobs > 0)

    @property
    def tokens(self) -> float:
        """Output tokens of a usual job; 0 when not known, or when none are counted."""
        few = max(0.0, EXPECTED - self.jobs) if self.expected else 0.0
        jobs = self.jobs + few
        return (self.jobs * self.mean + few * self.expected) / jobs if jobs else SHARE_WRITTEN * self.most

    def seconds(self, at_once: float, below: float = 1.0) -> float:
        """Of a usual job with always so many in the batch; see `Curve.value` for `below`."""
        step_s = self.step.value(at_once, below)
        return max(LEAST_S, self.first.value(at_once, below) + self.tokens * step_s)

    def reading(self, at_once: int) -> float:
        """The part of a job's work that is reading, by the time it takes the machine."""
        first, step = self.first.value(1), self.step.value(at_once)
        if not self.tokens or not step:
            return 1.0 if not self.tokens else 0.0
        return first / (first + self.tokens * step / at_once)

    def settled(self, at_once: int) -> bool:
        """Whether enough was measured with about as many in the batch to compare with."""
        if not self.known or self.jobs < 1:
            return False
        return (self.step if self.tokens else self.first).near(at_once)

    def written(self, tokens: int) -> float:
        """So many tokens as a part of a usual job."""
        return max(0, tokens) / self.tokens if self.tokens else 0.0

    def share(self, seconds: float, others_s: float) -> float:
        """The part of all seconds beside another model that this one took."""
        self.mixed_s += seconds
        self.mixed_others_s += others_s
        return min(0.98, max(0.02, 1 - self.mixed_others_s / max(LEAST_S, self.mixed_s)))

    def count(self, tokens: int) -> None:
        """A job ended well after so many tokens."""
        wrote = min(float(tokens), OUTLIER * self.mean) if self.jobs >= 3 and self.mean else float(tokens)
        self.jobs = min(JOBS, self.jobs + 1)
        self.mean += (wrote - self.mean) / self.jobs

    def pace(self, full: int, slots: int, health: float) -> Pace | None:
        """For up to `full` at once; nothing when neither measured nor guessed."""
        if self.known:
            written = self.tokens and self.step.known
            seen = self.step.close(full) / self.tokens if written else self.jobs
            told = self.tokens if self.jobs else 0.0
            alone_s, full_s = self.seconds(1, BELOW), self.seconds(full, BELOW)
            return Pace(alone_s, full_s, full, health, told, max(seen, 0.01))
        if self.guess_full_s:
            alone = self.guess_full_s / grown(slots)
            return Pace(alone, alone * grown(full), full, tokens=self.tokens)
        return None

    def done(self, reads: bool, tokens: int, read_s: float, at_once: int) -> float:
        """The part of a job that is done after so many tokens, or so many seconds of reading."""
        total = self.seconds(at_once)
        reading = min(1.0, self.first.value(at_once) / total) if self.known else 0.0
        if reads:
            return min(NEARLY * reading, read_s / total) if self.known else 0.0
        return min(NEARLY, reading + (1 - reading) * self.written(tokens))

    def dump(self) -> dict[str, object]:
        """As JSON."""
        tokens = [round(self.mean, 3), self.jobs]
        return {"step": self.step.dump(), "first": self.first.dump(), "tokens": tokens}

    def restore(self, said: object) -> None:
        """From what `dump` gave; what is nonsense is left out."""
        if not isinstance(said, dict):
            return
        self.step.restore(said.get("step"))
        self.first.restore(said.get("first"))
        tokens = said.get("tokens")
        if isinstance(tokens, list) and len(tokens) == 2 and all(_sound(one) for one in tokens):
            self.mean, self.jobs = float(tokens[0]), min(JOBS, float(tokens[1]))


def _sound(said: object) -> bool:
    return isinstance(said, int | float) and math.isfinite(said) and said >= 0
