"""Points changed by a table: uploaded, looked at, and only then done."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.gradebook.exports import assignment_of
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from app.web.services import services
from grading.domain.errors import DocumentError
from grading.domain.permissions import Actor, Subject
from grading.store.assignments import versions
from grading.store.review import csv_import
from grading.store.tables import Assignment
from grading.tabular import grades_csv
from grading.tabular.grades_csv import GradeTable, TableUnreadable
from grading.tabular.roster_csv import decode_text

pages = Blueprint("imports", __name__)
LONGEST_REASON = 1000


@pages.get("/assignments/<int(max=2147483647):assignment_id>/grades/import")
def form(assignment_id: int) -> str:
    """Where a table is uploaded."""
    assignment = _mine(assignment_id)[1]
    return _form(assignment)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/grades/import")
def preview(assignment_id: int) -> str | tuple[str, int]:
    """What the table would change."""
    assignment = _mine(assignment_id)[1]
    reason = request.form.get("reason", "").strip()[:LONGEST_REASON]
    file = request.files.get("file")
    try:
        text = decode_text(file.read()) if file and file.filename else request.form.get("table", "")
        if not reason:
            raise TableUnreadable(_("Say why the points change; students and colleagues read it."))
        return _preview(assignment, text, reason)
    except DocumentError as error:
        return _form(assignment, error.message, reason, request.form.get("table", "")), error.status


@pages.post("/assignments/<int(max=2147483647):assignment_id>/grades/import/apply")
def apply(assignment_id: int) -> str | tuple[str, int] | Response:
    """Do what was looked at."""
    actor, assignment = _mine(assignment_id)
    text, reason = request.form.get("table", ""), request.form.get("reason", "").strip()[:LONGEST_REASON]
    digest = request.form.get("digest", "")
    if not reason:
        return _form(assignment, _("Say why the points change."), reason, text), 422
    try:
        with services().store.write() as session:
            found = session.get_one(Assignment, assignment_id)
            table = _table(text, versions.criteria_of(session, assignment_id))
            count = csv_import.apply_import(session, found, table, digest, reason, actor)
    except csv_import.PlanChanged as error:
        return _preview(assignment, text, reason, error.message), error.status
    except DocumentError as error:
        return _form(assignment, error.message, reason, text), error.status
    flash(ngettext("%(count)s change was made.", "%(count)s changes were made.", count))
    return redirect(url_for("gradebook.course", course_id=assignment.course_id), 303)


def _mine(assignment_id: int) -> tuple[Actor, Assignment]:
    actor = auth.actor()
    assignment = assignment_of(actor, assignment_id)
    auth.require(actor, "grade.adjust_all", Subject(assignment.course_id))
    return actor, assignment


def _table(text: str, criteria: tuple[versions.Criterion, ...]) -> GradeTable:
    return grades_csv.parse_grades(text.encode(), {one.id: one.title for one in criteria})


def _form(assignment: Assignment, problem: str = "", reason: str = "", table: str = "") -> str:
    with services().store.read_autocommit() as session:
        criteria = versions.criteria_of(session, assignment.id)
    return render_template(
        "gradebook/import.html",
        assignment=assignment,
        criteria=criteria,
        problem=problem,
        reason=reason,
        table=table,
        column_of=grades_csv.column_title,
    )


def _preview(assignment: Assignment, text: str, reason: str, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        plan = csv_import.plan_import(
            session, assignment, _table(text, versions.criteria_of(session, assignment.id))
        )
    return render_template(
        "gradebook/import_preview.html",
        assignment=assignment,
        plan=plan,
        table=text,
        reason=reason,
        problem=problem,
    )
