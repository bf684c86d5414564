"""Statements over many rows: chunks of ids, deletions that return counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import CursorResult, delete
from sqlalchemy.orm import Session

from grading.store.tables import (
    Base,
)

T = TypeVar("T")
CHUNK_SIZE = 500
"""Ids in one statement; databases limit the number of bound parameters."""


def delete_rows(session: Session, table: type[Base], *where: Any) -> Counter[str]:
    """Delete rows; returns their number under the table's name."""
    result = session.execute(delete(table).where(*where).execution_options(synchronize_session=False))
    assert isinstance(result, CursorResult)
    return Counter({table.__tablename__: result.rowcount})


def chunks(ids: Sequence[T], size: int = CHUNK_SIZE) -> Iterator[Sequence[T]]:
    """Split a list into chunks of at most `size`; none is empty."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
