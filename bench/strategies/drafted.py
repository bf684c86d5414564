"""One machine that writes with a draft model: one equal to the model, and another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.engines_models import legible_model
from bench.engines_parts import Spread
from bench.models import TINY
from bench.strategies.sides import Ask, Made, Side

PLAIN = "plain"
OTHER = replace(TINY, layers=2)


@dataclass(frozen=True)
class Drafted:
    """Seconds of writing, after the first token."""

    draft: str
    output: int
    plain_s: Spread
    drafted_s: Spread
    proposed: int
    accepted: int
    """Of all turns."""

    @property
    def gain(self) -> float:
        """Writing without to writing with it."""
        return self.plain_s.median / self.drafted_s.median


def drafted(side: Side, model: Path, ask: Ask, turns: Callable[[], Iterator[int]]) -> list[Drafted]:
    """Measure in turn, one answer at a time; drafts are asked for wherever they can be."""
    folder = model.parent / "drafts"
    drafts = {
        "equal": Path(shutil.copytree(model, folder / "equal")),
        "other": legible_model(folder / "other", OTHER),
    }
    side.engine(PLAIN)
    for name, draft in drafts.items():
        side.drafting(name, draft)
    shots: dict[str, list[Made]] = {name: [] for name in (PLAIN, *drafts)}
    for name in shots:
        side.answer(name, ask)
    for turn in turns():
        for name in list(shots)[:: 1 if turn % 2 else -1]:
            shots[name].append(side.answer(name, ask))
    plain = Spread.of([made.writing_s for made in shots[PLAIN]])
    return [_drafted(name, ask.most, plain, shots[name]) for name in drafts]


def _drafted(name: str, output: int, plain: Spread, shots: list[Made]) -> Drafted:
    said = [made.speculative or {} for made in shots]
    return Drafted(
        draft=name,
        output=output,
        plain_s=plain,
        drafted_s=Spread.of([made.writing_s for made in shots]),
        proposed=sum(int(one.get("proposed", 0)) for one in said),
        accepted=sum(int(one.get("accepted", 0)) for one in said),
    )
