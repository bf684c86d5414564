"""Stage profiles of a machine: seconds to the first token, seconds a token, tokens of a typical job."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grading.scheduling.cluster_view import SpeedProfile
from grading.scheduling.speed_curve import Curve, bucket, grown
from grading.scheduling.speed_estimates import with_guesses

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
class StageProfile:
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
        missing = max(0.0, EXPECTED - self.jobs) if self.expected else 0.0
        jobs = self.jobs + missing
        return (self.jobs * self.mean + missing * self.expected) / jobs if jobs else SHARE_WRITTEN * self.most

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

    def speed_profile(self, full: int, slots: int, health: float) -> SpeedProfile | None:
        """For up to `full` at once; nothing when neither measured nor guessed."""
        if self.known:
            written = self.tokens and self.step.known
            seen = self.step.close(full) / self.tokens if written else self.jobs
            told = self.tokens if self.jobs else 0.0
            alone_s, full_s = self.seconds(1, BELOW), self.seconds(full, BELOW)
            return SpeedProfile(alone_s, full_s, full, health, told, max(seen, 0.01))
        if self.guess_full_s:
            alone = self.guess_full_s / grown(slots)
            return SpeedProfile(alone, alone * grown(full), full, tokens=self.tokens)
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


__all__ = ["Learner", "Sample", "Seen", "with_guesses"]
WINDOW_S = 25.0
"""Health is measured over so many seconds."""
LEAST_WINDOW_S = 10.0
"""As long as it was busy for less of that, the rest counts as usual."""
RELAX_S = 120.0
"""A machine that does nothing is believed to recover within about this time."""
GAP_S = 10.0
"""Nobody looked for so long, or the machine slept: that time is not counted."""
TOGETHER = 3
"""So many or more of which none has lasted for half its usual time began together."""
SLOWEST, FASTEST = 0.05, 4.0
NONE: Mapping[str, int] = {}
Phase = Literal["waiting", "reading", "writing"]


@dataclass(frozen=True)
class Seen:
    """A run in hand. `waiting` is whatever is not speed: its turn, the engine's queue, loading a model."""

    run: str
    stage: str
    phase: Phase
    tokens: int = 0
    """Written so far as the engine tells it: a server that sends several tokens in a piece tells fewer."""
    most: int = 0
    """Tokens it may write."""


@dataclass(frozen=True)
class Sample:
    """What happened since the sample before."""

    seconds: float
    batch: Mapping[str, int]
    """stage -> runs that read or write."""
    work: Mapping[str, float]
    """stage -> jobs' worth of work done."""


@dataclass
class _Run:
    """A run, and what it added, so that it can be taken back."""

    seen: Seen
    began: float
    read_s: float = 0.0
    credit: float = 0.0
    """What its reading counted for health so far."""
    wrote: bool = False
    repairs: bool = False
    added: dict[tuple[bool, int], list[float]] = field(default_factory=dict)
    """(of `step`, bucket) -> seconds and events"""


@dataclass(frozen=True)
class _Beside:
    """A stage in the batch of this moment: how many there are, and what is usual then."""

    at_once: int
    all: int
    part: float
    """Of a job's work that is reading."""
    job_s: float
    """Seconds of a job; 0 when not known well enough to compare with."""
    first_s: float
    others_s: float
    """What a step takes for the other stages in the batch; 0 when not known."""


