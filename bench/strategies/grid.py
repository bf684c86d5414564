"""Two prompts, one of each stage, by each strategy: lengths of prompts and answers, measured and reckoned."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.engines_parts import Spread
from bench.strategies.arithmetic import STRATEGIES, Costs, even
from bench.strategies.sides import Ask, Made, Side, made

DIRECT, OVERLAPPED, SERIAL, PIPELINED = "direct", "overlapped", "serial", "pipelined"
"""Engines: the first one on both machines, the others on `b`, which has its prompts read on `a`."""
REST_TOKENS = 32
"""Prompt and answer with which is measured what a hand-off takes beside reading, and a step of two."""
WARM = 4
"""Tokens of an answer that only warms up."""
Asks = tuple[Ask, Ask]


@dataclass(frozen=True)
class Cell:
    """Seconds until both answers are there, by strategy."""

    prompt: int
    output: int
    measured: Mapping[str, Spread]
    reckoned: Mapping[str, float]

    @property
    def best(self) -> str:
        """The strategy that was the fastest."""
        return min(self.measured, key=lambda name: self.measured[name].median)


@dataclass(frozen=True)
class Small:
    """What does not depend on lengths: the rest of a hand-off, and a step of two answers to one of one."""

    rest_s: float
    together: float


class Pair:
    """The two machines with their engines, over one link."""

    def __init__(self, sides: tuple[Side, Side], link_bytes_s: float, step: int) -> None:
        self.a, self.b = sides
        self.link_bytes_s = link_bytes_s
        self.step = step
        self.a.engine(DIRECT)
        self.b.engine(DIRECT)
        for name in (OVERLAPPED, SERIAL, PIPELINED):
            manner = {"serially": name == SERIAL, "one_by_one": name == PIPELINED}
            self.b.engine(name, self.a.serve(name, link_bytes_s=link_bytes_s, **manner))

    def by(self, name: str, asks: Asks) -> list[Made]:
        """Both prompts by one strategy."""
        return list(WAYS[name](self, asks))


def _sequential(pair: Pair, asks: Asks) -> Iterator[Made]:
    for ask in asks:
        yield pair.a.answer(DIRECT, ask)


def _direct(pair: Pair, asks: Asks) -> Iterator[Made]:
    begun = pair.a.begin(DIRECT, asks[0]), pair.b.begin(DIRECT, asks[1])
    for future, ask in zip(begun, asks, strict=True):
        yield made(future, ask)


def _batched(pair: Pair, asks: Asks) -> Iterator[Made]:
    return _both(pair.b, DIRECT, asks)


def _regenerate(pair: Pair, asks: Asks) -> Iterator[Made]:
    for ask in asks:
        pair.a.answer(DIRECT, Ask(ask.user, 1))
        yield pair.b.answer(DIRECT, ask)


def _serial(pair: Pair, asks: Asks) -> Iterator[Made]:
    for ask in asks:
        yield pair.b.answer(SERIAL, ask)


def _overlapped(pair: Pair, asks: Asks) -> Iterator[Made]:
    for ask in asks:
        yield pair.b.answer(OVERLAPPED, ask)


def _pipelined(pair: Pair, asks: Asks) -> Iterator[Made]:
    return _both(pair.b, PIPELINED, asks)


def _both(side: Side, engine: str, asks: Asks) -> Iterator[Made]:
    for future, ask in zip([side.begin(engine, ask) for ask in asks], asks, strict=True):
        yield made(future, ask)


WAYS: Mapping[str, Callable[[Pair, Asks], Iterator[Made]]] = {
    "sequential": _sequential,
    "direct": _direct,
    "batched": _batched,
    "regenerate": _regenerate,
    "serial": _serial,
    "overlapped": _overlapped,
    "pipelined": _pipelined,
}
"""name → how it is done; the names are those of the arithmetic."""


def small(pair: Pair, text: Callable[[int, str], str]) -> Small:
    """Measure what does not depend on lengths; everything has been warm since."""
    asks = [Ask(text(REST_TOKENS, f"rest {number}"), REST_TOKENS) for number in range(2)]
    rests, ratios = [], []
    for name in WAYS:
        pair.by(name, (Ask(asks[0].user, WARM), Ask(asks[1].user, WARM)))
    for _ in range(3):
        one = pair.b.answer(OVERLAPPED, asks[0])
        read = pair.a.read(OVERLAPPED)[-1]
        both = list(_both(pair.b, DIRECT, (asks[0], asks[1])))
        rests.append(one.first_s - read.seconds - sum(read.bytes) / pair.link_bytes_s)
        ratios.append(max(each.writing_s for each in both) / one.writing_s)
    return Small(statistics.median(rests), statistics.median(ratios))


def cell(
    pair: Pair,
    asks: Asks,
    known: Small,
    turns: Callable[[], Iterator[int]],
    token_bytes: float,
) -> Cell:
    """Measure all strategies in turn, with a warm-up before."""
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    alone: dict[str, list[Made]] = {"sequential": [], "regenerate": []}
    pair.by(DIRECT, asks)
    for turn in turns():
        for name in list(WAYS)[:: 1 if turn % 2 else -1]:
            begun = time.monotonic()
            answers = pair.by(name, asks)
            seconds[name].append(time.monotonic() - begun)
            if name in alone:
                alone[name] += answers
    prompt = answers[0].prompt
    costs = _costs(alone["sequential"], alone["regenerate"], known, pair, token_bytes)
    reckoned = {name: round(formula(costs, costs), 3) for name, formula in STRATEGIES.items()}
    return Cell(prompt, asks[0].most, {name: Spread.of(each) for name, each in seconds.items()}, reckoned)


def _costs(on_a: Sequence[Made], on_b: Sequence[Made], known: Small, pair: Pair, token_bytes: float) -> Costs:
    """Of what each machine took while the other one had nothing to do, in the same turns."""
    prompt = on_a[0].prompt
    passes = max(1, -(-prompt // pair.step))
    return Costs(
        passes=even(_median(made.first_s for made in on_a), passes),
        sends=even(prompt * token_bytes / pair.link_bytes_s, passes),
        read_b=_median(made.first_s for made in on_b),
        write_a=_median(made.writing_s for made in on_a),
        write_b=_median(made.writing_s for made in on_b),
        rest=known.rest_s,
        together=known.together,
    )


def _median(values: Iterator[float]) -> float:
    return statistics.median(values)
