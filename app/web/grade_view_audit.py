"""Records in the audit log who viewed whose grade, after the response: no page waits or fails for it."""

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
"""A second view of the same grade by the same person within so long is not recorded."""
REMEMBERED = 20_000
"""Views that are remembered; older ones are looked up in the database."""
KEPT = 1_000
"""Views that wait while the database takes no writes; the oldest are dropped."""
View = tuple[str, str, dict[str, Any]]
"""Actor, object (`submission:…`), and how it was viewed."""


class GradeViews:
    """Views of grades that wait to be written to the audit log; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting: deque[View] = deque(maxlen=KEPT)

    def new(self, actor: Actor, object_: str) -> bool:
        """Whether this view is to be recorded; the next one within EVERY_S is not."""
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

    def write(self, view: View) -> None:
        """Write this one and those that wait. What the database refuses waits for the next view."""
        with self._lock:
            views = [*self._waiting, view]
            self._waiting.clear()
        try:
            with self._store.write() as session:
                for actor, object_, how in views:
                    if not audit.viewed_recently(session, actor, object_, timedelta(seconds=EVERY_S)):
                        audit.write_audit(session, actor, audit.VIEW_ACTION, object_, how)
        except SQLAlchemyError as error:
            log.warning(
                "%d views of grades could not be written to the audit log, retrying: %s", len(views), error
            )
            with self._lock:
                self._waiting.extend(views)


def watch(app: Flask, store: Store) -> None:
    """Let `viewed` work in this app."""
    app.extensions["grader-views"] = GradeViews(store)


def viewed(actor: Actor, submission_id: str, how: str = "page") -> None:
    """Record, while a request is answered, that the actor sees the grade of this submission."""
    _viewed(actor, f"submission:{submission_id}", {"how": how})


def viewed_all(actor: Actor, assignment_id: int, count: int) -> None:
    """Record that the actor sees the grades of a whole assignment."""
    _viewed(actor, f"assignment:{assignment_id}", {"how": "zip", "count": count})


def _viewed(actor: Actor, object_: str, how: dict[str, Any]) -> None:
    views = cast(GradeViews, current_app.extensions["grader-views"])
    if not views.new(actor, object_):
        return

    @after_this_request
    def later(response: Response) -> Response:
        if response.status_code < 400:
            response.call_on_close(lambda: views.write((actor.name, object_, how)))
        return response
