"""Starting the processes beside the database: the store worker and the sweeper."""

from __future__ import annotations

import signal
import threading

from grading import queue
from grading.config import Config
from workers.server.context import open_server
from workers.server.sweep import Sweeper
from workers.server.tasks import register
from workers.start import run_worker

STORE_THREADS = 2


def start_store(config: Config) -> None:
    """Run the store worker until it is told to stop."""
    server = open_server(config)
    register(server.dispatch.celery, server)
    try:
        run_worker(server.dispatch.celery, "store", [queue.STORE, queue.CHECKS], STORE_THREADS, lambda: None)
    finally:
        server.store.close()


def start_sweeper(config: Config) -> None:
    """Run the sweeper until SIGTERM or SIGINT."""
    server = open_server(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Sweeper(server).run(stop)
    server.store.close()
