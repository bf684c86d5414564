"""The planner over real settings: what it chose, beside each way when it is ordered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.engines_parts import Spread
from bench.strategies.sides import Ask, Made, Side

MOST_OFF = 0.15
"""How much slower than the best way its choice may be."""
WRITES = 16
LEARNS = 3
"""Prompts with which it gets to know both ways before it is measured."""
WAYS = ("direct", "disaggregated", "auto")


@dataclass(frozen=True)
class Setting:
    """A prompt, how much of it a class shares and both machines know, and the link."""

    prompt: int
    shared: int
    sending: float
    """Seconds to send the cache of a whole prompt to those of reading it on the fast machine."""


SETTINGS = (
    Setting(4000, 0, 0.1),
    Setting(4000, 0, 0.8),
    Setting(4000, 0, 4.0),
    Setting(1500, 0, 0.1),
    Setting(1500, 0, 3.0),
    Setting(600, 0, 0.5),
    Setting(4000, 3500, 0.3),
    Setting(4000, 2000, 1.0),
)


@dataclass(frozen=True)
class Chosen:
    """What became of a setting; seconds until the first token."""

    setting: Setting
    direct_s: Spread
    disaggregated_s: Spread
    auto_s: Spread
    chose: Mapping[str, int]
    """How often each way."""

    @property
    def off(self) -> float:
        """Of the planner to the better way; 1.1 is 10 % slower."""
        return self.auto_s.median / min(self.direct_s.median, self.disaggregated_s.median)

    @property
    def met(self) -> bool:
        """Whether it is as close as it should be."""
        return self.off <= 1 + MOST_OFF


def chosen(
    sides: tuple[Side, Side],
    setting: Setting,
    link_bytes_s: float,
    text: Callable[[int, str], str],
    turns: Callable[[], Iterator[int]],
) -> Chosen:
    """Measure one setting: each way in turn, with an engine that knows nothing before."""
    a, b = sides
    address = a.serve("planned", link_bytes_s=link_bytes_s)
    for way in WAYS:
        b.engine(way, address, way)
    system = text(setting.shared, "class") if setting.shared else ""

    def ask(number: int) -> Ask:
        return Ask(text(setting.prompt - setting.shared, f"own {number}"), WRITES, system)

    for number in range(LEARNS):
        b.answer("auto", ask(number))
    for way in WAYS[:2]:
        b.answer(way, ask(LEARNS))
    shots: dict[str, list[Made]] = {way: [] for way in WAYS}
    for turn in turns():
        for way in WAYS[turn % 3 :] + WAYS[: turn % 3]:
            shots[way].append(b.answer(way, ask(LEARNS + turn)))
    took = {way: Spread.of([made.first_s for made in made_]) for way, made_ in shots.items()}
    went = Counter(str((made.hybrid or {})["strategy"]) for made in shots["auto"])
    return Chosen(setting, took["direct"], took["disaggregated"], took["auto"], dict(went))
