"""Live status of a submission in words, from SQL and leases, with the delay of the next poll."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field
from sqlalchemy.orm import Session

from app.web.eta import expecting
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import render_message
from app.web.services import services
from app.web.template_helpers import title_of
from grading.broker.heartbeats import MOST_DRAFT, Lease
from grading.domain.base_value import Value
from grading.domain.permissions import Actor, Subject, may
from grading.domain.round_states import RoundState, StageState
from grading.store.views.status import Standing
from grading.store.views.submission import Queue, StageView

WORDS = {
    StageState.WAITING: N_("queued"),
    StageState.DISPATCHED: N_("queued"),
    StageState.RUNNING: N_("running"),
    StageState.DONE: N_("done"),
    StageState.FAILED: N_("failed, will be retried"),
    StageState.DEAD: N_("failed"),
}
PHASES = {
    "waiting": N_("queued"),
    "queued": N_("queued"),
    "starting": N_("starting"),
    "loading": N_("loading the model"),
    "reading": N_("reading your work"),
    "generating": N_("generating"),
}
AT_WORK = 2.0
"""Seconds between two looks of a page whose work a machine has: tokens count up."""
IN_LINE = (3.0, 12.0)
"""The same of one that waits: a tenth of what it waits, within these."""
UNKNOWN = 10.0
"""The same where nobody knows how long it takes."""
REVIEW = 30.0
"""The same where a person's look is waited for."""
A_SECOND = 40.0
"""Looks a second that all pages together may ask for, those at work and the others each."""
STEPS = (2, 3, 5, 8, 12, 20, 30)
"""Told pauses are one of these, so that they do not change all the time."""


class StageStatus(Value):
    """One stage as callers see it. Seconds and tokens count up while it runs; then it has a phase, too.

    A phase is `waiting` or `queued` for a turn, `starting`, `loading` the model, `reading` the prompt, or
    `generating`.
    """

    status: str = Field(
        description="`waiting`, `dispatched`, `running`, `done`, `failed` (will be tried again) or `dead`",
        examples=["running"],
    )
    machine: str | None = Field(
        default=None, description="for staff: the machine that does it, or did", examples=["dgx-spark-1"]
    )
    model: str | None = Field(
        default=None, description="the model that does it, or did", examples=["qwen3-coder:30b"]
    )
    seconds: float | None = Field(default=None, description="the duration so far", examples=[12.4])
    tokens: int | None = Field(default=None, description="the output tokens", examples=[310])
    error: str | None = Field(default=None, description="why the last run failed", examples=[None])
    phase: str | None = Field(
        default=None, description="the current phase, while it runs", examples=["generating"]
    )
    prompt_tokens: int | None = Field(
        default=None, description="the approximate number of input tokens, while it runs", examples=[5120]
    )
    draft: str | None = Field(
        default=None,
        description="the partial output, if the assignment shows it; it may still change",
        examples=[None],
    )


class Progress(Value):
    """Queue place and stages of a submission."""

    queue: Queue | None
    stages: dict[str, StageStatus]

    def without_machines(self) -> Progress:
        """The same as students see it: which machine has a stage is the school's own affair."""
        stages = {name: one.model_copy(update={"machine": None}) for name, one in self.stages.items()}
        return self.model_copy(update={"stages": stages})


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
        stages={stage.stage: _stage_status(stage, leases.get(stage.run_id or "")) for stage in view.stages},
    )


def seen_by(actor: Actor, view: Standing, found: Progress) -> Progress:
    """The live state as this reader may see it: machines are named to staff only."""
    staff = may(actor, "faults.see", Subject(view.course_id))
    return found if staff else found.without_machines()


def _stage_status(stage: StageView, lease: Lease | None) -> StageStatus:
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
    for configured in services().config.machines:
        if configured.name == machine and stage in configured.stages:
            return configured.stages[stage].model
    return None


class LiveStage(Value):
    """One stage in words."""

    stage: str
    title: str
    status: str
    words: str
    detail: str
    draft: str = ""
    """What is being written and may still change; gone when the stage is done."""


class Live(Value):
    """What the page shows and announces; `result` changes when the part below must be loaded again."""

    status: str
    headline: str
    detail: str
    tab: str
    """The state, and the position while it is queued, for the page's title."""
    stages: tuple[LiveStage, ...]
    settled: bool
    """Nothing more will change for this reader."""
    result: str


def live(view: Standing, progress: Progress, *, sees_score: bool) -> Live:
    """The state of a submission as this reader may see it."""
    headline, detail = _headline(view, progress, sees_score=sees_score)
    visible = int(sees_score and view.graded)
    stages = () if view.final and not sees_score else _rendered_stages(view, progress)
    return Live(
        status=view.state,
        headline=headline,
        detail=detail,
        tab=_tab(headline, view, progress),
        stages=tuple(_stage(name, stage) for name, stage in stages),
        settled=view.final and (sees_score or not view.graded),
        result=f"{view.round_id}-{view.state}-{visible}-{int(view.released)}",
    )


