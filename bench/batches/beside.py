"""What second opinions cost answers of grading that are written at the same time, and those that come.

The product cancels second opinions as soon as a run of grading comes. Measured is what they would cost if it
did not, and how long the run waits: a step of decoding or of reading is never broken off.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Literal

from bench.batches.models import Ask, Driven, asks, ticket
from bench.engines.measurements import Spread
from workers.machine.engines.mlx.decode_loop import Counters, Runner
from workers.machine.engines.mlx.decode_loop import Shape as BatchShape
from workers.machine.engines.mlx.model import LoadedModel
from workers.machine.engines.mlx.prefix_caches import PrefixCaches

Doing = Literal["", "reading", "writing"]
Case = tuple[int, Doing]
"""How many second opinions are in hand, and what they do."""
ENDLESS = 100_000
"""Tokens of an answer that is broken off."""
PATIENCE_S = 300.0
WRITING_S = 0.05
"""A request comes at any moment of so long: many steps of a GPU."""


@dataclass(frozen=True)
class Load:
    """Tokens of a request of grading or of a second opinion, and how much is measured."""

    shared: int
    own: int
    steps: int
    """Decoding steps of a turn."""
    turns: int


@dataclass(frozen=True)
class Shared:
    """A batch of grading without and with one second opinion."""

    grading: int
    """Answers of grading."""
    step_ms: Spread
    beside_ms: Spread
    """A step with one second opinion beside them."""
    rate: float
    """Tokens of grading a second, all together, without it."""
    beside_rate: float
    slower: Spread
    """1.02: a step takes 2 % longer."""
    read_s: Spread
    """By how much reading the second opinion's prompt delays them, beyond as many steps without it."""

    def __str__(self) -> str:
        slower = self.slower
        return (
            f"{self.grading} of grading: {self.rate:.0f} tokens a second, "
            f"{self.step_ms.median:.1f} ms a step; with a second opinion {self.beside_rate:.0f}, "
            f"{self.beside_ms.median:.1f} ms, {slower.median:.3f} times ({slower.least:.3f} to "
            f"{slower.most:.3f}); reading its prompt {1000 * self.read_s.median:.0f} ms more"
        )


def beside(loaded: LoadedModel, grading: int, load: Load) -> Shared:
    """Turns without and with a second opinion, in one batch."""
    driven = Driven(loaded, BatchShape(slots=grading + 1))
    wanted = asks(loaded, grading + 1, load.shared, load.own, ENDLESS)
    running = [driven.ask(one) for one in wanted[:-1]]
    driven.until_written(running, 3)
    alone, with_one, reading = list[float](), list[float](), list[float]()
    for turn in range(load.turns):
        # another text each time; what second opinions share is kept from the first turn on
        opinion = _other(replace(wanted[-1], shared=wanted[-1].shared[::-1]), random.Random(turn))
        alone.append(_steps(driven, load.steps))
        began, before = time.perf_counter(), len(running[0].ticket.output)
        other = driven.ask(opinion)
        driven.until_written([other], 1)
        written = len(running[0].ticket.output) - before
        reading.append(time.perf_counter() - began - written * alone[-1])
        driven.until_written([other], 3)
        with_one.append(_steps(driven, load.steps))
        other.cancel.cancel()
        driven.loop.step()
        _steps(driven, 3)
    for each in running:
        each.cancel.cancel()
    driven.finish()
    driven.loop.close()
    return Shared(
        grading=grading,
        step_ms=Spread.of([1000 * one for one in alone]),
        beside_ms=Spread.of([1000 * one for one in with_one]),
        rate=grading / statistics.median(alone),
        beside_rate=grading / statistics.median(with_one),
        slower=Spread.of([b / a for a, b in zip(alone, with_one, strict=True)]),
        read_s=Spread.of(reading[1:] or reading),
    )


def _steps(driven: Driven, count: int) -> float:
    """Seconds of a step."""
    began = time.perf_counter()
    for _ in range(count):
        driven.loop.step()
    return (time.perf_counter() - began) / count


@dataclass(frozen=True)
class Delay:
    """How long a request of grading waits for the step that is under way, second opinions being cancelled."""

    opinions: int
    doing: Doing
    """Empty where there are none."""
    queued_ms: Spread
    """Until the engine takes it in."""
    first_token_ms: Spread

    def __str__(self) -> str:
        what = f"{self.opinions} {self.doing}" if self.opinions else "idle"
        return (
            f"{what}: taken in after {self.queued_ms.median:.1f} ms, at most {self.queued_ms.most:.1f}; "
            f"first token after {self.first_token_ms.median:.1f} ms"
        )


def delays(loading: Callable[[], LoadedModel], cases: Sequence[Case], load: Load) -> Iterator[Delay]:
    """A request of grading comes at any moment of what second opinions do."""
    runner = Runner(BatchShape(), PrefixCaches(4 * 10**9), Counters())
    try:
        loaded = runner.load(loading).result()
        for opinions, doing in cases:
            yield _delay(runner, loaded, opinions, doing, load)
    finally:
        runner.close(PATIENCE_S)


def _delay(runner: Runner, loaded: LoadedModel, opinions: int, doing: Doing, load: Load) -> Delay:
    drawn, reading = random.Random(1), 0.0
    waits, firsts = list[float](), list[float]()
    for turn in range(-2, load.turns):  # the first one reads what is shared, the next one is as all others
        within = reading if doing == "reading" else WRITING_S
        arrival = _arrive(runner, loaded, opinions, doing, load, drawn, within * drawn.random())
        reading = (arrival.first_ms - arrival.queued_ms) / 1000
        if turn >= 0:
            waits.append(arrival.queued_ms)
            firsts.append(arrival.first_ms)
    return Delay(opinions, doing, Spread.of(waits), Spread.of(firsts))


@dataclass(frozen=True)
class _Arrival:
    """Milliseconds until a request is taken in, and until its first token."""

    queued_ms: float
    first_ms: float


def _arrive(
    runner: Runner,
    loaded: LoadedModel,
    opinions: int,
    doing: Doing,
    load: Load,
    drawn: random.Random,
    moment_s: float,
) -> _Arrival:
    grading, *others = (
        _other(one, drawn) for one in asks(loaded, opinions + 1, load.shared, load.own, ENDLESS)
    )
    second = [ticket(loaded, replace(one, shared=one.shared[::-1])) for one in others]
    for one in second:
        runner.submit(one.ticket)
    for one in second:
        one.wait_for("reading" if doing == "reading" else "generating", PATIENCE_S)
    time.sleep(moment_s)
    for one in second:
        one.cancel.cancel()
    came = ticket(loaded, replace(grading, most=1))
    runner.submit(came.ticket)
    wait([came.ticket.done], PATIENCE_S)
    timings = came.ticket.timings(came.ticket.submitted)
    queued, read = timings.queued_s or 0.0, timings.prompt_s or 0.0
    return _Arrival(1000 * queued, 1000 * (queued + read))


def _other(ask: Ask, drawn: random.Random) -> Ask:
    """With another text of its own."""
    return replace(ask, own=drawn.sample(ask.own, len(ask.own)))
