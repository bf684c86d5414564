"""The sandbox worker: a Celery worker that runs students' work, one round a thread, held in SQL."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from sqlalchemy.exc import SQLAlchemyError

from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.broker.part_heartbeats import send_heartbeats_until
from grading.config.settings import Config
from grading.domain.errors import SandboxUnavailable
from grading.execution.throughput import Mean, Rate
from grading.store import outbox
from grading.store.away import why_away as why_sql_away
from grading.store.outbox import Hold
from grading.store.rounds import preparing
from workers.celery_worker import Watch, keep_watch, register_canary, run_worker
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.selection import ClosableBackend
from workers.sandbox.plan_runner import InputUnavailable, Runner, Shelf
from workers.sandbox.prechecks import run_precheck
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime
from workers.server.admit import admit_runs
from workers.server.context import Server, open_server
from workers.server.prepare import prepare, prepare_by_running
from workers.server.tasks import UNTIL_SQL_IS_BACK

log = logging.getLogger(__name__)
HOLD_S = 15.0
"""So long nobody else runs a round's work after the last heartbeat of who does."""
SIGN_EVERY_S = 4.0
PUT_OFF_S = (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0)
"""Waits after the first, second, … time that the server could not run a round's work."""


@dataclass
class ClaimedRounds:
    """What this process holds in SQL, so that others leave it alone."""

    server: Server
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when this process ends: what cannot be run now is for somebody else."""
    speed: Mean = field(default_factory=Mean)
    """Of rounds from being taken to being prepared."""
    _mine: dict[str, Hold] = field(default_factory=dict)
    _students: dict[str, int] = field(default_factory=dict)
    """Whose work is run now, by round."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def turn(self, round_id: str) -> Iterator[bool]:
        """False while other work of the same student is run here: one's endless loops leave others a slot."""
        with self.server.store.read() as session:
            student = preparing.student_of(session, round_id)
        with self._changed:
            others = [whose for one, whose in self._students.items() if one != round_id]
            mine = student not in others and round_id not in self._students
            if mine and student is not None:
                self._students[round_id] = student
        try:
            yield student not in others
        finally:
            with self._changed:
                if mine:
                    self._students.pop(round_id, None)

    def take(self, round_id: str) -> Hold | None:
        """Nothing when it is done, not due yet, or somebody else is at it."""
        with self.server.store.write() as session:
            held = outbox.hold(session, "execute", round_id, HOLD_S)
        if held is not None:
            with self._changed:
                self._mine[round_id] = held
        return held

    def waits(self, round_id: str) -> bool:
        """Whether it is still to be done, by whomever."""
        with self.server.store.read() as session:
            return outbox.is_open(session, "execute", round_id)

    def give_back(self, held: Hold) -> None:
        """It is prepared, or due again for the next who tries."""
        self._forget(held)
        with self.server.store.write() as session:
            outbox.release_hold(session, held)

    def put_off(self, held: Hold, why: str, *, counted: bool = True) -> float:
        """It could not be run here now, through no fault of the work; returns the seconds until it is due.

        `counted` says whether the try counts: what keeps all work waiting must not use up anybody's.
        """
        self._forget(held)
        wait_s = PUT_OFF_S[min(held.tries, len(PUT_OFF_S)) - 1]
        with self.server.store.write() as session:
            outbox.postpone(session, held, why, wait_s, counted=counted)
        return wait_s

    def _forget(self, held: Hold) -> None:
        with self._changed:
            if self._mine.get(held.key) == held:
                del self._mine[held.key]
            self._changed.notify_all()

    def until_none(self, seconds: float) -> bool:
        """Wait until nothing is held any more; False when that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._mine, seconds)

    def give_all_back(self) -> None:
        """What is still held when this process must end; best effort, the holds lapse by themselves."""
        for held in list(self._mine.values()):
            try:
                self.give_back(held)
            except SQLAlchemyError as error:
                log.warning("the lease of round %s could not be released: %s", held.key, error)

    def keep(self, stop: threading.Event) -> None:
        """Say from time to time that they are still under way; the body of a thread."""
        while not stop.wait(SIGN_EVERY_S):
            began = time.monotonic()
            try:
                self.sign()
            except SQLAlchemyError as error:
                log.warning("%s, the leases of rounds could not be renewed: %s", why_sql_away(error), error)
            if (took := time.monotonic() - began) > HOLD_S - SIGN_EVERY_S:
                log.warning(
                    "renewing the leases of rounds took %.0f s; another worker may have claimed them", took
                )

    def sign(self) -> None:
        """Hold everything for another while."""
        with self._changed:
            mine = list(self._mine.values())
        if not mine:
            return
        with self.server.store.write() as session:
            lost = [held.key for held in mine if not outbox.extend_hold(session, held, HOLD_S)]
        for round_id in lost:
            # this process stood still for too long; the first who is done counts
            log.warning("another sandbox worker has the lease of round %s", round_id)


MOST_KILLS = 5
"""Tries after which a submission that ends this process each time is left to a person."""
MOST_FAULTS = 8
"""Tries, over half an hour, after which one that this server cannot run is left to a person."""
KILLS_WORKER = "Running this work ended the program that runs it, several times; a person must look at it."
NEVER_RAN = "The work could not be run on this server, several times; a person must look at it. {}"
TURN_S = 2.0
"""So much later a student's next work is looked at, while other work of theirs is run."""
LET_FINISH_S = 3.0
"""Most work is done within it; what is not is run again by somebody else."""
GIVE_UP_S = 5.0
"""After the sandboxes were ended; container engines stop programs after 10 s."""


