"""Exports, streamed: tables of grades, all files of an assignment."""

from __future__ import annotations

from typing import Literal

from flask import Response
from pydantic import Field

from app.api.fields import RequestModel, Yes
from app.api.guards import of_assignment, of_course
from app.api.routes import Call, get
from app.gradebook import views as sent
from grading.store import tables

CSV = "text/csv"


class TableFilter(RequestModel):
    """Format of the table."""

    separator: Literal["comma", "semicolon", "tab"] = Field(
        default="comma", description="the column separator"
    )
    bom: Yes = Field(
        default=False, description="a byte order mark, which spreadsheets need to recognize UTF-8"
    )


class AssignmentTableFilter(TableFilter):
    """Format of the table of an assignment."""

    criteria: Yes = Field(default=False, description="a column for each criterion, to edit and import")


@get("/courses/<int:course_id>/grades.csv", of_course("grades.export"), file=CSV)
def course_table(call: Call, about: tables.Course, query: TableFilter) -> Response:
    """Export the grades of a course, one column per assignment. Cells cannot run as formulas."""
    how = sent.How(query.separator, bom=query.bom)
    return sent.table(call.actor, about.id, None, how)


@get("/assignments/<int:assignment_id>/grades.csv", of_assignment("grades.export"), file=CSV)
def assignment_table(call: Call, about: tables.Assignment, query: AssignmentTableFilter) -> Response:
    """Export the grades of an assignment. Cells cannot run as formulas."""
    how = sent.How(query.separator, bom=query.bom, criteria=query.criteria)
    return sent.table(call.actor, about.course_id, about, how)


@get(
    "/assignments/<int:assignment_id>/everything.zip",
    of_assignment("grades.export"),
    file="application/zip",
)
def everything(call: Call, about: tables.Assignment) -> Response:
    """Export all submissions with their reports and grades."""
    return sent.all_of(call.actor, about)
