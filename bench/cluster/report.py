"""What a run of `grader bench router` found, as values, lines of a table, and plots."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.cluster import svg
from bench.cluster.bound import bound_s
from bench.cluster.runs import OURS, Outcome, Plan

HEADS = ("scenario", "way", "makespan s", "× bound", "p50 s", "p95 s", "interactive p95 s", "failed", "cores")
KNOWN = "× bound, changes known"
COUNTED = "× bound, lost work too"
LOST_WORK, LONGER, LOST = "lost work s", "longer by s", "lost capacity s"
BEATS, WORKS, NOTICED = "return → beat s", "return → work s", "slow → noticed s"
MORE, ANSWERED, BROKEN, REFUSED = "over ours %", "guests answered", "broken off", "refused"
SOMETIMES = (KNOWN, COUNTED, LOST_WORK, LONGER, LOST, BEATS, WORKS, NOTICED, MORE, ANSWERED, BROKEN, REFUSED)
"""Columns that stand only where a scenario or a way has what they tell."""
NEVER = "never"


@dataclass(frozen=True)
class Played:
    """One plan and what each way made of it, in emulated seconds."""

    plan: Plan
    outcomes: Sequence[Outcome]
    without: Sequence[Outcome] = ()
    """What became of the same hand-ins in this call where nothing happened to machines."""

    @property
    def bound_s(self) -> float:
        """In less nobody grades all of it, had it come at once."""
        of = self.plan.scenario
        return bound_s(of.setting.cards, self.plan.slots, of.hand_ins, usual=of.setting.works)

    @property
    def at_once(self) -> bool:
        """Whether everything came at the beginning."""
        return all(one.at <= 0 for one in self.plan.scenario.hand_ins)

    def rows(self) -> list[dict[str, Any]]:
        """A row a way."""
        return [self._row(one) for one in self.outcomes]

    def _row(self, outcome: Outcome) -> dict[str, Any]:
        waiting = self._interactive(outcome)
        return {
            "scenario": self.plan.scenario.name,
            "way": outcome.way,
            "makespan s": round(outcome.makespan),
            "× bound": round(outcome.makespan / self.bound_s, 3) if self.at_once else None,
            "p50 s": round(outcome.took(0.5)),
            "p95 s": round(outcome.took(0.95)),
            "interactive p95 s": round(waiting.took(0.95)) if waiting.ended else None,
            "failed": outcome.failed,
            "cores": round(outcome.cpu, 2),
            **self._changed(outcome),
            **self._visited(outcome),
        }

    def _changed(self, outcome: Outcome) -> dict[str, Any]:
        """Where something happens to machines."""
        changes = self.plan.scenario.setting.changes
        if not changes:
            return {}
        of = self.plan.scenario
        known = bound_s(of.setting.cards, self.plan.slots, of.hand_ins, changes, usual=of.setting.works)
        seen = outcome.reacted
        told = {BEATS: seen.beats_s, WORKS: seen.works_s, NOTICED: seen.noticed_s}
        return {
            KNOWN: round(outcome.makespan / known, 3) if self.at_once else None,
            **self._lost(outcome),
            **{head: _seconds(value) for head, value in told.items() if value is not None},
        }

    def _lost(self, outcome: Outcome) -> dict[str, Any]:
        """What the loss of a machine took, where one is lost: capacity, and the time that all needed more."""
        of = self.plan.scenario
        gone = {m for m, changes in of.setting.changes.items() if any(not speed for _, speed in changes)}
        if not gone or not self.at_once:
            return {}
        thrown = {m: outcome.thrown_s.get(m, 0.0) for m in gone}
        setting, at_once = of.setting, self.plan.slots
        least = bound_s(setting.cards, at_once, of.hand_ins, setting.changes, thrown, setting.works)
        alone = next((one.makespan for one in self.without if one.way == outcome.way and one.makespan), None)
        return {
            COUNTED: round(outcome.makespan / least, 3),
            LOST_WORK: round(sum(thrown.values())),
            **({LONGER: round(outcome.makespan - alone)} if alone else {}),
            LOST: round(least - self.bound_s),
        }

    def _visited(self, outcome: Outcome) -> dict[str, Any]:
        """Where guests were about."""
        visits = outcome.visits
        if visits is None:
            return {}
        alone = next((one.makespan for one in self.outcomes if one.way == OURS and one.makespan), None)
        return {
            MORE: round(100 * (outcome.makespan / alone - 1), 1) if alone else None,
            ANSWERED: visits.answered,
            BROKEN: sum(visits.broken.values()),
            REFUSED: sum(visits.refused.values()),
        }

    def _interactive(self, outcome: Outcome) -> Outcome:
        """Only those of people who wait, where others do not."""
        hand_ins = self.plan.scenario.hand_ins
        if len({one.priority for one in hand_ins}) < 2:
            return Outcome(outcome.way, ())
        mine = [one for one in outcome.ended if hand_ins[one.number].priority == "interactive"]
        return Outcome(outcome.way, mine)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "scenario": self.plan.scenario.name,
            "hand_ins": len(self.plan.scenario.hand_ins),
            "slots": self.plan.slots,
            "factor": self.plan.factor,
            "at_once": self.plan.at_once,
            "learned_from": self.plan.learn,
            "seed": self.plan.scenario.setting.seed,
            "bound_s": round(self.bound_s, 1),
            "ways": [
                {**row, "wall_s": round(one.wall_s, 1), "done": one.done, **_guests(one)}
                for row, one in zip(self.rows(), self.outcomes, strict=True)
            ],
        }

    def plots(self, folder: Path) -> list[Path]:
        """Bars and curves, written as files."""
        name = self.plan.scenario.name
        if self.at_once:
            rows = [(o.way, o.makespan / self.bound_s) for o in self.outcomes]
            bars = svg.bars(f"{name}: makespan over the bound", rows, "×")
        else:
            rows = [(o.way, o.took(0.95)) for o in self.outcomes]
            bars = svg.bars(f"{name}: p95 from hand-in to grade", rows, "s")
        lines = [(o.way, [one.ended for one in o.ended]) for o in self.outcomes]
        curves = svg.curves(f"{name}: graded by when", lines, "s")
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / f"router-{name}.svg", folder / f"router-{name}-when.svg"]
        for path, content in zip(written, (bars, curves), strict=True):
            path.write_text(content, encoding="utf-8")
        return written


def table(played: Sequence[Played]) -> list[str]:
    """Lines of a Markdown table."""
    rows: list[Mapping[str, Any]] = [row for one in played for row in one.rows()]
    asked = [head for head in SOMETIMES if any(head in row for row in rows)]
    heads = (*HEADS, *asked)
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    return [*lines, *(f"| {' | '.join(_cell(row.get(head)) for head in heads)} |" for row in rows)]


def side_by_side(played: Sequence[Played]) -> list[Played]:
    """Each with what the others made of the same hand-ins with nothing happening to machines."""
    calm = [one for one in played if not one.plan.scenario.setting.changes]

    def without(of: Played) -> Sequence[Outcome]:
        same = (one.outcomes for one in calm if one.plan.scenario.hand_ins == of.plan.scenario.hand_ins)
        return next(same, ())

    return [replace(one, without=without(one)) for one in played]


def _seconds(value: float) -> int | str:
    return round(value) if value < math.inf else NEVER


def _guests(outcome: Outcome) -> dict[str, Any]:
    """What the table has no room for."""
    visits = outcome.visits
    if visits is None:
        return {}
    first = statistics.median(visits.first_s) if visits.first_s else None
    return {
        "guests": {
            "broken": visits.broken,
            "refused": visits.refused,
            "tokens": visits.tokens,
            "first_word_p50_s": first and round(first, 1),
        }
    }


def _cell(value: Any) -> str:
    return "–" if value is None else str(value)
