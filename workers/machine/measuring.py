"""What a machine does while it has nothing to do: it measures the stages that it has hardly ever done.

Which machine should do what is decided by what each does an hour. A machine that never did a stage can only
be guessed to be good at it, and one that is guessed to be bad at it never does it: see docs/routing.md.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from grading.config import EngineSettings, StageSettings
from grading.leases import PACES
from grading.machines import Machine
from workers.machine.engines.base import Cancel, Engine
from workers.machine.pacing import KEEP_S, Pacing
from workers.machine.stages.made_up import made_up
from workers.machine.stages.run import run_stage
from workers.machine.working import Working

log = logging.getLogger(__name__)
IDLE_S = 20.0
"""So long there is nothing to do, for this machine or another, before it begins."""
LOOK_S = 1.0
ENOUGH = 24.0
"""Jobs of a stage, real or made up, after which its speed is known; those of 15 minutes ago fade."""
BATCHES = 4
"""Of made-up jobs that a stage's model gets here, whatever came of them; also over restarts."""
MOST_S = 900.0
"""For one of them."""
AGAIN_S = 600.0
"""An engine that wrote nothing is left alone for so long."""
WHY = "nothing waits; it measures how fast it is"


class Booked:
    """How many batches of made-up jobs the model of each stage had on this machine. Raises redis errors.

    It is said before a batch begins: one that takes the process along is not tried for ever.
    """

    def __init__(self, redis: Redis, machine: Machine) -> None:
        self._redis = redis
        self._machine = machine

    def count(self, stage: str) -> int:
        """So many in the time for which speeds are kept."""
        raw = cast("str | None", self._redis.hget(PACES + self._machine.name, self._field(stage)))
        said: Any = json.loads(raw) if raw else {}
        fresh = self._redis.time()[0] - said.get("at", 0) < KEEP_S
        return int(said.get("batches", 0)) if fresh else 0

    def add(self, stage: str, batches: int) -> None:
        """One more, or one less that came to nothing."""
        said = {"at": self._redis.time()[0], "batches": max(0, self.count(stage) + batches)}
        self._redis.hset(PACES + self._machine.name, self._field(stage), json.dumps(said))

    def _field(self, stage: str) -> str:
        placement = self._machine.stages[stage]
        return json.dumps(["made up", stage, placement.engine, placement.model])


@dataclass
class Measuring:
    """Made-up jobs, as many at once as the machine does, broken off as soon as there is work. Thread-safe.

    `busy` says whether there is work, or must be none; `able` whether a stage's engine answers; `tokens`
    gives the usual length of answers by what other machines know.
    """

    machine: Machine
    engines: Mapping[str, Engine]
    pacing: Pacing
    booked: Booked
    stages: Mapping[str, StageSettings]
    busy: Callable[[], bool]
    able: Callable[[str], bool]
    tokens: Callable[[], Mapping[str, float]]
    clock: Callable[[], float] = time.monotonic
    _runs: dict[str, Working] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    """No prompt comes twice: model servers keep what they read."""
    _not_before: dict[str, float] = field(default_factory=dict)
    _cancel: Cancel = field(default_factory=Cancel)
    _idle_since: float | None = None

    @property
    def runs(self) -> list[Working]:
        """Those in hand."""
        return list(self._runs.values())

    def give_way(self) -> None:
        """Work has come: what is measured ends at once. Never waits."""
        self._idle_since = None
        self._cancel.say()

    def until_stopped(self, stop: threading.Event) -> None:
        """Measure what is not known whenever there is time, until `stop`; the body of a thread."""
        while not stop.wait(LOOK_S):
            try:
                self.look()
            except RedisError as error:
                log.debug("redis is away, nothing is measured: %s", error)
            except Exception:
                log.exception("nothing is measured this time")  # the thread must outlive anything

    def look(self) -> None:
        """Measure a stage, if it is time to. Returns when that is done or broken off."""
        self.pacing.expect(self.tokens())
        self._cancel = Cancel()  # before it asks: what comes from now on is heard
        since = self._idle_since if self._idle_since is not None else self.clock()
        if self.busy():
            self._idle_since = None
            return
        self._idle_since = since
        if self.clock() - since >= IDLE_S and (stage := self.wanted()):
            self._measure(stage)

    def wanted(self) -> str | None:
        """A stage of which too little is known, if there is one that can be measured. Raises redis errors."""
        paces, loads = self.pacing.paces(), self.pacing.load_s()
        for stage, placement in self.machine.stages.items():
            can = self.machine.measures and self.engines[placement.engine].uses_model
            # its model would take another one's place, which the next run may need
            turns = stage in loads
            later = self.clock() < self._not_before.get(stage, 0.0)
            known = stage in paces and paces[stage].seen >= ENOUGH
            wanted = can and not (turns or later or known) and self.able(stage)
            if wanted and self.booked.count(stage) < BATCHES:
                return stage
        return None

    def _measure(self, stage: str) -> None:
        """A batch of made-up jobs. Raises redis errors."""
        log.info("nothing to do: measuring how fast %s is", stage)
        self.booked.add(stage, 1)
        wrote, cancel, most = [False], self._cancel, self.stages[stage].max_output_tokens
        jobs = [made_up(stage, next(self._numbers), most, MOST_S) for _ in range(self.pacing.limit())]
        self._runs = {job.run_id: Working(job, None, cancel=cancel) for job in jobs}
        threads = [
            threading.Thread(target=self._do, args=(one, wrote), name="measuring", daemon=True)
            for one in self.runs
        ]
        try:
            for thread in threads:
                thread.start()
            self._wait(threads)
            broken_off = cancel.said
        finally:
            cancel.say()  # nobody waits for what is left
            self._runs = {}
        if not wrote[0]:
            self.booked.add(stage, -1)
            self._not_before[stage] = self.clock() + (0.0 if broken_off else AGAIN_S)

    def _wait(self, threads: list[threading.Thread]) -> None:
        while threads:
            if self.busy():
                self.give_way()  # drained, perhaps
            threads[-1].join(LOOK_S)
            if not threads[-1].is_alive():
                threads.pop()

    def _do(self, working: Working, wrote: list[bool]) -> None:
        """One of them, whose answer nobody reads."""
        placement = self.machine.stages[working.job.stage]
        settings = self.machine.engines.get(placement.engine) or EngineSettings()
        self.pacing.look()
        result = run_stage(
            working.job,
            self.engines[placement.engine],
            placement.model,
            self.machine.name,
            progress=working.moved,
            context_tokens=settings.context_tokens,
            cancel=working.cancel,
        )
        if not (result.ok or working.cancel.said):
            log.warning("a made-up job failed: %s", result.message)
        said = max(working.tokens, result.provenance.tokens.output)
        wrote[0] = wrote[0] or said > 0
        self.pacing.measured(working, wrote=said > 0)
        self._runs.pop(working.job.run_id, None)  # in one step, as many of them end at once
