"""What an error of the database means to whoever meets it: its disk is full, or it is away for a while."""

from __future__ import annotations

import shutil
import sqlite3

from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, TimeoutError

from grading.store.database import Store

POSTGRES_FULL = "53100"
LEAST_FREE = 1024 * 1024
"""Bytes; below, a file that SQLite cannot write or make is a matter of room."""
_PRIMARY = 0xFF


def disk_full(error: BaseException, store: Store) -> bool:
    """Whether the database had no room; what it was asked to write is rolled back."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is None:
        return getattr(error.orig, "sqlstate", None) == POSTGRES_FULL
    if code == sqlite3.SQLITE_FULL:
        return True
    # without room for its -wal or -shm file, SQLite only knows that it could not write or open it
    return code & _PRIMARY in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _no_room(store)


def _no_room(store: Store) -> bool:
    path = make_url(store.url).database
    try:
        return path is not None and shutil.disk_usage(path).free < LEAST_FREE
    except OSError:
        return False


def away(error: BaseException) -> bool:
    """Whether the database is restarting, locked or out of connections: the same may work in a while."""
    if isinstance(error, DBAPIError):
        return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return isinstance(error, TimeoutError)
