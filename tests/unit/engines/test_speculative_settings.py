"""Over many settings in virtual time: what the choices of the planner cost, beside the best there are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from workers.machine.engines.speculative.decode_loop import LOOK_EVERY
from workers.machine.engines.speculative.planner import (
    FEW,
    Choice,
    ModelSpeeds,
    StageStatistics,
    Work,
    checked,
    choose,
    ended,
)

PROMPT, OUTPUT, ANSWERS, LONGEST = 1000, 400, 25, 4
STEP_S = 0.1


@dataclass
class World:
    """Seconds that things really take, up to a tenth more or less each time, and what is really accepted."""

    draft: float
    check: float
    """What each token adds to a check, in steps."""
    accepted: float
    draw: random.Random

    def about(self, seconds: float) -> float:
        return seconds * self.draw.uniform(0.9, 1.1)

    def round_s(self, tokens: int) -> float:
        return STEP_S * (self.draft * tokens + 1 + self.check * tokens)

    def hits(self, tokens: int) -> int:
        return next((n for n in range(tokens) if self.draw.random() >= self.accepted), tokens)

    @property
    def reading_s(self) -> float:
        return STEP_S * self.draft * PROMPT / 200

    def best_s(self) -> float:
        """Seconds of an answer with the best fixed number of proposals, or none."""
        rounds = {k: sum(self.accepted**n for n in range(k + 1)) for k in range(1, LONGEST + 1)}
        drafted = min(self.round_s(k) / tokens for k, tokens in rounds.items())
        return min(OUTPUT * STEP_S, self.reading_s + OUTPUT * drafted)


@dataclass
class Machine:
    """Writes answers as the loop does."""

    world: World
    speeds: ModelSpeeds
    habits: StageStatistics

    def answer(self) -> float:
        """Seconds for one."""
        took, written, read, spent, drafted = 0.0, 0, 0, 0.0, 0
        for _ in range(FEW):
            step = self.world.about(STEP_S)
            took, written = took + step, written + 1
            self.speeds = replace(self.speeds, plain=self.speeds.plain.seen(step))
        choice = self.choice(read, written)
        predicted = choice.token_s
        rounds = 0
        while written < OUTPUT:
            if not choice.tokens:
                took += self.world.about(STEP_S)
                written += 1
                continue
            if not read:
                seconds = self.world.about(self.world.reading_s)
                took, read = took + seconds, PROMPT
                self.speeds = replace(self.speeds, reading=self.speeds.reading.seen(0, PROMPT, seconds))
            tokens = (choice.tokens + 1) // 2 if choice.token_s is None and rounds % 2 else choice.tokens
            seconds, count = self.round(min(tokens, OUTPUT - written - 1))
            took, spent, rounds = took + seconds, spent + seconds, rounds + 1
            written, drafted = written + count, drafted + count
            if rounds % LOOK_EVERY == 0:
                choice = self.choice(read, written)
        self.habits = ended(self.habits, OUTPUT, spent / drafted if drafted else None, predicted)
        return took

    def choice(self, read: int, written: int) -> Choice:
        return choose(self.speeds, self.habits, Work(read, PROMPT - read, written, 800 - written), LONGEST)

    def round(self, tokens: int) -> tuple[float, int]:
        """Seconds and written tokens."""
        hits = self.world.hits(tokens)
        draft = self.world.about(STEP_S * self.world.draft)
        check = self.world.about(STEP_S * (1 + self.world.check * tokens))
        if tokens:
            self.speeds = replace(
                self.speeds,
                draft=self.speeds.draft.seen(draft),
                check=self.speeds.check.seen(1, tokens + 1, check),
            )
            self.habits = checked(self.habits, tokens, hits)
        return tokens * draft + check, hits + 1


def costs() -> Iterator[tuple[float, float]]:
    """For each of 40 settings: seconds over those of the best choice, and over those without drafts."""
    settings = product((0.1, 0.4, 0.6, 0.8, 0.95), (0.03, 0.1, 0.3, 0.6), (0.02, 0.5))
    for number, (accepted, draft, check) in enumerate(settings):
        world = World(draft, check, accepted, random.Random(number))
        machine = Machine(world, ModelSpeeds(), StageStatistics())
        took = sum(machine.answer() for _ in range(ANSWERS))
        yield took / (ANSWERS * world.best_s()), took / (ANSWERS * OUTPUT * STEP_S)


def test_choices_are_near_the_best_and_never_much_worse_than_none() -> None:
    found = list(costs())
    assert len(found) == 40
    assert max(best for best, _ in found) <= 1.05
    assert max(direct for _, direct in found) <= 1.01
    assert min(direct for _, direct in found) < 0.4
