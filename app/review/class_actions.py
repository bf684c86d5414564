"""What is done to the grades of a whole class: releasing, withdrawing, curves with a preview."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from pydantic import ValidationError
from werkzeug.wrappers import Response

from app.review import views, worklist
from app.web import auth, dates, page_cache
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo, GraderError
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.scoring.curves import Curve
from grading.store.database import now
from grading.store.grades import release as grade_release
from grading.store.review import curves
from grading.store.review.curves import CurveRefused, MovedMeanwhile, Preview
from grading.store.review.second_marking import MOST
from grading.store.views import submission_lists

pages = Blueprint("class_actions", __name__)
SELECTED = 500
"""Submissions of one page that can be ticked, with room."""
SHOWN = 500
"""Rows of a preview that are shown."""
Answer = Response | str | tuple[str, int]


@pages.post("/assignments/<int(max=2147483647):assignment_id>/review/selected")
def act_on_selected(assignment_id: int) -> Answer:
    """Release, withdraw or mark what was ticked in the list."""
    actor, do = auth.actor(), request.form.get("do", "")
    ids = [one for one in request.form.getlist("chosen") if one.isalnum() and len(one) <= 32][:SELECTED]
    with services().store.read_autocommit() as session:
        views.of_class(session, actor, assignment_id, "mark.give")
    if not ids:
        flash(_("Select one or more submissions first."))
        return _to_list(assignment_id)
    if do == "mark":
        to_mark = ",".join(ids[:MOST])
        return redirect(url_for("second_marking.listing", assignment_id=assignment_id, ids=to_mark), 303)
    if do == "withdraw" and "sure" not in request.form:
        return _ask_withdrawal(actor, assignment_id, ids)
    with services().store.write() as session:
        assignment = views.of_class(session, actor, assignment_id, "grade.release")
        if do == "withdraw":
            reason = request.form.get("reason", "").replace("\0", "").strip()[:2_000]
            count = grade_release.withdraw_all(session, assignment.id, actor, ids, reason)
            done = _withdrawn(count)
        elif do == "release":
            count = grade_release.release_all(session, assignment.id, actor, ids)
            done = _released(count, _("Grades held for review and partly graded submissions were skipped."))
        else:
            return _to_list(assignment_id)
        moment = now(session)
    _flash_done(done, assignment_id, do, count, moment)
    return _to_list(assignment_id)


def _flash_done(message: str, assignment_id: int, do: str, count: int, moment: datetime) -> None:
    """Say it; where a grade changed, with a button that takes it back for all that changed."""
    if not count:
        flash(message)
        return
    name = "withdrawn" if do == "withdraw" else "released"
    address = worklist.address_of(worklist.filters_of(request.args), worklist.page_of(request.args))
    fields = {name: moment.isoformat()}
    flash_undo(message, "class_actions.undo", fields, assignment_id=assignment_id, **address)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/review/undo")
def undo(assignment_id: int) -> Response:
    """Take back a release or a withdrawal of several grades."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            assignment = views.of_class(session, actor, assignment_id, "grade.release")
            count = views.undo_release(session, assignment.id, actor)
        flash(ngettext("Undone for %(count)s grade.", "Undone for %(count)s grades.", count))
    except CannotUndo as error:
        flash(render_error(error), "warning")
    return _to_list(assignment_id)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/review/release")
def release_form(assignment_id: int) -> str:
    """When grades are released: now, at a date, by themselves."""
    return _release_page(auth.actor(), assignment_id)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/review/release")
def release(assignment_id: int) -> Answer:
    """Release all that is not held now, withdraw all, or say when it happens from now on."""
    actor, do = auth.actor(), request.form.get("do", "")
    try:
        with services().store.write() as session:
            assignment = views.of_class(session, actor, assignment_id, "grade.release")
            if do == "now":
                count = grade_release.release_all(session, assignment_id, actor)
                done = _released(count, _("Grades held for review still need your review."))
            elif do == "withdraw":
                _require_sure()
                count = grade_release.withdraw_all(session, assignment_id, actor)
                done = _withdrawn(count)
            else:
                before = {"do": "policy", "release": assignment.release, "at": _utc(assignment.release_at)}
                wanted = request.form.get("release", "")
                grade_release.set_policy(session, assignment, wanted, _moment(), actor)
            moment = now(session)
    except GraderError as error:
        if error.status != 422:
            raise
        return _release_page(actor, assignment_id, render_error(error)), error.status
    if do in ("now", "withdraw"):
        _flash_done(done, assignment_id, do, count, moment)
    else:
        flash_undo(_("Saved."), "class_actions.release", before, assignment_id=assignment_id)
    return redirect(url_for("class_actions.release_form", assignment_id=assignment_id), 303)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/review/curve")
def curve_form(assignment_id: int) -> Answer:
    """Choose a curve, and see what it would do."""
    return _curve_page(auth.actor(), assignment_id, request.args.to_dict())


