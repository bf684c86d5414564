"""When a run counts as stalled, by what its machine says it does."""

from __future__ import annotations

import pytest

from grading.scheduling.stalls import CHUNK_S, LOADING_S, MARGIN_S, WAITING_S, stalled

BUDGET_S = 600.0


@pytest.mark.parametrize(
    ("phase", "idle_s", "is_stalled"),
    [
        ("waiting", WAITING_S - 1, False),
        ("waiting", WAITING_S + 1, True),
        ("queued", BUDGET_S - 1, False),  # behind others in the engine, which its budget bounds
        ("starting", LOADING_S + MARGIN_S + 1, True),
        ("loading", LOADING_S + MARGIN_S - 1, False),
        ("loading", LOADING_S + MARGIN_S + 1, True),
        ("reading", CHUNK_S + MARGIN_S + 199, False),  # 5,000 tokens at 25 a second
        ("reading", CHUNK_S + MARGIN_S + 201, True),
        ("generating", CHUNK_S + MARGIN_S - 1, False),
        ("generating", CHUNK_S + MARGIN_S + 1, True),
    ],
)
def test_each_phase_has_its_limit(phase: str, idle_s: float, is_stalled: bool) -> None:
    assert stalled(phase, 5000, idle_s, idle_s, BUDGET_S) is is_stalled


@pytest.mark.parametrize("phase", ["queued", "reading", "generating"])
def test_a_run_far_over_its_budget_is_stalled_however_it_moves(phase: str) -> None:
    over = BUDGET_S + CHUNK_S + MARGIN_S
    assert not stalled(phase, 0, 0.0, over - 1, BUDGET_S)
    assert stalled(phase, 0, 0.0, over + 1, BUDGET_S)


@pytest.mark.parametrize(
    ("others_idle_s", "idle_s", "is_stalled"),
    [
        (1.0, CHUNK_S + MARGIN_S + 1, False),  # its machine reads the prompts of others
        (1.0, LOADING_S + MARGIN_S + 1, True),
        (CHUNK_S + 1, CHUNK_S + MARGIN_S + 1, True),
    ],
)
def test_one_that_writes_may_be_held_up_by_others(
    others_idle_s: float, idle_s: float, is_stalled: bool
) -> None:
    assert stalled("generating", 5000, idle_s, idle_s, BUDGET_S, others_idle_s) is is_stalled
