"""Grades as a table, and everything of an assignment as a zip: written while it is sent, never kept whole."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Blueprint, Response, request

from app.gradebook.views import seen
from app.web import auth
from app.web.services import services
from grading.documents import zip_names
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store import Store
from grading.store.audit import write_audit
from grading.store.courses import courses
from grading.store.tables import Assignment
from grading.store.views import csv_export
from grading.tabular import grades_csv

pages = Blueprint("exports", __name__)
PIECE = 256 * 1024
"""Bytes that are compressed before some are sent."""


@pages.get("/courses/<int(max=2147483647):course_id>/grades.csv")
def grades(course_id: int) -> Response:
    """The grades of a course, or of one of its assignments (`assignment`)."""
    actor = seen(course_id, "grades.export")
    number = request.args.get("assignment", "")
    assignment = None
    if number:
        assignment = assignment_of(actor, int(number) if number.isdecimal() and len(number) < 10 else 0)
        if assignment.course_id != course_id:
            raise NotFound("There is no such assignment.")
    separator, given = request.args.get("separator", ""), request.args
    how = How(separator, bom="bom" in given, criteria="criteria" in given)
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
    name = f"{course.slug}-{assignment.slug}" if assignment else course.slug
    content = _table(services().store, course_id, assignment, how)
    return _file(content, f"{name}-grades.csv", "text/csv; charset=utf-8")


def _table(store: Store, course_id: int, assignment: Assignment | None, how: How) -> Iterator[bytes]:
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
def everything(assignment_id: int) -> Response:
    """All hand-ins with their reports, and the grades."""
    actor = auth.actor()
    assignment = assignment_of(actor, assignment_id)
    auth.require(actor, "grades.export", Subject(assignment.course_id))
    return all_of(actor, assignment)


def all_of(actor: Actor, assignment: Assignment) -> Response:
    """All of an assignment, as a zip; the actor may have it."""
    store = services().store
    with store.write() as session:
        write_audit(session, actor.name, "assignment.export", f"assignment:{assignment.id}")
        course = courses.load_course(session, assignment.course_id)
    return _file(
        _zipped(_files(store, assignment)), f"{course.slug}-{assignment.slug}.zip", "application/zip"
    )


def assignment_of(actor: Actor, assignment_id: int) -> Assignment:
    """The assignment, as far as it exists for the reader."""
    with services().store.read() as session:
        found = session.get(Assignment, assignment_id)
    if found is None or not may(actor, "assignment.see", Subject(found.course_id)):
        raise NotFound("There is no such assignment.")
    return found


def _files(store: Store, assignment: Assignment) -> Iterator[tuple[str, bytes]]:
    yield from csv_export.export_files(store, assignment.id)
    with store.read() as session:
        header, rows = csv_export.assignment_table(session, assignment, criteria=True)
        yield "grades.csv", b"".join(grades_csv.csv_lines(header, rows, bom=True))


class _Pipe(io.RawIOBase):
    """What a zip is written to, and taken from, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Keep it until it is taken."""
        self.parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """What was written since."""
        found, self.parts = b"".join(self.parts), []
        return found


def _zipped(files: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    pipe = _Pipe()
    moment = datetime.now(UTC).timetuple()[:6]
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            about = zipfile.ZipInfo(name, moment)
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
            with archive.open(about, "w") as to:
                for start in range(0, len(content), PIECE):
                    to.write(content[start : start + PIECE])
                    yield pipe.taken()
            yield pipe.taken()
    yield pipe.taken()


def _file(content: Iterator[bytes], name: str, kind: str) -> Response:
    response = Response(content, content_type=kind)
    with suppress(AttributeError):
        response.headers.set("Content-Disposition", "attachment", filename=zip_names.part(name))
    return response
