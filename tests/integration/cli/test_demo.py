"""What the demo makes before it submits anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from cli.commands.demo import furnish
from grading.store import Store, schema
from grading.store.accounts import credentials, users
from grading.store.accounts.sign_in_attempts import Caller


def test_whoever_starts_it_again_can_sign_in(fresh_database: Callable[..., str]) -> None:
    url = fresh_database(schema.upgrade)
    with closing(Store(url)) as store:
        with store.write() as session:
            users.ensure_administrator(session)
        furnish(url)
        people = furnish(url)  # nobody noted what the first start said
        assert list(people.passwords) == ["instructor", "student", "admin"]
        for name, password in people.passwords.items():
            assert credentials.verify_password(store, name, password, Caller("127.0.0.1")) is not None, name
