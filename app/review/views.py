"""Reviewing one submission, changing and releasing its grade, the list of submissions, the comment bank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from pydantic import ValidationError
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.reports.counting import superseded
from app.review import detail, submitted_work, worklist
from app.web import auth, grade_view_audit, parsing
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.report_changes import Change, item_target
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT, NO_SUCH_COURSE
from grading.store import tables
from grading.store.accounts import users
from grading.store.database import now
from grading.store.grades import change_history
from grading.store.grades import release as grade_release
from grading.store.grades.change_history import Made
from grading.store.review import comment_bank, edits, rubric_items
from grading.store.review.comment_bank import CommentRefused
from grading.store.review.edits import ChangedMeanwhile, ChangeRefused
from grading.store.review.rubric_items import ItemRefused, RubricItem
from grading.store.views import review_worklist, submission
from grading.store.views.review_worklist import Filters
from grading.store.views.submission import SubmissionView, WholeSubmission

pages = Blueprint("review", __name__)
ASK_EVERY_S = 10
"""How often the page of a submission asks who else views it: several times within `viewers.VIEWS_S`."""
Answer = Response | str | tuple[str, int]
Done = tuple[str, Mapping[str, str | int]]
"""What was done in a sentence, and the fields of the form that undoes it."""
Work = Callable[[Session, Actor, SubmissionView], Done]


@pages.record
def _remember(state: BlueprintSetupState) -> None:
    """Keep parts of pages with this app."""
    detail.remember(state.app)
    submitted_work.remember(state.app)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/review")
def listing(assignment_id: int) -> str:
    """The list, and beside it what can be done to the whole class."""
    actor, filters = auth.actor(), worklist.filters_of(request.args)
    with services().store.read_autocommit() as session:
        assignment = of_class(session, actor, assignment_id)
        of = worklist.Of(session, assignment.course_id, assignment.id)
        left = worklist.pane(of, filters, worklist.page_of(request.args))
    return render_template("review/list.html", actor=actor, listing=left.html, **left.given)


@pages.get("/submissions/<submission_id>/review")
def one(submission_id: str) -> str:
    """One submission: its work beside its rubric."""
    return page(auth.actor(), submission_id)


@pages.get("/submissions/<submission_id>/review/viewers")
def viewers(submission_id: str) -> str:
    """Who else views it now, and the stamp of its grade: what the page asks for now and then."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        view = load_view(session, actor, submission_id)
        stamp = change_history.stamp(session, view.round_id)
        others = _others(session, actor, submission_id)
    return render_template("review/_viewers.html", view=view, stamp=stamp, others=others, every_s=ASK_EVERY_S)


def _others(session: Session, actor: Actor, submission_id: str) -> tuple[str, ...]:
    """Names of the others who view it; the actor views it from now on."""
    return users.list_names(session, services().dispatch.view(submission_id, actor.user_id))


def page(
    actor: Actor,
    submission_id: str,
    *,
    problem: str = "",
    meanwhile: Sequence[Made] = (),
    draft: dict[str, Any] | None = None,
    stale: bool = False,
) -> str:
    """The page of one submission; with what was typed where it could not be saved, and why."""
    filters = worklist.filters_of(request.args)
    with services().store.read_autocommit() as session:
        whole = load_whole_view(session, actor, submission_id)
        view = whole.view
        of = worklist.Of(session, view.course_id, view.assignment_id)
        left = worklist.pane(of, filters, worklist.page_of(request.args), submission_id)
        way = _way(of, filters, left, submission_id)
        source = detail.load_data(session, whole, worklist.rubric_of_round(session, left, view.round_id))
        work = submitted_work.rendered_work(session, view, source.submitted, source.made, source.stamp)
        others = _others(session, actor, submission_id)
        saved = comment_bank.list_texts(session, view.course_id)
        instead = superseded(session, actor, [submission_id])
    grade_view_audit.viewed(actor, submission_id, "review")
    return render_template(
        "review/submission.html",
        actor=actor,
        stamp=source.stamp,
        view=view,
        instead=instead.get(submission_id),
        work=work,
        body=detail.body(source, work, left.given["here"], saved, _unsaved(problem, stale, draft)),
        problem=problem,
        stale=stale,
        meanwhile=detail.entries(meanwhile, view.grade.report if view.grade else None),
        others=others,
        differing=detail.differing(source.opinions),
        every_s=ASK_EVERY_S,
        **way,
        **left.given,
    )


