"""The arithmetic of strategies: formulas against what can be counted by hand, and against published facts."""

from __future__ import annotations

import pytest

from bench.cluster.cards import GB10, GEMMA, M3_ULTRA, M4_MAX, QWEN, Card, Model
from bench.strategies import expected
from bench.strategies.arithmetic import STRATEGIES, Costs, arrivals, even, on_cards
from bench.strategies.expected import GPT_OSS, LINK_BYTES_S

COSTS = Costs((1.0, 1.0), (0.5, 0.5), read_b=6.0, write_a=8.0, write_b=4.0, rest=0.1, together=1.5)


@pytest.mark.parametrize(
    ("passes", "sends", "came"),
    [
        ((1, 1, 1), (0.1, 0.1, 0.1), [1.1, 2.1, 3.1]),  # the link waits for reading
        ((1, 1, 1), (2, 2, 2), [3, 5, 7]),  # reading is long done
        ((1, 3), (2, 2), [3, 6]),
        ((1, 0.5), (2, 2), [3, 5]),
    ],
)
def test_a_piece_goes_when_it_is_read_and_the_link_is_free(
    passes: tuple[float, ...], sends: tuple[float, ...], came: list[float]
) -> None:
    assert arrivals(passes, sends) == pytest.approx(came)


@pytest.mark.parametrize(
    ("strategy", "seconds"),
    [
        ("sequential", 2 * (2 + 8)),
        ("direct", 2 + 8),  # b needs 6 + 4, the same
        ("batched", 6 + 6 + 4 * 1.5),
        ("regenerate", 2 * (2 + 6 + 4)),
        ("serial", 2 * (2 + 1 + 0.1 + 4)),
        ("overlapped", 2 * (2.5 + 0.1 + 4)),
        # the second is there at 4.6; the first was at 2.6 and has 2 s left, which take 3 beside the second
        ("pipelined", 4.6 + 2 * 1.5 + 2),
    ],
)
def test_a_strategy_takes_what_can_be_counted_by_hand(strategy: str, seconds: float) -> None:
    assert STRATEGIES[strategy](COSTS, COSTS) == pytest.approx(seconds)


def test_overlapping_never_loses_and_wins_at_most_half() -> None:
    for sending in (0.01, 0.3, 1, 3, 100):
        costs = Costs(even(10, 20), even(10 * sending, 20), 0, 0, 0)
        assert 1 <= costs.serial / costs.overlapped < 2
    assert Costs(even(10, 1), even(10, 1), 0, 0, 0).overlapped == 20  # one pass: nothing to overlap


@pytest.mark.parametrize(
    ("card", "model", "output", "an_hour"),
    [(GB10, QWEN, 1200, 331), (M3_ULTRA, GEMMA, 800, 57), (M4_MAX, GEMMA, 800, 38), (GB10, GEMMA, 800, 22)],
)
def test_ideal_machines_do_what_the_facts_say(card: Card, model: Model, output: int, an_hour: float) -> None:
    costs = on_cards(card.ideal(), card.ideal(), model, 5000, output, LINK_BYTES_S)
    assert 3600 / (costs.read_a + costs.write_a) == pytest.approx(an_hour, rel=0.03)
    assert costs.read_b == pytest.approx(costs.read_a)


@pytest.mark.parametrize(("model", "seconds"), [(QWEN, 0.42), (GEMMA, 0.72), (GPT_OSS, 0.16)])
def test_a_cache_of_5000_tokens_takes_what_the_facts_say(model: Model, seconds: float) -> None:
    costs = on_cards(GB10, M3_ULTRA, model, 5000, 100, LINK_BYTES_S)
    assert sum(costs.sends) == pytest.approx(seconds, rel=0.03)


def test_reading_elsewhere_is_worth_what_the_documentation_says() -> None:
    costs = on_cards(GB10, M3_ULTRA, GEMMA, 5000, 200, LINK_BYTES_S)
    direct, hybrid = costs.read_b + costs.write_b, costs.overlapped + costs.write_b
    assert (direct, hybrid) == pytest.approx((33.7, 23.1), rel=0.02)


def test_the_least_of_a_row_is_marked_and_each_strategy_is_said() -> None:
    for row in expected.lengths():
        seconds = [float(cell.strip("*")) for cell in row[2:]]
        assert len(seconds) == len(STRATEGIES)
        assert row[2 + seconds.index(min(seconds))].startswith("**")
    assert [name for name, *_ in expected.notes()] == list(STRATEGIES)
