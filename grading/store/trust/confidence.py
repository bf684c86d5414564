"""The chance that each graded level is wrong, by weights fitted on the marks of a course.

Weights are stored as calibrations, which never change. Whoever draws a sample to prove something by takes a
calibration first and keeps its id with the drawn scores: a proof holds for any scores that were fixed before
its sample was drawn, whatever they were fitted on, but not for scores that the sample's own marks moved.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Select, exists, or_, select
from sqlalchemy.orm import Session

from grading.documents.language import guess_language
from grading.domain.report import CriterionGrade, Report
from grading.domain.rubric import too_far
from grading.scoring.proposed_levels import judgement_of_model, level_of_checks
from grading.statistics import confidence
from grading.statistics.confidence import DEFAULT, Features, Labelled, Weights
from grading.statistics.submission_data import BLIND, LevelSource, PersonLevel
from grading.store import tables
from grading.store.database import now
from grading.store.review import person_levels
from grading.store.tables.assignments import SAMPLE
from grading.store.trust import human_marks

CHUNK_SIZE = 50
"""Reports in memory at a time."""
TRUST_IN: Mapping[LevelSource, float] = {
    "blind": 1.0,
    "before": 1.0,
    "seen": 0.5,
    "changed": 0.5,
    "accepted": 0.25,
}
"""How much a person's level counts for the weights: who knows the model's level is drawn to it, and a level
that was left as it was may not have been looked at."""
SHORTENED = ("shortened", "answer_shortened")
UNQUOTED = "quote_not_found"


@dataclass(frozen=True)
class Judged:
    """One criterion of a current round, before a person looks at it."""

    round_id: str
    submission_id: str
    reviewer: int | None
    """Who reviewed the grade."""
    grade: CriterionGrade
    features: Features


def scores(
    session: Session, assignment_id: int, calibration_id: int | None = None
) -> dict[tuple[str, str], float]:
    """(round, criterion) -> the chance that its level is wrong, for the current rounds of an assignment.

    By this calibration, else by the course's newest. 1 where there is no level. Samples are left out.
    """
    weights = _weights(session, assignment_id, calibration_id)
    return {
        (one.round_id, one.grade.criterion): 1.0
        if one.grade.level is None
        else confidence.score(one.features, weights)
        for one in load_judged(session, assignment_id)
    }


def scores_when_graded(
    session: Session, assignment_id: int, calibration_id: int | None, sample_id: str
) -> dict[str, float]:
    """Round -> the highest chance among its criteria that a level is wrong, as it was when it was graded.

    Of current rounds, and of those that a sample was drawn of.
    """
    weights = _weights(session, assignment_id, calibration_id)
    drawn = select(tables.GuaranteeMember.round_id).where(tables.GuaranteeMember.sample_id == sample_id)
    found: dict[str, float] = {}
    for one in load_judged(session, assignment_id, also=drawn):
        no_level = one.grade.level is None
        score = 1.0 if no_level else confidence.score_when_graded(one.features, weights)
        found[one.round_id] = max(score, found.get(one.round_id, 0.0))
    return found


def calibrate(session: Session, course_id: int) -> int:
    """Fit weights on all marks of a course; the id of the calibration, a new one where marks changed."""
    known = labels(session, course_id)
    weights = asdict(confidence.fit(known))
    newest = _newest(session, course_id)
    version = confidence.FEATURES_VERSION
    if newest is not None and newest.features_version == version and _same(newest.weights, weights):
        return newest.id
    made = tables.Calibration(
        course_id=course_id,
        features_version=version,
        weights=weights,
        marks=len(known),
        wrong=sum(one.wrong for one in known),
        at=now(session),
    )
    session.add(made)
    session.flush()
    return made.id


def labels(session: Session, course_id: int) -> list[Labelled]:
    """What people found of the judgements of a course: marks, changed points, reviewed grades."""
    known: list[Labelled] = []
    query = select(tables.Assignment.id).where(tables.Assignment.course_id == course_id)
    for assignment_id in session.scalars(query.order_by(tables.Assignment.id)).all():
        known += assignment_labels(session, assignment_id)
    return known


def assignment_labels(session: Session, assignment_id: int) -> list[Labelled]:
    """The same of one assignment; where several people marked a level, each counts for its part."""
    loaded = load_judged(session, assignment_id, seen_by_people=True)
    judged = {(one.round_id, one.grade.criterion): one for one in loaded}
    given: dict[tuple[str, str], list[PersonLevel]] = defaultdict(list)
    for round_id, level in _levels(session, assignment_id, judged.values()):
        given[round_id, level.criterion].append(level)
    return [
        Labelled(
            group=one.work,
            features=of.features,
            wrong=too_far(of.grade.level, one.level, of.grade.highest),
            weight=TRUST_IN[one.how] / len(levels),
            blind=one.how in BLIND,
        )
        for key, levels in given.items()
        for of in (judged[key],)
        for one in levels
        if of.grade.level is not None
    ]


def _levels(
    session: Session, assignment_id: int, judged: Iterable[Judged]
) -> Iterator[tuple[str, PersonLevel]]:
    """The levels that people gave the criteria of these rounds, with the round."""
    chosen = select(tables.Submission.id).where(tables.Submission.assignment_id == assignment_id).subquery()
    marks = person_levels.load_marks(session, chosen)
    changes = person_levels.load_changes(session, chosen)
    by_round: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        by_round[one.round_id].append(one)
    for round_id, criteria in by_round.items():
        graded = {one.grade.criterion: one.grade for one in criteria}
        first = criteria[0]
        found = (marks.get(round_id, ()), changes.get(round_id, ()))
        for level in person_levels.levels(first.submission_id, first.reviewer, graded, *found):
            yield round_id, level
    graded_by = {criteria[0].submission_id: criteria for criteria in by_round.values()}
    grades = {name: {one.grade.criterion: one.grade for one in known} for name, known in graded_by.items()}
    for level in human_marks.load_levels(session, assignment_id, grades):
        if level.criterion in grades.get(level.work, {}):
            yield graded_by[level.work][0].round_id, level


def assignment_of(criterion: str) -> int:
    """The assignment of the criterion of a judgement's features."""
    return int(criterion.partition(":")[0])


