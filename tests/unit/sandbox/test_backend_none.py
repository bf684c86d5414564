"""The sandbox that runs nothing, and what is said about those that cannot."""

from __future__ import annotations

import signal

import pytest

from grading.config.settings import Limits
from grading.domain.errors import SandboxUnavailable
from workers.sandbox.backends import bubblewrap, open_backend
from workers.sandbox.backends.base import SandboxSpec
from workers.sandbox.backends.json_lines import ending
from workers.sandbox.backends.selection import NoBackend


def test_it_says_what_to_install():
    sandbox = NoBackend()
    assert sandbox.name == "none"
    assert "apt-get install bubblewrap" in sandbox.problem()


def test_it_opens_nothing():
    with pytest.raises(SandboxUnavailable, match="there is no sandbox"):
        NoBackend().open(SandboxSpec(("true",)))


def test_turned_off_by_the_operator():
    assert 'set to "none"' in open_backend("none").problem()


def test_a_container_without_its_settings_says_which():
    assert "sandbox.engine" in open_backend("container").problem()
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.image"):
        open_backend("container", engine="docker").open(SandboxSpec(("true",)))


def test_a_missing_engine_is_named():
    assert "'no-such-engine'" in open_backend("container", engine="no-such-engine", image="x").problem()


def test_missing_programs_by_their_package():
    assert bubblewrap.missing_programs(["bwrap", "setpriv"]).endswith(
        "apt-get install bubblewrap util-linux)."
    )


@pytest.mark.parametrize(
    ("code", "end", "word"),
    [
        (None, "not run", "could not start"),
        (0, "left", "before its time"),
        (3, "left", "exit code 3"),
        (128 + signal.SIGSEGV, "left", "SIGSEGV"),
        (128 + signal.SIGXCPU, "too long", "120 s"),
        (128 + signal.SIGXFSZ, "output", "256 MiB"),
        (255, "left", "exit code 255"),
    ],
)
def test_what_exit_codes_mean(code: int | None, end: str, word: str):
    how = ending(code, told_to_end=False, limits=Limits())
    assert how.end == end
    assert word in how.reason


def test_an_end_that_was_asked_for_is_none_to_explain():
    assert ending(0, told_to_end=True, limits=Limits()).reason == ""
