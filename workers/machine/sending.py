"""Sending results to the server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from grading.dispatch import AWAY
from grading.jobs import Result

log = logging.getLogger(__name__)
SEND_FOR_S = 600.0
"""How long a finished result is offered to a Redis that is away, before the work is given up."""


def offer(
    send: Callable[[Mapping[str, Any]], None], content: Mapping[str, Any], stop: threading.Event
) -> None:
    """Send a result, for ten minutes if need be or until `stop`; then raises one of AWAY."""
    waited, wait = 0.0, 0.2
    while True:
        try:
            send(content)
            return
        except AWAY as error:
            if waited >= SEND_FOR_S or stop.wait(wait):
                raise
            log.warning("redis is away, the result waits here: %s", error)
        waited, wait = waited + wait, min(wait * 2, 5.0)


def for_chord(result: Result) -> dict[str, Any]:
    """A result as JSON for who waits for it; the server has the prompt already, which is large."""
    return result.model_dump(mode="json", exclude={"prompt"})
