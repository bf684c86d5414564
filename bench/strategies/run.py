"""One run of `grader bench strategies`: how much is measured, in which order, and what came of it."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.engines import Target, this_machine
from bench.engines_models import Prompts, legible_model
from bench.engines_parts import Clock
from bench.models import Shape
from bench.strategies import grid, handing, planned
from bench.strategies.drafted import Drafted, drafted
from bench.strategies.handing import Gain, Tail
from bench.strategies.planned import SETTINGS, Chosen, Setting
from bench.strategies.sides import Ask, Side, blas, two

SHAPE = Shape(hidden=512, layers=2, heads=4, kv_heads=2, head_dim=64, intermediate=1536)
"""5.5 million parameters: most of reading is multiplying matrices, and 3,000 tokens take a core a second."""
CACHE_BYTES = 2 * SHAPE.layers * SHAPE.kv_heads * SHAPE.head_dim * 4
"""Of one token, in float32."""


@dataclass(frozen=True)
class Plan:
    """How much is measured. `turns` is the most of a part; `limit_s` bounds the measuring."""

    limit_s: float
    turns: int = 9
    step: int = 512
    """Tokens that are read in one pass."""
    hand: int = 3000
    """Tokens of the prompt of which the hand-off is measured."""
    factors: tuple[float, ...] = (0.3, 1.0, 2.0)
    """Seconds of sending to those of reading."""
    prompts: tuple[int, ...] = (500, 1500, 5000)
    outputs: tuple[int, ...] = (16, 128, 512)
    grid_turns: int = 3
    sending: float = 0.2
    """Of the grid's link, for a prompt of `hand` tokens."""
    settings: tuple[Setting, ...] = SETTINGS
    drafts: tuple[int, int] = (500, 128)
    """Tokens of the prompt and of the answer that is written with draft models."""


FULL = Plan(limit_s=800.0)
QUICK = Plan(
    limit_s=60.0, turns=3, hand=1500, factors=(1.0,), prompts=(500, 1500), outputs=(16, 64), grid_turns=1,
    settings=(Setting(1500, 0, 0.1), Setting(1500, 0, 4.0)),
)  # fmt: skip
HAND, SETTING, DRAFTS = 90.0, 22.0, 20.0
"""Weights of parts: about their seconds."""


@dataclass(frozen=True)
class Figures:
    """The figures of one run."""

    machine: dict[str, Any]
    step: int
    cache_bytes: int
    tail: Tail
    gains: list[Gain]
    link_bytes_s: float
    """Of the grid."""
    cells: list[grid.Cell]
    chosen: list[Chosen]
    drafts: list[Drafted]
    targets: list[Target]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        gains = [{**asdict(one), "gain": one.gain, "reckoned": one.reckoned} for one in self.gains]
        cells = [{**asdict(one), "best": one.best} for one in self.cells]
        chosen = [{**asdict(one), "off": one.off} for one in self.chosen]
        drafts = [{**asdict(one), "gain": one.gain} for one in self.drafts]
        return {**asdict(self), "gains": gains, "cells": cells, "chosen": chosen, "drafts": drafts}


def measure(plan: Plan, say: Callable[[str], None]) -> Figures:
    """Run the benchmark; `say` gets a line now and then. Raises BenchmarkBroken."""
    cells = [(prompt, output) for prompt in plan.prompts for output in plan.outputs]
    weights = [HAND, *(SETTING for _ in plan.settings), DRAFTS, *(_weight(*cell) for cell in cells)]
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as folder:
        model = legible_model(Path(folder), SHAPE)
        run = _Run(plan, Prompts(model), say)
        with two(model, plan.step) as sides:
            run.clock = Clock(plan.limit_s, weights)
            tail, gains = run.hand_off(sides)
            link = CACHE_BYTES * tail.prompt / (plan.sending * tail.read_s.median)
            chosen = run.planner(sides)
            drafts = run.drafts(sides[0], model)
            played = run.grid(sides, cells, link)
    return Figures(
        machine={**this_machine(), "cores": "one a machine", "blas": blas()},
        step=plan.step,
        cache_bytes=CACHE_BYTES,
        tail=tail,
        gains=gains,
        link_bytes_s=round(link),
        cells=played,
        chosen=chosen,
        drafts=drafts,
        targets=_targets(tail, gains, chosen),
        seconds=round(run.clock.elapsed, 1),
    )