def _unsaved(problem: str, stale: bool, draft: dict[str, Any] | None) -> dict[str, Any]:
    """What was typed and is not saved."""
    return {"stale": stale, "draft": draft or {}} if problem or stale or draft else {}


def _way(of: worklist.Of, filters: Filters, left: worklist.Left, submission_id: str) -> dict[str, Any]:
    """Where a submission is in the list, which ones are next to it, and the list."""
    before, after = worklist.neighbours(of, filters, submission_id, left)
    position = worklist.position(left, submission_id)
    return {
        "before": before,
        "after": after,
        "position": position,
        "listed": left.listed,
        "listing": left.html,
    }


def load_view(
    session: Session, actor: Actor, submission_id: str, action: str = "class.see"
) -> SubmissionView:
    """A submission for staff who may do this. Raises NotFound, Forbidden."""
    return _required(actor, submission.load_view(session, submission_id), action)


def load_whole_view(
    session: Session, actor: Actor, submission_id: str, action: str = "class.see"
) -> WholeSubmission:
    """The same with what was submitted. Raises NotFound, Forbidden."""
    whole = submission.load_whole(session, submission_id)
    _required(actor, whole.view, action)
    return whole


def _required(actor: Actor, view: SubmissionView, action: str) -> SubmissionView:
    auth.require_seen(actor, view)
    auth.require(actor, action, auth.subject_of(view))
    return view


def of_class(
    session: Session, actor: Actor, assignment_id: int, action: str = "class.see"
) -> tables.Assignment:
    """An assignment for staff who may do this. Raises NotFound, Forbidden."""
    assignment = review_worklist.find_assignment(session, assignment_id)
    if not may(actor, "assignment.see", Subject(assignment.course_id)):
        raise NotFound(NO_SUCH_ASSIGNMENT)
    auth.require(actor, action, Subject(assignment.course_id))
    return assignment


@pages.post("/submissions/<submission_id>/review/change")
def change(submission_id: str) -> Answer:
    """Change points or words, hide a remark, add a comment."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> Done:
        wanted = _wanted(session, submission_id)
        made = edits.change_grade(session, submission_id, wanted, _stamp(), actor)
        if wanted.kind == "add" and request.form.get("keep"):
            comment_bank.save_comment(session, view.course_id, wanted.text, actor)
        note = _(" The student can see it.") if view.released else ""
        seen = change_history.stamp(session, view.round_id)
        return _("Saved.") + note, {"change": made, "seen": seen} if made else {}

    return _done(submission_id, "grade.change", work)


@pages.post("/submissions/<submission_id>/review/items")
def add_item(submission_id: str) -> Answer:
    """Add a rubric item to a criterion, and apply it."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> Done:
        assignment = session.get_one(tables.Assignment, view.assignment_id)
        item = new_item(session, assignment, request.form.get("target", ""), actor)
        wanted = Change(kind="item", target=item_target(item.criterion, item.item))
        made = edits.change_grade(session, submission_id, wanted, _stamp(), actor)
        seen = change_history.stamp(session, view.round_id)
        return _("Rubric item added and applied."), {"change": made, "seen": seen} if made else {}

    return _done(submission_id, "grade.change", work)


def new_item(session: Session, assignment: tables.Assignment, criterion: str, actor: Actor) -> RubricItem:
    """The rubric item that a form asks for, added. Raises ItemRefused, ChangeRefused."""
    rubric = {one.id: one for one in worklist.rubric_of(session, assignment)}
    if criterion not in rubric:
        raise ChangeRefused(edits.NO_SUCH_CRITERION)
    text, points = _text("text", 20_000), worklist.number(request.form.get("points") or "0")
    return rubric_items.add_item(session, assignment, rubric[criterion], text, points, actor)


@pages.post("/submissions/<submission_id>/review/undo")
def undo(submission_id: str) -> Answer:
    """Take a change back, or what else was done at a moment."""
    form = request.form
    releases = "released" in form or "withdrawn" in form

    def work(session: Session, actor: Actor, view: SubmissionView) -> Done:
        if "accepted" in form:
            edits.undo_acceptance(session, submission_id, parsing.form_moment("accepted"), actor)
            return _("Undone. The submission is no longer marked as reviewed."), {}
        if releases:
            undo_release(session, view.assignment_id, actor)
            hidden = _("Undone. The student cannot see this grade.")
            return hidden if "released" in form else _("Undone. The grade is released again."), {}
        change_id = parsing.whole_number(form.get("change", "")) or 0
        edits.undo_change(session, submission_id, change_id, _stamp(), actor)
        return _("Undone. The previous value is restored."), {}

    return _done(submission_id, "grade.release" if releases else "grade.change", work)


