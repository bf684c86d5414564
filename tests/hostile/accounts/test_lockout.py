"""The attack of `lockout` against a server that answers HTTP; addresses are those of the loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from werkzeug.serving import make_server

from grading.store import tables
from grading.store.accounts import credentials, sign_in_attempts, users
from grading.store.accounts.sign_in_attempts import Caller
from tests.hostile.accounts.lockout import NOBODY, WRONG, main
from tests.integration.webapp import School, stop_the_clock

PASSWORD = "a long password of the owner"
OWNER = ("--owner-from", "127.0.0.9")


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[School]:
    monkeypatch.setenv("ATTACK_PASSWORD", PASSWORD)
    # passwords are hashed weakly: how strongly is tested elsewhere
    monkeypatch.setattr(users, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    stop_the_clock(monkeypatch)
    made = School(tmp_path)
    with made.store.write() as session:
        users.set_password(session, session.get_one(tables.User, made.users["anna"]), PASSWORD)
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


def attacked_for_long(school: School) -> None:
    """Wrong passwords from forty addresses, each as soon as it is permitted."""
    for number in range(40):
        school.store.clock_offset_s += sign_in_attempts.OTHER_SOURCES.longest_s + 1
        for name in ("anna", NOBODY):
            assert credentials.verify_password(school.store, name, WRONG, Caller(f"10.0.0.{number}")) is None
    school.store.clock_offset_s += sign_in_attempts.OTHER_SOURCES.longest_s + 1


def test_wrong_passwords_from_one_address_keep_nobody_else_out(address: str) -> None:
    assert main([address, "--name", "anna", "--from", "127.0.0.2", *OWNER]) == 0


def test_wrong_passwords_from_many_addresses_slow_new_browsers_only(
    school: School, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attacked_for_long(school)
    many = [part for number in range(2, 9) for part in ("--from", f"127.0.0.{number}")]
    assert main([address, "--name", "anna", *many, *OWNER]) == 0
    said = capsys.readouterr().out
    assert "known browser: answered 303" in said
    assert "new browser: answered 429" in said


def test_at_the_attackers_own_address_a_new_browser_waits_two_minutes_at_most(address: str) -> None:
    assert main([address, "--name", "anna", "--from", "127.0.0.9", *OWNER]) == 0


def test_the_attack_says_when_it_could_not_begin(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTACK_PASSWORD", "wrong")
    assert main([address, "--name", "anna"]) == 2
