"""The order of the tests, and how several processes share them.

Files are dealt out whole (`--dist loadfile`), in this order: what takes long comes first, so that no long
file is left alone in the end. Files that mostly wait are spread among those that compute, so that the cores
have work all the time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import pytest

FIRST = (
    # goes on beside everything else
    "tests/faults/test_begin.py",
    "tests/faults/store/test_outages.py",
    # together, because they share a browser
    "tests/e2e/",
    "tests/hostile/",
)
"""Files and folders that come before all others; the longest come first."""

WAITING = tuple(
    f"tests/integration/{name}/" for name in ("broker", "deploy", "engines", "gateway", "machine", "sandbox")
)
"""Folders of tests that mostly wait, for processes and for limits of time."""
LAST_WAITING = 0.9
"""Where the last of them comes: those that compute are shorter, so that none is left alone in the end."""

SCENARIO = "outcome"
"""The fixture that waits for a scenario; see tests/faults/conftest.py."""
WAITING_S = 900
"""Longest that one may wait for all scenarios together, where nothing else is tested meanwhile."""
MORE, MOST = 2, 4
"""Processes of `-n auto` beyond the cores, as tests also wait; at most, as each has services of its own."""


def put_in_order(items: list[pytest.Item]) -> None:
    """What takes long, all others, and what waits for a scenario."""
    places = _spread(_file(item) for item in items if _first(item) is None)
    items.sort(key=lambda item: _place(item, places))
    for item in items:
        if _waits_for_scenarios(item):
            item.add_marker(pytest.mark.timeout(WAITING_S))


def processes() -> int:
    """How many test at once."""
    return min((os.cpu_count() or 1) + MORE, MOST)


def _waits_for_scenarios(item: pytest.Item) -> bool:
    return SCENARIO in getattr(item, "fixturenames", ())


def _place(item: pytest.Item, places: Mapping[str, float]) -> tuple[int, float]:
    if _waits_for_scenarios(item):
        return 2, 0
    first = _first(item)
    return (1, places[_file(item)]) if first is None else (0, first)


def _first(item: pytest.Item) -> int | None:
    return next((rank for rank, start in enumerate(FIRST) if item.nodeid.startswith(start)), None)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _spread(files: Iterable[str]) -> dict[str, float]:
    """Where each file comes: at even distances, those that wait among those that compute."""
    groups: tuple[list[str], list[str]] = ([], [])
    for file in dict.fromkeys(files):
        groups[file.startswith(WAITING)].append(file)
    ends = 1.0, LAST_WAITING
    return {
        file: end * number / len(group)
        for group, end in zip(groups, ends, strict=True)
        for number, file in enumerate(group)
    }
