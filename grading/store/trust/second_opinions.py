"""Second opinions in SQL: which rounds get one, the rounds in which machines judge again, what came of them.

A second opinion is a round of its own that is never current, so that nothing of grading waits for it: it has
one stage, its tries and losses are those of any stage, and its end changes only its row here and whether the
grade it is about is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    delete,
    distinct,
    func,
    insert,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.orm import Session

from grading.domain.jobs import Judgement
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.round_states import RoundState, StageState
from grading.domain.second_opinions import PRIORITY, REASON, CriterionOpinion, SecondOpinionPolicy
from grading.domain.stages import SECOND_OPINION
from grading.scoring.second_opinions import wants_opinion
from grading.store.audit import write_audit
from grading.store.bulk import delete_rows
from grading.store.change_tracking import TRACKED_MANUALLY, mark_changed
from grading.store.database import insert_into, now
from grading.store.rounds.locking import set_round
from grading.store.tables import Assignment, Grade, Round, RoundStage, Run, SecondOpinion, Submission, new_id


class OpinionState(StrEnum):
    """Where the second opinion on a stage of a round stands."""

    SKIPPED = "skipped"  # the policy wants none of this round
    WANTED = "wanted"  # waits for an idle machine with a model of another family
    RUNNING = "running"  # its round is dispatched, or waits for its next try
    DONE = "done"
    DEAD = "dead"  # no machine gave a valid answer


UNDECIDED = (OpinionState.SKIPPED, OpinionState.WANTED)
"""States in which nothing was sent: another policy decides anew."""


@dataclass(frozen=True)
class DueOpinion:
    """A second opinion that waits for a machine."""

    id: int
    round_id: str
    """Of the round that is judged again."""
    submission_id: str
    stage: str
    """That is judged again."""


@dataclass(frozen=True)
class Judged:
    """What a second opinion is about."""

    id: int
    round_id: str
    submission_id: str
    assignment_id: int
    stage: str
    family: str
    rubric_version_id: int
    current: bool
    """Its round still counts."""


def policy_of(assignment: Assignment) -> SecondOpinionPolicy:
    """Which submissions of an assignment get a second opinion."""
    return SecondOpinionPolicy.model_validate(assignment.second_opinion or {})


def set_policy(session: Session, assignment: Assignment, policy: SecondOpinionPolicy, actor: Actor) -> bool:
    """Store the policy; it holds for submissions without a second opinion. False when it is the same.

    Those that failed wait for a machine again, in any case.
    """
    mine = SecondOpinion.assignment_id == assignment.id
    dead = update(SecondOpinion).where(mine, SecondOpinion.state == OpinionState.DEAD)
    session.execute(dead.values(state=OpinionState.WANTED, by_round=None, ended_at=None))
    if policy == policy_of(assignment):
        return False
    delete_rows(session, SecondOpinion, mine, SecondOpinion.state.in_(UNDECIDED))
    assignment.second_opinion = policy.model_dump(mode="json", exclude_defaults=True)
    detail = policy.model_dump(mode="json")
    write_audit(session, actor.name, "assignment.second_opinion", f"assignment:{assignment.id}", detail)
    return True


def plan_opinions(session: Session, family_of: Callable[[str], str], most: int) -> int:
    """Decide for at most so many graded rounds whether they get a second opinion; returns how many."""
    policies = _policies(session)
    rows = session.execute(_undecided(list(policies)).limit(most)).all() if policies else []
    planned = [one for row in rows for one in _planned(row, policies[row.assignment_id], family_of)]
    if planned:
        # another process may have decided the same meanwhile
        added = insert_into(session, SecondOpinion).on_conflict_do_nothing()
        session.execute(added, [{**one, "created_at": now(session)} for one in planned])
    return len(rows)


def any_undecided(session: Session) -> bool:
    """Whether `plan_opinions` has anything to decide."""
    policies = _policies(session)
    one = _undecided(list(policies)).with_only_columns(Round.id).order_by(None).limit(1)
    return bool(policies) and session.execute(one).first() is not None


def _policies(session: Session) -> dict[int, SecondOpinionPolicy]:
    """Of the assignments that want second opinions."""
    rows = session.execute(select(Assignment.id, Assignment.second_opinion)).all()
    found = {
        row.id: SecondOpinionPolicy.model_validate(row.second_opinion) for row in rows if row.second_opinion
    }
    return {assignment: policy for assignment, policy in found.items() if policy.which != "none"}


def _planned(
    row: Any, policy: SecondOpinionPolicy, family_of: Callable[[str], str]
) -> Iterator[dict[str, Any]]:
    """One row a stage with criteria, or one that says that there is no second opinion."""
    about = {"round_id": row.id, "submission_id": row.submission_id, "assignment_id": row.assignment_id}
    report = Report.model_validate(row.report)
    stages = _judged_stages(report) if wants_opinion(policy, row.submission_id, report) else {}
    for stage, model in stages.items():
        yield {**about, "stage": stage, "state": OpinionState.WANTED, "family": family_of(model)}
    if not stages:
        yield {**about, "stage": "", "state": OpinionState.SKIPPED, "family": ""}


def _undecided(assignments: Sequence[int]) -> Any:
    """Graded rounds that count, of which nobody decided yet, the first graded first."""
    decided = select(SecondOpinion.id).where(SecondOpinion.round_id == Round.id).exists()
    return (
        select(Round.id, Round.submission_id, Submission.assignment_id, Grade.report)
        .join(Submission, Submission.id == Round.submission_id)
        .join(Grade, Grade.round_id == Round.id)
        .where(Submission.assignment_id.in_(assignments), Round.current, ~decided)
        .where(Round.state == RoundState.GRADED.value, Round.prepared.is_not(null()))
        .order_by(Round.finished_at, Round.id)
    )


def _judged_stages(report: Report) -> dict[str, str]:
    """The stages in which criteria were judged, with the model that did, or the engine without one."""
    stages = dict.fromkeys(one.stage for one in report.criteria)
    return {stage: report.stages[stage].model for stage in stages if stage in report.stages}


def list_due(session: Session, family: str, most: int, not_on: Collection[str] = ()) -> list[DueOpinion]:
    """Second opinions that a model of this family may give, on rounds that count, the first planned first.

    None of stages that are in `not_on`.
    """
    row = SecondOpinion
    query = (
        select(row.id, row.round_id, row.submission_id, row.stage)
        .join(Round, (Round.id == row.round_id) & Round.current & Round.prepared.is_not(null()))
        .where(row.state == OpinionState.WANTED, row.family != family, row.stage.not_in(not_on))
        .order_by(row.id)
        .limit(most)
    )
    return [DueOpinion(*one) for one in session.execute(query)]


def begin_round(session: Session, due: DueOpinion) -> str | None:
    """Add the round in which a machine judges again; its id, or None where another process did.

    Also None where the round that it is about does not count any more.
    It has a number below those of gradings, and what the round it is about was prepared with.
    """
    made, moment = new_id(), now(session)
    lock = select(Submission.id).where(Submission.id == due.submission_id)
    session.execute(lock.with_for_update(key_share=True))
    lowest = session.scalar(select(func.min(Round.number)).where(Round.submission_id == due.submission_id))
    given = {
        "id": literal(made),
        "number": literal(min(lowest or 0, 0) - 1),
        "reason": literal(REASON),
        "state": literal(RoundState.QUEUED.value),
        "current": literal(False),
        "priority": literal(PRIORITY),
        "queue_turn": literal(0),
        "created_at": literal(moment, Round.created_at.type),
        "prepared_at": literal(moment, Round.created_at.type),
    }
    kept = {
        name: getattr(Round, name)
        for name in ("submission_id", "rubric_version_id", "course_id", "student_id", "prepared", "failure")
    }
    columns = {**given, **kept}
    judged = select(*columns.values()).where(Round.id == due.round_id, Round.current)
    added = insert(Round).from_select(list(columns), judged, include_defaults=False)
    if session.scalar(added.returning(Round.id).execution_options(**TRACKED_MANUALLY)) is None:
        return None
    mine = (SecondOpinion.id == due.id, SecondOpinion.state == OpinionState.WANTED)
    if not _changed(session, update(SecondOpinion).where(*mine), state=OpinionState.RUNNING, by_round=made):
        session.execute(delete(Round).where(Round.id == made).execution_options(**TRACKED_MANUALLY))
        return None
    stage = {"round_id": made, "stage": SECOND_OPINION, "state": StageState.WAITING, "priority": PRIORITY}
    session.execute(insert(RoundStage), stage)
    return made


def _changed(session: Session, statement: Any, **values: Any) -> bool:
    done = statement.values(**values).returning(SecondOpinion.id)
    return session.execute(done.execution_options(synchronize_session=False)).first() is not None


def load_judged(session: Session, by_rounds: Sequence[str]) -> dict[str, Judged]:
    """What the rounds of second opinions are about, by their ids."""
    row = SecondOpinion
    columns = (row.id, row.round_id, row.submission_id, row.assignment_id, row.stage, row.family)
    query = (
        select(row.by_round, *columns, Round.rubric_version_id, Round.current)
        .join(Round, Round.id == row.round_id)
        .where(row.by_round.in_(by_rounds))
    )
    rows: Sequence[Any] = session.execute(query).all()
    return {by_round: Judged(*of) for by_round, *of in rows}


def first_judgements(session: Session, judged: Judged) -> dict[str, Judgement]:
    """What the first model judged, by criterion; empty where retention has deleted it."""
    query = select(Run.result).where(Run.round_id == judged.round_id, Run.stage == judged.stage, Run.accepted)
    found = ((session.scalar(query) or {}).get("output") or {}).get("judgements", ())
    return {one["criterion"]: Judgement.model_validate(one) for one in found}


def finish(
    session: Session,
    by_round: str,
    judged: Judged,
    opinions: Sequence[CriterionOpinion],
    model: str,
) -> bool:
    """running → done or, without an opinion, dead; whether the grade is held for it from now on.

    A grade that people reviewed, that students see, or that does not count any more is never held by it.
    """
    apart = sum(one.apart for one in opinions)
    state = OpinionState.DONE if opinions else OpinionState.DEAD
    ended = {"finished_at": now(session), "prepared": {}}
    set_round(session, by_round, state=RoundState.GRADED if opinions else RoundState.FAILED, **ended)
    session.execute(
        update(SecondOpinion)
        .where(SecondOpinion.id == judged.id)
        .values(
            state=state,
            model=model[:200],
            opinions=[one.model_dump(mode="json") for one in opinions],
            apart=apart,
            ended_at=now(session),
        )
        .execution_options(synchronize_session=False)
    )
    held = bool(apart) and judged.current and _hold(session, judged)
    mark_changed(session, [judged.submission_id])
    return held


def _hold(session: Session, judged: Judged) -> bool:
    """Hold the grade, unless people have seen to it or students see it."""
    grade = select(Grade).where(Grade.round_id == judged.round_id).with_for_update()
    found = session.scalar(grade.execution_options(populate_existing=True))
    if found is None or found.released_at is not None or found.reviewed_at is not None:
        return False
    found.held = True
    return True


def differs() -> ColumnElement[bool]:
    """Whether a second opinion on a grade is apart from it, and nobody has reviewed the grade.

    In a query of Grade.
    """
    row = SecondOpinion
    of_it = (row.round_id == Grade.round_id, row.state == OpinionState.DONE, row.apart > 0)
    return Grade.reviewed_at.is_(None) & select(row.id).where(*of_it).exists()


def load_opinions(session: Session, round_id: str) -> dict[str, tuple[str, CriterionOpinion]]:
    """The second opinions on a round by criterion, each with the model that gave it."""
    row = SecondOpinion
    query = select(row.model, row.opinions).where(row.round_id == round_id, row.state == OpinionState.DONE)
    return {
        one["criterion"]: (model, CriterionOpinion.model_validate(one))
        for model, opinions in session.execute(query)
        for one in opinions
    }


def count_states(session: Session, assignment_id: int) -> Mapping[str, int]:
    """The number of second opinions of an assignment by state, of rounds that count."""
    row = SecondOpinion
    query = (
        select(row.state, func.count())
        .join(Round, (Round.id == row.round_id) & Round.current)
        .where(row.assignment_id == assignment_id)
        .group_by(row.state)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def list_opinions(session: Session, assignment_id: int) -> list[CriterionOpinion]:
    """All second opinions on rounds of an assignment that count."""
    row = SecondOpinion
    query = (
        select(row.opinions)
        .join(Round, (Round.id == row.round_id) & Round.current)
        .where(row.assignment_id == assignment_id, row.state == OpinionState.DONE)
        .order_by(row.id)
    )
    return [CriterionOpinion.model_validate(one) for of in session.scalars(query) for one in of]


def opinions_by_round(session: Session, assignment_id: int) -> dict[tuple[str, str], CriterionOpinion]:
    """The second opinions on rounds of an assignment, by round and criterion."""
    row = SecondOpinion
    query = select(row.round_id, row.opinions).where(
        row.assignment_id == assignment_id, row.state == OpinionState.DONE
    )
    return {
        (round_id, one["criterion"]): CriterionOpinion.model_validate(one)
        for round_id, opinions in session.execute(query.order_by(row.id))
        for one in opinions
    }


def count_differing(session: Session, assignment_id: int, *, released: bool) -> int:
    """Grades of an assignment from which a second opinion is apart and that nobody has reviewed."""
    return count_by_assignment(session, [assignment_id], released=released)[assignment_id]


def count_by_assignment(
    session: Session, assignment_ids: Collection[int], *, released: bool = True
) -> Counter[int]:
    """The same by assignment."""
    row = SecondOpinion
    seen = Grade.released_at.is_not(None) if released else Grade.released_at.is_(None)
    query = (
        select(row.assignment_id, func.count(distinct(row.round_id)))
        .join(Round, (Round.id == row.round_id) & Round.current)
        .join(Grade, Grade.round_id == row.round_id)
        .where(row.assignment_id.in_(assignment_ids), row.state == OpinionState.DONE, row.apart > 0)
        .where(seen, Grade.reviewed_at.is_(None))
        .group_by(row.assignment_id)
    )
    return Counter({assignment_id: count for assignment_id, count in session.execute(query)})  # noqa: C416
