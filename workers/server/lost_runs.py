"""Runs that nobody works on: of dead machines, of stalled ones, and those whose message is nowhere."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile

from grading.broker.celery_app import own_queue, stage_queues
from grading.broker.dispatch import AWAY
from grading.broker.heartbeats import DEAD_AFTER_S, Lease
from grading.domain.errors import MachineLost, MachineStalled
from grading.domain.messages import Message
from grading.scheduling.stalls import stalled
from grading.shared.telemetry import working_on
from grading.store.rounds import lifecycle, queue
from grading.store.rounds.lifecycle import Loss
from workers.server import inbox, record
from workers.server.context import Server
from workers.server.messages import MACHINE_DIED, MACHINE_STALLED, ORDER_LOST, PHASES

log = logging.getLogger(__name__)
NOWHERE_S = 8.0
"""A machine claims a run within milliseconds, and tells a Redis that forgot it again with its next
heartbeat."""
FIND_FOR_S = 5.0
JUMP_S = 5.0
"""Redis' clock may be set, or another Redis take over: then every heartbeat looks old."""


def one_by_one(ids: Iterable[str], do: Callable[[str], None]) -> None:
    """Do something for each round or run; one that fails by itself does not keep the others waiting."""
    for identifier in ids:
        try:
            do(identifier)
        except (*AWAY, *record.SQL_AWAY):
            raise
        except Exception:
            log.exception("%s could not be retried", identifier)


def _died(lease: Lease) -> Message:
    return MACHINE_DIED(machine=lease.machine)


def _stalled(lease: Lease) -> Message:
    phase = PHASES.get(lease.phase, lease.phase)
    return MACHINE_STALLED(machine=lease.machine, seconds=f"{lease.idle_s:.0f}", phase=phase)


