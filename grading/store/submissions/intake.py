"""Accept a submission: one transaction for it, its files, its first round and its outbox row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from grading.documents import SubmittedFiles, in_language
from grading.domain.base_value import Value
from grading.domain.errors import Forbidden, GraderError, NotFound
from grading.domain.lateness import Lateness, LateRule, closes, lateness
from grading.domain.messages import define_message
from grading.domain.round_states import RoundState, StageState
from grading.domain.rubric import Rubric
from grading.domain.shared_messages import ACCOUNT_DISABLED, NO_SUCH_ASSIGNMENT
from grading.domain.stages import stages_of
from grading.store import idempotency_keys, outbox, tables
from grading.store.assignments import versions
from grading.store.assignments.settings import due_of
from grading.store.blobs import store_blobs
from grading.store.change_tracking import TRACKED_MANUALLY
from grading.store.courses import groups
from grading.store.database import now
from grading.store.submissions.receipts import ReceivedFile, fingerprint, received_file
from grading.store.tables import (
    Assignment,
    Round,
    RoundStage,
    Submission,
    SubmissionFile,
    SubmissionMember,
    User,
    new_id,
)
from grading.store.tables.assignments import SAMPLE

CLOSED = define_message(
    "intake.closed",
    "Submissions for this assignment closed on %(when)s. Ask your instructor for an extension.",
)
NO_SUBMISSION_LEFT = define_message(
    "intake.no_submission_left",
    "All %(most)s submissions for this assignment are used. Ask your instructor if you need another.",
)

Idempotency = idempotency_keys.Idempotency


@dataclass(frozen=True)
class IncomingSubmission:
    """A submission whose files were read, ready to be stored."""

    assignment_id: int
    student_id: int
    source: str
    """`form`, `api`, `webhook`, `cli`, `zip`, or the name of a learning platform."""
    content: SubmittedFiles
    priority: Literal["interactive", "batch"] = "interactive"
    submitted_by: int | None = None
    idempotency: Idempotency | None = None
    at: datetime | None = None
    """When its last byte arrived, if that was before it was submitted."""
    trusted: bool = False
    """From staff or a learning platform: due date and limit do not apply."""
    stored: tuple[ReceivedFile, ...] | None = None
    """The files where they are stored already, as those of a pending upload; `content` has none then."""


@dataclass(frozen=True)
class Accepted:
    """The outcome; `repeated` when this POST had been accepted before."""

    submission_id: str
    round_id: str
    repeated: bool = False


def accept_submission(session: Session, incoming: IncomingSubmission) -> Accepted:
    """Store a submission and its first round, or find those of the same idempotency key."""
    before = _repeated(session, incoming.idempotency)
    if before is not None:
        return before
    assignment = session.get_one(Assignment, incoming.assignment_id)
    people = _locked(session, assignment, incoming.student_id)
    if incoming.trusted:
        require_current(assignment)
    else:
        moment = incoming.at or now(session)
        require_open(session, assignment, incoming.student_id, people, moment)
    submission = _add_submission(session, incoming, people)
    current = add_round(session, submission, assignment, reason="first", priority=incoming.priority)
    idempotency_keys.store_key(session, incoming.idempotency, submission_id=submission.id)
    session.flush()
    news = {"type": "submission.received", "submission": submission.id}
    outbox.add(session, "event", f"received:{submission.id}", news)
    return Accepted(submission.id, current.id)


def _repeated(session: Session, idempotency: Idempotency | None) -> Accepted | None:
    row = idempotency_keys.find_key(session, idempotency)
    if row is None:
        return None
    if row.submission_id is None:
        raise idempotency_keys.KeyUsed
    round_id = session.execute(
        select(Round.id).where(Round.submission_id == row.submission_id, Round.current)
    ).scalar_one()
    return Accepted(row.submission_id, round_id, repeated=True)


def _locked(session: Session, assignment: Assignment, student_id: int) -> tuple[int, ...]:
    """The student and their group, locked.

    These locks keep submission numbers unique, and order erasures and submissions. Raises Forbidden.
    """
    people = groups.group_members(session, assignment, student_id)
    while True:
        rows = select(User.id, User.disabled).where(User.id.in_(people)).order_by(User.id).with_for_update()
        disabled = {row.id: row.disabled for row in session.execute(rows)}
        if disabled[student_id]:
            raise Forbidden(ACCOUNT_DISABLED)
        # whoever changes a group locks its members, too: now it stays as it is
        again = groups.group_members(session, assignment, student_id)
        if set(again) <= set(people):
            return again
        people = tuple(sorted({*people, *again}))


def _add_submission(session: Session, incoming: IncomingSubmission, people: Sequence[int]) -> Submission:
    number = max(
        highest for _, highest in count_submissions(session, incoming.assignment_id, people).values()
    )
    moment = now(session)
    files = incoming.content.files
    received = incoming.stored or tuple(received_file(file.name, file.data) for file in files)
    language = session.get_one(Assignment, incoming.assignment_id).language
    submission = Submission(
        id=new_id(),
        assignment_id=incoming.assignment_id,
        student_id=incoming.student_id,
        number=number + 1,
        source=incoming.source,
        documents=[
            document.model_dump(mode="json") for document in in_language(incoming.content.documents, language)
        ],
        notes=list(incoming.content.notes),
        submitted_by=incoming.submitted_by,
        created_at=min(incoming.at or moment, moment),
        fingerprint=fingerprint(received),
    )
    session.add(submission)
    session.flush()
    for other in people:
        if other != incoming.student_id:
            session.add(SubmissionMember(submission_id=submission.id, user_id=other))
    store_blobs(session, (file.data for file in files))
    session.add_all(SubmissionFile(submission_id=submission.id, **file.model_dump()) for file in received)
    return submission


def add_round(
    session: Session, submission: Submission, assignment: Assignment, *, reason: str, priority: str
) -> Round:
    """Add a new current round of a submission, with its outbox row."""
    version = versions.published_version(session, assignment)
    mine = select(Submission.id).where(Submission.id == submission.id)
    # not the key: who holds a round, which this may wait for, refers to it
    session.execute(mine.with_for_update(key_share=True))
    earlier = update(Round).where(Round.submission_id == submission.id).values(current=False)
    session.execute(earlier.execution_options(**TRACKED_MANUALLY))  # the new one marks the same
    number = session.execute(
        select(func.coalesce(func.max(Round.number), 0)).where(Round.submission_id == submission.id)
    ).scalar_one()
    new = Round(
        id=new_id(),
        submission_id=submission.id,
        number=number + 1,
        reason=reason,
        rubric_version_id=version.id,
        state=RoundState.RECEIVED,
        priority=priority,
        course_id=assignment.course_id,
        student_id=submission.student_id,
        created_at=now(session),
    )
    session.add(new)
    session.flush()
    for stage in stages_of(Rubric.model_validate(version.rubric)):
        waits = RoundStage(round_id=new.id, stage=stage, state=StageState.WAITING, priority=priority)
        session.add(waits)
    outbox.add(session, "prepare", new.id, {})
    return new


class SubmissionRefused(GraderError):
    """You cannot submit to this assignment now."""

    code = "submission_refused"
    status = 409
    default_message = define_message("error.submission_refused", "You cannot submit to this assignment now.")


class Archived(SubmissionRefused):
    """This course has ended. You can no longer submit."""

    code = "course_archived"
    default_message = define_message("error.archived", "This course has ended. You can no longer submit.")


class SubmissionsClosed(SubmissionRefused):
    """Submissions for this assignment are closed. Ask your instructor for an extension."""

    code = "submission_closed"
    default_message = define_message(
        "error.submissions_closed",
        "Submissions for this assignment are closed. Ask your instructor for an extension.",
    )


class NoSubmissionsLeft(SubmissionRefused):
    """You have used all your submissions for this assignment. Ask your instructor if you need another one."""

    code = "no_submissions_left"
    default_message = define_message(
        "error.no_submissions_left",
        "You have used all your submissions for this assignment. Ask your instructor if you need "
        "another one.",
    )


class SubmissionPolicy(Value):
    """What an assignment permits a student, or their group, at a moment."""

    due: datetime | None
    """Their own date, with an extension."""
    extended: bool
    rule: LateRule
    closes: datetime | None
    """When the assignment closes; None: never."""
    lateness: Lateness
    """Lateness of a submission at that moment."""
    used: int
    """Submissions that count for the member who has most."""
    most: int | None
    archived: bool

    @property
    def left(self) -> int | None:
        """Submissions left; None: no limit."""
        return None if self.most is None else max(0, self.most - self.used)

    @property
    def open(self) -> bool:
        """Whether a student may submit."""
        return not self.archived and not self.lateness.closed and self.left != 0


def submission_policy(
    session: Session, assignment: tables.Assignment, student_id: int, people: Sequence[int], moment: datetime
) -> SubmissionPolicy:
    """The policy for `student_id`, who submits with `people` (themselves included)."""
    due = due_of(session, assignment, student_id)
    used = max((count for count, _ in count_submissions(session, assignment.id, people).values()), default=0)
    terms = PolicyTerms(
        assignment.due_at, assignment.late, assignment.max_submissions, assignment.course.archived
    )
    return evaluate_policy(terms, due, used, moment)


class PolicyTerms(NamedTuple):
    """Columns of an assignment that the policy depends on."""

    due_at: datetime | None
    late: Mapping[str, Any] | None
    most: int | None
    archived: bool


def evaluate_policy(
    terms: PolicyTerms, due: datetime | None, used: int, moment: datetime
) -> SubmissionPolicy:
    """The policy for this due date and number of submissions."""
    rule = LateRule.model_validate(terms.late or {})
    return SubmissionPolicy(
        due=due,
        extended=due != terms.due_at,
        rule=rule,
        closes=closes(due, rule),
        lateness=lateness(moment, due, rule),
        used=used,
        most=terms.most,
        archived=terms.archived,
    )


def require_current(assignment: tables.Assignment) -> None:
    """Raise Archived where the course is archived."""
    if assignment.course.archived:
        raise Archived


def require_open(
    session: Session, assignment: tables.Assignment, student_id: int, people: Sequence[int], moment: datetime
) -> None:
    """Raise Archived, NotFound, SubmissionsClosed or NoSubmissionsLeft where a student may not submit."""
    require_current(assignment)
    found = submission_policy(session, assignment, student_id, people, moment)
    if not assignment.visible:
        raise NotFound(NO_SUCH_ASSIGNMENT)
    if found.lateness.closed and found.closes is not None:
        when = f"{found.closes:%d %b %Y, %H:%M} UTC"
        raise SubmissionsClosed(CLOSED(when=when))
    if found.left == 0:
        raise NoSubmissionsLeft(NO_SUBMISSION_LEFT(most=found.most))


def count_submissions(
    session: Session, assignment_id: int, people: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """For each of these users: how many submissions count for them, and the highest number among those."""
    own, member = tables.Submission, tables.SubmissionMember
    mine = select(own.id, own.student_id.label("user_id"), own.number).where(
        own.assignment_id == assignment_id, own.student_id.in_(people), own.source != SAMPLE
    )
    theirs = (
        select(own.id, member.user_id, own.number)
        .join(member, member.submission_id == own.id)
        .where(own.assignment_id == assignment_id, member.user_id.in_(people))
    )
    found = dict.fromkeys(people, (0, 0))
    for row in session.execute(mine.union(theirs)):
        count, highest = found[row.user_id]
        found[row.user_id] = count + 1, max(highest, row.number)
    return found


def counts_for(user_id: Any, assignment_id: int | None = None) -> ColumnElement[bool]:
    """A condition on submissions: those that count for this user, alone or in a group.

    `assignment_id`, where the query is about one, lets an index find the few rows.
    """
    own, member = tables.Submission, tables.SubmissionMember
    mine = select(own.id).where(own.student_id == user_id)
    if assignment_id is not None:
        mine = mine.where(own.assignment_id == assignment_id)
    return own.id.in_(mine.union_all(select(member.submission_id).where(member.user_id == user_id)))
