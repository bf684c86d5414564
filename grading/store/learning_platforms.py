"""What the store does for each kind of learning platform, found by the names of grading.domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.orm import Session

from grading.domain.learning_platforms import platform_modules
from grading.store.tables import Base


def _keep(_session: Session, _ids: Sequence[str]) -> None:
    """A platform that refers to no submission."""


@dataclass(frozen=True)
class LearningPlatform:
    """One kind; `grading.store.integrations.<name>.platform` has it as `PLATFORM`."""

    name: str
    grade_changed: Callable[[Session, Sequence[str]], object]
    """Gets ids of submissions in the transaction that may change what counts of them; only writes rows."""
    personal: tuple[type[Any], ...] = ()
    """Tables with a `user_id`, whose rows a student's export holds and their erasure deletes."""
    transient: tuple[type[Any], ...] = ()
    """The same, but of no interest to the student: erased and not exported."""
    detach: Callable[[Session, Sequence[str]], object] = _keep
    """Gets ids of submissions that are deleted next, to end references to them."""
    titles: Mapping[str, Callable[[Session, Sequence[str]], Iterable[tuple[str, str]]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By kind of object in the audit: from ids to pairs of id and title."""


@cache
def known_platforms() -> tuple[LearningPlatform, ...]:
    """All kinds, which makes their tables known, too."""
    modules = platform_modules("grading.store.integrations.{}.platform")
    return tuple(module.PLATFORM for module in modules.values())


def all_tables() -> MetaData:
    """The whole schema: tables of the core and of all learning platforms."""
    known_platforms()
    return Base.metadata


def grade_changed(session: Session, submission_ids: Iterable[str]) -> None:
    """Tell every platform, in the caller's transaction, that what counts of submissions may differ now."""
    ids = sorted(submission_ids)
    for platform in known_platforms():
        platform.grade_changed(session, ids)
