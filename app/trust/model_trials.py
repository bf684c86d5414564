"""Pages of trials: another model grades marked submissions, and its levels stand beside those of people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.trust.staff import for_staff
from app.web import auth, page_cache
from app.web.assignment_pages import ANY
from app.web.human_ceiling import load_ceiling
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import render_error, render_message
from app.web.services import services
from grading.broker.machine_status import MachineState
from grading.config.settings import Machine
from grading.domain.errors import Conflict, EngineError, NotFound, model_faults
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric
from grading.store import tables
from grading.store.assignments import versions
from grading.store.tables import ModelTrial
from grading.store.trust import model_trials
from grading.store.trust.model_trials import Found, Wanted
from grading.store.views import submission_lists

pages = Blueprint("model_trials", __name__)
DECISIONS = ("switched", "refused", "stopped")
FAILURES = {
    "not_here": N_("The machine does not have this model any more."),
    "no_answer": N_("The machine did not answer."),
    "no_work": N_("The text of the submission was deleted."),
}
"""What ends a shadow run, other than a fault of the model, by code."""


@dataclass(frozen=True)
class Choice:
    """A model that machines have; of one machine or of all that have it."""

    engine: str
    model: str
    machine: str
    machines: tuple[str, ...]

    @property
    def value(self) -> str:
        """As a form sends it."""
        return "\t".join((self.engine, self.model, self.machine))


def choices(states: Sequence[MachineState]) -> list[Choice]:
    """Every model of a live machine, for all machines that have it, and for each by itself."""
    have: dict[tuple[str, str], list[str]] = {}
    for state in states:
        for engine, model in sorted({(p["engine"], p["model"]) for p in state.stages.values()}):
            if state.alive:
                have.setdefault((engine, model), []).append(state.name)
    found = [Choice(*place, "", tuple(names)) for place, names in sorted(have.items())]
    shared = [(place, names) for place, names in sorted(have.items()) if len(names) > 1]
    alone = [Choice(*place, name, (name,)) for place, names in shared for name in names]
    return [*found, *alone]


@pages.get(f"/assignments/{ANY}/trust/models")
def listing(assignment_id: int) -> str:
    """The trials, and the form for another one."""
    actor = auth.actor()
    with services().store.read() as session:
        found = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(found, found.course)
        trials = model_trials.list_trials(session, assignment_id)
        marked = model_trials.list_marked_by_stage(session, assignment_id, _stages(session, found))
    return render_template(
        "trust/model_trials.html",
        assignment=line,
        actor=actor,
        trials=trials,
        marked={stage: len(some) for stage, some in marked.items()},
        choices=choices(services().dispatch.machines()),
        size=model_trials.SIZE,
    )


def verdict_words(found: Found) -> str:
    """Whether the model grades better, in a word or two."""
    if not found.done or not found.blind or found.whole.verdict == "few":
        return _("Not known yet")
    return {"better": _("Yes"), "worse": _("No"), "alike": _("No difference")}[found.whole.verdict]


def failure_words(code: str) -> str:
    """Why submissions could not be graded, in a sentence."""
    if code in FAILURES:
        return _(FAILURES[code])
    return render_message(model_faults().get(code, EngineError).default_message())


def _stages(session: Session, found: tables.Assignment) -> list[str]:
    version = versions.find_published(session, found)
    rubric = Rubric.model_validate(version.rubric) if version is not None else None
    return sorted({one.stage for one in rubric.criteria}) if rubric is not None else []


@pages.post(f"/assignments/{ANY}/trust/models")
def start(assignment_id: int) -> Response:
    """Start a trial."""
    actor = auth.actor()
    known = {one.value: one for one in choices(services().dispatch.machines())}
    try:
        with services().store.write() as session:
            found = for_staff(session, actor, assignment_id, "assignment.change")
            choice, stage = known.get(request.form.get("model", "")), request.form.get("stage", "")
            if choice is None or stage not in _stages(session, found):
                raise Conflict(_("Choose a stage and a model that a machine has."))
            wanted = Wanted(stage, choice.engine, choice.model, choice.machine, _size())
            trial_id = model_trials.start_trial(session, assignment_id, wanted, actor)
    except Conflict as error:
        flash(render_error(error), "warning")
        return redirect(url_for("model_trials.listing", assignment_id=assignment_id), 303)
    return redirect(url_for("model_trials.show", trial_id=trial_id), 303)


def _size() -> int:
    typed = request.form.get("size", "")
    return max(1, int(typed)) if typed.isdecimal() and len(typed) < 5 else model_trials.SIZE


@pages.get("/model-trials/<trial_id>")
def show(trial_id: str) -> str:
    """How far the model agrees with people, beside the one of now, and what switching means."""
    actor = auth.actor()
    with services().store.read() as session:
        trial, found = _load(session, actor, trial_id)
        line = submission_lists.assignment_line(found, found.course)
        shown = _found(session, trial, found)
        people = load_ceiling(session, found.course_id, found.id) if shown.done else ()
    return render_template(
        "trust/model_trial.html",
        assignment=line,
        actor=actor,
        trial=trial,
        found=shown,
        verdict_words=verdict_words,
        failures=[failure_words(code) for code in shown.errors],
        people=people,
        change=machines_to_change(services().config.machines, trial),
    )


def _found(session: Session, trial: ModelTrial, assignment: tables.Assignment) -> Found:
    """What it shows so far, worked out again where a run ended or something of the assignment changed."""
    trial_id = trial.id

    def made(session: Session, _assignment_id: int) -> Found:
        return model_trials.load_found(session, model_trials.load_trial(session, trial_id))

    part = (trial_id, model_trials.progress(session, trial_id))
    return page_cache.of_assignment("model-trial", session, assignment.course_id, assignment.id, made, part)


def machines_to_change(machines: Sequence[Machine], trial: ModelTrial) -> list[str]:
    """Machines of the trial's stage that have another model there."""
    of_stage = ((one.name, one.stages.get(trial.stage)) for one in machines)
    wanted = (trial.engine, trial.model)
    return [name for name, place in of_stage if place is not None and place.place != wanted]


@pages.post("/model-trials/<trial_id>")
def decide(trial_id: str) -> Response:
    """Switch, refuse or stop."""
    actor, decision = auth.actor(), request.form.get("decision", "")
    try:
        with services().store.write() as session:
            _load(session, actor, trial_id, "assignment.change")
            if decision not in DECISIONS:
                raise NotFound(_("Choose an action."))
            model_trials.decide(session, trial_id, decision, actor)
    except Conflict as error:
        flash(render_error(error), "warning")
    else:
        flash(_("Saved. Below is what an administrator changes.") if decision == "switched" else _("Saved."))
    return redirect(url_for("model_trials.show", trial_id=trial_id), 303)


def _load(
    session: Session, actor: Actor, trial_id: str, action: str = "trust.see"
) -> tuple[ModelTrial, tables.Assignment]:
    """A trial for staff of its course. Raises NotFound, Forbidden."""
    trial = model_trials.load_trial(session, trial_id)
    return trial, for_staff(session, actor, trial.assignment_id, action)
