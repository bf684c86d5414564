"""Letting work out of SQL into Redis, only as much as the live machines can soon take."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from grading.dispatch import AWAY, Outgoing, Room
from grading.logs import working_on
from grading.model import PRIORITIES
from grading.store import combining, locking, rounds, waiting
from grading.store.rounds import RunOrder
from grading.store.tables import Round
from grading.store.waiting import Again, Next
from grading.tracing import mark
from workers.server.context import Server
from workers.server.teaching import examples_for

log = logging.getLogger(__name__)
T = TypeVar("T")
Kind = tuple[str, str]
"""Stage and priority."""
AT_ONCE = 16
"""Rounds begun in one transaction, and single stages."""
BATCH_EVERY = 8
"""One of so many is batch work, whatever else waits."""
NO_JOB = "No work for the machines could be made of this hand-in; a person must look at the rubric's stages."


def release(server: Server) -> int:
    """Dispatch what there is room for; returns the number of runs sent. Safe to call from anywhere.

    One thread a process does it at a time; whoever finds it busy leaves the wish to that thread. A run is
    written down before it is sent: when sending fails, the sweeper finds it missing and sends it again.
    """
    sent = 0
    server.wanted.set()
    while server.wanted.is_set() and server.releasing.acquire(blocking=False):
        try:
            server.wanted.clear()
            sent += _pass(server)
        finally:
            server.releasing.release()
    return sent


def _pass(server: Server) -> int:
    """One helping, so that results are recorded between two."""
    try:
        groups, more = _take(server, server.dispatch.room())
        for group in groups:
            _send(server, group)
        server.told.tell(server.store, server.dispatch)
    except AWAY as error:
        log.warning("redis is away, waiting rounds stay in SQL: %s", error)
        return 0
    if more:
        server.dispatch.release()
    return sum(len(group) for group in groups)


def _send(server: Server, group: list[Outgoing]) -> None:
    """A whole round as a chord; a single stage, begun again, as a task by itself."""
    began_ns = time.time_ns()
    if len(group) > 1:
        server.dispatch.send_round(group)
    else:
        for one in group:
            server.dispatch.send_run(one)
    for one in group:
        about = {"submission": one.submission_id, "round": one.round_id, "run": one.run_id}
        with working_on(**about, stage=one.stage):
            log.info("run %s, %s of round %s, was sent", one.run_id, one.stage, one.round_id)
        mark("dispatch", one.round_id, began_ns, one.run_id, **{"grader.stage": one.stage})


def _take(server: Server, room: Mapping[Kind, Room]) -> tuple[list[list[Outgoing]], bool]:
    """What goes out now, one group a round, and whether it was only a part for this pass."""
    free = {kind: of.usual for kind, of in room.items() if of.usual > 0}
    if not free:
        return [], False
    with server.store.read() as session:
        due = {p: _due(session, p, free) for p in PRIORITIES}
        again = _mixed(due["interactive"], due["batch"])
        taken = Counter((one.stage, one.priority) for one in again)
        queued = {
            p: waiting.next_queued(session, p, min(_places(room, taken, p), AT_ONCE)) for p in PRIORITIES
        }
        new = _mixed(queued["interactive"], queued["batch"])
    if not again and not new:
        return [], False
    with server.store.write() as session:
        groups = list(_begin(server, session, again, new))
    return groups, bool(groups) and AT_ONCE in (len(new), len(again))


def _places(room: Mapping[Kind, Room], taken: Mapping[Kind, int], priority: str) -> int:
    """Rounds that may begin: as many as the emptiest queue has room for, though another stage's gets longer.

    Machines that can do the one must not stand idle because the other gets on more slowly.
    """
    left = [
        (of.usual - taken.get(k, 0), of.most - taken.get(k, 0)) for k, of in room.items() if k[1] == priority
    ]
    return max(0, min(max(usual for usual, _ in left), *(most for _, most in left)))


def _due(session: Session, priority: str, free: Mapping[Kind, int]) -> list[Again]:
    """Single stages whose next try is due; those without room are not even looked for."""
    kinds = [(stage, places) for (stage, p), places in free.items() if p == priority]
    return [
        one
        for stage, places in kinds
        for one in waiting.due_again(session, stage, priority, min(places, AT_ONCE))
    ]


def _mixed(interactive: Sequence[T], batch: Sequence[T]) -> list[T]:
    """One helping: those somebody waits for first, and of batch work what is left, or its share."""
    kept = min(len(batch), max(AT_ONCE - len(interactive), AT_ONCE // BATCH_EVERY))
    return [*interactive[: AT_ONCE - kept], *batch[:kept]]


def _begin(
    server: Server, session: Session, again: Sequence[Again], new: Sequence[Next]
) -> Iterator[list[Outgoing]]:
    """Begin single stages whose next try is due, then rounds that were waiting."""
    for one in again:
        if group := _begin_one(server, session, one.round_id, one.stage):
            yield group
    begun = []
    for following in new:
        if group := _begin_one(server, session, following.round_id):
            begun.append(following)
            yield group
    waiting.served(session, begun)


def _begin_one(server: Server, session: Session, round_id: str, stage: str = "") -> list[Outgoing]:
    """Begin a round, or one stage of it again. One for which no job can be made is given up."""
    try:
        with session.begin_nested():
            if not stage:
                orders = rounds.begin(session, round_id)
            else:
                order = rounds.begin_again(session, round_id, stage)
                orders = [] if order is None else [order]
            return jobs(server, session, orders) if orders else []
    except DBAPIError:
        raise
    except Exception:
        # else this round would undo the beginning of all others, for ever
        log.exception("there is no job for round %s", round_id)
        if current := locking.locked(session, round_id, if_free=True):
            combining.give_up(session, current, NO_JOB)
        return []


def jobs(server: Server, session: Session, orders: list[RunOrder]) -> list[Outgoing]:
    """A job for each run of one round.

    Put together from JSON that was validated when it was stored; the machine validates the whole.
    """
    row = session.execute(
        select(Round.prepared, Round.rubric_version_id, Round.submission_id, Round.student_id).where(
            Round.id == orders[0].round_id
        )
    ).one()
    version = server.versions.get(session, row.rubric_version_id)
    examples = examples_for(session, server.versions, version, row.submission_id, row.student_id)
    return [
        Outgoing(
            order.run_id,
            order.round_id,
            order.stage,
            order.priority,
            {
                "run_id": order.run_id,
                "round_id": order.round_id,
                "stage": order.stage,
                "attempt": order.attempt,
                "material": version.material(order.stage, examples.get(order.stage, ())),
                "rubric": version.rubric_json,
                "documents": row.prepared["documents"],
                "evidence": row.prepared["hidden_evidence"],
                "nonce": secrets.token_hex(8),
                # only what there is to say: machines of an earlier version do not know the words
                **server.config.stages[order.stage].model_dump(exclude_none=True),
                **({"draft": True} if version.show_draft else {}),
                **({"avoid": order.avoid} if order.avoid else {}),
                **({"alone": True} if order.alone else {}),
            },
            row.submission_id,
            again=order.attempt > 1,
        )
        for order in orders
    ]
