"""A class whose grades wait for their release, for tests of guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.store import tables
from grading.store.accounts import users as user_accounts
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.review import second_marking
from grading.store.trust import confidence, guarantees, release_samples
from grading.store.trust.guarantees import Proof
from grading.store.trust.release_samples import Wanted
from tests.integration.review.test_pages import given
from tests.integration.webapp import School

CLASS = 60
SAMPLE = 40
"""Enough of the class to prove it, if no level is wrong."""
SCORES = confidence.scores


@dataclass
class Class:
    """A class whose grades wait for their release."""

    school: School
    submissions: list[str]

    def actor(self, who: str = "teacher") -> Actor:
        role = {"teacher": "instructor", "grader": "grader"}[who]
        return Actor(self.school.users[who], roles={self.school.course: role})

    def change(self, work: Callable[[Any, tables.Assignment], Any]) -> Any:
        with self.school.store.write() as session:
            return work(session, session.get_one(tables.Assignment, self.school.assignment))

    def proof(self) -> Proof:
        return self.change(guarantees.load_proof)

    def draw(self, count: int = SAMPLE, **wanted: Any) -> None:
        def work(session: Any, assignment: tables.Assignment) -> None:
            before = release_samples.find_open(session, assignment.id)
            shown = before.id if before else ""
            target = Wanted(**{"together": False, **wanted})
            release_samples.draw(session, assignment, target, count, self.actor(), shown)

        self.change(work)

    def drawn(self) -> list[str]:
        """The submissions of the sample that are to be marked."""
        with self.school.store.read() as session:
            sample = release_samples.find_open(session, self.school.assignment)
            assert sample is not None
            keys = release_samples.load_sample(session, sample).keys
            drawn = release_samples.load_drawn(session, sample)  # no more than these, for who marks them
            assert drawn.keys == tuple(drawn.members) == keys
            return list(keys)

    def drawn_levels(self) -> list[tuple[str, str]]:
        """The levels of the sample that are to be marked."""
        with self.school.store.read() as session:
            sample = release_samples.find_open(session, self.school.assignment)
            assert sample is not None
            levels = release_samples.load_sample(session, sample).levels
            assert release_samples.load_drawn(session, sample).levels == levels
            return list(levels)

    def mark_level(self, submission: str, criterion: str, level: float = 3, who: str = "teacher") -> None:
        def work(session: Any, _assignment: Any) -> None:
            round_id = session.query(tables.Round.id).filter_by(submission_id=submission, current=True)
            rubric = second_marking.rubric_of(session, round_id.scalar())
            (it,) = (one for one in rubric.criteria if one.id == criterion)
            second_marking.save_mark(session, submission, it, level, self.actor(who))

        self.change(work)

    def mark(self, ids: Sequence[str], load: float = 3, think: float = 3, who: str = "teacher") -> None:
        def work(session: Any, _assignment: Any) -> None:
            for one in ids:
                levels = {"load": load, "think": think}
                second_marking.save_marks(session, one, levels, self.actor(who))

        self.change(work)

    def release(self) -> int:
        found = self.proof()
        return int(
            self.change(
                lambda session, one: guarantees.release_proven(session, one, found.stamp, self.actor())
            )
        )

    def page(self, who: str = "teacher") -> str:
        answer = self.school.client(who).get(self.path)
        assert answer.status_code == 200
        return answer.get_data(as_text=True)

    @property
    def path(self) -> str:
        return f"/assignments/{self.school.assignment}/trust"

    def add(self, count: int, made: Report) -> list[str]:
        """So many more students whose work was graded like this."""
        school = self.school
        with school.store.write() as session:
            assignment = session.get_one(tables.Assignment, school.assignment)
            version = versions.published_version(session, assignment).id
            begun, ids = len(self.submissions), []
            for number in range(begun, begun + count):
                student = user_accounts.create_user(session, f"s{number}", name=f"Student {number:03}")
                user_accounts.enrol(session, student.id, school.course, "student")
                moment = now(session)
                submission = tables.Submission(
                    assignment_id=school.assignment, student_id=student.id, number=1, source="form",
                    documents=[], notes=[], created_at=moment,
                )  # fmt: skip
                session.add(submission)
                session.flush()
                self.grade(session, submission, version, made)
                ids.append(submission.id)
        self.submissions += ids
        return ids

    def grade(self, session: Any, submission: tables.Submission, version: int, made: Report) -> None:
        """A further round, which counts."""
        moment = now(session)
        rounds = session.query(tables.Round).filter_by(submission_id=submission.id)
        number = rounds.count() + 1
        rounds.update({"current": False})
        round_ = tables.Round(
            submission_id=submission.id, number=number, reason="first", rubric_version_id=version,
            state="graded", course_id=self.school.course, student_id=submission.student_id,
            created_at=moment, finished_at=moment,
        )  # fmt: skip
        session.add(round_)
        session.flush()
        session.add(
            tables.Grade(
                round_id=round_.id, submission_id=submission.id, points=made.points,
                points_so_far=made.points_so_far, final_points=made.points, held=made.held,
                max_points=made.max_points, report=made.model_dump(mode="json"), created_at=moment,
            )
        )  # fmt: skip


@cache
def _class_made() -> bytes:
    """A SQLite file with the class: made once, then copied, for every test here begins with it."""
    with TemporaryDirectory() as folder:
        school = School(Path(folder))
        Class(school, []).add(CLASS, given(3, 4.5))
        school.close()
        return (Path(folder) / "grader.db").read_bytes()


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Class]:
    """A class that is graded well, as far as its scores say."""

    def low(session: Any, assignment_id: int, *_calibration: int) -> dict[tuple[str, str], float]:
        rounds = session.query(tables.Round.id).filter_by(current=True)
        return {(row.id, name): 0.002 for row in rounds for name in ("load", "think")}

    monkeypatch.setattr(confidence, "scores", low)
    # the test of drift breaks ties at random, and alarms in some of a hundred classes without one
    monkeypatch.setattr(release_samples, "randbits", lambda _bits: 1)
    (tmp_path / "grader.db").write_bytes(_class_made())
    school = School(tmp_path)
    with school.store.read() as session:
        made = [row.id for row in session.query(tables.Submission).order_by(tables.Submission.student_id)]
    yield Class(school, made)
    school.close()


def publish(session: Any, assignment: tables.Assignment) -> None:
    """Another rubric, with fewer levels and points."""
    old = versions.published_version(session, assignment)
    rubric = {
        **old.rubric,
        "criteria": [{**one, "points": 5, "levels": ["no", "yes"]} for one in old.rubric["criteria"]],
    }
    values = {name: getattr(old, name) for name in ("task", "instructions", "starter", "solution", "files")}
    session.add(
        tables.RubricVersion(
            assignment_id=assignment.id, number=old.number + 1, digest="other", rubric=rubric,
            created_at=now(session), published_at=now(session), **values,
        )
    )  # fmt: skip
