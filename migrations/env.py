"""Alembic's environment: the URL comes from the caller, never from a file."""

import logging
import time

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from grading.store import Store
from grading.store.learning_platforms import all_tables
from migrations.online import LOCK_TIMEOUT_S

log = logging.getLogger(__name__)
ONE_AT_A_TIME = 724001
TRIES = 120
"""Of a revision for the tables it changes."""
AGAIN_S = 1.0
LOCK_NOT_AVAILABLE = "55P03"


def run() -> None:
    """Migrate the database of the configured URL; safe to start several times at once."""
    url = context.config.get_main_option("sqlalchemy.url")
    if url is None:
        raise SystemExit("migrations are run by `grader db upgrade`")
    store = Store(url)
    try:
        if store.engine.dialect.name == "sqlite":
            _sqlite(store)
        else:
            _postgresql(store)
    finally:
        store.close()


def _sqlite(store: Store) -> None:
    """All revisions in one transaction that holds the writer's lock from its start.

    So a second upgrade, started at the same time, waits and then finds nothing to do.
    """
    with store.engine.connect().execution_options(write=True) as connection:
        raw = connection.connection.dbapi_connection
        assert raw is not None
        # tables are copied to change them, which must not touch the rows that refer to them
        raw.execute("PRAGMA foreign_keys=OFF")
        raw.execute("PRAGMA busy_timeout=600000")
        with connection.begin():
            context.configure(
                connection=connection, target_metadata=all_tables(), render_as_batch=True, compare_type=True
            )
            context.run_migrations()


def _postgresql(store: Store) -> None:
    """One transaction a revision; one migration at a time, whoever starts it.

    Whoever waits for a table keeps all others waiting who come after: so a revision waits for a moment only,
    is undone, and begins again later.
    """
    with store.engine.connect() as connection:
        _wait_for_turn(connection)
        connection.execute(text(f"set lock_timeout = '{LOCK_TIMEOUT_S}s'"))
        connection.commit()
        for left in reversed(range(TRIES)):
            try:
                _migrate(connection)
                return
            except OperationalError as error:
                connection.rollback()
                if left == 0 or getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                log.info("a table is in use; the revision waits and is tried again: %s", error.orig)
                time.sleep(AGAIN_S)


def _wait_for_turn(connection: Connection) -> None:
    """In no transaction: a concurrent index waits for all that are open."""
    asked = text("select pg_try_advisory_lock(:key)")
    while not connection.execute(asked, {"key": ONE_AT_A_TIME}).scalar_one():
        connection.commit()
        time.sleep(AGAIN_S / 4)
    connection.commit()


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=all_tables(),
        transaction_per_migration=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()


run()
