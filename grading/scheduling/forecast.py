"""Forecast of the queue: when each waiting run starts and ends, by a simulation of the machines."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grading.scheduling.cluster_view import BATCH, INTERACTIVE, Peer, SpeedProfile, View
from grading.scheduling.routing import decide, rate, seconds


class SimulatedMachine:
    """A machine in play. All runs of a stage there go equally fast, so one clock a stage is enough."""

    def __init__(self, peer: Peer) -> None:
        """With nothing in hand."""
        self.peer = replace(peer, running={}, remaining={})
        self.load_s = dict(peer.load_s)
        self.clock = dict.fromkeys(peer.speed_profiles, 0.0)
        self.runs: dict[str, list[tuple[float, int]]] = {stage: [] for stage in peer.speed_profiles}
        """stage -> (the clock at its end, its ticket), as a heap."""
        self.taken = 0
        self.due: Mapping[str, float] = {}
        self._known: dict[tuple[int, ...], dict[str, float]] = {}

    @property
    def free(self) -> int:
        """Runs it would begin at once."""
        return self.peer.slots - sum(map(len, self.runs.values()))

    def as_peer(self) -> Peer:
        """As the others see it."""
        running = {s: len(of) for s, of in self.runs.items() if of}
        remaining = {s: sum(end - self.clock[s] for end, _ in self.runs[s]) for s in running}
        return replace(self.peer, running=running, remaining=remaining, load_s=self.load_s)

    def speeds(self) -> dict[str, float]:
        """stage -> jobs a second of each of its runs, in the batch as it is."""
        counts = tuple(map(len, self.runs.values()))
        if counts not in self._known:
            self._known[counts] = {s: 1.0 / seconds(self._beside(s), s) for s, of in self.runs.items() if of}
        return self._known[counts]

    def _beside(self, stage: str) -> Peer:
        running = {s: len(of) - (s == stage) for s, of in self.runs.items()}
        return replace(self.peer, running=running, load_s={})

    def add(self, stage: str, work: float, ticket: int) -> None:
        """Begin a run; a model that is not there is loaded first."""
        load = self.load_s.pop(stage, 0.0) / self.peer.speed_profiles[stage].seconds(1)
        heapq.heappush(self.runs[stage], (self.clock[stage] + work + load, ticket))

    def next_s(self) -> float:
        """Seconds to its next end."""
        speeds = self.speeds()
        return min(((self.runs[s][0][0] - self.clock[s]) / v for s, v in speeds.items()), default=math.inf)

    def on(self, span: float) -> list[int]:
        """Let so many seconds pass; the tickets of what ended."""
        for stage, speed in self.speeds().items():
            self.clock[stage] += span * speed
        ended = []
        for stage, runs in self.runs.items():
            while runs and runs[0][0] <= self.clock[stage] + 1e-9:
                ended.append(heapq.heappop(runs)[1])
        return ended


Line = tuple[str, str]
"""(stage, priority): what waits for a stage, in its order."""
PLAYED = 200
"""Waiting runs that are played one by one; those behind them are reckoned by the profile of these."""
TICK_S = 2.0
"""Machines that leave a job to others look again after so long."""
COMING_FOR_S = 100.0
"""Others come as often as lately for so long only: a crowd before a deadline ends, and nobody knows when."""
MOST_STEPS = 4_000
MOST_IDLE = 30
"""Ticks in which nobody does anything, after which nobody will."""
LEAST_LEFT = 0.15
"""A job that wrote more than usual goes on for about so much of a usual one."""
SPREAD = 0.4
"""Jobs differ in size by so much up and down: else all that begin together would end together."""
GOLDEN = 0.618034
Seconds = Mapping[str, float]
"""stage or machine -> seconds, or what was done in them."""
PATIENT = 4
"""A pace is measured over at most so many times the runs that are asked for."""
NEIGHBOURS = 4
SPREADS = 20
"""Numbers that stand for the distribution of a stage's times."""


