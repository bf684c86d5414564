"""`grader bench scale`: what is taken away as idle, and how machines and submissions are scaled."""

from __future__ import annotations

import pytest

from bench.scale import Measured, machines_cost, needed, without


def test_what_idle_time_costs_is_taken_away() -> None:
    used = {"redis commands": 1300.0, "web cpu": 2.0, "seconds": 30.0}
    idle = {"redis commands": 100.0, "web cpu": 1.0, "seconds": 10.0}
    assert without(used, idle, 100) == {"redis commands": 10.0, "web cpu": 0.0}


def test_machines_that_read_each_other_grow_with_the_square() -> None:
    idle = {m: {"redis bytes out": 500.0 + 100.0 * m + 7.0 * m * m} for m in (2, 8, 16)}
    assert machines_cost(idle, "redis bytes out", 400) == pytest.approx(500 + 40_000 + 7 * 160_000)


def test_submissions_are_scaled_by_the_last_ten_minutes_of_a_deadline() -> None:
    one = {"web cpu": 0.03, "bytes on disk": 20_000.0, "transactions": 10.0}
    idle = {m: {"redis cpu": 0.001 * m} for m in (2, 8, 16)}
    found = needed(Measured("sqlite", 2, 100, one, {}, idle), 100)
    assert found.a_second == pytest.approx(20_000 * 0.1 / 600, rel=0.01)
    assert found.cores["web"] == pytest.approx(found.a_second * 0.03)
    assert found.cores["redis"] == pytest.approx(0.4)
    assert found.transactions == pytest.approx(10 * found.a_second)
    assert found.disk_gb == pytest.approx(0.4)
