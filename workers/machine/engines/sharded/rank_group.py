"""All ranks of a pool from their start to their end: compared, loaded, and led from step to step.

The worker leads: it tells every rank the same steps, with what joins and what leaves at each. Nothing is
told through the ring, so ranks that have nothing to do sleep, and none waits for another between two steps.
As many steps as there are ranks are under way at once: while one reads a piece of a prompt, the next reads
the one before it. What ranks say of a step must be the same, or they are no longer one model.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from grading.domain.errors import EngineError, EngineUnreachable, ModelMissing, model_faults
from grading.domain.messages import Message
from workers.machine.engines.base import Progress
from workers.machine.engines.mlx.decode_loop import Counters
from workers.machine.engines.mlx.generation import CallerWait, Ticket
from workers.machine.engines.sharded.protocol import (
    DROPPED,
    FAILED,
    Add,
    Done,
    Failed,
    FromRank,
    Here,
    Load,
    Mode,
    News,
    Ready,
    Settings,
    Step,
    line,
)
from workers.machine.engines.sharded.rank_handle import RankProcess, command, environment
from workers.machine.messages import ENGINE_CLOSED


@dataclass(eq=False)
class DistributedGeneration:
    """A generation in the hands of ranks. `complete` and `closed` are told at its end; see `Bound`."""

    ticket: Ticket
    schema_text: str
    number: int = -1
    complete: bool = False
    closed: bool = False
    dropping: bool = False
    """The ranks were told that nobody waits for it."""

    def add(self, number: int) -> Add:
        """How it joins."""
        self.number = number
        ticket = self.ticket
        return Add(
            id=number,
            ids=tuple(ticket.prompt.ids),
            shared=ticket.prompt.shared,
            max_tokens=ticket.max_tokens,
            temperature=ticket.sampling.temperature,
            top_p=ticket.sampling.top_p,
            seed=ticket.sampling.seed,
            schema_text=self.schema_text,
        )

    def hear(self, news: News, began: float) -> None:
        """Take what a step that `began` then brought."""
        ticket, now = self.ticket, time.monotonic()
        if ticket.admitted is None and "reading" in news.phases:
            ticket.admitted, ticket.cached = max(began, ticket.submitted), news.cached
        if ticket.first_token is None and (news.tokens or news.end == "stop"):
            ticket.first_token = now
        ticket.output.extend(news.tokens)
        self.complete, self.closed = news.complete, news.closed
        for phase in news.phases:
            ticket.tell(phase)
        if news.end == FAILED:
            ticket.end(EngineError(news.error))
        elif news.end:
            ticket.end(None if news.end == DROPPED else news.end)


log = logging.getLogger(__name__)
CULPRIT_S = 1.0
"""When one rank says that it lost another, that one's end is heard within this."""
_W = TypeVar("_W", Here, Ready)


Received = tuple[int, FromRank | EngineError] | DistributedGeneration | None
"""What a rank said or why it says no more; a generation that comes; None: look again."""