@dataclass(frozen=True)
class Running:
    """A run in a machine's hands; `remaining` is what is left of it, as a part of a usual job."""

    run: str
    machine: str
    stage: str
    remaining: float


@dataclass(frozen=True)
class Scene:
    """All that is known of the work."""

    peers: Mapping[str, Peer]
    """Machines that take part, with a speed for every stage."""
    running: Sequence[Running] = ()
    waiting: Mapping[Line, int] = field(default_factory=dict)
    """Runs that wait, in Redis and in SQL together."""
    arriving: Mapping[Line, float] = field(default_factory=dict)
    """Runs a second that come behind them."""


@dataclass(frozen=True)
class Span:
    """From now to a run's beginning and to its end, in seconds."""

    begins_s: float
    ends_s: float


@dataclass(frozen=True)
class Forecast:
    """What came out."""

    runs: Mapping[str, float]
    """run -> seconds to its end, of those in hand."""
    lines: Mapping[Line, Sequence[Span]]
    """Of each line's first runs, in their order."""
    every_s: Mapping[str, float]
    """stage -> seconds between two beginnings, further back; only of stages that some machine can do."""
    before: Mapping[Line, int] = field(default_factory=dict)
    """How many of other lines go before a line of which nothing was played."""

    def waiting(self, stage: str, priority: str, ahead: int) -> float | None:
        """Seconds to the end of a run with so many ahead in its line; nothing where no machine does it."""
        known = self.lines.get((stage, priority)) or ()
        if ahead < len(known):
            return known[ahead].ends_s
        if stage not in self.every_s:
            return None
        last = known[-1].ends_s if known else self.before.get((stage, priority), 0) * self.every_s[stage]
        return last + (ahead - len(known) + 1) * self.every_s[stage]


@dataclass(frozen=True)
class Worked:
    """What came of working everything off."""

    seconds: float
    jobs: Mapping[tuple[str, str], int]
    """(machine, stage) -> runs."""


def worked_off(peers: Mapping[str, Peer], waiting: Mapping[Line, int]) -> Worked:
    """Play until all that waits is done, and nothing comes behind it."""
    return _Play(Scene(peers, (), waiting), comes=False).worked_off()


@dataclass(frozen=True)
class Flow:
    """What machines do together while always so many runs of each stage are with them."""

    per_s: tuple[float, ...]
    """Runs of each stage that end a second."""
    in_hand: tuple[float, ...]
    """Runs of each stage in machines' hands, on average."""
    busy: tuple[float, ...]
    """Of each kind of machines, the share of the time in which one has a run in hand."""
    spread: tuple[tuple[float, ...], ...]
    """Of each stage, `SPREADS` equally frequent times of a run, over their mean: machines differ."""


def throughput(
    kinds: Sequence[Sequence[Peer]], there: Mapping[str, int], ended: int, *, apt: bool = False
) -> Flow:
    """The pace of machines with always so many runs of each stage `there`, measured over `ended` of them.

    With `apt`, each machine begins with the stage at which it is best beside the others, else with what the
    rule gives to empty machines. A stage that no machine has stands still.
    """
    peers = {peer.name: peer for kind in kinds for peer in kind}
    play = _Play(Scene(peers, (), {(stage, INTERACTIVE): n for stage, n in there.items()}), comes=False)
    if apt:
        play.begin_apt()
    seconds, hands, busy, did = play.flow(list(there), ended)
    if not seconds:
        return no_flow(len(there), len(kinds))
    return Flow(
        tuple(did[stage] / seconds for stage in there),
        tuple(hands[stage] / seconds for stage in there),
        tuple(sum(busy[one.name] for one in kind) / seconds / len(kind) if kind else 0.0 for kind in kinds),
        tuple(_spread(play.took[stage]) for stage in there),
    )


