"""Registry of learning platforms in the store, found by the names in grading.domain."""

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
    """The default of `detach`: the platform refers to no submission."""


@dataclass(frozen=True)
class LearningPlatform:
    """A kind of learning platform: `PLATFORM` of `grading.store.integrations.<name>.platform`."""

    name: str
    grade_changed: Callable[[Session, Sequence[str]], object]
    """Called with ids of submissions in the transaction that may change which count; only adds rows."""
    personal: tuple[type[Any], ...] = ()
    """Tables with a `user_id`, whose rows a student's export contains and their erasure deletes."""
    transient: tuple[type[Any], ...] = ()
    """Tables with a `user_id` that erasure deletes and exports leave out."""
    detach: Callable[[Session, Sequence[str]], object] = _keep
    """Called with ids of submissions before they are deleted, to remove references to them."""
    titles: Mapping[str, Callable[[Session, Sequence[str]], Iterable[tuple[str, str]]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Kind of object in the audit -> function from ids to pairs of id and title."""


@cache
def known_platforms() -> tuple[LearningPlatform, ...]:
    """All registered platforms; importing them also registers their tables."""
    modules = platform_modules("grading.store.integrations.{}.platform")
    return tuple(module.PLATFORM for module in modules.values())


def all_tables() -> MetaData:
    """The whole schema: tables of the core and of all learning platforms."""
    known_platforms()
    return Base.metadata


def grade_changed(session: Session, submission_ids: Iterable[str]) -> None:
    """Notify every platform, in the caller's transaction, that the grades of submissions may have changed."""
    ids = sorted(submission_ids)
    for platform in known_platforms():
        platform.grade_changed(session, ids)
