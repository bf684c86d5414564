"""Runs that nobody works on: of dead machines, of stalled ones, and those whose message is nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from sqlalchemy.exc import InterfaceError, OperationalError

from grading.cluster.stalls import stalled
from grading.dispatch import AWAY
from grading.errors import MachineLost, MachineStalled
from grading.leases import DEAD_AFTER_S, Lease
from grading.logs import working_on
from grading.queue import own_queue, stage_queues
from grading.store import rounds, waiting
from grading.store.rounds import Loss
from workers.server import finish
from workers.server.context import Server

log = logging.getLogger(__name__)
NOWHERE_S = 8.0
"""A machine claims a run within milliseconds, and tells a Redis that forgot it again with its next beat."""
MACHINE_DIED = "Machine {} stopped answering before it was done."
MACHINE_STALLED = "Machine {} has not moved for {:.0f} s while {}; others are tried first."
MESSAGE_LOST = "The order to do this was lost on its way; it is sent again."


def one_by_one(ids: Iterable[str], do: Callable[[str], None]) -> None:
    """Do something for each round or run; one that fails by itself does not keep the others waiting."""
    for identifier in ids:
        try:
            do(identifier)
        except (*AWAY, OperationalError, InterfaceError):
            raise
        except Exception:
            log.exception("%s cannot be set going again", identifier)


@dataclass
class LostRuns:
    """Finds lost runs from SQL, leases and beats, and sets them going again. `clock` in seconds."""

    server: Server
    clock: Callable[[], float]
    _redis_since: float | None = None
    _nowhere_since: dict[str, float] = field(default_factory=dict)

    def redis_was_away(self) -> None:
        """What was seen before says nothing: machines could not beat."""
        self._redis_since = None
        self._nowhere_since.clear()

    def sweep(self) -> None:
        """One look."""
        with self.server.store.read() as session:
            in_flight = dict(waiting.in_flight(session))
        if self._beats_can_be_trusted():
            held = self.server.dispatch.registry.held()
            living = self._living_processes()
            self._end_dead([lease for lease in held if lease.process not in living])
            self._end_stalled([lease for lease in held if lease.process in living])
        one_by_one(self._nowhere(in_flight), self._find)

    def _beats_can_be_trusted(self) -> bool:
        """Redis has answered long enough that a live machine must have beaten since."""
        moment = self.clock()
        self._redis_since = self._redis_since or moment
        seen_for = moment - self._redis_since
        return min(seen_for, self.server.dispatch.registry.uptime_s()) >= DEAD_AFTER_S

    def _living_processes(self) -> set[str]:
        leases = self.server.dispatch.registry
        beats = leases.beats()
        for beat in beats:
            if not beat.alive:
                log.warning("machine %s (process %s) is dead: no beat for 10 s", beat.machine, beat.process)
                leases.leave(beat.process)
        return {beat.process for beat in beats if beat.alive}

    def _end_dead(self, held: list[Lease]) -> None:
        for _, group in groupby(sorted(held, key=lambda lease: lease.process), lambda lease: lease.process):
            leases = list(group)
            begun = sum(lease.phase != "waiting" for lease in leases)
            for lease in leases:
                together: Loss = "together" if begun > 1 else "alone"
                loss: Loss = "unbegun" if lease.phase == "waiting" else together
                self._end(lease, MACHINE_DIED.format(lease.machine), loss)

    def _end_stalled(self, held: list[Lease]) -> None:
        for lease in held:
            budget_s = self.server.config.stages[lease.stage].budget_s
            if stalled(lease.phase, lease.prompt_tokens, lease.idle_s, lease.since_s, budget_s):
                message = MACHINE_STALLED.format(lease.machine, lease.idle_s, lease.phase)
                self._end(lease, message, "alone", MachineStalled.code)

    def _end(self, lease: Lease, message: str, loss: Loss, error: str = MachineLost.code) -> None:
        self.server.dispatch.registry.give_back(lease.run_id)
        with working_on(round=lease.round_id, run=lease.run_id, stage=lease.stage, machine=lease.machine):
            self._lose(lease.run_id, message, loss, error, lease.machine)

    def _nowhere(self, in_flight: dict[str, float]) -> list[str]:
        """Runs that for a while no queue held and no machine worked on.

        A message may have been handed to a worker that died before it claimed the run; Redis gives such a
        message out again only after the visibility timeout, so one that stays unclaimed counts as lost.
        """
        leases = self.server.dispatch.registry
        alive = {own_queue(beat.machine) for beat in leases.beats() if beat.alive}
        # what was handed to a machine that died waits in a queue that nobody reads
        queued = leases.waiting([*stage_queues(list(self.server.config.stages)), *sorted(alive)])
        working = {lease.run_id for lease in leases.held()}
        moment = self.clock()
        self._nowhere_since = {
            run_id: self._nowhere_since.get(run_id, moment)
            for run_id in in_flight
            if run_id not in queued | working
        }
        return sorted(r for r, since in self._nowhere_since.items() if moment - since > NOWHERE_S)

    def _find(self, run_id: str) -> None:
        with working_on(run=run_id):
            if not self._recover(run_id):
                self._lose(run_id, MESSAGE_LOST, "unbegun")

    def _recover(self, run_id: str) -> bool:
        """Record a result whose message a dying store worker took along; the chord has a copy."""
        returned = self.server.dispatch.returned(run_id)
        if returned is None:
            return False
        log.info("run %s: its result was not recorded; done now", run_id)
        finish.record(self.server, returned)
        return True

    def _lose(
        self, run_id: str, message: str, loss: Loss, error: str = MachineLost.code, machine: str = ""
    ) -> None:
        with self.server.store.write() as session:
            to_combine = rounds.lose(session, run_id, message, loss, error, machine)
        log.info("run %s: %s", run_id, message)
        if to_combine is not None:
            finish.combine(self.server, to_combine)
