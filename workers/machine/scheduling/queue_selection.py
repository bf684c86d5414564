"""Which queues a machine's consumer reads now: asked each time before it takes a message.

A thread looks at the cluster once a second. The decision (`grading.scheduling.routing`) is made with that
and with what this process knows of itself at the moment, on the consumer's thread and without waiting.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from redis.exceptions import RedisError

from grading.broker.celery_app import own_queue, stage_queue
from grading.broker.heartbeats import Look
from grading.broker.machine_status import peer, takes_part
from grading.config.machines import Placement
from grading.config.settings import Machine
from grading.domain.stages import grading_stages
from grading.scheduling.cluster_view import BATCH, INTERACTIVE, PRIORITIES, Peer, View
from grading.scheduling.routing import JUST_TAKEN_IN, NOT_LOOKED_YET, SPARE_JUST_STARTED, Choice, decide
from grading.scheduling.speed_estimates import lengths, with_guesses
from workers.machine.circuits import Place

log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
RETURN_S = 8.0
"""A machine that was taken in again hears of the others first, who may return too: two heartbeats, two
looks."""
COMING_S = 5.0
"""A message that was taken begins within this, or was none of ours."""
NOTHING = Look((), {}, {}, {})


@dataclass(frozen=True)
class MachineView:
    """What this process knows of itself; each is asked when it is needed."""

    machine: Machine
    stages: Sequence[str]
    """All of the cluster."""
    look: Callable[[Sequence[str]], Look]
    """Heartbeats, lengths and ages of these queues, and the backlog, from Redis."""
    hand: Callable[[], Mapping[str, int]]
    """stage -> runs in hand."""
    peer: Callable[[], Peer]
    """This machine, with its speeds; asked once a look."""
    expect: Callable[[Mapping[str, float]], None]
    """Told at each look: stage -> tokens of a usual answer, as the other machines measured it."""
    slots: Callable[[], int]
    """Generations at once that it takes now."""
    able: Callable[[], Sequence[str]]
    """Its stages whose engines answer now."""
    gateway_requests: Mapping[str, Placement] = field(default_factory=dict)
    """Queues of other work, which come last, and what answers it."""
    most_gateway_requests: int = 0
    gateway_requests_in_hand: Callable[[], int] = lambda: 0
    give_way: Callable[[], None] = lambda: None
    """Called while a run waits that this machine would take: what it does in the background ends."""


@dataclass
class QueueSelection:
    """Chooses the queues. `open` is False for a machine that was drained or ends: then only its own one."""

    here: MachineView
    open: bool = True
    taken: int = 0
    choice: Choice = field(default_factory=lambda: Choice((), NOT_LOOKED_YET()))
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _returned: float = -math.inf
    _look: Look = NOTHING
    _due: Mapping[str, float] = field(default_factory=dict)
    """stage -> when others were to have begun what this machine defers to them."""
    _peers: Mapping[str, Peer] = field(default_factory=dict)
    """Speeds that nobody measured included."""
    _queues: Mapping[tuple[str, str], str] = field(init=False)
    _since: Counter[str] = field(default_factory=Counter)
    """queue -> messages taken since the last look."""
    _coming: list[tuple[str, float]] = field(default_factory=list)
    """(stage, when) of messages that were taken and have not begun; one that never begins is forgotten."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._started = self.clock()
        self._queues = {(s, p): stage_queue(s, p) for p in PRIORITIES for s in self.here.stages}

    @property
    def own(self) -> str:
        """The machine's own queue."""
        return own_queue(self.here.machine.name)

    def until_stopped(self, stop: threading.Event) -> None:
        """Look now and then until `stop`, whose setting `changed` must follow; the body of a thread."""
        while not stop.is_set():
            self._news.clear()
            try:
                self.see()
            except RedisError as error:
                log.debug("redis is unavailable, using the last known state of the cluster: %s", error)
            except Exception:
                log.exception(
                    "the state of the cluster could not be read"
                )  # the thread must outlive anything
            self._news.wait(LOOK_EVERY_S)

    def see(self) -> None:
        """Look at the cluster. Raises redis errors."""
        look = self.here.look(list(self._queues.values()))
        self._look, self._since = look, Counter()
        # of two processes of a machine the last word counts: the other may be dead for less than 10 s
        heartbeats = sorted(look.heartbeats, key=lambda heartbeat: -heartbeat.age_s)
        others = {heartbeat.machine: peer(heartbeat) for heartbeat in heartbeats if takes_part(heartbeat)}
        self._peers = with_guesses({**others, self.here.machine.name: self.here.peer()})
        self.here.expect(lengths(self.here.machine.name, self._peers))
        self._give_way()

    def _give_way(self) -> None:
        """Where runs in the background have all slots, no message is taken that would end them."""
        if self.open and len(grading_stages(self.here.hand())) < len(self.here.hand()):
            view = self.view()
            if any(view.waiting.get(queue) for queue in decide(view).queues):
                self.here.give_way()

    def admit(self, open_: bool) -> None:
        """Take new work, or only what was sent here by name."""
        if open_ and not self.open:
            self._returned = self.clock()
        self.open = open_

    @property
    def chosen(self) -> list[str]:
        """The queues of the last choice."""
        return [stage_queue(s, p) for s, p in self.choice.queues] if self.open else []

    def changed(self) -> None:
        """Look again now."""
        self._news.set()

    def begun(self, stage: str) -> None:
        """A run that was taken has begun, or was sent on."""
        with self._lock:
            found = next((one for one in self._coming if one[0] == stage), None)
            if found is not None:
                self._coming.remove(found)

    def queues(self) -> list[str]:
        """What the consumer may take from now, first ones first."""
        if not self.open:
            return [self.own]
        if self.clock() - self._started < self.here.machine.patience_s:
            # who has just started may not have heard of all primary machines yet
            self.choice = Choice((), SPARE_JUST_STARTED())
            return [self.own]
        if self.clock() - self._returned < RETURN_S:
            self.choice = Choice((), JUST_TAKEN_IN())
            return [self.own]
        view = self.view()
        self.choice = decide(view)
        self._due = self.choice.due(self.clock(), self._due)
        return [self.own, *(stage_queue(s, p) for s, p in self.choice.queues), *self._gateway_requests(view)]

    def _gateway_requests(self, view: View) -> Sequence[str]:
        """Other work is let in where no grading waits and a slot stays free for it.

        Beside runs it is let in only for their models: another one might take their place in the engine.
        """
        me, gateway_requests = view.peers[view.me], self.here.gateway_requests_in_hand()
        room = me.free - gateway_requests > 1 and gateway_requests < self.here.most_gateway_requests
        if not room or any(view.waiting.values()):
            return ()
        used = in_use(self.here.machine, me.running)
        return [name for name, one in self.here.gateway_requests.items() if not used or one.place in used]

    def took(self, queue: str) -> None:
        """A message was taken from this queue."""
        self._since[queue] += 1
        if self._since[queue] == self._look.lengths.get(queue, 0) + 2:
            self.changed()  # the second that was not seen is a burst: what else waits may fit better
        for stage in self.here.machine.stages:
            if queue in (stage_queue(stage, INTERACTIVE), stage_queue(stage, BATCH)):
                self.taken += 1
                with self._lock:
                    self._coming.append((stage, self.clock()))

    def not_taken(self, queue: str) -> None:
        """The last message of this queue was none of ours, and no run will begin."""
        stage = next(
            (s for s in self.here.machine.stages for p in PRIORITIES if queue == stage_queue(s, p)), ""
        )
        with self._lock:
            last = next((one for one in reversed(self._coming) if one[0] == stage), None)
            if last is not None:
                self._coming.remove(last)

    def view(self) -> View:
        """The cluster as it was seen last, this machine as it is."""
        if not self._peers:
            self._peers = with_guesses({self.here.machine.name: self.here.peer()})
        me, look, hand = self._peers[self.here.machine.name], self._look, self._hand()
        able = self.here.machine.with_room(self.here.able(), hand)
        profiles = {stage: profile for stage, profile in me.speed_profiles.items() if stage in able}
        mine = replace(me, slots=self.here.slots(), stages=tuple(able), speed_profiles=profiles, running=hand)
        waiting = {at: max(0, look.lengths.get(q, 0) - self._since[q]) for at, q in self._queues.items()}
        oldest = {
            s: max(look.oldest_s.get(self._queues[s, p], 0.0) for p in PRIORITIES) for s in self.here.stages
        }
        late_s = {stage: self.clock() - at for stage, at in self._due.items()}
        return View(
            me.name, {**self._peers, me.name: mine}, waiting, look.backlog, oldest, late_s, self.taken
        )

    def _hand(self) -> Counter[str]:
        with self._lock:
            self._coming = [one for one in self._coming if self.clock() - one[1] < COMING_S]
            hand = self.here.hand()
            # what is done in the background makes room at once
            mine = Counter({stage: hand[stage] for stage in grading_stages(hand)})
            return mine + Counter(stage for stage, _ in self._coming)


class QueueOrder:
    """What Kombu asks for the queues to read; see its `priority_cycle`."""

    def __init__(self, listening: QueueSelection) -> None:
        self._listening = listening
        self._known: list[str] = []
        self._last = ""
        """The queue of the message in hand; nothing in those of other channels, which take none."""

    def update(self, names: Sequence[str]) -> None:
        """All queues of the consumer."""
        self._known = list(names)

    def consume(self, count: int) -> list[str]:
        """Those to read now."""
        try:
            chosen = self._listening.queues()
        except Exception:
            log.exception("the choice of queues failed; consuming all queues")  # else nothing would be
            return self._known[:count]
        return [name for name in chosen if name in self._known]

    def rotate(self, last: str) -> None:
        """A message of this queue was taken."""
        self._last = last
        self._listening.took(last)

    def thrown_away(self) -> None:
        """What was taken last was no message. Asked more than once, as each channel is, it counts once."""
        thrown, self._last = self._last, ""
        self._listening.not_taken(thrown)


def in_use(machine: Machine, hand: Iterable[str]) -> Set[Place]:
    """The models that runs of these stages use on a machine."""
    return {machine.stages[stage].place for stage in hand if stage in machine.stages}
