"""Trials of models: past, marked submissions that idle machines grade with another model, beside people."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, exists, insert, or_, select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import CriterionGrade, Report
from grading.domain.shadow_runs import ShadowOutcome
from grading.scoring.proposed_levels import judgement_of_model
from grading.statistics.agreement import FEWEST
from grading.statistics.model_comparison import Compared, Level, by_criterion, compare_models
from grading.statistics.submission_data import BLIND, PersonLevel
from grading.store import tables
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.review import person_levels
from grading.store.tables import ModelTrial, ShadowRun
from grading.store.tables.assignments import SAMPLE
from grading.store.trust import human_marks
from grading.store.trust.shadow_runs import DONE, FAILED, OPEN, Gradable, count_states, gradable, outcome

NOBODY_MARKED = define_message(
    "model_trials.nobody_marked",
    "No graded submission has a level by a person for this stage. Mark or review some first.",
)
NO_SUCH_TRIAL = define_message("model_trials.no_such_trial", "This trial does not exist.")
DECIDED = define_message("model_trials.decided", "This trial was decided already.")
SIZE = 40
MOST = 500


@dataclass(frozen=True)
class Marked:
    """A submission with levels by people of one stage's criteria, beside what the model of now proposed."""

    submission_id: str
    levels: Mapping[str, tuple[float, float]]
    """Criterion -> (person, model of now)."""
    titles: Mapping[str, str]
    flags: tuple[str, ...]
    blind: Mapping[str, tuple[float, float]]
    """The same by people who did not know the model's level: others are drawn to it."""

    @property
    def share(self) -> float:
        """Mean level by people, to sample by."""
        return statistics.fmean(person for person, _ in self.levels.values())


def list_marked(session: Session, assignment_id: int, stage: str) -> list[Marked]:
    """All that people marked, changed or reviewed, or marked before, and a model graded."""
    return list_marked_by_stage(session, assignment_id, [stage])[stage]


def list_marked_by_stage(
    session: Session, assignment_id: int, stages: Collection[str]
) -> dict[str, list[Marked]]:
    """The same of several stages, whose reports are loaded once."""
    chosen = select(tables.Submission.id).where(tables.Submission.assignment_id == assignment_id).subquery()
    marks = person_levels.load_marks(session, chosen)
    changes = person_levels.load_changes(session, chosen)
    before: dict[str, list[PersonLevel]] = defaultdict(list)
    for level in human_marks.load_levels(session, assignment_id, {}):
        before[level.work].append(level)
    found: dict[str, list[Marked]] = {stage: [] for stage in stages}
    for row in session.execute(_seen_by_people(assignment_id)):
        report = Report.model_validate(row.report)
        known = (marks.get(row.round_id, ()), changes.get(row.round_id, ()))
        reviewer = row.reviewed_by if row.reviewed_at else None
        for stage, of_stage in found.items():
            graded = {one.criterion: one for one in report.criteria if one.stage == stage}
            given = [*person_levels.levels(row.submission_id, reviewer, graded, *known)]
            given += [one for one in before[row.submission_id] if one.criterion in graded]
            if (marked := _marked(row.submission_id, report, graded, given)) is not None:
                of_stage.append(marked)
    return found


def _marked(
    submission_id: str, report: Report, graded: Mapping[str, CriterionGrade], given: Sequence[PersonLevel]
) -> Marked | None:
    proposed = {
        name: float(judgement.level)
        for name, one in graded.items()
        if (judgement := judgement_of_model(report, one)) is not None
    }
    levels = _beside(given, proposed)
    if not levels:
        return None
    titles = {name: graded[name].title for name in levels}
    flags = tuple(sorted({flag.code for flag in report.flags}))
    blind = _beside([one for one in given if one.how in BLIND], proposed)
    return Marked(submission_id, levels, titles, flags, blind)


