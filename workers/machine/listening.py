"""Which queues a machine's consumer reads now: asked each time before it takes a message.

A thread looks at the cluster about once a second. The decision (`grading.cluster.routing`) is made with that
and with what this process knows of itself at the moment, on the consumer's thread and without waiting.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from redis.exceptions import RedisError

from grading.beats import Look
from grading.cluster.guesses import with_guesses
from grading.cluster.left import Left
from grading.cluster.roles import Roles
from grading.cluster.routing import Choice, decide, planned
from grading.cluster.view import BATCH, INTERACTIVE, Peer, View
from grading.config import Machine
from grading.machines import Placement
from grading.peers import peer, takes_part
from grading.queue import own_queue, stage_queue
from workers.machine.guests import in_use

log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
RETURN_S = 8.0
"""A machine that was taken in again hears of the others first, who may return too: two beats, two looks."""
COMING_S = 5.0
"""A message that was taken begins within this, or was none of ours."""
PRIORITIES = (INTERACTIVE, BATCH)
NOTHING = Look((), {}, {}, {})


@dataclass(frozen=True)
class Here:
    """What this process knows of itself; each is asked when it is needed."""

    machine: Machine
    stages: Sequence[str]
    """All of the cluster."""
    look: Callable[[Sequence[str]], Look]
    """Beats, lengths and ages of these queues, and the backlog, from Redis."""
    hand: Callable[[], Mapping[str, int]]
    """stage -> runs in hand."""
    peer: Callable[[], Peer]
    """This machine, with its speeds as they are now."""
    guests: Mapping[str, Placement] = field(default_factory=dict)
    """Queues of other work, which come last, and what answers it."""
    most_guests: int = 0
    guests_in_hand: Callable[[], int] = lambda: 0


@dataclass
class Listening:
    """Chooses the queues. `open` is False for a machine that was drained or ends: then only its own one."""

    here: Here
    open: bool = True
    taken: int = 0
    choice: Choice = field(default_factory=lambda: Choice((), "it has not looked yet"))
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _returned: float = -math.inf
    _look: Look = NOTHING
    _left: Left = field(default_factory=Left)
    _peers: Mapping[str, Peer] = field(default_factory=dict)
    _plan: Roles | None = None
    _since: Counter[str] = field(default_factory=Counter)
    """queue -> messages taken since the last look."""
    _coming: list[tuple[str, float]] = field(default_factory=list)
    """(stage, when) of messages that were taken and have not begun; one that never begins is forgotten."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._started = self.clock()

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
                log.debug("redis is away, what was seen last counts: %s", error)
            except Exception:
                log.exception("the cluster could not be looked at")  # the thread must outlive anything
            self._news.wait(LOOK_EVERY_S)

    def see(self) -> None:
        """Look at the cluster. Raises redis errors."""
        look = self.here.look([stage_queue(s, p) for p in PRIORITIES for s in self.here.stages])
        self._look, self._since = look, Counter()
        # of two processes of a machine the last word counts: the other may be dead for less than 10 s
        beats = sorted(look.beats, key=lambda beat: -beat.age_s)
        self._peers = {beat.machine: peer(beat) for beat in beats if takes_part(beat)}
        self._plan = planned(self.view())

    def admit(self, open_: bool) -> None:
        """Take new work, or only what was sent here by name."""
        if open_ and not self.open:
            self._returned = self.clock()
        self.open = open_

    @property
    def chosen(self) -> list[str]:
        """The queues of the last choice."""
        return [stage_queue(s, p) for s, p in self.choice.queues] if self.open else []

    @property
    def quiet(self) -> bool:
        """Whether nothing waited or was done anywhere at the last look."""
        waits = any(self._look.lengths.values()) or any(self._look.backlog.values())
        return not waits and not any(peer.busy for peer in self._peers.values())

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
            self.choice = Choice((), "a spare that has just started leaves work to others")
            return [self.own]
        if self.clock() - self._returned < RETURN_S:
            self.choice = Choice((), "it was just taken in again and looks at the others first")
            return [self.own]
        view = self.view()
        self.choice = decide(view, self._plan)
        self._note_left(view, self.choice)
        return [self.own, *(stage_queue(s, p) for s, p in self.choice.queues), *self._guests(view)]

    def _note_left(self, view: View, choice: Choice) -> None:
        """Since when this machine leaves what waits in a stage to others, with a slot free."""
        me = view.peers[view.me]
        waits = {stage for (stage, _), count in view.waiting.items() if count and stage in me.paces}
        self._left.note(self.clock(), waits if me.free else (), choice)

    def _guests(self, view: View) -> Sequence[str]:
        """Other work is let in where no grading waits and a slot stays free for it.

        Beside runs it is let in only for their models: another one might take their place in the engine.
        """
        me, guests = view.peers[view.me], self.here.guests_in_hand()
        room = me.free - guests > 1 and guests < self.here.most_guests
        if not room or any(view.waiting.values()):
            return ()
        used = in_use(self.here.machine, me.running)
        return [name for name, one in self.here.guests.items() if not used or one.place in used]

    def took(self, queue: str) -> None:
        """A message was taken from this queue."""
        self._since[queue] += 1
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
        me, waiting, oldest = self.here.machine.name, {}, {}
        for stage in self.here.stages:
            names = {p: stage_queue(stage, p) for p in PRIORITIES}
            for priority, name in names.items():
                waiting[stage, priority] = max(0, self._look.lengths.get(name, 0) - self._since[name])
            oldest[stage] = max(self._look.oldest_s.get(name, 0.0) for name in names.values())
        mine = replace(self.here.peer(), running=self._hand())
        peers = with_guesses({**self._peers, me: mine})
        left_s, late_s = self._left.left_s(self.clock()), self._left.late_s(self.clock())
        return View(me, peers, waiting, self._look.backlog, oldest, left_s, late_s, self.taken)

    def _hand(self) -> Counter[str]:
        with self._lock:
            self._coming = [one for one in self._coming if self.clock() - one[1] < COMING_S]
            return Counter(self.here.hand()) + Counter(stage for stage, _ in self._coming)


class Cycle:
    """What Kombu asks for the queues to read; see its `priority_cycle`."""

    def __init__(self, listening: Listening) -> None:
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
            log.exception("nothing could be decided; all queues are read")  # else nothing would be
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
