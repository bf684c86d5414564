"""What a generation's way through the hybrid engine teaches the planner."""

from __future__ import annotations

import pytest

from grading.domain.jobs import Timings, Tokens
from workers.machine.engines.base import Generation
from workers.machine.engines.remote_prefill.engine import PrefillTrace


def nothing(*_given: object) -> None:
    """Nobody is asked."""


def test_what_the_planner_took_for_its_choice_is_no_cost_of_the_way() -> None:
    trip = PrefillTrace(nothing, nothing, nothing, nothing, nothing)  # type: ignore[arg-type]
    trip.before_s, trip.plan_s, trip.fetch_s = 0.5, 3.0, 3.0
    made = Generation(
        text="x",
        tokens=Tokens(prompt=401, cached=100, output=1),
        first_token_s=5.5,
        seconds=6.0,
        timings=Timings(queued_s=3.25, prompt_s=1.75),
    )
    took = trip.took(made)
    assert took.first_s == pytest.approx(2.0)
    assert (took.have, took.read, took.read_s, took.queued_s) == (100, 300, 1.75, 0.25)
    assert trip.first_s(made) == pytest.approx(5.0)  # the result says all of it
