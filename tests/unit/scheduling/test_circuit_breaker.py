"""The circuit breaker of an engine: when it opens, when it is probed, when it closes."""

from __future__ import annotations

import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.domain.errors import model_faults
from grading.domain.messages import verbatim
from grading.scheduling.circuit_breaker import RULES, Circuit, Rules, State, Verdict, verdict


def after(*ends: Verdict, every_s: float = 1.0) -> Circuit:
    """A circuit after runs that each began when the one before ended."""
    circuit = Circuit()
    for number, end in enumerate(ends):
        circuit = circuit.ended(end, number * every_s, (number + 1) * every_s, 0.0, verbatim("why"))
    return circuit


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (["against"] * 2, "closed"),
        (["against"] * 3, "open"),
        (["against", "against", "well", "against", "against"], "closed"),
        (["against", "against", "neither", "against"], "open"),
        (["well"] * 9 + ["away"], "open"),
        # half of ten, never three in a row
        (["against", "well"] * 4 + ["against"], "closed"),
        (["against", "well"] * 4 + ["well", "against"], "open"),
        (["neither"] * 50, "closed"),
    ],
)
def test_it_opens_after_three_in_a_row_or_half_of_ten_or_at_once(ends: list[Verdict], state: State) -> None:
    circuit = after(*ends)
    assert circuit.state == state
    assert (circuit.why == verbatim("why")) is (state == "open")


def test_failures_of_long_ago_do_not_count() -> None:
    assert after("against", "against", "against", every_s=RULES.within_s).closed


def test_the_wait_for_a_probe_doubles_up_to_a_minute() -> None:
    circuit, waits, now = after("away"), [], 1.0
    for _ in range(6):
        waits.append(circuit.due - now)
        assert circuit.probe(circuit.due - 0.001) is circuit
        now = circuit.due
        circuit = circuit.probe(now)
        assert circuit.state == "probing"
        circuit = circuit.unanswered(now, 0.0, verbatim("still"))
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert (circuit.why, circuit.since) == (verbatim("still"), 1.0)


def closed_again() -> Circuit:
    opened = after("away")
    return opened.probe(opened.due).answered(opened.due)


def test_after_a_good_probe_it_is_half_open_until_a_run_ends_well() -> None:
    circuit = closed_again()
    assert (circuit.state, circuit.why) == ("closed", verbatim(""))
    later = circuit.since + 1
    again = circuit.ended("against", circuit.since, later, 0.0)
    assert again.state == "open"
    assert again.due - later == 10.0  # and it waits longer than the first time
    well = circuit.ended("well", circuit.since, later, 0.0)
    assert well.ended("against", later, later, 0.0).closed
    assert well.ended("away", later, later, 0.0).due - later == 5.0


def test_runs_that_began_before_it_came_back_say_nothing() -> None:
    circuit = closed_again()
    for end in ("well", "against", "away"):
        assert circuit.ended(end, circuit.since - 1, circuit.since + 1, 0.0) is circuit


def test_a_run_that_ends_well_while_it_is_open_brings_the_probe_forward() -> None:
    opened = after("away")
    assert opened.ended("against", 0.0, 2.0, 0.0) is opened
    early = opened.ended("well", 0.0, 2.0, 0.0)
    assert (early.state, early.due) == ("open", 2.0)


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
def test_jitter_only_shortens(draw: float) -> None:
    assert Rules().wait_s(99, draw) == pytest.approx(60.0 - 12.0 * draw)


EXPECTED: dict[Verdict, set[str]] = {
    "away": {"engine_unreachable", "model_missing"},
    "against": {"engine_failed", "engine_stalled", "engine_broke_off", "engine_garbled", "budget_exceeded"},
    "well": {"output_truncated", "output_empty", "output_endless", "output_invalid"},
    "neither": {
        *("engine_busy", "job_invalid", "cancelled", "machine_lost", "machine_stalled", "exhausted"),
    },
}


def test_every_code_speaks_for_or_against_the_engine_or_says_nothing() -> None:
    found: dict[Verdict, set[str]] = {kind: set() for kind in EXPECTED}
    for code in model_faults():
        found[verdict(code, 0, "reading")].add(code)
    assert found == EXPECTED
    assert verdict(None, 5, "generating") == "well"
    assert verdict("some_new_code", 0, "reading") == "neither"


@pytest.mark.parametrize(("tokens", "phase"), [(1, "generating"), (0, "queued")])
def test_a_budget_that_ran_out_in_a_queue_or_among_tokens_says_nothing(tokens: int, phase: str) -> None:
    assert verdict("budget_exceeded", tokens, phase) == "neither"


# --- invariants ---------------------------------------------------------------------------------------

Step = tuple[Literal["well", "neither", "against", "away", "probe", "answered", "unanswered"], float, float]
STEPS = st.tuples(
    st.sampled_from(["well", "neither", "against", "away", "probe", "answered", "unanswered"]),
    st.sampled_from([0.0, 0.1, 1.0, 5.0, 61.0, 1000.0]),
    st.floats(0, 1),
)


def step(circuit: Circuit, kind: str, began: float, now: float, draw: float) -> Circuit:
    if kind == "probe":
        return circuit.probe(now)
    if kind == "answered":
        return circuit.answered(now)
    if kind == "unanswered":
        return circuit.unanswered(now, draw, verbatim("no answer"))
    return circuit.ended(kind, began, now, draw, verbatim("a failure"))  # type: ignore[arg-type]


ALLOWED = {
    ("closed", "open"): {"against", "away"},
    ("open", "probing"): {"probe"},
    ("probing", "closed"): {"answered"},
    ("probing", "open"): {"unanswered"},
}


@given(st.lists(STEPS, max_size=40), st.floats(0, 30))
def test_whatever_happens_it_can_come_back_and_never_takes_work_while_broken(
    steps: list[Step], age: float
) -> None:
    circuit, now, waited = Circuit(), 0.0, 0.0
    for kind, seconds, draw in steps:
        now += seconds
        before, circuit = circuit, step(circuit, kind, now - age, now, draw)
        if before.state != circuit.state:
            assert kind in ALLOWED[before.state, circuit.state]
        # it is asked again within a minute, and not at once
        assert math.isfinite(circuit.due) is (circuit.state == "open")
        if circuit.state == "open" and before.state != "open":
            waited = circuit.due - now
            assert 0.79 * RULES.first_s <= waited <= RULES.most_s
        assert bool(circuit.why.message) is (circuit.state != "closed")
        assert circuit.since <= now
        assert len(circuit.recent) <= RULES.last
        if not circuit.closed:
            assert circuit.failures > 0
    if circuit.state == "open":
        circuit = circuit.probe(now + RULES.most_s)
    if circuit.state == "probing":
        circuit = circuit.answered(now + RULES.most_s)
    assert circuit.closed