def _rendered_stages(view: Standing, progress: Progress) -> list[tuple[str, StageStatus]]:
    """The stages that are shown: when it is over, those that never began are not said to wait."""
    over = view.state == RoundState.FAILED
    stages = progress.stages.items()
    return [(name, one) for name, one in stages if not (over and one.status == StageState.WAITING)]


def _headline(view: Standing, progress: Progress, *, sees_score: bool) -> tuple[str, str]:
    if view.state == RoundState.FAILED:
        why = (
            _why(view)
            or render_message(view.failure)
            or _("Grading failed. Your course staff will look into it.")
        )
        return _("Grading failed"), _("%(why)s This does not mean zero points.", why=why)
    if view.withdrawn and not sees_score:
        back = _("Your instructor has withdrawn this grade for now.")
        return _("Withdrawn"), f"{back} {_('You see it here when it is released again.')}"
    if view.graded and not sees_score:
        done = _why(view) or _("Grading is complete.")
        looks = _("Your course staff reviews the grade before you see it.")
        return _("Awaiting review"), f"{done} {looks}"
    if view.state == RoundState.GRADED:
        return _("Graded"), ""
    if view.state == RoundState.PARTIAL:
        words = _("Part of the grading failed. There is no total yet. This does not mean zero points.")
        return _("Partly graded"), words
    return _waiting(view, progress, sees_score=sees_score)


def _waiting(view: Standing, progress: Progress, *, sees_score: bool) -> tuple[str, str]:
    queue = progress.queue
    predicted = queue is not None and queue.eta_s is not None
    about = (
        _("About %(time)s until the grade is ready.", time=duration(queue.eta_s or 0))
        if queue and predicted
        else ""
    )
    if view.release == "after_review" and not sees_score:
        about = f"{about} {_('Then a person looks at the result before you see it.')}".strip()
    place = _("Position %(number)s.", number=queue.position) if queue and queue.position else ""
    if view.state == RoundState.RUNNING:
        if begun(progress):
            return _("Being graded"), about
        return _("Next in the queue"), f"{place} {about}".strip()
    if view.state == RoundState.QUEUED and queue:
        return _("Queued"), f"{place} {about}".strip()
    doing = _("Running your work.") if view.to_run else _("Reading your files.")
    return _("Received"), f"{doing} {about}".strip()


def begun(progress: Progress) -> bool:
    """Whether a machine has begun with one of the stages."""
    return any(stage.status != StageState.DISPATCHED for stage in progress.stages.values())


def _tab(headline: str, view: Standing, progress: Progress) -> str:
    queue = progress.queue
    if not view.final and queue and queue.position:
        return _("%(state)s, position %(number)s", state=headline, number=queue.position)
    return headline


def _why(view: Standing) -> str:
    """The sentences about stages that failed."""
    return " ".join(dict.fromkeys(render_message(stage.student) for stage in view.stages if stage.student))


def _stage(name: str, stage: StageStatus) -> LiveStage:
    words = PHASES.get(stage.phase or "") or WORDS.get(StageState(stage.status), stage.status)
    model = _("rules engine") if stage.model == "rules" else stage.model or ""
    parts = [_("on %(machine)s", machine=stage.machine) if stage.machine else "", model]
    # fixed rules answer at once, and "0 s" says nothing to anybody
    parts.append(f"{stage.seconds:.0f} s" if stage.seconds is not None and stage.seconds >= 0.5 else "")
    parts.append(_tokens(stage))
    return LiveStage(
        stage=name,
        title=title_of(name),
        status=stage.status,
        words=_(words),
        detail=" · ".join(filter(None, parts)),
        draft=stage.draft or "",
    )


def _tokens(stage: StageStatus) -> str:
    """Tokens written; before that, those to be read."""
    if stage.tokens:
        return _("%(number)s tokens", number=stage.tokens)
    if not stage.prompt_tokens:
        return ""
    return _("about %(number)s tokens to read", number=f"{_coarse(stage.prompt_tokens):,}")


def _coarse(number: int) -> int:
    """An estimate without digits that it does not have."""
    return round(number, 2 - len(str(number)))


def duration(seconds: float) -> str:
    """Seconds in words, coarse on purpose."""
    if seconds < 45:
        return _("%(number)s seconds", number=max(5, 5 * round(seconds / 5)))
    minutes = round(seconds / 60)
    if minutes < 90:
        return _("1 minute") if minutes <= 1 else _("%(number)s minutes", number=minutes)
    return _("%(number)s hours", number=round(minutes / 60))


# --- when to ask again --------------------------------------------------------------------------------


def next_look_s(view: Standing, progress: Progress, now: Live, alike: int) -> int:
    """Seconds after which a page should ask again, 0 for never; `alike` pages wait as this one does."""
    if now.settled:
        return 0
    wanted = max(_wanted(view, progress), alike / A_SECOND)
    return next((step for step in STEPS if step >= wanted), STEPS[-1])


def _wanted(view: Standing, progress: Progress) -> float:
    if view.final:
        return REVIEW
    if view.state == RoundState.RECEIVED or (view.state == RoundState.RUNNING and begun(progress)):
        return AT_WORK
    left = progress.queue.eta_s if progress.queue else None
    if left is None:
        return UNKNOWN
    return min(max(left / 10, IN_LINE[0]), IN_LINE[1])
