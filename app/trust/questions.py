"""Questions to the instructor about what graders judge differently; answers become notes of the rubric."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.gateway_requests.asking import available_model
from app.reports.annotated_submission import line_name
from app.reports.flags import place_words
from app.trust import question_drafts
from app.trust import question_texts as words
from app.trust.staff import for_staff
from app.web import auth, page_cache, parsing
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import AssignmentError, Conflict, NotFound
from grading.domain.permissions import Subject, may
from grading.store import tables
from grading.store.assignments import versions
from grading.store.trust import questions
from grading.store.trust.questions import Answer, FoundQuestion, QuestionState
from grading.store.views import submission_lists

pages = Blueprint("questions", __name__)
CHANGE = "assignment.change"
pages.record(lambda state: question_drafts.remember(state.app))
MOST_TRIED = 500
"""Submissions of a question that a dry run takes."""


@pages.get(f"/assignments/{ANY}/trust/questions")
def listing(assignment_id: int) -> str:
    """The open questions, the largest first, and what became of others."""
    return _page(assignment_id)


def _page(assignment_id: int, typed: dict[str, str] | None = None) -> str:
    actor = auth.actor()
    with services().store.read() as session:
        assignment = for_staff(session, actor, assignment_id)
        found = _found(session, assignment)
        states = questions.list_states(session, assignment_id)
        newest = versions.load_newest(session, assignment)
        line = submission_lists.assignment_line(assignment, assignment.course)
    by_key = {one.key: one for one in found}
    closed = [one for one in states.values() if one.state != "open"]
    gone = {(one.criterion, one.cause) for one in closed}
    still = [one for one in found if one.key not in gone]
    problem = question_drafts.drafting().problems.get(assignment_id)
    return render_template(
        "trust/questions.html",
        assignment=line,
        open=[words.shown(one, states.get(one.key)) for one in still],
        concerned=len({work for one in still for work in one.group.works}),
        closed=closed,
        works={key: one.group.works[:MOST_TRIED] for key, one in by_key.items()},
        newest=newest,
        changes=may(actor, CHANGE, Subject(assignment.course_id)),
        typed=typed or {},
        most=questions.MOST_NOTE,
        place_words=place_words,
        line_name=line_name,
        model=available_model(services().gateway),
        busy=assignment_id in question_drafts.drafting().busy,
        problem=render_error(problem) if problem is not None else "",
    )


def _found(session: Session, assignment: tables.Assignment) -> tuple[FoundQuestion, ...]:
    return page_cache.of_assignment(
        "questions", session, assignment.course_id, assignment.id, questions.find_questions
    )


@pages.post(f"/assignments/{ANY}/trust/questions/answer")
def answer(assignment_id: int) -> Response | tuple[str, int]:
    """Save an answer as a note of the criterion, in a new draft."""
    actor, key = auth.actor(), _key()
    equal = {"yes": True, "no": False}.get(request.form.get("equal", ""))
    try:
        with services().store.write() as session:
            assignment = for_staff(session, actor, assignment_id, CHANGE)
            one = _asked(session, assignment, key)
            note = _note(one, equal)
            cause = one.found.group.cause
            same = (cause.about.removesuffix("()"), cause.instead.removesuffix("()"))
            number = questions.answer_question(
                session, assignment, key, Answer(one.text, note, same if equal else None),
                parsing.whole_number(request.form.get("base", "")) or 0, actor,
            )  # fmt: skip
    except (Conflict, AssignmentError) as error:
        flash(render_error(error), "warning")
        return _page(assignment_id, dict(request.form)), 409
    flash(_("Saved in draft %(number)s. See whom it moves, then publish it.", number=number), "success")
    return redirect(url_for("questions.listing", assignment_id=assignment_id, _anchor="closed-title"), 303)


def _note(one: words.ShownQuestion, equal: bool | None) -> str:
    """What was answered, as a note. Raises Conflict where nothing was."""
    if one.equal and equal is None:
        raise Conflict(_("Choose whether they are equal."))
    return words.note(one.found.group.cause, equal if one.equal else None, request.form.get("note", ""))


@pages.post(f"/assignments/{ANY}/trust/questions/word")
def word(assignment_id: int) -> Response:
    """Have a model word the largest questions that are in the template's words."""
    actor, gateway = auth.actor(), services().gateway
    with services().store.read() as session:
        assignment = for_staff(session, actor, assignment_id, CHANGE)
        states = questions.list_states(session, assignment_id)
        some = [words.shown(one, states.get(one.key)) for one in _found(session, assignment)]
    if gateway is None or not available_model(gateway):
        flash(_("No machine with a model is available now."), "warning")
    else:
        unworded = [one for one in some if not one.model and not _closed(states, one.found.key)]
        if not question_drafts.begin(gateway, services().store, assignment_id, unworded):
            flash(_("A model is wording other questions. Try again in a minute."), "warning")
    return redirect(url_for("questions.listing", assignment_id=assignment_id), 303)


def _closed(states: Mapping[tuple[str, str], QuestionState], key: tuple[str, str]) -> bool:
    return key in states and states[key].state != "open"


@pages.post(f"/assignments/{ANY}/trust/questions/dismiss")
def dismiss(assignment_id: int) -> Response:
    """Take a question off the list."""
    actor, key = auth.actor(), _key()
    try:
        with services().store.write() as session:
            assignment = for_staff(session, actor, assignment_id, CHANGE)
            text = _asked(session, assignment, key).text
            questions.dismiss_question(session, assignment, key, text, actor)
        flash_undo(
            _("Question dismissed."), "questions.reopen", {"criterion": key[0], "cause": key[1]},
            assignment_id=assignment_id,
        )  # fmt: skip
    except Conflict as error:
        flash(render_error(error), "warning")
    return redirect(url_for("questions.listing", assignment_id=assignment_id), 303)


@pages.post(f"/assignments/{ANY}/trust/questions/reopen")
def reopen(assignment_id: int) -> Response:
    """Put a question on the list again."""
    actor = auth.actor()
    with services().store.write() as session:
        assignment = for_staff(session, actor, assignment_id, CHANGE)
        questions.reopen_question(session, assignment, _key(), actor)
    flash(_("The question is open again. A draft that has its answer stays as it is."))
    return redirect(url_for("questions.listing", assignment_id=assignment_id), 303)


def _key() -> tuple[str, str]:
    return request.form.get("criterion", "")[:80], request.form.get("cause", "")[:32]


def _asked(session: Session, assignment: tables.Assignment, key: tuple[str, str]) -> words.ShownQuestion:
    """A question that there is now. Raises NotFound."""
    found = next((one for one in _found(session, assignment) if one.key == key), None)
    if found is None:
        raise NotFound(questions.NO_SUCH_QUESTION)
    return words.shown(found, questions.list_states(session, assignment.id).get(key))
