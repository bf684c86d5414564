"""Assignments: list, show, make, change their dates and rules."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from flask import url_for
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from app.api import etags
from app.api.fields import ChangeModel, Line, Moment, RequestModel, Whole, whole
from app.api.guards import anybody, of_assignment, of_course
from app.api.paging import Page, Paged, cut, number
from app.api.resources.courses import Slug
from app.api.routes import Call, get, patch, post
from app.assignments.editor import forms
from app.web import dates, parsing
from app.web.services import services
from grading.assignments.editor.folder import Content, Settings
from grading.assignments.editor.rubric_from_solution import template
from grading.assignments.loader import Counts, Release
from grading.domain.lateness import LateRule
from grading.store import tables
from grading.store.assignments import settings as assignment_settings
from grading.store.assignments import versions
from grading.store.grades import extensions
from grading.store.views import api_lists


def _late(value: Any) -> Any:
    """A late rule of JSON, in which 3.0 is the number 3."""
    if not isinstance(value, dict):
        return value
    try:
        fields = {name: whole(one) if not isinstance(one, str) else one for name, one in value.items()}
        return LateRule.model_validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise ValueError(parsing.invalid_field(error).message.rstrip(".")) from None


Late = Annotated[
    LateRule,
    Field(description="the late policy; default: no late penalty"),
    BeforeValidator(_late),
]


class AssignmentFilter(Paged):
    """Filters of the list."""

    course: Whole | None = Field(default=None, description="the ID of the course", examples=[3])


class Assignment(BaseModel):
    """An assignment with its settings, which apply to all versions of its rubric."""

    id: int = Field(description="the ID", examples=[12])
    course_id: int = Field(description="the ID of its course", examples=[3])
    path: str = Field(
        description="`course/assignment`, as in the form field of a submission", examples=["ba-2026/basket"]
    )
    title: str = Field(description="the title on pages", examples=["Basket analysis"])
    slug: str = Field(description="the short name in URLs and in `path`", examples=["basket"])
    language: str = Field(description="the language of the work; empty: any", examples=["python"])
    due: datetime | None = Field(description="the due date, for students without an extension")
    release: str = Field(
        description="`at_once` (immediately), `after_review` or `at` (on a date)", examples=["after_review"]
    )
    release_at: datetime | None = Field(description="the release date, if `release` is `at`")
    late: LateRule = Field(description="the late policy")
    max_submissions: int | None = Field(
        description="submissions of each student; `null`: unlimited", examples=[3]
    )
    group_size: int = Field(description="the maximum number of students in a group", examples=[1])
    counts: str = Field(
        description="which submission of a student counts: `latest` or `best`", examples=["latest"]
    )
    visible: bool = Field(description="whether students can see the assignment")
    code_editor: bool = Field(
        description="whether students can write and check their code in the browser", examples=[False]
    )


Language = Annotated[
    str, Field(max_length=32, pattern=r"^[a-z]*$", description="the language of the work; empty: any")
]
Due = Annotated[Moment | None, Field(description="the due date, for students without an extension")]
ReleaseAt = Annotated[Moment | None, Field(description="the release date, if `release` is `at`")]
SubmissionCount = Annotated[
    Annotated[int, Field(ge=1, le=1000), BeforeValidator(whole)] | None,
    Field(description="how many submissions each student has; `null`: unlimited"),
]
GroupSize = Annotated[
    int, Field(ge=1, le=100, description="the maximum number of students in a group"), BeforeValidator(whole)
]
Counted = Annotated[Counts, Field(description="which submission of a student counts")]
Visible = Annotated[bool, Field(description="whether students can see the assignment")]
CodeEditor = Annotated[
    bool, Field(description="whether students can write and check their code in the browser")
]


class NewAssignment(RequestModel):
    """A new assignment, with a draft of its rubric."""

    title: Line = Field(description="the title on pages", examples=["Basket analysis"])
    slug: Slug = Field(description="the short name in URLs, unique in the course", examples=["basket"])
    task: Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")] = Field(
        default="",
        description="what students read, as Markdown",
        examples=["Find out what is bought together."],
    )
    language: Language = Field(default="", examples=["python"])
    due: Due = Field(default=None, examples=["2026-12-01T22:59:00Z"])
    release: Release | None = Field(default=None, description="default: as configured on the server")
    release_at: ReleaseAt = None
    late: Late = LateRule()
    max_submissions: SubmissionCount = None
    group_size: GroupSize = 1
    counts: Counted = "latest"
    visible: Visible = True
    code_editor: CodeEditor = False


class AssignmentChange(ChangeModel):
    """Settings to change; omitted fields do not change. `null` removes a date or a limit."""

    title: Line = Field(default="", description="the title on pages")
    slug: Slug = Field(default="", description="the short name in URLs, unique in the course")
    language: Language = ""
    due: Due = Field(default=None, examples=["2026-12-08T22:59:00Z"])
    release: Release = Field(
        default="after_review",
        description="when grades are released: immediately, after review, or on a date",
    )
    release_at: ReleaseAt = None
    late: Late = LateRule()
    max_submissions: SubmissionCount = None
    group_size: GroupSize = 1
    counts: Counted = "latest"
    visible: Visible = True
    code_editor: CodeEditor = False


class AssignmentMade(BaseModel):
    """The new assignment, with version 1 of its rubric as a draft."""

    id: int = Field(description="the ID", examples=[12])
    url: str = Field(description="the URL of the new object", examples=["/api/v1/assignments/12"])


@get("/assignments", anybody("read"))
def assignments(call: Call, query: AssignmentFilter) -> Page[Assignment]:
    """List the assignments of your courses; only staff see hidden ones."""
    actor = call.actor
    course_ids = None if actor.administrator else frozenset(actor.roles)
    if query.course is not None:
        course_ids = frozenset([query.course]) if course_ids is None else course_ids & {query.course}
    staff_of = None if actor.administrator else actor.staff_courses
    found = api_lists.list_assignments(
        call.session, course_ids, staff_of, number(query) or 0, query.limit + 1
    )
    items, address = cut(call, query, found, lambda one: (one.id,))
    return Page(items=[_assignment(one) for one in items], next=address)


@post("/courses/<int:course_id>/assignments", of_course("assignment.change"), status=201)
def create_assignment(call: Call, about: tables.Course, body: NewAssignment) -> AssignmentMade:
    """Create an assignment; its rubric is a draft until you publish a version."""
    fields = _settings_fields(body)
    fields.setdefault("release", services().config.server.release)
    settings = _checked(fields)
    first = Content(rubric=template((), feedback="feedback" in forms.stages()), task=body.task)
    made = versions.create_assignment(call.session, about.id, settings, first, call.actor)
    url = call.headers["Location"] = url_for("api.assignment", assignment_id=made.id)
    return AssignmentMade(id=made.id, url=url)


@get("/assignments/<int:assignment_id>", of_assignment("assignment.see"))
def assignment(call: Call, about: tables.Assignment) -> Assignment:
    """Get an assignment with its dates and policies. Send its ETag to change them."""
    found = _assignment(about)
    call.etag = etags.tag_of(found)
    return found


@patch("/assignments/<int:assignment_id>", of_assignment("assignment.change"), matches=True)
def change_assignment(call: Call, about: tables.Assignment, body: AssignmentChange) -> Assignment:
    """Change dates and policies. Late penalties of existing grades are recalculated."""
    assignment_settings.lock_assignment(call.session, about)
    etags.require_seen(etags.tag_of(_assignment(about)))
    current = assignment_settings.settings_of(about)
    before = {name: getattr(current, name) for name in type(current).model_fields}
    extensions.apply_settings(call.session, about, _checked({**before, **_settings_fields(body)}), call.actor)
    found = _assignment(about)
    call.etag = etags.tag_of(found)
    return found


def _settings_fields(body: NewAssignment | AssignmentChange) -> dict[str, Any]:
    """What was said of the settings; a release that is not at a date has none."""
    fields = {name: getattr(body, name) for name in body.model_fields_set if name != "task"}
    if fields.get("release", "") is None:
        del fields["release"]
    for name in ("due", "release_at"):
        if fields.get(name) is not None:
            dates.near(fields[name])
    return fields


def _checked(fields: dict[str, Any]) -> Settings:
    if fields.get("release") != "at":
        fields["release_at"] = None
    return forms.checked(fields)


def _assignment(one: tables.Assignment) -> Assignment:
    settings = assignment_settings.settings_of(one)
    fields = {name: getattr(settings, name) for name in type(settings).model_fields}
    return Assignment(id=one.id, course_id=one.course_id, path=f"{one.course.slug}/{one.slug}", **fields)