def load_judged(
    session: Session, assignment_id: int, *, seen_by_people: bool = False, also: Select[str] | None = None
) -> list[Judged]:
    """The criteria of the current rounds of an assignment, without samples of dry runs.

    `seen_by_people`: of those only that somebody marked, changed or reviewed. `also`: of these rounds, too.
    """
    opinions = _second_levels(session, assignment_id)
    return [
        Judged(
            round_id=row.round_id,
            submission_id=row.submission_id,
            reviewer=row.reviewed_by if row.reviewed_at else None,
            grade=grade,
            features=_features(
                report,
                grade,
                f"{assignment_id}:{grade.criterion}",
                opinions.get((row.round_id, grade.criterion)),
                other_language=other_language,
            ),
        )
        for row in session.execute(_query(assignment_id, also, seen_by_people=seen_by_people))
        for report in (Report.model_validate(row.report),)
        for other_language in (_in_other_language(report),)
        for grade in report.criteria
    ]


def _query(assignment_id: int, also: Select[str] | None, *, seen_by_people: bool) -> Any:
    submission, round_, grade = tables.Submission, tables.Round, tables.Grade
    chosen = round_.current if also is None else round_.current | round_.id.in_(also)
    query = (
        select(
            submission.id.label("submission_id"),
            round_.id.label("round_id"),
            grade.report,
            grade.reviewed_at,
            grade.reviewed_by,
        )
        .select_from(submission)
        .join(round_, (round_.submission_id == submission.id) & chosen)
        .join(grade, grade.round_id == round_.id)
        .where(submission.assignment_id == assignment_id, submission.source != SAMPLE)
        .order_by(round_.id)
        .execution_options(yield_per=CHUNK_SIZE)
    )
    marked = exists().where(tables.Mark.round_id == round_.id)
    changed = exists().where(tables.Change.round_id == round_.id)
    before = exists().where(tables.HumanMark.submission_id == submission.id)
    seen = or_(marked, changed, before, grade.reviewed_at.is_not(None))
    return query.where(seen) if seen_by_people else query


