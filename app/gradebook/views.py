"""The gradebook of a course: its pages, its files, and points changed by a table."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from markupsafe import Markup
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.web import auth, page_cache
from app.web.i18n import current, ngettext, render_error
from app.web.i18n import gettext as _
from app.web.services import services
from app.web.toasts import flash_undo
from app.web.zip_stream import ZipBuffer
from grading.documents import zip_names
from grading.domain.errors import DocumentError, NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT, NO_SUCH_COURSE
from grading.store import Store
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.courses import courses
from grading.store.database import now
from grading.store.grades.gradebook_cells import Cell
from grading.store.review import bulk_changes, csv_import, level_views
from grading.store.tables import Assignment
from grading.store.views import csv_export, gradebook, submission_lists
from grading.store.views.gradebook import Gradebook
from grading.tabular import grades_csv
from grading.tabular.grades_csv import GradeTable, TableUnreadable
from grading.tabular.roster_csv import decode_text

pages = Blueprint("gradebook", __name__)
PAGES = 40
"""Of a course that are kept."""
PIECE = 256 * 1024
"""Bytes that are compressed before some are sent."""
LONGEST_REASON = 1000


@pages.get("/courses/<int(max=2147483647):course_id>/grades")
def course(course_id: int) -> str:
    """Students × assignments, some students at a time; `part=rows` is only the table's rows."""
    actor = require_course(course_id, "class.see")
    search = request.args.get("q", "")
    view = _cached_page(course_id, search, _page())
    rows = view.rows.get(current())
    if rows is None:
        made = render_template("gradebook/_rows.html", book=view.book, note=notes())
        rows = view.rows[current()] = Markup(made)  # noqa: S704 - a rendered template
    if request.args.get("part") == "rows":
        return rows
    return render_template("gradebook/course.html", book=view.book, rows=rows, search=search, actor=actor)


@dataclass(frozen=True)
class CachedPage:
    """A page of the gradebook, and its rows by language."""

    book: Gradebook
    rows: dict[str, Markup] = field(default_factory=dict)


def _cached_page(course_id: int, search: str, page: int) -> CachedPage:
    """A page, kept as long as nothing changes and no date passes; what is searched for is looked up anew."""
    with services().store.read_autocommit() as session:
        cached = {} if search else page_cache.of_course("gradebook", session, course_id, _no_pages)
        found = cached.get(page)
        if found is None or (found.book.until is not None and found.book.until <= now(session)):
            found = CachedPage(
                gradebook.load_gradebook(session, courses.load_course(session, course_id), search, page)
            )
            if len(cached) < PAGES:
                cached[page] = found
    return found


def _no_pages(_session: Session, _course_id: int) -> dict[int, CachedPage]:
    return {}


@pages.get("/courses/<int(max=2147483647):course_id>/my-grades")
def mine(course_id: int) -> str:
    """What the reader got, as far as it is released."""
    actor = require_course(course_id, "grades.own")
    with services().store.read_autocommit() as session:
        book = gradebook.load_student_row(session, courses.load_course(session, course_id), actor.user_id)
        cells = book.rows[0].cells if book.rows else ()
        waiting = [one.id for one, cell in zip(book.columns, cells, strict=False) if _waits(cell)]
        released = submission_lists.list_last_released(session, actor.user_id, waiting)
    return render_template("gradebook/own.html", book=book, released=released, actor=actor, note=notes())


def _waits(cell: Cell) -> bool:
    """Whether something was submitted whose points the student may not see yet."""
    return bool(cell.submission_id) and not cell.released


def require_course(course_id: int, action: str) -> Actor:
    """The reader, who may do this in the course; to others it does not exist."""
    actor = auth.actor()
    if not may(actor, "assignment.see", Subject(course_id)):
        raise NotFound(NO_SUCH_COURSE)
    auth.require(actor, action, Subject(course_id))
    return actor


