"""What pages show of each kind of learning platform, found by the names of grading.domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from flask import Blueprint
from sqlalchemy.orm import Session

from app.web.menus import NavigationEntry
from grading.domain.learning_platforms import platform_modules


@dataclass(frozen=True)
class PlatformLink:
    """An assignment of ours that is linked in a platform."""

    id: int
    assignment_id: int
    title: str
    sent: int
    """Scores that the platform took."""
    failed: int
    compared_at: datetime | None
    problem: str


class CourseSection(Protocol):
    """Its part of the page that a course has on learning platforms."""

    @property
    def template(self) -> str:
        """Shows what `read` returned, as `seen`."""

    def read(self, store: Session, course_id: int) -> Any:
        """Everything that is shown; its `linked` says whether the course is part of such a platform."""

    def links(self, store: Session, course_id: int) -> Sequence[PlatformLink]:
        """The links of a course."""

    def send_again(self, store: Session, course_id: int, chosen: Iterable[tuple[int, int]]) -> int:
        """Send scores once more, of these links and users or all that failed or differ; how many are sent."""


@dataclass(frozen=True)
class PlatformPages:
    """One kind: `PAGES` of `app.platforms.<name>`. All texts are sources of translations."""

    blueprints: tuple[Blueprint, ...] = ()
    course_section: CourseSection | None = None
    navigation: tuple[NavigationEntry, ...] = ()
    """Its pages for administrators, in the menu of operations."""
    deliveries: Mapping[str, str] = field(default_factory=dict)
    """Titles of what waits in the outbox, by kind of row."""
    audit_sentences: Mapping[str, str] = field(default_factory=dict)
    """By action, with `%(who)s` and `%(what)s`."""
    audit_actors: Mapping[str, str] = field(default_factory=dict)
    """Who acted, where nobody is signed in: by the name in the audit."""


@cache
def platform_pages() -> Mapping[str, PlatformPages]:
    """All kinds, by name, in the order of grading.domain."""
    return MappingProxyType({name: one.PAGES for name, one in platform_modules("app.platforms.{}").items()})
