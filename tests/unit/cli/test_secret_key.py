"""The secret key comes from the environment; only `grader up` and `grader demo` make one, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.dev.local_stack import System
from cli.main import grader
from cli.settings import Settings, key_fingerprint, own_secret_key, secret_key
from grading.domain.errors import ConfigError

CONFIG = """
[server.lms_connections]
moodle = ["*"]
[[machines]]
name = "one"
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""
KEY = "sixteen characters, and more"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADER_SECRET_KEY", raising=False)


@pytest.mark.parametrize("command", [["web"], ["webhook", "secret", "add", "moodle"]])
def test_a_part_of_the_server_makes_none(tmp_path: Path, command: list[str], redis_url: str) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    environ = {"GRADER_REDIS_URL": redis_url, "GRADER_DATABASE_URL": f"sqlite:///{tmp_path}/grader.db"}
    words = ["--config", str(tmp_path / "config.toml"), *command, "--var", str(tmp_path / "var")]
    said = CliRunner(env=environ).invoke(grader, words)
    assert isinstance(said.exception, ConfigError), said.exception
    assert "GRADER_SECRET_KEY is not set" in said.exception.message
    assert not (tmp_path / "var").exists()


def test_the_one_that_grader_up_keeps_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = own_secret_key(tmp_path)
    assert made[1]
    assert own_secret_key(tmp_path) == (made[0], False)
    assert secret_key(tmp_path) == made[0]
    monkeypatch.setenv("GRADER_SECRET_KEY", KEY)
    assert own_secret_key(tmp_path / "other") == (KEY, False)
    assert list((tmp_path / "other").iterdir()) == []


def test_grader_up_says_that_it_made_one(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    system = System(Settings(tmp_path / "config.toml"), folder=tmp_path)
    assert system._secret_key()
    assert f"kept in {tmp_path}/secret_key" in system.key_notice


def test_keys_are_compared_without_being_told() -> None:
    assert key_fingerprint(KEY) == key_fingerprint(KEY)
    assert key_fingerprint(KEY) != key_fingerprint(KEY + "!")
    assert len(key_fingerprint(KEY)) == 8
