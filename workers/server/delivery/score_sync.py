"""Sending scores to a learning platform of any kind: periodic work, turns, retries and comparisons.

A row of the outbox names link and student; what is sent is what counts when it is sent. One sender at a time
has the turn of a student, and every attempt is written down.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from grading.broker.machine_status import span
from grading.domain.errors import GraderError
from grading.store import outbox, periodic_tasks
from grading.store.away import why_away as why_sql_away
from grading.store.database import Store, now
from grading.store.outbox import Delivery

log = logging.getLogger(__name__)
EVERY_S = 5.0
RETRIES_S = (5.0, *(minutes * 60.0 for minutes in (5, 30, 120, 300, 600, 840, 1200, 1440)))
"""Waits between attempts: three days in all."""
AT_ONCE = 500
RECONCILE_EVERY = timedelta(minutes=10)
COMPARE_EVERY = timedelta(hours=24)

Link = TypeVar("Link")
Turn = TypeVar("Turn")


class ScoreSync(ABC, Generic[Link, Turn]):
    """One kind of platform; any number of processes may work at once."""

    kind: ClassVar[str]
    """Of its rows in the outbox; its periodic tasks begin with it."""
    lease_s: ClassVar[float]
    """So long a turn belongs to one sender: longer than all requests of one attempt."""
    store: Store
    stop: threading.Event

    @cached_property
    def left_alone(self) -> dict[Hashable, datetime]:
        """Receivers that asked for it, and until when."""
        return {}

    @abstractmethod
    def links(self, session: Session) -> Sequence[int]:
        """The numbers of all that are in use."""

    @abstractmethod
    def link(self, session: Session, number: int) -> Link | None:
        """One that is in use, or nothing."""

    @abstractmethod
    def receiver(self, link: Link) -> Hashable:
        """The installation of the platform; while it does not answer, its other scores wait, too."""

    @abstractmethod
    def reconcile_link(self, session: Session, link: Link) -> int:
        """Put rows into the outbox for what changed unnoticed; how many."""

    @abstractmethod
    def take(self, session: Session, link: Link, user_id: int) -> Turn | str:
        """The turn of a student, `busy` while another process has it, or why there is nothing to send."""

    @abstractmethod
    def post(self, link: Link, turn: Turn) -> Any:
        """Send; what the platform answered, false where it had the score already. Raises GraderError."""

    @abstractmethod
    def sent(self, session: Session, turn: Turn, answer: Any) -> bool:
        """Write down that it was sent; False where another process had the turn meanwhile."""

    @abstractmethod
    def failed(self, session: Session, turn: Turn, error: GraderError, *, dead: bool) -> None:
        """Write down an attempt that failed; `dead` after the last one."""

    @abstractmethod
    def unreachable(self, error: GraderError) -> bool:
        """Whether the error concerns the whole installation, not this score."""

    def retry_after_s(self, error: GraderError) -> float:
        """Seconds that the platform asks to be left alone."""
        return 0.0

    @abstractmethod
    def compare(self) -> int:
        """Compare what platforms have with what counts; how many differ. Nothing is overwritten."""

    @abstractmethod
    def tidy(self, session: Session) -> object:
        """Delete old attempts."""

    def loop(self, work: Callable[[], object], name: str) -> threading.Thread:
        """Do the work every 5 s until `stop`, in a thread of its own."""
        thread = threading.Thread(target=self._run, args=(work,), name=name)
        thread.start()
        return thread

    def _run(self, work: Callable[[], object]) -> None:
        while not self.stop.is_set():
            try:
                work()
            except DBAPIError as error:
                log.warning("%s, scores are sent later: %s", why_sql_away(error), error)
            except Exception:
                log.exception("%s failed, retrying", self.kind)
            self.stop.wait(EVERY_S)

    @contextmanager
    def due(self, name: str, every: timedelta) -> Iterator[bool]:
        """Whether it is due and this process has it; planned again before it begins, so that it ends once."""
        with self.store.write() as session:
            periodic_tasks.schedule(session, name)
            mine = periodic_tasks.claim(session, name) is not None
            if mine:
                periodic_tasks.reschedule(session, name, every)
        yield mine

    def reconcile_when_due(self) -> None:
        """Every ten minutes."""
        with self.due(f"{self.kind}-reconcile", RECONCILE_EVERY) as mine:
            if mine:
                self.reconcile()

    def compare_when_due(self) -> None:
        """Every day."""
        with self.due(f"{self.kind}-compare", COMPARE_EVERY) as mine:
            if mine:
                self.compare()
                with self.store.write() as session:
                    self.tidy(session)

    def reconcile(self) -> int:
        """Put rows into the outbox for what changed unnoticed, link by link; how many."""
        with self.store.read() as session:
            found = self.links(session)
        count = 0
        for number in found:
            with self.store.write() as session:
                link = self.link(session, number)
                count += 0 if link is None else self.reconcile_link(session, link)
        return count

    def send_due(self) -> int:
        """Send what is due; how many scores were sent."""
        count, silent = 0, set[Hashable]()
        for _ in range(AT_ONCE):
            if self.stop.is_set():
                break
            with self.store.write() as session:
                rows = outbox.claim(session, self.kind, 1, self.lease_s)
            if not rows:
                break
            count += self._send(rows[0], silent)
        return count

    def _send(self, row: Delivery, silent: set[Hashable]) -> bool:
        with self.store.write() as session:
            link = self.link(session, int(row.payload["link"]))
            if link is None:
                outbox.mark_done(session, row)
                return False
            if (alone_s := self._alone_s(session, self.receiver(link))) > 0:
                outbox.defer(session, row, alone_s)
                return False
            if self.receiver(link) in silent:
                outbox.mark_failed(session, row, "the platform does not answer", _wait(row) or RETRIES_S[-1])
                return False
            turn = self.take(session, link, int(row.payload["user"]))
            if turn == "busy":
                outbox.mark_failed(session, row, "another process sends it", RETRIES_S[0])
            elif isinstance(turn, str):
                outbox.mark_done(session, row)
            if isinstance(turn, str):
                return False
        return self._try(row, link, turn, silent)

    def _try(self, row: Delivery, link: Link, turn: Turn, silent: set[Hashable]) -> bool:
        try:
            answer = self.post(link, turn)
        except GraderError as error:
            if self.unreachable(error):
                silent.add(self.receiver(link))
            self._retry(row, link, turn, error)
            return False
        with self.store.write() as session:
            if self.sent(session, turn, answer):
                outbox.mark_done(session, row)
            else:
                outbox.mark_failed(session, row, "another process sent it since", RETRIES_S[0])
        return bool(answer)

    def _alone_s(self, session: Session, receiver: Hashable) -> float:
        """Seconds for which a receiver is still left alone."""
        until = self.left_alone.get(receiver)
        return (until - now(session)).total_seconds() if until is not None else 0.0

    def _retry(self, row: Delivery, link: Link, turn: Turn, error: GraderError) -> None:
        wait, alone_s = _wait(row), min(self.retry_after_s(error), RETRIES_S[-1])
        wait = None if wait is None else max(wait, alone_s)
        with self.store.write() as session:
            if alone_s:
                self.left_alone[self.receiver(link)] = now(session) + timedelta(seconds=alone_s)
            self.failed(session, turn, error, dead=wait is None)
            outbox.mark_failed(session, row, error.message, wait)
        what = "no retries left" if wait is None else f"retry in {span(wait)}"
        whose = (row.payload["link"], row.payload["user"])
        log.warning("%s: score of link %s, user %s: %s; %s", self.kind, *whose, error.message, what)


def _wait(row: Delivery) -> float | None:
    """Seconds until the next attempt; nothing after the last one."""
    return RETRIES_S[row.tries - 1] if row.tries <= len(RETRIES_S) else None
