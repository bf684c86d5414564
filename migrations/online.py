"""Steps of revisions that never keep those who submit waiting on PostgreSQL, however many rows there are.

Each may be begun again: a step that was broken off goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

LOCK_TIMEOUT_S = 2
"""So long a revision waits for a table; those who come after it wait for as long."""
CHUNK = 5000
"""Rows that are filled in with one transaction."""


def create_index(name: str, table: str, columns: Sequence[str], *, where: str | None = None) -> None:
    """Make an index beside those who write; on SQLite within the revision's transaction."""
    condition = None if where is None else sa.text(where)
    if op.get_context().dialect.name != "postgresql":
        op.create_index(name, table, list(columns), sqlite_where=condition, if_not_exists=True)
        return
    with op.get_context().autocommit_block():
        # it waits for the transactions that are open, and keeps nobody waiting meanwhile
        op.execute("SET lock_timeout = 0")
        _drop_invalid(name)
        op.create_index(
            name, table, list(columns), postgresql_concurrently=True, postgresql_where=condition,
            if_not_exists=True,
        )  # fmt: skip
        op.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'")


def fill(table: str, key: str, values: str, where: str) -> None:
    """Set `values` in the rows `where` holds, which it must not for a row that is filled; chunk by chunk."""
    chosen = f"SELECT {key} FROM {table} WHERE {where} LIMIT {CHUNK}"  # noqa: S608 - of a revision
    statement = f"UPDATE {table} SET {values} WHERE {key} IN ({chosen})"  # noqa: S608 - of a revision
    if op.get_context().dialect.name != "postgresql":
        op.execute(f"UPDATE {table} SET {values} WHERE {where}")  # noqa: S608 - of a revision
        return
    with op.get_context().autocommit_block():
        if op.get_context().as_sql:
            op.execute(f"{statement} -- until no row is left")
            return
        while op.get_bind().execute(sa.text(statement)).rowcount:
            pass


def require(table: str, column: str, kind: sa.types.TypeEngine[object]) -> None:
    """Make a filled column NOT NULL: the rows are read while others write."""
    if op.get_context().dialect.name != "postgresql":
        with op.batch_alter_table(table) as batch:
            batch.alter_column(column, existing_type=kind, nullable=False)
        return
    name = f"{table}_{column}_filled"
    with op.get_context().autocommit_block():
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}")
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({column} IS NOT NULL) NOT VALID")
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
        # PostgreSQL sees the constraint, and does not read the rows again
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL")
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def _drop_invalid(name: str) -> None:
    """What is left of an index that could not be finished takes its name, and is of no use."""
    if op.get_context().as_sql:
        return
    invalid = "select 1 from pg_index where indexrelid = to_regclass(:name) and not indisvalid"
    if op.get_bind().execute(sa.text(invalid), {"name": name}).first():
        op.execute(f'DROP INDEX CONCURRENTLY "{name}"')
