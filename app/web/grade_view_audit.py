"""Records who viewed whose grade, in the audit log, and which levels staff saw, for marks that must be blind.

It does so after the response: no page waits or fails for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from flask import Flask, Response, after_this_request, current_app
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from grading.domain.permissions import Actor
from grading.store import Store, audit
from grading.store.review import level_views

log = logging.getLogger(__name__)
EVERY_S = 600.0
"""A second view of the same grade by the same person within so long is not recorded."""
REMEMBERED = 20_000
"""Views that are remembered; older ones are looked up in the database."""
KEPT = 1_000
"""Views that wait while the database takes no writes; the oldest are dropped."""


@dataclass(frozen=True)
class View:
    """What an actor views."""

    actor: Actor
    submissions: Sequence[str] = ()
    """Whose levels are shown."""
    assignment_id: int | None = None
    """Whose levels are all shown."""
    object_: str = ""
    """Of the audit, `submission:…`; empty where it lists no such view."""
    how: dict[str, Any] | None = None


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
                for one in views:
                    _record(session, one)
        except SQLAlchemyError as error:
            log.warning(
                "%d views of grades could not be written to the audit log, retrying: %s", len(views), error
            )
            with self._lock:
                self._waiting.extend(views)


def _record(session: Session, view: View) -> None:
    level_views.record(session, view.actor, view.submissions)
    if view.assignment_id is not None:
        level_views.record_class(session, view.actor, view.assignment_id)
    name, within = view.actor.name, timedelta(seconds=EVERY_S)
    if view.object_ and not audit.viewed_recently(session, name, view.object_, within):
        audit.write_audit(session, name, audit.VIEW_ACTION, view.object_, view.how)


def watch(app: Flask, store: Store) -> None:
    """Let `viewed` work in this app."""
    app.extensions["grader-views"] = GradeViews(store)


def viewed(actor: Actor, submission_id: str, how: str = "page") -> None:
    """Record, while a request is answered, that the actor sees the grade of this submission."""
    object_ = f"submission:{submission_id}"
    if _views().new(actor, object_):
        _later(View(actor, (submission_id,), object_=object_, how={"how": how}))


def viewed_all(actor: Actor, assignment_id: int, count: int) -> None:
    """Record that the actor sees the grades of a whole assignment."""
    object_ = f"assignment:{assignment_id}"
    if _views().new(actor, object_):
        how = {"how": "zip", "count": count}
        _later(View(actor, assignment_id=assignment_id, object_=object_, how=how))


def levels_shown(actor: Actor, submission_ids: Sequence[str]) -> None:
    """Record that a list shows levels of these submissions to the actor; the audit does not list it."""
    views = _views()
    new = [one for one in submission_ids if views.new(actor, f"levels:{one}")]
    if new:
        _later(View(actor, new))


def _views() -> GradeViews:
    return cast(GradeViews, current_app.extensions["grader-views"])


def _later(view: View) -> None:
    views = _views()

    @after_this_request
    def later(response: Response) -> Response:
        if response.status_code < 400:
            response.call_on_close(lambda: views.write(view))
        return response
