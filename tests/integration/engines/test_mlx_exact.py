"""What the mlx engine writes is token for token what mlx-lm writes alone, also with sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bench.tiny_models import WINDOW, Kind, make_model
from tests.support.decode_loop import Driven, alone, words
from tests.support.engines import SMALLER
from workers.machine.engines.mlx.decode_loop import Shape
from workers.machine.engines.mlx.model import LoadedModel, load_model
from workers.machine.engines.mlx.prefix_caches import PrefixCaches

SHORT, LONG = WINDOW // 2, 2 * WINDOW + 5
"""Lengths of shared prefixes: within and beyond a sliding window."""
OUTPUT = WINDOW + 20
"""More than a window, so that it turns round while decoding, too."""


@dataclass
class Known:
    """A model, prompts with different prefixes and lengths, and what mlx-lm writes for each alone."""

    loaded: LoadedModel
    prompts: list[tuple[list[int], list[int]]]
    expected: list[list[int]]


OFTEN = ("llama", "gemma3")
"""One without and one with windows in its caches."""
CASES = [
    pytest.param(kind, marks=() if kind in OFTEN else pytest.mark.soak)
    for kind in ("llama", "qwen2", "qwen3", "gemma3")
]


@pytest.fixture(scope="module", params=CASES)
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Known:
    kind: Kind = request.param
    loaded = load_model(str(make_model(tmp_path_factory.mktemp(kind), kind, SMALLER)), None)
    short, long = words(loaded, SHORT, 1), words(loaded, LONG, 2)
    rests = [(short, 9), (long, 1), (long, 90), (short, 70), ([], 40), (long, 33)]
    prompts = [(prefix, words(loaded, length, length)) for prefix, length in rests]
    expected = [alone(loaded, prefix + rest, OUTPUT) for prefix, rest in prompts]
    assert max(map(len, expected)) > WINDOW
    return Known(loaded, prompts, expected)


def written(known: Known, driven: Driven, order: list[int], apart: int) -> dict[int, list[int]]:
    """Outputs by number of the prompt, submitted so many steps after one another."""
    asked = {}
    for number in order:
        asked[number] = driven.ask(*known.prompts[number], OUTPUT).ticket
        driven.steps(apart)
    driven.finish()
    return {number: ticket.output for number, ticket in asked.items()}


@pytest.mark.parametrize("slots", [2, 6])
def test_tokens_are_those_of_one_prompt_alone_batched_cached_and_joining_late(
    known: Known, slots: int
) -> None:
    driven = Driven(known.loaded, Shape(slots=slots, prefill_step=50))
    at_once = written(known, driven, [0, 1, 2, 3, 4, 5], apart=0)
    assert at_once == dict(enumerate(known.expected))
    before = driven.count("prefix_hits")
    late = written(known, driven, [5, 4, 3, 2, 1, 0], apart=3)
    assert late == at_once
    assert driven.count("prefix_hits") - before == 5
    assert driven.count("cached_tokens") > 3 * LONG


def test_tokens_without_any_cache_are_the_same(known: Known) -> None:
    driven = Driven(known.loaded, prefixes=PrefixCaches(0))
    assert written(known, driven, [0, 1, 2, 3, 4, 5], apart=2) == dict(enumerate(known.expected))
    assert driven.count("cached_tokens") == 0


def test_who_takes_over_a_half_read_prefix_writes_the_same(known: Known) -> None:
    driven = Driven(known.loaded, Shape(slots=2, prefill_step=40))
    prefix, rest = known.prompts[2]
    first = driven.ask(prefix, rest, OUTPUT)
    next_one = driven.ask(*known.prompts[5], OUTPUT).ticket
    driven.steps(2)
    first.cancel.cancel()
    driven.finish()
    assert next_one.output == known.expected[5]
    assert 0 < next_one.cached < LONG
    assert driven.prefixes.held() == [tuple(prefix)]


def test_generating_never_changes_what_is_kept(known: Known) -> None:
    import mlx.core as mx

    driven = Driven(known.loaded)
    written(known, driven, [2], apart=0)
    ((layers, _),) = driven.prefixes._kept.values()
    before = [[mx.array(a) for a in layer.state if isinstance(a, mx.array)] for layer in layers]
    places = [[a for a in layer.state if isinstance(a, int)] for layer in layers]
    written(known, driven, [1, 5, 2], apart=1)
    for layer, arrays, numbers in zip(layers, before, places, strict=True):
        now = [a for a in layer.state if isinstance(a, mx.array)]
        assert all(mx.array_equal(a, b).item() for a, b in zip(arrays, now, strict=True))
        assert [a for a in layer.state if isinstance(a, int)] == numbers
