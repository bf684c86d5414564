"""How near an expected time can come at best: `python -m bench.cluster.eta_floor`.

Somebody who knows the machines, the rule and all state exactly, but of answers that are not written yet only
how long such answers are, plays the same cluster on many times and says the median. `later known`: who comes
later is known, too; else others come as often as in the last minutes. Errors of the product at the same looks
stand beside.
"""

from __future__ import annotations

import argparse
import copy
import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import cast

from bench.cluster.cards import STAGES
from bench.cluster.costs import Box
from bench.cluster.eta_study import COMING_S, Errors, Told, Watched, errors
from bench.cluster.ours import Ours
from bench.cluster.scenarios import SCENARIOS, Scenario, hand_in
from bench.cluster.simulate import quantile, warm
from bench.cluster.world import Cluster, Run
from bench.cluster.worlds import OWN

KINDS = ("handed_in", "waiting", "running")


def length(rng: random.Random, stage: str, written: int) -> int:
    """Tokens of an answer that has so many already."""
    usual = STAGES[stage].output
    for _ in range(1000):
        tokens = round(usual * rng.lognormvariate(-(OWN.spread**2) / 2, OWN.spread))
        if tokens > written:
            return tokens
    return written + max(1, round(0.02 * usual))


def rewrite(box: Box, outputs: Mapping[str, int]) -> None:
    """Give requests in hand other lengths, request -> tokens, each more than it has written so far."""
    for name, output in outputs.items():
        if job := box._jobs.get(name):
            job.request = replace(job.request, output=output)
        if asked := box._waiting.get(name):
            box._waiting[name] = replace(asked, output=output)
    decoding = [j for j in box._jobs.values() if not j.reading]
    box._ends = [(j.begun + j.request.output, i, j.request.id) for i, j in enumerate(decoding)]
    heapq.heapify(box._ends)
    box._count = max(box._count, len(box._ends))
    box._batch()


@dataclass
class Floor:
    """What would be said at best, later arrivals known and not."""

    known: Errors = field(default_factory=Errors)
    unknown: Errors = field(default_factory=Errors)
    product: Errors = field(default_factory=Errors)
    """At the same looks."""


class _Twin(Cluster):
    """As good as the cluster, and quicker: nobody decides as long as nothing waits."""

    def _queue(self, run: Run, *, again: bool = False) -> None:
        run.sent = self.now
        line = self.queues[run.stage, run.priority]
        line.appendleft(run) if again else line.append(run)
        self._awake = dict.fromkeys(self.machines)

    def _serve(self) -> None:
        if not any(self.queues.values()):
            self._awake = {}
        super()._serve()

    def play(self, runs: Sequence[Run]) -> None:
        """On until these are done."""
        self._release()
        self._serve()
        while any(run.done == math.inf for run in runs):
            self.step()


