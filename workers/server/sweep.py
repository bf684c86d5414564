"""The sweeper: finds what was lost, from SQL and the machines' beats, and sets it going again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from grading.dispatch import AWAY
from grading.leases import DEAD_AFTER_S, Lease
from grading.queue import CHECKS, own_queue, stage_queues
from grading.store import rounds, waiting
from workers.server import finish
from workers.server.context import Server
from workers.server.prepare import prepare
from workers.server.release import release

log = logging.getLogger(__name__)
EVERY_S = 5.0
UNANNOUNCED_S = 5.0
IN_TRANSIT_S = 15.0
"""A run that has been neither in a queue nor in a machine's hands for so long is lost."""
UNCLAIMED_S = 8.0
"""The same once it was handed to a worker, which claims a run within milliseconds if it lives."""
BUSY_S = 60.0
"""The same while other announcements wait in the queue: this one is probably among them."""
LIMIT = 200
PREPARE_AT_ONCE = 10
"""Checks take time; dead machines must be noticed in between."""
MOST_PREPARES = 5
"""Tries of the sweeper to prepare a round; a hand-in that kills whoever looks at it ends there."""
MACHINE_DIED = "The machine that worked on this stopped answering before it was done."
KILLS_CHECKS = "The checks never came to an end on this hand-in; a person must look at it."
MESSAGE_LOST = "The order to do this was lost on its way; it is sent again."


@dataclass
class Sweeper:
    """Steps that may run at any time, in any number of processes; each change is conditional in SQL."""

    server: Server
    clock: Callable[[], float] = time.monotonic
    _redis_since: float | None = None
    _unclaimed: dict[str, float] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Sweep every 5 s until told to stop."""
        log.info("sweeping every %g s", EVERY_S)
        while not stop.is_set():
            self.step()
            stop.wait(EVERY_S)

    def step(self) -> None:
        """One sweep. Whatever is away now is tried again at the next; no part stops the others."""
        for part in (self._lost_runs, self._combine_forgotten, self._prepare_forgotten, self._release):
            try:
                part()
            except AWAY as error:
                self._redis_since = None
                log.warning("redis is away, sweeping later: %s", error)
            except DBAPIError as error:
                log.warning("the database is away, sweeping later: %s", error)
            except Exception:
                log.exception("a part of the sweep failed; the others go on")

    def _release(self) -> None:
        release(self.server)

    def _each(self, ids: Iterable[str], do: Callable[[str], None]) -> None:
        """Do something for each round or run; one that fails by itself does not keep the others waiting."""
        for identifier in ids:
            try:
                do(identifier)
            except (*AWAY, OperationalError, InterfaceError):
                raise
            except Exception:
                log.exception("%s cannot be set going again", identifier)

    def _prepare_forgotten(self) -> None:
        queued = self.server.dispatch.registry.lengths([CHECKS])[CHECKS]
        with self.server.store.read() as session:
            patience = UNANNOUNCED_S if queued == 0 else BUSY_S
            found = waiting.unprepared(session, patience, PREPARE_AT_ONCE)
        self._each(found, self._prepare)

    def _prepare(self, round_id: str) -> None:
        with self.server.store.write() as session:
            if rounds.count_prepare(session, round_id) > MOST_PREPARES:
                rounds.reject(session, round_id, KILLS_CHECKS)
                return
        log.info("round %s was never announced; preparing it", round_id)
        prepare(self.server, round_id)

    def _combine_forgotten(self) -> None:
        with self.server.store.read() as session:
            found = waiting.forgotten(session, LIMIT)
        self._each(found, self._combine)

    def _combine(self, round_id: str) -> None:
        if finish.combine(self.server, round_id):
            log.info("round %s was complete but not combined; done now", round_id)

    def _lost_runs(self) -> None:
        """Runs of dead machines, and runs whose message is nowhere."""
        leases = self.server.dispatch.registry
        with self.server.store.read() as session:
            in_flight = dict(waiting.in_flight(session))
        held = {lease.run_id: lease for lease in leases.held()}
        if self._beats_can_be_trusted():
            for lease in self._of_dead_machines(list(held.values())):
                leases.give_back(lease.run_id)
                self._lose(lease.run_id, MACHINE_DIED, started=True)
        self._each(self._nowhere(in_flight), self._find)

    def _find(self, run_id: str) -> None:
        if not self._recover(run_id):
            self._lose(run_id, MESSAGE_LOST, started=False)

    def _nowhere(self, in_flight: dict[str, float]) -> list[str]:
        """Runs sent a while ago that no queue holds and no machine works on.

        A message may have been handed to a worker that died before it claimed the run; Redis gives such a
        message out again only after the visibility timeout, so one that stays unclaimed counts as lost.
        """
        leases = self.server.dispatch.registry
        alive = {own_queue(beat.machine) for beat in leases.beats() if beat.alive}
        # what was handed to a machine that died waits in a queue that nobody reads
        queued = leases.waiting([*stage_queues(list(self.server.config.stages)), *sorted(alive)])
        handed_out = leases.handed_out()
        working = {lease.run_id for lease in leases.held()}
        moment = self.clock()
        idle = {run_id for run_id in in_flight if run_id not in queued | working}
        self._unclaimed = {r: self._unclaimed.get(r, moment) for r in idle & handed_out}
        vanished = {r for r in idle - handed_out if in_flight[r] > IN_TRANSIT_S}
        stuck = {r for r, since in self._unclaimed.items() if moment - since > UNCLAIMED_S}
        return sorted(vanished | stuck)

    def _beats_can_be_trusted(self) -> bool:
        """Redis has answered long enough that a live machine must have beaten since."""
        moment = self.clock()
        self._redis_since = self._redis_since or moment
        seen_for = moment - self._redis_since
        return min(seen_for, self.server.dispatch.registry.uptime_s()) >= DEAD_AFTER_S

    def _of_dead_machines(self, held: list[Lease]) -> list[Lease]:
        leases = self.server.dispatch.registry
        beats = leases.beats()
        alive = {beat.process for beat in beats if beat.alive}
        for beat in beats:
            if not beat.alive:
                log.warning("machine %s (process %s) is dead: no beat for 10 s", beat.machine, beat.process)
                leases.leave(beat.process)
        return [lease for lease in held if lease.process not in alive]

    def _recover(self, run_id: str) -> bool:
        """Record a result whose message a dying store worker took along; the chord has a copy."""
        returned = self.server.dispatch.returned(run_id)
        if returned is None:
            return False
        log.info("run %s: its result was not recorded; done now", run_id)
        finish.record(self.server, returned)
        return True

    def _lose(self, run_id: str, message: str, *, started: bool) -> None:
        with self.server.store.write() as session:
            to_combine = rounds.lose(session, run_id, message, started=started)
        log.info("run %s: %s", run_id, message)
        if to_combine is not None:
            finish.combine(self.server, to_combine)
