"""Canvas as a learning platform of the server: pulls people and attempts, posts scores, compares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby

from sqlalchemy.orm import Session

from grading import documents
from grading.documents import Limits, UploadedFile
from grading.domain.errors import Forbidden, GraderError
from grading.integrations.canvas.client import FileGone, Talk, TokenRefused
from grading.integrations.canvas.settings import Canvas, Settings
from grading.integrations.canvas.values import Attempt, CanvasFailed, CanvasSilent, tokens
from grading.integrations.events import Member, Roster
from grading.store.database import Store
from grading.store.integrations import lms_rosters
from grading.store.integrations.canvas import links, platform, scores
from grading.store.integrations.canvas.links import Link
from workers.server.context import Server
from workers.server.delivery.score_sync import ScoreSync

log = logging.getLogger(__name__)
MOST_SILENT = 3
"""Files in a row that do not come; then the rest waits for the next pass."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Pulled:
    """What a pass brought."""

    people: int = 0
    submitted: int = 0
    refused: int = 0
    errors: tuple[str, ...] = ()

    def __add__(self, other: Pulled) -> Pulled:
        return Pulled(
            self.people + other.people, self.submitted + other.submitted, self.refused + other.refused,
            self.errors + other.errors,
        )  # fmt: skip


@dataclass(frozen=True)
class Pulling:
    """One pass over what is linked."""

    server: Server
    talk: Callable[[str], Talk]
    """To a Canvas by its name. Raises CanvasFailed."""
    stop: threading.Event

    def pull(self, only: int | None = None) -> Pulled:
        """Bring people and new attempts of all links, or of one; what one course lacks stops no other."""
        with self.server.store.read() as session:
            found = links.list_live_links(session, only)
        total = Pulled()
        for _, group in groupby(sorted(found, key=lambda one: one.course_row), lambda one: one.course_row):
            if not self.stop.is_set():
                total += self._pull_course(list(group))
        return total

    def _pull_course(self, of_course: list[Link]) -> Pulled:
        first = of_course[0]
        try:
            talk = self.talk(first.connection)
            total = Pulled(people=self._people(talk, first))
        except GraderError as error:
            with self.server.store.write() as session:
                links.record_people(session, first.course_row, error.message)
            log.warning("course %s could not be read from Canvas: %s", first.canvas_course, error.message)
            return Pulled(errors=(error.message,))
        for link in of_course:
            try:
                total += self._pull_link(talk, link)
            except GraderError as error:
                total += Pulled(errors=(error.message,))
        return total

    def _people(self, talk: Talk, link: Link) -> int:
        """Who is not in Canvas any more keeps their place here; a person takes them out."""
        found = talk.people(link.canvas_course)
        members = [Member(id=one.id, name=one.name, email=one.email, role=one.role) for one in found]  # type: ignore[arg-type]
        for start in range(0, len(members), 500):
            told = Roster(course=link.course, members=tuple(members[start : start + 500]))
            with self.server.store.write() as session:
                lms_rosters.update_roster(session, link.connection, told)
        with self.server.store.write() as session:
            links.record_people(session, link.course_row, "")
        return len(found)

    def _pull_link(self, talk: Talk, link: Link) -> Pulled:
        """New attempts of an assignment. Raises GraderError, which is noted with the link."""
        total, silent, error, ended = Pulled(), 0, "", None
        try:
            task = talk.task(link.canvas_course, link.canvas_assignment)
            with self.server.store.write() as session:
                links.update_link(session, link.id, task)
                known, students = links.list_imported(session, link), links.list_students(session, link)
                pull = links.begin_pull(session, link)
            if task.problem:
                raise CanvasFailed(f"“{task.title}” in Canvas: {task.problem}.")
            since = pull.since if task.published else None
            for attempt in talk.attempts(link.canvas_course, link.canvas_assignment, since):
                if attempt.user not in students or (attempt.user, attempt.number) in known:
                    continue
                if self.stop.is_set() or silent >= MOST_SILENT:
                    break
                try:
                    total += self._take(talk, link, attempt)
                    silent = 0
                except CanvasSilent as away:
                    silent, error = silent + 1, away.message
            else:
                ended = pull
        except GraderError as failed:
            error = failed.message
            raise
        finally:
            with self.server.store.write() as session:
                links.record_pull(session, link, ended, error)
            if error:
                log.warning("link %d of Canvas: %s", link.id, error)
        return total + Pulled(errors=(error,) if error else ())

    def _take(self, talk: Talk, link: Link, attempt: Attempt) -> Pulled:
        """One attempt. Raises CanvasSilent to try again later, and what submitting raises."""
        server, problem = self.server.config.server, attempt.problem
        limits = Limits(
            max_upload_bytes=server.max_upload_mb * MIB, max_data_bytes=server.max_data_mb * MIB,
            max_files=server.max_files,
        )  # fmt: skip
        try:
            if problem:
                raise FileGone(problem)
            files = talk.files(attempt.files, limits.max_upload_bytes)
            content = documents.read([UploadedFile(name, data) for name, data in files], limits)
        except CanvasSilent:
            raise
        except GraderError as error:
            with self.server.store.write() as session:
                links.refuse_attempt(session, link, attempt, error.message)
            log.warning("link %d: an attempt in Canvas was not imported: %s", link.id, error.message)
            return Pulled(refused=1)
        try:
            accepted = links.import_attempt(self.server.store, link, attempt, content)
        except Forbidden:
            return Pulled()  # somebody here keeps them out
        if accepted is None:
            return Pulled()
        self.server.dispatch.announce(accepted.round_id)
        return Pulled(submitted=1)


PULL = "canvas-pull"


