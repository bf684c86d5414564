"""Questions to the instructor about criteria that are judged differently, and what became of them.

The submissions of a question are found anew each time; stored are its answer or dismissal, and the words a
model gave it. An answer becomes a note of the criterion in the rubric's next version, a draft; two names that
count as equal are also in the rubric's equivalent names, which checks follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.assignments.editor.folder import Content
from grading.checks.scope import Piece, Scopes
from grading.documents.pseudonym import pseudonymise_texts
from grading.domain.base_value import Value
from grading.domain.document import Location
from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import MOST_NOTES, Criterion, Rubric
from grading.similarity.answers import place_of
from grading.statistics.question_groups import Cause, QuestionGroup, grouped
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.database import insert_into, now
from grading.store.experiments.examples import student_identities
from grading.store.tables import Assignment, Round, User
from grading.store.tables import Question as Row
from grading.store.trust.disputes import load_cases, load_versions, stored_documents

NO_SUCH_QUESTION = define_message("questions.no_such_question", "This question does not exist any more.")
NOT_OPEN = define_message("questions.not_open", "This question was answered or dismissed in the meantime.")
CRITERION_GONE = define_message(
    "questions.criterion_gone", "The rubric does not have this criterion any more."
)
NOTE_LENGTH = define_message("questions.note_length", "Enter an answer of 1 to %(most)s characters.")
TOO_MANY_NOTES = define_message(
    "questions.too_many_notes", "This criterion already has %(most)s notes. Put some of them together first."
)
MOST_QUESTIONS = 20
EXAMPLES = 3
EXAMPLE_LINES, EXAMPLE_CHARS = 3, 300
MOST_NOTE = 500


@dataclass(frozen=True)
class QuestionExample:
    """A few lines of a submission, without names."""

    submission_id: str
    place: Location | None
    lines: str
    document: int = 0
    """Place of its document in the submission."""


@dataclass(frozen=True)
class FoundQuestion:
    """A group of disputes as a question, with the submissions that are furthest apart."""

    group: QuestionGroup
    title: str
    """The criterion's."""
    description: str
    """The criterion's."""
    highest: int
    examples: tuple[QuestionExample, ...]

    @property
    def key(self) -> tuple[str, str]:
        """The criterion's id and the cause's key."""
        return self.group.criterion, self.group.cause.key


class QuestionState(Value):
    """What is stored of a question."""

    criterion: str
    cause: str
    wording: str = ""
    model: str = ""
    state: str = "open"
    asked: str = ""
    note: str = ""
    version: int | None = None
    by: str = ""
    at: datetime | None = None


def find_questions(session: Session, assignment_id: int) -> tuple[FoundQuestion, ...]:
    """The questions of an assignment, the largest first."""
    assignment = session.get_one(Assignment, assignment_id)
    groups = grouped(load_cases(session, assignment))[:MOST_QUESTIONS]
    if not groups:
        return ()
    known = versions.load_newest(session, assignment).version
    criteria = {one.id: one for one in Rubric.model_validate(known.rubric).criteria}
    examples = _Examples(session, assignment, groups)
    return tuple(
        _question(group, criteria[group.criterion], examples.of(group))
        for group in groups
        if group.criterion in criteria
    )


def _question(
    group: QuestionGroup, criterion: Criterion, examples: tuple[QuestionExample, ...]
) -> FoundQuestion:
    return FoundQuestion(group, criterion.title, criterion.description, criterion.highest, examples)


class _Examples:
    """The submissions that stand as examples with some groups."""

    def __init__(self, session: Session, assignment: Assignment, groups: Sequence[QuestionGroup]) -> None:
        self._session = session
        works = list(dict.fromkeys(work for group in groups for work in group.works[:EXAMPLES]))
        query = select(Round.submission_id, Round.rubric_version_id)
        rows = session.execute(query.where(Round.submission_id.in_(works), Round.current))
        self._version_of = {row.submission_id: row.rubric_version_id for row in rows}
        self._versions = load_versions(session, assignment, set(self._version_of.values()))
        self._scopes = {
            work: Scopes(self._versions[self._version_of[work]].documents(stored))
            for work, stored in stored_documents(session, works)
        }

    def of(self, group: QuestionGroup) -> tuple[QuestionExample, ...]:
        """Those of a group."""
        return tuple(self._example(group, work) for work in group.works[:EXAMPLES])

    def _example(self, group: QuestionGroup, work: str) -> QuestionExample:
        version = self._versions[self._version_of[work]]
        criterion = version.criteria.get(group.criterion)
        pieces = place_of(criterion, version.rubric, self._scopes[work]) if criterion else ()
        asked = version.asked(criterion).wanted if criterion else ()
        piece, line = _where(pieces, group.cause, tuple(asked))
        if piece is None:
            return QuestionExample(work, None, "")
        lines = piece.cell.source.split("\n")[line - 1 : line - 1 + EXAMPLE_LINES]
        words = "\n".join(lines)[:EXAMPLE_CHARS]
        for identity in student_identities(self._session, work):
            (words,) = pseudonymise_texts([words], identity)
        paths = [one.path for one in self._scopes[work].documents]
        return QuestionExample(work, piece.at(line), words, paths.index(piece.document.path))


def _where(pieces: Sequence[Piece], cause: Cause, asked: Sequence[str]) -> tuple[Piece | None, int]:
    """The line with the name a question is about, or one the criterion asks for, else the first line."""
    for name in (cause.instead,) if cause.kind == "name" else asked:
        for piece in pieces:
            for one in _mentions(piece, name):
                if piece.within(one):
                    return piece, one.first
    first = next((piece for piece in pieces if piece.added), None)
    return first, min(first.added) if first else 1


