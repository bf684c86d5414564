"""Tells learning platforms the scores that count, brings rosters up to date, and compares what they have.

A row of the outbox says of whom; what is told is what counts when it is told. One sender at a time tells of a
student, each score has a later time than the one before, and every try is written down.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.exc import DBAPIError

from grading.config.settings import Server as ServerConfig
from grading.domain.errors import GraderError
from grading.integrations.lti.client import LINE_ITEM, LINE_ITEMS, SCORE, Talk, object_of, require_ok
from grading.integrations.lti.messages import line_item, score, with_path
from grading.integrations.lti.values import (
    SCOPE_LINE_ITEMS,
    SCOPE_RESULTS,
    SCOPE_SCORES,
    PlatformFailed,
    PlatformSilent,
)
from grading.store import outbox, periodic_tasks
from grading.store.database import Store, now
from grading.store.integrations.lti import comparison, keys, roster, score_sync, scores
from grading.store.integrations.lti.scores import Column, Turn
from grading.store.outbox import Delivery

log = logging.getLogger(__name__)
EVERY_S = 5.0
LEASE_S = 120.0
"""A try asks for a token, a column and a score, each in a quarter of a minute at the most."""
RETRIES_S = (5.0, *(minutes * 60.0 for minutes in (5, 30, 120, 300, 600, 840, 1200, 1440)))
"""Waits between tries: three days in all."""
AT_ONCE = 500
RECONCILE = "lti-reconcile"
RECONCILE_EVERY = timedelta(minutes=10)
COMPARE = "lti-compare"
COMPARE_EVERY = timedelta(hours=24)
GONE = (404, 410)


@dataclass
class Passback:
    """Sends what is due; any number of processes may do so at once."""

    config: ServerConfig
    store: Store
    stop: threading.Event = field(default_factory=threading.Event)
    _talk: Talk | None = None

    @property
    def talk(self) -> Talk:
        """Made at the first use, then kept for its tokens."""
        if self._talk is None:
            self._talk = Talk(lambda: keys.signing(self.store), self.config.allowed, self._now)
        return self._talk

    def start(self) -> threading.Thread:
        """Work every 5 s until `stop`, in a thread of its own."""
        thread = threading.Thread(target=self._run, name="passback")
        thread.start()
        return thread

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self.work()
            except DBAPIError as error:
                log.warning("the database is away, scores wait in it: %s", error)
            except Exception:
                log.exception("scores could not be sent; trying again")
            self.stop.wait(EVERY_S)

    def work(self) -> int:
        """One pass; returns how many scores were taken."""
        with self._chore(RECONCILE, RECONCILE_EVERY) as mine:
            if mine:
                self.reconcile()
        taken = self.send_due()
        self.update_rosters()
        with self._chore(COMPARE, COMPARE_EVERY) as mine:
            if mine:
                self.compare()
                with self.store.write() as session:
                    scores.tidy(session)
        return taken

    @contextmanager
    def _chore(self, name: str, every: timedelta) -> Iterator[bool]:
        """Whether it is due and this process has it; planned again before it begins, so that it ends once."""
        with self.store.write() as session:
            periodic_tasks.plan(session, name)
            mine = periodic_tasks.take(session, name) is not None
            if mine:
                periodic_tasks.again(session, name, every)
        yield mine

    def reconcile(self) -> int:
        """Leave word of whatever changed without a word; how many."""
        with self.store.read() as session:
            links = scores.links(session)
        count = 0
        for link in links:
            with self.store.write() as session:
                count += scores.reconcile(session, link)
        return count

    def send_due(self) -> int:
        """Tell what is due; a platform that does not answer keeps only its own waiting."""
        taken, silent = 0, set[int]()
        for _ in range(AT_ONCE):
            if self.stop.is_set():
                break
            with self.store.write() as session:
                rows = outbox.claim(session, score_sync.KIND, 1, LEASE_S)
            if not rows:
                break
            taken += self._tell(rows[0], silent)
        return taken

    def _tell(self, row: Delivery, silent: set[int]) -> bool:
        """Whether a platform took a score."""
        base = self.config.public_url.rstrip("/")
        with self.store.write() as session:
            found = scores.column(session, int(row.payload["link"]))
            if found is None:
                outbox.done(session, row)
                return False
            if found.platform.id in silent:
                outbox.failed(session, row, "the platform does not answer", _wait(row) or RETRIES_S[-1])
                return False
            turn = scores.take(session, found, int(row.payload["user"]), LEASE_S, base)
            if turn == "busy":
                outbox.failed(session, row, "another process tells it", RETRIES_S[0])
            elif isinstance(turn, str):
                outbox.done(session, row)
            if isinstance(turn, str):
                return False
        return self._try(row, found, turn, silent)

    def _try(self, row: Delivery, found: Column, turn: Turn, silent: set[int]) -> bool:
        try:
            status = self._post(found, turn)
        except GraderError as error:
            if isinstance(error, PlatformSilent):
                silent.add(found.platform.id)
            answered = error.answered if isinstance(error, PlatformFailed) else None
            self._failed(row, turn, answered, error.message)
            return False
        with self.store.write() as session:
            if scores.told(session, turn, status):
                outbox.done(session, row)
            else:
                outbox.failed(session, row, "another process told it since", RETRIES_S[0])
        return True

    def _post(self, found: Column, turn: Turn) -> int:
        """The status of a score that was taken. Raises PlatformFailed, Refused."""
        url = found.line_item or self._line_item(found, turn)
        body = score(turn.subject, turn.standing, turn.stamp)
        answer = self.talk.send(found.platform, [SCOPE_SCORES], "POST", with_path(url, "scores"), SCORE, body)
        if answer.status in GONE and found.line_item_ours:
            with self.store.write() as session:
                scores.forget_line_item(session, found.link_id, url)
        require_ok(answer, "sending a score")
        return answer.status

    def _line_item(self, found: Column, turn: Turn) -> str:
        """The column of a link: the one there is, or a new one. Raises PlatformFailed."""
        if not found.line_items_url:
            raise PlatformFailed(
                "The platform named no column of its gradebook for this link. Let its administrator give "
                "the tool the right to manage line items and scores, then open the link there once."
            )
        wanted = line_item(found.assignment_id, found.title, turn.standing.max_points, found.link)
        url, ours = self._existing(found, wanted["resourceId"]), False
        if not url:
            answer = self.talk.send(
                found.platform, [SCOPE_LINE_ITEMS], "POST", found.line_items_url, LINE_ITEM, wanted
            )
            url, ours = str(object_of(answer, "making a column").get("id") or ""), True
        if not url:
            raise PlatformFailed("The platform made a column without saying where it is.")
        with self.store.write() as session:
            return scores.keep_line_item(session, found.link_id, url, ours=ours)

    def _existing(self, found: Column, resource: str) -> str:
        """The address of the column that belongs to this link, or nothing."""
        for page in self.talk.pages(found.platform, [SCOPE_LINE_ITEMS], found.line_items_url, LINE_ITEMS):
            for one in page if isinstance(page, list) else []:
                mine = isinstance(one, dict) and one.get("resourceLinkId") == found.link
                if mine and one.get("resourceId") in (None, "", resource) and isinstance(one.get("id"), str):
                    return str(one["id"])
        return ""

    def _failed(self, row: Delivery, turn: Turn, status: int | None, error: str) -> None:
        wait = _wait(row)
        with self.store.write() as session:
            scores.failed(session, turn, status, error, given_up=wait is None)
            outbox.failed(session, row, error, wait)
        what = "given up" if wait is None else f"again in {wait:g} s"
        log.warning("score of link %d, user %d: %s; %s", turn.link_id, turn.user_id, error, what)

    def update_rosters(self) -> int:
        """Bring up to date what somebody asked for; how many."""
        count = 0
        while not self.stop.is_set():
            with self.store.write() as session:
                rows = outbox.claim(session, roster.KIND, 1, LEASE_S)
            if not rows:
                break
            try:
                roster.update(self.store, self.talk, int(rows[0].payload["context"]), rows[0].payload["by"])
            except GraderError as error:
                with self.store.write() as session:
                    roster.keep_error(session, int(rows[0].payload["context"]), error.message)
                    outbox.failed(session, rows[0], error.message, None)
                log.warning("roster %s: %s", rows[0].key, error.message)
                continue
            with self.store.write() as session:
                outbox.done(session, rows[0])
            count += 1
        return count

    def compare(self, only: int | None = None) -> int:
        """Compare what platforms have with what we have; how many differences. Nothing is overwritten."""
        with self.store.read() as session:
            links = scores.links(session) if only is None else [only]
        total = 0
        for link in links:
            if self.stop.is_set():
                break
            total += self._compare(link)
        if total:
            log.warning("%d scores differ between platforms and here; see the courses' pages", total)
        return total

    def _compare(self, link: int) -> int:
        with self.store.read() as session:
            found = scores.column(session, link)
        if found is None or not found.line_item:
            return 0
        try:
            url = with_path(found.line_item, "results")
            pages = comparison.read(self.talk.pages(found.platform, [SCOPE_RESULTS], url, comparison.KIND))
        except GraderError as error:
            with self.store.write() as session:
                comparison.keep_error(session, link, error.message)
            log.warning("link %d cannot be compared: %s", link, error.message)
            return 0
        with self.store.write() as session:
            different = comparison.keep(session, found, pages)
        for one in different:
            log.warning(
                "link %d, user %d: the platform has %s, here it is %s",
                link,
                one.user_id,
                one.theirs,
                one.ours,
            )
        return len(different)

    def _now(self) -> datetime:
        with self.store.read() as session:
            return now(session)


def _wait(row: Delivery) -> float | None:
    """Seconds until the next try; nothing after the last one."""
    return RETRIES_S[row.tries - 1] if row.tries <= len(RETRIES_S) else None
