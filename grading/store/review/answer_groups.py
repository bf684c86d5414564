"""Groups of answers to a criterion: the counting submissions of an assignment whose answers are equal.

An answer's key and fingerprints are stored when its round is prepared; here they are read by one index and
grouped. An answer that staff took out of its group stays out, also after the submission is graded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report_changes import GRADING
from grading.similarity import Answered, AnswerGroup, Outcome, Region, grouped, next_open, unpacked
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.grades.final_score import counting_of_assignment
from grading.store.tables import Answer, Assignment, Change, Grade, Round, SeparateAnswer, Submission, User

NO_SUCH_ANSWER = define_message("answers.no_such_answer", "This answer does not exist.")
NO_SUCH_GROUP = define_message("answers.no_such_group", "This group does not exist any more.")


@dataclass(frozen=True)
class Member:
    """A submission in a group."""

    submission_id: str
    round_id: str
    student_id: int
    student: str
    number: int
    gradable: bool
    """It has a grade that can be changed."""
    graded: bool
    """A person gave the criterion a level."""
    outcome: Outcome


@dataclass(frozen=True)
class AnswerGroups:
    """All groups of a criterion."""

    criterion: str
    groups: tuple[AnswerGroup, ...]
    members: Mapping[str, Member]
    """By the submission's id."""
    missing: int
    """Counting submissions that were not compared: they are not prepared yet, or failed before."""
    newest: int
    """The newest change when this was read; changes of a group name it."""

    def group(self, key: str) -> AnswerGroup:
        """The group of this key. Raises NotFound."""
        found = next((one for one in self.groups if one.key == key), None)
        if found is None:
            raise NotFound(NO_SUCH_GROUP)
        return found

    def members_of(self, group: AnswerGroup) -> tuple[Member, ...]:
        """Those of a group, by name."""
        found = (self.members[work] for work in group.works)
        return tuple(sorted(found, key=lambda one: (one.student.lower(), one.submission_id)))

    def next_open(self, after: str | None = None) -> AnswerGroup | None:
        """The next group with a submission that no person has graded."""
        return next_open(self.groups, after)

    @property
    def graded(self) -> int:
        """Submissions whose criterion a person graded."""
        return sum(one.graded for one in self.members.values())


@dataclass(frozen=True)
class CodePart:
    """Lines of an answer; `first` counts as in `grading.domain.document.Location`."""

    document: str
    cell: int | None
    first: int
    language: str
    text: str


def load_groups(session: Session, assignment: Assignment, criterion: str) -> AnswerGroups:
    """The groups of a criterion, in a constant number of queries."""
    newest = session.scalar(select(func.max(Change.id))) or 0
    members, answers, missing = {}, [], 0
    marks: dict[str, frozenset[int]] = {}  # a group is compared by those of one member
    for row in session.execute(_answers(assignment, criterion)):
        if row.key is None:
            missing += 1
            continue
        if row.key not in marks:
            marks[row.key] = unpacked(row.fingerprints)
        outcome = Outcome.model_validate(row.outcome)
        members[row.submission_id] = _member(row, outcome)
        answers.append(
            Answered(
                work=row.submission_id,
                key=row.key,
                fingerprints=marks[row.key],
                outcome=outcome,
                graded=row.graded,
                alone=row.alone,
            )
        )
    return AnswerGroups(criterion, grouped(answers), members, missing, newest)


def load_points(session: Session, members: Sequence[Member], criterion: str) -> dict[str, float | None]:
    """The points that the criterion has now, by submission; of those without a grade there are none."""
    found: dict[str, float | None] = {}
    for some in chunks([one.round_id for one in members]):
        query = select(Grade.submission_id, Grade.criterion_points).where(Grade.round_id.in_(some))
        found |= {row.submission_id: row.criterion_points.get(criterion) for row in session.execute(query)}
    return found


