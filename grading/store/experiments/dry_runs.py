"""Rounds that are not current: samples for a rubric, dry runs of a change, re-runs of single submissions.

No list, statistic or student sees them. `grading.store.experiments.apply` makes finished ones current.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState, StageState
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.store import tables
from grading.store.assignments import versions
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.bulk import chunks
from grading.store.database import literal_limit, now
from grading.store.tables.assignments import SAMPLE

NO_SUBMISSION_CHOSEN = define_message("dry_runs.no_submission_chosen", "Choose at least one submission.")
NO_SUCH_DRY_RUN = define_message("dry_runs.no_such_dry_run", "This dry run does not exist.")
APPLIED_ALREADY = define_message("dry_runs.applied_already", "This dry run was already applied.")
DISCARDED_ALREADY = define_message("dry_runs.discarded_already", "This dry run was discarded.")
NEWER_VERSION = define_message(
    "dry_runs.newer_version",
    "Version %(version)s was published after this dry run started. Start a new dry run to compare "
    "with the version in use.",
)

Purpose = Literal["try", "rubric", "rerun", "examples"]
REASONS: dict[str, str] = {"try": "try", "rubric": "dry run", "rerun": "re-run"}
ENDED = tuple(state.value for state in RoundState if state.final)
DISCARDED = define_message("dry_run.discarded", "The dry run was discarded.")
Selection = Literal["latest", "all"]


@dataclass(frozen=True)
class StartedDryRun:
    """The ids of what was made; its rounds are to be prepared."""

    dry_run_id: str
    round_ids: tuple[str, ...]


def select_submissions(session: Session, assignment_id: int, which: Selection | Sequence[str]) -> list[str]:
    """Submissions of an assignment: the newest of each student, all, or those of these ids that exist."""
    table = tables.Submission
    query = (
        select(table.id)
        .join(tables.Round, (tables.Round.submission_id == table.id) & tables.Round.current)
        .where(table.assignment_id == assignment_id)
        .order_by(table.id)
    )
    if which == "latest":
        last = tables.Submission.__table__.alias("last")
        newest = (
            select(func.max(last.c.number))
            .where(last.c.assignment_id == assignment_id, last.c.student_id == table.student_id)
            .correlate(table)
        )
        return list(session.scalars(query.where(table.number == newest.scalar_subquery())))
    if which == "all":
        return list(session.scalars(query))
    return [
        one for some in chunks(list(which)[:5000]) for one in session.scalars(query.where(table.id.in_(some)))
    ]


def start_dry_run(
    session: Session,
    assignment: tables.Assignment,
    version: tables.RubricVersion,
    submissions: Sequence[str],
    purpose: Purpose,
    actor: Actor,
) -> StartedDryRun:
    """Grade these submissions with this version, with batch priority. Raises Conflict."""
    if not submissions:
        raise Conflict(NO_SUBMISSION_CHOSEN)
    made = tables.DryRun(
        id=tables.new_id(),
        assignment_id=assignment.id,
        rubric_version_id=version.id,
        purpose=purpose,
        by=actor.user_id,
        created_at=now(session),
    )
    session.add(made)
    session.flush()
    stages = stages_of(Rubric.model_validate(version.rubric))
    rounds: list[str] = []
    for some in chunks(sorted(set(submissions))):
        rounds += _add_rounds(session, made, assignment, stages, some)
    detail = {"version": version.number, "purpose": purpose, "submissions": len(rounds)}
    write_audit(session, actor.name, "dry_run.begin", f"assignment:{assignment.id}", detail)
    return StartedDryRun(made.id, tuple(rounds))


def _last_rounds(
    session: Session, assignment: tables.Assignment, submissions: Sequence[str]
) -> Sequence[Any]:
    """Submissions of this assignment, locked, each with its student and its last round's number."""
    theirs = tables.Submission.id.in_(submissions)
    one_order = select(tables.Submission.id).where(theirs).order_by(tables.Submission.id)
    session.execute(one_order.with_for_update(key_share=True))
    last = func.max(tables.Round.number)
    return session.execute(
        select(tables.Submission.id, tables.Submission.student_id, func.coalesce(last, 0).label("last"))
        .outerjoin(tables.Round, tables.Round.submission_id == tables.Submission.id)
        .where(theirs, tables.Submission.assignment_id == assignment.id)
        .group_by(tables.Submission.id, tables.Submission.student_id)
        .order_by(tables.Submission.id)
    ).all()


