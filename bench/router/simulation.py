"""Simulates a cluster in virtual time: submissions arrive, machines take runs, emulators do them."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bench.router.cost_model import OWN, STAGES, Card, ClusterModel, Work
from bench.router.emulator import Emulator, Event, Refused, Request
from grading.scheduling.cluster_view import Peer

PRIORITIES = ("interactive", "batch")
Key = tuple[str, str]
"""(stage, priority): a queue."""


@dataclass(frozen=True)
class Arrival:
    """What is to be graded: when it comes, who waits for it, and how much each stage will write."""

    at: float
    output: Mapping[str, int]
    """stage -> output tokens."""
    priority: str = "batch"
    course: str = "course"


@dataclass(eq=False)
class Run:
    """One stage of one submission."""

    arrival: int
    stage: str
    priority: str
    request: Request
    came: float
    """When it was submitted."""
    sent: float = 0.0
    """When it came into its queue."""
    began: float = 0.0
    done: float = math.inf
    machine: str = ""


@dataclass(frozen=True)
class Heartbeat:
    """A machine's heartbeat."""

    at: float
    peer: Peer | None
    """Only where the policy wants to know."""


@dataclass(frozen=True)
class Observation:
    """What a machine knew of the cluster at some moment."""

    at: float = -math.inf
    heartbeats: Mapping[str, Heartbeat] = field(default_factory=dict)
    lengths: Mapping[Key, int] = field(default_factory=dict)
    oldest_s: Mapping[str, float] = field(default_factory=dict)
    backlog: Mapping[Key, int] = field(default_factory=dict)


@dataclass
class Machine:
    """A worker and its emulator."""

    name: str
    card: Card
    emulator: Emulator
    slots: int
    runs: dict[str, Run] = field(default_factory=dict)
    bound: deque[Run] = field(default_factory=deque)
    """Runs that were bound to it before it had a slot."""
    heartbeat: Heartbeat | None = None
    look: Observation = Observation()
    taken: int = 0
    since: Counter[Key] = field(default_factory=Counter)
    """Runs taken from each queue since its last observation."""
    listens: tuple[Key, ...] = ()
    """Queues it blocks on."""

    @property
    def alive(self) -> bool:
        """Whether it works at all, which the others learn by its heartbeats only."""
        return self.emulator.speed > 0

    @property
    def free(self) -> int:
        """Slots that are free."""
        return max(0, self.slots - len(self.runs)) if self.alive else 0

    def running(self) -> Counter[str]:
        """stage -> runs in hand."""
        return Counter(run.stage for run in self.runs.values())


@dataclass(frozen=True)
class Setting:
    """The machines and what happens to them."""

    slots: int = 16
    cluster_model: ClusterModel = OWN
    changes: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """machine -> (time, speed)s; speed 0: dead."""
    seed: int = 1
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """machine -> models loaded at the start; those that are not named have both."""
    release: Literal["any", "all", "everything"] = "any"
    """Rounds leave SQL while any stage's queue has room, as in the product; or all have; or at once."""
    deepest: int = 8
    """No queue gets longer than this many times the live slots, as in `grading.broker.dispatch`."""

    @property
    def cards(self) -> Mapping[str, Card]:
        """machine -> card."""
        return self.cluster_model.cards

    @property
    def works(self) -> Mapping[str, Work]:
        """stage -> its usual job."""
        return self.cluster_model.works


__all__ = [
    "PRIORITIES",
    "Heartbeat",
    "Simulation",
    "Arrival",
    "Key",
    "Observation",
    "Machine",
    "Policy",
    "Run",
    "Setting",
]
HEARTBEAT_S, LOOK_S, DEAD_AFTER_S, SWEEP_S = 3.0, 1.0, 10.0, 5.0


class Policy(Protocol):
    """A routing policy. Each object serves one simulation."""

    name: str

    def bind(self, simulation: Simulation, run: Run) -> str | None:
        """The machine that gets this run at once, or None: it waits for a machine with a free slot."""

    def queues(self, simulation: Simulation, machine: Machine) -> tuple[Key, ...]:
        """Which queues a machine with a free slot takes from now, first ones first."""

    def peer(self, simulation: Simulation, machine: Machine) -> Peer | None:
        """What a machine's heartbeat says."""

    def observed(self, simulation: Simulation, machine: Machine) -> None:
        """A machine has read the others' heartbeats; once a second."""

    def began(self, simulation: Simulation, machine: Machine, run: Run) -> None:
        """A run begins on a machine."""

    def ended(self, simulation: Simulation, machine: Machine, run: Run) -> None:
        """A run is done."""


