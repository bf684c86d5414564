"""Pulling from a Canvas: people into courses, new attempts into hand-ins, each once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from grading import documents
from grading.documents import Limits, UploadedFile
from grading.domain.errors import Forbidden, GraderError
from grading.integrations.canvas.client import Talk
from grading.integrations.canvas.transport import FileGone
from grading.integrations.canvas.values import Attempt, CanvasFailed, CanvasSilent
from grading.integrations.events import Member, Roster
from grading.store.integrations import lms_rosters
from grading.store.integrations.canvas import links
from grading.store.integrations.canvas.links import Link
from workers.server.context import Server

log = logging.getLogger(__name__)
MOST_SILENT = 3
"""Files in a row that do not come; then the rest waits for the next pass."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Pulled:
    """What a pass brought."""

    people: int = 0
    handed_in: int = 0
    refused: int = 0
    errors: tuple[str, ...] = ()

    def __add__(self, other: Pulled) -> Pulled:
        return Pulled(
            self.people + other.people, self.handed_in + other.handed_in, self.refused + other.refused,
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
            found = links.live(session, only)
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
                links.people_read(session, first.course_row, error.message)
            log.warning("course %s of Canvas cannot be read: %s", first.canvas_course, error.message)
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
            links.people_read(session, link.course_row, "")
        return len(found)

    def _pull_link(self, talk: Talk, link: Link) -> Pulled:
        """New attempts of an assignment. Raises GraderError, which is noted with the link."""
        total, silent, error = Pulled(), 0, ""
        try:
            task = talk.task(link.canvas_course, link.canvas_assignment)
            with self.server.store.write() as session:
                links.read(session, link.id, task)
                known, students = links.known(session, link), links.students(session, link)
            if task.problem:
                raise CanvasFailed(f"“{task.title}” in Canvas: {task.problem}.")
            for attempt in talk.attempts(link.canvas_course, link.canvas_assignment):
                if attempt.user not in students or (attempt.user, attempt.number) in known:
                    continue
                if self.stop.is_set() or silent >= MOST_SILENT:
                    break
                try:
                    total += self._take(talk, link, attempt)
                    silent = 0
                except CanvasSilent as away:
                    silent, error = silent + 1, away.message
        except GraderError as failed:
            error = failed.message
            raise
        finally:
            with self.server.store.write() as session:
                links.pulled(session, link, error)
            if error:
                log.warning("link %d of Canvas: %s", link.id, error)
        return total + Pulled(errors=(error,) if error else ())

    def _take(self, talk: Talk, link: Link, attempt: Attempt) -> Pulled:
        """One attempt. Raises CanvasSilent to try again later, and what handing in raises."""
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
                links.refuse(session, link, attempt, error.message)
            log.warning("link %d: an attempt becomes no hand-in: %s", link.id, error.message)
            return Pulled(refused=1)
        try:
            accepted = links.accept(self.server.store, link, attempt, content)
        except Forbidden:
            return Pulled()  # somebody here keeps them out
        if accepted is None:
            return Pulled()
        self.server.dispatch.announce(accepted.round_id)
        return Pulled(handed_in=1)
