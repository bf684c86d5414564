"""Examples: corrections that later gradings of the same criterion include in their prompts.

A removed example keeps its text for a day, so that its removal can be undone, and its row for ever, so that
its id is not used again, and prompts that quote it are found when its student is erased.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from grading.checks.manipulation.flags import manipulation_flags
from grading.documents import Identity
from grading.documents.pseudonym import pseudonymise_texts
from grading.domain.document import Cell, Document
from grading.domain.errors import CannotUndo, Conflict, GraderError, NotFound
from grading.domain.messages import Message, define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion, Rubric
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.store import tables
from grading.store.assignments import versions as rubric_versions
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.change_tracking import TRACKED_MANUALLY
from grading.store.database import now
from grading.store.experiments.corrections import Correction, load_correction
from grading.store.rounds.example_usage import to_job_example, version_when_chosen

ALREADY_AN_EXAMPLE = define_message("examples.already_an_example", "This correction is already an example.")
CRITERION_GONE = define_message(
    "examples.criterion_gone",
    "This criterion is no longer in the rubric, so models would not use the example.",
)
OTHER_LEVELS = define_message(
    "examples.other_levels",
    "The levels of this criterion changed after the grading. Regrade the submission, then correct "
    "the new grade.",
)
NO_SUCH_EXAMPLE = define_message("examples.no_such_example", "This example does not exist.")
NO_EXCERPT = define_message("examples.no_excerpt", "An example needs an excerpt: what the student wrote.")
EXCERPT_TOO_LONG = define_message(
    "examples.excerpt_too_long", "The excerpt has %(found)s characters. Shorten it to at most %(most)s."
)
REASON_TOO_LONG = define_message(
    "examples.reason_too_long", "The reason has %(found)s characters. Shorten it to at most %(most)s."
)
TOO_MANY_OF_CRITERION = define_message(
    "examples.too_many_of_criterion",
    "At most %(most)s examples per criterion can be on. Turn another example off first.",
)
TOO_MANY_CHARACTERS = define_message(
    "examples.too_many_characters",
    "All examples that are on can have %(most)s characters in total; %(left)s characters remain. "
    "Shorten this example, or turn another one off.",
)
SPEAKS_TO_GRADER = define_message(
    "examples.speaks_to_grader", "Remove the text that addresses the automatic grading. %(sign)s"
)

PER_CRITERION = 4
"""Active examples of a criterion."""
MOST_CHARS = 8_000
"""Characters of all active examples, excerpts and reasons together."""


@dataclass(frozen=True)
class ExampleEntry:
    """An example in the list."""

    id: int
    criterion: str
    title: str
    """The criterion's title; its id where the rubric no longer has it."""
    highest: int | None
    """The criterion's highest level; None where the rubric no longer has it."""
    excerpt: str
    model_level: float | None
    level: float
    reason: str
    active: bool
    by: str
    at: datetime
    submission_id: str
    student: str
    key: str
    same_scale: bool
    """The criterion has the same levels as when the example was chosen."""

    @property
    def works(self) -> bool:
        """Whether prompts include it."""
        return self.active and self.same_scale and self.highest is not None


@dataclass(frozen=True)
class RemainingCapacity:
    """How much can still be activated."""

    by_criterion: dict[str, int]
    chars: int


def list_examples(session: Session, assignment_id: int) -> list[ExampleEntry]:
    """The examples of an assignment by criterion, in the rubric's order."""
    by_id = {one.id: (at, one) for at, one in enumerate(load_criteria(session, assignment_id))}
    rows = session.execute(_rows(assignment_id)).all()
    then = _scales(session, {row.then for row in rows})
    shown = [_shown(row, by_id, then) for row in rows]
    return sorted(shown, key=lambda one: (by_id.get(one.criterion, (len(by_id), None))[0], one.id))


