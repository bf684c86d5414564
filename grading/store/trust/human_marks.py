"""Marks that people gave before, without Grader: their import, and the levels they are.

They say how far people agree with each other, and, where the marked work is here, with Grader. Whose work was
marked is stored as a digest, and as a reference to the submission or the student where they are here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.report import CriterionGrade
from grading.domain.rubric import Rubric
from grading.statistics.submission_data import PersonLevel
from grading.store import tables
from grading.store.assignments.versions import newest_rubric
from grading.store.audit import write_audit
from grading.store.bulk import chunks, delete_rows
from grading.store.database import now
from grading.store.grades.counts import student_submissions
from grading.store.tables import Assignment, HumanMark, MarkImport
from grading.tabular.marks_csv import MarksUnreadable, MarkTable, ParsedMark

DIFFERENT = define_message(
    "human_marks.different",
    "Lines %(line)s and %(other)s have different marks by the same person for the same work.",
)
NO_SUCH_IMPORT = define_message("human_marks.no_such_import", "This import does not exist.")
BEFORE = -1
"""Numbers of markers from before are negative: they are no users."""


@dataclass(frozen=True)
class Imported:
    """What an import does, or would do."""

    marks: int
    markers: tuple[str, ...]
    works: int
    here: int
    """Works whose submission is here."""
    not_here: tuple[str, ...]
    """Names of the others, as in the file."""
    replaced: int
    """Marks that another file gave before and that this one changes."""
    known: bool
    """The same file was imported before; no mark changes."""
    linked: int = 0
    """Works of earlier marks whose submission came since."""


def rubric_of(session: Session, assignment_id: int) -> Rubric:
    """The rubric that marks are read by: the newest published one."""
    return Rubric.model_validate(newest_rubric(session, assignment_id))


def digest_of(content: bytes, mapping: bytes) -> str:
    """What tells an import from others: its file and its mapping."""
    return sha256(sha256(content).digest() + sha256(mapping).digest()).hexdigest()


def preview_import(session: Session, assignment: Assignment, table: MarkTable, digest: str) -> Imported:
    """What importing a table would do."""
    return _Plan(session, assignment, table).summary(_is_known(session, assignment.id, digest))


def import_marks(
    session: Session, assignment: Assignment, table: MarkTable, digest: str, name: str, by: str
) -> Imported:
    """Store the marks of a table, all or none; the same file and mapping again adds nothing.

    A mark that another file gave of the same work, criterion and marker is replaced. Earlier marks of works
    that were not here then are compared with submissions that came since.
    """
    session.execute(
        select(Assignment.id).where(Assignment.id == assignment.id).with_for_update(key_share=True)
    )
    known = _is_known(session, assignment.id, digest)
    plan = _Plan(session, assignment, table)
    done = replace(plan.summary(known), linked=plan.link(session))
    if known:
        return done
    made = MarkImport(
        assignment_id=assignment.id, sha256=digest, name=name[:200], marks=len(table.marks), at=now(session)
    )
    session.add(made)
    session.flush()
    for some in chunks(sorted(plan.stored)):
        delete_rows(session, HumanMark, HumanMark.id.in_(some))
    for rows in chunks(list(plan.rows(made.id))):
        session.execute(insert(HumanMark), list(rows))
    detail = {"marks": done.marks, "works": done.works, "replaced": done.replaced, "file": made.name}
    write_audit(session, by, "marks.import", f"assignment:{assignment.id}", detail)
    return done


@dataclass(frozen=True)
class StoredImport:
    """A file that was imported."""

    id: int
    name: str
    at: datetime
    marks: int
    """That are stored of it."""


def list_imports(session: Session, assignment_id: int) -> list[StoredImport]:
    """The imports of an assignment, the first one first."""
    query = _imports().where(MarkImport.assignment_id == assignment_id)
    return [StoredImport(*row) for row in session.execute(query)]


def load_import(session: Session, import_id: int) -> StoredImport:
    """An import. Raises NotFound."""
    row = session.execute(_imports().where(MarkImport.id == import_id)).one_or_none()
    if row is None:
        raise NotFound(NO_SUCH_IMPORT)
    return StoredImport(*row)


def _imports() -> Any:
    marks = select(func.count()).where(HumanMark.import_id == MarkImport.id).scalar_subquery()
    return select(MarkImport.id, MarkImport.name, MarkImport.at, marks).order_by(MarkImport.id)


def remove_import(session: Session, import_id: int, by: str) -> StoredImport:
    """Delete an import with its marks; what these replaced does not come back. Raises NotFound."""
    found = load_import(session, import_id)
    assignment = session.get_one(Assignment, session.get_one(MarkImport, import_id).assignment_id)
    delete_rows(session, HumanMark, HumanMark.import_id == import_id)
    delete_rows(session, MarkImport, MarkImport.id == import_id)
    detail = {"marks": found.marks, "file": found.name}
    write_audit(session, by, "marks.remove", f"assignment:{assignment.id}", detail)
    return found


def _is_known(session: Session, assignment_id: int, digest: str) -> bool:
    same = (MarkImport.assignment_id == assignment_id, MarkImport.sha256 == digest)
    return session.scalar(select(MarkImport.id).where(*same)) is not None


def list_of_person(session: Session, user_id: int, texts: Sequence[str]) -> list[int]:
    """Ids of the marks of a person's work: as a student, or by a name of theirs that was not here then."""
    mine = list(session.scalars(select(HumanMark.id).where(HumanMark.student_id == user_id)))
    unknown = HumanMark.student_id.is_(None)
    for assignment_id in session.scalars(select(HumanMark.assignment_id).where(unknown).distinct()).all():
        works = [_digest(assignment_id, one.casefold()) for one in texts]
        named = select(HumanMark.id).where(unknown, HumanMark.assignment_id == assignment_id)
        mine += session.scalars(named.where(HumanMark.work.in_(works)))
    return mine


