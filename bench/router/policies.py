"""Routing policies in virtual time: the product's own functions, fixed roles, and what load balancers do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bench.router.cost_model import STAGES, job_s
from bench.router.lower_bound import rates
from bench.router.simulation import PRIORITIES, Key, Machine, Run, Setting, Simulation
from grading.domain.messages import Message
from grading.scheduling.cluster_view import Peer, SpeedProfile, View
from grading.scheduling.routing import decide
from grading.scheduling.speed_estimates import lengths
from grading.scheduling.speed_profile import Learner, Seen, with_guesses

HOME = {
    "dgx-spark-1": "analysis",
    "dgx-spark-2": "analysis",
    "mac-studio-1": "feedback",
    "mac-studio-2": "feedback",
}


_HOMES: dict[tuple[str, int], dict[str, str]] = {}


def homes(setting: Setting) -> dict[str, str]:
    """machine -> its home stage: those of `HOME`; elsewhere the one it does best beside the others."""
    key = setting.cluster_model.name, setting.slots
    if key not in _HOMES:
        of = rates(setting.cards, setting.slots, setting.works)
        all_ = {s: sum(r[s] for r in of.values()) for s in setting.works}
        best = {m: max(r, key=lambda s, r=r: r[s] / all_[s]) for m, r in of.items()}  # type: ignore[misc]
        _HOMES[key] = HOME if set(best) == set(HOME) else best
    return _HOMES[key]


@dataclass
class BasePolicy:
    """The parts of a policy that most do not need."""

    name: str = ""

    def bind(self, simulation: Simulation, run: Run) -> str | None:
        """Nothing is bound early."""
        return None

    def queues(self, simulation: Simulation, machine: Machine) -> tuple[Key, ...]:
        """Nothing is taken from the common queues."""
        return ()

    def peer(self, simulation: Simulation, machine: Machine) -> Peer | None:
        """Nothing is told."""
        return None

    def observed(self, simulation: Simulation, machine: Machine) -> None:
        """Nothing is learned."""

    def began(self, simulation: Simulation, machine: Machine, run: Run) -> None:
        """Nothing is remembered."""

    def ended(self, simulation: Simulation, machine: Machine, run: Run) -> None:
        """Nothing is remembered."""


def _all(*stages: str) -> tuple[Key, ...]:
    return tuple((s, p) for p in PRIORITIES for s in stages)


@dataclass
class HomeFirst(BasePolicy):
    """Late binding: a machine with a free slot takes its home stage, else the other one."""

    name: str = "late binding, home first"

    def queues(self, simulation: Simulation, machine: Machine) -> tuple[Key, ...]:
        """Home first."""
        home = homes(simulation.setting)[machine.name]
        return _all(home, *(s for s in STAGES if s != home))


@dataclass
class Pinned(BasePolicy):
    """The notes: the primary pair, analysis on the Spark and feedback on the Mac; spares idle."""

    name: str = "pinned to the first pair"

    def queues(self, simulation: Simulation, machine: Machine) -> tuple[Key, ...]:
        """The home stage, on primaries."""
        return _all(homes(simulation.setting)[machine.name]) if machine.name.endswith("1") else ()


@dataclass
class EarlyBinding(BasePolicy):
    """Binds each run when it comes, to the machine with the smallest key; ties by lot."""

    key: Callable[[Simulation, Machine, Run], float] = lambda simulation, machine, run: 0.0

    def bind(self, simulation: Simulation, run: Run) -> str | None:
        """The machine with the smallest key of those that are there."""
        alive = [m for m in simulation.machines.values() if m.alive] or list(simulation.machines.values())
        return min(alive, key=lambda m: (self.key(simulation, m, run), simulation.rng.random())).name


@dataclass
class FixedRoles(BasePolicy):
    """Analysis on Sparks, feedback on Macs, in turns, bound when they come."""

    name: str = "fixed roles, round-robin"
    turn: dict[str, int] = field(default_factory=dict)

    def bind(self, simulation: Simulation, run: Run) -> str | None:
        """The next one of this role."""
        home = homes(simulation.setting)
        able = [m for m in simulation.machines if home[m] == run.stage and simulation.machines[m].alive]
        able = able or [m for m in simulation.machines if home[m] == run.stage] or list(simulation.machines)
        self.turn[run.stage] = self.turn.get(run.stage, -1) + 1
        return able[self.turn[run.stage] % len(able)]


def in_hand(simulation: Simulation, machine: Machine, run: Run) -> float:
    """Runs that a machine has and that wait for it."""
    return len(machine.runs) + len(machine.bound)


def same_in_hand(simulation: Simulation, machine: Machine, run: Run) -> float:
    """The same of this run's stage only: a balancer that counts for each model apart."""
    mine = [*machine.runs.values(), *machine.bound]
    return sum(r.stage == run.stage for r in mine)


def shortest_queue() -> EarlyBinding:
    """Join the shortest queue of all four."""
    return EarlyBinding("join shortest queue", in_hand)


def least_busy() -> EarlyBinding:
    """As litellm's least-busy: fewest requests in flight, counted for each model apart."""
    return EarlyBinding("least busy, a model", same_in_hand)


def shuffle() -> EarlyBinding:
    """By lot."""
    return EarlyBinding("random shuffle")


BASELINES: Mapping[str, Callable[[], BasePolicy]] = {
    "home": HomeFirst,
    "pinned": Pinned,
    "fixed": FixedRoles,
    "jsq": shortest_queue,
    "busy": least_busy,
    "shuffle": shuffle,
}


