"""The server processes: the Celery tasks of queue `store`, the store worker, the sweeper."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from celery import Celery

from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.broker.part_heartbeats import send_heartbeats_until
from grading.config.settings import Config
from grading.domain.errors import FilesUnavailable
from grading.domain.learning_platforms import platform_modules
from workers.celery_worker import Watch, keep_watch, register_canary, run_worker
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.context import Server, open_server
from workers.server.delivery.mail import MailSender
from workers.server.delivery.webhooks import Relay, receivers
from workers.server.file_mover import FileMover
from workers.server.inbox import Inboxes
from workers.server.prepare import prepare
from workers.server.sweeper import Sweeper

UNTIL_SQL_IS_BACK = {
    "autoretry_for": (*record.SQL_AWAY, FilesUnavailable),
    "retry_backoff": 1,
    "retry_backoff_max": 10,
    "max_retries": 60,
}


def register(app: Celery, server: Server) -> None:
    """Make the tasks known to a worker's application."""

    @app.task(name=celery_app.PREPARE, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def prepare_round(round_id: str) -> None:
        if prepare(server, round_id):
            admit_runs(server)

    @app.task(name=celery_app.ADMIT, ignore_result=True, **UNTIL_SQL_IS_BACK)
    def admit_rounds() -> None:
        admit_runs(server)


STORE_THREADS = 2


def start_store(config: Config) -> None:
    """Run the store worker until it is told to stop."""
    server = open_server(config)
    app = server.dispatch.celery
    app.conf.worker_send_task_events = config.redis.monitor
    register(app, server)
    stop = threading.Event()
    canaries = Canaries(server.dispatch.registry.redis)
    register_canary(app, canaries, celery_app.STORE)

    def ready(_consumer: Any) -> None:
        threading.Thread(target=send_heartbeats_until, args=(stop, canaries, "store"), daemon=True).start()
        keep_watch(Watch(canaries, celery_app.STORE, STORE_THREADS), stop)

    reading = threading.Thread(target=Inboxes(server, stop).read, name="inboxes")
    reading.start()
    try:
        run_worker(app, "store", [celery_app.STORE], STORE_THREADS, ready, stop.set)
    finally:
        stop.set()
        reading.join()
        server.store.close()


def start_sweeper(
    config: Config,
    event_secrets: Mapping[str, Sequence[str]],
    translations: Path,
    mail_password: str = "",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run the sweeper, and beside it what sends webhooks, mail and scores, until SIGTERM or SIGINT.

    Learning platforms find their tokens in `environ`.
    """
    server, told = open_server(config), receivers(config, event_secrets)
    platforms, stop = platform_modules("workers.server.delivery.{}"), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    sending = [
        *Relay(server, told, stop).start(),
        MailSender(server, translations, mail_password, stop).start(),
        FileMover(server, stop).start(),
        *(thread for one in platforms.values() for thread in one.start(server, environ, stop)),
    ]
    try:
        Sweeper(server).run(stop)
    finally:
        stop.set()
        for thread in sending:
            thread.join()
        server.store.close()
