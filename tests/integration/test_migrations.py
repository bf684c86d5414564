"""Migrations: up, down and up again, and the tables they make are those of the code."""

from __future__ import annotations

import pytest
from alembic import command
from sqlalchemy import inspect

from grading.store import Store, migrate


def test_up_down_and_up_again(database_url: str) -> None:
    store = Store(database_url)
    assert migrate.current(store) is None
    migrate.upgrade(database_url)
    assert migrate.current(store) == migrate.newest()
    migrate.downgrade(database_url, "base")
    assert inspect(store.engine).get_table_names() == ["alembic_version"]
    migrate.upgrade(database_url)
    migrate.require_newest(store)
    store.close()


def test_models_match_migrations(database_url: str) -> None:
    migrate.upgrade(database_url)
    command.check(migrate._config(database_url))


def test_an_old_database_is_named_with_its_remedy(database_url: str) -> None:
    store = Store(database_url)
    with pytest.raises(migrate.StoreOutdated, match="grader db upgrade"):
        migrate.require_newest(store)
    store.close()