def run_round(server: Server, runner: Runner, holding: ClaimedRounds, round_id: str) -> float | None:
    """Run a round's work, once, and queue the round with what that showed.

    Returns the seconds after which somebody should look again; nothing when there is nothing left to do.
    """
    with holding.turn(round_id) as free:
        if not free:
            return TURN_S
        held = holding.take(round_id)
        if held is None:
            return HOLD_S if holding.waits(round_id) else None
        return _run_claimed(server, runner, holding, held)


def _run_claimed(server: Server, runner: Runner, holding: ClaimedRounds, held: Hold) -> float | None:
    round_id = held.key
    if held.tries > (MOST_FAULTS if held.error else MOST_KILLS):
        without = NEVER_RAN.format(held.error) if held.error else KILLS_WORKER
    else:
        without = ""
    began = time.monotonic()
    try:
        ready = (
            prepare(server, round_id, without=without)
            if without
            else prepare_by_running(server, round_id, runner.run)
        )
    except SandboxUnavailable as error:
        if holding.ending.is_set():
            holding.give_back(held)
            return 0.0
        log.warning("the sandbox run of round %s failed, retrying: %s", round_id, error)
        return holding.put_off(held, error.message, counted=not isinstance(error, InputUnavailable))
    except BaseException:
        holding.give_back(held)
        raise
    holding.speed.learn(time.monotonic() - began)
    holding.give_back(held)
    if ready:
        admit_runs(server)
    return None


def look_again(server: Server, round_id: str, wait_s: float) -> None:
    """Announce a round once more, unless it is prepared by now; the sweeper finds it otherwise."""
    with server.store.read() as session:
        waiting_for = preparing.list_priorities(session, [round_id])
    for priority in waiting_for.values():
        server.dispatch.announce_execution(round_id, priority, wait_s + 0.5 if wait_s else 0.0)


def register(app: Celery, server: Server, runner: Runner, holding: ClaimedRounds) -> None:
    """Make the tasks known to a worker's application."""

    @app.task(name=celery_app.EXECUTE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def run_work(round_id: str) -> None:
        wait_s = run_round(server, runner, holding, round_id)
        if wait_s is not None:
            look_again(server, round_id, wait_s)

    @app.task(name=celery_app.PRECHECK, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def run_code(precheck_id: str) -> None:
        run_precheck(server, runner, precheck_id)

    # web apps from before there was this pool announce every round here; theirs are prepared, too
    @app.task(name=celery_app.PREPARE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def prepare_round(round_id: str) -> None:
        if prepare(server, round_id):
            admit_runs(server)


def end_soon(holding: ClaimedRounds, sandboxes: ClosableBackend, ended: threading.Event) -> None:
    """End what runs, after a short grace, and give the rounds back; then the process ends, whatever hangs."""
    done = holding.until_none(LET_FINISH_S)
    holding.ending.set()
    sandboxes.close()
    if not done:
        log.info("unfinished sandbox runs are killed and requeued")
    if ended.wait(GIVE_UP_S):
        return
    log.warning("the sandbox worker does not stop, exiting")
    holding.give_all_back()
    logging.shutdown()
    os._exit(0)


def start_sandbox_worker(config: Config) -> None:
    """Run the pool until it is told to stop."""
    server = open_server(config)
    app = server.dispatch.celery
    app.conf.worker_send_task_events = config.redis.monitor
    stop, holding = threading.Event(), ClaimedRounds(server)
    canaries = Canaries(server.dispatch.registry.redis)
    settings = config.sandbox
    sandbox = ClosableBackend(open_backend(settings.backend, engine=settings.engine, image=settings.image))
    log.info("sandbox backend: %s %s", sandbox.name, sandbox.problem())

    def rate() -> Rate:
        return Rate(settings.at_once, holding.speed.seconds)

    def ready(_consumer: Any) -> None:
        threading.Thread(
            target=send_heartbeats_until, args=(stop, canaries, "sandbox", rate), daemon=True
        ).start()
        threading.Thread(target=holding.keep, args=(stop,), daemon=True).start()
        keep_watch(Watch(canaries, celery_app.SANDBOX, settings.at_once, holding.ending.is_set), stop)

    def stopping() -> None:
        # rounds stay held, and the part sends heartbeats, until the last is done or given back
        threading.Thread(target=end_soon, args=(holding, sandbox, stop), daemon=True).start()

    with Shelf() as shelf:
        runner = Runner(
            server.store, Executor(sandbox, lambda language: find_runtime(language, settings)), shelf
        )
        register(app, server, runner, holding)
        register_canary(app, canaries, celery_app.SANDBOX)
        try:
            run_worker(app, "sandbox", celery_app.SANDBOX_QUEUES, settings.at_once, ready, stopping)
        finally:
            stop.set()
            server.store.close()
