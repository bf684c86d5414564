"""Threads that wait for a lock of the database."""

from __future__ import annotations

import threading
import time

from sqlalchemy import text

from grading.store import Store


def waits_or_is_over(store: Store, thread: threading.Thread) -> None:
    """Until the database says that somebody waits for a lock; on SQLite there is one writer anyhow."""
    if store.engine.dialect.name == "sqlite":
        return
    waiting = text(
        "select count(*) from pg_stat_activity "
        "where wait_event_type = 'Lock' and datname = current_database()"
    )
    until = time.monotonic() + 60
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while thread.is_alive() and not connection.execute(waiting).scalar_one():
            assert time.monotonic() < until
            thread.join(0.005)
