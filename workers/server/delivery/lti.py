"""LTI as a learning platform of the server: sends scores, reads rosters, compares results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.orm import Session

from grading.config.settings import Server as ServerConfig
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.integrations.lti.client import LINE_ITEM, LINE_ITEMS, SCORE, Talk, object_of, require_ok
from grading.integrations.lti.messages import CANVAS, line_item, score, with_path
from grading.integrations.lti.values import (
    SCOPE_LINE_ITEMS,
    SCOPE_RESULTS,
    SCOPE_SCORES,
    PlatformFailed,
    PlatformSilent,
)
from grading.store import outbox
from grading.store.database import Store, now
from grading.store.integrations.lti import launch, platform, registrations, scores
from grading.store.integrations.lti.scores import Column, ScoreLease
from workers.server.context import Server
from workers.server.delivery.score_sync import ScoreSync

log = logging.getLogger(__name__)
GONE = (404, 410)
ATTEMPTS_USED = b"maximum number of allowed attempts"
"""In what Canvas answers to the score of a submission beyond its assignment's attempts."""
NO_COLUMN = define_message(
    "lti_scores.no_column",
    "The platform named no gradebook column for this link. Ask its administrator to allow the tool "
    "to manage line items and scores, then open the link there once.",
)
NO_MORE_ATTEMPTS = define_message(
    "lti_scores.no_more_attempts",
    "Canvas accepts no more attempts of this student. Allow more attempts in the settings of the "
    "assignment in Canvas, then send the score again.",
)
NO_ASSIGNMENT = define_message(
    "lti_scores.no_assignment",
    "This link in Canvas belongs to no assignment, so Canvas cannot store its grades. Create an "
    "assignment in Canvas with the submission type External Tool, and choose Grader.",
)