MOST = 1.5
"""What a run may write, over what is usual."""
LearnedSpeeds = Mapping[str, Mapping[str, object]]
"""machine -> stage -> what its learner knew."""


@dataclass
class ProductPolicy(BasePolicy):
    """`grading.scheduling.routing.decide`. With `oracle` speeds are known, else they are learned on the way.

    `said` is what was learned earlier. Who decides knows itself exactly, the others by their heartbeats.
    """

    name: str = "ours"
    oracle: bool = True
    said: LearnedSpeeds = field(default_factory=dict)
    decisions: int = 0
    spent_s: float = 0.0
    why: dict[str, Message] = field(default_factory=dict)
    learners: dict[str, Learner] = field(default_factory=dict)
    _due: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """machine -> stage -> when others were to have begun what it left to them."""

    def queues(self, simulation: Simulation, machine: Machine) -> tuple[Key, ...]:
        """What the machine decides for itself."""
        view = self.view(simulation, machine)
        began = time.perf_counter()
        choice = decide(view)
        self.spent_s += time.perf_counter() - began
        self.decisions += 1
        self.why[machine.name] = choice.why
        self._due[machine.name] = choice.due(simulation.now, self._due.get(machine.name, {}))
        return choice.queues

    def view(self, simulation: Simulation, machine: Machine) -> View:
        """The simulation as this machine saw it last, itself as it is."""
        look = machine.look
        peers = {name: heartbeat.peer for name, heartbeat in look.heartbeats.items() if heartbeat.peer}
        peers[machine.name] = self.peer(simulation, machine)
        return View(
            me=machine.name,
            peers=with_guesses(peers),
            waiting={key: max(0, count - machine.since[key]) for key, count in look.lengths.items()},
            backlog=look.backlog,
            waits_s=look.oldest_s,
            late_s={s: simulation.now - at for s, at in self._due.get(machine.name, {}).items()},
            taken=machine.taken,
        )

    def peer(self, simulation: Simulation, machine: Machine) -> Peer:
        """A machine as it knows itself now."""
        running = Counter(run.stage for run in machine.runs.values())
        if self.oracle:
            profiles = {
                s: replace(p, health=machine.emulator.speed)
                for s, p in known(simulation.setting, machine.name).items()
            }
            remaining = self._remains(simulation, machine)
        else:
            learner = self._learner(machine)
            profiles, told = learner.speed_profiles(simulation.now, machine.slots), learner.remaining()
            remaining = {s: told.get(s, float(count)) for s, count in running.items()}
        return Peer(
            machine.name,
            machine.slots,
            tuple(STAGES),
            speed_profiles=profiles,
            running=running,
            remaining=remaining,
        )

    def _remains(self, simulation: Simulation, machine: Machine) -> dict[str, float]:
        tokens, remaining = machine.emulator.snapshot(simulation.now).tokens, dict.fromkeys(STAGES, 0.0)
        for name, run in machine.runs.items():
            remaining[run.stage] += max(
                0.05, 1 - tokens.get(name, 0) / simulation.setting.works[run.stage].output
            )
        return remaining

    def observed(self, simulation: Simulation, machine: Machine) -> None:
        """The learner looks at the runs in hand, unless speeds are known."""
        if not self.oracle:
            learner = self._learner(machine)
            learner.expect(lengths(machine.name, self.view(simulation, machine).peers))
            learner.sample(simulation.now, self._seen(simulation, machine))

    def began(self, simulation: Simulation, machine: Machine, run: Run) -> None:
        """It looks when a run begins, too."""
        if not self.oracle:
            self._learner(machine).sample(simulation.now, self._seen(simulation, machine))

    def ended(self, simulation: Simulation, machine: Machine, run: Run) -> None:
        """And when one ends."""
        if not self.oracle:
            seen = self._seen(simulation, machine)
            self._learner(machine).sample(simulation.now, seen)
            mine = next(one for one in seen if one.run == run.request.id)
            self._learner(machine).ended(simulation.now, mine, ok=True, seconds=simulation.now - run.began)

    def _seen(self, simulation: Simulation, machine: Machine) -> list[Seen]:
        tokens = machine.emulator.snapshot(simulation.now).tokens
        found = []
        for name, run in machine.runs.items():
            wrote = run.request.output if run.done <= simulation.now else tokens.get(name, 0)
            reads = name in tokens or wrote
            phase = "writing" if wrote else "reading" if reads else "waiting"
            most = round(MOST * simulation.setting.works[run.stage].output)
            found.append(Seen(name, run.stage, phase, wrote, most))  # type: ignore[arg-type]
        return found

    def _learner(self, machine: Machine) -> Learner:
        if machine.name not in self.learners:
            learner = self.learners[machine.name] = Learner(machine.slots, dict.fromkeys(STAGES))
            for stage, said in self.said.get(machine.name, {}).items():
                learner.restore(stage, said)
        return self.learners[machine.name]

    def said_by(self) -> LearnedSpeeds:
        """What was learned."""
        return {m: {s: learner.dump(s) for s in STAGES} for m, learner in self.learners.items()}


_KNOWN: dict[tuple[str, str, int], Mapping[str, SpeedProfile]] = {}


def known(setting: Setting, name: str) -> Mapping[str, SpeedProfile]:
    """A machine's true speeds."""
    key = (setting.cluster_model.name, name, setting.slots)
    if key not in _KNOWN:
        card, slots = setting.cards[name], setting.slots
        _KNOWN[key] = {
            s: SpeedProfile(job_s(card, w, 1), job_s(card, w, slots), slots, tokens=w.output, seen=100)
            for s, w in setting.works.items()
        }
    return _KNOWN[key]
