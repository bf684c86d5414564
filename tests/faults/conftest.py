"""Scenarios of real processes. They mostly wait until something is found dead, so they run side by side.

They begin with `test_begin.py`, go on while other tests run, and are looked at in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from grading.store import migrate
from tests.services import SqliteDatabases

Play = Callable[[Path, str], Any]
"""Plays a scenario in a folder, on a database of its own, and returns what came of it."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the outcome of a scenario comes last; after it what limits this process as a whole."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if getattr(getattr(item, "module", None), "LIMITS_THIS_PROCESS", False):
        return 2
    return int("outcome" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def played(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    sqlite_databases: SqliteDatabases,
) -> Iterator[dict[str, Future[Any]]]:
    """The scenario of every module here that is tested now, begun when the first is asked for."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    asking = {item.module for item in items if "outcome" in item.fixturenames}
    plays: dict[str, Play] = {module.__name__: module.play for module in asking}
    places = {
        name: (tmp_path_factory.mktemp(name.rpartition(".")[2]), sqlite_databases.fresh(migrate.upgrade))
        for name in plays
    }
    with ThreadPoolExecutor(max(1, len(plays))) as pool:
        yield {name: pool.submit(plays[name], *places[name]) for name in plays}


@pytest.fixture
def outcome(request: pytest.FixtureRequest, played: dict[str, Future[Any]]) -> Any:
    """What came of this module's scenario."""
    return played[request.module.__name__].result(timeout=300)