class RankGroup:
    """The ranks of one model, used by one thread, but for `submit`, `gauges` and `stop`."""

    def __init__(self, settings: Settings, model: str, counters: Counters) -> None:
        self._settings = settings
        self._model = model
        self._counters = counters
        self._ranks = range(len(settings.hosts))
        self._inbox: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._links: list[RankProcess] = []
        self._fresh: list[DistributedGeneration] = []
        self._live: dict[int, DistributedGeneration] = {}
        self._flights: dict[int, dict[int, Done]] = {}
        """Steps under way, the first one first, and what ranks said of each so far."""
        self._moved = 0.0
        """When the first of them began."""
        self._steps = self._added = 0
        self._cache_bytes: dict[int, int] = {}
        self._over: EngineError | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self.digest = ""
        self.mode: Mode = settings.mode
        self.pids: tuple[int, ...] = ()
        """Of the ranks, each on its own computer."""

    # --- from any thread ----------------------------------------------------------------------------

    def submit(self, sent: DistributedGeneration) -> None:
        """Take a generation; its ticket tells its end, also when the ranks are no more."""
        with self._lock:
            over = self._over
            if over is None:
                self._inbox.put(sent)
        if over is not None:
            sent.ticket.end(over)
        self._counters.add(requests=1)

    def stop(self) -> None:
        """Let `play` return."""
        self._stopped = True
        self._inbox.put(None)

    def gauges(self) -> Mapping[str, float]:
        """How many generations run and wait now, and the bytes of all ranks' prefix caches."""
        live = [sent.ticket for sent in (*list(self._live.values()), *list(self._fresh))]
        running = sum(ticket.admitted is not None for ticket in live)
        held = sum(list(self._cache_bytes.values()))
        return {"running": running, "waiting": len(live) - running, "cache_bytes": held}

    # --- from start to end --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the ranks, compare their files and load the model. Raises EngineErrors; then call `end`."""
        deadline = time.monotonic() + self._settings.load_timeout
        hosts, seed = self._settings.hosts, secrets.randbits(63)
        for rank in self._ranks:
            hear: Callable[[FromRank | EngineError], None] = partial(self._hear, rank)
            words = command(hosts, rank, self._settings.remote)
            self._links.append(RankProcess(self._name(rank), words, environment(hosts), hear))
            self._links[rank].say(line(self._settings.begin(rank, self._model, seed)))
        here = self._all(Here, deadline, "could not be reached")
        self._compare({rank: one.digest for rank, one in here.items()}, "the same files of the model")
        self._compare({rank: one.software for rank, one in here.items()}, "the same software")
        self.digest = here[0].digest
        self.pids = tuple(here[rank].pid for rank in self._ranks)
        self._tell(line(Load()))
        self.mode = self._all(Ready, deadline, "could not load the model")[0].mode
        log.info("%d ranks have loaded %s (%s)", len(self._ranks), self._model, self.mode)

    def play(self) -> None:
        """Take steps until `stop`. Raises EngineUnreachable when a rank is lost."""
        while not self._stopped:
            self._lead()
            heard = self._next()
            if isinstance(heard, DistributedGeneration):
                self._fresh.append(heard)
            elif heard is not None:
                rank, said = heard
                if not isinstance(said, Done):
                    raise lost(self._why(rank, said))
                self._take(rank, said)

    def refuse(self, error: EngineError) -> bool:
        """Take no more generations; whether anybody waits for one that was taken."""
        with self._lock:
            self._over = error
        while not self._inbox.empty():
            if isinstance(heard := self._inbox.get(), DistributedGeneration):
                self._fresh.append(heard)
        return any(not sent.ticket.over() for sent in (*self._live.values(), *self._fresh))

    def end(self, error: EngineError) -> None:
        """End all ranks and all generations."""
        self.refuse(error)
        for link in self._links:
            link.let_go()
        for sent in (*self._live.values(), *self._fresh):
            sent.ticket.end(error)
        self._live.clear()
        self._fresh.clear()
        self._cache_bytes.clear()
        for link in self._links:
            link.end()

    def _hear(self, rank: int, said: FromRank | EngineError) -> None:
        self._inbox.put((rank, said))

    def _tell(self, said: bytes) -> None:
        for link in self._links:
            link.say(said)

    def _name(self, rank: int) -> str:
        return f"Rank {rank} ({self._settings.hosts[rank]})"

    # --- start --------------------------------------------------------------------------------------

    def _all(self, kind: type[_W], deadline: float, what: str) -> dict[int, _W]:
        """This word of every rank."""
        found: dict[int, _W] = {}
        while len(found) < len(self._ranks):
            if self._stopped:
                raise EngineError(ENGINE_CLOSED)
            try:
                heard = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                late = ", ".join(self._name(rank) for rank in self._ranks if rank not in found)
                raise lost(f"{late} {what} within {self._settings.load_timeout:g} s.") from None
            if not isinstance(heard, tuple):
                continue
            rank, said = heard
            if isinstance(said, Failed) and said.code == ModelMissing.code:
                raise model_faults()[said.code](f"{self._name(rank)}: {said.message}")
            if not isinstance(said, kind):
                raise lost(self._why(rank, said))
            found[rank] = said
        return found

    def _compare(self, said: Mapping[int, str], what: str) -> None:
        """Raises ModelMissing when ranks differ in something, and says which."""
        groups: dict[str, list[int]] = {}
        for rank in self._ranks:
            groups.setdefault(said[rank], []).append(rank)
        if len(groups) > 1:
            parts = "; ".join(
                f"{', '.join(map(self._name, ranks))}: {value}" for value, ranks in groups.items()
            )
            raise ModelMissing(
                f"The ranks of {self._model} do not have {what}, so nothing was generated. {parts}. "
                "Install the same ones on every computer of the pool."
            )

    # --- steps --------------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Tell the next steps, as many as may be under way."""
        while len(self._flights) < len(self._ranks) and (self._live or self._fresh):
            add = [self._join(sent) for sent in self._fresh]
            self._fresh.clear()
            drop = [sent for sent in self._live.values() if not sent.dropping and sent.ticket.over()]
            for sent in drop:
                sent.dropping = True
            if not self._flights:
                self._moved = time.monotonic()
            self._steps += 1
            self._flights[self._steps] = {}
            step = Step(number=self._steps, add=tuple(add), drop=tuple(sent.number for sent in drop))
            self._tell(line(step))

    def _join(self, sent: DistributedGeneration) -> Add:
        self._added += 1
        self._live[self._added] = sent
        return sent.add(self._added)

    def _next(self) -> Received:
        """What is heard next. Raises EngineUnreachable when a step takes too long."""
        wait = None
        if self._flights:
            wait = max(0.0, self._moved + self._settings.step_timeout - time.monotonic())
        try:
            return self._inbox.get(timeout=wait)
        except queue.Empty:
            done = next(iter(self._flights.values()))
            late = ", ".join(self._name(rank) for rank in self._ranks if rank not in done)
            raise lost(
                f"{late} took no step for {self._settings.step_timeout:g} s; all ranks are started again."
            ) from None

    def _take(self, rank: int, done: Done) -> None:
        """A rank took a step; when all of them did, their news are told."""
        self._flights[done.number][rank] = done
        self._cache_bytes[rank] = done.cache_bytes
        while self._flights:
            first, said = next(iter(self._flights.items()))
            if len(said) < len(self._ranks):
                break
            del self._flights[first]
            began, self._moved = self._moved, time.monotonic()
            self._tell_news(said, began)

    def _tell_news(self, done: Mapping[int, Done], began: float) -> None:
        """Compare what ranks say of a step that `began` then, and tell it the generations."""
        said = done[0]
        for rank, other in done.items():
            if (other.news, other.counts) != (said.news, said.counts):
                raise lost(
                    f"{self._name(rank)} wrote something else than rank 0; all ranks are started again."
                )
        self._counters.add(**said.counts)
        for news in said.news:
            self._live[news.id].hear(news, began)
            if news.end:
                del self._live[news.id]

    def _why(self, rank: int, said: object) -> str:
        """Why the ranks are lost: one that ended without a word is the reason, not those that missed it."""
        deadline = time.monotonic() + CULPRIT_S
        complained = {rank}
        while isinstance(said, Failed) and (left := deadline - time.monotonic()) > 0:
            try:
                heard = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(heard, DistributedGeneration):
                self._fresh.append(heard)
            elif heard is not None and isinstance(heard[1], Failed):
                complained.add(heard[0])
            elif heard is not None and isinstance(heard[1], EngineError) and heard[0] not in complained:
                return heard[1].message
        if isinstance(said, EngineError):
            return said.message
        if isinstance(said, Failed):
            return f"{self._name(rank)}: {said.message}"
        return f"{self._name(rank)} said {type(said).__name__} when it should not."


