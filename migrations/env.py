"""Alembic's environment: the URL comes from the caller, never from a file."""

from alembic import context
from sqlalchemy import text

from grading.store import Store
from grading.store.learning_platforms import all_tables


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
    """One transaction a revision; one migration at a time, whoever starts it."""
    with store.engine.connect() as connection:
        connection.execute(text("set lock_timeout = 0"))
        connection.execute(text("select pg_advisory_lock(724001)"))
        connection.commit()
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