@dataclass
class LostRuns:
    """Finds lost runs from SQL, leases and heartbeats, and dispatches them again. `clock` in seconds."""

    server: Server
    clock: Callable[[], float]
    _redis_since: float | None = None
    _ahead_s: float | None = None
    _jumped: float | None = None
    _nowhere_since: dict[str, float] = field(default_factory=dict)

    def start_over(self) -> None:
        """What was seen before says nothing: machines could not send heartbeats, or were not heard."""
        self._redis_since = None
        self._nowhere_since.clear()

    def sweep(self) -> None:
        """One look."""
        with self.server.store.read() as session:
            in_flight = dict(queue.list_in_flight(session))
        if self._heartbeats_can_be_trusted():
            held = [self._aged(lease) for lease in self.server.dispatch.registry.held()]
            living, silent = self._processes()
            self._end_dead([lease for lease in held if lease.process not in living], silent)
            self._end_stalled([lease for lease in held if lease.process in living])
        one_by_one(self._for_a_while(self._nowhere(in_flight)), self._find)

    def _heartbeats_can_be_trusted(self) -> bool:
        """Redis has answered long enough that a live machine must have beaten since."""
        self.server.dispatch.registry.require_writable()
        moment = self.clock()
        before, self._ahead_s = self._ahead_s, self.server.dispatch.registry.time() - time.monotonic()
        if before is not None and abs(self._ahead_s - before) > JUMP_S:
            log.warning(
                "the clock of redis jumped by %.0f s; leases and heartbeats are not expired for a while",
                self._ahead_s - before,
            )
            self._redis_since, self._jumped = None, moment
        self._redis_since = self._redis_since or moment
        seen_for = moment - self._redis_since
        return min(seen_for, self.server.dispatch.registry.uptime_s()) >= DEAD_AFTER_S

    def _aged(self, lease: Lease) -> Lease:
        """Ages by a clock that was set since then say nothing."""
        if self._jumped is None:
            return lease
        most = self.clock() - self._jumped
        return replace(lease, since_s=min(lease.since_s, most), idle_s=min(lease.idle_s, most))

    def _processes(self) -> tuple[set[str], set[str]]:
        """Those that send heartbeats, and those that send heartbeats no more."""
        leases = self.server.dispatch.registry
        heartbeats = leases.heartbeats()
        for heartbeat in heartbeats:
            if not heartbeat.alive:
                log.warning(
                    "machine %s (process %s) is lost: no heartbeat for 10 s",
                    heartbeat.machine,
                    heartbeat.process,
                )
                leases.leave(heartbeat.machine, heartbeat.process)
        alive = {heartbeat.process for heartbeat in heartbeats if heartbeat.alive}
        return alive, {heartbeat.process for heartbeat in heartbeats} - alive

    def _end_dead(self, held: list[Lease], silent: set[str]) -> None:
        for process, group in groupby(
            sorted(held, key=lambda lease: lease.process), lambda lease: lease.process
        ):
            leases = list(group)
            if process not in silent and all(lease.since_s <= DEAD_AFTER_S for lease in leases):
                continue  # before its first heartbeat, or Redis just forgot its heartbeats
            begun = sum(lease.phase != "waiting" for lease in leases)
            self._end(leases, _died, "together" if begun > 1 else "alone")

    def _end_stalled(self, held: list[Lease]) -> None:
        for lease in held:
            settings = self.server.config.stages.get(lease.stage)
            budget_s = settings.budget_s if settings else math.inf  # the configuration was another one
            others_idle_s = min(
                (o.idle_s for o in held if o.process == lease.process and o.run_id != lease.run_id),
                default=math.inf,
            )
            if stalled(
                lease.phase, lease.prompt_tokens, lease.idle_s, lease.since_s, budget_s, others_idle_s
            ):
                self._end([lease], _stalled, "alone", MachineStalled.code)

    def _end(
        self,
        leases: list[Lease],
        why: Callable[[Lease], Message],
        loss: Loss,
        error: str = MachineLost.code,
    ) -> None:
        """First in SQL, then in Redis: whoever comes in between sees them all, and how they were lost."""
        by_run = {lease.run_id: lease for lease in leases}

        def end(run_id: str) -> None:
            lease = by_run[run_id]
            how: Loss = "unbegun" if lease.phase == "waiting" else loss
            with working_on(round=lease.round_id, run=run_id, stage=lease.stage, machine=lease.machine):
                self._lose(run_id, why(lease), how, error, lease.machine)

        one_by_one(by_run, end)
        for lease in leases:
            self.server.dispatch.registry.take_away(lease)

    def _nowhere(self, in_flight: dict[str, float]) -> list[str]:
        """Runs that for a while no queue held and no machine worked on.

        A message may have been handed to a worker that died before it claimed the run; Redis gives such a
        message out again only after the visibility timeout, so one that stays unclaimed counts as lost.
        """
        leases = self.server.dispatch.registry
        alive = {own_queue(heartbeat.machine) for heartbeat in leases.heartbeats() if heartbeat.alive}
        # what was handed to a machine that died waits in a queue that nobody reads
        queued = leases.waiting([*stage_queues(list(self.server.config.stages)), *sorted(alive)])
        working = {lease.run_id for lease in leases.held()}
        moment = self.clock()
        self._nowhere_since = {
            run_id: self._nowhere_since.get(run_id, moment)
            for run_id in in_flight
            if run_id not in queued | working
        }
        return [r for r, since in self._nowhere_since.items() if moment - since > NOWHERE_S]

    def _for_a_while(self, ids: list[str]) -> Iterator[str]:
        """The first of them; there may be thousands, and dead machines must be noticed in between."""
        until = self.clock() + FIND_FOR_S
        return takewhile(lambda _: self.clock() <= until, ids)

    def _find(self, run_id: str) -> None:
        with working_on(run=run_id):
            if not self._recover(run_id):
                self._lose(run_id, ORDER_LOST(), "unbegun")

    def _recover(self, run_id: str) -> bool:
        """Record a result that a dying store worker took out of its machine's inbox."""
        left = self.server.dispatch.left_of(run_id)
        found = any(one.outcome != "unknown" for one in inbox.record_left(self.server, left))
        if found:
            log.info("run %s: its result had not been recorded; recorded now", run_id)
        return found

    def _lose(
        self, run_id: str, message: Message, loss: Loss, error: str = MachineLost.code, machine: str = ""
    ) -> None:
        with self.server.store.write() as session:
            to_combine = lifecycle.mark_lost(session, run_id, message, loss, error, machine)
        log.info("run %s: %s", run_id, message)
        if to_combine is not None:
            record.combine(self.server, to_combine)