def load_code(session: Session, submission_id: str, criterion: str) -> tuple[CodePart, ...]:
    """The lines of an answer. Raises NotFound."""
    query = (
        select(Answer.regions, Submission.documents)
        .join(Round, (Round.id == Answer.round_id) & Round.current)
        .join(Submission, Submission.id == Answer.submission_id)
        .where(Answer.submission_id == submission_id, Answer.criterion == criterion)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        raise NotFound(NO_SUCH_ANSWER)
    regions = [Region.model_validate(one) for one in row.regions]
    return tuple(part for region in regions for part in _parts(region, row.documents))


def load_regions(session: Session, round_id: str, criterion: str) -> tuple[Region, ...]:
    """Where the answer of a round stands; nowhere where it was not prepared, or nothing was written."""
    query = select(Answer.regions).where(Answer.round_id == round_id, Answer.criterion == criterion)
    return tuple(Region.model_validate(one) for one in session.scalar(query) or ())


def separate(session: Session, submission_id: str, criterion: str, actor: Actor) -> None:
    """Take an answer out of its group, for good. Raises NotFound."""
    if not session.scalar(select(func.count()).where(*_of(Answer, submission_id, criterion))):
        raise NotFound(NO_SUCH_ANSWER)
    if session.get(SeparateAnswer, (submission_id, criterion)) is not None:
        return
    row = SeparateAnswer(submission_id=submission_id, criterion=criterion, by=actor.user_id, at=now(session))
    session.add(row)
    detail = {"criterion": criterion}
    write_audit(session, actor.name, "answer.separate", f"submission:{submission_id}", detail)


def rejoin(session: Session, submission_id: str, criterion: str, actor: Actor) -> None:
    """Put an answer back into its group."""
    row = session.get(SeparateAnswer, (submission_id, criterion))
    if row is None:
        return
    session.delete(row)
    detail = {"criterion": criterion}
    write_audit(session, actor.name, "answer.rejoin", f"submission:{submission_id}", detail)


def _of(table: Any, submission_id: str, criterion: str) -> tuple[Any, ...]:
    return table.submission_id == submission_id, table.criterion == criterion


def is_graded(criterion: Any) -> Any:
    """Whether a person graded a criterion of a round, as a column of a query on rounds and their grades.

    `grading.domain.report_changes.GRADING` says what that is.
    """
    given = (Change.kind.in_(GRADING), Change.target == criterion, Change.undone_at.is_(None))
    changed = select(Change.id).where(Change.round_id == Round.id, *given).correlate(Round).exists()
    return or_(changed, Grade.reviewed_at.is_not(None))


def is_separate(criterion: Any) -> Any:
    """Whether an answer was taken out of its group, as a column of a query on answers."""
    taken = SeparateAnswer
    own = (taken.submission_id == Answer.submission_id, taken.criterion == criterion)
    return select(taken.submission_id).where(*own).correlate(Answer).exists()


def _answers(assignment: Assignment, criterion: str) -> Select[Any]:
    """All counting submissions, with nothing for those that have no answer yet."""
    of_it = (Answer.round_id == Round.id) & (Answer.criterion == criterion)
    return (
        select(
            *(Answer.round_id, Submission.id.label("submission_id")),
            *(Answer.key, Answer.fingerprints, Answer.outcome),
            *(Submission.student_id, Submission.number, User.name),
            Grade.id.label("grade_id"),
            is_graded(criterion).label("graded"),
            is_separate(criterion).label("alone"),
        )
        .join(User, User.id == Submission.student_id)
        .outerjoin(Round, (Round.submission_id == Submission.id) & Round.current)
        .outerjoin(Answer, of_it)
        .outerjoin(Grade, Grade.round_id == Round.id)
        .where(Submission.id.in_(counting_of_assignment(assignment)))
    )


def _member(row: Any, outcome: Outcome) -> Member:
    return Member(
        submission_id=row.submission_id,
        round_id=row.round_id,
        student_id=row.student_id,
        student=row.name,
        number=row.number,
        gradable=row.grade_id is not None,
        graded=row.graded,
        outcome=outcome,
    )


def _parts(region: Region, documents: Sequence[Mapping[str, Any]]) -> list[CodePart]:
    document = next((one for one in documents if one["path"] == region.document), None)
    cells = document["cells"] if document else ()
    cell = next((one for one in cells if region.cell is None or one["number"] == region.cell), None)
    if document is None or cell is None:
        return []
    shift = int(cell.get("first_line", 1)) - 1
    lines = str(cell["source"]).split("\n")[region.first - 1 - shift : region.last - shift]
    language = cell.get("language") or document["language"]
    return [CodePart(region.document, region.cell, region.first, language, "\n".join(lines))]
