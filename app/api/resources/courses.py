"""Courses: list, show, make, change."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from flask import url_for
from pydantic import BaseModel, BeforeValidator, Field

from app.api import etags
from app.api.fields import ChangeModel, Line, RequestModel, Yes, whole
from app.api.guards import allowed, anybody, of_course
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, get, patch, post
from grading.store import tables
from grading.store.courses import courses as course_store
from grading.store.views import api_lists

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]


class CourseFilter(Paged):
    """Which courses a list shows."""

    archived: Yes | None = Field(default=None, description="only those that are over, or only the others")


class CourseItem(BaseModel):
    """A course in a list."""

    id: int = Field(description="its number", examples=[3])
    slug: str = Field(description="its name in the `path` of assignments", examples=["ba-2026"])
    title: str = Field(description="what people read", examples=["Business Analytics"])
    archived: bool = Field(description="whether it is over: nothing is submitted any more", examples=[False])
    role: str | None = Field(description="yours in it", examples=["instructor"])
    assignments: int = Field(description="how many there are", examples=[4])


class Course(BaseModel):
    """A course with its settings."""

    id: int = Field(description="its number", examples=[3])
    slug: str = Field(description="its name in the `path` of assignments", examples=["ba-2026"])
    title: str = Field(description="what people read", examples=["Business Analytics"])
    archived: bool = Field(description="over: nothing is submitted any more", examples=[False])
    drop_lowest: int = Field(description="so many of a student's lowest grades do not count", examples=[1])
    role: str | None = Field(description="yours in it", examples=["instructor"])


class NewCourse(RequestModel):
    """A course to be made."""

    slug: Slug = Field(description="its name in the `path` of assignments", examples=["ba-2026"])
    title: Line = Field(description="what people read", examples=["Business Analytics"])
    instructor: Line | None = Field(
        default=None, description="the sign-in name of its first instructor", examples=["teacher"]
    )


class CourseMade(BaseModel):
    """It is there."""

    id: int = Field(description="its number", examples=[3])
    url: str = Field(description="where it can be asked for", examples=["/api/v1/courses/3"])


class CourseChange(ChangeModel):
    """What is to be set; what is left out stays."""

    title: Line = Field(default="", description="what people read")
    archived: bool = Field(default=False, description="whether it is over: nothing is submitted any more")
    drop_lowest: Annotated[int, Field(ge=0, le=course_store.MAX_DROPPED), BeforeValidator(whole)] = Field(
        default=0, description="so many of a student's lowest grades do not count", examples=[1]
    )


@get("/courses", anybody("read"))
def courses(call: Call, query: CourseFilter) -> Page[CourseItem]:
    """Your courses; all for administrators."""
    ids = None if call.actor.administrator else frozenset(call.actor.roles)
    found = api_lists.list_courses(call.session, ids, query.archived, number(query) or 0, query.limit + 1)
    listed, address = cut(call, query, found, lambda one: (one.id,))
    roles = call.actor.roles
    items = [CourseItem.model_validate({**vars(one), "role": roles.get(one.id)}) for one in listed]
    return Page(items=items, next=address)


@post("/courses", allowed("course.create"), status=201)
def create_course(call: Call, body: NewCourse) -> CourseMade:
    """Make a course; for administrators."""
    made = course_store.create_course(call.session, body.slug, body.title, body.instructor or "", call.actor)
    url = call.headers["Location"] = url_for("api.course", course_id=made)
    return CourseMade(id=made, url=url)


@get("/courses/<int:course_id>", of_course("course.see"))
def course(call: Call, about: tables.Course) -> Course:
    """A course with its settings. Its ETag is for changing them."""
    found = _course(call, about)
    call.etag = etags.tag_of(found)
    return found


@patch("/courses/<int:course_id>", of_course("course.change"), matches=True)
def change_course(call: Call, about: tables.Course, body: CourseChange) -> Course:
    """Set a course's title, whether it is over, and how many of the lowest grades do not count."""
    before = course_store.lock_course(call.session, about.id)
    etags.require_seen(etags.tag_of(_course(call, before)))
    fields = body.model_dump(exclude_unset=True)
    course_store.change_settings(
        call.session, about.id, replace(course_store.settings_of(before), **fields), call.actor
    )
    found = _course(call, before)
    call.etag = etags.tag_of(found)
    return found


def _course(call: Call, one: tables.Course) -> Course:
    return Course(
        id=one.id,
        slug=one.slug,
        title=one.title,
        archived=one.archived,
        drop_lowest=one.drop_lowest,
        role=call.actor.roles.get(one.id),
    )
