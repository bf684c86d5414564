"""Shadow runs: which wait, which machine does them, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, func, or_, select, tuple_, update
from sqlalchemy.orm import Session

from grading.domain.round_states import RoundState
from grading.domain.shadow_runs import ShadowOutcome
from grading.store import tables
from grading.store.database import now
from grading.store.tables import ModelTrial, ShadowRun
from grading.store.trust import stage_drains

WAITING, SENT, DONE, FAILED = "waiting", "sent", "done", "failed"
OPEN = (WAITING, SENT)
MOST_TRIES = 3
Place = tuple[str, str]
"""(engine, model)"""


@dataclass(frozen=True)
class Gradable:
    """A submission whose documents and evidence are still there, with the round that they are of."""

    submission_id: str
    round_id: str
    rubric_version_id: int


def gradable(session: Session, submission_ids: Sequence[str]) -> list[Gradable]:
    """Those of these submissions that a machine can grade again."""
    round_ = tables.Round
    query = (
        select(round_.submission_id, round_.id, round_.rubric_version_id)
        .where(
            round_.submission_id.in_(submission_ids),
            round_.current,
            round_.state == RoundState.GRADED,
            round_.prepared.is_not(None),
        )
        .order_by(round_.submission_id)
    )
    return [Gradable(*row) for row in session.execute(query)]


def any_open(session: Session) -> bool:
    """Whether some run waits, is under way, or was not compared."""
    unjudged = and_(ShadowRun.night.is_not(None), ~ShadowRun.judged)
    return (
        session.scalar(select(ShadowRun.id).where(or_(ShadowRun.state.in_(OPEN), unjudged)).limit(1))
        is not None
    )


def next_for(session: Session, machine: str, places: Mapping[str, Place], most: int) -> list[ShadowRun]:
    """Runs that this idle machine can do now: those of a night first, of one stage and assignment.

    `places` by stage. Of trials for any machine, none of a stage with the model that was drained of it here.
    """
    mine = ShadowRun.machine == machine
    out = stage_drains.stages_out(session, machine) & places.keys()
    has = and_(
        ShadowRun.machine == "",
        tuple_(ShadowRun.engine, ShadowRun.model).in_(sorted(set(places.values()))),
        tuple_(ShadowRun.stage, ShadowRun.engine, ShadowRun.model).not_in(
            [(stage, *places[stage]) for stage in sorted(out)]
        ),
    )
    waiting = select(ShadowRun).where(ShadowRun.state == WAITING, or_(mine, has))
    in_order = waiting.order_by(
        ShadowRun.night.is_(None), ShadowRun.assignment_id, ShadowRun.stage, ShadowRun.repeat, ShadowRun.id
    )
    first = session.scalar(in_order.limit(1))
    if first is None:
        return []
    same = (ShadowRun.assignment_id == first.assignment_id, ShadowRun.stage == first.stage)
    of_it = ShadowRun.trial_id.is_(None) if first.trial_id is None else ShadowRun.trial_id == first.trial_id
    return list(session.scalars(in_order.where(*same, of_it).limit(most)))


def mark_sent(
    session: Session, runs: Sequence[ShadowRun], machine: str, question: str, seconds: float
) -> None:
    """waiting → sent."""
    until = now(session) + timedelta(seconds=seconds)
    values = {"state": SENT, "machine": machine, "question": question, "until": until}
    for run in runs:
        session.execute(
            update(ShadowRun).where(ShadowRun.id == run.id).values(**values, tries=ShadowRun.tries + 1)
        )


def busy_machines(session: Session) -> set[str]:
    """Machines that have some."""
    return set(session.scalars(select(ShadowRun.machine).where(ShadowRun.state == SENT).distinct()))


def list_questions(session: Session) -> dict[str, str]:
    """Question -> the machine that it was sent to and that has not answered."""
    rows = session.execute(select(ShadowRun.question, ShadowRun.machine).where(ShadowRun.state == SENT))
    return {row.question: row.machine for row in rows}


def record(session: Session, question: str, outcomes: Mapping[str, ShadowOutcome]) -> int:
    """sent → done, failed or waiting again; how many of them ended."""
    runs = session.scalars(
        select(ShadowRun).where(ShadowRun.question == question, ShadowRun.state == SENT).with_for_update()
    )
    ended = 0
    for run in runs:
        outcome = outcomes.get(run.id)
        if outcome is None or (outcome.error == "time" and run.tries >= MOST_TRIES):
            _give_up_or_again(session, run, outcome)
        elif outcome.put_off:
            _again(session, run, counted=outcome.error == "time")
        else:
            run.state = DONE if outcome.ok else FAILED
            run.outcome, run.finished_at = outcome.model_dump(mode="json"), now(session)
            ended += 1
    return ended


def take_back_overdue(session: Session) -> None:
    """sent → waiting, where no answer came in time."""
    late = select(ShadowRun).where(ShadowRun.state == SENT, ShadowRun.until < now(session)).with_for_update()
    for run in session.scalars(late):
        _give_up_or_again(session, run, None)


def _give_up_or_again(session: Session, run: ShadowRun, outcome: ShadowOutcome | None) -> None:
    if run.tries < MOST_TRIES:
        _again(session, run, counted=True)
    else:
        give_up(session, [run], outcome.error if outcome else "no_answer")


def give_up(session: Session, runs: Iterable[ShadowRun], error: str) -> None:
    """waiting or sent → failed."""
    for run in runs:
        run.state, run.finished_at = FAILED, now(session)
        run.outcome = ShadowOutcome(ok=False, error=error).model_dump(mode="json")


def _again(session: Session, run: ShadowRun, *, counted: bool) -> None:
    run.state, run.question, run.until = WAITING, "", None
    run.tries -= not counted
    if run.trial_id is not None:  # another machine with the model may do it
        run.machine = session.scalar(select(ModelTrial.machine).where(ModelTrial.id == run.trial_id)) or ""


def count_states(session: Session, *where: Any) -> dict[str, int]:
    """Number of runs by state."""
    query = select(ShadowRun.state, func.count()).where(*where).group_by(ShadowRun.state)
    return {row[0]: row[1] for row in session.execute(query)}


def outcome(run: ShadowRun) -> ShadowOutcome:
    """What came of a run that ended."""
    return ShadowOutcome.model_validate(run.outcome or {"ok": False})