@dataclass
class Bridge(ScoreSync[Link, scores.ScoreLease]):
    """People, attempts and scores. Before a post Canvas is asked what it has, as an answer may be lost."""

    kind = platform.KIND
    lease_s = 180.0
    """An attempt sends at the most six requests, each for a quarter of a minute, and waits in between."""

    server: Server
    tokens: Mapping[str, str]
    """By the name of a Canvas; one without a token is left alone, and that is said."""
    stop: threading.Event = field(default_factory=threading.Event)
    store: Store = field(init=False)
    settings: Settings = field(init=False)
    _talks: dict[str, Talk] = field(default_factory=dict)
    """Of one pass."""

    def __post_init__(self) -> None:
        """Scores are in the server's store."""
        self.store = self.server.store
        self.settings = self.server.config.server.of_platform(Settings)

    def start(self) -> list[threading.Thread]:
        """Work until `stop`, if there is a Canvas; a long pull keeps no score waiting."""
        if not self.settings.canvases:
            return []
        return [self.loop(self.fetch, "canvas-pull"), self.loop(self.push_due, "canvas-push")]

    def fetch(self) -> None:
        """Pull, and compare, where it is time."""
        with self.due(PULL, timedelta(minutes=self.settings.canvas_every_min)) as mine:
            if mine:
                self.pull()
        self.compare_when_due()

    def push_due(self) -> None:
        """Post what is due."""
        self.reconcile_when_due()
        self.push()

    def push(self) -> int:
        """Post what is due; how many were posted."""
        self._talks.clear()
        return self.send_due()

    def links(self, session: Session) -> Sequence[int]:
        """That have not ended."""
        return [one.id for one in links.list_live_links(session)]

    def link(self, session: Session, number: int) -> Link | None:
        """That has not ended."""
        return next(iter(links.list_live_links(session, number)), None)

    def receiver(self, link: Link) -> Hashable:
        """The Canvas."""
        return link.connection

    def reconcile_link(self, session: Session, link: Link) -> int:
        """By comparing what was posted with what counts."""
        return scores.add_missing_scores(session, link)

    def take(self, session: Session, link: Link, user_id: int) -> scores.ScoreLease | str:
        """The turn of a student."""
        base = self.server.config.server.public_url.rstrip("/")
        feedback = all(one.feedback for one in self.settings.canvases if one.name == link.connection)
        return scores.lease_score(session, link.id, user_id, self.lease_s, base, feedback=feedback)

    def post(self, link: Link, turn: scores.ScoreLease) -> bool:
        """Whether Canvas did not have it yet."""
        mark = f"{self.server.config.server.public_url.rstrip('/')}/submissions/"
        place = (link.canvas_course, link.canvas_assignment, turn.canvas_user)
        talk = self._talks.get(link.connection) or self.talk(link.connection)
        self._talks[link.connection] = talk
        return talk.tell(*place, turn.wanted, talk.there(*place, mark))

    def sent(self, session: Session, turn: scores.ScoreLease, answer: bool) -> bool:
        """With whether it was posted."""
        return scores.record_sent(session, turn, posted=answer)

    def failed(self, session: Session, turn: scores.ScoreLease, error: GraderError, *, dead: bool) -> None:
        """With its message."""
        scores.record_failure(session, turn, error.message, dead=dead)

    def unreachable(self, error: GraderError) -> bool:
        """No whole answer in time, or the token is refused."""
        return isinstance(error, CanvasSilent | TokenRefused)

    def tidy(self, session: Session) -> None:
        """Delete old attempts."""
        scores.delete_old_attempts(session)

    def talk(self, connection: str) -> Talk:
        """To one Canvas. Raises CanvasFailed where it is not in config.toml or has no token."""
        return Talk(
            self._canvas(connection).url, self.tokens[connection], self.server.config.server.allowed,
            self.stop.wait,
        )  # fmt: skip

    def _canvas(self, connection: str) -> Canvas:
        found = [one for one in self.settings.canvases if one.name == connection]
        if not found:
            raise CanvasFailed(
                f"There is no Canvas '{connection}' in server.canvases of config.toml any more."
            )
        if not self.tokens.get(connection):
            raise TokenRefused(
                f"There is no token for '{connection}' in the environment; "
                "see docs/how-to/administrators/canvas.md."
            )
        return found[0]

    def pull(self, only: int | None = None) -> Pulled:
        """Bring people and new attempts of all links, or of one."""
        return Pulling(self.server, self.talk, self.stop).pull(only)

    def compare(self, only: int | None = None) -> int:
        """Compare what Canvas has with what was released; how many differ. Nothing is overwritten."""
        with self.server.store.read() as session:
            found = links.list_live_links(session, only)
        return sum(self._compare(link) for link in found if not self.stop.is_set())

    def _compare(self, link: Link) -> int:
        count, error = 0, ""
        try:
            theirs = self.talk(link.connection).all_there(link.canvas_course, link.canvas_assignment)
        except GraderError as failed:
            error = failed.message
            log.warning("link %d: the scores could not be compared with Canvas: %s", link.id, error)
        with self.server.store.write() as session:
            if not error:
                count = scores.store_differences(session, link, theirs)
            links.record_comparison(session, link.id, error)
        if count:
            log.warning("link %d: %d scores in Canvas differ from the gradebook", link.id, count)
        return count


def start(server: Server, environ: Mapping[str, str], stop: threading.Event) -> list[threading.Thread]:
    """Work until `stop`, where config.toml names a Canvas; tokens come from the environment."""
    found = server.config.server.of_platform(Settings)
    return Bridge(server, tokens(found.canvases, environ), stop).start()