def _digest(assignment_id: int, whose: object) -> str:
    """Of a work. It keeps names from who reads the table, not from who tries them."""
    return sha256(f"{assignment_id}:{whose}".encode()).hexdigest()


class _Plan:
    """Marks beside the submissions and students they are of, and what is stored of them already."""

    def __init__(self, session: Session, assignment: Assignment, table: MarkTable) -> None:
        self.assignment_id = assignment.id
        names = sorted({one.work for one in table.marks})
        self.students = _students(session, assignment.course_id, names)
        self.submissions = _submissions(session, assignment, names, self.students)
        query = select(HumanMark).where(HumanMark.assignment_id == assignment.id).order_by(HumanMark.id)
        self.before = list(session.scalars(query))
        self.works = self._works(names, _texts(session, self.students))
        self.marks = self._once(table.marks)
        self.stored: dict[int, float] = {}
        wanted = {self._key(one): one.level for one in self.marks}
        for row in self.before:
            if (key := (row.work, row.criterion, row.marker)) in wanted:
                self.stored[row.id] = wanted[key] - row.level

    def _works(self, names: Sequence[str], texts: Mapping[int, Sequence[str]]) -> dict[str, str]:
        """Name in the file -> digest of the work: that of earlier marks of it, whatever it was called then.

        Else of its submission, so that members of a group have the same, or of its student, or of the name.
        """
        by_digest = {row.work: row.work for row in self.before}
        by_student = {row.student_id: row.work for row in reversed(self.before) if row.student_id}
        by_submission = {row.submission_id: row.work for row in reversed(self.before) if row.submission_id}
        found = {}
        for name in names:
            submission, student = self.submissions.get(name), self.students.get(name)
            whose = [one for one in (submission, student) if one]
            whose += [one.casefold() for one in (name, *texts.get(student or 0, ()))]
            digests = [_digest(self.assignment_id, one) for one in whose]
            earlier = [
                by_submission.get(submission or ""),
                by_student.get(student or 0),
                *map(by_digest.get, digests),
            ]
            found[name] = next((one for one in earlier if one is not None), digests[0])
        return found

    def _once(self, marks: Sequence[ParsedMark]) -> list[ParsedMark]:
        """Each once, as members of a group have the same work. Raises MarksUnreadable where marks differ."""
        found: dict[tuple[str, str, str], ParsedMark] = {}
        for one in marks:
            first = found.setdefault(self._key(one), one)
            if first.level != one.level:
                raise MarksUnreadable(DIFFERENT(line=one.line, other=first.line))
        return list(found.values())

    def _key(self, one: ParsedMark) -> tuple[str, str, str]:
        return self.works[one.work], one.criterion, one.marker

    def link(self, session: Session) -> int:
        """Let earlier marks refer to students and submissions that came later; of how many works."""
        names = {work: name for name, work in self.works.items()}
        linked = set()
        for row in self.before:
            name = names.get(row.work, "")
            row.student_id = row.student_id or self.students.get(name)
            if row.submission_id is None and name in self.submissions:
                row.submission_id = self.submissions[name]
                linked.add(row.work)
        session.flush()
        return len(linked)

    def rows(self, import_id: int) -> Iterator[dict[str, Any]]:
        """The rows to store, of the submission that earlier marks of the same work are of."""
        of_before = {row.work: row.submission_id for row in self.before}
        for one in self.marks:
            work = self.works[one.work]
            yield {
                "assignment_id": self.assignment_id,
                "import_id": import_id,
                "work": work,
                "submission_id": of_before.get(work) or self.submissions.get(one.work),
                "student_id": self.students.get(one.work),
                "marker": one.marker,
                "criterion": one.criterion,
                "level": one.level,
            }

    def summary(self, known: bool) -> Imported:
        """What is done."""
        works = sorted({one.work for one in self.marks})
        return Imported(
            marks=len(self.marks),
            markers=tuple(sorted({one.marker for one in self.marks})),
            works=len(works),
            here=sum(one in self.submissions for one in works),
            not_here=tuple(one for one in works if one not in self.submissions),
            replaced=sum(change != 0 for change in self.stored.values()),
            known=known,
        )


