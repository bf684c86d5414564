"""From where on a strategy pays, by figures of machines in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grading.scheduling.crossings import Compared, Speed, UsualPrompts, advise, crossing

NEW = (256, 1024, 2048, 4096)
USUAL = UsualPrompts(runs=40, known=2000, new=640, output=300)


def reads(known: int, new: int, fixed_s: float = 0.0, token_s: float = 0.003, pair_s: float = 0.0) -> float:
    """Seconds until the first token: fixed, for each token, and for each pair with an earlier one."""
    return fixed_s + token_s * new + pair_s * ((known + new) ** 2 - known**2) / 2


def prompts(
    link_s: float, faster: float, known: int = 0, pair_s: float = 0.0, batch: int = 1
) -> list[Compared]:
    """A machine beside a reader that reads so much faster, behind a link that takes so long."""
    return [
        Compared(
            known,
            new,
            batch,
            Speed(reads(known, new, pair_s=pair_s), 10.0),
            Speed(reads(known, new, link_s, 0.003 / faster, pair_s / faster), 10.0),
        )
        for new in NEW
    ]


@pytest.mark.parametrize(("link_s", "faster"), [(2.0, 4.0), (1.0, 1.5), (5.0, 3.0), (3.0, 2.0)])
def test_where_times_are_linear_the_crossing_is_theirs(link_s: float, faster: float) -> None:
    expected = link_s / (0.003 * (1 - 1 / faster))
    assert crossing(prompts(link_s, faster)) == pytest.approx(expected, abs=1)
    assert crossing(reversed(prompts(link_s, faster))) == pytest.approx(expected, abs=1)


def test_with_attention_that_grows_the_crossing_is_near() -> None:
    rows = prompts(4.0, 3.0, pair_s=4e-7)
    exact = next(n for n in range(5000) if reads(0, n, pair_s=4e-7) > reads(0, n, 4.0, 0.001, 4e-7 / 3))
    assert crossing(rows) == pytest.approx(exact, rel=0.05)


def test_always_and_never() -> None:
    assert crossing(prompts(0.0, 2.0)) == 256  # the shortest that was measured: nothing is said below
    assert crossing(prompts(100.0, 2.0)) is None
    assert crossing(prompts(1.0, 0.5)) is None
    assert crossing([]) is None


def test_one_lucky_length_is_no_crossing() -> None:
    rows = prompts(3.0, 3.0)  # pays from 1,500
    lucky = replace(rows[0], strategy=Speed(0.1, 10.0))
    assert crossing([lucky, *rows[1:]]) == crossing(rows) == 1500


def test_answers_count_where_both_ways_write_at_different_speeds() -> None:
    rows = [replace(row, strategy=replace(row.strategy, tokens_s=8.0)) for row in prompts(0.5, 2.0)]
    assert crossing(rows) == pytest.approx(333, abs=1)
    assert crossing(rows, output=100) == pytest.approx((0.5 + 100 * 0.025) / 0.0015, abs=1)


def test_usual_prompts_decide() -> None:
    rows = prompts(3.0, 3.0) + prompts(1.5, 3.0, known=2000)
    advice = advise("first_token", rows, USUAL)
    assert advice is not None
    assert (advice.on, advice.tokens, advice.longest) == (False, 750, 4096)
    assert advice.gain == pytest.approx((0.002 * 640 - 1.5) / (0.003 * 640 + 30))
    longer = advise("first_token", rows, replace(USUAL, new=3000, output=200))
    assert longer is not None
    assert (longer.on, longer.gain) == (True, pytest.approx(4.5 / 29))
    hardly = advise("first_token", rows, replace(USUAL, new=800))  # the answer is written as slowly as before
    assert hardly is not None
    assert (hardly.on, hardly.gain) == (False, pytest.approx(0.1 / 32.4))
    beyond = advise("first_token", rows, replace(USUAL, new=9000, output=0))
    assert beyond is not None
    assert beyond.gain == pytest.approx((0.002 * 4096 - 1.5) / (0.003 * 4096))  # as the longest measured
    alone = advise("first_token", rows, replace(USUAL, known=0, new=800))  # with nothing in common
    assert alone is not None
    assert (alone.on, alone.tokens) == (False, 1500)


def test_without_runs_it_depends_unless_it_never_pays() -> None:
    some, never = (advise("first_token", prompts(link_s, 3.0), UsualPrompts()) for link_s in (3.0, 100.0))
    assert some is not None
    assert never is not None
    assert (some.on, some.tokens) == (None, 1500)
    assert (never.on, never.tokens) == (False, None)
    assert advise("first_token", [], USUAL) is None


@pytest.mark.parametrize(("full", "computers", "on"), [(24.0, 2, True), (18.0, 2, False), (18.0, 1, True)])
def test_ranks_on_several_computers_must_do_what_these_do_alone(
    full: float, computers: int, on: bool
) -> None:
    batch = Compared(2000, 256, 8, Speed(1.0, 10.0), Speed(1.0, full))
    advice = advise("answer", [*prompts(0.1, 2.0, known=2000), batch], replace(USUAL, output=10), computers)
    assert advice is not None
    assert (advice.on, advice.full) == (on, full / 10)


def batches(drafted: float | None, *plain: float | None) -> list[Compared]:
    rows = [Compared(0, 256, 1, Speed(0.1, plain[0]), Speed(0.1, drafted))]
    return rows + [
        Compared(0, 256, 2 * n, Speed(0.1, rate), Speed(0.1, rate)) for n, rate in enumerate(plain[1:], 1)
    ]


def test_a_draft_model_pays_for_answers_that_are_alone() -> None:
    wins = advise("batch", batches(22.0, 10.0, 19.0, 36.0), UsualPrompts())
    assert wins is not None
    assert (wins.on, wins.batch, wins.full) == (True, 4, 1.0)
    far = advise("batch", batches(40.0, 10.0, 19.0, 36.0), UsualPrompts())
    assert far is not None
    assert (far.on, far.batch) == (True, None)
    loses = advise("batch", batches(9.0, 10.0, 19.0), UsualPrompts())
    assert loses is not None
    assert (loses.on, loses.batch) == (False, 1)
    assert advise("batch", batches(None, 10.0), UsualPrompts()) is None
    assert advise("batch", batches(9.0, None), UsualPrompts()) is None
