"""One emulated machine that batches continuously.

No clock is read here: the caller passes the time in, so that one class serves virtual and real time.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bench.router.cost_model import GB, GEMMA, QWEN, Card, Model, step_s


@dataclass(frozen=True)
class Request:
    """What a machine is asked for. The first `shared` tokens of the prompt are known by the name `prefix`."""

    id: str
    model: str
    prompt: int
    output: int
    """Tokens the model will write before it ends by itself or by its limit."""
    prefix: str = ""
    shared: int = 0


@dataclass(frozen=True)
class Refused:
    """A request that was not taken; status 0: nobody answers there."""

    status: int
    why: str


@dataclass(frozen=True)
class Event:
    """Something that happened to a request, or to a model (`loaded`, `evicted`: its name is the id)."""

    at: float
    kind: Literal["first", "progress", "done", "lost", "loaded", "evicted"]
    id: str
    tokens: int = 0
    """Output tokens so far."""
    prompt: int = 0
    cached: int = 0
    """Prompt tokens that a kept prefix saved."""


@dataclass(frozen=True)
class Snapshot:
    """What a machine is at now."""

    at: float
    speed: float
    running: Mapping[str, int]
    """model -> requests in slots, those that read their prompt included."""
    waiting: int
    tokens: Mapping[str, int]
    """id -> output tokens so far, of those in slots."""
    loaded: tuple[str, ...]
    prefix_bytes: float


@dataclass
class _Job:
    """A request in a slot."""

    request: Request
    model: Model
    flop: float = 0.0
    """Arithmetic that is left of its prompt."""
    cached: int = 0
    begun: float = 0.0
    """Steps of the machine when its first token came."""
    reading: bool = True
    told: int = 0

    @property
    def cache(self) -> float:
        return self.model.cache(self.request.prompt + self.request.output / 2)


@dataclass
class Emulator:
    """A machine with slots, a bounded queue, memory for models and prefixes, and changes of its speed.

    A prompt is read at a time, while decoding pauses; then all in slots write a token a step. `changes` are
    (time, speed): 1 is usual, 0.33 three times slower, 0 dead; what is in hand then is lost.
    """

    card: Card
    slots: int = 16
    queue: int = 512
    """Requests that wait for a slot; one more is refused with 503."""
    models: tuple[Model, ...] = (QWEN, GEMMA)
    loaded: tuple[str, ...] | None = None
    """Models in memory at the start; None: as many as fit."""
    load_bandwidth: float = 2 * GB
    """Bytes a second at which weights come from disk."""
    prefix_limit: float = 20 * GB
    """Memory for kept prefixes; models share the rest."""
    changes: Iterable[tuple[float, float]] = ()
    progress: bool = False
    """Whether `advance` tells tokens so far, for each request whose count grew."""
    now: float = 0.0
    speed: float = 1.0
    _jobs: dict[str, _Job] = field(default_factory=dict, init=False)
    _reading: deque[_Job] = field(default_factory=deque, init=False)
    _waiting: OrderedDict[str, Request] = field(default_factory=OrderedDict, init=False)
    _ends: list[tuple[float, int, str]] = field(default_factory=list, init=False)
    _prefixes: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict, init=False)
    _in_memory: OrderedDict[str, Model] = field(default_factory=OrderedDict, init=False)
    _loading: tuple[float, Model] | None = field(default=None, init=False)
    _events: list[Event] = field(default_factory=list, init=False)
    _steps: float = field(default=0.0, init=False)
    _step_s: float = field(default=0.0, init=False)
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._changes = deque(sorted(self.changes))
        self._known = {m.name: m for m in self.models}
        for model in self.models:
            fits = self._used() + model.size <= self._room()
            if fits if self.loaded is None else model.name in self.loaded:
                self._in_memory[model.name] = model

    def submit(self, now: float, request: Request) -> str | Refused:
        """Takes a request, or refuses it: unknown model (404), full queue (503), nobody there (0)."""
        self._run_to(now)
        if not self.speed:
            return Refused(0, "connection refused")
        if request.model not in self._known:
            return Refused(404, f"model {request.model!r} not found")
        if len(self._jobs) >= self.slots and len(self._waiting) >= self.queue:
            return Refused(503, "server busy, please try again: maximum pending requests exceeded")
        self._waiting[request.id] = request
        self._admit()
        return request.id

    def cancel(self, now: float, id: str) -> None:
        """Forgets a request; its slot is free at once. An unknown one is no error: it may just have ended."""
        self._run_to(now)
        self._waiting.pop(id, None)
        if job := self._jobs.pop(id, None):
            self._leaves(job)
        self._admit()

    def change(self, now: float, speed: float) -> None:
        """Another speed from now on: heat below 1, death at 0, return above 0 with empty memory."""
        self._run_to(now)
        self._turn(speed)

    def next_event(self) -> float:
        """When something happens next of itself; infinite when nothing is under way."""
        return self._next()[0]

    def advance(self, now: float) -> list[Event]:
        """Moves to `now`, perhaps beyond several events; what happened since the last call, in order."""
        self._run_to(now)
        events, self._events = self._events, []
        if self.progress:
            events += [
                Event(now, "progress", j.request.id, t, j.request.prompt, j.cached)
                for j, t in ((j, self._tokens(j)) for j in self._jobs.values())
                if t > j.told
            ]
            for job in self._jobs.values():
                job.told = self._tokens(job)
        return events

    def snapshot(self, now: float | None = None) -> Snapshot:
        """What it is at, now or as of the last call with a time; events are kept for `advance`."""
        if now is not None:
            self._run_to(now)
        running: dict[str, int] = {}
        for job in self._jobs.values():
            running[job.model.name] = running.get(job.model.name, 0) + 1
        tokens = {j.request.id: self._tokens(j) for j in self._jobs.values()}
        kept = sum(self._prefixes.values())
        return Snapshot(
            self.now, self.speed, running, len(self._waiting), tokens, tuple(self._in_memory), kept
        )

    def _tokens(self, job: _Job) -> int:
        return 0 if job.reading else min(job.request.output, int(self._steps - job.begun + 1e-6))

    def _next(self) -> tuple[float, str]:
        at, what = (self._changes[0][0], "change") if self._changes else (math.inf, "")
        if not self.speed:
            return at, what
        if self._loading and self._loading[0] < at:
            at, what = self._loading[0], "load"
        if self._reading:
            power = self.card.read_power(len(self._jobs)) * self.speed
            if (then := self.now + self._reading[0].flop / power) < at:
                at, what = then, "read"
        elif end := self._end():
            then = self.now + max(0.0, end - self._steps) * self._step_s / self.speed
            at, what = (then, "done") if then < at else (at, what)
        return at, what

    def _end(self) -> float:
        """Steps at which the next request is done; 0 if none decodes."""
        while self._ends:
            target, _, name = self._ends[0]
            job = self._jobs.get(name)
            if job and not job.reading and job.begun + job.request.output == target:
                return target
            heapq.heappop(self._ends)  # cancelled or lost
        return 0.0

    def _run_to(self, now: float) -> None:
        while True:
            at, what = self._next()
            if at > now:
                break
            self._pass(max(0.0, at - self.now))
            self.now = max(self.now, at)
            self._happens(what)
        self._pass(max(0.0, now - self.now))
        self.now = max(self.now, now)

    def _pass(self, seconds: float) -> None:
        if self._reading:
            power = self.card.read_power(len(self._jobs)) * self.speed
            self._reading[0].flop = max(0.0, self._reading[0].flop - seconds * power)
        elif self._step_s:
            self._steps += seconds * self.speed / self._step_s

    def _happens(self, what: str) -> None:
        if what == "change":
            self._turn(self._changes.popleft()[1])
        elif what == "load" and self._loading:
            self._tell("loaded", self._loading[1].name)
            self._in_memory[self._loading[1].name] = self._loading[1]
            self._loading = None
        elif what == "read":
            self._has_read(self._reading.popleft())
        elif what == "done":
            self._steps = self._end()
            job = self._jobs.pop(heapq.heappop(self._ends)[2])
            self._tell("done", job.request.id, job, job.request.output)
            self._batch()
        self._admit()

    def _has_read(self, job: _Job) -> None:
        job.reading, job.begun = False, self._steps
        self._count += 1
        heapq.heappush(self._ends, (job.begun + job.request.output, self._count, job.request.id))
        self._tell("first", job.request.id, job)
        self._batch()
        if job.request.prefix:
            key = (job.model.name, job.request.prefix)
            self._prefixes[key] = job.model.cache(job.request.shared)
            self._prefixes.move_to_end(key)
            while sum(self._prefixes.values()) > self.prefix_limit:
                self._prefixes.popitem(last=False)
        self._read_next()

    def _read_next(self) -> None:
        """Begins the next prompt: only now it shows what of it is kept."""
        if self._reading and not self._reading[0].flop:
            job = self._reading[0]
            key = (job.model.name, job.request.prefix)
            job.cached = min(job.request.shared, job.request.prompt - 1) if key in self._prefixes else 0
            if job.cached:
                self._prefixes.move_to_end(key)
            job.flop = job.model.read_flop(job.request.prompt - job.cached, job.cached)

    def _admit(self) -> None:
        """Puts who waits into free slots, in order; one whose model must load holds up the rest."""
        while self.speed and self._waiting and len(self._jobs) < self.slots:
            request = next(iter(self._waiting.values()))
            model = self._known[request.model]
            if model.name not in self._in_memory:
                self._load(model)
                return
            self._in_memory.move_to_end(model.name)
            del self._waiting[request.id]
            job = self._jobs[request.id] = _Job(request, model)
            self._reading.append(job)
            self._read_next()

    def _load(self, model: Model) -> None:
        """Begins to load, once models that nobody uses have made room."""
        busy = {j.model.name for j in self._jobs.values()}
        while self._loading is None and self._used() + model.size > self._room():
            idle = next((name for name in self._in_memory if name not in busy), None)
            if idle is None:
                if not busy:
                    break  # it alone is too large for the card: let it try
                return
            del self._in_memory[idle]
            for key in [k for k in self._prefixes if k[0] == idle]:
                del self._prefixes[key]
            self._tell("evicted", idle)
        if self._loading is None:
            self._loading = (self.now + model.size / self.load_bandwidth, model)

    def _leaves(self, job: _Job) -> None:
        if job.reading:
            self._reading.remove(job)
            self._read_next()
        else:
            self._batch()

    def _batch(self) -> None:
        """Seconds of a step of those that decode now."""
        batch: dict[Model, int] = {}
        cache: dict[Model, float] = {}
        for job in self._jobs.values():
            if not job.reading:
                batch[job.model] = batch.get(job.model, 0) + 1
                cache[job.model] = cache.get(job.model, 0.0) + job.cache
        self._step_s = step_s(self.card, batch, cache) if batch else 0.0

    def _turn(self, speed: float) -> None:
        if not speed:
            for name in [*self._jobs, *self._waiting]:
                self._tell("lost", name)
            for held in (self._jobs, self._reading, self._waiting, self._ends):
                held.clear()
            self._prefixes.clear()
            self._in_memory.clear()
            self._loading, self._step_s = None, 0.0
        self.speed = speed

    def _tell(self, kind: str, name: str, job: _Job | None = None, tokens: int = 0) -> None:
        prompt, cached = (job.request.prompt, job.cached) if job else (0, 0)
        self._events.append(Event(self.now, kind, name, tokens, prompt, cached))  # type: ignore[arg-type]

    def _used(self) -> float:
        return sum(m.size for m in self._in_memory.values())

    def _room(self) -> float:
        return self.card.memory - self.prefix_limit