def _add_rounds(
    session: Session,
    made: tables.DryRun,
    assignment: tables.Assignment,
    stages: Sequence[str],
    submissions: Sequence[str],
) -> list[str]:
    """Add the rounds of a dry run."""
    reason = REASONS.get(made.purpose, made.purpose)
    ids = add_batch_rounds(session, assignment, made.rubric_version_id, stages, submissions, reason)
    if ids:
        links = [{"dry_run_id": made.id, "submission_id": s, "round_id": r} for s, r in ids.items()]
        session.execute(insert(tables.DryRunRound), links)
    return list(ids.values())


def add_batch_rounds(
    session: Session,
    assignment: tables.Assignment,
    version_id: int,
    stages: Sequence[str],
    submissions: Sequence[str],
    reason: str,
) -> dict[str, str]:
    """Add rounds that are not current, with their stages and outbox rows; their ids by submission."""
    moment, found = now(session), _last_rounds(session, assignment, submissions)
    ids = {row.id: tables.new_id() for row in found}
    common: dict[str, Any] = {
        "reason": reason,
        "rubric_version_id": version_id,
        "state": RoundState.RECEIVED.value,
        "current": False,
        "priority": "batch",
        "course_id": assignment.course_id,
        "created_at": moment,
    }
    rows = [
        {"id": ids[o.id], "submission_id": o.id, "number": o.last + 1, "student_id": o.student_id, **common}
        for o in found
    ]
    waits = {"state": StageState.WAITING.value, "priority": "batch"}
    due = {"kind": "prepare", "payload": {}, "created_at": moment, "not_before": moment}
    if rows:
        session.execute(insert(tables.Round), rows)
        parts = [{"round_id": one, "stage": stage, **waits} for one in ids.values() for stage in stages]
        session.execute(insert(tables.RoundStage), parts)
        session.execute(insert(tables.Outbox), [{"key": one, **due} for one in ids.values()])
    return ids


def load_dry_run(session: Session, dry_run_id: str, lock: bool = False) -> tables.DryRun:
    """A dry run. Raises NotFound."""
    query = select(tables.DryRun).where(tables.DryRun.id == dry_run_id)
    found = session.scalar(query.with_for_update() if lock else query) if dry_run_id.isalnum() else None
    if found is None:
        raise NotFound(NO_SUCH_DRY_RUN)
    return found


def assignment_of(session: Session, run: tables.DryRun) -> tables.Assignment:
    """The assignment of a dry run, with its course."""
    return versions.load_assignment(session, run.assignment_id)


def discard_dry_run(session: Session, dry_run_id: str, actor: Actor) -> bool:
    """Discard a dry run: nothing of it will count, and rounds that are queued are cancelled.

    Returns whether `restore_dry_run` can undo it, which is so when all of it was graded. Raises Conflict.
    """
    run = load_dry_run(session, dry_run_id, lock=True)
    require_open(run)
    run.discarded_at = now(session)
    complete = count_states(session, run.id).keys() <= set(ENDED)
    mine = select(tables.DryRunRound.round_id).where(tables.DryRunRound.dry_run_id == run.id)
    cancel_rounds(session, mine)
    detail = {"dry_run": run.id, UNDO: complete}
    write_audit(session, actor.name, "dry_run.discard", f"assignment:{run.assignment_id}", detail)
    return complete