class Learner:
    """The speeds of one machine. `now` is seconds of any clock that goes on evenly. Not thread-safe."""

    def __init__(self, slots: int, stages: Mapping[str, float | None]) -> None:
        """`stages` gives jobs an hour with all slots, where somebody made a first guess."""
        self.slots = slots
        self._stages = {
            s: StageProfile(3600 * slots / hourly if hourly else 0.0) for s, hourly in stages.items()
        }
        self._runs: dict[str, _Run] = {}
        self._gateway_requests: Counter[str] = Counter()
        self._at: float | None = None
        self._recent: deque[tuple[float, str, float, float]] = deque()
        """(when, run, seconds it usually takes, seconds it took)"""
        self._sums = [0.0, 0.0]
        self._health, self._health_at = 1.0, 0.0
        self._ended: dict[str, float] = {}
        """stage -> jobs that ended without telling how far they were, since the last sample"""

    def sample(self, now: float, runs: Sequence[Seen], gateway_requests: Mapping[str, int] = NONE) -> Sample:
        """All runs in hand as they are now; to be called every second or two, and when a run ends.

        `gateway_requests` is how many generations of other tools a stage's model has beside these.
        """
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        known = [one for one in runs if one.stage in self._stages]
        batch = Counter(one.stage for one in known if one.phase != "waiting")
        counts = 0 < passed <= GAP_S
        work: dict[str, float] = {}
        self._gateway_requests = Counter(
            {stage: count for stage, count in gateway_requests.items() if stage in self._stages}
        )
        moment = self._moment(now, batch + self._gateway_requests) if counts else {}
        for one in known:
            before = self._runs.get(one.run)
            if before and before.seen.stage != one.stage:
                before = None
            run = before or _Run(Seen(one.run, one.stage, "waiting"), now)
            self._stages[one.stage].most = one.most or self._stages[one.stage].most
            if counts and before and one.phase != "waiting":
                beside = moment[one.stage]
                begins = one.phase == "writing" and not run.wrote
                written = self._stages[one.stage].written(one.tokens - run.seen.tokens)
                done = beside.part * begins + (1 - beside.part) * written
                work[one.stage] = work.get(one.stage, 0.0) + done
                self._learn(now, run, one, passed, beside)
            run.wrote = run.wrote or one.phase == "writing"
            run.seen = one
            self._runs[one.run] = run
        here = {one.run for one in known}
        self._runs = {name: run for name, run in self._runs.items() if name in here}
        self._look_at_health(now, sum(batch.values()))
        work, self._ended = {s: work.get(s, 0.0) + self._ended.get(s, 0.0) for s in self._stages}, {}
        return Sample(passed if counts else 0.0, dict(batch), work)

    def expect(self, tokens: Mapping[str, float]) -> None:
        """Tokens of usual jobs as others know them; a stage that ended enough of its own needs none."""
        for stage, profile in self._stages.items():
            profile.expected = tokens.get(stage, 0.0) or profile.expected

    def ended(self, now: float, one: Seen, *, ok: bool, seconds: float, repaired: bool = False) -> None:
        """A run ended, `ok` or by an error that says nothing about speed; follows a sample with it.

        `one.tokens` is what it wrote in all, counted as in samples, `seconds` what it took, for one too
        short to be sampled.
        """
        run, stage = self._runs.pop(one.run, None), self._stages.get(one.stage)
        if stage is None:
            return
        if not ok:
            self._take_back(run, stage)
            return
        if repaired:
            return
        stage.count(one.tokens)
        others = (other.seen for other in self._runs.values())
        batch = 1 + sum(other.stage == one.stage and other.phase != "waiting" for other in others)
        batch += self._gateway_requests[one.stage]
        if run is None or not run.wrote:
            self._ended[one.stage] = self._ended.get(one.stage, 0.0) + 1
        if run is None or not (run.wrote or run.read_s):  # over before it was seen
            stage.first.add(batch, max(0.0, seconds), 1, max(0.0, seconds))
            return
        late = max(0, one.tokens - run.seen.tokens) if run.wrote else 1
        (stage.step if run.wrote else stage.first).add(batch, 0.0, late, 0.0)

    def _moment(self, now: float, batch: Mapping[str, int]) -> dict[str, _Beside]:
        """What is usual for each stage in this batch: a step does what it would for each stage alone."""
        oldest_s = now - min((run.began for run in self._runs.values()), default=now)
        settled = all(self._stages[s].settled(n) for s, n in batch.items())
        steps = {s: self._stages[s].step.value(n) for s, n in batch.items()}
        found = {}
        for stage, at_once in batch.items():
            profile = self._stages[stage]
            others = [steps[s] for s in batch if s != stage]
            others_s = sum(others) if all(others) else 0.0
            job_s = profile.seconds(at_once) + profile.tokens * others_s if settled else 0.0
            if sum(batch.values()) >= TOGETHER and oldest_s < job_s / 2:
                job_s = 0.0  # first none writes, then those that write wait for those that read
            part, first_s = profile.reading(at_once), profile.first.value(at_once)
            found[stage] = _Beside(at_once, sum(batch.values()), part, job_s, first_s, others_s)
        return found

    def _learn(self, now: float, run: _Run, one: Seen, passed: float, beside: _Beside) -> None:
        if run.wrote and (one.phase == "reading" or one.tokens < run.seen.tokens):
            run.repairs = True  # a second try reads and writes other things than a job
        if run.repairs:
            return
        begins = one.phase == "writing" and not run.wrote
        reading = passed if one.phase == "reading" else passed / 2 if begins else 0.0
        tokens = one.tokens - run.seen.tokens
        run.read_s += reading
        if beside.job_s:
            done_s = self._read_s(run, reading, begins, beside)
            done_s += self._stages[one.stage].written(tokens) * (1 - beside.part) * beside.job_s
            self._recent.append((now, one.run, done_s, passed))
            self._sums = [self._sums[0] + done_s, self._sums[1] + passed]
        if reading:
            self._add(run, False, reading, 1.0 * begins, beside)
        if one.phase == "writing":
            self._add(run, True, passed - reading, tokens, beside)

    def _read_s(self, run: _Run, reading: float, begins: bool, beside: _Beside) -> float:
        """What reading counts for health: as it goes, but no more than it is worth."""
        if not reading:
            return 0.0
        whole = beside.job_s * beside.part
        left = max(0.0, whole - run.credit)
        credit = left if begins or not beside.first_s else min(left, reading * whole / beside.first_s)
        run.credit += credit
        return credit

    def _add(self, run: _Run, step: bool, seconds: float, events: float, beside: _Beside) -> None:
        """Take a run's seconds and what came of them; where stages share the machine, a part of them."""
        stage, at_once = self._stages[run.seen.stage], beside.at_once
        curve, passed = stage.step if step else stage.first, seconds / at_once
        if at_once == beside.all:
            curve.by_itself(events)
        elif curve.sure:
            return
        elif step and beside.others_s:
            seconds *= stage.share(seconds, events * beside.others_s)
        else:
            seconds *= at_once / beside.all
        curve.add(at_once, seconds, events, passed)
        sums = run.added.setdefault((step, bucket(at_once)), [0.0, 0.0])
        sums[0] += seconds
        sums[1] += events

    def _take_back(self, run: _Run | None, stage: StageProfile) -> None:
        if run is None:
            return
        for (step, number), (seconds, events) in run.added.items():
            (stage.step if step else stage.first).take_back(number, seconds, events)
        self._recent = deque(row for row in self._recent if row[1] != run.seen.run)
        self._sums = [sum(row[2] for row in self._recent), sum(row[3] for row in self._recent)]

    def _look_at_health(self, now: float, at_once: int) -> None:
        while self._recent and not now - WINDOW_S < self._recent[0][0] <= now:
            _, _, done_s, took_s = self._recent.popleft()
            self._sums = [self._sums[0] - done_s, self._sums[1] - took_s]
        if self._recent and self._recent[-1][0] == now:
            rest = max(0.0, LEAST_WINDOW_S * at_once - self._sums[1])
            health = (self._sums[0] + rest) / max(1e-9, self._sums[1] + rest)
            self._health, self._health_at = min(FASTEST, max(SLOWEST, health)), now

    def health(self, now: float) -> float:
        """Speed of the last half minute over what is usual; of an idle machine near what it was, then 1."""
        return 1 + (self._health - 1) * math.exp(-max(0.0, now - self._health_at) / RELAX_S)

    def speed_profiles(self, now: float, full: int) -> dict[str, SpeedProfile]:
        """Each stage of which anything is known, for up to `full` at once."""
        health = self.health(now)
        found = {s: profile.speed_profile(full, self.slots, health) for s, profile in self._stages.items()}
        return {s: profile for s, profile in found.items() if profile is not None}

    def remaining(self) -> dict[str, float]:
        """stage -> jobs' worth of work that is left of the runs in hand."""
        batch = Counter(run.seen.stage for run in self._runs.values())
        remaining: dict[str, float] = {}
        for run in self._runs.values():
            one, profile = run.seen, self._stages[run.seen.stage]
            reads = one.phase != "writing"
            done = 0.0 if run.repairs else profile.done(reads, one.tokens, run.read_s, batch[one.stage])
            remaining[one.stage] = remaining.get(one.stage, 0.0) + 1 - done
        return remaining

    def dump(self, stage: str) -> dict[str, object]:
        """What was learned of a stage, as JSON; empty when nothing was."""
        profile = self._stages[stage]
        return profile.dump() if profile.known else {}

    def restore(self, stage: str, said: object) -> None:
        """What `dump` gave earlier, for the same model; nonsense is left out."""
        self._stages[stage].restore(said)
