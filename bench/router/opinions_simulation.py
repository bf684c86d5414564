"""Second opinions in virtual time: the same simulation, where idle machines rate again what is graded.

As `workers.server.second_opinions` does it: at each sweep, and when an opinion ends, machines without a run
of grading get as many as they have places for, unless anything of grading waits; a run of grading that begins
on a machine cancels those there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.router.emulator import Event, Refused, Request
from bench.router.policies import homes
from bench.router.simulation import SWEEP_S, Arrival, Machine, Policy, Run, Setting, Simulation
from grading.broker.dispatch import most_in_background


@dataclass
class Opinion:
    """A second opinion on one stage of a submission."""

    request: Request
    stage: str
    """That is rated again."""
    machine: str = ""
    sent: int = 0
    done: float = math.inf


class OpinionsSimulation(Simulation):
    """Ends when all is graded and every second opinion came."""

    def __init__(self, setting: Setting, arrivals: Iterable[Arrival], policy: Policy) -> None:
        self.opinions: dict[str, Opinion] = {}
        self.given_back = 0
        self._wanted: list[Opinion] = []
        self._left = 0
        self._free = False
        """A second opinion ended."""
        super().__init__(setting, arrivals, policy)
        self._left = self.open
        self._plan(0.0, "sweeps", "")

    def finish(self) -> None:
        """Until everything is graded and rated again."""
        while self.open or self._left:
            self.step()

    def told(self) -> str:
        """What came of them, in a few words."""
        last = max((one.done for one in self.opinions.values()), default=0.0)
        return f"{len(self.opinions)} second opinions until {last:.0f} s, {self.given_back} given back"

    def _happens(self, what: str, about: object) -> None:
        if what == "sweeps":
            self._send()
            self._plan(self.now + SWEEP_S, "sweeps", "")
        super()._happens(what, about)

    def _begin(self, machine: Machine, run: Run) -> None:
        for name, opinion in self.opinions.items():
            if opinion.machine == machine.name:
                machine.emulator.cancel(self.now, name)
                opinion.machine = ""
                self._wanted.append(opinion)
                self.given_back += 1
        super()._begin(machine, run)

    def _background(self, machine: Machine, event: Event) -> None:
        opinion = self.opinions[event.id]
        if event.kind == "done" and opinion.machine == machine.name:
            opinion.done, opinion.machine = event.at, ""
            self._left -= 1
            self._free = True

    def step(self) -> None:
        """On to the next thing that happens."""
        super().step()
        if self._free:
            self._free = False
            self._send()

    def _send(self) -> None:
        if any(self.queues.values()) or any(self.backlog.values()):
            return
        self._plan_graded()
        for machine in self.machines.values():
            if machine.alive and not machine.runs:
                self._fill(machine)

    def _plan_graded(self) -> None:
        """What is graded by now, stage by stage, as in SQL."""
        ends: dict[int, list[Run]] = {}
        for run in self.runs:
            ends.setdefault(run.arrival, []).append(run)
        for number, runs in ends.items():
            if f"{number}-again-{runs[0].stage}" in self.opinions:
                continue
            if all(run.done <= self.now for run in runs):
                for run in runs:
                    self._want(number, run)

    def _want(self, number: int, run: Run) -> None:
        name = f"{number}-again-{run.stage}"
        opinion = Opinion(replace(run.request, id=name), run.stage)
        self.opinions[name] = opinion
        self._wanted.append(opinion)

    def _fill(self, machine: Machine) -> None:
        home = homes(self.setting)[machine.name]
        work = self.setting.works[home]
        busy = sum(one.machine == machine.name for one in self.opinions.values())
        for opinion in [one for one in self._wanted if one.stage != home]:
            if busy >= most_in_background(machine.slots):
                return
            asked = replace(opinion.request, model=work.model.name, prompt=work.prompt, shared=work.shared)
            if isinstance(machine.emulator.submit(self.now, asked), Refused):
                return
            opinion.machine, opinion.sent = machine.name, opinion.sent + 1
            self._wanted.remove(opinion)
            busy += 1
