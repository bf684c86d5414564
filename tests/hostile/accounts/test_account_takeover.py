"""The attack of `account_takeover` against a server that answers HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from grading.store import tables
from grading.store.accounts import users
from tests.hostile.accounts.account_takeover import main
from tests.integration.webapp import School

PASSWORD = "a long password of the attacker"


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    with made.store.write() as session:
        users.set_password(session, session.get_one(tables.User, made.users["stranger"]), PASSWORD)
        users.create_user(session, "prof", name="Professor")
    yield made
    made.close()


@pytest.fixture
def address(school: School) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, school.app)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def course_of_the_stranger(school: School) -> int:
    with school.store.read() as session:
        return session.get_one(tables.Assignment, school.elsewhere).course_id


def attacked(school: School, address: str, victim: str) -> int:
    course = str(course_of_the_stranger(school))
    return main([address, "--instructor", "stranger", "--course", course, "--victim", victim])


@pytest.mark.parametrize("victim", ["anna", "prof"])
def test_no_link_is_given_for_an_account_of_others(
    school: School, address: str, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTACK_PASSWORD", PASSWORD)
    assert attacked(school, address, victim) == 0
    with school.store.read() as session:
        assert session.query(tables.ResetLink).count() == 0


def test_the_attack_finds_an_account_that_it_may_take(
    school: School, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack that cannot succeed shows nothing: a new student of the instructor's own gets a link."""
    monkeypatch.setenv("ATTACK_PASSWORD", PASSWORD)
    assert attacked(school, address, "somebody-new") == 1


def test_the_attack_says_when_it_could_not_begin(
    school: School, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTACK_PASSWORD", "wrong")
    assert attacked(school, address, "anna") == 2