def undo_release(session: Session, assignment_id: int, actor: Actor) -> int:
    """Take back the release or the withdrawal that the form names; returns of how many. Raises CannotUndo."""
    if "released" in request.form:
        return grade_release.undo_release(session, assignment_id, parsing.form_moment("released"), actor)
    return grade_release.undo_withdrawal(session, assignment_id, parsing.form_moment("withdrawn"), actor)


@pages.post("/submissions/<submission_id>/review/accept")
def accept(submission_id: str) -> Answer:
    """Agree, and go on to the next one of the list."""
    after: list[str | None] = []

    def work(session: Session, actor: Actor, view: SubmissionView) -> Done:
        assignment = review_worklist.find_assignment(session, view.assignment_id)
        filters = worklist.filters_of(request.args)
        after.append(review_worklist.neighbours(session, assignment, filters, submission_id)[1])
        released = edits.accept_grade(session, submission_id, _stamp(), actor)
        message = _("Marked as reviewed: %(name)s.", name=view.student)
        message += _(" It is released, as set for this assignment.") if released else ""
        message += "" if after[0] else " " + _("That was the last submission in this list.")
        again = view.grade is not None and view.grade.reviewed_at is not None
        return message, {} if again else {"accepted": now(session).isoformat()}

    return _done(submission_id, "grade.change", work, after)


@pages.post("/submissions/<submission_id>/review/release")
def release(submission_id: str) -> Answer:
    """Let the student see this grade; where it is held, after its reviewer read why."""
    asked = ask_release(submission_id)
    if asked is not None:
        return asked

    def work(session: Session, actor: Actor, view: SubmissionView) -> Done:
        edits.require_unchanged(session, view.round_id, _stamp())
        grade_release.release_grade(session, view.round_id, actor)
        undo = {} if view.released else {"released": now(session).isoformat()}
        return _("The student can now see this grade."), undo

    return _done(submission_id, "grade.release", work)


def ask_release(submission_id: str) -> str | None:
    """The page that asks before a held grade is released; None where the form says that it may be."""
    if "sure" in request.form:
        return None
    actor, filters = auth.actor(), worklist.filters_of(request.args)
    with services().store.read_autocommit() as session:
        view = load_view(session, actor, submission_id, "grade.release")
        changed = _stamp() != change_history.stamp(session, view.round_id)  # what else is said about that
        opinions = detail.load_opinions(session, view)
    if view.grade is None or not view.grade.held or view.released or changed:
        return None
    address = worklist.address_of(filters, worklist.page_of(request.args))
    return render_template(
        "review/release_held.html",
        view=view,
        report=view.grade.report,
        differing=detail.differing(opinions),
        seen=_stamp(),
        address=address,
    )


@pages.post("/submissions/<submission_id>/review/withdraw")
def withdraw(submission_id: str) -> Answer:
    """Take a released grade back."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> Done:
        grade_release.withdraw_grade(session, view.round_id, actor, _text("reason", 2_000))
        undo = {"withdrawn": now(session).isoformat()} if view.released else {}
        return _("Withdrawn. The student cannot see the grade until you release it again."), undo

    return _done(submission_id, "grade.release", work)


def _done(submission_id: str, action: str, work: Work, after: list[str | None] | None = None) -> Answer:
    """Do the work in one transaction and show the submission or the next; the page says what is wrong."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            view = load_view(session, actor, submission_id, action)
            message, undo_fields = work(session, actor, view)
    except ChangedMeanwhile as error:
        draft = request.form.to_dict()
        return page(actor, submission_id, meanwhile=error.since, draft=draft, stale=True), error.status
    except (ChangeRefused, CommentRefused, ItemRefused, Conflict, CannotUndo) as error:
        problem = render_error(error)
        return page(actor, submission_id, problem=problem, draft=request.form.to_dict()), error.status
    filters, number = worklist.filters_of(request.args), worklist.page_of(request.args)
    address = worklist.address_of(filters, number)
    if undo_fields:
        flash_undo(message, "review.undo", undo_fields, submission_id=submission_id, **address)
    else:
        flash(message)
    target = (after[0] if after else None) or submission_id
    anchor = _text("back", 40) if target == submission_id else ""
    valid_anchor = anchor if anchor.replace("-", "").isalnum() else None
    return redirect(url_for("review.one", submission_id=target, _anchor=valid_anchor, **address), 303)


