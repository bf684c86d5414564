"""Databases of all tests share their compiled statements.

SQLAlchemy caches the SQL of a statement by the dialect object of an engine. Nearly every test has a database
of its own, so an engine of its own, and would compile its statements again, which takes longer than to
execute them. Server and settings of a dialect are the same in all tests: one of a kind is as good as another.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite


class _OneOfAKind:
    """Equal to all others of its class."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class Sqlite(_OneOfAKind, SQLiteDialect_pysqlite):
    """That of all SQLite files."""

    supports_statement_cache = True


class Postgresql(_OneOfAKind, PGDialect_psycopg):
    """That of all databases on PostgreSQL."""

    supports_statement_cache = True


_statements: dict[Any, Any] = {}


def install() -> None:
    """Let engines made from now on use one dialect of a kind, and one cache."""
    registry.register("sqlite", __name__, Sqlite.__name__)
    registry.register("postgresql.psycopg", __name__, Postgresql.__name__)
    event.listen(Engine, "engine_connect", _share)


def _share(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_statements)
