"""The bait notices: without a sandbox the same programs reach it, so a silent corpus means something."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

from bench.sandbox import BareBox
from tests.hostile.sandbox.arena import Arena, Bound, arena, corpus
from tests.hostile.sandbox.bait import descendants

CORPUS = corpus()


@pytest.fixture
def outside() -> Iterator[Arena]:
    """Bait with no sandbox around the programs. Only for those that do no more than reach for it."""
    with arena(BareBox(), cell_s=10.0) as place:  # the bait may answer late on a busy computer
        yield place


@pytest.mark.parametrize("name", ["read_proc", "read_submissions"])
def test_what_comes_out_is_noticed(outside: Arena, name: str) -> None:
    assert outside.run(CORPUS[name]).reached


@pytest.mark.parametrize("name", ["net_tcp", "net_udp", "net_unix", "net_abstract"])
def test_callers_and_what_they_are_told_are_noticed(outside: Arena, name: str) -> None:
    assert outside.run(CORPUS[name]).reached
    assert any("somebody came" in line for line in outside.bait.harm())


def test_changed_files_are_noticed(outside: Arena) -> None:
    outside.run(CORPUS["link_out"])
    assert any("outside.txt: changed" in line for line in outside.bait.harm())


def test_the_end_of_the_sentinel_is_noticed(outside: Arena) -> None:
    outside.run(CORPUS["signal_outside"])
    outside.bait.sentinel.wait(60)
    assert "the sentinel does not wait any more" in outside.bait.harm()


def test_what_is_left_behind_is_noticed(outside: Arena) -> None:
    prctl = ctypes.CDLL(None).prctl
    assert prctl(36, 1, 0, 0, 0) == 0
    before = descendants()
    outside.run(CORPUS["fork_daemon"])
    left = descendants() - before
    assert left
    for pid in left:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert prctl(36, 0, 0, 0, 0) == 0


def test_a_wrong_score_is_noticed() -> None:
    assert not Bound(1).holds(0.875)
    assert not Bound(0).holds(0.125)
    assert not Bound(0.25, at_most=True).holds(0.5)
    assert Bound(0.25, at_most=True).holds(0.125)
