"""Wrong passwords: who is slowed down, for how long, and that nobody learns which names exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import delete, event, select

from grading.store import tables
from grading.store.accounts import credentials, sign_in_attempts, users
from grading.store.accounts.sign_in_attempts import (
    FEW,
    ONE_SOURCE,
    OTHER_SOURCES,
    Caller,
    KnownBrowser,
    TriedTooOften,
)
from tests.integration.webapp import School, stop_the_clock
from tests.support.aging import everything

PASSWORD = "correct horse battery"
HERE, THERE = Caller("192.0.2.1"), Caller("198.51.100.7")


class Hasher(PasswordHasher):
    """Weak and quick; how strongly passwords are hashed is tested elsewhere."""

    computed = 0

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)

    def hash(self, *args: Any, **options: Any) -> str:
        self.computed += 1
        return super().hash(*args, **options)

    def verify(self, *args: Any, **options: Any) -> Any:
        self.computed += 1
        return super().verify(*args, **options)


@pytest.fixture(autouse=True)
def hasher(monkeypatch: pytest.MonkeyPatch) -> Hasher:
    made = Hasher()
    monkeypatch.setattr(users, "_HASHER", made)
    stop_the_clock(monkeypatch)
    return made


@pytest.fixture
def school(school_url: str) -> Iterator[School]:
    """On SQLite and on PostgreSQL; anna and ben have a password."""
    made = School(school_url)
    with made.store.write() as session:
        for name in ("anna", "ben"):
            users.set_password(session, session.get_one(tables.User, made.users[name]), PASSWORD)
    yield made
    made.close()


def tried(school: School, password: str = "wrong", caller: Caller = HERE, name: str = "anna") -> int | str:
    """Seconds to wait, or what a permitted try gave."""
    try:
        found = credentials.verify_password(school.store, name, password, caller)
    except TriedTooOften as error:
        return error.retry_after_s
    if found is None:
        return "wrong"
    assert found == school.users[name]
    return "right"


def later(school: School, seconds: float) -> None:
    school.store.clock_offset_s += seconds


def known(school: School, name: str = "anna") -> Caller:
    """A browser in which somebody signed in before."""
    with school.store.read() as session:
        user = session.get_one(tables.User, school.users[name])
        return Caller(HERE.address, KnownBrowser(user.id, users.session_stamp(user), "one"))


def guessed(school: School, count: int, address: Callable[[int], str]) -> None:
    """Wrong passwords, each as soon as it is permitted."""
    for number in range(count):
        while isinstance(wait := tried(school, caller=Caller(address(number))), int):
            later(school, wait)
        assert wait == "wrong"


# --- who waits ----------------------------------------------------------------------------------------


def test_one_address_slows_nobody_but_itself(school: School) -> None:
    guessed(school, 40, lambda _: HERE.address)
    assert tried(school, PASSWORD) == ONE_SOURCE.longest_s
    assert tried(school, PASSWORD, THERE) == "right"
    assert tried(school, PASSWORD, known(school)) == "right"
    later(school, ONE_SOURCE.longest_s)
    assert tried(school, PASSWORD) == "right"
    assert [tried(school) for _ in range(ONE_SOURCE.free)] == ["wrong"] * ONE_SOURCE.free  # it began anew


def test_waits_grow_to_two_minutes(school: School) -> None:
    waits = []
    while len(waits) < 9:
        if isinstance(wait := tried(school), int):
            waits.append(wait)
            later(school, wait)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 120, 120]


def test_many_addresses_slow_strangers_for_a_minute_and_no_known_browser(school: School) -> None:
    guessed(school, 40, lambda number: f"10.0.{number}.1")
    assert tried(school, PASSWORD, THERE) == OTHER_SOURCES.longest_s
    assert tried(school, PASSWORD, known(school)) == "right"
    assert tried(school, PASSWORD, name="ben") == "right"
    later(school, OTHER_SOURCES.longest_s)
    assert tried(school, PASSWORD, THERE) == "right"


def test_addresses_that_failed_use_up_no_turns_of_new_ones(school: School) -> None:
    few = (OTHER_SOURCES.free // FEW) - 1
    guessed(school, 20 * few, lambda number: f"10.0.{number % few}.1")
    assert tried(school, PASSWORD, THERE) == "right"


def test_a_known_browser_counts_its_own_tries_and_ends_with_the_password(school: School) -> None:
    mine = known(school)
    for _ in range(ONE_SOURCE.free + 1):
        assert tried(school, caller=mine) == "wrong"
    assert tried(school, PASSWORD, mine) == 1
    assert tried(school, PASSWORD, THERE) == "right"
    guessed(school, 40, lambda _: HERE.address)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).sessions += 1
    assert tried(school, PASSWORD, mine) == ONE_SOURCE.longest_s  # a stranger at its address again
    assert tried(school, caller=known(school), name="ben") == "wrong"
    assert (
        tried(school, PASSWORD, Caller(HERE.address, KnownBrowser(school.users["ben"], "", "x"))) != "right"
    )


def test_a_new_password_begins_anew(school: School) -> None:
    guessed(school, 40, lambda number: f"10.0.{number}.1")
    with school.store.write() as session:
        users.set_password(session, session.get_one(tables.User, school.users["anna"]), PASSWORD + "2")
    assert tried(school, PASSWORD + "2", THERE) == "right"


def test_any_number_of_addresses_give_two_guesses_a_minute(tmp_path: Path) -> None:
    """As decision 0045 reckons: after the first ones, both groups of addresses have a turn a minute."""
    school = School(tmp_path)
    guesses, minutes = 0, 10
    for tick in range(minutes * 3):
        addresses = [f"10.0.{number}.1" for number in (1, 2, 3, 4)] + [
            f"10.{tick}.{one}.2" for one in range(30)
        ]
        guesses += [tried(school, caller=Caller(one)) for one in addresses].count("wrong")
        later(school, 20)
    first = OTHER_SOURCES.free + 6  # waits of 1, 2, 4, 8, 16 and 32 seconds come before those of a minute
    assert 2 * minutes <= guesses <= 2 * (first + minutes)
    school.close()


def test_parallel_guesses_are_all_counted(school: School) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: tried(school, caller=Caller(f"10.0.{number}.1")), range(16)))
    assert found == ["wrong"] * 16
    with school.store.read() as session:
        counters = session.query(tables.SignInAttempt).filter_by(source=sign_in_attempts.NEW)
        assert [one.failures for one in counters] == [16]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"),
        ("::ffff:192.0.2.5", "192.0.2.5"),
        ("fe80::1%eth0", "fe80::2%eth1"),
    ],
)
def test_addresses_of_one_customer_are_one(first: str, second: str) -> None:
    assert sign_in_attempts.network(first) == sign_in_attempts.network(second)
    assert sign_in_attempts.network(first) != sign_in_attempts.network("2001:db8:1:3::1")
    assert sign_in_attempts.network("::ffff:192.0.2.6") != sign_in_attempts.network("::ffff:192.0.2.5")


def test_old_counters_go(school: School) -> None:
    assert tried(school) == "wrong"
    later(school, 3600)
    assert tried(school, name="nobody", caller=THERE) == "wrong"
    later(school, sign_in_attempts.RESET_AFTER.total_seconds() - 1800)
    for left in (2, 0):
        with school.store.write() as session:
            sign_in_attempts.delete_expired(session)
            assert session.query(tables.SignInAttempt).count() == left
        later(school, timedelta(hours=1).total_seconds())


# --- which names exist --------------------------------------------------------------------------------


@contextmanager
def statements(school: School) -> Iterator[list[str]]:
    """What the database is told meanwhile, without values."""
    heard: list[str] = []

    def hear(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        heard.append(statement)

    event.listen(school.store.engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(school.store.engine, "before_cursor_execute", hear)


CASES = (("anna", "wrong"), ("gone", "wrong"), ("gone", PASSWORD), ("invited", "wrong"), ("nobody", "wrong"))


def test_unknown_disabled_and_known_names_cost_the_same(school: School, hasher: Hasher) -> None:
    """The same statements, the same rows and one hash; also with the right password of a disabled account."""
    with school.store.write() as session:
        users.create_user(session, "gone", PASSWORD).disabled = True
        users.create_user(session, "invited")
    costs = [_cost(school, hasher, name, password) for name, password in CASES]
    assert costs == [costs[0]] * len(CASES)
    assert costs[0][1:] == (1, [1, 1])


def _cost(school: School, hasher: Hasher, name: str, password: str) -> tuple[list[str], int, list[int]]:
    """Statements, computed hashes, and what is counted; nothing more is written."""
    hasher.computed = 0
    before = everything(school.store)
    with statements(school) as heard:
        assert credentials.verify_password(school.store, name, password, HERE) is None
    computed, after = hasher.computed, everything(school.store)
    assert after == {**before, "sign_in_attempts": after["sign_in_attempts"]}
    with school.store.write() as session:
        failures = list(session.scalars(select(tables.SignInAttempt.failures)))
        session.execute(delete(tables.SignInAttempt))
    return heard, computed, failures


def test_unknown_names_wait_as_known_ones(school: School) -> None:
    answers = {name: [tried(school, name=name) for _ in range(12)] for name in ("anna", "nobody")}
    assert answers["anna"] == answers["nobody"]
    assert answers["anna"][-1] == 1
