"""Evaluation of examples: held-out corrections graded again with them, beside people's levels.

These rounds never count. For each criterion, the model's levels before and after are compared with the
person's, on the same submissions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.statistics import Agreement, agreement
from grading.store import tables
from grading.store.assignments import versions
from grading.store.experiments import dry_runs
from grading.store.experiments.corrections import Correction, newest_corrections
from grading.store.experiments.dry_runs import StartedDryRun
from grading.store.experiments.examples import ExampleEntry, list_examples
from grading.store.rounds.example_usage import keys_of

MEASURED_ALREADY = define_message(
    "example_evaluation.measured_already", "A measurement is already running. Wait until it has finished."
)
NO_EXAMPLE_ON = define_message(
    "example_evaluation.no_example_on", "No example is turned on. Turn one on first."
)
NO_CORRECTION_HELD_BACK = define_message(
    "example_evaluation.no_correction_held_back",
    "No correction of these criteria is reserved for measuring. Correct more submissions first.",
)

PURPOSE: Final = "examples"
MOST = 200
"""Submissions that are graded again at most, those corrected last."""
MOST_READ = 500
"""Corrections that are read."""


@dataclass(frozen=True)
class HeldOutCorrections:
    """Held-out corrections: of criteria with examples, and no examples themselves."""

    corrections: tuple[Correction, ...]
    other_rubric: int
    """Left out, as they were graded with another rubric version."""

    @property
    def submissions(self) -> tuple[str, ...]:
        """The submissions of these corrections, each once."""
        return tuple(dict.fromkeys(one.submission_id for one in self.corrections))


@dataclass(frozen=True)
class Effect:
    """A criterion before and after: pairs (model, person)."""

    criterion: str
    title: str
    highest: int
    before: Agreement
    after: Agreement


@dataclass(frozen=True)
class Evaluation:
    """Results of the newest evaluation so far."""

    dry_run_id: str
    at: datetime
    total: int
    ended: int
    by_rules: int
    """Graded by rules without a model, which read no examples."""
    keys: frozenset[str]
    """Keys of the examples that were used."""
    effects: tuple[Effect, ...]

    @property
    def done(self) -> bool:
        """Whether all its rounds have ended."""
        return self.ended >= self.total


def load_held_out(
    session: Session, assignment_id: int, examples: Sequence[ExampleEntry]
) -> HeldOutCorrections:
    """The corrections that an evaluation would use now."""
    working = [one for one in examples if one.works]
    criteria = {one.criterion for one in working}
    if not criteria:
        return HeldOutCorrections((), 0)
    own = _examples_of(session, assignment_id)
    assignment = session.get_one(tables.Assignment, assignment_id)
    version = versions.published_version(session, assignment).id
    of_them = [
        one
        for one in newest_corrections(session, assignment_id, MOST_READ)
        if one.criterion in criteria
        and (one.submission_id, one.criterion) not in own
        and one.model_level is not None
    ]
    same = [one for one in of_them if one.rubric_version_id == version]
    chosen = set(list(dict.fromkeys(one.submission_id for one in same))[:MOST])
    return HeldOutCorrections(
        tuple(one for one in same if one.submission_id in chosen), len(of_them) - len(same)
    )


def start_evaluation(session: Session, assignment_id: int, actor: Actor) -> StartedDryRun:
    """Start grading held-out corrections again, with the examples. Raises Conflict."""
    query = select(tables.Assignment).where(tables.Assignment.id == assignment_id)
    assignment = session.scalars(query.with_for_update(key_share=True)).one()
    if (last := _last(session, assignment_id)) is not None and not _ended(session, last):
        raise Conflict(MEASURED_ALREADY)
    examples = list_examples(session, assignment_id)
    if not any(one.works for one in examples):
        raise Conflict(NO_EXAMPLE_ON)
    found = load_held_out(session, assignment_id, examples)
    if not found.corrections:
        raise Conflict(NO_CORRECTION_HELD_BACK)
    version = versions.published_version(session, assignment)
    return dry_runs.start_dry_run(session, assignment, version, found.submissions, PURPOSE, actor)


def _last(session: Session, assignment_id: int) -> tables.DryRun | None:
    run = tables.DryRun
    query = select(run).where(run.assignment_id == assignment_id, run.purpose == PURPOSE)
    return session.scalar(query.order_by(run.created_at.desc(), run.id).limit(1))


def _ended(session: Session, run: tables.DryRun) -> bool:
    found = dry_runs.count_states(session, run.id)
    return all(state in dry_runs.ENDED for state in found)


def load_evaluation(session: Session, assignment_id: int) -> Evaluation | None:
    """Results of the newest evaluation; None when there was none."""
    run = _last(session, assignment_id)
    if run is None:
        return None
    states = dry_runs.count_states(session, run.id)
    graded = _graded(session, run)
    criterion_of = _criteria(session, {key for one in graded.values() for key in one.keys})
    pairs: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    titles: dict[str, Correction] = {}
    for found in _judged_before(session, assignment_id, run):
        after = graded.get(found.submission_id)
        if after is None or found.model_level is None:
            continue
        level, shown = after.levels.get(found.criterion), {criterion_of.get(key) for key in after.keys}
        if level is not None and level[1] == found.highest and found.criterion in shown:
            titles.setdefault(found.criterion, found)
            pairs[found.criterion].append((found.model_level, level[0], found.level))
    return Evaluation(
        dry_run_id=run.id,
        at=run.created_at,
        total=sum(states.values()),
        ended=sum(count for state, count in states.items() if state in dry_runs.ENDED),
        by_rules=sum(one.by_rules for one in graded.values()),
        keys=frozenset(key for one in graded.values() for key in one.keys),
        effects=tuple(_effect(titles[name], of) for name, of in pairs.items()),
    )


def _effect(found: Correction, triples: Sequence[tuple[float, float, float]]) -> Effect:
    return Effect(
        criterion=found.criterion,
        title=found.title,
        highest=found.highest,
        before=agreement([(before, person) for before, _, person in triples]),
        after=agreement([(after, person) for _, after, person in triples]),
    )


@dataclass(frozen=True)
class _SecondGrading:
    """The second grading of a submission."""

    levels: Mapping[str, tuple[float, int]]
    keys: frozenset[str]
    by_rules: bool


def _graded(session: Session, run: tables.DryRun) -> dict[str, _SecondGrading]:
    """By submission; of the reports only the compared part is read."""
    grade, link = tables.Grade, tables.DryRunRound
    query = (
        select(grade.submission_id, grade.report["criteria"].label("c"), grade.report["stages"].label("s"))
        .join(link, link.round_id == grade.round_id)
        .where(link.dry_run_id == run.id)
    )
    return {row.submission_id: _again(row.c, row.s) for row in session.execute(query)}


def _again(criteria: Any, stages: Any) -> _SecondGrading:
    return _SecondGrading(
        levels={
            one["criterion"]: (one["level"], one["highest"])
            for one in criteria or []
            if one.get("level") is not None
        },
        keys=frozenset(keys_of(stages)),
        by_rules=bool(stages) and not any(one.get("uses_model", True) for one in stages.values()),
    )


def _criteria(session: Session, keys: Iterable[str]) -> dict[str, str]:
    """The criterion of each example, also of removed ones."""
    numbers = {key: int(key.partition(":")[0]) for key in keys}
    query = select(tables.Example.id, tables.Example.criterion)
    rows = session.execute(query.where(tables.Example.id.in_(set(numbers.values()))))
    found = {row.id: row.criterion for row in rows}
    return {key: found[number] for key, number in numbers.items() if number in found}


def _judged_before(session: Session, assignment_id: int, run: tables.DryRun) -> list[Correction]:
    """Corrections that were held out when the evaluation began."""
    own = _examples_of(session, assignment_id, run.created_at)
    return [
        one
        for one in newest_corrections(session, assignment_id, MOST_READ)
        if one.at <= run.created_at
        and (one.submission_id, one.criterion) not in own
        and one.rubric_version_id == run.rubric_version_id
    ]


def _examples_of(session: Session, assignment_id: int, until: datetime | None = None) -> set[tuple[str, str]]:
    """Submission and criterion of all examples there ever were, also inactive and removed ones."""
    example = tables.Example
    query = select(example.submission_id, example.criterion).where(example.assignment_id == assignment_id)
    if until is not None:
        query = query.where(example.at <= until)
    return {(row.submission_id, row.criterion) for row in session.execute(query)}