def _wanted(session: Session, submission_id: str) -> Change:
    """The change a form asks for. Raises ChangeRefused."""
    form = request.form
    text = _text("text", 20_000) or _text("saved", 20_000)
    fields: dict[str, Any] = {"kind": form.get("kind", ""), "target": form.get("target", "")[:100]}
    fields |= {"text": text, "reason": _text("reason", 2_000)}
    points = form.get("exact") or form.get("points") or ""
    fields["points"] = worklist.number(points)
    fields["target"] = edits.TOTAL if fields["kind"] == "adjust" else fields["target"]
    if fields["kind"] == "add":
        fields |= {**_place(session, submission_id), "target": ""}
    try:
        return Change.model_validate(fields)
    except ValidationError:
        raise ChangeRefused from None


def _place(session: Session, submission_id: str) -> dict[str, Any]:
    """Where a comment is to stand: `document:cell` by their numbers, and a line."""
    given, _colon, cell = request.form.get("place", "").partition(":")
    typed = request.form.get("line", "").strip()
    document, line = parsing.whole_number(given), parsing.whole_number(typed)
    if document is None:
        if typed:
            raise ChangeRefused(_("Choose the file of the line."))
        return {}
    documents = session.get_one(tables.Submission, submission_id).documents
    if document >= len(documents) or (typed and line is None):
        raise ChangeRefused(_("This location does not exist in the submission."))
    return {"document": documents[document]["path"], "cell": parsing.whole_number(cell), "line": line}


def form_bulk() -> str:
    """The id that a form brings for all changes it makes. Raises ChangeRefused."""
    given = request.form.get("bulk", "")
    if len(given) != 32 or not given.isalnum():
        raise ChangeRefused
    return given


def _stamp() -> str:
    return request.form.get("seen", "")[:100]


def _text(name: str, most: int) -> str:
    """What was typed, in lines as Python has them, without what a database does not take."""
    return request.form.get(name, "").replace("\0", "").replace("\r\n", "\n").strip()[:most]


@pages.get("/courses/<int(max=2147483647):course_id>/comments")
def list_comments(course_id: int) -> str:
    """All that are kept, and a form for another."""
    return _comments_page(auth.actor(), course_id)


@pages.post("/courses/<int(max=2147483647):course_id>/comments")
def save_comment(course_id: int) -> Response | tuple[str, int]:
    """Keep one."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _course_of_comments(session, actor, course_id)
            text = request.form.get("text", "").replace("\0", "").replace("\r\n", "\n")
            made = comment_bank.save_comment(session, course_id, text, actor)
    except CommentRefused as error:
        return _comments_page(actor, course_id, render_error(error)), error.status
    if made is None:
        flash(_("Saved."))
    else:
        flash_undo(_("Saved."), "review.delete_comment", course_id=course_id, comment_id=made)
    return redirect(url_for("review.list_comments", course_id=course_id), 303)


@pages.post("/courses/<int(max=2147483647):course_id>/comments/<int(max=2147483647):comment_id>/delete")
def delete_comment(course_id: int, comment_id: int) -> Response:
    """Forget one. Where it was used, it stays."""
    actor = auth.actor()
    with services().store.write() as session:
        _course_of_comments(session, actor, course_id)
        text = comment_bank.delete_comment(session, course_id, comment_id, actor)
    message = _("Deleted. Copies on submissions are kept.")
    flash_undo(message, "review.save_comment", {"text": text}, course_id=course_id)
    return redirect(url_for("review.list_comments", course_id=course_id), 303)


def _course_of_comments(session: Session, actor: Actor, course_id: int) -> tables.Course:
    course = session.get(tables.Course, course_id)
    if course is None or not auth.knows_course(actor, course_id):
        raise NotFound(NO_SUCH_COURSE)
    auth.require(actor, "grade.change", Subject(course_id))
    return course


def _comments_page(actor: Actor, course_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        course = _course_of_comments(session, actor, course_id)
        comments = comment_bank.list_comments(session, course_id, worklist.page_of(request.args))
    return render_template("review/comments.html", course=course, kept=comments, problem=problem, actor=actor)
