"""The sandbox that runs nothing, and what is said about those that cannot."""

from __future__ import annotations

import signal

import pytest

from grading.config.settings import Limits
from grading.domain.errors import SandboxUnavailable
from grading.execution.values import FILES
from tests.support.german import in_german
from workers.sandbox.backends import bubblewrap, open_backend
from workers.sandbox.backends.base import SandboxSpec
from workers.sandbox.backends.json_lines import ending
from workers.sandbox.backends.selection import NoBackend
from workers.sandbox.backends.watchdog import FILES as MOST_FILES


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
    ("code", "end", "sentence"),
    [
        (0, "left", "It ended itself before its time."),
        (3, "left", "It ended itself with exit code 3."),
        (128 + signal.SIGSEGV, "left", "It was ended by a signal of its own making (SIGSEGV)."),
        (128 + signal.SIGXCPU, "too long", "It ran longer than the 120 s that it may take in all."),
        (128 + signal.SIGXFSZ, "output", "It wrote a file larger than the 256 MiB that it may."),
        (255, "left", "It ended itself with exit code 255."),
    ],
)
def test_what_exit_codes_mean(code: int, end: str, sentence: str):
    how = ending(code, told_to_end=False, limits=Limits())
    assert (how.end, how.reason) == (end, sentence)
    assert in_german(how.clause)


def test_a_program_without_an_exit_code_was_not_started():
    how = ending(None, told_to_end=False, limits=Limits())
    assert (how.end, how.reason) == ("not run", "The sandbox could not start the program.")


def test_the_number_of_files_is_the_limit():
    assert f"{MOST_FILES:,} files" in FILES().message
    assert f"{MOST_FILES:,} Dateien".replace(",", ".") in in_german(FILES())


def test_an_end_that_was_asked_for_is_none_to_explain():
    assert ending(0, told_to_end=True, limits=Limits()).reason == ""
