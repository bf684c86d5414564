"""Heartbeats of the server's processes, sent by a thread of each."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from grading.broker.away import why_away
from grading.broker.canaries import Canaries
from grading.execution.throughput import Rate
from grading.shared.code_version import code_folder, software

log = logging.getLogger(__name__)
HEARTBEAT_S = 5.0


def me() -> str:
    """This process, as other processes may call it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def send_heartbeats_until(
    stop: threading.Event,
    canaries: Canaries,
    part: str,
    rate: Callable[[], Rate | None] = lambda: None,
    secret: str = "",
) -> None:
    """Say every 5 s that this part lives, and how fast it runs work; the body of a thread."""
    heard = True
    while True:
        try:
            canaries.heartbeat(part, me(), software(), rate(), code_folder(), secret)
            heard = True
        except RedisError as error:
            if heard:
                log.warning("%s, the %s could not send a heartbeat: %s", why_away(error), part, error)
            heard = False
        if stop.wait(HEARTBEAT_S):
            break
    with suppress(RedisError):
        canaries.leave(me())
