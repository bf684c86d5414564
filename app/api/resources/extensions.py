"""Later due dates for single students of an assignment."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from app.api.fields import Moment, Reason, RequestModel, Whole
from app.api.guards import of_assignment
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, delete, get, post
from app.web import dates
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.grades import extensions as extensions_store

NO_EXTENSION = define_message("extensions_api.no_extension", "This student has no extension.")
ALL = "/assignments/<int:assignment_id>/extensions"
MOST = 1000


class Extension(BaseModel):
    """An extension of a student."""

    student_id: int = Field(description="the ID of the student's account", examples=[17])
    student: str = Field(description="the name", examples=["Ada Lovelace"])
    due: datetime = Field(description="the due date of the student")
    reason: str = Field(description="the reason, visible to staff", examples=["ill"])
    by: str = Field(description="who gave it", examples=["Grace Hopper"])
    at: datetime = Field(description="when it was given")


class ExtensionsWanted(RequestModel):
    """An extension for students; it replaces existing ones."""

    students: Annotated[list[Whole], Field(min_length=1, max_length=MOST)] = Field(
        description="the account IDs of students in the course", examples=[[17]]
    )
    due: Moment = Field(
        description="the new due date, after the due date for everyone", examples=["2026-12-08T22:59:00Z"]
    )
    reason: Reason = Field(
        default="",
        description="the reason, visible to staff; only the first 1,000 characters are stored",
        examples=["ill"],
    )


class Extended(BaseModel):
    """The number of students with the extension."""

    count: int = Field(description="the number of students", examples=[1])


@get(ALL, of_assignment("extension.see"))
def extensions(call: Call, about: tables.Assignment, query: Paged) -> Page[Extension]:
    """List extensions (instructors only)."""
    found = extensions_store.list_extensions_after(call.session, about, number(query) or 0, query.limit + 1)
    items, address = cut(call, query, found, lambda one: (one.student_id,))
    return Page(items=[_extension(one) for one in items], next=address)


@post(ALL, of_assignment("extension.give"))
def give_extensions(call: Call, about: tables.Assignment, body: ExtensionsWanted) -> Extended:
    """Add an extension for students. Late penalties of existing grades are recalculated."""
    due = dates.near(body.due)
    count = extensions_store.grant_extension(call.session, about, body.students, due, body.reason, call.actor)
    return Extended(count=count)


@delete(f"{ALL}/<int:student_id>", of_assignment("extension.give"))
def revoke_extension(call: Call, about: tables.Assignment, student_id: int) -> None:
    """Remove an extension. Late penalties of existing grades are recalculated."""
    if not extensions_store.revoke_extension(call.session, about, student_id, call.actor):
        raise NotFound(NO_EXTENSION)


def _extension(one: extensions_store.ExtensionRow) -> Extension:
    return Extension(
        student_id=one.student_id,
        student=one.student,
        due=one.due_at,
        reason=one.reason,
        by=one.by,
        at=one.at,
    )
