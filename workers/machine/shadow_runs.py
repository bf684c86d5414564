"""Shadow runs of an idle machine: it grades work that is graded already, on its own engines.

The server compares what comes of it, with other machines or with people. Nothing of it counts, and it is
broken off as soon as students' work or a gateway request comes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from celery import Celery

from grading.broker import celery_app
from grading.config.machines import Placement
from grading.config.settings import EngineSettings
from grading.domain.errors import Cancelled, EngineError
from grading.domain.jobs import Job, read_job
from grading.domain.shadow_runs import ShadowOutcome, outcome_of
from workers.machine.diagnostics import leave_answer
from workers.machine.engines.base import CountsTokens, Engine, ReportsCapacity, unheard
from workers.machine.idle import Limits, watched
from workers.machine.model_digests import WeightsCheck
from workers.machine.stages.run import run_stage
from workers.machine.worker import MachineProcess

log = logging.getLogger(__name__)
MOST_RUNS = 100


@dataclass(frozen=True)
class Shadow:
    """A job, and what is to do it."""

    job: Job
    engine: str = ""
    model: str = ""
    """Of one of the machine's stages; empty: what does the job's stage here."""


def read(raw: Mapping[str, Any]) -> Shadow:
    """What the server sent. Raises ValidationError, KeyError."""
    return Shadow(read_job(raw["job"]), str(raw.get("engine", "")), str(raw.get("model", "")))


def grade(process: MachineProcess, shadows: Sequence[Shadow], seconds: float) -> dict[str, Any]:
    """Do these with all slots; run -> the fields of its `ShadowOutcome`, as JSON values."""
    if process.gateway_requests() or not process.gate.enter_now(alone=True):
        return {one.job.run_id: _put_off("work") for one in shadows}
    limits = Limits(time.monotonic() + seconds)
    try:
        with (
            watched(process, limits),
            ThreadPoolExecutor(process.machine.slots, thread_name_prefix="shadow") as threads,
        ):
            found = list(threads.map(lambda one: _run(process, one, limits), shadows))
    finally:
        process.gate.leave()
    log.info("%d shadow runs ended: %s", len(shadows), limits.ended)
    return {one.job.run_id: outcome for one, outcome in zip(shadows, found, strict=True)}


def _run(process: MachineProcess, shadow: Shadow, limits: Limits) -> dict[str, Any]:
    placement = _placement(process, shadow)
    if placement is None:
        return ShadowOutcome(ok=False, error="not_here").model_dump(mode="json")
    settings = process.machine.engines.get(placement.engine) or EngineSettings()
    engine = process.engines[placement.engine]
    result = run_stage(
        shadow.job,
        engine,
        placement.model,
        process.machine.name,
        unheard,
        context_tokens=settings.context_tokens,
        cancel=limits.cancel,
        weights=WeightsCheck(process.model_digests, placement.place),
    )
    if result.error == Cancelled.code:
        return _put_off(limits.ended)
    context = _context(engine, placement.model, settings.context_tokens, limits.left_s)
    return outcome_of(result, context).model_dump(mode="json")


def _context(engine: Engine, model: str, configured: int, seconds: float) -> int:
    """What the model reads and writes at most: as configured, or what its engine has; 0 where unknown."""
    try:
        reported = _reported_context(engine, model, max(1.0, seconds))
    except EngineError as error:
        log.info("the context of %s is unknown: %s", model, error.message)
        return 0  # the configured one would look like more than before, and the next night like less
    return configured if reported is None else min(configured, reported)


def _reported_context(engine: Engine, model: str, seconds: float) -> int | None:
    """As a server has it now, as it may have been started again; else as the model in this process has it."""
    if isinstance(engine, ReportsCapacity):
        return engine.capacity(model, 1, seconds).context_tokens
    if isinstance(engine, CountsTokens):
        counter = engine.token_counter(model, seconds, unheard)
        return counter.context_tokens if counter is not None else None
    return None


def _placement(process: MachineProcess, shadow: Shadow) -> Placement | None:
    """Only what some stage of the machine has: nothing is loaded that is not meant for it."""
    if not shadow.engine:
        return process.machine.stages.get(shadow.job.stage)
    wanted = (shadow.engine, shadow.model)
    return next((one for one in process.machine.stages.values() if one.place == wanted), None)


def _put_off(why: str) -> dict[str, Any]:
    return ShadowOutcome(ok=False, error=why).model_dump(mode="json")


def register(app: Celery, process: MachineProcess) -> None:
    """Make shadow runs known to a worker's application."""

    def answer(question: str, shadows: Sequence[Shadow], seconds: float) -> None:
        leave_answer(process, question, grade(process, shadows, seconds))

    @app.task(name=celery_app.SHADOW, ignore_result=True)
    def grade_in_shadow(question: str, raw: Iterable[Mapping[str, Any]], until: float) -> None:
        seconds = until - process.leases.time()
        if seconds <= 0:
            return  # the server has sent it again by now
        args = (question, [read(one) for one in list(raw)[:MOST_RUNS]], seconds)
        # beside the slots: a machine with one slot must see the work that ends it, and answer its canaries
        threading.Thread(target=answer, args=args, name="shadow", daemon=True).start()
