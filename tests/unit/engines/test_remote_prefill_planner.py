"""The planner in virtual time, beside the best way, in a world that it only knows by measuring."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from workers.machine.engines.estimators import LeastSquares
from workers.machine.engines.remote_prefill.messages import NO_READER, READERS_PAUSED
from workers.machine.engines.remote_prefill.planner import (
    HERE,
    LEAST_TOKENS,
    Choice,
    PlannerStatistics,
    WayTimes,
    Work,
    budget_s,
)

JOBS = 200
KV_BYTES = 98_304
"""A token of Qwen3-Coder-30B-A3B."""
STEP = 1024


@dataclass(frozen=True)
class World:
    """Two machines and a link as they really are; the planner sees what jobs took, with noise."""

    prompt: int
    shared: int
    here_tokens_s: float
    there_tokens_s: float
    link_bytes_s: float
    busy: float
    """Share of the time in which the reader is busy with others."""

    def passes(self, rate: float, have: int, count: int) -> Iterator[float]:
        """Seconds of each pass: tokens, attention to all before, and what a pass costs at the least."""
        while count > 0:
            size = min(STEP, count)
            yield 0.02 + size / rate * (1 + (have + size / 2) / 20_000)
            have, count = have + size, count - size

    def here(self, have: int, count: int) -> WayTimes:
        read = sum(self.passes(self.here_tokens_s, have, count))
        return WayTimes(read + 0.03, have, count, read)

    def there(self, have: int, cached: int, end: int, noise: random.Random) -> WayTimes:
        queued = noise.expovariate(1.0) * 3.0 if noise.random() < self.busy else 0.0
        read = sent = sending = 0.0
        for took in [0.0, *self.passes(self.there_tokens_s, cached, end - cached)]:
            read += took
            tokens = max(0, cached - have) if not took else min(STEP, end - cached)
            part = tokens * KV_BYTES / self.link_bytes_s
            sent = max(sent, read) + part
            sending += part
        size = (end - have) * KV_BYTES
        first = queued + 0.06 + max(read, sent)
        return WayTimes(first, cached, end - cached, read, queued, size, sending, queued)


GRID = [
    World(prompt, shared, here, there, link, busy)
    for (prompt, shared), (here, there), link, busy in itertools.product(
        [(1_000, 0), (5_000, 4_000), (5_000, 0), (16_000, 2_000)],
        [(300.0, 2500.0), (800.0, 1500.0)],
        [1.2e9, 1.2e8, 2.5e7],
        [0.0, 0.3],
    )
][:40]


Draw = tuple[int, random.Random, float]


def draws(world: World, seed: int) -> Iterator[Draw]:
    """For each job the length of its prompt, the noise of the reader, and how much longer all of it takes."""
    draw = random.Random(seed)
    for _ in range(JOBS):
        prompt = int(world.prompt * draw.uniform(0.8, 1.2))
        yield prompt, random.Random(draw.random()), draw.lognormvariate(0, 0.05)


def always(world: World, way: str, seed: int) -> float:
    """Seconds until the first token of all jobs together, by one way."""
    total, known = 0.0, 0
    for prompt, noise, factor in draws(world, seed):
        if way == HERE:
            took = world.here(known, prompt - known)
        else:
            took = world.there(known, known, prompt, noise)
        known = world.shared
        total += took.first_s * factor
    return total


def planned(world: World, seed: int) -> float:
    """The same by the ways that the planner chooses."""
    learning = PlannerStatistics(["reader"])
    total, known_here, known_there = 0.0, False, False
    for have in (0, 2048):
        learning.probed("m", have, 256, sum(world.passes(world.here_tokens_s, have, 256)))
    prefix = tuple(range(world.shared))
    for prompt, noise, factor in draws(world, seed):
        have = world.shared if known_here else 0
        work = Work(have, prompt - have, learning.there("m", prefix), (prompt - have) * KV_BYTES, step=STEP)
        choice = learning.choose("m", work)
        taken = choice.reader or HERE
        if taken == HERE:
            took = world.here(have, prompt - have)
        else:
            took = world.there(have, world.shared if known_there else 0, prompt, noise)
            known_there = True
            learning.asked("m", prefix, "reader")
        known_here = True
        if taken != HERE and took.first_s > (limit := budget_s(choice)):
            sending = max(0.0, limit - 0.06 - took.queued_s)
            learning.too_slow("m", taken, sending or limit, int(sending * world.link_bytes_s))
            total += (limit + world.here(have, prompt - have).first_s) * factor
            continue
        took = replace(
            took,
            first_s=took.first_s * factor,
            read_s=took.read_s * factor,
            send_s=took.send_s * factor,
        )
        learning.learn("m", taken, work, took, choice.expected_s.get(taken))
        total += took.first_s
    return total


@pytest.fixture(scope="module")
def ratios() -> list[tuple[float, float]]:
    """For each world: the planner's time over that of the best way, and over that of the direct one."""
    found = []
    for seed, world in enumerate(GRID):
        direct, elsewhere = (always(world, way, seed) for way in (HERE, "reader"))
        took = planned(world, seed)
        found.append((took / min(direct, elsewhere), took / direct))
    return found


