"""What a machine does while it has nothing to do: it measures the stages that it has hardly ever done.

Which machine should do what is decided by what each does an hour. A machine that never did a stage can only
be guessed to be good at it, and one that is guessed to be bad at it never does it: see docs/routing.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grading.cluster.view import View
from grading.config import EngineSettings, StageSettings
from grading.errors import GraderError
from grading.machines import Machine
from workers.machine.engines.base import Cancel, Engine
from workers.machine.pacing import Pacing
from workers.machine.stages.made_up import made_up
from workers.machine.stages.run import run_stage
from workers.machine.working import Working

log = logging.getLogger(__name__)
IDLE_S = 20.0
"""So long there is nothing to do before it begins."""
LOOK_S = 1.0
ENOUGH = 24.0
"""Jobs of a stage, real or made up, after which its speed is known; those of 15 minutes ago fade."""
MOST_S = 900.0
"""A stage is measured for no longer, whatever came of it."""
WHY = "nothing waits; it measures how fast it is"


def lengths(view: View) -> dict[str, float]:
    """stage -> tokens of a usual answer, as the other machines know it."""
    found: dict[str, list[float]] = {}
    for name, peer in view.peers.items():
        for stage, pace in peer.paces.items():
            if name != view.me and pace.seen and pace.tokens:
                found.setdefault(stage, []).append(pace.tokens)
    return {stage: sum(tokens) / len(tokens) for stage, tokens in found.items()}


@dataclass
class Measuring:
    """Made-up jobs, as many at once as the machine does, broken off as soon as there is work. Thread-safe.

    `busy` says whether there is work, or must be none; `able` whether a stage's engine answers; `tokens`
    gives the usual length of answers by what other machines know.
    """

    machine: Machine
    engines: Mapping[str, Engine]
    pacing: Pacing
    stages: Mapping[str, StageSettings]
    busy: Callable[[], bool]
    able: Callable[[str], bool]
    tokens: Callable[[], Mapping[str, float]]
    clock: Callable[[], float] = time.monotonic
    runs: list[Working] = field(default_factory=list)
    """Those in hand."""
    _spent_s: dict[str, float] = field(default_factory=dict)
    _cancel: Cancel = field(default_factory=Cancel)
    _idle_since: float | None = None

    def give_way(self) -> None:
        """Work has come: what is measured ends at once. Never waits."""
        self._idle_since = None
        self._cancel.say()

    def until_stopped(self, stop: threading.Event) -> None:
        """Measure what is not known whenever there is time, until `stop`; the body of a thread."""
        while not stop.wait(LOOK_S):
            try:
                self.look()
            except GraderError as error:
                log.warning("nothing is measured: %s", error.message)
            except Exception:
                log.exception("nothing is measured this time")  # the thread must outlive anything

    def look(self) -> None:
        """Measure a stage, if it is time to. Returns when that is done or broken off."""
        self.pacing.expect(self.tokens())
        self._cancel = Cancel()  # before it asks: what comes from now on is heard
        if self.busy():
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = self.clock()
        if self.clock() - self._idle_since >= IDLE_S and (stage := self.wanted()):
            self._measure(stage)

    def wanted(self) -> str | None:
        """A stage of which too little is known, if there is one that can be measured."""
        paces = self.pacing.paces()
        return next(
            (
                stage
                for stage, placement in self.machine.stages.items()
                if self.engines[placement.engine].uses_model
                and stage in self.stages
                and self.able(stage)
                and self._spent_s.get(stage, 0.0) < MOST_S
                and (stage not in paces or paces[stage].seen < ENOUGH)
            ),
            None,
        )

    def _measure(self, stage: str) -> None:
        """A batch of made-up jobs."""
        most, began, cancel = self.stages[stage].max_output_tokens, self.clock(), self._cancel
        log.info("nothing to do: measuring how fast %s is", stage)
        jobs = [made_up(stage, number, most, MOST_S) for number in range(self.pacing.limit())]
        self.runs = [Working(job, None, cancel=cancel) for job in jobs]
        threads = [threading.Thread(target=self._do, args=(one,), name="measuring") for one in self.runs]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if self.busy():
                self.give_way()  # drained, perhaps, or a guest is there
            threads[-1].join(LOOK_S) if threads[-1].is_alive() else threads.pop()
        wrote, self.runs = any(one.tokens for one in self.runs), []
        took = self.clock() - began if wrote or cancel.said else MOST_S  # what fails would fail again
        self._spent_s[stage] = self._spent_s.get(stage, 0.0) + took

    def _do(self, working: Working) -> None:
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
        self.pacing.measured(working)
