"""Criteria that checks, models and people judge differently, with what may explain it.

Reports are read once for who gave which level; documents then for names in code, of at most MOST_READ
submissions, those in dispute first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from sqlalchemy import Subquery, select
from sqlalchemy.orm import Session

from grading.checks.scope import Scopes
from grading.documents import set_apart
from grading.domain.document import Document
from grading.domain.evidence import Flag
from grading.domain.messages import Message
from grading.domain.report import CriterionGrade, Report
from grading.domain.rubric import Criterion, Rubric
from grading.domain.second_opinions import CriterionOpinion
from grading.scoring.proposed_levels import judgement_of_model, level_of_checks
from grading.similarity.answers import place_of
from grading.similarity.rubric_names import AskedNames, asked_names
from grading.statistics.agreement import CLOSE
from grading.statistics.question_causes import faults, foreign_language
from grading.statistics.question_groups import Cause, CriterionCase, Side
from grading.store import tables
from grading.store.bulk import chunks
from grading.store.grades import counts
from grading.store.review import person_levels
from grading.store.tables import Grade, RegradeRequest, Round, RubricVersion, Submission
from grading.store.trust import second_opinions

Opinions = Mapping[tuple[str, str], CriterionOpinion]
"""By round and criterion."""
FLAGS = ("disagreement", "unsupported")
MOST_READ = 400
"""Submissions whose documents are read."""
CHUNK_SIZE = 50
"""Reports in memory at a time."""


@dataclass(frozen=True)
class Graded:
    """A criterion of a submission as it was graded, and the version it was graded with."""

    case: CriterionCase
    grade: CriterionGrade
    version_id: int


@dataclass(frozen=True)
class Others:
    """Who said what of a criterion after it was graded."""

    person: float | None
    """The level by people, the mean of several."""
    second: CriterionOpinion | None
    asked: bool
    """A student asked for a regrade."""


class RubricOfRound:
    """A rubric version as cases need it."""

    def __init__(self, row: RubricVersion, language: str) -> None:
        self.rubric = Rubric.model_validate(row.rubric)
        self.language = language
        self._starter = [Document.model_validate(one) for one in row.starter]
        self._solution = [Document.model_validate(one) for one in row.solution]
        self._asked: dict[str, AskedNames] = {}

    @cached_property
    def criteria(self) -> dict[str, Criterion]:
        """By id."""
        return {one.id: one for one in self.rubric.criteria}

    def asked(self, criterion: Criterion) -> AskedNames:
        """The names that a criterion asks for."""
        if criterion.id not in self._asked:
            self._asked[criterion.id] = asked_names(criterion, self.rubric, self._solution)
        return self._asked[criterion.id]

    def documents(self, stored: Sequence[object]) -> tuple[Document, ...]:
        """A submission's documents, which know what the student added."""
        return set_apart([Document.model_validate(one) for one in stored], self._starter)


def load_cases(session: Session, assignment: tables.Assignment) -> tuple[CriterionCase, ...]:
    """A case for each criterion of each submission that counts and has a grade."""
    chosen = counts.student_submissions(assignment).subquery()
    second = second_opinions.opinions_by_round(session, assignment.id)
    graded = list(_graded(session, chosen, second))
    disputed = {one.case.work for one in graded if one.case.disputed}
    if not disputed:
        return tuple(one.case for one in graded)
    works = dict.fromkeys(one.case.work for one in graded)
    some = sorted(works, key=lambda work: work not in disputed)[:MOST_READ]
    by_work: dict[str, list[Graded]] = defaultdict(list)
    for one in graded:
        by_work[one.case.work].append(one)
    versions = load_versions(session, assignment, {one.version_id for one in graded})
    named = list(_with_names(session, some, by_work, versions))
    read = {case.work for case in named}
    return (*named, *(one.case for one in graded if one.case.work not in read))


def load_versions(session: Session, assignment: tables.Assignment, ids: set[int]) -> dict[int, RubricOfRound]:
    """Rubric versions by id."""
    query = select(RubricVersion).where(RubricVersion.id.in_(ids))
    return {row.id: RubricOfRound(row, assignment.language) for row in session.scalars(query)}


