"""Stress tests: variants of real submissions, graded as samples that never count.

A variant is a submission of source SAMPLE while it is graded, with a round that is never current: no list,
statistic or student sees it. When it is graded, what it got is stored with its key, and it is deleted. The
variants of a submission are deleted with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from grading.documents import Identity
from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.statistics.stress_test import TOTAL, UNCHANGED, Assessment, Expectation, Trial, assess, badness
from grading.store import periodic_tasks, tables
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.blobs import store_blobs
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.experiments import dry_runs
from grading.store.grades.counts import student_submissions
from grading.store.tables import StressTest, StressVariant
from grading.store.tables.assignments import SAMPLE
from grading.stress_tests.catalogue import MOST_PARTS, RECOMBINED, SEPARATOR, Planned, recombined

TASK_PREFIX = "stress test:"
REASON = "stress test"
MOST_SOURCES = 10
"""Submissions that variants are made of, of different levels."""
MOST_RUNS = 600
"""Variants that are graded in all."""
WORST = 10
GENERATIONS = 3
"""Times the worst variants are recombined."""
LONGEST = timedelta(days=3)
"""What is not graded by then is left out."""

NO_SUCH_STRESS_TEST = define_message("stress_tests.no_such_stress_test", "This stress test does not exist.")
RUNS_ALREADY = define_message(
    "stress_tests.runs_already", "A stress test of this assignment is running. Wait for it, or cancel it."
)
NOTHING_GRADED = define_message(
    "stress_tests.nothing_graded",
    "No submission of a student has been graded yet. Variants are made of graded submissions.",
)
OVER_ALREADY = define_message("stress_tests.over_already", "This stress test is over.")


@dataclass(frozen=True)
class Source:
    """A student's submission that variants are to be made of."""

    id: str
    number: int
    """Its place among all sources of the stress test, and their number."""
    total: int
    documents: Any
    identity: Identity
    planned: tuple[Planned, ...]
    """Nothing where they are still to be chosen from the catalogue."""


def start(session: Session, assignment: tables.Assignment, actor: Actor) -> str:
    """Begin a stress test of the rubric in use; returns its id. Raises Conflict."""
    query = select(tables.Assignment.id).where(tables.Assignment.id == assignment.id)
    session.execute(query.with_for_update(key_share=True))
    version = versions.published_version(session, assignment)
    if _running(session, assignment.id):
        raise Conflict(RUNS_ALREADY)
    sources = _sources(session, assignment)
    if not sources:
        raise Conflict(NOTHING_GRADED)
    made = StressTest(
        id=tables.new_id(),
        assignment_id=assignment.id,
        rubric_version_id=version.id,
        by=actor.user_id,
        seed=secrets.randbelow(2**31),
        created_at=now(session),
    )
    session.add(made)
    session.flush()
    session.add_all([StressVariant(stress_test_id=made.id, source_id=one) for one in sources])
    periodic_tasks.schedule(session, f"{TASK_PREFIX}{made.id}")
    detail = {"stress_test": made.id, "version": version.number, "submissions": len(sources)}
    write_audit(session, actor.name, "stress_test.begin", f"assignment:{assignment.id}", detail)
    return made.id


def _running(session: Session, assignment_id: int) -> bool:
    query = select(StressTest.id).where(
        StressTest.assignment_id == assignment_id, StressTest.finished_at.is_(None)
    )
    return session.scalar(query.limit(1)) is not None


def _sources(session: Session, assignment: tables.Assignment) -> list[str]:
    """Counting submissions whose points are spread evenly over those there are."""
    share = tables.Grade.points_so_far / tables.Grade.max_points
    query = (
        select(tables.Submission.id)
        .join(tables.Round, (tables.Round.submission_id == tables.Submission.id) & tables.Round.current)
        .join(tables.Grade, tables.Grade.round_id == tables.Round.id)
        .where(tables.Submission.id.in_(student_submissions(assignment)), tables.Grade.points.is_not(None))
        .order_by(share, tables.Submission.id)
    )
    found = list(session.scalars(query))
    if len(found) <= MOST_SOURCES:
        return found
    steps = (len(found) - 1) / (MOST_SOURCES - 1)
    return [found[round(step * steps)] for step in range(MOST_SOURCES)]


def load(session: Session, stress_test_id: str, lock: bool = False) -> StressTest:
    """A stress test. Raises NotFound."""
    query = select(StressTest).where(StressTest.id == stress_test_id)
    found = session.scalar(query.with_for_update() if lock else query) if stress_test_id.isalnum() else None
    if found is None:
        raise NotFound(NO_SUCH_STRESS_TEST)
    return found