def notes() -> Callable[..., str]:
    """What is to be said of a cell beside its points; words are looked up once, cells are many."""
    words = {
        "open": _("not graded yet"),
        "partial": _("partly graded"),
        "failed": _("grading failed"),
        "missing": _("not submitted"),
    }
    late, adjusted = _("late, %(percent)s %%"), _("adjusted by %(points)s")
    held, hidden, left_out = _("held for review"), _("not released"), _("dropped")

    def note(cell: Cell, *, dropped: bool = False) -> str:
        parts = [words[cell.state]] if cell.state in words else []
        if cell.credit < 1:
            parts.append(late % {"percent": round(100 * cell.credit)})
        if cell.adjustment:
            parts.append(adjusted % {"points": f"{cell.adjustment:+g}"})
        if cell.held:
            parts.append(held)
        elif cell.points is not None and not cell.released:
            parts.append(hidden)
        return ", ".join([*parts, left_out] if dropped else parts)

    return note


def _page() -> int:
    text = request.args.get("page", "")
    return int(text) if text.isdecimal() and len(text) < 7 else 1


@pages.get("/courses/<int(max=2147483647):course_id>/grades.csv")
def export_csv(course_id: int) -> Response:
    """The grades of a course, or of one of its assignments (`assignment`)."""
    actor = require_course(course_id, "grades.export")
    number = request.args.get("assignment", "")
    assignment = None
    if number:
        assignment = assignment_of(actor, int(number) if number.isdecimal() and len(number) < 10 else 0)
        if assignment.course_id != course_id:
            raise NotFound(NO_SUCH_ASSIGNMENT)
    separator, args = request.args.get("separator", ""), request.args
    how = How(separator, bom="bom" in args, criteria="criteria" in args)
    return table(actor, course_id, assignment, how)


@dataclass(frozen=True)
class How:
    """How a table is written."""

    separator: str = ""
    bom: bool = False
    criteria: bool = False


def table(actor: Actor, course_id: int, assignment: Assignment | None, how: How) -> Response:
    """The grades of a course, or of one of its assignments; the actor may have them."""
    with services().store.write() as session:
        course = courses.load_course(session, course_id)
        about = f"assignment:{assignment.id}" if assignment else f"course:{course_id}"
        write_audit(session, actor.name, "grades.export", about, {"criteria": how.criteria})
        if assignment and how.criteria:
            level_views.record_class(session, actor, assignment.id)
    name = f"{course.slug}-{assignment.slug}" if assignment else course.slug
    content = _table_lines(services().store, course_id, assignment, how)
    return _file(content, f"{name}-grades.csv", "text/csv; charset=utf-8")


def _table_lines(store: Store, course_id: int, assignment: Assignment | None, how: How) -> Iterator[bytes]:
    separator = grades_csv.SEPARATORS.get(how.separator, ",")

    def lines() -> Iterator[bytes]:
        with store.read() as session:
            if assignment is None:
                header, rows = csv_export.course_table(session, course_id)
            else:
                header, rows = csv_export.assignment_table(session, assignment, criteria=how.criteria)
            yield from grades_csv.csv_lines(header, rows, separator, bom=how.bom)

    return lines()


@pages.get("/assignments/<int(max=2147483647):assignment_id>/everything.zip")
def export_zip(assignment_id: int) -> Response:
    """All submissions with their reports, and the grades."""
    actor = auth.actor()
    assignment = assignment_of(actor, assignment_id)
    auth.require(actor, "grades.export", Subject(assignment.course_id))
    return all_of(actor, assignment)


def all_of(actor: Actor, assignment: Assignment) -> Response:
    """All of an assignment, as a zip; the actor may have it."""
    store = services().store
    with store.write() as session:
        write_audit(session, actor.name, "assignment.export", f"assignment:{assignment.id}")
        level_views.record_class(session, actor, assignment.id)
        course = courses.load_course(session, assignment.course_id)
    return _file(
        _zipped(_files(store, assignment)), f"{course.slug}-{assignment.slug}.zip", "application/zip"
    )


def assignment_of(actor: Actor, assignment_id: int) -> Assignment:
    """The assignment, as far as it exists for the reader."""
    with services().store.read() as session:
        found = session.get(Assignment, assignment_id)
    if found is None or not may(actor, "assignment.see", Subject(found.course_id)):
        raise NotFound(NO_SUCH_ASSIGNMENT)
    return found


def _files(store: Store, assignment: Assignment) -> Iterator[tuple[str, bytes]]:
    yield from csv_export.export_files(store, assignment.id)
    with store.read() as session:
        header, rows = csv_export.assignment_table(session, assignment, criteria=True)
        yield "grades.csv", b"".join(grades_csv.csv_lines(header, rows, bom=True))


