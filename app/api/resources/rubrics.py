"""Rubrics: what counts, all versions, a new one, publishing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app.api.etags import Changed
from app.api.fields import STORABLE, RequestModel
from app.api.guards import of_assignment
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, get, post, put
from app.assignments.editor import forms
from app.web.parsing import InvalidField
from grading.assignments.editor import form
from grading.domain.messages import define_message
from grading.domain.rubric import Rubric as Read
from grading.store import tables
from grading.store.assignments import versions as rubric_versions
from grading.store.assignments.versions import SavedMeanwhile
from grading.store.review import rubric_items

ASSIGNMENT = "/assignments/<int:assignment_id>"
VERSION = f"{ASSIGNMENT}/versions/<int:version_number>"


class RubricFilter(RequestModel):
    """The version."""

    which: Literal["counting", "newest"] = Field(
        default="counting", description="the version in use, or the latest, which can be a draft"
    )


class Rubric(BaseModel):
    """A version of a rubric, with the task."""

    version: int = Field(description="the version number", examples=[4])
    newest: int = Field(description="the latest version", examples=[4])
    counting: int | None = Field(description="the version in use", examples=[4])
    created_at: datetime = Field(description="when it was saved")
    published_at: datetime | None = Field(description="`null` for a draft")
    note: str = Field(description="the note of its author", examples=["Points for the plot"])
    task: str = Field(
        description="what students read, as Markdown", examples=["Find out what is bought together."]
    )
    max_points: float = Field(
        description="the points of all criteria without bonus criteria", examples=[50.0]
    )
    rubric: dict[str, Any] = Field(
        description="the rubric, as in docs/reference/assignments.md",
        examples=[{"criteria": [{"id": "load", "title": "Loads the data", "points": 4}]}],
    )


class Version(BaseModel):
    """A version in a list."""

    version: int = Field(description="the version number", examples=[4])
    created_at: datetime = Field(description="when it was saved")
    by: str = Field(description="the name of the person who saved it", examples=["Tom Tan"])
    note: str = Field(description="the note of its author", examples=["Points for the plot"])
    published_at: datetime | None = Field(description="when it was published; `null` for a draft")
    counts: bool = Field(description="whether it is in use")


class RubricItem(BaseModel):
    """A rubric item: a comment with points that graders reuse."""

    item: str = Field(description="the ID of the item", examples=["0b9e64cf8d5c4b1f9a3f6f9a0f3f1a57"])
    criterion: str = Field(description="the ID of its criterion in the rubric", examples=["load"])
    text: str = Field(description="the comment", examples=["The axes have no labels."])
    points: float = Field(description="the added points; negative: deducted", examples=[-0.5])


class RubricItems(BaseModel):
    """The rubric items of an assignment."""

    items: list[RubricItem] = Field(description="the items, the oldest first, without deleted ones")


class NewRubric(RequestModel):
    """A rubric to save as a new version. Omitted fields are as in the previous version."""

    rubric: dict[str, Any] = Field(
        description="the rubric, as in docs/reference/assignments.md",
        examples=[{"criteria": [{"id": "load", "title": "Loads the data", "points": 4}]}],
    )
    task: Annotated[str, Field(max_length=100_000, pattern=STORABLE)] | None = Field(
        default=None, description="what students read, as Markdown"
    )
    note: Annotated[str, Field(max_length=rubric_versions.MAX_NOTE, pattern=STORABLE)] = Field(
        default="", description="a note about this version", examples=["Points for the plot"]
    )
    publish: bool = Field(default=False, description="whether to publish it", examples=[True])


class VersionMade(BaseModel):
    """The saved version."""

    version: int = Field(description="the version number", examples=[5])
    published: bool = Field(description="whether this request published it")


class RubricRefused(InvalidField):
    """The rubric is not valid. The message names the field that is wrong."""

    code = "rubric_invalid"
    default_message = define_message(
        "error.rubric_refused", "The rubric is not valid. The message names the field that is wrong."
    )


@get(f"{ASSIGNMENT}/rubric", of_assignment("rubric.see"), errors=(404,))
def rubric(call: Call, about: tables.Assignment, query: RubricFilter) -> Rubric:
    """Get the rubric in use, or the latest version. Send its ETag to replace it."""
    now = rubric_versions.load_newest(call.session, about)
    row = now.version
    if query.which == "counting" and now.counting is not None:
        row = rubric_versions.version_by_number(call.session, about.id, now.counting)
    call.etag = f"{tag_of(now)}.{row.number}"
    return _rubric(row, now)


@put(f"{ASSIGNMENT}/rubric", of_assignment("assignment.change"), matches=True)
def put_rubric(call: Call, about: tables.Assignment, body: NewRubric) -> VersionMade:
    """Save a new version, as a draft or published. Existing grades do not change."""
    now = rubric_versions.load_newest(call.session, about)
    require_newest(call, now)
    content = replace(rubric_versions.load_content(call.session, now.version), rubric=_read(body.rubric))
    content = content if body.task is None else replace(content, task=body.task)
    try:
        made = rubric_versions.save_draft(
            call.session, about, content, now.version.number, call.actor, body.note
        )
    except SavedMeanwhile as error:
        raise Changed(error.message) from None
    done = body.publish and rubric_versions.publish_version(call.session, about, made.number, call.actor)
    return VersionMade(version=made.number, published=done)


@get(f"{ASSIGNMENT}/versions", of_assignment("rubric.see"))
def versions(call: Call, about: tables.Assignment, query: Paged) -> Page[Version]:
    """List all versions of the rubric, newest first."""
    found = rubric_versions.list_versions(call.session, about, number(query), query.limit + 1)
    listed, address = cut(call, query, found, lambda one: (one.number,))
    items = [Version(version=one.number, **one.model_dump(exclude={"number"})) for one in listed]
    return Page(items=items, next=address)


@get(VERSION, of_assignment("rubric.see"))
def version(call: Call, about: tables.Assignment, version_number: int) -> Rubric:
    """Get a version of the rubric; versions never change."""
    row = rubric_versions.version_by_number(call.session, about.id, version_number)
    return _rubric(row, rubric_versions.load_newest(call.session, about))


@get(f"{ASSIGNMENT}/rubric-items", of_assignment("class.see"))
def list_rubric_items(call: Call, about: tables.Assignment) -> RubricItems:
    """List the rubric items of an assignment. A change of a result applies or removes one."""
    found = rubric_items.list_items(call.session, about.id)
    fields = set(RubricItem.model_fields)
    return RubricItems(items=[RubricItem(**one.model_dump(include=fields)) for one in found])


@post(f"{VERSION}/publish", of_assignment("assignment.change"))
def publish(call: Call, about: tables.Assignment, version_number: int) -> VersionMade:
    """Publish a version; `published` is false if it was already in use."""
    done = rubric_versions.publish_version(call.session, about, version_number, call.actor)
    return VersionMade(version=version_number, published=done)


def require_newest(call: Call, now: rubric_versions.NewestVersion) -> None:
    """Go on where the caller saw the newest version. Raises MatchMissing, Changed."""
    if call.match(tag_of(now)).split(".")[0] != str(now.version.number):
        raise Changed


def tag_of(now: rubric_versions.NewestVersion) -> str:
    """The ETag of what the newest version holds, and of which one counts."""
    return f"{now.version.number}.{now.counting or 0}"


def _read(data: dict[str, Any]) -> Read:
    """Raises RubricRefused."""
    found, problems = form.validated(data, forms.stages())
    if found is None:
        first = problems[0]
        raise RubricRefused(
            f"rubric.{first.place}: {first.message}" if first.place else first.message.message
        )
    return found


def _rubric(row: tables.RubricVersion, now: rubric_versions.NewestVersion) -> Rubric:
    read = Read.model_validate(row.rubric)
    return Rubric(
        version=row.number,
        newest=now.version.number,
        counting=now.counting,
        created_at=row.created_at,
        published_at=row.published_at,
        note=row.note,
        task=row.task,
        max_points=read.max_points,
        rubric=form.as_json(read),
    )
