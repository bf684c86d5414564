"""The bridge to a Canvas by its API: pulls people and new attempts, tells released grades, compares.

A row of the outbox says of whom; what is told is what counts when it is told. Before anything is posted
Canvas is asked what it has, so that a post whose answer was lost is not made twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import DBAPIError

from grading.config.server import Canvas
from grading.domain.errors import GraderError
from grading.integrations.canvas.client import Talk, TokenRefused
from grading.integrations.canvas.values import CanvasFailed, CanvasSilent
from grading.store import outbox, periodic_tasks
from grading.store.integrations.canvas import links, score_sync, scores
from grading.store.integrations.canvas.links import Link
from grading.store.outbox import Delivery
from workers.server.context import Server
from workers.server.delivery.canvas_import import Pulled, Pulling
from workers.server.delivery.lti import RETRIES_S

log = logging.getLogger(__name__)
EVERY_S = 5.0
LEASE_S = 180.0
"""A try asks and posts at the most six times, each in a quarter of a minute, and waits in between."""
AT_ONCE = 500
PULL, RECONCILE, COMPARE = "canvas-pull", "canvas-reconcile", "canvas-compare"
RECONCILE_EVERY = timedelta(minutes=10)
COMPARE_EVERY = timedelta(hours=24)


@dataclass
class Pass:
    """One pass of telling: who is spoken to, and who does not answer."""

    talks: dict[str, Talk] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)


@dataclass
class Bridge:
    """Works on everything that is linked; any number of processes may do so at once."""

    server: Server
    tokens: Mapping[str, str]
    """By the name of a Canvas; one without a token is left alone, and that is said."""
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> list[threading.Thread]:
        """Work every 5 s until `stop`, if there is a Canvas; a long pull keeps no score waiting."""
        if not self.server.config.server.canvases:
            return []
        threads = [threading.Thread(target=self._run, args=(work,)) for work in (self.fetch, self.tell)]
        for thread in threads:
            thread.start()
        return threads

    def _run(self, work: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                work()
            except DBAPIError as error:
                log.warning("the database is away, Canvas waits: %s", error)
            except Exception:
                log.exception("the bridge to Canvas failed; trying again")
            self.stop.wait(EVERY_S)

    def fetch(self) -> None:
        """Pull, and compare, where it is time."""
        every = timedelta(minutes=self.server.config.server.canvas_every_min)
        with self._chore(PULL, every) as mine:
            if mine:
                self.pull()
        with self._chore(COMPARE, COMPARE_EVERY) as mine:
            if mine:
                self.compare()
                with self.server.store.write() as session:
                    scores.tidy(session)

    def tell(self) -> None:
        """Post what is due."""
        with self._chore(RECONCILE, RECONCILE_EVERY) as mine:
            if mine:
                self.reconcile()
        self.push()

    @contextmanager
    def _chore(self, name: str, every: timedelta) -> Iterator[bool]:
        """Whether it is due and this process has it; planned again before it begins, so that it ends once."""
        with self.server.store.write() as session:
            periodic_tasks.plan(session, name)
            mine = periodic_tasks.take(session, name) is not None
            if mine:
                periodic_tasks.again(session, name, every)
        yield mine

    def talk(self, connection: str) -> Talk:
        """To one Canvas. Raises CanvasFailed where it is not in config.toml or has no token."""
        return Talk(
            self._canvas(connection).url, self.tokens[connection], self.server.config.server.allowed,
            self.stop.wait,
        )  # fmt: skip

    def _canvas(self, connection: str) -> Canvas:
        found = [one for one in self.server.config.server.canvases if one.name == connection]
        if not found:
            raise CanvasFailed(
                f"There is no Canvas '{connection}' in server.canvases of config.toml any more."
            )
        if not self.tokens.get(connection):
            raise TokenRefused(
                f"There is no token for '{connection}' in the environment; see docs/canvas.md."
            )
        return found[0]

    def pull(self, only: int | None = None) -> Pulled:
        """Bring people and new attempts of all links, or of one."""
        return Pulling(self.server, self.talk, self.stop).pull(only)

    def reconcile(self) -> int:
        """Leave word of whatever changed without a word; how many."""
        with self.server.store.read() as session:
            found = links.live(session)
        count = 0
        for link in found:
            with self.server.store.write() as session:
                count += scores.reconcile(session, link)
        return count

    def push(self) -> int:
        """Tell what is due; how many were posted. A Canvas that is away keeps only its own waiting."""
        told, this = 0, Pass()
        for _ in range(AT_ONCE):
            if self.stop.is_set():
                break
            with self.server.store.write() as session:
                rows = outbox.claim(session, score_sync.KIND, 1, LEASE_S)
            if not rows:
                break
            told += self._tell(rows[0], this)
        return told

    def _tell(self, row: Delivery, this: Pass) -> bool:
        base = self.server.config.server.public_url.rstrip("/")
        with self.server.store.write() as session:
            link = next(iter(links.live(session, int(row.payload["link"]))), None)
            if link is not None and link.connection in this.silent:
                outbox.failed(session, row, "Canvas does not answer", _wait(row) or RETRIES_S[-1])
                return False
            feedback = link is None or self._feedback(link.connection)
            turn = scores.take(
                session, int(row.payload["link"]), int(row.payload["user"]), LEASE_S, base, feedback=feedback
            )
            if turn == "busy":
                outbox.failed(session, row, "another process tells it", RETRIES_S[0])
            elif isinstance(turn, str):
                outbox.done(session, row)
            if isinstance(turn, str):
                return False
        return self._try(row, turn, f"{base}/submissions/", this)

    def _feedback(self, connection: str) -> bool:
        return all(one.feedback for one in self.server.config.server.canvases if one.name == connection)

    def _try(self, row: Delivery, turn: scores.Turn, mark: str, this: Pass) -> bool:
        link = turn.link
        place = (link.canvas_course, link.canvas_assignment, turn.canvas_user)
        try:
            talk = this.talks.get(link.connection) or self.talk(link.connection)
            this.talks[link.connection] = talk
            posted = talk.tell(*place, turn.wanted, talk.there(*place, mark))
        except GraderError as error:
            if isinstance(error, CanvasSilent | TokenRefused):
                this.silent.add(link.connection)
            self._failed(row, turn, error.message)
            return False
        with self.server.store.write() as session:
            if scores.told(session, turn, posted=posted):
                outbox.done(session, row)
            else:
                outbox.failed(session, row, "another process told it since", RETRIES_S[0])
        return posted

    def _failed(self, row: Delivery, turn: scores.Turn, error: str) -> None:
        wait = _wait(row)
        with self.server.store.write() as session:
            scores.failed(session, turn, error, given_up=wait is None)
            outbox.failed(session, row, error, wait)
        what = "given up" if wait is None else f"again in {wait:g} s"
        log.warning("score of link %d, user %d: %s; %s", turn.link.id, turn.user_id, error, what)

    def compare(self, only: int | None = None) -> int:
        """Compare what Canvas has with what was released; how many differ. Nothing is overwritten."""
        with self.server.store.read() as session:
            found = links.live(session, only)
        return sum(self._compare(link) for link in found if not self.stop.is_set())

    def _compare(self, link: Link) -> int:
        count, error = 0, ""
        try:
            theirs = self.talk(link.connection).all_there(link.canvas_course, link.canvas_assignment)
        except GraderError as failed:
            error = failed.message
            log.warning("link %d of Canvas cannot be compared: %s", link.id, error)
        with self.server.store.write() as session:
            if not error:
                count = scores.compare(session, link, theirs)
            links.compared(session, link.id, error)
        if count:
            log.warning("link %d: %d scores differ between Canvas and here", link.id, count)
        return count


def _wait(row: Delivery) -> float | None:
    """Seconds until the next try; nothing after the last one."""
    return RETRIES_S[row.tries - 1] if row.tries <= len(RETRIES_S) else None
