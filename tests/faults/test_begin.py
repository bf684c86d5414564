"""The scenarios of this folder begin here, and go on while other tests run."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


def test_scenarios_begin(played: dict[str, Future[Any]]) -> None:
    assert all(not future.cancelled() for future in played.values())