def _beside(given: Sequence[PersonLevel], proposed: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Criterion -> the mean level by people, and the model's, where both judged."""
    by_people: dict[str, list[float]] = defaultdict(list)
    for one in given:
        by_people[one.criterion].append(one.level)
    return {
        name: (statistics.fmean(levels), proposed[name])
        for name, levels in by_people.items()
        if name in proposed
    }


def comparable(marked: Sequence[Marked]) -> tuple[list[Marked], bool]:
    """Those by people who did not know the model's levels, with these only, where there are enough; else all.

    Also whether there were: else the levels favour the model of now, and nothing follows from them.
    """
    blind = [replace(one, levels=one.blind) for one in marked if one.blind]
    return (blind, True) if len(blind) >= FEWEST else (list(marked), False)


def _seen_by_people(assignment_id: int) -> Any:
    submission, round_, grade = tables.Submission, tables.Round, tables.Grade
    seen = (
        exists().where(tables.Mark.round_id == round_.id),
        exists().where(tables.Change.round_id == round_.id),
        exists().where(tables.HumanMark.submission_id == submission.id),
        grade.reviewed_at.is_not(None),
    )
    columns = (grade.report, grade.reviewed_at, grade.reviewed_by)
    return (
        select(submission.id.label("submission_id"), round_.id.label("round_id"), *columns)
        .join(round_, (round_.submission_id == submission.id) & round_.current)
        .join(grade, grade.round_id == round_.id)
        .where(submission.assignment_id == assignment_id, submission.source != SAMPLE, or_(*seen))
        .order_by(submission.id)
        .execution_options(yield_per=50)
    )


def stratified(marked: Sequence[Marked], size: int) -> list[Marked]:
    """A sample evenly spread over the levels that people gave."""
    ordered = sorted(marked, key=lambda one: (one.share, one.submission_id))
    if len(ordered) <= size:
        return ordered
    step = (len(ordered) - 1) / max(1, size - 1)
    return [ordered[round(at * step)] for at in range(size)]


@dataclass(frozen=True)
class Wanted:
    """What is to be tried."""

    stage: str
    engine: str
    model: str
    machine: str = ""
    size: int = SIZE


def start_trial(session: Session, assignment_id: int, wanted: Wanted, actor: Actor) -> str:
    """Let idle machines with this model grade a sample; the trial's id. Raises Conflict."""
    marked = list_marked(session, assignment_id, wanted.stage)
    able = {one.submission_id: one for one in gradable(session, [one.submission_id for one in marked])}
    pool, _blind = comparable([one for one in marked if one.submission_id in able])
    sample = stratified(pool, min(wanted.size, MOST))
    if not sample:
        raise Conflict(NOBODY_MARKED)
    trial = ModelTrial(
        id=tables.new_id(),
        assignment_id=assignment_id,
        stage=wanted.stage,
        engine=wanted.engine,
        model=wanted.model,
        machine=wanted.machine,
        by=actor.user_id,
        created_at=now(session),
    )
    session.add(trial)
    session.flush()
    _add_runs(session, trial, [able[one.submission_id] for one in sample])
    detail = {"trial": trial.id, "model": wanted.model, "engine": wanted.engine, "submissions": len(sample)}
    write_audit(session, actor.name, "model_trial.start", f"assignment:{assignment_id}", detail)
    return trial.id


def _add_runs(session: Session, trial: ModelTrial, sample: Sequence[Gradable]) -> None:
    """A run for each submission of the sample."""
    common = {
        "trial_id": trial.id,
        "assignment_id": trial.assignment_id,
        "stage": trial.stage,
        "engine": trial.engine,
        "model": trial.model,
        "machine": trial.machine,
    }
    rows = [
        {"id": tables.new_id(), "submission_id": one.submission_id, "round_id": one.round_id, **common}
        for one in sample
    ]
    for some in chunks(rows):
        session.execute(insert(ShadowRun), some)


def load_trial(session: Session, trial_id: str) -> ModelTrial:
    """A trial. Raises NotFound."""
    found = session.get(ModelTrial, trial_id) if trial_id.isalnum() else None
    if found is None:
        raise NotFound(NO_SUCH_TRIAL)
    return found


def list_trials(session: Session, assignment_id: int) -> list[ModelTrial]:
    """The trials of an assignment, the newest first."""
    query = select(ModelTrial).where(ModelTrial.assignment_id == assignment_id)
    return list(session.scalars(query.order_by(ModelTrial.created_at.desc(), ModelTrial.id)))


def decide(session: Session, trial_id: str, decision: str, actor: Actor) -> None:
    """Switch to the model, refuse it, or stop the trial; what waits is not graded. Raises Conflict."""
    trial = load_trial(session, trial_id)
    if trial.decision:
        raise Conflict(DECIDED)
    trial.decision, trial.decided_by, trial.decided_at = decision, actor.user_id, now(session)
    session.execute(delete(ShadowRun).where(ShadowRun.trial_id == trial.id, ShadowRun.state.in_(OPEN)))
    detail = {"trial": trial.id, "model": trial.model, "decision": decision}
    write_audit(session, actor.name, "model_trial.decide", f"assignment:{trial.assignment_id}", detail)


@dataclass(frozen=True)
class Effort:
    """What grading a submission takes and brings beside levels; medians of the runs that succeeded."""

    runs: int
    seconds: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    confidence: float | None
    """Mean of the model's own, in percent."""
    flagged: float | None
    """Share of the runs with a flag of the model's part."""
    hours: float
    """Of machines, for all runs together."""


@dataclass(frozen=True)
class Found:
    """What a trial shows so far."""

    total: int
    done: int
    failed: int
    errors: tuple[str, ...]
    blind: bool
    """People gave these levels without knowing those of the model of now; else no model can be preferred."""
    whole: Compared
    criteria: tuple[tuple[str, Compared], ...]
    """Title and figures."""
    new: Effort
    now: Effort


def progress(session: Session, trial_id: str) -> tuple[int, int]:
    """The numbers of its runs, and of those that ended: other ones show something else."""
    states = count_states(session, ShadowRun.trial_id == trial_id)
    return sum(states.values()), states.get(DONE, 0) + states.get(FAILED, 0)


def load_found(session: Session, trial: ModelTrial) -> Found:
    """Compare the levels that are there with those of people and of the model of now."""
    runs = list(session.scalars(select(ShadowRun).where(ShadowRun.trial_id == trial.id)))
    outcomes = {run.submission_id: outcome(run) for run in runs if run.state in (DONE, FAILED)}
    known = list_marked(session, trial.assignment_id, trial.stage)
    compared, blind = comparable([one for one in known if one.submission_id in outcomes])
    marked = {one.submission_id: one for one in compared}
    levels = list(_levels(marked, {work: one for work, one in outcomes.items() if one.ok}))
    titles = {name: title for one in marked.values() for name, title in one.titles.items()}
    criteria = by_criterion(levels)
    return Found(
        total=len(runs),
        done=sum(one.ok for one in outcomes.values()),
        failed=sum(not one.ok for one in outcomes.values()),
        errors=tuple(sorted({one.error for one in outcomes.values() if not one.ok})),
        blind=blind,
        whole=compare_models(levels),
        criteria=tuple((titles[name], criteria[name]) for name in sorted(criteria, key=lambda n: titles[n])),
        new=_effort([one for one in outcomes.values() if one.ok]),
        now=_effort(_earlier(session, [run.round_id for run in runs], trial.stage)),
    )


def _levels(marked: Mapping[str, Marked], outcomes: Mapping[str, ShadowOutcome]) -> Iterator[Level]:
    for work, one in outcomes.items():
        for criterion, (person, before) in marked[work].levels.items() if work in marked else ():
            if (level := one.levels.get(criterion)) is not None:
                yield Level(work, criterion, person, before, float(level))


def _earlier(session: Session, round_ids: Sequence[str], stage: str) -> list[ShadowOutcome]:
    """How the model of now did the same, as its runs report."""
    run = tables.Run
    query = select(run.result).where(run.round_id.in_(round_ids), run.stage == stage, run.accepted)
    found = []
    for result in session.scalars(query):
        how = (result or {}).get("provenance") or {}
        flags = tuple(sorted({str(flag.get("code")) for flag in (result or {}).get("flags", ())}))
        judged = ((result or {}).get("output") or {}).get("judgements", ())
        sure = {one["criterion"]: one["confidence"] for one in judged if one.get("confidence") is not None}
        effort = {"tokens": how.get("tokens") or {}, "seconds": how.get("seconds", 0.0)}
        found.append(ShadowOutcome(ok=True, flags=flags, confidence=sure, **effort))
    return found


def _effort(outcomes: Sequence[ShadowOutcome]) -> Effort:
    sure = [value for one in outcomes for value in one.confidence.values()]
    return Effort(
        runs=len(outcomes),
        seconds=statistics.median(one.seconds for one in outcomes) if outcomes else None,
        prompt_tokens=statistics.median(one.tokens.prompt for one in outcomes) if outcomes else None,
        output_tokens=statistics.median(one.tokens.output for one in outcomes) if outcomes else None,
        confidence=statistics.fmean(sure) if sure else None,
        flagged=sum(bool(one.flags) for one in outcomes) / len(outcomes) if outcomes else None,
        hours=sum(one.seconds for one in outcomes) / 3600,
    )
