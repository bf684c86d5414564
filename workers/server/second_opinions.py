"""Second opinions: sent to idle machines with a model of another family, compared when they come.

They are behind all grading: none is sent while anything of grading waits, a machine that has a run of grading
in hand gets none, and one that gets a run of grading gives them back. A run goes to the machine's own queue,
as the queue of a stage would not know which family took part before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from grading.broker.away import why_away
from grading.broker.celery_app import own_queue
from grading.broker.dispatch import AWAY, Idle, Outgoing
from grading.domain.evidence import Evidence
from grading.domain.jobs import Result
from grading.domain.second_opinions import PRIORITY, CriterionOpinion
from grading.domain.stages import SECOND_OPINION, STAGES
from grading.scoring.second_opinions import compare_opinions, other_order
from grading.store.completion import finish_round
from grading.store.rounds import lifecycle, queue
from grading.store.rounds.lifecycle import RunOrder, Work
from grading.store.rounds.locking import LockedRound
from grading.store.trust import second_opinions, stage_drains
from grading.store.trust.second_opinions import DueOpinion, Judged
from workers.server.admit import jobs
from workers.server.context import Server
from workers.server.messages import GRADING_FIRST
from workers.server.pseudonyms import rename_documents
from workers.server.rubric_cache import Version

log = logging.getLogger(__name__)
GAVE_WAY = "gave_way"
"""Code of a run that a machine gave back: nothing was lost."""
MOST_PLANNED = 50
"""Rounds of which one pass decides whether they get a second opinion."""
MOST_AGAIN = 200
"""Next tries that one pass reads: the oldest may need a family that is away."""


def admit_opinions(server: Server) -> int:
    """Send second opinions to machines that are idle; returns the number of runs sent.

    Safe to call from anywhere: what two processes send at once is conditional in SQL.
    """
    if SECOND_OPINION not in server.config.stages:
        return 0
    try:
        idle = [one for one in server.dispatch.idle(SECOND_OPINION) if one.places]
        return sum(_send(server, one, idle) for one in idle) if idle and _nothing_waits(server) else 0
    except AWAY as error:
        log.warning("%s, no second opinions are sent: %s", why_away(error), error)
        return 0


def _nothing_waits(server: Server) -> bool:
    """Whether no round waits for a machine; decides, too, which rounds get a second opinion."""
    with server.store.read() as session:
        if queue.load_pending_work(session).queued:
            return False
        undecided = second_opinions.any_undecided(session)
    if undecided:
        with server.store.write(derived=True) as session:
            second_opinions.plan_opinions(session, server.config.family_of, MOST_PLANNED)
    return True


def _send(server: Server, to: Idle, idle: Sequence[Idle]) -> int:
    with server.store.read() as session:
        # machines are idle for hours a day: a write at each sweep would lock SQLite for nothing
        if not _due_again(server, session, to) and not _due(server, session, to, 1):
            return 0
    with server.store.write(derived=True) as session:
        outgoing = list(_runs(server, session, to, idle))
    if outgoing:
        server.dispatch.send(outgoing, own_queue(to.machine))
        log.info("%d second opinions sent to machine %s", len(outgoing), to.machine)
    return len(outgoing)


def _due_again(server: Server, session: Session, to: Idle) -> list[queue.DueRetry]:
    """Next tries that a machine may do."""
    family, out = server.config.family_of(to.model), _out(session, to)
    due = queue.list_due_retries(session, {(SECOND_OPINION, PRIORITY): MOST_AGAIN})
    about = second_opinions.load_judged(session, [one.round_id for one in due])
    return [one for one in due if (of := about[one.round_id]).family != family and of.stage not in out]


def _due(server: Server, session: Session, to: Idle, most: int) -> list[DueOpinion]:
    """Second opinions that never were sent and that a machine may give."""
    family = server.config.family_of(to.model)
    return second_opinions.list_due(session, family, most, _out(session, to))


def _out(session: Session, to: Idle) -> frozenset[str]:
    """The stages that a machine does no more with the model of its second opinions."""
    return stage_drains.stages_out(session, to.machine) & to.alike


def _runs(server: Server, session: Session, to: Idle, idle: Sequence[Idle]) -> Iterator[Outgoing]:
    """Next tries first, then what never was sent."""
    again = _due_again(server, session, to)[: to.places]
    orders = [one for due in again if (one := lifecycle.next_order(session, due.round_id, due.stage))]
    about = second_opinions.load_judged(session, [one.round_id for one in orders])
    orders = [one for one in orders if _welcome(server, one, about[one.round_id], to, idle)]
    for due in _due(server, session, to, to.places - len(orders)):
        begun = second_opinions.begin_round(session, due)
        orders += [
            one for group in lifecycle.first_orders(session, [begun] if begun else []) for one in group
        ]
    ids = [one.round_id for one in orders]
    about, work = second_opinions.load_judged(session, ids), lifecycle.load_work(session, ids)
    made = {one: _job(server, session, one, work[one.round_id], about[one.round_id]) for one in orders}
    lifecycle.mark_dispatched(session, [one for one, job in made.items() if job is not None])
    yield from (job for job in made.values() if job is not None)


def _welcome(server: Server, order: RunOrder, judged: Judged, to: Idle, idle: Sequence[Idle]) -> bool:
    """Whether a run may go to this machine: to one where it failed only if no other is idle."""
    others = (one for one in idle if server.config.family_of(one.model) != judged.family)
    return to.machine not in order.avoid or all(one.machine in order.avoid for one in others)


def _job(server: Server, session: Session, order: RunOrder, work: Work, judged: Judged) -> Outgoing | None:
    """The job of a second opinion: the same work and evidence, the criteria of one stage in another order.

    None where none can be made; that second opinion is dead.
    """
    version = server.versions.get(session, judged.rubric_version_id)
    try:
        (plain,) = jobs(server, session, [order], work, judged.stage)
    except LookupError:
        # else this one would keep all others from being sent, for ever
        log.exception("the job of a second opinion on round %s could not be created", judged.round_id)
        second_opinions.finish(session, order.round_id, judged, (), "")
        return None
    rubric = {**version.rubric_json, "criteria": reordered(version, judged.stage)}
    return replace(plain, job={**plain.job, "rubric": rubric})


def reordered(version: Version, stage: str) -> list[Any]:
    """The rubric's criteria with those of a stage as the second opinion's own, in another order.

    The order is that of the version: the same for the whole class, so that machines keep the prompt's prefix.
    """
    criteria = version.rubric_json["criteria"]
    mine = [{**one, "stage": SECOND_OPINION} for one in criteria if one["stage"] == stage]
    seed = f"{stage}:{','.join(one['id'] for one in mine)}"
    return [*other_order(mine, seed), *(one for one in criteria if one["stage"] != stage)]


def combine_opinion(server: Server, session: Session, current: LockedRound, *, usable: bool = True) -> None:
    """Compare a second opinion with what was judged before, and hold the grade where they are apart.

    Without an accepted result, or where it is not usable, the second opinion is dead.
    """
    judged = second_opinions.load_judged(session, [current.id])[current.id]
    results = finish_round.accepted_results(session, current.id) if usable else []
    opinions = _compared(server, session, current, judged, results[0]) if results else ()
    model = results[0].provenance.model if results else ""
    held = second_opinions.finish(session, current.id, judged, opinions, model)
    apart, also = sum(one.apart for one in opinions), ", held for review" if held else ""
    log.info(
        "second opinion on %s of round %s: %d criteria apart%s", judged.stage, judged.round_id, apart, also
    )


def _compared(
    server: Server, session: Session, current: LockedRound, judged: Judged, result: Result
) -> tuple[CriterionOpinion, ...]:
    prepared = finish_round.load_round_end(session, current.id).prepared
    version = server.versions.get(session, judged.rubric_version_id)
    output = STAGES[SECOND_OPINION].output.model_validate(result.output)
    return compare_opinions(
        version.rubric.of_stage(judged.stage),
        Evidence.model_validate(prepared["evidence"]),
        second_opinions.first_judgements(session, judged),
        {one.criterion: one for one in rename_documents(output, prepared["paths"]).judgements},
    )


def take_back(session: Session, order: RunOrder) -> None:
    """A machine gave a run back: it waits until one is idle again, and none of its tries is counted."""
    lifecycle.mark_lost(session, order.run_id, GRADING_FIRST(), "unbegun", GAVE_WAY)
