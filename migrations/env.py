"""Alembic's environment: the URL comes from the caller, never from a file."""

from alembic import context
from sqlalchemy import text

from grading.store import Store
from grading.store.tables import Base


def run() -> None:
    """Migrate the database of the configured URL, one transaction a revision."""
    url = context.config.get_main_option("sqlalchemy.url")
    if url is None:
        raise SystemExit("migrations are run by `grader db upgrade`")
    store = Store(url)
    with store.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            # one migration at a time, whoever starts it
            connection.execute(text("set lock_timeout = 0"))
            connection.execute(text("select pg_advisory_lock(724001)"))
            connection.commit()
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_as_batch=connection.dialect.name == "sqlite",
            transaction_per_migration=True,
            compare_type=True,
        )
        with context.begin_transaction():
            context.run_migrations()
        connection.commit()
    store.close()


run()
