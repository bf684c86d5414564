"""The status that waiting pages ask for: one look at SQL and Redis a second, however many pages ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from flask import Blueprint, Response, current_app, g, request, session
from flask.blueprints import BlueprintSetupState
from flask_login import current_user

from app.submissions.status_texts import live, next_look_s, open_runs, progress, seen_by
from app.web import auth
from app.web.i18n import speak
from app.web.parsing import tagged
from app.web.services import Dispatch, Services, services
from grading.broker.heartbeats import Lease
from grading.domain.errors import NotFound, NotSignedIn
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_SUBMISSION
from grading.store import Store
from grading.store.views import status as live_status
from grading.store.views.status import LiveStatus, Reader

pages = Blueprint("status_poll", __name__)
LOOK_EVERY_S = 1.0
REST = 25.0
"""So many times as long as a look took, nobody looks: at most a twenty-fifth of a core goes into looking."""
WATCHED_S = 120.0
"""A page that did not ask for so long is gone; hidden ones ask at least once a minute."""
SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class PolledState:
    """A submission as it was looked at, and who was at its runs."""

    wait: LiveStatus
    leases: Mapping[str, Lease] = field(default_factory=dict)

    @property
    def at_work(self) -> bool:
        """Whether a machine has it."""
        return bool(self.leases)


class Board:
    """What is known of the submissions that pages wait for, and of those who look at them.

    While one request looks anew, the others go on with what was seen before: nobody waits for a look.
    """

    def __init__(self, store: Store, dispatch: Dispatch) -> None:
        self._store, self._dispatch = store, dispatch
        self._looking = threading.Lock()
        """Held by the one that looks."""
        self._lock = threading.Lock()
        """Of all that follows; never held while something is read."""
        self._requested: dict[str, float] = {}
        self._users: dict[int, float] = {}
        self._states: dict[str, PolledState] = {}
        self._readers: dict[int, Reader] = {}
        self._taken: tuple[dict[str, PolledState], dict[int, Reader]] = ({}, {})
        """What single requests read since the present or last look began: as new as what that one sees."""
        self._changed: dict[int, float] = {}
        """When users last changed something; until a look, what they ask for is read anew."""
        self._began = 0.0
        self._looked_at = 0.0
        self._changes, self._seen = 1, 0
        """Of what concerns many: counted, and as many of them as were seen by the last look."""
        self._rest_s = LOOK_EVERY_S
        self._alike = (0, 0)

    def alike(self, state: PolledState) -> int:
        """How many submissions that pages wait for are as far as this one: with a machine, or not yet."""
        return self._alike[state.at_work]

    def forget(self) -> None:
        """Something that concerns many was changed here: the next one looks anew."""
        with self._lock:
            self._changes += 1

    def forget_user(self, user_id: int) -> None:
        """This user changed something of their own here: they see it at once, others with the next look."""
        with self._lock:
            self._changed[user_id] = time.monotonic()

    def changed(self, session_id: str) -> bool:
        """Whether the user of this session changed something since the last look."""
        return auth.session_of(session_id).user_id in self._changed

    def reader(self, session_id: str, *, anew: bool) -> Reader:
        """Whose session this is. Raises NotSignedIn."""
        loaded = auth.session_of(session_id)
        found = self._readers.get(loaded.user_id)
        if anew or found is None or loaded.id not in found.sessions:
            began = time.monotonic()
            readers = self._read_readers([loaded.user_id])
            self._take(began, {}, readers)
            found = readers.get(loaded.user_id)
        if found is None or found.stamp != loaded.stamp or loaded.id not in found.sessions:
            raise NotSignedIn
        with self._lock:
            self._users[loaded.user_id] = time.monotonic()
        return found

    def state(self, submission_id: str, *, anew: bool) -> PolledState:
        """Where a submission stands, as it was seen within about a second, or now. Raises NotFound."""
        found = self._states.get(submission_id)
        if anew or found is None:
            began = time.monotonic()
            states = self._read([submission_id])
            self._take(began, states, {})
            found = states.get(submission_id)
        if found is None:
            raise NotFound(NO_SUCH_SUBMISSION)
        with self._lock:
            self._requested[submission_id] = time.monotonic()
        return found

    def look(self) -> None:
        """At all that pages wait for and at all who do, when it is time."""
        rests = time.monotonic() - self._looked_at < self._rest_s
        if (rests and self._seen == self._changes) or not self._looking.acquire(blocking=False):
            return
        try:
            changes, submissions, users = self._begin()
            self._end(changes, self._read(submissions), self._read_readers(users))
        finally:
            self._looking.release()

    def _begin(self) -> tuple[int, list[str], list[int]]:
        """How many changes it will see, and what to look at."""
        with self._lock:
            self._began = now = time.monotonic()
            self._taken = ({}, {})
            self._requested = {one: at for one, at in self._requested.items() if now - at < WATCHED_S}
            self._users = {one: at for one, at in self._users.items() if now - at < WATCHED_S}
            return self._changes, list(self._requested), list(self._users)

    def _end(self, changes: int, states: Mapping[str, PolledState], readers: Mapping[int, Reader]) -> None:
        at_work = sum(one.at_work for one in states.values())
        with self._lock:
            self._states, self._readers = {**states, **self._taken[0]}, {**readers, **self._taken[1]}
            self._changed = {one: at for one, at in self._changed.items() if at >= self._began}
            self._alike, self._seen = (len(states) - at_work, at_work), changes
            self._looked_at = time.monotonic()
            self._rest_s = max(LOOK_EVERY_S, REST * (self._looked_at - self._began))

    def _take(self, began: float, states: Mapping[str, PolledState], readers: Mapping[int, Reader]) -> None:
        """Keep what a single request read, beginning then, unless a look began later."""
        with self._lock:
            if began < self._began:
                return
            for kept in ((self._states, self._readers), self._taken):
                kept[0].update(states)
                kept[1].update(readers)

    def _read_readers(self, users: Iterable[int]) -> dict[int, Reader]:
        with self._store.read_autocommit() as opened:
            return live_status.load_readers(opened, users)

    def _read(self, submission_ids: Iterable[str]) -> dict[str, PolledState]:
        with self._store.read_autocommit() as opened:
            found = live_status.load_statuses(opened, submission_ids)
        runs = [run for wait in found.values() for run in open_runs(wait)]
        leases = self._dispatch.leases(runs) if runs else {}
        return {
            name: PolledState(wait, {run: leases[run] for run in open_runs(wait) if run in leases})
            for name, wait in found.items()
        }


@pages.record
def _watch(state: BlueprintSetupState) -> None:
    """Let pages of this app wait."""
    services = cast(Services, state.app.extensions["grader"])
    state.app.extensions["grader-waiting"] = Board(services.store, services.dispatch)


@pages.before_app_request
def _note_user() -> None:
    """Whose session a change is made with; signing out forgets it."""
    if request.method not in SAFE:
        g.changing = str(session.get("_user_id", ""))


@pages.after_app_request
def _changed(response: Response) -> Response:
    """What staff change on pages of this process is seen at once; what others change, by themselves.

    Everything else is seen with the next look, as what another process changed: when thousands submit, each
    of them would have everything looked at anew for all who wait.
    """
    if request.method not in SAFE and not g.get("broken"):
        board = cast(Board, current_app.extensions["grader-waiting"])
        if current_user.is_authenticated and current_user.actor.staff:
            board.forget()
        board.forget_user(auth.session_of(g.get("changing", "")).user_id)
    return response


@pages.get("/submissions/<submission_id>/status.json")
def status(submission_id: str) -> Response:
    """What a waiting page asks for. Who names what they have (ETag) is told what was seen lately."""
    board = cast(Board, current_app.extensions["grader-waiting"])
    session_id = str(session.get("_user_id", ""))
    knows = "If-None-Match" in request.headers
    if knows:
        board.look()  # before the reader is believed: somebody may have signed out here
    anew = not knows or board.changed(session_id)
    reader = board.reader(session_id, anew=anew)
    speak(reader.language or session.get("language"))
    actor = auth.limited(reader.actor)
    if actor is None:
        raise NotSignedIn
    state = board.state(submission_id, anew=anew)
    return tagged(_status(board, actor, state))


def _status(board: Board, actor: Actor, state: PolledState) -> dict[str, object]:
    wait = state.wait
    subject = Subject(wait.course_id, wait.student_id, wait.released, wait.members)
    if not may(actor, "submission.see", subject):
        raise NotFound(NO_SUCH_SUBMISSION)
    with services().store.read_autocommit() as opened:
        how_far = seen_by(actor, wait, progress(opened, wait, state.leases))
    now = live(wait, how_far, sees_score=may(actor, "score.see", subject))
    next_s = next_look_s(wait, how_far, now, board.alike(state))
    return {**now.model_dump(mode="json"), "next_s": next_s}