@dataclass
class Passback(ScoreSync[Column, ScoreLease]):
    """Scores, rosters and comparisons by LTI's services."""

    kind = platform.KIND
    lease_s = 120.0
    """An attempt asks for a token, a column and a score, each in a quarter of a minute at the most."""

    config: ServerConfig
    store: Store
    stop: threading.Event = field(default_factory=threading.Event)
    _talk: Talk | None = None

    @property
    def talk(self) -> Talk:
        """Made at the first use, then kept for its tokens."""
        if self._talk is None:
            self._talk = Talk(lambda: registrations.signing_key(self.store), self.config.allowed, self._now)
        return self._talk

    def work(self) -> int:
        """One pass; returns how many scores were taken."""
        self.reconcile_when_due()
        sent = self.send_due()
        self.update_rosters()
        self.compare_when_due()
        return sent

    def links(self, session: Session) -> Sequence[int]:
        """Of platforms that are switched on."""
        return scores.list_links(session)

    def link(self, session: Session, number: int) -> Column | None:
        """With its column in the gradebook."""
        return scores.load_column(session, number)

    def receiver(self, link: Column) -> Hashable:
        """The platform."""
        return link.platform.id

    def reconcile_link(self, session: Session, link: Column) -> int:
        """By comparing what was sent with what counts."""
        return scores.add_missing_scores(session, link.link_id)

    def take(self, session: Session, link: Column, user_id: int) -> ScoreLease | str:
        """The turn of a student."""
        return scores.lease_score(session, link, user_id, self.lease_s, self.config.public_url.rstrip("/"))

    def sent(self, session: Session, turn: ScoreLease, answer: int) -> bool:
        """With the status of the answer."""
        return scores.record_sent(session, turn, answer)

    def failed(self, session: Session, turn: ScoreLease, error: GraderError, *, dead: bool) -> None:
        """With the status of the answer, if there was one."""
        status = error.answered if isinstance(error, PlatformFailed) else None
        scores.record_failure(session, turn, status, error.message, dead=dead)

    def unreachable(self, error: GraderError) -> bool:
        """No whole answer in time, or it asks to be left alone."""
        return isinstance(error, PlatformSilent) or self.retry_after_s(error) > 0

    def retry_after_s(self, error: GraderError) -> float:
        """As its answer says."""
        return error.retry_after_s if isinstance(error, PlatformFailed) else 0.0

    def tidy(self, session: Session) -> None:
        """Delete old attempts."""
        scores.delete_old_attempts(session)

    def post(self, link: Column, turn: ScoreLease) -> int:
        """The status of a score that was taken. Raises PlatformFailed, Refused."""
        url = link.line_item or self._line_item(link, turn)
        body = score(link.platform, turn.subject, turn.standing, turn.stamp)
        answer = self.talk.send(link.platform, [SCOPE_SCORES], "POST", with_path(url, "scores"), SCORE, body)
        if answer.status in GONE and link.line_item_ours:
            with self.store.write() as session:
                scores.delete_line_item(session, link.link_id, url)
        if answer.status == 422 and ATTEMPTS_USED in answer.body:
            raise PlatformFailed(NO_MORE_ATTEMPTS, answer.status)
        require_ok(answer, "sending a score")
        return answer.status

    def _line_item(self, found: Column, turn: ScoreLease) -> str:
        """The column of a link: the one there is, or a new one. Raises PlatformFailed."""
        if not found.line_items_url:
            raise PlatformFailed(NO_COLUMN)
        if found.platform.family == CANVAS:
            raise PlatformFailed(NO_ASSIGNMENT)
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
            return scores.store_line_item(session, found.link_id, url, ours=ours)

    def _existing(self, found: Column, resource: str) -> str:
        """The address of the column that belongs to this link, or nothing."""
        for page in self.talk.pages(found.platform, [SCOPE_LINE_ITEMS], found.line_items_url, LINE_ITEMS):
            for one in page if isinstance(page, list) else []:
                mine = isinstance(one, dict) and one.get("resourceLinkId") == found.link
                if mine and one.get("resourceId") in (None, "", resource) and isinstance(one.get("id"), str):
                    return str(one["id"])
        return ""

    def update_rosters(self) -> int:
        """Bring up to date what somebody asked for; how many."""
        count = 0
        while not self.stop.is_set():
            with self.store.write() as session:
                rows = outbox.claim(session, launch.KIND, 1, self.lease_s)
            if not rows:
                break
            try:
                launch.update_roster(
                    self.store, self.talk, int(rows[0].payload["context"]), rows[0].payload["by"]
                )
            except GraderError as error:
                with self.store.write() as session:
                    launch.record_error(session, int(rows[0].payload["context"]), error.message)
                    outbox.mark_failed(session, rows[0], error.message, None)
                log.warning("roster %s could not be read: %s", rows[0].key, error.message)
                continue
            with self.store.write() as session:
                outbox.mark_done(session, rows[0])
            count += 1
        return count

    def compare(self, only: int | None = None) -> int:
        """Compare what platforms have with what we have; how many differences. Nothing is overwritten."""
        with self.store.read() as session:
            links = scores.list_links(session) if only is None else [only]
        total = 0
        for link in links:
            if self.stop.is_set():
                break
            total += self._compare(link)
        if total:
            log.warning(
                "%d scores in learning platforms differ from the gradebook; see the pages of the courses",
                total,
            )
        return total

    def _compare(self, link: int) -> int:
        with self.store.read() as session:
            found = scores.load_column(session, link)
        if found is None or not found.line_item:
            return 0
        try:
            url = with_path(found.line_item, "results")
            pages = scores.read_results(self.talk.pages(found.platform, [SCOPE_RESULTS], url, scores.KIND))
        except GraderError as error:
            with self.store.write() as session:
                scores.record_comparison_error(session, link, error.message)
            log.warning("link %d: the scores could not be compared: %s", link, error.message)
            return 0
        with self.store.write() as session:
            different = scores.store_differences(session, found, pages)
        for one in different:
            log.warning(
                "link %d, user %d: the score is %s in the platform and %s in the gradebook",
                link,
                one.user_id,
                one.theirs,
                one.ours,
            )
        return len(different)

    def _now(self) -> datetime:
        with self.store.read() as session:
            return now(session)


def start(server: Server, _environ: Mapping[str, str], stop: threading.Event) -> list[threading.Thread]:
    """Work until `stop`, in a thread of its own."""
    passback = Passback(server.config.server, server.store, stop)
    return [passback.loop(passback.work, "passback")]
