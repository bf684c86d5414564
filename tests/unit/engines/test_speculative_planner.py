"""When a draft model is taken, and how many tokens it proposes: from what was measured alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.machine.engines.estimators import AGAIN, LeastSquares, PrefillSpeed, WeightedMean
from workers.machine.engines.speculative.planner import (
    ModelSpeeds,
    Rate,
    StageStatistics,
    Work,
    a_round,
    checked,
    choose,
    ended,
)

WORK = Work(have=0, read=500, written=5, most=795)


def speeds(plain: float, draft: float, check: float, token: float = 0.0, read: float = 1e-5) -> ModelSpeeds:
    """Seconds of a step, of a draft token, of a check with its part for each token, and to read a token."""
    fit, reading = LeastSquares(), PrefillSpeed()
    for count in (2, 3, 5):
        fit = fit.seen(1, count, check + token * count)
        reading = reading.seen(0, 100 * count, 100 * count * read)
    return ModelSpeeds(WeightedMean(plain, 1.0), WeightedMean(draft, 1.0), fit, reading)


def habits(rate: float, output: int = 400, tries: int = 10_000) -> StageStatistics:
    return StageStatistics(Rate(rate * tries, tries), WeightedMean(output, 1.0))


LARGE = speeds(plain=0.1, draft=0.005, check=0.1, token=0.002)
"""As of a model twenty times as large as its draft model, where memory is the limit."""


def test_tokens_of_a_round() -> None:
    assert a_round(0.0, 4) == 1
    assert a_round(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert a_round(1.0, 4) == 5


@pytest.mark.parametrize(("rate", "tokens"), [(0.95, 8), (0.7, 5), (0.3, 2), (0.15, 1)])
def test_the_fewer_are_accepted_the_fewer_are_proposed(rate: float, tokens: int) -> None:
    choice = choose(LARGE, habits(rate), WORK, 8)
    assert choice.tokens == tokens
    assert choice.expected_s["speculative"] < choice.expected_s["direct"] == pytest.approx(39.5)
    assert str(choice.why).endswith(f"{tokens} proposed tokens per round, of which {rate:.0%} are accepted.")


def test_a_draft_model_that_costs_more_than_it_saves_is_left_alone() -> None:
    slow = speeds(plain=0.1, draft=0.06, check=0.1, token=0.02)
    choice = choose(slow, habits(0.7), WORK, 4)
    assert choice.tokens == 0
    assert choice.expected_s["speculative"] > choice.expected_s["direct"]
    # a batch that computes at its limit gains nothing by checking several tokens in one step
    bound = speeds(plain=0.1, draft=0.005, check=0.0, token=0.1)
    assert choose(bound, habits(0.95), WORK, 4).tokens == 0


def test_reading_a_long_prompt_for_a_short_answer_does_not_pay() -> None:
    slow = replace(LARGE, reading=PrefillSpeed().seen(0, 1000, 2.0))
    long = replace(WORK, read=5000)
    assert choose(slow, habits(0.8, output=400), long, 4).tokens
    assert not choose(slow, habits(0.8, output=30), long, 4).tokens
    assert choose(slow, habits(0.8, output=30), replace(long, have=5000, read=3), 4).tokens


def test_what_is_not_known_is_tried_where_it_can_win() -> None:
    nothing = choose(ModelSpeeds(), StageStatistics(), WORK, 4)
    assert (nothing.tokens, nothing.expected_s) == (0, {})
    assert choose(ModelSpeeds(plain=WeightedMean(0.1, 1.0)), StageStatistics(), WORK, 4).tokens == 4
    assert choose(LARGE, StageStatistics(), WORK, 4).tokens == 4
    never = choose(speeds(plain=0.1, draft=0.2, check=0.1), StageStatistics(), WORK, 4)
    assert never.tokens == 0
    assert str(never.why).startswith(
        "Even if all proposed tokens were accepted, about 16 more tokens would take"
    )


def test_one_that_nearly_wins_is_tried_again_and_one_that_does_not_is_not() -> None:
    near = speeds(plain=0.1, draft=0.03, check=0.14)
    off = habits(0.6)
    assert 1 < choose(near, off, WORK, 1).expected_s["speculative"] / 39.5 < 1.25
    assert choose(near, off, WORK, 1).tokens == 0
    for _ in range(AGAIN):
        off = ended(off, 400)
    again = choose(near, off, WORK, 1)
    assert again.tokens == 1
    assert (
        str(again.why) == f"The draft model was not used for {AGAIN} answers, so its speed is measured again."
    )
    assert ended(off, 400, token_s=0.1).since == 0
    assert choose(speeds(plain=0.1, draft=0.2, check=0.2), off, WORK, 1).tokens == 0


def test_predictions_that_were_off_ask_for_a_larger_win() -> None:
    close = speeds(plain=0.1, draft=0.01, check=0.135)
    assert choose(close, habits(0.55), WORK, 1).tokens == 1
    wrong = habits(0.55)
    for _ in range(10):
        wrong = ended(wrong, 400, token_s=0.2, predicted_s=0.1)
    assert choose(close, wrong, WORK, 1).tokens == 0


def test_only_what_was_looked_at_counts_as_refused() -> None:
    known = checked(StageStatistics(), 4, 2)
    assert (known.accepted.hits, known.accepted.tries) == (2, 3)
    known = checked(StageStatistics(), 4, 4)
    assert (known.accepted.hits, known.accepted.tries) == (4, 4)
    assert 0 < StageStatistics().accepted.value < 1


def test_old_proposals_fade() -> None:
    known = habits(0.9)
    for _ in range(2000):
        known = checked(known, 1, 0)
    assert known.accepted.value < 0.1


def test_how_long_an_answer_will_be() -> None:
    known = habits(0.5, output=400)
    assert known.left(written=100, most=700) == 300
    assert known.left(written=100, most=50) == 50
    assert known.left(written=390, most=700) == 16
    assert StageStatistics().left(written=5, most=700) == 16
    assert choose(LARGE, known, replace(WORK, most=1), 4).tokens == 0
