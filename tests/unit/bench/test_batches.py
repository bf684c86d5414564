"""Answers of a batch are compared with those written alone as far as both have read the same text."""

from __future__ import annotations

import numpy as np
import pytest

from bench.batches.rounding import Answer, Way, compare


def answer(tokens: list[int], *logprobs: list[float]) -> Answer:
    return Answer(tokens, [np.array(one, dtype=np.float32) for one in logprobs])


def test_what_comes_after_the_first_other_token_is_not_compared() -> None:
    alone = answer([0, 0, 1], [-1.0, -1.25, -9.0], [-1.0, -1.25, -9.0], [-3.0, -1.0, -9.0])
    batch = answer([0, 1, 2], [-1.0, -1.50, -9.0], [-1.5, -1.25, -8.0], [-9.0, -9.0, -1.0])
    found = compare(Way("cpu", "bfloat16", 4), [alone, alone], [batch, alone])
    assert (found.answers, found.differ, found.first, found.steps) == (2, 1, (2,), 5)
    assert found.lead == pytest.approx(0.25)
    assert found.largest_change == pytest.approx(0.5)
    assert found.largest == pytest.approx(1.0)
    assert str(found).startswith(
        "cpu bfloat16 4 at once: 1 of 2 answers differ at token 2 (5 tokens compared)"
    )