def cancel_rounds(session: Session, mine: Any) -> None:
    """End those of these rounds that are not current and that no machine began; `mine` selects their ids."""
    unbegun = (RoundState.RECEIVED.value, RoundState.QUEUED.value)
    # without an end: it is no grading that failed
    session.execute(
        update(tables.Round)
        .where(tables.Round.id.in_(mine), tables.Round.state.in_(unbegun), ~tables.Round.current)
        .values(state=RoundState.FAILED.value, failure=DISCARDED(), prepared=None)
        .execution_options(synchronize_session=False)
    )
    session.execute(
        update(tables.Outbox)
        .where(
            tables.Outbox.kind.in_(("prepare", "execute")),
            tables.Outbox.key.in_(mine),
            tables.Outbox.done_at.is_(None),
        )
        .values(done_at=now(session))
        .execution_options(synchronize_session=False)
    )


def restore_dry_run(session: Session, dry_run_id: str, moment: datetime, actor: Actor) -> None:
    """Open a dry run again that the actor discarded at this moment. Raises CannotUndo."""
    run = load_dry_run(session, dry_run_id, lock=True)
    done = done_at(session, actor.name, moment, "dry_run.discard")
    if run.discarded_at != moment or not any(row.detail == {"dry_run": run.id, UNDO: True} for row in done):
        raise CannotUndo
    run.discarded_at = None
    write_audit(
        session, actor.name, "dry_run.restore", f"assignment:{run.assignment_id}", {"dry_run": run.id}
    )


def require_open(run: tables.DryRun) -> None:
    """Raise Conflict unless the dry run is undecided."""
    if run.applied_at is not None:
        raise Conflict(APPLIED_ALREADY)
    if run.discarded_at is not None:
        raise Conflict(DISCARDED_ALREADY)


def require_newest(session: Session, run: tables.DryRun) -> None:
    """Raise Conflict when another version was published since the dry run was compared."""
    assignment = session.get_one(tables.Assignment, run.assignment_id)
    counts = versions.find_published(session, assignment)
    if counts is None or counts.published_at is None or counts.id == run.rubric_version_id:
        return
    if counts.published_at > run.created_at:
        raise Conflict(NEWER_VERSION(version=counts.number))


MOST_LISTED = 25
RECENT = 25


@dataclass(frozen=True, slots=True)
class DryRunEntry:
    """A dry run in a list, with counts of its rounds."""

    id: str
    purpose: str
    version: int
    by: str
    created_at: datetime
    applied_at: datetime | None
    discarded_at: datetime | None
    total: int
    ended: int

    @property
    def done(self) -> bool:
        """Whether all its rounds have ended."""
        return self.ended >= self.total

    @property
    def open(self) -> bool:
        """Whether it can be applied or discarded."""
        return self.applied_at is None and self.discarded_at is None


def list_dry_runs(session: Session, assignment_id: int, dry_run_id: str | None = None) -> list[DryRunEntry]:
    """The dry runs of an assignment, or one of them, the newest first; one query."""
    about = {"assignment_id": assignment_id, "dry_run_id": dry_run_id}
    return [DryRunEntry(*row) for row in session.execute(_lines(dry_run_id is not None), about)]


@cache
def _lines(one: bool) -> Any:
    run, link, round_, version = tables.DryRun, tables.DryRunRound, tables.Round, tables.RubricVersion
    query: Any = (
        select(  # as a line has them
            run.id,
            run.purpose,
            version.number.label("version"),
            func.coalesce(tables.User.name, "").label("by"),
            run.created_at,
            run.applied_at,
            run.discarded_at,
            func.count(link.round_id).label("total"),
            func.count().filter(round_.state.in_(ENDED)).label("ended"),
        )
        .join(version, version.id == run.rubric_version_id)
        .outerjoin(tables.User, tables.User.id == run.by)
        .outerjoin(link, link.dry_run_id == run.id)
        .outerjoin(round_, round_.id == link.round_id)
        .group_by(run.id, version.number, tables.User.name)
        .order_by(run.created_at.desc(), run.id)
    )
    newest = select(run.id).where(
        run.assignment_id == bindparam("assignment_id"), run.purpose.in_(list(REASONS))
    )
    if one:
        newest = newest.where(run.id == bindparam("dry_run_id"))
    newest = newest.order_by(run.created_at.desc(), run.id).limit(MOST_LISTED)
    return query.where(run.id.in_(newest.subquery().select()))