def lost(why: str) -> EngineUnreachable:
    """The error when ranks are away: for every generation, whatever was asked."""
    error = EngineUnreachable(why)
    error.refused = True
    return error


FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before ranks are started again; twice as long each time, until they have worked for STEADY_S."""
STEADY_S = 60.0
STARTING = "The ranks were still starting and the model was not loaded"


class RankSupervisor:
    """The ranks of one model, again and again. Thread-safe; a thread of its own leads them."""

    def __init__(
        self, open_group: Callable[[], RankGroup], report_unavailable: Callable[[Message], bool]
    ) -> None:
        """`report_unavailable` is called with why the ranks are away; false when nobody listens."""
        self._open_group = open_group
        self._report_unavailable = report_unavailable
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._group: RankGroup | None = None
        self._coming: Future[RankGroup] = Future()
        """The next group that is ready, or why it is not to be had."""
        self._unheard: EngineError | None = None
        self._thread = threading.Thread(target=self._keep, name="sharded", daemon=True)
        self._thread.start()

    def use(self, patience: CallerWait, progress: Progress) -> RankGroup:
        """The ranks, ready. Raises what they could not be started for, Cancelled or BudgetExceeded."""
        with self._lock:
            coming = self._coming
        if not coming.done():
            progress(0, "loading")
        return patience.wait_for(coming, STARTING)

    def lend(self, patience: CallerWait, progress: Progress) -> RankGroup:
        """The ranks for a generation; raises as `use`.

        A loss that nobody has heard of yet is raised at once: so the machine learns of it, and takes no more
        work until the ranks are back.
        """
        with self._lock:
            error, self._unheard = self._unheard, None
        if error is not None:
            raise error
        try:
            return self.use(patience, progress)
        except EngineError:
            with self._lock:
                self._unheard = None
            raise

    @property
    def group(self) -> RankGroup | None:
        """The ranks that run now, if they do."""
        return self._group

    def close(self, seconds: float) -> None:
        """End the ranks and all generations; waits for that at most so long."""
        self._closed.set()
        with self._lock:
            group = self._group
        if group is not None:
            group.stop()
        self._thread.join(seconds)

    def _keep(self) -> None:
        """Start, lead, end, and again."""
        pause = FIRST_PAUSE_S
        while not self._closed.is_set():
            began = time.monotonic()
            error = self._live_once()
            if self._closed.is_set():
                break
            if time.monotonic() - began >= STEADY_S:
                pause = FIRST_PAUSE_S
            log.error("the ranks restart in %g s: %s", pause, error.message)
            self._closed.wait(pause)
            pause = min(LONGEST_PAUSE_S, 2 * pause)
        self._give_up(EngineError(ENGINE_CLOSED))

    def _live_once(self) -> EngineError:
        """One group from start to end; why it ended."""
        group = self._open_group()
        with self._lock:
            self._group = group
        if self._closed.is_set():
            group.stop()
        error = EngineError(ENGINE_CLOSED)
        try:
            group.start()
            with self._lock:
                self._unheard = None
                self._coming.set_result(group)
            group.play()
        except EngineError as failed:
            error = failed
        except Exception as failed:
            log.exception("the leader of the ranks failed")  # this thread must outlive anything
            error = EngineError(f"The leader of the ranks failed: {type(failed).__name__}: {failed}")
        self._lost(group, error)
        return error

    def _lost(self, group: RankGroup, error: EngineError) -> None:
        """These ranks are no more: new callers wait for the next ones."""
        waited = group.refuse(error)
        with self._lock:
            self._group = None
            coming = self._coming
            self._coming = Future()
        heard = self._closed.is_set() or self._report_unavailable(error.coded) or waited
        with self._lock:
            self._unheard = None if heard else error
        if not coming.done():
            coming.set_exception(error)
        group.end(error)

    def _give_up(self, error: EngineError) -> None:
        with self._lock:
            coming = self._coming
        if not coming.done():
            coming.set_exception(error)