def cancel(session: Session, stress_test_id: str, actor: Actor) -> None:
    """End a stress test; what is graded by now is shown. Raises NotFound, Conflict."""
    found = load(session, stress_test_id, lock=True)
    if found.finished_at is not None or found.cancelled_at is not None:
        raise Conflict(OVER_ALREADY)
    found.cancelled_at = now(session)
    _cancel_rounds(session, found.id)
    # the sweeper stores what was graded, and deletes the variants
    periodic_tasks.reschedule(session, f"{TASK_PREFIX}{found.id}", timedelta())
    detail = {"stress_test": found.id}
    write_audit(session, actor.name, "stress_test.cancel", f"assignment:{found.assignment_id}", detail)


def _cancel_rounds(session: Session, stress_test_id: str) -> None:
    mine = StressVariant.stress_test_id == stress_test_id
    dry_runs.cancel_rounds(session, select(StressVariant.round_id).where(mine, ~StressVariant.ended))


def claim(session: Session, name: str) -> str | None:
    """The id of a stress test whose next step is due, for the first process that claims it."""
    return None if periodic_tasks.claim(session, name) is None else name.removeprefix(TASK_PREFIX)


def list_unmade(session: Session, stress_test_id: str) -> list[Source]:
    """Submissions of which variants are still to be made."""
    own, submission = StressVariant, tables.Submission
    every = list(
        session.scalars(
            select(own.source_id)
            .where(own.stress_test_id == stress_test_id)
            .group_by(own.source_id)
            .order_by(func.min(own.id))
        )
    )
    waiting = select(own).where(own.stress_test_id == stress_test_id, own.variant_id.is_(None), ~own.ended)
    planned: dict[str, list[Planned]] = {}
    for row in session.scalars(waiting.order_by(own.id)):
        found = planned.setdefault(row.source_id, [])
        if row.key:
            found.append(_planned(row))
    query = (
        select(
            submission.id, submission.documents, submission.student_id, tables.User.name, tables.User.email
        )
        .join(tables.User, tables.User.id == submission.student_id)
        .where(submission.id.in_(planned))
    )
    return [
        Source(
            id=row.id,
            number=every.index(row.id),
            total=len(every),
            documents=row.documents,
            identity=_identity(session, row),
            planned=tuple(planned[row.id]),
        )
        for row in session.execute(query)
    ]


def _identity(session: Session, row: Any) -> Identity:
    query = select(tables.Identity.subject).where(tables.Identity.user_id == row.student_id)
    subjects = [one for one in session.scalars(query) if one]
    return Identity(
        names=(row.name,) if row.name else (),
        ids=tuple(one for one in subjects if "@" not in one),
        emails=tuple(one for one in (row.email, *(one for one in subjects if "@" in one)) if one),
    )


def _planned(row: StressVariant) -> Planned:
    parts = tuple(row.key.split(SEPARATOR))
    return Planned(parts, row.family, cast(Expectation, row.expects), row.criterion)


def add_variants(
    session: Session, stress_test_id: str, source_id: str, made: Sequence[tuple[Planned, Any]]
) -> int:
    """Have the variants of one submission graded: documents as JSON; returns how many there are.

    They take the place of what was planned for it. None are added where the submission was deleted, or
    the stress test is over.
    """
    found = load(session, stress_test_id, lock=True)
    alive = select(tables.Submission.id).where(tables.Submission.id == source_id)
    gone = session.scalar(alive.with_for_update(key_share=True)) is None
    own = StressVariant
    mine = (own.stress_test_id == found.id, own.source_id == source_id)
    session.execute(delete(own).where(*mine, own.variant_id.is_(None), ~own.ended))
    had = session.scalar(select(func.count()).where(own.stress_test_id == found.id)) or 0
    chosen = made[: max(0, MOST_RUNS - had)]
    if gone or found.cancelled_at is not None or not chosen:
        return 0
    assignment = session.get_one(tables.Assignment, found.assignment_id)
    ids = _add_submissions(session, found, source_id, [documents for _, documents in chosen])
    version = session.get_one(tables.RubricVersion, found.rubric_version_id)
    stages = stages_of(Rubric.model_validate(version.rubric))
    rounds: dict[str, str] = {}
    for some in chunks(ids):
        rounds |= dry_runs.add_batch_rounds(session, assignment, version.id, stages, some, REASON)
    rows = [
        {
            "stress_test_id": found.id, "source_id": source_id, "generation": found.generation,
            "key": one.key, "family": one.family, "expects": one.expects, "criterion": one.criterion,
            "variant_id": variant_id, "round_id": rounds[variant_id], "ended": False, "outcome": {},
        }
        for variant_id, (one, _) in zip(ids, chosen, strict=True)
    ]  # fmt: skip
    session.execute(insert(own), rows)
    return len(rows)


