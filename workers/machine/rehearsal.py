"""A rehearsal: a machine does a whole class of runs on its own engines, and says what became of each.

The jobs come from the server, made of an assignment's own work. Nothing of them is recorded: they have no
rounds, no leases and no results but the figures here. Runs of students go on beside them.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from grading.broker import celery_app
from grading.config.settings import EngineSettings
from grading.domain.jobs import Job, Result, read_job
from workers.machine.diagnostics import leave_answer
from workers.machine.engines.base import Cancel, Phase
from workers.machine.model_digests import WeightsCheck
from workers.machine.stages.run import run_stage
from workers.machine.worker import MachineProcess

log = logging.getLogger(__name__)
IN_BATCH = ("reading", "generating")
"""Phases of a run that the engine works on; before them it loads the model, or the run waits for room."""
LONGEST_MESSAGE = 300
MOST_RUNS = 500


@dataclass
class Together:
    """How many runs the engine works on at the same time; `most` is the highest number. Thread-safe."""

    most: int = 0
    _now: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def moved(self, run_id: str, phase: str) -> None:
        """A run is in this phase."""
        with self._lock:
            (self._now.add if phase in IN_BATCH else self._now.discard)(run_id)
            self.most = max(self.most, len(self._now))


def rehearse(process: MachineProcess, jobs: Sequence[Job], runs: int, seconds: float) -> dict[str, Any]:
    """Do so many runs of each stage that the machine has, with all slots; the figures as JSON values.

    The jobs of a stage take turns. What has not ended after `seconds` is cancelled.
    """
    cancel, machine = Cancel(), process.machine
    ends = threading.Timer(seconds, cancel.cancel)
    ends.daemon = True
    ends.start()
    stages = [stage for stage in machine.stages if any(job.stage == stage for job in jobs)]
    log.info("a rehearsal of %d runs for each of %d stages started", runs, len(stages))
    try:
        found = [_stage(process, stage, _class(jobs, stage, runs), cancel) for stage in stages]
    finally:
        ends.cancel()
    log.info("the rehearsal on machine %s ended", machine.name)
    return {"machine": machine.name, "slots": machine.slots, "stages": found}


def _class(jobs: Sequence[Job], stage: str, runs: int) -> list[Job]:
    """A run for each student of the class: as of students, each has a fence of its own."""
    mine = [job for job in jobs if job.stage == stage]
    return [
        mine[number % len(mine)].model_copy(
            update={"run_id": f"rehearsal {number}", "nonce": secrets.token_hex(8)}
        )
        for number in range(runs)
    ]


def _stage(process: MachineProcess, stage: str, jobs: Sequence[Job], cancel: Cancel) -> dict[str, Any]:
    placement = process.machine.stages[stage]
    settings = process.machine.engines.get(placement.engine) or EngineSettings()
    together = Together()

    def run(job: Job) -> Result:
        def moved(_tokens: int, phase: Phase = "generating", _draft: str = "", /) -> None:
            together.moved(job.run_id, phase)

        try:
            return run_stage(
                job,
                process.engines[placement.engine],
                placement.model,
                process.machine.name,
                moved,
                context_tokens=settings.context_tokens,
                cancel=cancel,
                weights=WeightsCheck(process.model_digests, placement.place),
            )
        finally:
            together.moved(job.run_id, "ended")

    before = process.model_digests.known(placement.place)
    began = time.monotonic()
    with ThreadPoolExecutor(process.machine.slots, thread_name_prefix="rehearsal") as threads:
        results = list(threads.map(run, jobs))
    return {
        "stage": stage,
        "engine": placement.engine,
        "kind": process.machine.kind(placement.engine),
        "model": placement.model,
        "digest": before,
        "context_tokens": settings.context_tokens,
        "together": together.most,
        "seconds": time.monotonic() - began,
        "runs": [_row(result) for result in results],
    }


def _row(result: Result) -> dict[str, Any]:
    how = result.provenance
    return {
        "ok": result.ok,
        "error": result.error or "",
        "message": result.message[:LONGEST_MESSAGE],
        "seconds": how.seconds,
        "first_token_s": how.first_token_s,
        "queued_s": how.timings.queued_s,
        "tokens": how.tokens.model_dump(),
        "repaired": how.repaired,
        "schema": str(how.sampling.get("format", "")),
        "digest": how.digest,
        "flags": sorted({flag.code for flag in result.flags}),
    }


def register(app: Celery, process: MachineProcess) -> None:
    """Make the rehearsal known to a worker's application."""

    @app.task(name=celery_app.REHEARSE, ignore_result=True)
    def rehearse_class(rehearsal: str, jobs: Iterable[Mapping[str, Any]], runs: int, until: float) -> None:
        seconds = until - process.leases.time()
        if seconds <= 0:
            return  # nobody waits for it any more
        found = rehearse(process, [read_job(one) for one in jobs], min(int(runs), MOST_RUNS), seconds)
        leave_answer(process, rehearsal, found)
