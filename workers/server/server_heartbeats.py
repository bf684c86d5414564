"""Heartbeats of the server processes, with the canaries that the sweeper sends."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

from redis.exceptions import RedisError

from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.execution.throughput import Rate
from grading.shared.code_version import software
from workers.server.context import Server

log = logging.getLogger(__name__)
HEARTBEAT_S = 5.0


def me() -> str:
    """This process, as other processes may call it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def sweep(server: Server) -> None:
    """The sweeper's part: say that it lives, and send canaries to whoever sends heartbeats and takes work."""
    canaries = Canaries(server.dispatch.registry.redis)
    canaries.heartbeat("sweeper", me(), software())
    queues = {
        celery_app.own_queue(b.machine)
        for b in server.dispatch.registry.heartbeats()
        if b.alive and not b.drained
    }
    alive = {part.part for part in canaries.parts() if part.alive}
    queues |= {name for name in (celery_app.STORE, celery_app.SANDBOX) if name in alive}
    for name in sorted(queues):
        if canaries.due(name):
            # without an expiry, which would ask the machine's own clock; there is never more than one
            server.dispatch.celery.send_task(celery_app.CANARY, queue=name, ignore_result=True)


def send_heartbeats_until(
    stop: threading.Event, canaries: Canaries, part: str, rate: Callable[[], Rate | None] = lambda: None
) -> None:
    """Say every 5 s that this part lives, and how fast it runs work; the body of a thread."""
    while True:
        try:
            canaries.heartbeat(part, me(), software(), rate())
        except RedisError as error:
            log.warning("redis is away, the %s cannot say that it lives: %s", part, error)
        if stop.wait(HEARTBEAT_S):
            break
