"""Writing down who looked at whose grade, after the answer was sent: no page waits or fails for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from datetime import timedelta
from typing import Any, cast

from flask import Flask, Response, after_this_request, current_app
from sqlalchemy.exc import SQLAlchemyError

from grading.domain.permissions import Actor
from grading.store import Store, audit

log = logging.getLogger(__name__)
EVERY_S = 600.0
"""A second look of the same person at the same grade within so long is not written down."""
REMEMBERED = 20_000
"""Looks that are remembered; of older ones the database knows."""
KEPT = 1_000
"""Looks that wait for a database which takes no writes; the oldest go."""
Look = tuple[str, str, dict[str, Any]]
"""Who, what (`submission:…`), and how it was looked at."""


class Views:
    """Remembers looks, and writes them when the database takes them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting: deque[Look] = deque(maxlen=KEPT)

    def new(self, actor: Actor, object_: str) -> bool:
        """Whether this look is to be written down; the next one within EVERY_S is not."""
        key, moment = (actor.name, object_), time.monotonic()
        with self._lock:
            cached = self._seen.get(key)
            if cached is not None and moment - cached < EVERY_S:
                return False
            self._seen[key] = moment
            self._seen.move_to_end(key)
            while len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return True

    def write(self, look: Look) -> None:
        """Write this one and those that wait. What the database refuses waits for the next look."""
        with self._lock:
            looks = [*self._waiting, look]
            self._waiting.clear()
        try:
            with self._store.write() as session:
                for actor, object_, how in looks:
                    if not audit.viewed_recently(session, actor, object_, timedelta(seconds=EVERY_S)):
                        audit.write_audit(session, actor, audit.VIEW_ACTION, object_, how)
        except SQLAlchemyError as error:
            log.warning("%d views of grades could not be written down yet: %s", len(looks), error)
            with self._lock:
                self._waiting.extend(looks)


def watch(app: Flask, store: Store) -> None:
    """Let `viewed` work in this app."""
    app.extensions["grader-views"] = Views(store)


def viewed(actor: Actor, submission_id: str, how: str = "page") -> None:
    """Say, while a request is answered, that the actor sees the grade of this submission."""
    _viewed(actor, f"submission:{submission_id}", {"how": how})


def viewed_all(actor: Actor, assignment_id: int, count: int) -> None:
    """Say that the actor sees the grades of a whole assignment."""
    _viewed(actor, f"assignment:{assignment_id}", {"how": "zip", "count": count})


def _viewed(actor: Actor, object_: str, how: dict[str, Any]) -> None:
    views = cast(Views, current_app.extensions["grader-views"])
    if not views.new(actor, object_):
        return

    @after_this_request
    def later(response: Response) -> Response:
        if response.status_code < 400:
            response.call_on_close(lambda: views.write((actor.name, object_, how)))
        return response