@dataclass(frozen=True, slots=True)
class RecentSubmission:
    """A submission that can be selected."""

    id: str
    student: str
    number: int
    points: float | None


def list_recent(session: Session, assignment_id: int) -> tuple[tuple[RecentSubmission, ...], bool]:
    """The newest submissions of an assignment, and whether there are more."""
    rows = session.execute(_recent(), {"assignment_id": assignment_id}).all()
    return tuple(RecentSubmission(*row) for row in rows[:RECENT]), len(rows) > RECENT


@cache
def _recent() -> Any:
    submission, round_, grade = tables.Submission, tables.Round, tables.Grade
    return (
        select(submission.id, tables.User.name.label("student"), submission.number, grade.final_points)
        .join(tables.User, tables.User.id == submission.student_id)
        .join(round_, (round_.submission_id == submission.id) & round_.current)
        .outerjoin(grade, grade.round_id == round_.id)
        .where(submission.assignment_id == bindparam("assignment_id"))
        .order_by(submission.created_at.desc(), submission.id)
        .limit(literal_limit(RECENT + 1))
    )


def count_states(session: Session, dry_run_id: str) -> dict[str, int]:
    """The number of its rounds by state."""
    link, round_ = tables.DryRunRound, tables.Round
    query = select(round_.state, func.count()).join(link, link.round_id == round_.id)
    rows = session.execute(query.where(link.dry_run_id == dry_run_id).group_by(round_.state))
    return {row[0]: row[1] for row in rows}


def next_sample_number(session: Session, assignment_id: int, user_id: int) -> int:
    """The next number below those of real submissions, which begin with 1; the user is locked."""
    table = tables.Submission
    # the same lock as that of a submission
    session.execute(select(tables.User.id).where(tables.User.id == user_id).with_for_update())
    mine = (table.assignment_id == assignment_id, table.student_id == user_id, table.source == SAMPLE)
    lowest = session.scalar(select(func.min(table.number)).where(*mine))
    return (1 if lowest is None else lowest) - 1


def create_sample_submission(
    session: Session,
    assignment: tables.Assignment,
    version: tables.RubricVersion,
    what: Literal["starter", "solution"],
    actor: Actor,
) -> str | None:
    """Make a submission of the starter or the solution that nobody sees; None where there is none."""
    documents = version.starter if what == "starter" else version.solution
    if not documents:
        return None
    names = {p.removeprefix(f"{what}/"): sha for p, sha in version.files.items() if p.startswith(f"{what}/")}
    content = json.dumps([what, documents, sorted(names.items())], sort_keys=True)
    mark = hashlib.sha256(content.encode()).hexdigest()
    table = tables.Submission
    same = select(table.id).where(
        table.assignment_id == assignment.id, table.source == SAMPLE, table.fingerprint == mark
    )
    known = session.execute(same.order_by(table.number).limit(1)).scalar_one_or_none()
    if known is not None:
        return known
    made = table(
        id=tables.new_id(),
        assignment_id=assignment.id,
        student_id=actor.user_id,
        number=next_sample_number(session, assignment.id, actor.user_id),
        source=SAMPLE,
        documents=documents,
        notes=[what],
        submitted_by=actor.user_id,
        created_at=now(session),
        fingerprint=mark,
    )
    session.add(made)
    session.flush()
    add_files(session, made.id, names)
    return made.id


def add_files(session: Session, submission_id: str, names: Mapping[str, str]) -> None:
    """Give a submission files that are stored: path -> SHA-256."""
    sizes = select(tables.Blob.sha256, tables.Blob.size).where(tables.Blob.sha256.in_(set(names.values())))
    known = {row.sha256: row.size for row in session.execute(sizes)}
    rows = [
        {"submission_id": submission_id, "path": path, "sha256": sha, "size": known[sha]}
        for path, sha in names.items()
        if sha in known
    ]
    if rows:
        session.execute(insert(tables.SubmissionFile), rows)
