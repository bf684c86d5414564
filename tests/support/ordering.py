"""The order of the tests, and how several processes share them.

Files are dealt out whole (`--dist loadfile`), in this order: what takes long comes first, so that no long
file is left alone in the end.
"""

from __future__ import annotations

import os

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

SCENARIO = "outcome"
"""The fixture that waits for a scenario; see tests/faults/conftest.py."""
WAITING_S = 900
"""Longest that one may wait for all scenarios together, where nothing else is tested meanwhile."""
MORE, MOST = 1, 4
"""Processes of `-n auto` beyond the cores, as tests also wait; at most, as each has services of its own."""


def put_in_order(items: list[pytest.Item]) -> None:
    """What takes long, all others, and what waits for a scenario."""
    items.sort(key=_place)
    for item in items:
        if _waits_for_scenarios(item):
            item.add_marker(pytest.mark.timeout(WAITING_S))


def processes() -> int:
    """How many test at once."""
    return min((os.cpu_count() or 1) + MORE, MOST)


def _waits_for_scenarios(item: pytest.Item) -> bool:
    return SCENARIO in getattr(item, "fixturenames", ())


def _place(item: pytest.Item) -> tuple[int, int]:
    if _waits_for_scenarios(item):
        return 1, 0
    ranks = [rank for rank, start in enumerate(FIRST) if item.nodeid.startswith(start)]
    return 0, ranks[0] if ranks else len(FIRST)