def _mentions(piece: Piece, name: str) -> Iterable[Any]:
    bare = name.removesuffix("()")
    of_it = piece.facts.calls if bare != name else piece.facts.defines + piece.facts.arguments
    return (one for one in of_it if one.name == bare)


# --- what became of them -------------------------------------------------------------------------------


def list_states(session: Session, assignment_id: int) -> dict[tuple[str, str], QuestionState]:
    """What is stored, by criterion and cause; the newest answers first."""
    query = (
        select(Row, User.name)
        .outerjoin(User, User.id == Row.by)
        .where(Row.assignment_id == assignment_id)
        .order_by(Row.at.desc(), Row.id.desc())
    )
    return {(row.criterion, row.cause): _state(row, name) for row, name in session.execute(query)}


def _state(row: Row, by: str | None) -> QuestionState:
    return QuestionState(
        criterion=row.criterion,
        cause=row.cause,
        wording=row.wording,
        model=row.model,
        state=row.state,
        asked=row.asked,
        note=row.note,
        version=row.version,
        by=by or "",
        at=row.at,
    )


@dataclass(frozen=True)
class Answer:
    """What an instructor says to a question, as it was read."""

    asked: str
    note: str
    """For the graders."""
    equal: tuple[str, str] | None = None
    """A name the rubric asks for, and one that counts as the same."""


def answer_question(
    session: Session, assignment: Assignment, key: tuple[str, str], answer: Answer, base: int, actor: Actor
) -> int:
    """Store an answer as a note in a new draft, made from version `base`; returns the draft's number.

    Raises Conflict, NotFound, SavedMeanwhile, and AssignmentError for what folders cannot hold.
    """
    if not 0 < len(answer.note) <= MOST_NOTE:
        raise Conflict(NOTE_LENGTH(most=MOST_NOTE))
    row = _open(session, assignment, key)
    content = versions.load_content(session, versions.version_by_number(session, assignment.id, base))
    rubric = _with_answer(content, key[0], answer)
    made = versions.save_draft(
        session, assignment, replace(content, rubric=rubric), base, actor, answer.asked
    )
    row.state, row.asked, row.note, row.version = "answered", answer.asked, answer.note, made.number
    row.by, row.at = actor.user_id, now(session)
    _audit(session, actor, "answer", row, {"version": made.number})
    return made.number


def _with_answer(content: Content, criterion_id: str, answer: Answer) -> Rubric:
    """The rubric with the note, and the name that counts as well."""
    rubric = content.rubric
    found = next((one for one in rubric.criteria if one.id == criterion_id), None)
    if found is None:
        raise NotFound(CRITERION_GONE)
    if len(found.notes) >= MOST_NOTES:
        raise Conflict(TOO_MANY_NOTES(most=MOST_NOTES))
    noted = found.model_copy(update={"notes": (*found.notes, answer.note)})
    criteria = tuple(_replaced(rubric.criteria, noted))
    equivalents = dict(rubric.equivalents)
    if answer.equal is not None:
        name, other = answer.equal
        equivalents[name] = tuple(dict.fromkeys((*equivalents.get(name, ()), other)))
    return rubric.model_copy(update={"criteria": criteria, "equivalents": equivalents})


def _replaced(criteria: Iterable[Criterion], new: Criterion) -> Iterator[Criterion]:
    yield from (new if one.id == new.id else one for one in criteria)


def dismiss_question(
    session: Session, assignment: Assignment, key: tuple[str, str], asked: str, actor: Actor
) -> None:
    """Take a question off the list. Raises Conflict."""
    row = _open(session, assignment, key)
    row.state, row.asked, row.by, row.at = "dismissed", asked, actor.user_id, now(session)
    _audit(session, actor, "dismiss", row)


def reopen_question(session: Session, assignment: Assignment, key: tuple[str, str], actor: Actor) -> None:
    """Put a question on the list again; a draft that has its answer stays. Raises NotFound."""
    row = _locked(session, assignment, key)
    if row is None or row.state == "open":
        raise NotFound(NO_SUCH_QUESTION)
    row.state, row.by, row.at = "open", actor.user_id, now(session)
    _audit(session, actor, "reopen", row)


def save_wording(
    session: Session, assignment: Assignment, key: tuple[str, str], wording: str, model: str
) -> None:
    """Store a model's words for an open question; of one that is not open any more nothing changes."""
    row = _made(session, assignment, key)
    if row.state == "open":
        row.wording, row.model = wording, model[:300]


def _open(session: Session, assignment: Assignment, key: tuple[str, str]) -> Row:
    row = _made(session, assignment, key)
    if row.state != "open":
        raise Conflict(NOT_OPEN)
    return row


def _made(session: Session, assignment: Assignment, key: tuple[str, str]) -> Row:
    """The row of a question, locked, made where there is none."""
    criterion, cause = key
    new = {
        "assignment_id": assignment.id, "criterion": criterion, "cause": cause,
        "wording": "", "model": "", "state": "open", "asked": "", "note": "",
    }  # fmt: skip
    session.execute(insert_into(session, Row).values(**new).on_conflict_do_nothing())
    row = _locked(session, assignment, key)
    assert row is not None
    return row


def _locked(session: Session, assignment: Assignment, key: tuple[str, str]) -> Row | None:
    mine = (Row.assignment_id == assignment.id, Row.criterion == key[0], Row.cause == key[1])
    query = select(Row).where(*mine).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).one_or_none()


def _audit(session: Session, actor: Actor, action: str, row: Row, more: dict[str, Any] | None = None) -> None:
    detail = {"criterion": row.criterion, "question": row.asked[:200], **(more or {})}
    write_audit(session, actor.name, f"question.{action}", f"assignment:{row.assignment_id}", detail)
