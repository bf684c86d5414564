"""What is read off a simulation beside its makespan; seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.cluster.scenarios import Scenario
from bench.cluster.world import Run

RECOGNISED = 0.6
"""A machine three times slower is recognised when its health is below this."""


@dataclass(frozen=True)
class Waits:
    """How those who wait fare during a batch."""

    slot_p50_s: float
    slot_p95_s: float
    """From handing in until a stage has a slot."""
    residual_s: float
    """What a slot that is looked at by chance is still busy for, in the mean."""
    stretch_p50: float
    stretch_p95: float
    """Of a stage: from handing in to the end, over from its slot to the end."""
    whole_p95: float
    """The same of a hand-in: until its last stage ends, over what it takes where none waits for a slot."""


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of them lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def waits(runs: Sequence[Run]) -> Waits:
    """Of the interactive ones among them."""
    own = [run for run in runs if run.priority == "interactive"]
    slot = [run.began - run.came for run in own]
    stretch = [(run.done - run.came) / (run.done - run.began) for run in own]
    took = [run.done - run.began for run in runs]
    residual = sum(s * s for s in took) / (2 * sum(took))
    parts: dict[int, list[Run]] = {}
    for run in own:
        parts.setdefault(run.hand_in, []).append(run)
    whole = [max(r.done - r.came for r in of) / max(r.done - r.began for r in of) for of in parts.values()]
    middle, late = ([quantile(of, part) for of in (slot, stretch)] for part in (0.5, 0.95))
    return Waits(middle[0], late[0], residual, middle[1], late[1], quantile(whole, 0.95))


def returns(scenario: Scenario) -> tuple[str, float] | None:
    """The first machine that dies and comes back, and when it is back."""
    for name, changes in scenario.setting.changes.items():
        died = next((at for at, speed in changes if not speed), None)
        back = next((at for at, speed in changes if died is not None and at > died and speed), None)
        if back is not None:
            return name, back
    return None


def returned_s(scenario: Scenario, begun: Iterable[tuple[str, float]]) -> float | None:
    """Seconds from a dead machine's return until it works on something; `begun` are (machine, time)."""
    if (found := returns(scenario)) is None:
        return None
    name, back = found
    return min((at - back for machine, at in begun if machine == name and at >= back), default=float("inf"))


def recognised_s(scenario: Scenario, healths: Sequence[tuple[str, float, float]]) -> float | None:
    """Seconds from when a machine became slow until it said so; `healths` are (machine, time, health)."""
    for name, changes in scenario.setting.changes.items():
        slow = next((at for at, speed in changes if 0 < speed < RECOGNISED), None)
        if slow is not None:
            return next(
                (at - slow for m, at, h in healths if m == name and at >= slow and h < RECOGNISED),
                float("inf"),
            )
    return None