def _second_levels(session: Session, assignment_id: int) -> dict[tuple[str, str], int]:
    """(round, criterion) -> the level of the second opinion."""
    opinion = tables.SecondOpinion
    query = select(opinion.round_id, opinion.opinions).where(opinion.assignment_id == assignment_id)
    return {
        (round_id, one["criterion"]): one["second"]
        for round_id, opinions in session.execute(query)
        for one in opinions or ()
    }


def _in_other_language(report: Report) -> bool:
    """Whether what the models quote is in another language than what they say of it."""
    quoted = guess_language("\n".join(q.text for grade in report.criteria for q in grade.quotes))
    said = guess_language("\n".join(grade.reason for grade in report.criteria))
    return None not in (quoted, said) and quoted != said


def _features(
    report: Report, grade: CriterionGrade, criterion: str, second: int | None, *, other_language: bool
) -> Features:
    codes = {flag.code for flag in report.flags}
    return Features(
        doubt=None if grade.confidence is None else 1 - grade.confidence / 100,
        from_checks=_from_checks(report, grade),
        from_second=_from_second(report, grade, second),
        unquoted=_unquoted(report),
        other_language=other_language,
        shortened=any(code in codes for code in SHORTENED),
        longer=_longer(report, grade.stage),
        highest=grade.highest,
        criterion=criterion,
    )


def _from_checks(report: Report, grade: CriterionGrade) -> float | None:
    """Levels between checks and model; nothing where one of them did not judge."""
    checks, judgement = level_of_checks(grade), judgement_of_model(report, grade)
    if checks is None:
        return None
    if judgement is not None:
        return abs(judgement.level - checks)
    if grade.basis == "checks and model" and grade.level is not None:  # the level is the mean of both
        return 2 * abs(grade.level - checks)
    return None


def _from_second(report: Report, grade: CriterionGrade, second: int | None) -> float | None:
    judgement = judgement_of_model(report, grade)
    first = grade.level if judgement is None else judgement.level
    return None if second is None or first is None else abs(first - second)


def _unquoted(report: Report) -> float:
    """The share of the models' quotes that are not in the work."""
    missing = sum(_counts(report))
    found = sum(len(grade.quotes) for grade in report.criteria)
    return missing / (missing + found) if missing else 0.0


def _counts(report: Report) -> Iterator[int]:
    for flag in report.flags:
        if flag.code == UNQUOTED:
            count = flag.params.get("count", 1)
            yield count if isinstance(count, int) else 1


def _longer(report: Report, stage: str) -> float:
    tokens = report.stages[stage].tokens.prompt if stage in report.stages else 0
    return max(0.0, math.log2(tokens / confidence.USUAL_TOKENS)) if tokens else 0.0


def _weights(session: Session, assignment_id: int, calibration_id: int | None) -> Weights:
    if calibration_id is not None:
        return _read(session.get_one(tables.Calibration, calibration_id))
    query = select(tables.Assignment.course_id).where(tables.Assignment.id == assignment_id)
    newest = _newest(session, session.execute(query).scalar_one())
    return DEFAULT if newest is None else _read(newest)


def _newest(session: Session, course_id: int) -> tables.Calibration | None:
    calibration = tables.Calibration
    query = select(calibration).where(calibration.course_id == course_id)
    return session.scalar(query.order_by(calibration.id.desc()).limit(1))


def _read(found: tables.Calibration) -> Weights:
    """Its weights; the default's for features that meant something else when it was fitted."""
    return Weights(**found.weights) if found.features_version == confidence.FEATURES_VERSION else DEFAULT


def _same(stored: Mapping[str, Any], fitted: Mapping[str, Any]) -> bool:
    return dict(stored) == dict(fitted)
