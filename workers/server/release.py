"""Letting work out of SQL into Redis, only as much as the live machines can soon take."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from grading.dispatch import AWAY, Outgoing
from grading.logs import working_on
from grading.store import combining, locking, rounds, waiting
from grading.store.rounds import RunOrder
from grading.store.tables import Round
from grading.tracing import mark
from workers.server.context import Server

log = logging.getLogger(__name__)
AT_ONCE = 16
"""Rounds begun in one transaction."""
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


def _take(server: Server, room: Mapping[str, int]) -> tuple[list[list[Outgoing]], bool]:
    """What goes out now, one group a round, and whether it was only a part for this pass."""
    places = min(*room.values(), AT_ONCE)
    # a stage without room must not fill the list: the others would never be reached
    with_room = [stage for stage, free in room.items() if free > 0]
    if not with_room:
        return [], False
    with server.store.read() as session:
        again = waiting.due_again(session, with_room, AT_ONCE)
        new = waiting.next_queued(session, places) if places > 0 else []
    if not again and not new:
        return [], False
    with server.store.write() as session:
        groups = list(_begin(server, session, room, again, new))
    return groups, bool(groups) and AT_ONCE in (len(new), len(again))


def _begin(
    server: Server, session: Session, room: Mapping[str, int], again: list[tuple[str, str]], new: list[str]
) -> Iterator[list[Outgoing]]:
    """Begin single stages whose next try is due, then rounds that were waiting."""
    free = dict(room)
    for round_id, stage in again:
        if free.get(stage, 0) > 0 and (group := _begin_one(server, session, round_id, stage)):
            free[stage] -= 1
            yield group
    for round_id in new:
        if group := _begin_one(server, session, round_id):
            yield group


def _begin_one(server: Server, session: Session, round_id: str, stage: str = "") -> list[Outgoing]:
    """Begin a round, or one stage of it again. One for which no job can be made is given up."""
    try:
        with session.begin_nested():
            if not stage:
                orders = rounds.begin(session, round_id)
            else:
                order = rounds.begin_again(session, round_id, stage)
                orders = [] if order is None else [order]
            return _jobs(server, session, orders) if orders else []
    except DBAPIError:
        raise
    except Exception:
        # else this round would undo the beginning of all others, for ever
        log.exception("there is no job for round %s", round_id)
        if current := locking.locked(session, round_id, if_free=True):
            combining.give_up(session, current, NO_JOB)
        return []


def _jobs(server: Server, session: Session, orders: list[RunOrder]) -> list[Outgoing]:
    """A job for each run of one round.

    Put together from JSON that was validated when it was stored; the machine validates the whole.
    """
    row = session.execute(
        select(Round.prepared, Round.rubric_version_id, Round.submission_id).where(
            Round.id == orders[0].round_id
        )
    ).one()
    version = server.versions.get(session, row.rubric_version_id)
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
                "material": version.material(order.stage),
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
        )
        for order in orders
    ]
