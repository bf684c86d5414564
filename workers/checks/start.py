"""Starting the pool that runs students' work: a Celery worker on the queues `checks` and `checks.batch`."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from sqlalchemy.exc import DBAPIError

from grading import queue
from grading.canaries import Canaries
from grading.config import Config
from grading.store import outbox
from workers import canary
from workers.checks.files import Shelf
from workers.checks.lab import Lab
from workers.checks.sandbox import open_sandbox
from workers.checks.toolbox import find_toolbox
from workers.checks.trial import Trials
from workers.server.canary import beat_until
from workers.server.context import Server, open_server
from workers.server.prepare import prepare_by_running
from workers.server.release import release
from workers.server.tasks import UNTIL_SQL_IS_BACK
from workers.start import run_worker

log = logging.getLogger(__name__)
HOLD_S = 15.0
"""So long nobody else runs a round's work after the last sign of life of who does."""
SIGN_EVERY_S = 4.0


@dataclass
class Holding:
    """The rounds whose work this process runs now, held in SQL so that a sweeper leaves them alone."""

    server: Server
    _mine: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, round_id: str) -> bool:
        """False when it is done, or somebody else is at it."""
        with self.server.store.write() as session:
            held = outbox.hold(session, "trial", round_id, HOLD_S)
        if held:
            with self._lock:
                self._mine.add(round_id)
        return held

    def give_back(self, round_id: str) -> None:
        """It is prepared, or due again for the next who tries."""
        with self._lock:
            self._mine.discard(round_id)
        with self.server.store.write() as session:
            outbox.let_go(session, "trial", round_id)

    def keep(self, stop: threading.Event) -> None:
        """Say from time to time that they are still under way; the body of a thread."""
        while not stop.wait(SIGN_EVERY_S):
            with self._lock:
                mine = sorted(self._mine)
            if not mine:
                continue
            try:
                with self.server.store.write() as session:
                    outbox.hold_on(session, "trial", mine, HOLD_S)
            except DBAPIError as error:
                log.warning("the database is away, rounds cannot be held: %s", error)


def try_round(server: Server, lab: Lab, holding: Holding, round_id: str) -> None:
    """Run a round's work, once, and queue the round with what that showed."""
    if not holding.take(round_id):
        return
    try:
        if prepare_by_running(server, round_id, lab.run):
            release(server)
    finally:
        holding.give_back(round_id)


def register(app: Celery, server: Server, lab: Lab, holding: Holding) -> None:
    """Make the task known to a worker's application."""

    @app.task(name=queue.TRIAL, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def run_work(round_id: str) -> None:
        try_round(server, lab, holding, round_id)


def start_checks(config: Config) -> None:
    """Run the pool until it is told to stop."""
    server = open_server(config)
    app = server.dispatch.celery
    app.conf.worker_send_task_events = config.redis.monitor
    stop, holding = threading.Event(), Holding(server)
    canaries = Canaries(server.dispatch.registry.redis)
    settings = config.checks
    sandbox = open_sandbox(settings.sandbox, engine=settings.engine, image=settings.image)
    log.info("work is run in: %s %s", sandbox.name, sandbox.problem())

    def ready(_consumer: Any) -> None:
        threading.Thread(target=beat_until, args=(stop, canaries, "checks"), daemon=True).start()
        threading.Thread(target=holding.keep, args=(stop,), daemon=True).start()
        canary.keep_watch(canary.Watch(canaries, queue.CHECKS, settings.slots), stop)

    with Shelf() as shelf:
        lab = Lab(server.store, Trials(sandbox, lambda language: find_toolbox(language, settings)), shelf)
        register(app, server, lab, holding)
        canary.register(app, canaries, queue.CHECKS)
        try:
            run_worker(app, "checks", queue.CHECKS_QUEUES, settings.slots, ready, stop.set)
        finally:
            stop.set()
            server.store.close()
