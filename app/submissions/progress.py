"""Where a submission stands right now: SQL says what counts, leases in Redis say who is at it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from app.web.eta import expecting
from app.web.services import services
from grading.broker.heartbeats import MOST_DRAFT, Lease
from grading.domain.model import StageState
from grading.domain.value import Value
from grading.store.views.status import Standing
from grading.store.views.submission import Queue, StageView


class StageStatus(Value):
    """One stage as callers see it. Seconds and tokens count up while it runs; then it has a phase, too.

    A phase is `waiting` or `queued` for a turn, `starting`, `loading` the model, `reading` the prompt, or
    `generating`.
    """

    status: str
    machine: str | None = None
    model: str | None = None
    seconds: float | None = None
    tokens: int | None = None
    error: str | None = None
    phase: str | None = None
    prompt_tokens: int | None = None
    """Estimated."""
    draft: str | None = None
    """What is being written, where the assignment lets the student see it; it may still change."""


class Progress(Value):
    """Queue place and stages of a submission."""

    queue: Queue | None
    stages: dict[str, StageStatus]


def open_runs(view: Standing) -> list[str]:
    """The runs that somebody may be at."""
    return [s.run_id for s in view.stages if s.run_id and s.state == StageState.DISPATCHED]


def progress(session: Session, view: Standing, leases: Mapping[str, Lease] | None = None) -> Progress:
    """The live state of a submission; who is at its runs is asked unless it is given."""
    if leases is None:
        runs = open_runs(view)
        leases = services().dispatch.leases(runs) if runs else {}
    return Progress(
        queue=expecting().queue(session, view),
        stages={stage.stage: _stage(stage, leases.get(stage.run_id or "")) for stage in view.stages},
    )


def _stage(stage: StageView, lease: Lease | None) -> StageStatus:
    if lease is None:
        return StageStatus(
            status=stage.state,
            machine=stage.machine,
            model=stage.model,
            seconds=stage.seconds,
            tokens=stage.tokens,
            error=stage.error,
        )
    return StageStatus(
        status=StageState.RUNNING,
        machine=lease.machine,
        model=_model(lease.machine, stage.stage),
        seconds=round(lease.since_s, 1),
        tokens=lease.tokens,
        error=stage.error,
        phase=lease.phase,
        prompt_tokens=lease.prompt_tokens or None,
        draft=lease.draft[:MOST_DRAFT] or None,
    )


def _model(machine: str, stage: str) -> str | None:
    for known in services().config.machines:
        if known.name == machine and stage in known.stages:
            return known.stages[stage].model
    return None