def _texts(session: Session, students: Mapping[str, int]) -> dict[int, list[str]]:
    """All names by which students sign in, and their addresses."""
    found: dict[int, list[str]] = defaultdict(list)
    for some in chunks(sorted(set(students.values()))):
        email = select(tables.User.id, tables.User.email).where(tables.User.id.in_(some))
        names = select(tables.Identity.user_id, tables.Identity.subject)
        for user, text in session.execute(email.union(names.where(tables.Identity.user_id.in_(some)))):
            found[user] += [text] if text else []
    return found


def _students(session: Session, course_id: int, names: Sequence[str]) -> dict[str, int]:
    """Name in the file -> user, of the students of the course: by a name they sign in with, or by email."""
    identity, user, membership = tables.Identity, tables.User, tables.Membership
    found: dict[str, int] = {}
    for column in (user.email, identity.subject):
        for some in chunks(names):
            query = (
                select(column, user.id)
                .join(identity, identity.user_id == user.id)
                .join(membership, membership.user_id == user.id)
                .where(column.in_(some), column != "", membership.course_id == course_id)
                .where(membership.role == "student")
            )
            found |= {row[0]: row[1] for row in session.execute(query)}
    return found


def _submissions(
    session: Session, assignment: Assignment, names: Sequence[str], students: Mapping[str, int]
) -> dict[str, str]:
    """Name in the file -> submission: by its id, or the one that counts of a student."""
    submission, member = tables.Submission, tables.SubmissionMember
    counting = student_submissions(assignment).subquery()
    chosen = select(submission.id, submission.student_id).join(counting, counting.c.id == submission.id)
    of_student = {student: one for one, student in session.execute(chosen)}
    of_group = select(member.submission_id, member.user_id)
    of_group = of_group.join(counting, counting.c.id == member.submission_id)
    of_student |= {student: one for one, student in session.execute(of_group)}
    found = {name: of_student[student] for name, student in students.items() if student in of_student}
    for some in chunks(names):
        own = select(submission.id).where(submission.id.in_(some), submission.assignment_id == assignment.id)
        found |= {one: one for one in session.scalars(own)}
    return found


def load_levels(
    session: Session, assignment_id: int, graded: Mapping[str, Mapping[str, CriterionGrade]]
) -> list[PersonLevel]:
    """The marks as levels, beside the graded one where the work is in `graded` (submission -> criteria)."""
    query = select(HumanMark).where(HumanMark.assignment_id == assignment_id).order_by(HumanMark.id)
    rows = list(session.scalars(query))
    names = sorted({row.marker for row in rows})
    numbers = {name: BEFORE - place for place, name in enumerate(names)}
    return [
        PersonLevel(
            work=row.submission_id or row.work,
            criterion=row.criterion,
            person=numbers[row.marker],
            level=row.level,
            grader=None if grade is None else grade.level,
            how="before",
        )
        for row in rows
        for grade in (graded.get(row.submission_id or "", {}).get(row.criterion),)
    ]
