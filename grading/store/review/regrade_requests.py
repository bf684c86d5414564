"""Regrade requests: creation, withdrawal, answers. Lists are in `grading.store.views`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report_changes import Change
from grading.domain.shared_messages import NO_SUCH_REQUEST, NO_SUCH_SUBMISSION
from grading.store import tables
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.database import now
from grading.store.grades import release
from grading.store.grades.change_history import stamp
from grading.store.review import edits
from grading.store.submissions import mail_notifications
from grading.store.submissions.intake import add_round

NO_SUCH_CRITERION = define_message(
    "regrade_requests.no_such_criterion", "This criterion is not part of the grade."
)
REQUESTED_ALREADY = define_message(
    "regrade_requests.requested_already",
    "You have already sent this request. Wait for the answer, or withdraw the request.",
)
TOO_MANY_REQUESTS = define_message(
    "regrade_requests.too_many_requests",
    "You have sent the maximum number of regrade requests for this submission. Contact your instructor.",
)
ANSWERED_ALREADY = define_message(
    "regrade_requests.answered_already", "This request was already answered or withdrawn."
)
ANSWERED_MEANWHILE = define_message(
    "regrade_requests.answered_meanwhile",
    "Nothing was changed: this request was already answered or withdrawn.",
)
BEING_GRADED = define_message(
    "regrade_requests.being_graded", "This submission is still being graded. Wait until grading has finished."
)
NO_GRADE_NOW = define_message(
    "regrade_requests.no_grade_now",
    "This submission has no grade now, because it is being regraded. Try again later.",
)

MOST_OF_ONE = 30
"""Requests for one submission, in any state."""
LONGEST = 4_000
"""Maximum length of a reason or an answer."""
Verdict = Literal["declined", "points", "again"]
"""declined; accepted with other points; accepted and graded again by the machines"""


class Answer(Value):
    """The decision of staff; `points` is a criterion's new number, or what is added to the total."""

    verdict: Verdict
    words: str
    points: float | None = None


def create_request(session: Session, actor: Actor, submission_id: str, criterion: str, reason: str) -> int:
    """Create a request; returns its id. Raises Conflict where one is open."""
    # the row is the lock that keeps two equal requests apart
    session.execute(
        select(tables.Submission.id)
        .where(tables.Submission.id == submission_id)
        .with_for_update(key_share=True)
    )
    round_, grade = _graded(session, submission_id)
    known = {one["criterion"] for one in grade.report.get("criteria", [])}
    if criterion and criterion not in known:
        raise NotFound(NO_SUCH_CRITERION)
    row = tables.RegradeRequest
    mine = session.scalars(select(row).where(row.submission_id == submission_id)).all()
    if any(one.state == "open" and one.criterion == criterion for one in mine):
        raise Conflict(REQUESTED_ALREADY)
    if len(mine) >= MOST_OF_ONE:
        raise Conflict(TOO_MANY_REQUESTS)
    made = row(
        submission_id=submission_id, round_id=round_.id, student_id=actor.user_id, course_id=round_.course_id,
        criterion=criterion, reason=_storable(reason), created_at=now(session),
    )  # fmt: skip
    session.add(made)
    session.flush()
    write_audit(session, actor.name, "regrade.ask", f"submission:{submission_id}", _about(made))
    return made.id


def withdraw_request(session: Session, actor: Actor, request_id: int) -> None:
    """Withdraw one's own request. Raises NotFound, and Conflict when it is answered."""
    row = _locked(session, request_id)
    if row.student_id != actor.user_id:
        raise NotFound(NO_SUCH_REQUEST)
    if row.state != "open":
        raise Conflict(ANSWERED_ALREADY)
    row.state, row.answered_at = "withdrawn", now(session)
    write_audit(session, actor.name, "regrade.withdraw", f"submission:{row.submission_id}", _about(row))


def undo_withdrawal(session: Session, actor: Actor, request_id: int, moment: datetime) -> None:
    """Open one's own request again that was withdrawn at this moment. Raises NotFound, CannotUndo."""
    row = _locked(session, request_id)
    if row.student_id != actor.user_id:
        raise NotFound(NO_SUCH_REQUEST)
    if (row.state, row.answered_at) != ("withdrawn", moment) or _sent_again(session, row):
        raise CannotUndo
    row.state, row.answered_at = "open", None
    write_audit(session, actor.name, "regrade.reopen", f"submission:{row.submission_id}", _about(row))