def _rows(assignment_id: int) -> Any:
    """Examples that are not removed, with their student and the rubric version that counted when they were
    chosen.
    """
    example, author = tables.Example, tables.User.__table__.alias("author")
    return (
        select(
            example,
            version_when_chosen().label("then"),
            tables.User.name.label("student"),
            author.c.name.label("author"),
        )
        .join(tables.Submission, tables.Submission.id == example.submission_id)
        .join(tables.User, tables.User.id == tables.Submission.student_id)
        .outerjoin(author, author.c.id == example.by)
        .where(example.assignment_id == assignment_id, example.removed_at.is_(None), example.excerpt != "")
        .order_by(example.criterion, example.id)
    )


def _scales(session: Session, versions: Iterable[int | None]) -> dict[int | None, dict[str, int]]:
    """The highest level of each criterion, by rubric version."""
    query = select(tables.RubricVersion.id, tables.RubricVersion.rubric)
    known = [one for one in versions if one is not None]
    return {
        number: {one.id: one.highest for one in Rubric.model_validate(rubric).criteria}
        for number, rubric in session.execute(query.where(tables.RubricVersion.id.in_(known)))
    }


def _shown(
    row: Any, by_id: dict[str, tuple[int, Criterion]], then: dict[int | None, dict[str, int]]
) -> ExampleEntry:
    example: tables.Example = row.Example
    criterion = by_id.get(example.criterion, (0, None))[1]
    highest = criterion.highest if criterion else None
    return ExampleEntry(
        id=example.id,
        criterion=example.criterion,
        title=criterion.title if criterion else example.criterion,
        highest=highest,
        excerpt=example.excerpt,
        model_level=example.model_level,
        level=example.level,
        reason=example.reason,
        active=example.active,
        by=row.author or "",
        at=example.at,
        submission_id=example.submission_id,
        student=row.student,
        key=to_job_example(example).key,
        same_scale=then.get(row.then, {}).get(example.criterion) == highest,
    )


def create_example(
    session: Session, assignment_id: int, change_id: int, excerpt: str, reason: str, actor: Actor
) -> int:
    """Make a correction an example, active if there is capacity; returns its id.

    Raises NotFound, and ExampleRefused or Conflict for what cannot be an example.
    """
    _lock(session, assignment_id)
    found = load_correction(session, assignment_id, change_id)
    _check_scale(session, assignment_id, found)
    if _twin(session, found) is not None:
        raise Conflict(ALREADY_AN_EXAMPLE)
    words, why = check_texts(session, found.submission_id, excerpt, reason)
    made = tables.Example(
        assignment_id=assignment_id,
        submission_id=found.submission_id,
        criterion=found.criterion,
        excerpt=words,
        model_level=found.model_level,
        level=found.level,
        reason=why,
        active=not _full(session, assignment_id, found.criterion, len(words) + len(why)),
        by=actor.user_id,
        at=now(session),
    )
    session.add(made)
    session.flush()
    _note(session, actor, "example.add", made, {"change": change_id, "active": made.active})
    return made.id


def _check_scale(session: Session, assignment_id: int, found: Correction) -> None:
    criterion = next((c for c in load_criteria(session, assignment_id) if c.id == found.criterion), None)
    if criterion is None:
        raise ExampleRefused(CRITERION_GONE)
    if criterion.highest != found.highest:
        raise ExampleRefused(OTHER_LEVELS)


def _twin(session: Session, found: Correction | tables.Example) -> int | None:
    """An example of the same criterion of the same submission."""
    same = (
        tables.Example.submission_id == found.submission_id,
        tables.Example.criterion == found.criterion,
        tables.Example.removed_at.is_(None),
        tables.Example.excerpt != "",
    )
    return session.scalar(select(tables.Example.id).where(*same).limit(1))


