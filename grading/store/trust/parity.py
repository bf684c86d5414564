"""Parity: every machine grades golden submissions each night; who grades otherwise leaves the stage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict
from grading.domain.messages import Message, define_message
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.domain.rubric import Rubric
from grading.statistics.golden_runs import Finding, findings, key
from grading.statistics.parity import repeats
from grading.store import tables
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import GoldenSubmission, ParityAlarm, ShadowRun, StageDrain
from grading.store.trust import stage_drains
from grading.store.trust.shadow_runs import DONE, FAILED, OPEN, gradable, outcome

GOLDEN = 10
NIGHTS = 14
"""Earlier nights that tonight's is compared with."""
KEPT = timedelta(days=21)
BY = "system"

LEVELS = define_message(
    "parity.levels",
    "Grades %(count)s of the golden submissions otherwise than %(whom)s, by %(levels)s levels a criterion.",
)
CONTEXT = define_message(
    "parity.context", "Reads less than %(whom)s: its context is %(now)s tokens instead of %(before)s."
)
SHORTENED = define_message(
    "parity.shortened", "Shortens prompts of %(count)s golden submissions, other than %(whom)s."
)
READS_LESS = define_message(
    "parity.reads_less",
    "Its model server reads fewer tokens of the same prompts than %(whom)s: %(count)s golden submissions.",
)
FAILS = define_message("parity.fails", "Fails on %(count)s golden submissions, other than %(whom)s.")
WEIGHTS = define_message(
    "parity.weights", "Has other model weights than the other machines under the same name."
)
UNCERTAIN = define_message(
    "parity.uncertain", "It is not known which of the machines is wrong, so none was drained."
)
LAST_ONE = define_message("parity.last_one", "No other machine does this stage, so it goes on.")
BEFORE = define_message("parity.before", "in earlier nights")
OTHERS = define_message("parity.others", "the other machines")
TOO_FEW = define_message(
    "parity.too_few",
    "Choose at least %(count)s graded submissions whose documents are still stored.",
)
FEWEST = 5


@dataclass(frozen=True)
class Candidate:
    """A graded submission that can be golden."""

    submission_id: str
    student: str
    number: int
    points: float | None
    max_points: float
    chosen: bool
    reviewed: bool


def list_candidates(session: Session, assignment_id: int) -> list[Candidate]:
    """Reviewed or released submissions that machines can grade again, the best first."""
    submission, round_, grade, golden = tables.Submission, tables.Round, tables.Grade, GoldenSubmission
    query = (
        select(
            submission.id,
            tables.User.name,
            submission.number,
            grade.final_points,
            grade.max_points,
            golden.submission_id.is_not(None).label("chosen"),
            grade.reviewed_at.is_not(None).label("reviewed"),
        )
        .join(tables.User, tables.User.id == submission.student_id)
        .join(round_, (round_.submission_id == submission.id) & round_.current)
        .join(grade, grade.round_id == round_.id)
        .outerjoin(golden, golden.submission_id == submission.id)
        .where(
            submission.assignment_id == assignment_id,
            submission.number > 0,
            round_.state == RoundState.GRADED,
            round_.prepared.is_not(None),
            grade.final_points.is_not(None),
            ~grade.held,
            grade.released_at.is_not(None)
            | grade.reviewed_at.is_not(None)
            | golden.submission_id.is_not(None),
        )
        .order_by(grade.final_points.desc(), submission.id)
    )
    return [Candidate(*row) for row in session.execute(query)]


def propose(candidates: Sequence[Candidate]) -> list[str]:
    """Ten of different levels: evenly spread over the points, those that a person reviewed first."""
    reviewed = [one for one in candidates if one.reviewed]
    pool = reviewed if len(reviewed) >= GOLDEN else list(candidates)
    if len(pool) <= GOLDEN:
        return [one.submission_id for one in pool]
    step = (len(pool) - 1) / (GOLDEN - 1)
    return [pool[round(at * step)].submission_id for at in range(GOLDEN)]


def golden_ids(session: Session, assignment_id: int) -> list[str]:
    """The golden submissions of an assignment."""
    query = select(GoldenSubmission.submission_id).where(GoldenSubmission.assignment_id == assignment_id)
    return list(session.scalars(query.order_by(GoldenSubmission.submission_id)))


def choose_golden(session: Session, assignment_id: int, submission_ids: Collection[str], actor: Actor) -> int:
    """Make these the golden submissions of an assignment; none ends it. Raises Conflict."""
    allowed = {one.submission_id for one in list_candidates(session, assignment_id)}
    chosen = sorted(set(submission_ids) & allowed)[:GOLDEN]
    if submission_ids and len(chosen) < FEWEST:
        raise Conflict(TOO_FEW(count=FEWEST))
    session.execute(delete(GoldenSubmission).where(GoldenSubmission.assignment_id == assignment_id))
    moment = now(session)
    row = {"assignment_id": assignment_id, "by": actor.user_id, "at": moment}
    if chosen:
        session.execute(insert(GoldenSubmission), [{"submission_id": one, **row} for one in chosen])
    waiting = (
        ShadowRun.assignment_id == assignment_id,
        ShadowRun.night.is_not(None),
        ShadowRun.state.in_(OPEN),
    )
    session.execute(delete(ShadowRun).where(*waiting))
    detail = {"submissions": len(chosen)}
    write_audit(session, actor.name, "golden.choose", f"assignment:{assignment_id}", detail)
    return len(chosen)