def test_forty_settings(ratios: list[tuple[float, float]]) -> None:
    assert len(ratios) == 40
    assert sum(to_best <= 1.05 for to_best, _ in ratios) >= 36, sorted(ratios)[-8:]


def test_never_much_slower_than_direct(ratios: list[tuple[float, float]]) -> None:
    assert max(to_direct for _, to_direct in ratios) <= 1.10


def test_both_ways_win_somewhere(ratios: list[tuple[float, float]]) -> None:
    """Otherwise the grid would show nothing."""
    assert min(to_direct for _, to_direct in ratios) < 0.5
    assert sum(to_direct > 0.97 for _, to_direct in ratios) > 5


def test_two_factors_are_found() -> None:
    fit = LeastSquares()
    for u, v in ((1.0, 10.0), (3.0, 5.0), (2.0, 40.0)):
        fit = fit.seen(u, v, 2 * u + 0.5 * v)
    assert fit.at(5.0, 6.0) == pytest.approx(13.0)


def test_a_factor_is_never_negative() -> None:
    fit = LeastSquares()
    for u, v, y in ((1.0, 1.0, 3.0), (2.0, 4.0, 5.0), (3.0, 9.0, 6.0)):
        fit = fit.seen(u, v, y)
    assert min(fit.at(1.0, 0.0), fit.at(0.0, 1.0)) >= 0


def chosen(**changes: float) -> Choice:
    learning = PlannerStatistics(["reader"])
    world = World(5000, 0, 300.0, 2500.0, 1.2e9, 0.0)
    work = Work(0, 5000, {}, 5000 * KV_BYTES)
    for name in (HERE, HERE, "reader", "reader"):
        took = world.here(0, 5000) if name == HERE else world.there(0, 0, 5000, random.Random(1))
        learning.learn("m", name, work, took, None)
    return learning.choose("m", replace(work, **changes))  # type: ignore[arg-type]


def test_it_explains_itself() -> None:
    choice = chosen()
    assert (choice.strategy, choice.reader) == ("disaggregated", "reader")
    assert str(choice.why).startswith("Local prefill takes about 1")
    assert "on reader with transfer" in str(choice.why)


def test_short_prompts_stay_here() -> None:
    assert chosen(read=LEAST_TOKENS - 1).strategy == "direct"


def test_reading_elsewhere_needs_no_room_here() -> None:
    """Where the batch is full, the cache can come while a prompt waits for its turn."""
    choice = chosen(waits_s=30)
    assert choice.strategy == "disaggregated"
    assert choice.expected_s["reader"] == 30 < choice.expected_s[HERE]


def test_a_reader_that_failed_is_asked_again_later() -> None:
    now = [0.0]
    learning = PlannerStatistics(["reader"], clock=lambda: now[0])
    learning.failed("reader")
    why = learning.choose("m", Work(0, 5000, {}, 1)).why
    assert why == READERS_PAUSED(readers=["reader"], seconds=5)
    assert str(why) == "After errors, these prefill machines are paused for 5 s: reader."
    now[0] = 5.1
    assert "reader" in learning.known("m")
    learning.failed("reader")
    now[0] = 5.1 + 9.9
    assert "reader" not in learning.known("m")
    now[0] = 5.1 + 10.1
    assert "reader" in learning.known("m")


def test_the_reason_names_readers_that_are_paused() -> None:
    """Nobody should look for a slow link where a reader is left alone after an error."""
    now = [0.0]
    learning = PlannerStatistics(["reader", "other"], clock=lambda: now[0])
    world, work = World(5000, 0, 300.0, 2500.0, 1.2e9, 0.0), Work(0, 5000, {}, 5000 * KV_BYTES)
    for name in (HERE, "other", "reader") * 2:
        took = world.here(0, 5000) if name == HERE else world.there(0, 0, 5000, random.Random(1))
        learning.learn("m", name, work, took, None)
    learning.failed("reader")
    choice = learning.choose("m", work)
    assert choice.reader == "other"
    assert str(choice.why).endswith("on reader not at all: it is paused after an error.")
    assert PlannerStatistics([]).choose("m", work).why == NO_READER()
