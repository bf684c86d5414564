"""Scenarios of real processes. They mostly wait until something is found dead, so some run side by side.

They begin with `test_begin.py`, go on while other tests run, and are looked at in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness.scenes import Scenes, playing
from tests.support.ordering import SCENARIO


@pytest.fixture(scope="session")
def played(request: pytest.FixtureRequest, shared_folder: Path) -> Iterator[Scenes]:
    """The scenario of every module here that is tested now, begun when the first is asked for.

    A module's `play` plays it in a folder, on a database of its own, and returns what came of it.
    """
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    modules = dict.fromkeys(item.module.__name__ for item in items if SCENARIO in item.fixturenames)
    folder = shared_folder / "scenes"
    folder.mkdir(exist_ok=True)
    with playing(folder, sorted(modules, key=_turn)) as made:
        yield made


def _turn(module: str) -> int:
    return LONGEST.index(module) if module in LONGEST else len(LONGEST)


LONGEST = (
    "tests.faults.machine.test_machines",
    "tests.faults.broker.test_transport",
    "tests.faults.machine.test_poison",
)
"""They begin first."""


@pytest.fixture
def outcome(request: pytest.FixtureRequest, played: Scenes) -> Any:
    """What came of this module's scenario."""
    return played.outcome(request.module.__name__)