def night_of(moment: datetime) -> date:
    """The night that a moment belongs to, by the server's own time: it begins at one o'clock."""
    return (moment.astimezone() - timedelta(hours=1)).date()


def assignments_due(session: Session, night: date, machines: Mapping[str, Collection[str]]) -> list[int]:
    """Assignments whose golden submissions these machines (with their stages) can grade in a night.

    Without those for which the night was planned, and those with too few that can still be graded.
    """
    planned = exists().where(
        ShadowRun.assignment_id == GoldenSubmission.assignment_id, ShadowRun.night == night
    )
    query = select(GoldenSubmission.assignment_id).where(~planned).distinct()
    unplanned = session.scalars(query.order_by(GoldenSubmission.assignment_id)).all()
    return [one for one in unplanned if _runs(session, one, night, machines)]


def plan_night(
    session: Session, assignment_id: int, night: date, machines: Mapping[str, Collection[str]]
) -> int:
    """Let each of these machines (with its stages) grade the golden submissions; number of runs.

    What is left of earlier nights is done no more.
    """
    old = (ShadowRun.assignment_id == assignment_id, ShadowRun.night.is_not(None))
    session.execute(delete(ShadowRun).where(*old, ShadowRun.night < night, ShadowRun.state.in_(OPEN)))
    session.execute(delete(ShadowRun).where(*old, ShadowRun.night < night - KEPT))
    rows = _runs(session, assignment_id, night, machines)
    if rows:
        session.execute(insert(ShadowRun), rows)
    return len(rows)


def _runs(
    session: Session, assignment_id: int, night: date, machines: Mapping[str, Collection[str]]
) -> list[dict[str, Any]]:
    """The rows of a night, none where too few submissions can be graded."""
    able = gradable(session, golden_ids(session, assignment_id))
    if len(able) < FEWEST:
        return []
    return [
        {
            "id": tables.new_id(),
            "night": night,
            "assignment_id": assignment_id,
            "submission_id": one.submission_id,
            "round_id": one.round_id,
            "stage": stage,
            "repeat": repeat,
            "machine": machine,
        }
        for one in able
        for stage, criteria in _criteria(session, one.rubric_version_id).items()
        for machine, stages in machines.items()
        if stage in stages
        for repeat in range(repeats(criteria))
    ]


def _criteria(session: Session, version_id: int) -> dict[str, int]:
    """Stage -> its number of criteria."""
    rubric = Rubric.model_validate(session.get_one(tables.RubricVersion, version_id).rubric)
    return dict(sorted(Counter(criterion.stage for criterion in rubric.criteria).items()))


Group = tuple[date, int, str]
"""Night, assignment, stage."""


@dataclass(frozen=True)
class Judged:
    """What a night's runs of one assignment and stage show."""

    group: Group
    machines: tuple[str, ...]
    """Those that have done all of it."""
    findings: tuple[Finding, ...]


def judge(session: Session) -> list[Judged]:
    """Compare what is complete and was not compared. Reads only: it may take seconds."""
    unjudged = (ShadowRun.night.is_not(None), ~ShadowRun.judged, ShadowRun.state.in_((DONE, FAILED)))
    rows = session.execute(
        select(ShadowRun.night, ShadowRun.assignment_id, ShadowRun.stage).where(*unjudged).distinct()
    ).all()
    groups = [(row.night, row.assignment_id, row.stage) for row in rows if row.night is not None]
    return [found for group in groups if (found := _judge(session, group)) is not None]


def _judge(session: Session, group: Group) -> Judged | None:
    night, assignment_id, stage = group
    mine = (ShadowRun.assignment_id == assignment_id, ShadowRun.stage == stage)
    open_ = set(
        session.scalars(
            select(ShadowRun.machine).where(*mine, ShadowRun.night == night, ShadowRun.state.in_(OPEN))
        )
    )
    new = session.scalars(
        select(ShadowRun.machine).where(*mine, ShadowRun.night == night, ~ShadowRun.judged).distinct()
    )
    complete = tuple(sorted(set(new) - open_))
    if not complete:
        return None
    since = _compared_since(session, stage)
    tonight: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    before: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    kept = select(ShadowRun).where(
        *mine, ShadowRun.night >= night - timedelta(days=NIGHTS), ShadowRun.night <= night
    )
    for run in session.scalars(kept.order_by(ShadowRun.night.desc(), ShadowRun.id)):
        if run.outcome is None or run.machine in open_:
            continue
        reported = outcome(run)
        if run.night == night:
            tonight[run.machine][key(run.submission_id, run.job_hash, reported)].append(reported)
        elif run.machine not in since or (run.finished_at or since[run.machine]) > since[run.machine]:
            before[run.machine][key(run.submission_id, run.job_hash, reported)].append(reported)
    out = frozenset(one.machine for one in list_alarms(session) if one.stage == stage)
    return Judged(group, complete, findings(tonight, before, out))