def _zipped(files: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    pipe = ZipBuffer()
    moment = datetime.now(UTC).timetuple()[:6]
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            about = zipfile.ZipInfo(name, moment)
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
            with archive.open(about, "w") as to:
                for start in range(0, len(content), PIECE):
                    to.write(content[start : start + PIECE])
                    yield pipe.pop_bytes()
            yield pipe.pop_bytes()
    yield pipe.pop_bytes()


def _file(content: Iterator[bytes], name: str, kind: str) -> Response:
    response = Response(content, content_type=kind)
    with suppress(AttributeError):
        response.headers.set("Content-Disposition", "attachment", filename=zip_names.part(name))
    return response


@pages.get("/assignments/<int(max=2147483647):assignment_id>/grades/import")
def import_form(assignment_id: int) -> str:
    """Where a table is uploaded."""
    assignment = _mine(assignment_id)[1]
    return _import_form_page(assignment)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/grades/import")
def preview_import(assignment_id: int) -> str | tuple[str, int]:
    """What the table would change."""
    assignment = _mine(assignment_id)[1]
    reason = request.form.get("reason", "").strip()[:LONGEST_REASON]
    file = request.files.get("file")
    try:
        text = decode_text(file.read()) if file and file.filename else request.form.get("table", "")
        if not reason:
            raise TableUnreadable(_("Enter a reason for the change. Students and staff can see it."))
        return _import_preview_page(assignment, text, reason)
    except DocumentError as error:
        return _import_form_page(
            assignment, render_error(error), reason, request.form.get("table", "")
        ), error.status


@pages.post("/assignments/<int(max=2147483647):assignment_id>/grades/import/apply")
def apply_import(assignment_id: int) -> str | tuple[str, int] | BaseResponse:
    """Do what was looked at."""
    actor, assignment = _mine(assignment_id)
    text, reason = request.form.get("table", ""), request.form.get("reason", "").strip()[:LONGEST_REASON]
    digest = request.form.get("digest", "")
    if not reason:
        return _import_form_page(assignment, _("Enter a reason for the change."), reason, text), 422
    try:
        with services().store.write() as session:
            found = session.get_one(Assignment, assignment_id)
            table = _read_table(text, versions.criteria_of(session, assignment_id))
            bulk, count = csv_import.apply_import(session, found, table, digest, reason, actor)
    except csv_import.PlanChanged as error:
        return _import_preview_page(assignment, text, reason, render_error(error)), error.status
    except DocumentError as error:
        return _import_form_page(assignment, render_error(error), reason, text), error.status
    message = ngettext("%(count)s change was made.", "%(count)s changes were made.", count)
    if count:
        flash_undo(message, "gradebook.undo_import", {"bulk": bulk}, assignment_id=assignment_id)
    else:
        flash(message)
    return redirect(url_for("gradebook.course", course_id=assignment.course_id), 303)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/grades/import/undo")
def undo_import(assignment_id: int) -> BaseResponse:
    """Undo all changes of an import."""
    actor, assignment = _mine(assignment_id)
    bulk = request.form.get("bulk", "")[:32]
    count = bulk_changes.undo_bulk(services().store, assignment_id, bulk, actor)
    flash(ngettext("Undone for %(count)s submission.", "Undone for %(count)s submissions.", count))
    return redirect(url_for("gradebook.course", course_id=assignment.course_id), 303)


def _mine(assignment_id: int) -> tuple[Actor, Assignment]:
    actor = auth.actor()
    assignment = assignment_of(actor, assignment_id)
    auth.require(actor, "grade.adjust_all", Subject(assignment.course_id))
    return actor, assignment


def _read_table(text: str, criteria: tuple[versions.Criterion, ...]) -> GradeTable:
    return grades_csv.parse_grades(text.encode(), {one.id: one.title for one in criteria})


def _import_form_page(assignment: Assignment, problem: str = "", reason: str = "", table: str = "") -> str:
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


def _import_preview_page(assignment: Assignment, text: str, reason: str, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        plan = csv_import.plan_import(
            session, assignment, _read_table(text, versions.criteria_of(session, assignment.id))
        )
    return render_template(
        "gradebook/import_preview.html",
        assignment=assignment,
        plan=plan,
        table=text,
        reason=reason,
        problem=problem,
    )
