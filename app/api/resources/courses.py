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
    """Filters of the list."""

    archived: Yes | None = Field(default=None, description="only courses that have ended, or only the others")


class CourseItem(BaseModel):
    """A course in a list."""

    id: int = Field(description="the ID", examples=[3])
    slug: str = Field(description="the short name in the `path` of assignments", examples=["ba-2026"])
    title: str = Field(description="the title on pages", examples=["Business Analytics"])
    archived: bool = Field(description="whether the course has ended; nobody can submit", examples=[False])
    role: str | None = Field(description="your role in the course", examples=["instructor"])
    assignments: int = Field(description="the number of assignments", examples=[4])


class Course(BaseModel):
    """A course with its settings."""

    id: int = Field(description="the ID", examples=[3])
    slug: str = Field(description="the short name in the `path` of assignments", examples=["ba-2026"])
    title: str = Field(description="the title on pages", examples=["Business Analytics"])
    archived: bool = Field(description="whether the course has ended; nobody can submit", examples=[False])
    drop_lowest: int = Field(description="how many lowest grades of each student are dropped", examples=[1])
    role: str | None = Field(description="your role in the course", examples=["instructor"])


class NewCourse(RequestModel):
    """A new course."""

    slug: Slug = Field(description="the short name in the `path` of assignments", examples=["ba-2026"])
    title: Line = Field(description="the title on pages", examples=["Business Analytics"])
    instructor: Line | None = Field(
        default=None, description="the sign-in name of the first instructor", examples=["teacher"]
    )


class CourseMade(BaseModel):
    """The new course."""

    id: int = Field(description="the ID", examples=[3])
    url: str = Field(description="the URL of the new object", examples=["/api/v1/courses/3"])


class CourseChange(ChangeModel):
    """Settings to change; omitted fields do not change."""

    title: Line = Field(default="", description="the title on pages")
    archived: bool = Field(default=False, description="whether the course has ended; nobody can submit")
    drop_lowest: Annotated[int, Field(ge=0, le=course_store.MAX_DROPPED), BeforeValidator(whole)] = Field(
        default=0, description="how many lowest grades of each student are dropped", examples=[1]
    )


@get("/courses", anybody("read"))
def courses(call: Call, query: CourseFilter) -> Page[CourseItem]:
    """List your courses; administrators see all courses."""
    ids = None if call.actor.administrator else frozenset(call.actor.roles)
    found = api_lists.list_courses(call.session, ids, query.archived, number(query) or 0, query.limit + 1)
    listed, address = cut(call, query, found, lambda one: (one.id,))
    roles = call.actor.roles
    items = [CourseItem.model_validate({**vars(one), "role": roles.get(one.id)}) for one in listed]
    return Page(items=items, next=address)


@post("/courses", allowed("course.create"), status=201)
def create_course(call: Call, body: NewCourse) -> CourseMade:
    """Create a course (administrators only)."""
    made = course_store.create_course(call.session, body.slug, body.title, body.instructor or "", call.actor)
    url = call.headers["Location"] = url_for("api.course", course_id=made)
    return CourseMade(id=made, url=url)


@get("/courses/<int:course_id>", of_course("course.see"))
def course(call: Call, about: tables.Course) -> Course:
    """Get a course with its settings. Send its ETag to change them."""
    found = _course(call, about)
    call.etag = etags.tag_of(found)
    return found


@patch("/courses/<int:course_id>", of_course("course.change"), matches=True)
def change_course(call: Call, about: tables.Course, body: CourseChange) -> Course:
    """Change a course: its title, whether it has ended, and how many lowest grades are dropped."""
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
