"""Sessions that only look, for pages. What pages ask again and again is compiled once and sent by the driver.

A query of plain columns needs nothing of the ORM, and from its second time on nothing of SQLAlchemy's way
from a query to a cursor, which takes longer than the driver does for a short answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Connection, Dialect, Select
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.orm import Session

MOST_LENGTHS = 64
"""Texts of one query that are kept; there is one for each length of a list."""


class Looking(Session):
    """A session that only looks, outside of transactions."""

    def execute(self, statement: Any, params: Any = None, **options: Any) -> Any:
        """As every session does, but sooner."""
        asked = None if options or not isinstance(statement, Select) else _asked(statement)
        if asked is None or not asked.plain:
            return super().execute(statement, params, **options)
        connection = self.connection()
        found = asked.send(connection, statement, params or {})
        return connection.execute(statement, params) if found is None else found

    def scalar(self, statement: Any, params: Any = None, **options: Any) -> Any:
        """The first value of the first row."""
        return self.execute(statement, params, **options).scalar()

    def scalars(self, statement: Any, params: Any = None, **options: Any) -> Any:
        """The first value of each row."""
        return self.execute(statement, params, **options).scalars()


class Asked:
    """What is known of a query that was asked."""

    def __init__(self, query: Select[Any]) -> None:
        self.plain = _plain(query)
        self._again = False
        self._lists: tuple[str, ...] | None = None
        self._sent: dict[tuple[int, ...], Sent] = {}

    def send(self, connection: Connection, query: Select[Any], given: Mapping[str, Any]) -> Any:
        """Its rows by the driver; nothing where SQLAlchemy must do it."""
        if not self._again:  # it may be one that is made anew each time
            self._again = True
            return None
        # whoever listens hears of queries on SQLAlchemy's own way only
        if connection.dispatch.before_cursor_execute:
            return None
        if self._lists is None:
            self._lists = _lists(query, connection.dialect)
        try:
            lengths = tuple(len(given[name]) for name in self._lists)
            sent = self._sent.get(lengths)
            if sent is None:
                sent = self._prepared(connection, query, given, lengths)
            return None if sent is None else sent.rows(connection, given)
        except (KeyError, connection.dialect.loaded_dbapi.Error):
            return None  # asked on SQLAlchemy's way it says what is wrong

    def _prepared(
        self, connection: Connection, query: Select[Any], given: Mapping[str, Any], lengths: tuple[int, ...]
    ) -> Sent | None:
        if len(self._sent) >= MOST_LENGTHS:
            return None
        return self._sent.setdefault(lengths, Sent(query, connection.dialect, given))


_known: WeakKeyDictionary[Select[Any], Asked] = WeakKeyDictionary()


def _asked(query: Select[Any]) -> Asked:
    known = _known.get(query)
    if known is None:
        known = _known[query] = Asked(query)
    return known


def _plain(query: Select[Any]) -> bool:
    """Whether a query asks for columns only, and for no object of the ORM."""
    return not query._with_options and all(
        isinstance(one, ColumnElement) and "bundle" not in one._annotations for one in query._raw_columns
    )


def _lists(query: Select[Any], dialect: Dialect) -> tuple[str, ...]:
    """What is given to it as a list, each of whose values stands in its text."""
    found = query.compile(dialect=dialect)
    return tuple(sorted(one.key for one in found.bind_names if one.required and one.expanding))


class Sent:
    """A query as the driver takes it. It holds nothing of the query, or that would be kept for ever."""

    def __init__(self, query: Select[Any], dialect: Dialect, given: Mapping[str, Any]) -> None:
        compiled: Any = query.compile(dialect=dialect)
        state = compiled.construct_expanded_state(given)
        expanded = state.parameter_expansion
        asked = [one.key for one in compiled.bind_names if one.required]
        theirs = {name for one in asked for name in (one, *expanded.get(one, ()))}
        columns = compiled._result_columns
        makers = [column.type.result_processor(dialect, None) for column in columns]
        self._text = state.statement
        self._fixed = {name: one for name, one in state.parameters.items() if name not in theirs}
        self._expanded = {name: tuple(expanded[name]) for name in given if name in expanded}
        self._processors = state.processors
        self._columns = SimpleResultMetaData(
            [column.keyname for column in columns], _processors=makers if any(makers) else None
        )

    def rows(self, connection: Connection, given: Mapping[str, Any]) -> Any:
        """Its rows."""
        values = {**self._fixed, **given}
        for name, names in self._expanded.items():
            values.update(zip(names, values.pop(name), strict=True))
        for name, processor in self._processors.items():
            values[name] = processor(values[name])
        driver: Any = connection.connection.dbapi_connection
        found = driver.cursor().execute(self._text, values).fetchall()
        return IteratorResult(self._columns, iter(found))
