"""What this machine learns of its own speed while it works, and how many generations at once are best."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from redis import Redis
from redis.exceptions import RedisError

from grading.broker.leases import SPEED_PROFILES
from grading.config.machines import Machine
from grading.domain.jobs import Result
from grading.scheduling.cluster_view import SpeedProfile
from grading.scheduling.concurrency import Best
from grading.scheduling.speed_profile import Learner, Sample, Seen
from workers.machine.active_run import RunInHand

log = logging.getLogger(__name__)
SAMPLE_S = 1.0
SOONEST = 0.2
"""Runs that begin or end are looked at at once, but not more often than after this part of it."""
SAVE_S = 30.0
KEEP_S = 7 * 86_400.0
"""What was learned longer ago is not used."""
LOADS_S = 2.0
"""Loading that took less is none: the engine only could not know."""
SLOW_CODES = ("budget_exceeded",)
"""Errors of runs whose speed was real all the same."""
Place = tuple[str, str]
"""Engine and model."""


@dataclass
class _Load:
    """What is known of a model's loading."""

    took_s: float = 0.0
    used: bool = False
    turns: bool = False
    """It had to be loaded again: models of this engine take turns in memory."""


class ThroughputLearner:
    """Learns from the runs in hand. Thread-safe. Nothing here waits for Redis but `until_stopped`.

    `runs` gives those in hand; `clock` is in seconds from any start. Engines that are `unsure` also say
    "loading" while they cannot know whether the model is there. `gateway_requests` says how many
    generations of each model run beside them: these slow a batch down as runs do, but are no work that
    counts.
    """

    def __init__(
        self,
        machine: Machine,
        redis: Redis,
        runs: Callable[[], Sequence[RunInHand]],
        clock: Callable[[], float] = time.monotonic,
        unsure: Set[str] = frozenset(),
    ) -> None:
        self._machine = machine
        self._unsure = unsure
        self._redis = redis
        self._runs = runs
        self._clock = clock
        self.gateway_requests: Callable[[], Mapping[Place, int]] = dict
        self._turn = threading.Lock()
        self._learner = Learner(machine.slots, {s: p.jobs_per_hour for s, p in machine.stages.items()})
        self._best: dict[str, Best] = {}
        self._now_best: Best | None = None
        self._loads: dict[Place, _Load] = {}
        self._last: dict[str, Place] = {}
        """engine -> what wrote last"""
        self._loading: dict[str, float] = {}
        """run -> when it was first seen to load"""
        self._saved: dict[str, str] = {}
        self._looked = -math.inf

    def look(self) -> None:
        """See how far the runs in hand are; when one begins, when one ends, and every second."""
        with self._turn:
            self._look()

    def ended(self, working: RunInHand, result: Result) -> None:
        """A run that is still in hand has its result."""
        used = result.provenance
        # in the unit that was seen while it wrote: a server may count several tokens for each piece it sends
        one = self._seen(working, working.tokens or used.tokens.output)
        with self._turn:
            self._look()
            self._learner.ended(
                self._clock(),
                one,
                ok=result.ok or result.error in SLOW_CODES,
                seconds=used.seconds,
                repaired=used.repaired or not result.ok,
            )
            self._loading.pop(working.job.run_id, None)

    def expect(self, tokens: Mapping[str, float]) -> None:
        """The usual length of a stage's answers as others know it, for as long as few were written here."""
        with self._turn:
            self._learner.expect(tokens)

    def limit(self) -> int:
        """Generations at once that are best now, of the model that writes or wrote last."""
        best = self._now_best
        return best.limit if best else self._machine.slots

    def why(self) -> str:
        """Why so many, in one sentence."""
        best = self._now_best
        return best.why if best else f"all {self._machine.slots}: nothing else is measured yet"

    def running(self) -> dict[str, int]:
        """stage -> runs in hand."""
        return dict(Counter(working.job.stage for working in self._runs()))

    def remaining(self) -> dict[str, float]:
        """stage -> jobs' worth of work that is left of those in hand."""
        with self._turn:
            remaining = self._learner.remaining()
        return {s: remaining.get(s, float(count)) for s, count in self.running().items()}

    def speed_profiles(self) -> dict[str, SpeedProfile]:
        """Each stage of which anything is known."""
        with self._turn:
            return self._learner.speed_profiles(self._clock(), self.limit())

    def load_s(self) -> dict[str, float]:
        """stage -> seconds its model takes to load, where others of the engine took its place."""
        found = {}
        for stage, placement in self._machine.stages.items():
            place = placement.engine, placement.model
            load, last = self._loads.get(place), self._last.get(placement.engine)
            if load and load.turns and last != place:
                found[stage] = load.took_s
        return found

    def told(self) -> dict[str, Any]:
        """Limit and speeds as fields of a `grading.broker.heartbeats.Heartbeat`."""
        return {
            "limit": self.limit(),
            "limit_why": self.why(),
            "speed_profiles": {s: _rounded(profile) for s, profile in self.speed_profiles().items()},
        }

    def until_stopped(self, stop: threading.Event) -> None:
        """Look every second until `stop`, and keep what is learned; the body of a thread."""
        saved, restored = self._clock(), False
        while not stop.wait(SAMPLE_S):
            try:
                self.look()
                restored = restored or self._restored()
                if self._clock() - saved >= SAVE_S:
                    saved = self._clock()
                    self.save()
            except RedisError as error:
                log.debug("redis is unavailable, speed profiles are stored later: %s", error)
            except Exception:
                log.exception("storing speed profiles failed")  # the thread must outlive anything

    def save(self) -> None:
        """Keep what was learned, so that it survives a restart. Raises redis errors."""
        with self._turn:
            states = {stage: self._dump(stage) for stage in self._machine.stages}
        changed = {
            s: state for s, state in states.items() if state and self._saved.get(s) != json.dumps(state)
        }
        if changed:
            at = self._redis.time()[0]
            rows: dict[Any, Any] = {self._field(s): json.dumps({"at": at, **v}) for s, v in changed.items()}
            self._redis.hset(SPEED_PROFILES + self._machine.name, mapping=rows)
            self._saved.update((s, json.dumps(state)) for s, state in changed.items())

    def restore(self) -> None:
        """Begin with what was learned for the same models earlier. Raises redis errors."""
        now = self._redis.time()[0]
        rows = cast("dict[str, str]", self._redis.hgetall(SPEED_PROFILES + self._machine.name))
        for stage in self._machine.stages:
            state = _state(rows.get(self._field(stage)), now)
            with self._turn:
                if state and not self._learner.dump(stage):
                    self._learner.restore(stage, state)
                    best = self._best.setdefault(stage, self._new_best())
                    if isinstance(limit := state.get("limit"), int):
                        best.restore(limit)
                    self._now_best = self._now_best or best

    def _dump(self, stage: str) -> dict[str, object]:
        learned, best = self._learner.dump(stage), self._best.get(stage)
        return {**learned, "limit": best.settled} if learned and best else learned

    def _new_best(self) -> Best:
        return Best(self._machine.least_slots, self._machine.slots)

    def _restored(self) -> bool:
        self.restore()
        return True

    def _field(self, stage: str) -> str:
        placement = self._machine.stages[stage]
        return json.dumps([stage, placement.engine, placement.model])

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < SOONEST * SAMPLE_S:
            return
        self._looked = now
        runs = [one for one in self._runs() if one.job.stage in self._machine.stages]
        for working in runs:
            self._look_at_loading(working, now)
        seen = [self._seen(working, working.tokens) for working in runs]
        gateway_requests = self._beside({one.stage for one in seen})
        self._find_best(
            now, self._learner.sample(now, seen, gateway_requests), by_itself=not gateway_requests
        )

    def _beside(self, running: Set[str]) -> Counter[str]:
        """Gateway requests by the stage whose model they use; where several use it, by one that runs."""
        found: Counter[str] = Counter()
        for place, count in self.gateway_requests().items():
            stages = [stage for stage, one in self._machine.stages.items() if one.place == place]
            if stages:
                found[next((stage for stage in stages if stage in running), stages[0])] += count
        return found

    def _find_best(self, now: float, sample: Sample, *, by_itself: bool) -> None:
        """Only times count in which one model had the machine, and no gateway request was there."""
        if not sample.batch:
            return
        stage = max(sample.batch, key=lambda s: sample.batch[s])
        if stage not in self._best:
            self._best[stage] = self._new_best()
        self._now_best = best = self._best[stage]
        if len(sample.batch) == 1 and sample.seconds and by_itself:
            before = best.limit
            best.saw(now, sample.batch[stage], sample.work.get(stage, 0.0), sample.seconds)
            if best.limit != before:
                log.info("concurrency of %s: %s", stage, best.why)

    def _look_at_loading(self, working: RunInHand, now: float) -> None:
        """How long loading takes, and whether a model that was there had to be loaded again."""
        placement = self._machine.stages[working.job.stage]
        place = placement.engine, placement.model
        load, run = self._loads.setdefault(place, _Load()), working.job.run_id
        if working.phase == "loading":
            self._loading.setdefault(run, now)
            return
        began = self._loading.pop(run, None)
        if began is not None and placement.engine not in self._unsure and now - began >= LOADS_S:
            load.took_s, load.turns = now - began, load.turns or load.used
        if working.phase == "generating":
            load.used = True
            self._last[placement.engine] = place

    def _seen(self, working: RunInHand, tokens: int) -> Seen:
        job = working.job
        return Seen(job.run_id, job.stage, self._phase(working), tokens, job.max_output_tokens)

    def _phase(self, working: RunInHand) -> Literal["waiting", "reading", "writing"]:
        if working.phase == "generating":
            return "writing"
        placement = self._machine.stages[working.job.stage]
        if working.phase == "loading":
            # where nobody knows, the model is taken to be there after its first answer
            known = self._loads.get((placement.engine, placement.model))
            return "reading" if placement.engine in self._unsure and known and known.used else "waiting"
        return "waiting" if working.phase in ("waiting", "queued") else "reading"


def _rounded(profile: SpeedProfile) -> dict[str, float]:
    return {key: round(value, 4) for key, value in asdict(profile).items()}


def _state(row: object, now: float) -> dict[str, Any]:
    """What was kept, unless it is too old or no such thing."""
    try:
        said = json.loads(str(row)) if row else None
    except ValueError:
        return {}
    if not isinstance(said, dict) or not isinstance(said.get("at"), int | float):
        return {}
    return said if now - said["at"] < KEEP_S else {}
