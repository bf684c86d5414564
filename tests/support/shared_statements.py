"""Databases of all tests share their compiled statements.

SQLAlchemy caches the SQL of a statement by the dialect object of an engine. Nearly every test has a database
of its own, so an engine of its own, and would compile its statements again, which takes longer than to
execute them.
"""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

from grading.store import database

SIZE = 5000
"""Statements; an engine of its own has 500."""
_caches: dict[type, LRUCache[Any, Any]] = {}


def install(patch: pytest.MonkeyPatch) -> None:
    """Let engines that a store creates use one cache for each kind of database.

    The server and the settings of a dialect are the same in all tests: one of a kind is as good as another.
    """
    patch.setattr(database, "create_engine", _create_engine)
    patch.setattr(DefaultDialect, "__eq__", _same_kind)
    patch.setattr(DefaultDialect, "__hash__", lambda dialect: hash(type(dialect)))


def _create_engine(*arguments: Any, **options: Any) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(*arguments, **options)
    engine._compiled_cache = _caches.setdefault(type(engine.dialect), LRUCache(SIZE))
    return engine


def _same_kind(one: DefaultDialect, other: object) -> bool:
    return type(one) is type(other)