class Knowing(Watched):
    """Looks now and then with all knowledge that there can be."""

    def prepare(self, every: int, handed_in: int, plays: int) -> None:
        """One look in `every`, and one hand-in in so many; each is played so often."""
        self.floor = Floor()
        self._every = {"handed_in": handed_in, "waiting": every, "running": every}
        self._seen_of = dict.fromkeys(KINDS, 0)
        self._plays = plays
        self._lot = random.Random(self.setting.seed)

    def _predict(self, hand_ins: Sequence[int], into: list[Told]) -> None:
        before = len(into)
        super()._predict(hand_ins, into)
        kind = next(k for k in KINDS if getattr(self.errors, k) is into)
        self._seen_of[kind] += 1
        if len(into) == before or self._seen_of[kind] % self._every[kind]:
            return
        getattr(self.floor.product, kind).extend(into[before:])
        for errors_of, known in ((self.floor.known, True), (self.floor.unknown, False)):
            ends: dict[int, list[float]] = {}
            for _ in range(self._plays):
                for number, end in self._played({n for n, _, _ in into[before:]}, known).items():
                    ends.setdefault(number, []).append(end)
            getattr(errors_of, kind).extend((n, self.now, median(of)) for n, of in ends.items())

    def _played(self, hand_ins: set[int], later_known: bool) -> dict[int, float]:
        """hand-in -> seconds to its end in one play with other lengths."""
        twin = self._twin()
        for run in twin.runs:
            self._lengthen(twin, run)
        for machine in twin.machines.values():
            rewrite(machine.box, {name: run.request.output for name, run in machine.runs.items()})
        if not later_known:
            self._others_later(twin)
        mine = [run for run in twin.runs if run.hand_in in hand_ins]
        twin.play(mine)
        found: dict[int, float] = {}
        for run in mine:
            found[run.hand_in] = max(found.get(run.hand_in, 0.0), run.done - self.now)
        return found

    def _twin(self) -> _Twin:
        """A copy of the cluster as it is, which nobody watches."""
        policy = cast(Ours, self.policy)
        healths, policy.healths = policy.healths, []
        twin = _Twin.__new__(_Twin)
        kept = {k: v for k, v in vars(self).items() if k in _WORLD}
        kept["runs"] = [run for run in self.runs if run.done > self.now]
        twin.__dict__.update(copy.deepcopy(kept))
        twin._agenda = [one for one in twin._agenda if one[2] != "watch"]
        twin.rng = random.Random(self._lot.random())
        policy.healths = healths
        return twin

    def _lengthen(self, twin: _Twin, run: Run) -> None:
        machine = twin.machines.get(run.machine)
        written = machine.box.snapshot().tokens.get(run.request.id, 0) if machine else 0
        run.request = replace(run.request, output=length(self._lot, run.stage, written))

    def _others_later(self, twin: _Twin) -> None:
        """Others come instead of those who do, as often as lately."""
        twin._agenda = [one for one in twin._agenda if one[2] != "arrives"]
        recent = [p for at, p in self.came if at > self.now - COMING_S]
        span = min(COMING_S, max(self.now, 60.0))
        for priority in sorted(set(recent)):
            at, rate = self.now, recent.count(priority) / span
            for number in range(int(rate * 3 * COMING_S) + 1):
                at += self._lot.expovariate(rate)
                made = twin._runs_of(10**6 + number, hand_in(self._lot, at, priority))
                twin._plan(at, "arrives", made)
        twin._agenda.sort()


_WORLD = (
    "setting", "policy", "now", "machines", "queues", "backlog", "open", "_agenda", "_number", "_awake",
)  # fmt: skip


def study(scenario: Scenario, *, every: int, handed_in: int, plays: int) -> list[str]:
    """Rows of the table."""
    policy = Ours(oracle=False, said=warm(scenario))
    cluster = Knowing(scenario.setting, scenario.hand_ins, policy)
    cluster.prepare(every, handed_in, plays)
    cluster.watch()
    rows = []
    for name, of in vars(cluster.floor).items():
        row = f"{scenario.name:12} {name:8}"
        for kind in KINDS:
            sizes, signed = errors(cluster, getattr(of, kind))
            middle = (median(sizes), quantile(sizes, 0.9), median(signed)) if sizes else (0.0, 0.0, 0.0)
            row += f"  {len(sizes):6} {middle[0]:6.1%} {middle[1]:6.1%} {middle[2]:+6.1%}"
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.eta_floor", description=__doc__)
    parser.add_argument("--scenario", nargs="*", default=["poisson50"], choices=[*SCENARIOS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=8, help="one look in so many")
    parser.add_argument("--handed-in", type=int, default=4, help="one hand-in in so many")
    parser.add_argument("--plays", type=int, default=9)
    chosen = parser.parse_args(arguments)
    for name in chosen.scenario:
        scenario = SCENARIOS[name](16, chosen.seed)
        rows = study(scenario, every=chosen.every, handed_in=chosen.handed_in, plays=chosen.plays)
        print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
