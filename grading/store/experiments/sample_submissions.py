"""The starter and the solution as hand-ins to try a rubric on; they never have a current round."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.database import now
from grading.store.tables.assignments import TRIAL


def _next_number(session: Session, assignment_id: int, user_id: int) -> int:
    """Below those of real hand-ins, which begin with 1."""
    table = tables.Submission
    # the same lock as that of a hand-in
    session.execute(select(tables.User.id).where(tables.User.id == user_id).with_for_update())
    mine = (table.assignment_id == assignment_id, table.student_id == user_id, table.source == TRIAL)
    lowest = session.scalar(select(func.min(table.number)).where(*mine))
    return (1 if lowest is None else lowest) - 1


def trial(
    session: Session,
    assignment: tables.Assignment,
    version: tables.RubricVersion,
    what: Literal["starter", "solution"],
    actor: Actor,
) -> str | None:
    """The starter or the solution as a hand-in that nobody sees; nothing where there is none."""
    documents = version.starter if what == "starter" else version.solution
    if not documents:
        return None
    names = {p.removeprefix(f"{what}/"): sha for p, sha in version.files.items() if p.startswith(f"{what}/")}
    content = json.dumps([what, documents, sorted(names.items())], sort_keys=True)
    mark = hashlib.sha256(content.encode()).hexdigest()
    table = tables.Submission
    same = select(table.id).where(
        table.assignment_id == assignment.id, table.source == TRIAL, table.fingerprint == mark
    )
    known = session.execute(same.order_by(table.number).limit(1)).scalar_one_or_none()
    if known is not None:
        return known
    made = table(
        id=tables.new_id(),
        assignment_id=assignment.id,
        student_id=actor.user_id,
        number=_next_number(session, assignment.id, actor.user_id),
        source=TRIAL,
        documents=documents,
        notes=[what],
        submitted_by=actor.user_id,
        created_at=now(session),
        fingerprint=mark,
    )
    session.add(made)
    session.flush()
    _add_files(session, made.id, names)
    return made.id


def _add_files(session: Session, submission_id: str, names: dict[str, str]) -> None:
    sizes = select(tables.Blob.sha256, tables.Blob.size).where(tables.Blob.sha256.in_(set(names.values())))
    known = {row.sha256: row.size for row in session.execute(sizes)}
    rows = [
        {"submission_id": submission_id, "path": path, "sha256": sha, "size": known[sha]}
        for path, sha in names.items()
        if sha in known
    ]
    if rows:
        session.execute(insert(tables.SubmissionFile), rows)