def no_flow(stages: int, kinds: int) -> Flow:
    """Nothing goes on."""
    return Flow((0.0,) * stages, (0.0,) * stages, (0.0,) * kinds, ((1.0,) * SPREADS,) * stages)


def _spread(took: Sequence[float]) -> tuple[float, ...]:
    """Means of equally large parts of the ordered times, over the mean of all."""
    if not took:
        return (1.0,) * SPREADS
    often = [seconds for seconds in sorted(took) for _ in range(SPREADS)]
    parts = [often[i * len(took) : (i + 1) * len(took)] for i in range(SPREADS)]
    return tuple(sum(part) * SPREADS / sum(often) for part in parts)


def remaining_of(tokens: int, profile: SpeedProfile | None, since_s: float, at_once: int) -> float:
    """What is left of a run, as a part of a usual job, from its tokens so far and its age."""
    if profile is None:
        return 0.5
    done = tokens / profile.tokens if tokens and profile.tokens else since_s / profile.seconds(at_once)
    return min(1.0, max(LEAST_LEFT, 1.0 - done))


def forecast(scene: Scene) -> Forecast:
    """Play the scene on until everything played is done."""
    return _Play(scene).played()


def _smooth(spans: Sequence[Span]) -> list[Span]:
    """Each the mean of its neighbours: which of two machines takes a run next is open."""
    found = []
    for i in range(len(spans)):
        reach = min(NEIGHBOURS, i, len(spans) - 1 - i)
        near = spans[i - reach : i + reach + 1]
        means = (sum(part) / len(near) for part in zip(*((s.begins_s, s.ends_s) for s in near), strict=True))
        found.append(Span(*means))
    return found


