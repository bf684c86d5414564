"""The scenarios of this folder begin here, and go on while other tests run."""

from __future__ import annotations

from tests.faults.harness.scenes import Scenes


def test_scenarios_begin(played: Scenes) -> None:
    assert (played.folder / "player.log").read_text() == ""