def edit_example(
    session: Session, assignment_id: int, example_id: int, excerpt: str, reason: str, actor: Actor
) -> None:
    """Change an example's text. Raises NotFound, ExampleRefused."""
    example = _locked(session, assignment_id, example_id)
    words, why = check_texts(session, example.submission_id, excerpt, reason)
    if example.active:
        _require_room(session, example, len(words) + len(why))
    example.excerpt, example.reason = words, why
    _note(session, actor, "example.edit", example, {})


def set_active(session: Session, assignment_id: int, example_id: int, on: bool, actor: Actor) -> None:
    """Activate or deactivate an example. Raises NotFound, ExampleRefused."""
    example = _locked(session, assignment_id, example_id)
    if example.active == on:
        return
    if on:
        _require_room(session, example, len(example.excerpt) + len(example.reason))
    example.active = on
    _note(session, actor, "example.on" if on else "example.off", example, {})


def remove_example(session: Session, assignment_id: int, example_id: int, actor: Actor) -> None:
    """Remove an example. Raises NotFound."""
    example = _locked(session, assignment_id, example_id)
    detail = {UNDO: example.active}
    example.active, example.removed_at = False, now(session)
    _note(session, actor, "example.remove", example, detail)


def restore_example(
    session: Session, assignment_id: int, example_id: int, moment: datetime, actor: Actor
) -> None:
    """Undo the removal of an example by the actor at this moment.

    Raises NotFound; CannotUndo; Conflict where its correction is an example again; ExampleRefused where it
    was active and there is no room for it.
    """
    _lock(session, assignment_id)
    example = find_example(session, assignment_id, example_id)
    done = done_at(session, actor.name, moment, "example.remove")
    was = next((row.detail.get(UNDO) for row in done if row.detail.get("example") == example.id), None)
    if was is None or example.removed_at != moment or not example.excerpt:
        raise CannotUndo
    if _twin(session, example) is not None:
        raise Conflict(ALREADY_AN_EXAMPLE)
    if was:
        _require_room(session, example, len(example.excerpt) + len(example.reason))
    example.active, example.removed_at = was, None
    _note(session, actor, "example.restore", example, {})


def delete_texts(session: Session, example_ids: Sequence[int]) -> None:
    """Delete the texts of removed examples; their rows stay."""
    gone = update(tables.Example).where(tables.Example.id.in_(example_ids)).values(excerpt="", reason="")
    session.execute(gone.execution_options(synchronize_session=False, **TRACKED_MANUALLY))


def _note(session: Session, actor: Actor, action: str, example: tables.Example, more: dict[str, Any]) -> None:
    detail = {"example": example.id, "criterion": example.criterion, **more}
    write_audit(session, actor.name, action, f"assignment:{example.assignment_id}", detail)


def _lock(session: Session, assignment_id: int) -> None:
    """Lock the assignment, whose active examples are counted. Raises NotFound."""
    query = select(tables.Assignment.id).where(tables.Assignment.id == assignment_id)
    if session.scalar(query.with_for_update(key_share=True)) is None:
        raise NotFound(NO_SUCH_ASSIGNMENT)


def find_example(session: Session, assignment_id: int, example_id: int) -> tables.Example:
    """An example of an assignment, also a removed one. Raises NotFound."""
    found = session.get(tables.Example, example_id)
    if found is None or found.assignment_id != assignment_id:
        raise NotFound(NO_SUCH_EXAMPLE)
    return found


def _locked(session: Session, assignment_id: int, example_id: int) -> tables.Example:
    _lock(session, assignment_id)
    found = find_example(session, assignment_id, example_id)
    if not found.excerpt or found.removed_at:
        raise NotFound(NO_SUCH_EXAMPLE)
    return found


def _require_room(session: Session, example: tables.Example, chars: int) -> None:
    if why := _full(session, example.assignment_id, example.criterion, chars, but=example.id):
        raise ExampleRefused(why)


