"""What the demo makes before it hands anything in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.demo import furnish
from grading.store import Store, accounts, migrate
from tests.services import SqliteDatabases


@pytest.fixture
def store(sqlite_databases: SqliteDatabases) -> Iterator[Store]:
    made = Store(sqlite_databases.fresh(migrate.upgrade))
    yield made
    made.close()
    sqlite_databases.drop(made.url)


def test_whoever_starts_it_again_can_sign_in(store: Store) -> None:
    with store.write() as session:
        accounts.ensure_administrator(session)
    furnish(store.url)
    people = furnish(store.url)  # nobody noted what the first start said
    assert list(people.passwords) == ["instructor", "student", "admin"]
    for name, password in people.passwords.items():
        assert accounts.check_password(store, name, password) is not None, name
