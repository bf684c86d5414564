"""The Celery tasks beside the database, on queue `store`."""

from __future__ import annotations

from celery import Celery

from grading.broker import celery_app
from workers.server import record
from workers.server.admit import release
from workers.server.context import Server
from workers.server.prepare import prepare

UNTIL_SQL_IS_BACK = {
    "autoretry_for": record.SQL_AWAY,
    "retry_backoff": 1,
    "retry_backoff_max": 10,
    "max_retries": 60,
}


def register(app: Celery, server: Server) -> None:
    """Make the tasks known to a worker's application."""

    @app.task(name=celery_app.PREPARE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def prepare_round(round_id: str) -> None:
        if prepare(server, round_id):
            release(server)

    @app.task(name=celery_app.RELEASE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def release_rounds() -> None:
        release(server)