def answer_request(session: Session, actor: Actor, request_id: int, given: Answer) -> str | None:
    """Decline or accept a request; returns the new round to announce, if there is one.

    Raises NotFound, Conflict when it is answered or there is no grade to change.
    """
    row = _locked(session, request_id)
    if row.state != "open":
        raise Conflict(ANSWERED_MEANWHILE)
    new = None
    answer: dict[str, Any] = {**_about(row), "verdict": given.verdict, "points": given.points}
    if given.verdict == "points":
        answer[UNDO] = _change(session, actor, row, given)
    elif given.verdict == "again":
        new = _again(session, row)
    row.state = "declined" if given.verdict == "declined" else "accepted"
    row.answer, row.answered_by, row.answered_at = _storable(given.words), actor.user_id, now(session)
    write_audit(session, actor.name, "regrade.answer", f"submission:{row.submission_id}", answer)
    mail_notifications.add_answer_letter(session, row.submission_id, row.student_id, row.id)
    return new


def undo_answer(session: Session, actor: Actor, request_id: int, moment: datetime) -> None:
    """Open a request again that the actor answered at this moment, with the points as they were.

    Raises NotFound; CannotUndo where the points were changed since, where the student
    sent the request again, and for a grading that was started.
    """
    row = _locked(session, request_id)
    made = next(
        (
            one.detail
            for one in done_at(session, actor.name, moment, "regrade.answer")
            if one.detail.get("request") == row.id
        ),
        None,
    )
    if made is None or made["verdict"] == "again" or _sent_again(session, row):
        raise CannotUndo
    if (row.answered_at, row.answered_by) != (moment, actor.user_id):
        raise CannotUndo
    if made["verdict"] == "points":
        _undo_change(session, actor, row.submission_id, made.get(UNDO))
    row.state, row.answer, row.answered_by, row.answered_at = "open", "", None, None
    write_audit(session, actor.name, "regrade.undo", f"submission:{row.submission_id}", _about(row))


def _sent_again(session: Session, row: tables.RegradeRequest) -> bool:
    """Whether the student has another open request about the same part of the grade."""
    other = tables.RegradeRequest
    same = (other.submission_id == row.submission_id, other.criterion == row.criterion)
    return session.scalar(select(other.id).where(*same, other.state == "open").limit(1)) is not None


def _undo_change(session: Session, actor: Actor, submission_id: str, change_id: int | None) -> None:
    """Undo the change of an answer. Raises CannotUndo unless it still decides the points."""
    grade, change = release.lock_current_grade(session, submission_id), tables.Change
    made = session.get(change, change_id) if change_id is not None else None
    if grade is None or made is None or made.round_id != grade.round_id or made.undone_at is not None:
        raise CannotUndo
    later = select(change.id).where(
        change.round_id == made.round_id, change.target == made.target, change.kind == made.kind,
        change.id > made.id, change.undone_at.is_(None),
    )  # fmt: skip
    if session.scalar(later.limit(1)) is not None:
        raise CannotUndo
    edits.record_undo(session, grade, made, actor)


def _change(session: Session, actor: Actor, row: tables.RegradeRequest, given: Answer) -> int | None:
    """Change the points of the criterion or the total; returns the change."""
    round_ = _current(session, row.submission_id)
    wanted = Change(
        kind="points" if row.criterion else "adjust",
        target=row.criterion or f"regrade:{row.id}",
        points=given.points,
        reason=_storable(given.words)[:2000],
    )
    # who answers saw the page of the request, not the grade's: what others changed is no obstacle
    return edits.change_grade(session, row.submission_id, wanted, stamp(session, round_.id), actor)


def _again(session: Session, row: tables.RegradeRequest) -> str:
    """Add a round of the submission."""
    current = _current(session, row.submission_id)
    if current.finished_at is None:
        raise Conflict(BEING_GRADED)
    submission = session.get_one(tables.Submission, row.submission_id)
    made = add_round(session, submission, submission.assignment, reason="regrade", priority="interactive")
    return made.id


def _graded(session: Session, submission_id: str) -> tuple[tables.Round, tables.Grade]:
    """The current round and its grade."""
    current = _current(session, submission_id)
    grade = session.scalar(select(tables.Grade).where(tables.Grade.round_id == current.id))
    if grade is None:
        raise Conflict(NO_GRADE_NOW)
    return current, grade


def _current(session: Session, submission_id: str) -> tables.Round:
    query = select(tables.Round).where(tables.Round.submission_id == submission_id, tables.Round.current)
    current = session.scalar(query)
    if current is None:
        raise NotFound(NO_SUCH_SUBMISSION)
    return current


def _locked(session: Session, request_id: int) -> tables.RegradeRequest:
    query = select(tables.RegradeRequest).where(tables.RegradeRequest.id == request_id).with_for_update()
    row = session.scalar(query)
    if row is None:
        raise NotFound(NO_SUCH_REQUEST)
    return row


def _about(row: tables.RegradeRequest) -> dict[str, int | str]:
    return {"request": row.id, "criterion": row.criterion}


def _storable(text: str) -> str:
    """Text without NUL, which PostgreSQL refuses."""
    return text.replace("\0", "").strip()[:LONGEST]
