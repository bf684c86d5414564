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
    """How a table is written."""

    separator: Literal["comma", "semicolon", "tab"] = Field(
        default="comma", description="what stands between the cells of a row"
    )
    bom: Yes = Field(default=False, description="a mark in front, by which spreadsheets know UTF-8")


class AssignmentTableFilter(TableFilter):
    """How the table of an assignment is written."""

    criteria: Yes = Field(default=False, description="a column for each criterion, to be changed and read in")


@get("/courses/<int:course_id>/grades.csv", of_course("grades.export"), file=CSV)
def course_table(call: Call, about: tables.Course, query: TableFilter) -> Response:
    """What counts of every student, a column for each assignment; no cell is taken for a formula."""
    how = sent.How(query.separator, bom=query.bom)
    return sent.table(call.actor, about.id, None, how)


@get("/assignments/<int:assignment_id>/grades.csv", of_assignment("grades.export"), file=CSV)
def assignment_table(call: Call, about: tables.Assignment, query: AssignmentTableFilter) -> Response:
    """What counts of every student for an assignment; no cell is taken for a formula."""
    how = sent.How(query.separator, bom=query.bom, criteria=query.criteria)
    return sent.table(call.actor, about.course_id, about, how)


@get(
    "/assignments/<int:assignment_id>/everything.zip",
    of_assignment("grades.export"),
    file="application/zip",
)
def everything(call: Call, about: tables.Assignment) -> Response:
    """All submissions with their reports, and the grades."""
    return sent.all_of(call.actor, about)