def _add_submissions(
    session: Session, found: StressTest, source_id: str, documents: Sequence[Any]
) -> list[str]:
    """Samples of whoever began the stress test, with the files that lie beside the student's work."""
    number = dry_runs.next_sample_number(session, found.assignment_id, found.by)
    moment = now(session)
    rows = [
        {
            "id": tables.new_id(), "assignment_id": found.assignment_id, "student_id": found.by,
            "number": number - at, "source": SAMPLE, "documents": one, "notes": [REASON],
            "submitted_by": found.by, "created_at": moment, "fingerprint": "",
        }
        for at, one in enumerate(documents)
    ]  # fmt: skip
    session.execute(insert(tables.Submission), rows)
    files = _files(session, source_id, documents)
    copies = [
        {"submission_id": row["id"], **file} for row, some in zip(rows, files, strict=True) for file in some
    ]
    if copies:
        session.execute(insert(tables.SubmissionFile), copies)
    return [str(row["id"]) for row in rows]


def _files(session: Session, source_id: str, variants: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """What lies beside each variant when it is run: data of the source, and the variant's own scripts."""
    read = session.get_one(tables.Submission, source_id).documents
    file = tables.SubmissionFile
    query = select(file.path, file.sha256, file.size).where(file.submission_id == source_id)
    beside = [dict(row._mapping) for row in session.execute(query)]
    data = [row for row in beside if row["path"] not in {one["path"] for one in read}]
    scripts = [
        [(one["path"], str(one["cells"][0]["source"]).encode("utf-8", "replace")) for one in documents]
        for documents in (
            [one for one in variant if one["kind"] == "script" and len(one["cells"]) == 1]
            for variant in variants
        )
    ]
    stored = iter(store_blobs(session, [content for some in scripts for _, content in some]))
    return [
        [
            *data,
            *({"path": path[:400], "sha256": next(stored), "size": len(content)} for path, content in some),
        ]
        for some in scripts
    ]


def collect(session: Session, stress_test_id: str) -> tuple[list[str], int]:
    """Store what variants got whose rounds ended; their submissions, to be deleted, and how many wait.

    Of a stress test that takes too long, what was not begun is cancelled.
    """
    found = load(session, stress_test_id)
    if found.cancelled_at is None and now(session) - found.created_at > LONGEST:
        found.cancelled_at = now(session)
        _cancel_rounds(session, found.id)
    own, round_, grade = StressVariant, tables.Round, tables.Grade
    query = (
        select(
            own.id, own.variant_id, round_.state, grade.points, grade.points_so_far, grade.held, grade.report
        )
        .join(round_, round_.id == own.round_id)
        .outerjoin(grade, grade.round_id == round_.id)
        .where(own.stress_test_id == found.id, ~own.ended)
    )
    over, waiting = [], 0
    for row in session.execute(query):
        if row.state not in dry_runs.ENDED:
            waiting += 1
            continue
        values = {"ended": True, "outcome": _outcome(row), "variant_id": None, "round_id": None}
        session.execute(update(own).where(own.id == row.id).values(values))
        over.append(row.variant_id)
    return over, waiting


def _outcome(row: Any) -> dict[str, Any]:
    if row.report is None:
        return {}
    criteria = {one["criterion"]: one.get("points") for one in row.report.get("criteria", ())}
    flags = sorted({str(one.get("code")) for one in row.report.get("flags", ()) if one.get("hold")})
    # what could not be judged in full waits for a person, too
    held = bool(row.held) or row.points is None
    return {
        "criteria": criteria,
        "total": row.points_so_far,
        "held": held,
        "flags": flags,
    }


def next_generation(session: Session, stress_test_id: str) -> bool:
    """Plan recombinations of the worst variants, or end the stress test; whether there is more to do."""
    found = load(session, stress_test_id, lock=True)
    goes_on = found.cancelled_at is None and found.generation < GENERATIONS
    if goes_on and (planned := _recombined(session, found)):
        found.generation += 1
        session.add_all(
            StressVariant(
                stress_test_id=found.id,
                source_id=source_id,
                generation=found.generation,
                key=one.key,
                family=one.family,
                expects=one.expects,
            )
            for source_id, one in planned
        )
        return True
    found.finished_at = now(session)
    unmade = (StressVariant.variant_id.is_(None), ~StressVariant.ended)
    session.execute(delete(StressVariant).where(StressVariant.stress_test_id == found.id, *unmade))
    periodic_tasks.remove(session, f"{TASK_PREFIX}{found.id}")
    return False


def _recombined(session: Session, found: StressTest) -> list[tuple[str, Planned]]:
    """The variants that gained most with each other, each on the submission it gained most on."""
    version = session.get_one(tables.RubricVersion, found.rubric_version_id)
    most = most_points(Rubric.model_validate(version.rubric))
    trials = _trials(session, found.id)
    worst: dict[tuple[str, ...], str] = {}
    for _, _, one in badness(trials, most):
        parts = tuple(one.variant.split(SEPARATOR))
        if len(parts) < MOST_PARTS:
            worst.setdefault(parts, one.source)
        if len(worst) >= WORST:
            break
    known = {frozenset(one.variant.split(SEPARATOR)) for one in trials}
    return [(worst[of], one) for of, one in recombined(list(worst), known).items()]


def most_points(rubric: Rubric) -> Mapping[str, float]:
    """The highest points of each criterion, and of all together."""
    return {**{one.id: one.points for one in rubric.criteria}, TOTAL: rubric.max_points}


def _trials(session: Session, stress_test_id: str) -> list[Trial]:
    query = select(StressVariant).where(StressVariant.stress_test_id == stress_test_id, StressVariant.ended)
    return [
        Trial(
            source=row.source_id,
            variant=row.key,
            row=row_of(row.key, row.family),
            expects=cast(Expectation, row.expects),
            points={**row.outcome["criteria"], TOTAL: row.outcome["total"]},
            held=row.outcome["held"],
            criterion=row.criterion,
        )
        for row in session.scalars(query.order_by(StressVariant.id))
        if row.outcome
    ]


def row_of(key: str, family: str) -> str:
    """The line of the table that a variant belongs to: instructions by class, others by what they do."""
    if family in (UNCHANGED, RECOMBINED, "removed", "wrong value", "names"):
        return family
    if family == "instructions":
        return key.rpartition(".")[0]
    return key


@dataclass(frozen=True)
class Progress:
    """How far a stress test is."""

    id: str
    assignment_id: int
    version: int
    created_at: datetime
    by: str
    generation: int
    total: int
    ended: int
    cancelled: bool
    finished: bool
    making: bool
    """Variants are being made."""


def list_tests(session: Session, assignment_id: int) -> list[Progress]:
    """The stress tests of an assignment, the newest first."""
    own, test, version = StressVariant, StressTest, tables.RubricVersion
    query = (
        select(
            *(test.id, test.assignment_id, version.number, test.created_at, test.generation),
            *(test.cancelled_at, test.finished_at, func.coalesce(tables.User.name, "").label("by")),
            func.count(own.id).filter(own.key != "").label("total"),
            func.count(own.id).filter(own.ended).label("ended"),
            func.count(own.id).filter(own.variant_id.is_(None), ~own.ended).label("unmade"),
        )
        .join(version, version.id == test.rubric_version_id)
        .outerjoin(tables.User, tables.User.id == test.by)
        .outerjoin(own, own.stress_test_id == test.id)
        .where(test.assignment_id == assignment_id)
        .group_by(test.id, version.number, tables.User.name)
        .order_by(test.created_at.desc(), test.id)
    )
    return [
        Progress(
            id=row.id,
            assignment_id=row.assignment_id,
            version=row.number,
            created_at=row.created_at,
            by=row.by,
            generation=row.generation,
            total=row.total,
            ended=row.ended,
            cancelled=row.cancelled_at is not None,
            finished=row.finished_at is not None,
            making=row.unmade > 0,
        )
        for row in session.execute(query)
    ]


@dataclass(frozen=True)
class Outcome:
    """What a stress test shows so far."""

    rubric: Rubric
    assessment: Assessment
    trials: tuple[Trial, ...]
    failed: int
    """Variants without a grade."""


def load_outcome(session: Session, stress_test_id: str) -> Outcome:
    """The table of a stress test."""
    found = load(session, stress_test_id)
    version = session.get_one(tables.RubricVersion, found.rubric_version_id)
    rubric = Rubric.model_validate(version.rubric)
    trials = _trials(session, found.id)
    return Outcome(
        rubric=rubric,
        assessment=assess(trials, most_points(rubric)),
        trials=tuple(trials),
        failed=_ended(session, found.id) - len(trials),
    )


def _ended(session: Session, stress_test_id: str) -> int:
    query = select(func.count()).where(StressVariant.stress_test_id == stress_test_id, StressVariant.ended)
    return session.scalar(query) or 0
