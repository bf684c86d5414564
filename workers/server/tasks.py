"""The Celery tasks beside the database, on queues `store` and `checks`."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from pydantic import ValidationError
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

from grading import queue
from grading.model import Result
from workers.server import finish
from workers.server.context import Server
from workers.server.prepare import prepare
from workers.server.release import release

log = logging.getLogger(__name__)
UNTIL_SQL_IS_BACK = {
    # not DBAPIError: data a database refuses will be refused again
    "autoretry_for": (OperationalError, InterfaceError, InternalError),
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
    def record_result(result: dict[str, Any]) -> None:
        try:
            read = Result.model_validate(result)
        except ValidationError as error:
            # not its text, which repeats what a student wrote
            log.error("a message that is no result was refused: %d faults", error.error_count())
            return
        finish.record(server, read)

    @app.task(name=queue.COMBINE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def combine_round(round_id: str) -> None:
        finish.combine(server, round_id)
        release(server)