def _graded(session: Session, chosen: Subquery, second: Opinions) -> Iterator[Graded]:
    marks, changes = person_levels.load_marks(session, chosen), person_levels.load_changes(session, chosen)
    requests = _requests(session, chosen)
    query = (
        select(Submission.id, Round.id.label("round_id"), Round.rubric_version_id, Grade.report)
        .join(chosen, chosen.c.id == Submission.id)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(Grade, Grade.round_id == Round.id)
        .order_by(Submission.id)
        .execution_options(yield_per=CHUNK_SIZE)
    )
    for row in session.execute(query):
        report = Report.model_validate(row.report)
        by_id = {one.criterion: one for one in report.criteria}
        given = (marks.get(row.round_id, ()), changes.get(row.round_id, ()))
        people: dict[str, list[float]] = defaultdict(list)
        for one in person_levels.levels(row.id, None, by_id, *given):
            people[one.criterion].append(one.level)
        for grade in report.criteria:
            person = fmean(people[grade.criterion]) if grade.criterion in people else None
            asked = (row.id, grade.criterion) in requests
            opinion = second.get((row.round_id, grade.criterion))
            case = _case(row.id, report, grade, Others(person, opinion, asked))
            yield Graded(case, grade, row.rubric_version_id)


def _case(work: str, report: Report, grade: CriterionGrade, others: Others) -> CriterionCase:
    proposed = judgement_of_model(report, grade)
    levels: dict[Side, float | None] = {
        "checks": level_of_checks(grade),
        "model": proposed.level if proposed else None,
        "second": others.second.second if others.second else None,
        "person": others.person,
    }
    if others.asked:
        levels["student"] = None
    known = tuple((side, level) for side, level in levels.items() if level is not None or side == "student")
    flags = [one for one in report.flags if one.code in FLAGS and one.params.get("title") == grade.title]
    person, level = others.person, grade.level
    far = person is not None and level is not None and abs(person - level) > CLOSE
    doubted = others.second is not None and others.second.apart
    unsupported = {_unsupported(one) for one in flags if one.code == "unsupported"}
    return CriterionCase(
        work=work,
        criterion=grade.criterion,
        levels=known,
        disputed=bool(flags) or far or doubted or others.asked,
        faults=faults(grade.evidence) | unsupported,
    )


def _unsupported(flag: Flag) -> Cause:
    reason = flag.params.get("reason")
    return Cause("unsupported", "", reason.code if isinstance(reason, Message) else "")


def _requests(session: Session, chosen: Subquery) -> set[tuple[str, str]]:
    """Submissions and criteria for which a regrade was requested."""
    request = RegradeRequest
    query = select(request.submission_id, request.criterion).join(
        chosen, chosen.c.id == request.submission_id
    )
    rows = session.execute(query.where(request.state != "withdrawn", request.criterion != ""))
    return {(row.submission_id, row.criterion) for row in rows}


def _with_names(
    session: Session,
    works: Sequence[str],
    by_work: Mapping[str, Sequence[Graded]],
    versions: Mapping[int, RubricOfRound],
) -> Iterator[CriterionCase]:
    """The cases of these submissions, with what their code uses."""
    for work, stored in stored_documents(session, works):
        version = versions[by_work[work][0].version_id]
        scopes = Scopes(version.documents(stored))
        for one in by_work[work]:
            criterion = version.criteria.get(one.grade.criterion)
            yield one.case if criterion is None else _named(one.case, criterion, version, scopes)


def _named(
    case: CriterionCase, criterion: Criterion, version: RubricOfRound, scopes: Scopes
) -> CriterionCase:
    names = version.asked(criterion).at(place_of(criterion, version.rubric, scopes))
    language = foreign_language(scopes.documents, version.language)
    return replace(
        case,
        used=names.used,
        present=names.present,
        absent=names.absent,
        faults=case.faults | language,
    )


def stored_documents(session: Session, works: Sequence[str]) -> Iterator[tuple[str, Sequence[object]]]:
    """Submissions with their documents as stored."""
    for some in chunks(works, CHUNK_SIZE):
        query = select(Submission.id, Submission.documents).where(Submission.id.in_(some))
        for row in session.execute(query.order_by(Submission.id)):
            yield row.id, row.documents
