"""The Celery tasks beside the database, on queue `store`."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery

from grading import queue
from workers.server import finish, inbox
from workers.server.context import Server
from workers.server.prepare import prepare
from workers.server.release import release, release_after_result

log = logging.getLogger(__name__)
UNTIL_SQL_IS_BACK = {
    "autoretry_for": finish.SQL_AWAY,
    "retry_backoff": 1,
    "retry_backoff_max": 10,
    "max_retries": 60,
}


def register(app: Celery, server: Server) -> None:
    """Make the tasks known to a worker's application."""

    @app.task(name=queue.PREPARE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def prepare_round(round_id: str) -> None:
        if prepare(server, round_id):
            release(server)

    @app.task(name=queue.RELEASE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def release_rounds() -> None:
        release(server)

    @app.task(name=queue.RECORD, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def record_result(machine: Any, message: Any = None) -> None:
        if message is None:
            log.error("a result of a machine of an earlier version was refused; update it: `grader deploy`")
            return
        inbox.receive(server, machine, message)
        release_after_result(server)
