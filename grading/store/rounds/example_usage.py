"""The examples that the models of a grading are shown, and which gradings were shown which."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.domain.jobs import WorkedExample, heading
from grading.store import tables

TRIES = 5
"""To take a prompt away while results come in."""


def any_active(version_id: Any) -> Any:
    """Whether an example is on for the assignment of this rubric version, a column of another query."""
    example, version = tables.Example, tables.RubricVersion
    there = select(example.id).join(version, version.assignment_id == example.assignment_id)
    return there.where(version.id == version_id, example.active).exists()


class ActiveExample(NamedTuple):
    """An example that is on, and the rubric version that counted when it was chosen."""

    example: WorkedExample
    version_id: int | None


def to_job_example(example: tables.Example) -> WorkedExample:
    """An example as jobs carry it."""
    return WorkedExample(
        id=example.id,
        criterion=example.criterion,
        excerpt=example.excerpt,
        level=example.level,
        model_level=example.model_level,
        reason=example.reason,
    )


def version_when_chosen() -> Any:
    """The number of the rubric version that counted when an example was chosen, for a query on examples."""
    example, version = tables.Example, tables.RubricVersion
    return (
        select(version.id)
        .where(version.assignment_id == example.assignment_id, version.published_at <= example.at)
        .order_by(version.published_at.desc(), version.number.desc())
        .limit(1)
        .scalar_subquery()
    )


def load_examples(
    session: Session, assignment_id: int, submission_id: str, student_id: int
) -> list[ActiveExample]:
    """Examples for the grading of a submission, by criterion, in one query.

    Without those from work of the same student, or of a group with them: nobody is graded with their own.
    """
    example, member = tables.Example, tables.SubmissionMember
    theirs = select(member.user_id).where(member.submission_id == example.submission_id)
    with_them = select(member.user_id).where(member.submission_id == submission_id)
    author = tables.Submission.student_id
    query = (
        select(example, version_when_chosen().label("then"))
        .join(tables.Submission, tables.Submission.id == example.submission_id)
        .where(
            example.assignment_id == assignment_id,
            example.active,
            author != student_id,
            ~theirs.where(or_(member.user_id == student_id, member.user_id.in_(with_them))).exists(),
            author.not_in(with_them),
        )
        .order_by(example.criterion, example.id)
    )
    return [ActiveExample(to_job_example(row.Example), row.then) for row in session.execute(query)]


def list_uses(session: Session, assignment_id: int) -> dict[str, list[str]]:
    """Key of an example -> submissions with a grading that was shown it, in one query."""
    query = (
        select(tables.Grade.submission_id, tables.Grade.report["stages"].label("stages"))
        .join(tables.Submission, tables.Submission.id == tables.Grade.submission_id)
        .where(tables.Submission.assignment_id == assignment_id)
        .order_by(tables.Grade.id)
        .execution_options(yield_per=200)
    )
    found: dict[str, list[str]] = defaultdict(list)
    for row in session.execute(query):
        for key in set(keys_of(row.stages)):
            if found[key][-1:] != [row.submission_id]:
                found[key].append(row.submission_id)
    return {key: list(dict.fromkeys(ids)) for key, ids in found.items()}


def student_names(session: Session, submission_ids: Iterable[str]) -> dict[str, str]:
    """Whose each of these submissions is."""
    query = select(tables.Submission.id, tables.User.name).join(
        tables.User, tables.User.id == tables.Submission.student_id
    )
    return {
        row.id: row.name for row in session.execute(query.where(tables.Submission.id.in_(submission_ids)))
    }


def keys_of(stages: Any) -> Iterable[str]:
    """Keys of the examples that the stages of a report were shown."""
    for stage in (stages or {}).values():
        yield from stage.get("examples", ())


def delete_quoting_prompts(session: Session, submission_ids: Sequence[str]) -> None:
    """Take prompts away that showed excerpts of these submissions, as their students are erased.

    What others' models read cannot be shown any more then: a prompt is kept whole or not at all.
    """
    query = select(tables.Example.id).where(tables.Example.submission_id.in_(submission_ids))
    headings = [heading(number).encode() for number in session.scalars(query)]
    if not headings:
        return
    messages = select(tables.SystemMessage.sha256, tables.SystemMessage.content)
    for name, content in session.execute(messages).all():
        words = zlib.decompress(content)
        if any(one in words for one in headings):
            _take_away(session, name)


def _take_away(session: Session, name: str) -> None:
    theirs = update(tables.Prompt).where(tables.Prompt.system_sha256 == name)
    unread = theirs.values(system_sha256=None, user_message=None)
    for _ in range(TRIES):
        try:
            with session.begin_nested():
                session.execute(unread.execution_options(synchronize_session=False))
                session.execute(delete(tables.SystemMessage).where(tables.SystemMessage.sha256 == name))
            return
        except IntegrityError:
            continue  # a result that shows it came in at this moment


def all_exist(session: Session, keys: Sequence[str]) -> bool:
    """Whether all of these examples are still there, be it without their words."""
    numbers = {int(number) for key in keys if (number := key.partition(":")[0]).isdecimal()}
    found = session.scalars(select(tables.Example.id).where(tables.Example.id.in_(numbers)))
    return numbers == set(found)