def _full(session: Session, assignment_id: int, criterion: str, chars: int, but: int = 0) -> Message | None:
    """Why no more examples can be active; None when one can."""
    room = remaining_capacity(_on(session, assignment_id, but))
    if room.by_criterion.get(criterion, PER_CRITERION) < 1:
        return TOO_MANY_OF_CRITERION(most=PER_CRITERION)
    if room.chars < chars:
        return TOO_MANY_CHARACTERS(most=MOST_CHARS, left=max(room.chars, 0))
    return None


def _on(session: Session, assignment_id: int, but: int = 0) -> list[tuple[str, int]]:
    """Criterion and characters of the active examples."""
    example = tables.Example
    size = func.length(example.excerpt) + func.length(example.reason)
    query = select(example.criterion, size).where(
        example.assignment_id == assignment_id, example.active, example.id != but
    )
    return [(criterion, chars) for criterion, chars in session.execute(query)]


def remaining_capacity(on: Iterable[tuple[str, int]]) -> RemainingCapacity:
    """The rest of both limits, from criterion and characters of the active examples."""
    used: dict[str, int] = defaultdict(int)
    chars = 0
    for criterion, size in on:
        used[criterion] += 1
        chars += size
    return RemainingCapacity({one: PER_CRITERION - count for one, count in used.items()}, MOST_CHARS - chars)


def load_criteria(session: Session, assignment_id: int) -> tuple[Criterion, ...]:
    """The criteria of the published rubric; none where there is no rubric."""
    assignment = session.get_one(tables.Assignment, assignment_id)
    version = rubric_versions.find_published(session, assignment)
    return () if version is None else Rubric.model_validate(version.rubric).criteria


LONGEST = 2_000
"""Characters of an excerpt."""
LONGEST_REASON = 500


class ExampleRefused(GraderError):
    """This example cannot be used."""

    code = "example_refused"
    status = 422
    default_message = define_message("error.example_refused", "This example cannot be used.")


def check_texts(session: Session, submission_id: str, excerpt: str, reason: str) -> tuple[str, str]:
    """Both texts without the names of the submission's students. Raises ExampleRefused."""
    kept = excerpt.replace("\r\n", "\n").replace("\0", "").strip("\n ")
    why = " ".join(reason.replace("\0", "").split())
    if not kept:
        raise ExampleRefused(NO_EXCERPT)
    if len(kept) > LONGEST:
        raise ExampleRefused(EXCERPT_TOO_LONG(found=len(kept), most=LONGEST))
    if len(why) > LONGEST_REASON:
        raise ExampleRefused(REASON_TOO_LONG(found=len(why), most=LONGEST_REASON))
    if signs := manipulation_flags([as_document(kept)]):
        raise ExampleRefused(SPEAKS_TO_GRADER(sign=signs[0].coded))
    hidden = [kept, why]
    for identity in student_identities(session, submission_id):
        hidden = pseudonymise_texts(hidden, identity)
    return hidden[0], hidden[1]


def as_document(text: str) -> Document:
    """A text as a document."""
    lines = tuple(range(1, text.count("\n") + 2))
    cell = Cell(number=1, kind="markdown", source=text, language="markdown", added=lines)
    return Document(path="excerpt.md", kind="prose", language="markdown", cells=(cell,))


def student_identities(session: Session, submission_id: str) -> list[Identity]:
    """Names, addresses and ids of a submission's students."""
    member = tables.SubmissionMember
    theirs = select(tables.Submission.student_id).where(tables.Submission.id == submission_id)
    others = select(member.user_id).where(member.submission_id == submission_id)
    users = session.scalars(
        select(tables.User).where(tables.User.id.in_(theirs.union(others))).order_by(tables.User.id)
    )
    found = []
    for user in users:
        subjects = [identity.subject for identity in user.identities]
        mails = (user.email, *(one for one in subjects if "@" in one))
        found.append(
            Identity(
                names=(user.name,) if user.name else (),
                ids=tuple(one for one in subjects if "@" not in one),
                emails=tuple(mail for mail in mails if mail),
            )
        )
    return found