@pages.post("/assignments/<int(max=2147483647):assignment_id>/review/curve")
def apply_curve(assignment_id: int) -> Answer:
    """Apply the curve that was previewed."""
    actor, form = auth.actor(), request.form.to_dict()
    try:
        with services().store.write() as session:
            assignment = views.of_class(session, actor, assignment_id, "grade.adjust_all")
            reason = form.get("reason", "").replace("\0", "").strip()[:2_000]
            bulk, count = curves.apply_curve(
                session,
                assignment,
                _curve_of(form),
                actor,
                seen=form.get("seen", ""),
                reason=reason,
                everything=bool(form.get("all")),
            )
    except (CurveRefused, MovedMeanwhile) as error:
        return _curve_page(actor, assignment_id, form, render_error(error), error.status)
    message = ngettext("%(count)s grade changed.", "%(count)s grades changed.", count)
    if count:
        flash_undo(message, "class_actions.undo_curve", {"bulk": bulk}, assignment_id=assignment_id)
    else:
        flash(message)
    return redirect(url_for("class_actions.curve_form", assignment_id=assignment_id), 303)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/review/curve/undo")
def undo_curve(assignment_id: int) -> Response:
    """Take a curve back for everybody."""
    actor = auth.actor()
    with services().store.write() as session:
        assignment = views.of_class(session, actor, assignment_id, "grade.adjust_all")
        count = curves.undo_curve(session, assignment, request.form.get("bulk", "")[:32], actor)
    flash(ngettext("Undone for %(count)s grade.", "Undone for %(count)s grades.", count))
    return redirect(url_for("class_actions.curve_form", assignment_id=assignment_id), 303)


def _to_list(assignment_id: int) -> Response:
    filters, number = worklist.filters_of(request.args), worklist.page_of(request.args)
    address = worklist.address_of(filters, number)
    return redirect(url_for("review.listing", assignment_id=assignment_id, **address), 303)


def _released(count: int, rest: str) -> str:
    return f"{ngettext('%(count)s grade released.', '%(count)s grades released.', count)} {rest}"


def _withdrawn(count: int) -> str:
    return ngettext("%(count)s grade withdrawn.", "%(count)s grades withdrawn.", count)


class NotSure(GraderError):
    """Nothing was changed. Select the confirmation box first."""

    code = "not_sure"
    status = 422
    default_message = define_message(
        "error.not_sure", "Nothing was changed. Select the confirmation box first."
    )


def _require_sure() -> None:
    if "sure" not in request.form:
        raise NotSure


def _ask_withdrawal(actor: Actor, assignment_id: int, ids: list[str]) -> str:
    with services().store.read_autocommit() as session:
        assignment = views.of_class(session, actor, assignment_id, "grade.release")
        line = submission_lists.assignment_line(assignment, assignment.course)
    address = worklist.address_of(worklist.filters_of(request.args))
    return render_template("review/withdraw.html", assignment=line, ids=ids, address=address, actor=actor)


def _moment() -> datetime | None:
    """The date of the form: as the browser says it, with its distance from UTC in minutes, else in UTC."""
    text, offset = request.form.get("at", "").strip(), request.form.get("offset", "0")
    try:
        read = datetime.fromisoformat(text)
        shift = timedelta(minutes=int(offset)) if offset.lstrip("-").isdecimal() and len(offset) < 5 else None
        moment = (read.replace(tzinfo=UTC) + (shift or timedelta())) if read.tzinfo is None else read
        moment = moment.astimezone(UTC)
        return moment if timedelta(0) < moment - datetime(2000, 1, 1, tzinfo=UTC) < dates.FAR else None
    except (ValueError, OverflowError):
        return None


def _utc(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _release_page(actor: Actor, assignment_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        assignment = views.of_class(session, actor, assignment_id, "grade.release")
        line = submission_lists.assignment_line(assignment, assignment.course)
        counts = page_cache.of_assignment(
            "counts", session, assignment.course_id, assignment_id, grade_release.count_grades
        )
        release_at = assignment.release_at
    return render_template(
        "review/release.html",
        assignment=line,
        release_at=release_at,
        counts=counts,
        problem=problem,
        actor=actor,
    )


def _curve_page(
    actor: Actor, assignment_id: int, form: dict[str, str], problem: str = "", status: int = 200
) -> Answer:
    preview: Preview | None = None
    with services().store.read_autocommit() as session:
        assignment = views.of_class(session, actor, assignment_id, "grade.adjust_all")
        line = submission_lists.assignment_line(assignment, assignment.course)
        if form.get("kind"):
            try:
                preview = curves.preview_curve(session, assignment, _curve_of(form), bool(form.get("all")))
            except CurveRefused as error:
                problem, status = problem or render_error(error), error.status
        values: dict[str, Any] = {
            "assignment": line,
            "criteria": worklist.rubric_of(session, assignment),
            "bulks": curves.list_applied_curves(session, assignment_id),
        }
    context = {"preview": preview, "form": form, "problem": problem, "shown": SHOWN}
    return render_template("review/curve.html", actor=actor, **context, **values), status


def _curve_of(form: dict[str, str]) -> Curve:
    """The curve of a form. Raises CurveRefused."""
    points = worklist.number(form.get("points", ""))
    fields = {"kind": form.get("kind"), "criterion": form.get("criterion", "")[:64]}
    if points is None and fields["kind"] != "root":
        raise CurveRefused(_("Enter the number of points."))
    try:
        return Curve.model_validate({**fields, "points": points or 0.0, "above": bool(form.get("above"))})
    except ValidationError:
        raise CurveRefused(_("Choose a method and a valid number of points.")) from None
