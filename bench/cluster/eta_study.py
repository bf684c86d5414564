"""How far expected times are off, in virtual time with learned speeds: `python -m bench.cluster.eta_study`.

It predicts for each hand-in when it comes, and for all open ones every 30 s; the error is how far off that
is, as a part of the time that it took from there.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from bench.cluster.cards import STAGES
from bench.cluster.ours import Ours
from bench.cluster.scenarios import SCENARIOS, Scenario
from bench.cluster.simulate import quantile, warm
from bench.cluster.world import PRIORITIES, Cluster, Run
from grading.scheduling.eta import Forecast, Line, Running, Scene, forecast, left_of
from grading.scheduling.speed_profile import with_guesses

EVERY_S = 30.0
COMING_S = 300.0
Told = tuple[int, float, float]
"""A hand-in, when it was told, and the seconds to go that were told."""
DEFAULT = ("poisson50", "poisson80", "poisson95", "backlog400", "spike")


@dataclass
class Errors:
    """What was predicted: (hand-in, when, seconds to go)."""

    handed_in: list[Told] = field(default_factory=list)
    waiting: list[Told] = field(default_factory=list)
    """While a stage waits."""
    running: list[Told] = field(default_factory=list)
    """While all that is left is under way."""
    forecasts: int = 0
    spent_s: float = 0.0


class Watched(Cluster):
    """A cluster somebody looks at."""

    def watch(self) -> Errors:
        """Run to the end; what was predicted on the way."""
        self.errors = Errors()
        self.came: list[tuple[float, str]] = []
        self.mine: dict[int, list[Run]] = {}
        for run in self.runs:
            self.mine.setdefault(run.hand_in, []).append(run)
        self._new: list[int] = []
        self._plan(EVERY_S, "watch", None)
        self.finish()
        return self.errors

    def _happens(self, what: str, about: object) -> None:
        if what != "watch":
            super()._happens(what, about)
            return
        came = {n: of for n, of in self.mine.items() if of[0].came < self.now}
        waiting = [n for n, of in came.items() if any(not run.machine for run in of)]
        self._predict(waiting, self.errors.waiting)
        self._predict([n for n in came if n not in set(waiting)], self.errors.running)
        self._plan(self.now + EVERY_S, "watch", None)

    def _arrives(self, runs: list[Run]) -> None:
        super()._arrives(runs)
        self.came.append((self.now, runs[0].priority))
        self._new.append(runs[0].hand_in)

    def _release(self) -> None:
        if self._new:
            new, self._new = self._new, []
            self._predict(new, self.errors.handed_in)
        super()._release()

    def _predict(self, hand_ins: Sequence[int], into: list[Told]) -> None:
        still = [n for n in hand_ins if any(run.done > self.now for run in self.mine[n])]
        if not still:
            return
        began = time.perf_counter()
        lines, seen = self._lines(), self._forecast()
        self.errors.forecasts += 1
        self.errors.spent_s += time.perf_counter() - began
        for number in still:
            ends = [self._end(run, lines, seen) for run in self.mine[number] if run.done > self.now]
            if known := [end for end in ends if end is not None]:
                into.append((number, self.now, max(known)))

    def _end(self, run: Run, lines: dict[Line, dict[str, int]], seen: Forecast) -> float | None:
        if run.request.id in seen.runs:
            return seen.runs[run.request.id]
        ahead = lines[run.stage, run.priority].get(run.request.id)
        return None if ahead is None else seen.waiting(run.stage, run.priority, ahead)

    def _lines(self) -> dict[Line, dict[str, int]]:
        found: dict[Line, dict[str, int]] = {}
        for (stage, priority), queue in self.queues.items():
            later = [r for runs in self.backlog[priority] for r in runs if r.stage == stage]
            found[stage, priority] = {r.request.id: i for i, r in enumerate([*queue, *later])}
        return found

    def _forecast(self) -> Forecast:
        look = self._seen()
        beats = {n: beat.peer for n, beat in look.beats.items() if beat.peer}
        told = {n: self.policy.peer(self, m) for n, m in self.machines.items()} if not beats else {}
        peers = with_guesses(beats | {n: one for n, one in told.items() if one is not None})
        running = []
        for machine in self.machines.values():
            if machine.name not in peers:
                continue
            tokens, at_once = machine.box.snapshot(self.now).tokens, machine.running()
            for name, run in machine.runs.items():
                pace, since = peers[machine.name].paces.get(run.stage), self.now - run.began
                left = left_of(tokens.get(name, 0), pace, since, at_once[run.stage])
                running.append(Running(name, machine.name, run.stage, left))
        waiting = {line: len(of) for line, of in self._lines().items()}
        recent = Counter(p for at, p in self.came if at > self.now - COMING_S)
        span = min(COMING_S, max(self.now, 60.0))
        arriving = {(s, p): recent[p] / span for p in PRIORITIES for s in STAGES if self.now > 0}
        return forecast(Scene(peers, running, waiting, arriving))


def errors(cluster: Watched, told: Sequence[Told]) -> tuple[list[float], list[float]]:
    """The relative errors, and the same with their signs; of at least 5 s that were to go."""
    found = []
    for number, at, seconds in told:
        actual = max(run.done for run in cluster.mine[number]) - at
        if actual >= 5.0:
            found.append((seconds - actual) / actual)
    return [abs(one) for one in found], found


def of_the_whole(cluster: Watched, told: Sequence[Told]) -> list[float]:
    """Absolute errors as parts of the whole time from handing in to the grade."""
    found = []
    for number, at, seconds in told:
        came, done = cluster.mine[number][0].came, max(run.done for run in cluster.mine[number])
        if done - at >= 5.0:
            found.append(abs(seconds - (done - at)) / (done - came))
    return found


def pooled(groups: Sequence[Sequence[float]]) -> float:
    """The median over all groups, each of which weighs as much as any other."""
    weighed = sorted((value, 1.0 / len(group)) for group in groups for value in group)
    half, reached = sum(weight for _, weight in weighed) / 2, 0.0
    for value, weight in weighed:
        reached += weight
        if reached >= half:
            return value
    return 0.0


def study(scenario: Scenario, *, learned: bool) -> tuple[str, Sequence[Sequence[float]]]:
    """A row of the table; errors at handing in, while anything waits, of all looks, of the whole time."""
    policy = Ours(oracle=not learned, said=warm(scenario) if learned and not scenario.cold else {})
    cluster = Watched(scenario.setting, scenario.hand_ins, policy)
    watched = cluster.watch()
    row = f"{scenario.name:12}"
    for told in (watched.handed_in, watched.waiting, watched.running):
        sizes, signed = errors(cluster, told)
        middle = (median(sizes), quantile(sizes, 0.9), median(signed)) if sizes else (0.0, 0.0, 0.0)
        row += f"  {len(sizes):6} {middle[0]:6.1%} {middle[1]:6.1%} {middle[2]:+6.1%}"
    each = 1000 * watched.spent_s / max(1, watched.forecasts)
    handed_in, waiting, running = (
        errors(cluster, told)[0] for told in (watched.handed_in, watched.waiting, watched.running)
    )
    every = [*handed_in, *waiting, *running]
    whole = of_the_whole(cluster, [*watched.handed_in, *watched.waiting, *watched.running])
    return row + f"  {each:5.1f} ms", (handed_in, [*handed_in, *waiting], every, whole)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.eta_study", description=__doc__)
    parser.add_argument("--scenario", nargs="*", default=list(DEFAULT), choices=[*SCENARIOS])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--oracle", action="store_true", help="speeds are known, not learned")
    parser.add_argument("--release", default="any", choices=["all", "any", "everything"])
    chosen = parser.parse_args(arguments)
    head = "  number median    p90   bias"
    print(f"{'':12}{'at handing in':>29}{'while it waits':>29}{'while it runs':>29}")
    print(f"{'':12}{head}{head}{head}  a forecast")
    found = []
    for name in chosen.scenario:
        for seed in range(1, chosen.seeds + 1):
            scenario = SCENARIOS[name](chosen.slots, seed)
            scenario = replace(scenario, setting=replace(scenario.setting, release=chosen.release))
            row, sizes = study(scenario, learned=not chosen.oracle)
            found.append(sizes)
            print(row, flush=True)
    names = ("at handing in", "till all is under way", "all looks", "all looks, of the whole time")
    print("pooled, each scenario alike:", end="")
    print(
        ", ".join(
            f" {name} {pooled(of):.1%}" for name, of in zip(names, zip(*found, strict=True), strict=True)
        )
    )


if __name__ == "__main__":
    main()
