"""The sweeper: finds what was lost, from SQL and the machines' heartbeats, and dispatches it again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import DBAPIError

from grading.broker import redis_key_types
from grading.broker.away import why_away
from grading.broker.celery_app import SANDBOX_QUEUES, STORE
from grading.broker.dispatch import AWAY
from grading.broker.leases import load_scripts, load_scripts_on_replicas
from grading.domain.errors import FilesUnavailable
from grading.store import outbox
from grading.store.away import why_away as why_sql_away
from grading.store.reporting import operations
from grading.store.rounds import preparing, queue
from grading.store.submissions import prechecks
from workers.server import record, server_heartbeats, shadow_runs
from workers.server.admit import admit_runs
from workers.server.context import Server
from workers.server.housekeeping import do_chores, store_use
from workers.server.lost_runs import LostRuns, one_by_one
from workers.server.messages import CHECKS_NEVER_ENDED
from workers.server.prepare import prepare
from workers.server.second_opinions import admit_opinions

log = logging.getLogger(__name__)
EVERY_S = 5.0
STILL_S = 5.0
"""Who wakes up so much too late stood still, and perhaps the machines on the same computer, too."""
UNANNOUNCED_S = 5.0
BUSY_S = 60.0
"""The same while other announcements wait in the queue: this one is probably among them."""
LIMIT = 200
PREPARE_FOR_S = 3.0
"""Checks take time; dead machines must be noticed in between."""
PREPARE_LEASE_S = 60.0
"""For so long no other sweeper prepares the same round."""
MOST_PREPARES = 5
"""Tries of the sweeper to prepare a round; a submission that kills whoever looks at it ends there."""
EXECUTE_S = 5.0
"""So long a round waits for somebody who runs its work, when nothing is queued and nobody holds it."""
EXECUTE_BUSY_S = 3600.0
"""The same while others are queued: this one is probably among them."""


@dataclass
class Sweeper:
    """Steps that may run at any time, in any number of processes; each change is conditional in SQL."""

    server: Server
    clock: Callable[[], float] = time.monotonic
    lost: LostRuns = field(init=False)

    def __post_init__(self) -> None:
        self.lost = LostRuns(self.server, self.clock)

    def run(self, stop: threading.Event) -> None:
        """Sweep every 5 s until told to stop."""
        log.info("the sweeper runs every %g s", EVERY_S)
        while not stop.is_set():
            self.step()
            self.rest(stop)

    def rest(self, stop: threading.Event) -> None:
        """Wait for the next sweep. After a pause of the computer itself heartbeats look old that are not."""
        began = self.clock()
        stop.wait(EVERY_S)
        late_s = self.clock() - began - EVERY_S
        if late_s > STILL_S:
            log.warning(
                "this process was suspended for %.0f s; waiting for heartbeats before machines count as lost",
                late_s,
            )
            self.lost.start_over()

    def step(self) -> None:
        """One sweep. Whatever is away now is tried again at the next; no part stops the others."""
        for part in self.parts():
            try:
                part()
            except AWAY as error:
                self.lost.start_over()
                log.warning("%s, the sweep is retried later: %s", why_away(error), error)
            except DBAPIError as error:
                log.warning("%s, the sweep is retried later: %s", why_sql_away(error), error)
            except Exception:
                log.exception("a step of the sweep failed; the other steps continue")

    def parts(self) -> tuple[Callable[[], None], ...]:
        """What a sweep consists of, in order."""
        return (
            self._repair_redis,
            self._load_scripts,
            self._tell_drained,
            self.lost.sweep,
            self._combine_forgotten,
            self._prepare_forgotten,
            self._try_forgotten,
            self._release,
            self._send_second_opinions,
            self._do_chores,
            self._store_use,
            self._sweep_shadow_runs,
            self._send_canaries,
        )

    def _repair_redis(self) -> None:
        """A key of another type under a name of ours stops all who read it."""
        redis, config = self.server.dispatch.registry.redis, self.server.config
        wrong = redis_key_types.of_another_type(redis, redis_key_types.expected(config))
        for key, kind in wrong.items():
            log.error("WRONGTYPE: the redis key %r is a %s; it is renamed and expires in a day", key, kind)
        redis_key_types.set_aside(redis, wrong)
        machines = [machine.name for machine in config.machines]
        redis_key_types.forget_handed_out(redis, machines, config.redis.visibility_timeout_s)

    def _load_scripts(self) -> None:
        """Machines may not, and wait for those that a Redis which started again has forgotten."""
        if missing := load_scripts(self.server.dispatch.registry.redis):
            log.info("redis had lost %d Lua scripts (SCRIPT LOAD); loaded them again", missing)
        if missing := load_scripts_on_replicas(self.server.config.redis.url):
            log.info("replicas of redis lacked %d Lua scripts (SCRIPT LOAD); loaded them there", missing)

    def _do_chores(self) -> None:
        do_chores(self.server)

    def _store_use(self) -> None:
        store_use(self.server)

    def _sweep_shadow_runs(self) -> None:
        shadow_runs.sweep(self.server)

    def _send_canaries(self) -> None:
        server_heartbeats.sweep(self.server)

    def _release(self) -> None:
        admit_runs(self.server)

    def _send_second_opinions(self) -> None:
        admit_opinions(self.server)

    def _prepare_forgotten(self) -> None:
        # while Redis is away nothing is announced, and nobody else prepares
        queued = (self.server.dispatch.backlog() or {}).get(STORE, 0)
        one_by_one(self._unprepared(UNANNOUNCED_S if queued == 0 else BUSY_S), self._prepare)

    def _unprepared(self, patience_s: float) -> Iterator[str]:
        """Rounds that nobody prepared, each taken when its turn comes: other sweepers share the work."""
        until = self.clock() + PREPARE_FOR_S
        while self.clock() <= until:
            with self.server.store.write() as session:
                taken = outbox.claim(session, "prepare", 1, PREPARE_LEASE_S, overdue_s=patience_s)
                hopeless = [row for row in taken if row.tries > MOST_PREPARES]
                for row in hopeless:
                    preparing.reject_round(session, row.key, CHECKS_NEVER_ENDED())
            if not taken:
                return
            yield from (row.key for row in taken if row not in hopeless)

    def _try_forgotten(self) -> None:
        """Rounds whose work nobody runs, although somebody could: their message, or who had it, was lost."""
        if self.server.config.sandbox.backend == "none":  # by now; nobody will ever run them
            one_by_one(self._untried(EXECUTE_S), self._prepare)
            return
        backlog = self.server.dispatch.backlog()
        if backlog is None or not any(p.part == "sandbox" and p.alive for p in self.server.dispatch.parts()):
            return
        busy = any(backlog.get(name) for name in SANDBOX_QUEUES)
        found = {**self._abandoned(), **self._untried(EXECUTE_BUSY_S if busy else EXECUTE_S)}
        for round_id, priority in found.items():
            log.info("the sandbox run of round %s was lost; it is queued again", round_id)
            self.server.dispatch.announce_execution(round_id, priority)
        if not busy:
            self._announce_prechecks()

    def _announce_prechecks(self) -> None:
        """Code of students that waits although nothing is queued: its message was lost. Twice is no harm."""
        with self.server.store.read() as session:
            waiting = prechecks.list_waiting(session, timedelta(seconds=EXECUTE_S), LIMIT)
        for precheck_id in waiting:
            log.info("the precheck %s was lost; it is queued again", precheck_id)
            self.server.dispatch.announce_precheck(precheck_id)

    def _abandoned(self) -> dict[str, str]:
        """Those whose message was taken by one who is gone: they are in no queue, however long that is."""
        with self.server.store.write() as session:
            return preparing.list_priorities(session, outbox.list_overdue(session, "execute", EXECUTE_S))

    def _untried(self, patience_s: float) -> dict[str, str]:
        """Rounds, with their priorities, that wait for that long for somebody who runs their work."""
        with self.server.store.write() as session:
            # who runs the work counts the tries: Redis may take no message for a while
            found = outbox.claim(session, "execute", LIMIT, 0.0, overdue_s=patience_s, counted=False)
            waiting_for = preparing.list_priorities(session, [row.key for row in found])
            preparing.close_executions(session, [row.key for row in found if row.key not in waiting_for])
        return waiting_for

    def _prepare(self, round_id: str) -> None:
        log.info("round %s was never sent to a queue; preparing it", round_id)
        try:
            prepare(self.server, round_id)
        except FilesUnavailable as error:
            log.warning("round %s is prepared later: %s", round_id, error)
            with self.server.store.write() as session:
                # no try: the round is not what fails; and another process may have prepared it meanwhile
                outbox.reset(session, "prepare", round_id)

    def _combine_forgotten(self) -> None:
        with self.server.store.read() as session:
            found = queue.list_stuck_rounds(session, LIMIT)
        one_by_one(found, self._combine)

    def _combine(self, round_id: str) -> None:
        if record.combine(self.server, round_id):
            log.info("round %s was complete but not combined; combined now", round_id)

    def _tell_drained(self) -> None:
        """Redis may have forgotten which machines are out, and an operator may change it meanwhile."""
        told = None
        while (out := self._drained()) != told:
            self.server.dispatch.registry.drain(out)
            told = out

    def _drained(self) -> list[str]:
        with self.server.store.read() as session:
            return operations.list_out(session)