class Simulation:
    """One simulation; `finish` runs it to its end."""

    def __init__(self, setting: Setting, arrivals: Iterable[Arrival], policy: Policy) -> None:
        self.setting, self.policy = setting, policy
        self.rng = random.Random(setting.seed)
        self.now = 0.0
        self.machines = {
            name: Machine(name, card, self._emulator(name, card), setting.slots)
            for name, card in setting.cards.items()
        }
        self.queues: dict[Key, deque[Run]] = {(s, p): deque() for p in PRIORITIES for s in STAGES}
        self.backlog: dict[str, deque[list[Run]]] = {p: deque() for p in PRIORITIES}
        self.runs: list[Run] = []
        self.open = 0
        self._agenda: list[tuple[float, int, str, object]] = []
        self._number = 0
        for i, one in enumerate(sorted(arrivals, key=lambda h: h.at)):
            self._plan(one.at, "arrives", self._runs_of(i, one))
            self.open += len(one.output)
        for name in self.machines:
            self._plan(self.rng.uniform(0, 0.05), "heartbeats", name)
            self._plan(self.rng.uniform(0.05, 0.1), "looks", name)
        self._awake: dict[str, None] = dict.fromkeys(self.machines)
        for machine in self.machines.values():  # they have been up for a while when the work comes
            machine.heartbeat = Heartbeat(0.0, policy.peer(self, machine))
        for machine in self.machines.values():
            machine.look = self._seen()

    def _emulator(self, name: str, card: Card) -> Emulator:
        return Emulator(
            card,
            self.setting.slots,
            changes=self.setting.changes.get(name, ()),
            models=tuple({work.model.name: work.model for work in self.setting.works.values()}.values()),
            loaded=self.setting.models.get(name),
        )

    def _runs_of(self, number: int, one: Arrival) -> list[Run]:
        runs = []
        for stage, output in one.output.items():
            work = self.setting.works[stage]
            asked = Request(
                f"{number}-{stage}", work.model.name, work.prompt, max(1, output), one.course, work.shared
            )
            runs.append(Run(number, stage, one.priority, asked, one.at))
        self.runs += runs
        return runs

    def finish(self) -> None:
        """Until everything is graded."""
        while self.open:
            self.step()

    def step(self) -> None:
        """On to the next thing that happens."""
        events = [(m.emulator.next_event(), m) for m in self.machines.values()]
        due = min(at for at, _ in events)
        self.now = max(self.now, min(due, self._agenda[0][0]))
        for at, machine in events:
            if at <= self.now:
                self._advance(machine)
        while self._agenda and self._agenda[0][0] <= self.now:
            _, _, what, about = heapq.heappop(self._agenda)
            self._happens(what, about)
        self._release()
        self._serve()

    def _plan(self, at: float, what: str, about: object) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (at, self._number, what, about))

    def _happens(self, what: str, about: object) -> None:
        if what == "arrives" and isinstance(about, list):
            self._arrives(about)
        elif what == "back" and isinstance(about, Run):
            name = self.policy.bind(self, about)
            if name is None:
                self._queue(about, again=True)
            else:
                self._bind(about, name)
        elif what == "heartbeats" and isinstance(about, str):
            machine = self.machines[about]
            if machine.alive:
                machine.heartbeat = Heartbeat(self.now, self.policy.peer(self, machine))
            self._plan(self.now + HEARTBEAT_S, "heartbeats", about)
        elif what == "looks" and isinstance(about, str):
            machine = self.machines[about]
            if machine.alive:
                machine.look = self._seen()
                machine.since = Counter()
                self.policy.observed(self, machine)
            self._awake[about] = None
            self._plan(self.now + LOOK_S, "looks", about)

    def _arrives(self, runs: list[Run]) -> None:
        names = [(run, self.policy.bind(self, run)) for run in runs]
        for run, name in names:
            if name is not None:
                self._bind(run, name)
        if late := [run for run, name in names if name is None]:
            self.backlog[late[0].priority].append(late)

    def _bind(self, run: Run, name: str) -> None:
        run.sent = self.now
        self.machines[name].bound.append(run)
        self._awake[name] = None

    def _seen(self) -> Observation:
        heartbeats = {
            m.name: m.heartbeat
            for m in self.machines.values()
            if m.heartbeat is not None and self.now - m.heartbeat.at <= DEAD_AFTER_S
        }
        oldest = {
            s: max((self.now - q[0].sent for (t, _), q in self.queues.items() if t == s and q), default=0.0)
            for s in STAGES
        }
        waits = Counter((r.stage, p) for p, rounds in self.backlog.items() for runs in rounds for r in runs)
        return Observation(self.now, heartbeats, {k: len(q) for k, q in self.queues.items()}, oldest, waits)

    def _release(self) -> None:
        """As `Dispatch.room`: queues are filled up to twice the live slots once they fell to half of that."""
        slots = sum(m.slots for m in self.machines.values() if m.alive)
        for priority in PRIORITIES:
            waiting = self.backlog[priority]
            if not waiting:
                continue
            lengths = [len(self.queues[s, priority]) for s in STAGES]
            rooms = [2 * slots - n if n <= slots else 0 for n in lengths]
            deepest = max(0, self.setting.deepest * slots - max(lengths))
            room = {"any": min(max(rooms), deepest), "all": min(rooms), "everything": len(waiting)}
            for _ in range(min(room[self.setting.release], len(waiting))):
                for run in waiting.popleft():
                    self._queue(run)

    def _queue(self, run: Run, *, again: bool = False) -> None:
        """Into its queue; who blocks on it longest has it at once. One that had its turn is next."""
        run.sent, key = self.now, (run.stage, run.priority)
        blocked = [m for m in self.machines.values() if key in m.listens and m.free]
        if blocked:
            self._begin(min(blocked, key=lambda m: m.look.at), run)
        elif again:
            self.queues[key].appendleft(run)
        else:
            self.queues[key].append(run)

    def _serve(self) -> None:
        """Machines with free slots take one run after the other, in turns."""
        while self._awake:
            names, self._awake = list(self._awake), {}
            self.rng.shuffle(names)
            for name in names:
                machine = self.machines[name]
                machine.listens = ()
                if not machine.free:
                    continue
                if machine.bound:
                    self._begin(machine, machine.bound.popleft())
                    continue
                keys = self.policy.queues(self, machine)
                for key in keys:
                    if self.queues[key]:
                        self._begin(machine, self.queues[key].popleft())
                        break
                else:
                    machine.listens = keys

    def _begin(self, machine: Machine, run: Run) -> None:
        answer = machine.emulator.submit(self.now, run.request)
        if isinstance(answer, Refused):
            self._plan(self.now + 1.0, "back", run)
            return
        run.machine, run.began = machine.name, self.now
        machine.runs[run.request.id] = run
        machine.taken += 1
        machine.since[run.stage, run.priority] += 1
        machine.listens = ()
        self._awake[machine.name] = None
        self.policy.began(self, machine, run)

    def _advance(self, machine: Machine) -> None:
        for event in machine.emulator.advance(self.now):
            if event.id not in machine.runs:
                self._background(machine, event)
            elif event.kind == "done":
                run = machine.runs[event.id]
                run.done = event.at
                self.open -= 1
                self.policy.ended(self, machine, run)
                del machine.runs[event.id]
            elif event.kind == "lost":
                self._lost(machine.runs.pop(event.id))
        while machine.bound and not machine.alive:
            # who bound it is refused a connection, and asks another one
            self._plan(self.now + 1.0, "back", machine.bound.popleft())
        self._awake[machine.name] = None

    def _background(self, machine: Machine, event: Event) -> None:
        """What happened to a request that is none of grading."""

    def _lost(self, run: Run) -> None:
        """A dead machine's run: found by the sweeper once heartbeats are overdue."""
        self._plan(self.now + DEAD_AFTER_S + self.rng.uniform(0, SWEEP_S), "back", run)
