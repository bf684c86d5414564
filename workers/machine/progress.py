"""Tells Redis how far the runs in hand are: soon, seldom enough, and never on an engine's thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from redis.exceptions import RedisError

from grading.broker.heartbeats import HEARTBEAT_S, MOST_DRAFT, Lease
from grading.broker.leases import Leases
from grading.domain.jobs import Job
from workers.machine.active_run import RunInHand
from workers.machine.stages.partial_output import readable
from workers.machine.stages.prompt_leaks import leaked

log = logging.getLogger(__name__)
EVERY_S = 0.5
"""What only grows is told at whole multiples of this, so that runs are told together."""
TWO_S = 1.0
"""From one telling of a run to the one after the next: at most two a second."""
FIRST_S = 0.2
"""After its claim, which says that it begins, a run is told no sooner: most that end by then need no more."""
LATE_S = 0.02
"""As much may telling take without being put off by a whole `EVERY_S`."""
NEVER = -1e9


@dataclass
class _Told:
    """What was last told of a run, and when the last two times were over, in seconds of `clock`."""

    state: tuple[str, int, int, str]
    lease: Lease
    before: float
    last: float

    def wait(self, working: RunInHand, now: float) -> float:
        """Seconds until the run may be told again; a change of phase need not wait as long as more tokens."""
        soon = self.before + TWO_S
        if working.phase == self.state[0]:
            together = max((self.last // EVERY_S + 1) * EVERY_S, soon - LATE_S)
            soon = max(soon, math.ceil(together / EVERY_S) * EVERY_S)
        return soon - now


class ProgressReports:
    """What one process tells of its runs. `runs` gives those in hand, `lease` what is known of one.

    A run that was taken away is cancelled as soon as Redis says so. Only the thread of `until_stopped`, the
    heartbeat and a run that begins wait for Redis here; `changed` is for engines and returns at once.
    """

    def __init__(
        self,
        leases: Leases,
        runs: Callable[[], Sequence[RunInHand]],
        lease: Callable[[RunInHand], Lease],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._runs = runs
        self._lease = lease
        self._clock = clock
        self._news = threading.Event()
        self._turn = threading.Lock()
        self._told: WeakKeyDictionary[RunInHand, _Told] = WeakKeyDictionary()

    def changed(self) -> None:
        """Something is to be told; also ends the wait of `until_stopped`."""
        self._news.set()

    def until_stopped(self, stop: threading.Event) -> None:
        """Tell what changes until `stop`, whose setting `changed` must follow: the body of a thread."""
        wait: float | None = None
        while True:
            self._news.wait(wait)
            if stop.is_set():
                return
            self._news.clear()
            try:
                wait = self.tell()
            except RedisError as error:
                log.debug(
                    "redis is unavailable, no progress is sent: %s", error
                )  # the heartbeat says it aloud
                wait = self._pause(stop)
            except Exception:
                log.exception("sending progress failed")  # the thread must outlive anything
                wait = self._pause(stop)

    def _pause(self, stop: threading.Event) -> float:
        stop.wait(HEARTBEAT_S)
        return 0.0

    def tell(self) -> float | None:
        """Tell what changed and may be told now; seconds until more may be told, None if nothing is open."""
        with self._turn:
            runs, now = self._runs(), self._clock()
            for one in runs:
                one.noted = False  # first of all: what moves from here on is either seen below or noted again
            waits = {one: self._wait(one, now) for one in runs if self._differs(one)}
            self._say([one for one, wait in waits.items() if wait <= 0], now)
            later = {one: wait for one, wait in waits.items() if wait > 0}
            for one in later:
                one.noted = True
            return min(later.values(), default=None)

    def confirm(self) -> None:
        """Tell all runs; what may not be told yet is told as it was.

        So a run that was taken away hears of it, and a Redis that forgot learns of the others. Nothing
        happens when runs are being told anyway: the heartbeat must not wait for that.
        """
        if not self._turn.acquire(blocking=False):
            return
        try:
            self._say(self._runs(), self._clock())
        finally:
            self._turn.release()

    def tell_one(self, working: RunInHand) -> bool:
        """Tell a run now; False when it was taken away."""
        with self._turn:
            self._say([working], self._clock())
        return not working.taken_away

    def _differs(self, working: RunInHand) -> bool:
        told = self._told.get(working)
        return told is None or told.state != working.state

    def _wait(self, working: RunInHand, now: float) -> float:
        told = self._told.get(working)
        return told.wait(working, now) if told else working.begun + FIRST_S - now

    def _say(self, runs: Iterable[RunInHand], now: float) -> None:
        """Tell these in one round trip, each as it is if that may be said now, else as it was said."""
        said = [(one, self._next(one, now)) for one in runs]
        answers = self._leases.tell([told.lease for _, told in said])
        over = self._clock()
        for (one, told), held in zip(said, answers, strict=True):
            if told is not self._told.get(one):
                told.last = over
                self._told[one] = told
            if held:
                one.leased = True
            elif one.leased and not one.taken_away:
                log.info("run %s was revoked: its lease was lost", one.job.run_id)
                one.take_away()

    def _next(self, working: RunInHand, now: float) -> _Told:
        told, state = self._told.get(working), working.state
        if told is None:
            return _Told(state, self._lease_of(working, state), NEVER, NEVER)
        if told.state == state or told.wait(working, now) > 0:
            return told
        return _Told(state, self._lease_of(working, state), told.last, NEVER)

    def _lease_of(self, working: RunInHand, state: tuple[str, int, int, str]) -> Lease:
        phase, tokens, prompt_tokens, draft = state
        return replace(
            self._lease(working),
            phase=phase,
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            draft=_shown(working.job, draft),
        )


def _shown(job: Job, draft: str) -> str:
    """What a student may read of a draft, bounded, without half characters: Redis' scripts refuse them.

    Nothing of one that repeats its prompt: the answer will be held for a person.
    """
    if not draft or leaked(draft, job):
        return ""
    return readable(job.stage, draft)[:MOST_DRAFT].encode("utf-8", "replace").decode("utf-8")
