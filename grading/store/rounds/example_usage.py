"""Usage of examples: which ones a round's models read, and which submissions each one was used for."""

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
"""Attempts to delete a prompt while results come in."""


def any_active(version_id: Any) -> Any:
    """Whether the assignment of a rubric version has an active example, as a column of another query."""
    example, version = tables.Example, tables.RubricVersion
    there = select(example.id).join(version, version.assignment_id == example.assignment_id)
    return there.where(version.id == version_id, example.active).exists()


class ActiveExample(NamedTuple):
    """An active example, with the rubric version that counted when it was chosen."""

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
    """The id of the rubric version that counted when an example was chosen, as a column of a query on
    examples.
    """
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
    """Active examples for the grading of a submission, by criterion, in one query.

    Without those from work of the same student or their group: nobody is graded with their own work as
    example.
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
    """Key of an example -> submissions with a round whose models read it, in one query."""
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
    """The student of each of these submissions, by name."""
    query = select(tables.Submission.id, tables.User.name).join(
        tables.User, tables.User.id == tables.Submission.student_id
    )
    return {
        row.id: row.name for row in session.execute(query.where(tables.Submission.id.in_(submission_ids)))
    }


def keys_of(stages: Any) -> Iterable[str]:
    """Keys of the examples that the models of a report's stages read."""
    for stage in (stages or {}).values():
        yield from stage.get("examples", ())


def delete_quoting_prompts(session: Session, submission_ids: Sequence[str]) -> None:
    """Delete prompts that quote these submissions, as their students are erased.

    A prompt is stored as a whole, so those of other students' runs go too.
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
    """Whether all of these examples exist, even without their text."""
    numbers = {int(number) for key in keys if (number := key.partition(":")[0]).isdecimal()}
    found = session.scalars(select(tables.Example.id).where(tables.Example.id.in_(numbers)))
    return numbers == set(found)
