"""Links of a course's assignments in learning platforms, with the state of their scores."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from app.api.guards import of_course
from app.api.routes import Call, get
from app.web.platform_pages import platform_pages
from grading.store import tables


class PlatformLink(BaseModel):
    """An assignment that is linked in a learning platform."""

    platform: str = Field(description="`lti`, or `canvas` for the Canvas API", examples=["lti"])
    id: int = Field(description="the ID of the link", examples=[4])
    assignment_id: int = Field(description="the ID of the assignment", examples=[12])
    title: str = Field(description="the title of the assignment", examples=["Basket analysis"])
    sent: int = Field(description="scores that the platform accepted", examples=[28])
    failed: int = Field(description="scores that failed", examples=[1])
    compared_at: datetime | None = Field(description="when the scores were last compared")
    problem: str = Field(description="why the comparison failed; empty if it did not", examples=[""])


class PlatformLinks(BaseModel):
    """All links of a course."""

    items: list[PlatformLink] = Field(description="the links")


@get("/courses/<int:course_id>/platform-links", of_course("roster.see"))
def platform_links(call: Call, about: tables.Course) -> PlatformLinks:
    """List the links of a course in learning platforms, with the delivery of scores (staff only)."""
    sections = ((name, one.course_section) for name, one in platform_pages().items())
    found = (
        PlatformLink(platform=name, **vars(link))
        for name, section in sections
        if section is not None
        for link in section.links(call.session, about.id)
    )
    return PlatformLinks(items=list(found))