def _weight(prompt: int, output: int) -> float:
    return prompt / 100 + output / 7


class _Run:
    """The parts, with what they share."""

    def __init__(self, plan: Plan, prompts: Prompts, tell: Callable[[str], None]) -> None:
        self.plan, self.prompts, self.tell = plan, prompts, tell
        self.clock = Clock(plan.limit_s, [])

    def say(self, line: str) -> None:
        self.tell(f"{self.clock.elapsed:5.0f} s  {line}")

    def turns(self, most: int) -> Iterator[int]:
        return self.clock.turns(most)

    def hand_off(self, sides: tuple[Side, Side]) -> tuple[Tail, list[Gain]]:
        self.say(f"the hand-off, prompts of {self.plan.hand} tokens")
        text = self.prompts.text(self.plan.hand, "hand")
        turns = partial(self.turns, self.plan.turns)
        return handing.hand_off(sides, text, self.plan.factors, turns, self.say)

    def grid(
        self, sides: tuple[Side, Side], cells: Sequence[tuple[int, int]], link_bytes_s: float
    ) -> list[grid.Cell]:
        pair = grid.Pair(sides, link_bytes_s, self.plan.step)
        known = grid.small(pair, self.prompts.text)
        found = []
        for prompt, output in cells:
            asks = tuple(Ask(self.prompts.text(prompt, f"grid {n}"), output) for n in range(2))
            turns = partial(self.turns, self.plan.grid_turns)
            found.append(grid.cell(pair, (asks[0], asks[1]), known, turns, CACHE_BYTES))
            said = ", ".join(f"{name} {each.median:.2f}" for name, each in found[-1].measured.items())
            self.say(f"{prompt} tokens, {output} written: {said}")
        return found

    def planner(self, sides: tuple[Side, Side]) -> list[Chosen]:
        found = []
        sides[0].engine(grid.DIRECT)
        for setting in self.plan.settings:
            ask = Ask(self.prompts.text(setting.prompt, "rate"), 1)
            read = statistics.median(sides[0].answer(grid.DIRECT, ask).first_s for _ in range(2))
            link = CACHE_BYTES * setting.prompt / (setting.sending * read)
            turns = partial(self.turns, self.plan.turns)
            found.append(planned.chosen(sides, setting, link, self.prompts.text, turns))
            self.say(f"{setting}: {found[-1].off:.2f} of the best, {dict(found[-1].chose)}")
        return found

    def drafts(self, side: Side, model: Path) -> list[Drafted]:
        prompt, output = self.plan.drafts
        ask = Ask(self.prompts.text(prompt, "drafts"), output)
        found = drafted(side, model, ask, partial(self.turns, self.plan.turns))
        said = (f"{one.draft} {one.gain:.2f} times as fast" for one in found)
        self.say(f"draft models: {', '.join(said)}")
        return found


def _targets(tail: Tail, gains: Sequence[Gain], chosen: Sequence[Chosen]) -> list[Target]:
    what = f"from the end of reading {tail.prompt} tokens to the first token, to reading"
    found = [Target("", what, f"≤ {handing.MOST_TAIL:g}", tail.share.median, tail.met)]
    for one in gains:
        what = f"what overlapping wins where sending takes {one.sending:g} of reading, to the arithmetic"
        aim = f"1 ± {handing.MOST_OFF:g}"
        found.append(Target("", what, aim, round(one.gain / one.reckoned, 3), one.met))
    aim = f"≤ {1 + planned.MOST_OFF:g}"
    for each in chosen:
        of = each.setting
        what = (
            f"planner to the best: {of.prompt} tokens, {of.shared} known, sending {of.sending:g} of reading"
        )
        found.append(Target("", what, aim, round(each.off, 3), each.met))
    return found