class _Play:
    """Everything in play."""

    def __init__(self, scene: Scene, comes: bool = True) -> None:
        self.scene = scene
        self.now = 0.0
        self.machines = {
            name: SimulatedMachine(peer) for name, peer in scene.peers.items() if peer.speed_profiles
        }
        able = {s for one in self.machines.values() for s in one.peer.speed_profiles}
        self.asked = {(s, p): scene.waiting.get((s, p), 0) for s in able for p in (INTERACTIVE, BATCH)}
        # and somebody who comes now
        self.lines = {line: count + (comes and line[1] == INTERACTIVE) for line, count in self.asked.items()}
        self.spans: dict[Line, list[Span]] = {line: [] for line in self.lines}
        self.known = dict.fromkeys(self.lines, 0)
        """How many of a line's first ones have ended."""
        self.tickets: list[tuple[Line | str, int, float, float]] = []
        """(line and number, or run), begun, size"""
        self.ended: dict[str, float] = {}
        self.in_hand = 0
        self.idle = 0
        self.jobs: Counter[tuple[str, str]] = Counter()
        """(machine, stage) -> runs that have begun"""
        self.done: Counter[str] = Counter()
        """stage -> runs that have ended"""
        self.took = defaultdict[str, list[float]](list)
        """stage -> seconds of each run that has ended, over its size"""
        self.arrives = {
            line: 1.0 / rate for line, rate in scene.arriving.items() if rate > 0 and line in self.lines
        }
        self.coming = dict(self.arrives)

    def played(self) -> Forecast:
        for run in self.scene.running:
            machine = self.machines.get(run.machine)
            if machine is not None and run.stage in machine.runs:
                machine.add(run.stage, run.remaining, self._ticket(run.run, 0, 1.0))
                self.in_hand += 1
        self._take(self.machines)
        for _ in range(MOST_STEPS):
            if self._settled() or self.idle > MOST_IDLE:
                break
            self._step()
        lines = {line: _smooth(self.spans[line][:known]) for line, known in self.known.items() if known}
        before = {
            (s, p): sum(n for (other, q), n in self.asked.items() if other == s and q != p)
            for s, p in self.asked
        }
        return Forecast(self.ended, lines, self._every(), before)

    def worked_off(self) -> Worked:
        self._take(self.machines)
        while any(self.lines.values()) or any(any(one.runs.values()) for one in self.machines.values()):
            if self.idle > MOST_IDLE:
                break
            self._step()
        return Worked(self.now, self.jobs)

    def begin_apt(self) -> None:
        """Fill each machine with runs of the stage at which it is best beside the others."""
        peers = [one.peer for one in self.machines.values()]
        together = {stage: sum(rate(one, stage) for one in peers) for stage, _ in self.lines}
        for machine in self.machines.values():
            parts = {s: rate(machine.peer, s) / together[s] for s in machine.peer.speed_profiles}
            best = max(parts, key=lambda stage: parts[stage])
            while machine.free and self.lines[best, INTERACTIVE]:
                self._begin(machine, (best, INTERACTIVE))

    def flow(self, stages: Sequence[str], ended: int) -> tuple[float, Seconds, Seconds, Seconds]:
        """A closed system: a run that ends is followed by another one of its stage.

        Seconds, those that runs of each stage were in hand, those in which each machine had one, and usual
        runs' worth of each stage that was done, as few runs do not end evenly. Counted is from when the first
        ones in hand, which began together, have ended; `done` has what ended.
        """
        self._take(self.machines)
        first, counts, since = self._hands(), False, 0.0
        hands, busy, did = (defaultdict[str, float](float) for _ in range(3))
        followed = Counter[str]()
        while self.idle <= MOST_IDLE and not (counts and self._enough(first, ended)):
            before, had = self.now, self._hands()
            at_it = [name for name, one in self.machines.items() if any(one.runs.values())]
            pace = self._pace()
            self._step()
            for stage, count in had.items():
                hands[stage] += count * (self.now - before)
                did[stage] += pace[stage] * (self.now - before)
            for name in at_it:
                busy[name] += self.now - before
            self._follow(stages, followed)
            if not counts and self._enough(first, first.total()):
                counts, since = True, self.now
                for measured in (hands, busy, did, followed, self.done, self.took):
                    measured.clear()
        return (self.now - since if counts else 0.0), hands, busy, did

    def _enough(self, each: Mapping[str, int], together: int) -> bool:
        """Whether so many runs have ended, and of each stage so many unless it stands nearly still."""
        total = self.done.total()
        everywhere = all(self.done[stage] >= count for stage, count in each.items())
        return total >= together and (everywhere or total >= PATIENT * together)

    def _hands(self) -> Counter[str]:
        found = Counter[str]()
        for machine in self.machines.values():
            found.update({stage: len(of) for stage, of in machine.runs.items()})
        return found

    def _pace(self) -> Seconds:
        """Of each stage, usual runs a second that all machines do."""
        found = defaultdict[str, float](float)
        for machine in self.machines.values():
            for stage, speed in machine.speeds().items():
                found[stage] += speed * len(machine.runs[stage])
        return found

    def _follow(self, stages: Sequence[str], followed: Counter[str]) -> None:
        for stage in stages:
            for _ in range(self.done[stage] - followed[stage]):
                self._comes(stage)
            followed[stage] = self.done[stage]
        self._take(self.machines)

    def _comes(self, stage: str) -> None:
        """One more run; to a line that was empty nobody has left anything."""
        if not self.lines[stage, INTERACTIVE]:
            for one in self.machines.values():
                one.due = {other: at for other, at in one.due.items() if other != stage}
        self.lines[stage, INTERACTIVE] += 1

    def _ticket(self, what: Line | str, number: int, size: float) -> int:
        self.tickets.append((what, number, self.now, size))
        return len(self.tickets) - 1

    def _settled(self) -> bool:
        """Whether the ends are known that somebody may ask for, or enough was played."""
        if len(self.ended) < self.in_hand:
            return False
        if sum(self.known.values()) >= 2 * PLAYED:
            return True
        return all(
            min(PLAYED, self.asked[s, p] + (p == INTERACTIVE)) <= n for (s, p), n in self.known.items()
        )

    def _step(self) -> None:
        span = min((one.next_s() for one in self.machines.values()), default=math.inf)
        span = min(span, min(self.coming.values(), default=math.inf))
        if any(self._may_take(one) for one in self.machines.values()):
            span = min(span, TICK_S)
        if math.isinf(span):
            span = TICK_S
        self.now += span
        freed = {n for n, one in self.machines.items() if self._end(one.on(span)) or one.free > 0}
        self._arrive(span)
        self._take(freed)
        self.idle = 0 if any(any(one.runs.values()) for one in self.machines.values()) else self.idle + 1

    def _end(self, tickets: Iterable[int]) -> bool:
        some = False
        for ticket in tickets:
            some, (what, number, begun, size) = True, self.tickets[ticket]
            if isinstance(what, str):
                self.ended[what] = self.now
            else:  # of a job of usual size, whatever this one's was
                self.done[what[0]] += 1
                self.took[what[0]].append((self.now - begun) / size)
                spans = self.spans[what]
                spans[number] = Span(begun, begun + (self.now - begun) / size)
                while self.known[what] < len(spans) and spans[self.known[what]].ends_s < math.inf:
                    self.known[what] += 1
        return some

    def _arrive(self, span: float) -> None:
        for line, every in self.arrives.items():
            self.coming[line] -= span
            if self.coming[line] <= 1e-9:
                self.coming[line] += every if self.now < COMING_FOR_S else math.inf
                self.lines[line] += 1

    def _take(self, names: Iterable[str]) -> None:
        """Machines with a free slot take what the rule gives them."""
        again = sorted(names, key=lambda n: -self.machines[n].free)
        while again:
            again = [name for name in again if self._takes(name)]

    def _may_take(self, machine: SimulatedMachine) -> bool:
        """Whether it has a free slot, and something waits for a stage that it does."""
        return machine.free > 0 and any(
            count for (stage, _), count in self.lines.items() if stage in machine.runs
        )

    def _takes(self, name: str) -> bool:
        machine = self.machines[name]
        if not self._may_take(machine):
            return False
        peers = {n: one.as_peer() for n, one in self.machines.items()}
        oldest = dict.fromkeys(machine.runs, self.now + TICK_S)
        late_s = {stage: self.now - at for stage, at in machine.due.items()}
        choice = decide(View(name, peers, self.lines, {}, oldest, late_s, machine.taken))
        queues = [line for line in choice.queues if self.lines.get(line, 0) > 0]
        machine.due = choice.due(self.now, machine.due)
        if queues:
            self._begin(machine, queues[0])
        return bool(queues)

    def _begin(self, machine: SimulatedMachine, line: Line) -> None:
        number = len(self.spans[line])
        size = 1.0 + SPREAD * (2.0 * ((len(self.tickets) * GOLDEN) % 1.0) - 1.0)
        machine.add(line[0], size, self._ticket(line, number, size))
        machine.taken += 1
        self.jobs[machine.peer.name, line[0]] += 1
        self.lines[line] -= 1
        self.spans[line].append(Span(self.now, math.inf))

    def _every(self) -> dict[str, float]:
        """Seconds between two beginnings of a stage while much waits: all goes on at the pace of the play."""
        work: Counter[str] = Counter()
        for (stage, _), count in self.asked.items():
            work[stage] += max(1, count)
        # all machines at one stage need so long for a run of it: by this runs of stages are added up
        alike = {s: 1.0 / sum(rate(one.peer, s) for one in self.machines.values()) for s in work}
        done_s = sum(alike[stage] * count for stage, count in self.done.items())
        whole = sum(alike[stage] * count for stage, count in work.items())
        whole *= self.now / done_s if done_s else 1.0
        return {stage: whole / count for stage, count in work.items()}