def _compared_since(session: Session, stage: str) -> dict[str, datetime]:
    """When a person last ended an alarm of a machine: what it did before is no measure any more."""
    query = (
        select(ParityAlarm.machine, func.max(ParityAlarm.ended_at))
        .where(ParityAlarm.stage == stage, ParityAlarm.ended_at.is_not(None))
        .group_by(ParityAlarm.machine)
    )
    return {row[0]: row[1] for row in session.execute(query) if row[1] is not None}


def list_alarms(session: Session) -> list[ParityAlarm]:
    """Alarms that nobody ended, the newest first."""
    query = select(ParityAlarm).where(ParityAlarm.ended_at.is_(None)).order_by(ParityAlarm.id.desc())
    return list(session.scalars(query))


def settle(session: Session, judged: Judged, able: Callable[[str], Collection[str]]) -> list[ParityAlarm]:
    """Keep that a night was compared, and raise alarms; `able` gives the machines that do a stage."""
    night, assignment_id, stage = judged.group
    session.execute(
        update(ShadowRun)
        .where(
            ShadowRun.night == night,
            ShadowRun.assignment_id == assignment_id,
            ShadowRun.stage == stage,
            ShadowRun.machine.in_(judged.machines),
        )
        .values(judged=True)
    )
    alarmed = {one.machine for one in list_alarms(session) if one.stage == stage}
    raised = []
    for machine in sorted({one.machine for one in judged.findings} - alarmed):
        mine = [one for one in judged.findings if one.machine == machine]
        raised.append(_raise(session, judged.group, machine, mine, able(stage)))
    return raised


def _raise(
    session: Session, group: Group, machine: str, found: Sequence[Finding], able: Collection[str]
) -> ParityAlarm:
    night, assignment_id, stage = group
    certain = any(one.certain for one in found)
    taken = set(session.scalars(select(StageDrain.machine).where(StageDrain.stage == stage)))
    others = set(able) - {machine} - taken
    why = [_sentence(one) for one in found]
    why += [UNCERTAIN()] if not certain else [LAST_ONE()] if not others else []
    out = certain and bool(others)
    alarm = ParityAlarm(
        night=night,
        assignment_id=assignment_id,
        machine=machine,
        stage=stage,
        why=[one.model_dump(mode="json") for one in why],
        out=out,
        at=now(session),
    )
    session.add(alarm)
    detail = {"stage": stage, "why": " ".join(one.message for one in why), "out": out}
    write_audit(session, BY, "machine.parity", f"machine:{machine}", detail)
    if out:
        stage_drains.drain_stage(session, machine, stage, BY, why[0])
    session.flush()
    return alarm


def _sentence(one: Finding) -> Message:
    whom = (BEFORE if one.compared == "before" else OTHERS)()
    count = len(one.submissions)
    if one.kind == "levels":
        return LEVELS(count=count, whom=whom, levels=round(one.shift / max(1, count), 1))
    if one.kind == "context":
        if one.now < one.before:
            return CONTEXT(whom=whom, now=one.now, before=one.before)
        return SHORTENED(whom=whom, count=count)
    if one.kind == "weights":
        return WEIGHTS()
    return (READS_LESS if one.kind == "reads_less" else FAILS)(count=count, whom=whom)


def reasons(alarm: ParityAlarm) -> list[Message]:
    """Why an alarm was raised, a sentence each."""
    return [Message.model_validate(one) for one in alarm.why]


@dataclass(frozen=True)
class NightOfMachine:
    """What one machine did of one stage in a night."""

    night: date
    machine: str
    stage: str
    total: int
    ended: int
    failed: int
    compared: bool
    alarm: bool


def list_nights(session: Session, assignment_id: int, most: int = 3) -> list[NightOfMachine]:
    """The last nights of an assignment, the newest first."""
    mine = (ShadowRun.assignment_id == assignment_id, ShadowRun.night.is_not(None))
    last = select(ShadowRun.night).where(*mine).distinct().order_by(ShadowRun.night.desc()).limit(most)
    nights = list(session.scalars(last))
    state = ShadowRun.state
    query = (
        select(
            ShadowRun.night,
            ShadowRun.machine,
            ShadowRun.stage,
            func.count(),
            func.count().filter(state.in_((DONE, FAILED))),
            func.count().filter(state == FAILED),
            func.count().filter(ShadowRun.judged),
        )
        .where(*mine, ShadowRun.night.in_(nights))
        .group_by(ShadowRun.night, ShadowRun.machine, ShadowRun.stage)
        .order_by(ShadowRun.night.desc(), ShadowRun.machine, ShadowRun.stage)
    )
    alarms = select(ParityAlarm).where(ParityAlarm.assignment_id == assignment_id)
    raised = {(one.night, one.machine, one.stage) for one in session.scalars(alarms)}
    return [
        NightOfMachine(
            night, machine, stage, total, ended, failed, judged == total, (night, machine, stage) in raised
        )
        for night, machine, stage, total, ended, failed, judged in session.execute(query)
        if night is not None
    ]
