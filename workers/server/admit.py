"""Admitting runs to the stages' queues, in fair order, with the examples that their prompts show."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from grading.broker.away import why_away
from grading.broker.dispatch import AWAY, Outgoing, Room
from grading.domain.round_states import PRIORITIES
from grading.domain.rubric import Rubric
from grading.shared.telemetry import mark, working_on
from grading.store.completion import finish_round
from grading.store.experiments.examples import MOST_CHARS, PER_CRITERION
from grading.store.rounds import lifecycle, locking, queue
from grading.store.rounds.example_usage import load_examples
from grading.store.rounds.lifecycle import RunOrder, Work
from grading.store.rounds.queue import DueRetry, NextRound
from workers.server.context import Server
from workers.server.messages import NO_JOB
from workers.server.rubric_cache import Version, Versions

Shown = Mapping[str, list[dict[str, Any]]]
"""Stage -> examples as JSON."""


def examples_for(
    session: Session, versions: Versions, version: Version, submission_id: str, student_id: int
) -> Shown:
    """What the models of this submission's stages are shown.

    Only for criteria that have the levels they had when the example was chosen, and within the bounds,
    whatever the table holds.
    """
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    criteria = {criterion.id: criterion for criterion in version.rubric.criteria}
    count: dict[str, int] = defaultdict(int)
    chars = 0
    for example, version_id in load_examples(session, version.assignment_id, submission_id, student_id):
        criterion = criteria.get(example.criterion)
        if criterion is None or version_id is None:
            continue
        then = _highest(versions.get(session, version_id).rubric, example.criterion)
        size = len(example.excerpt) + len(example.reason)
        if then != criterion.highest or count[criterion.id] >= PER_CRITERION or chars + size > MOST_CHARS:
            continue
        count[criterion.id] += 1
        chars += size
        found[criterion.stage].append(example.model_dump(mode="json"))
    return found


def _highest(rubric: Rubric, criterion: str) -> int | None:
    return next((one.highest for one in rubric.criteria if one.id == criterion), None)


log = logging.getLogger(__name__)
T = TypeVar("T")
Kind = tuple[str, str]
"""Stage and priority."""
AT_ONCE = 16
"""Rounds begun in one transaction, and single stages."""
BATCH_EVERY = 8
"""One of so many is batch work, whatever else waits."""
NOTHING_S = 1.0
"""After a pass that left nothing waiting, results ask for none so long."""
FULL_S = 0.02
"""The same after one that left something: machines have several runs waiting in their queues."""


@dataclass(frozen=True)
class Taken:
    """What one pass takes out of SQL."""

    outgoing: Sequence[Outgoing] = ()
    left: bool = False
    """Something may still wait."""
    more: bool = False
    """It was only a part, so that results are recorded before the next."""


def admit_runs(server: Server) -> int:
    """Dispatch what there is room for; returns the number of runs sent. Safe to call from anywhere.

    One thread a process does it at a time; whoever finds it busy leaves the wish to that thread. A run is
    written down before it is sent: when sending fails, the sweeper finds it missing and sends it again.
    """
    sent, passes = 0, server.passes
    passes.wanted.set()
    while passes.wanted.is_set() and passes.busy.acquire(blocking=False):
        try:
            passes.wanted.clear()
            sent += _pass(server)
        finally:
            passes.busy.release()
    return sent


def admit_after_result(server: Server) -> None:
    """Dispatch, as a run has left its queue; unless a pass a moment ago found nothing to send, or no room.

    Whoever makes a round or a stage wait calls `release` itself, and the sweeper looks every few seconds.
    """
    if server.passes.clock() >= server.passes.rest_until:
        admit_runs(server)


def _pass(server: Server) -> int:
    """One chunk, so that results are recorded between two."""
    try:
        taken = _take(server, server.dispatch.room())
        _send(server, taken.outgoing)
        server.told.tell(server.store, server.dispatch, left=taken.left)
    except AWAY as error:
        log.warning("%s, no runs are sent to the queues: %s", why_away(error), error)
        return 0
    server.passes.rest_until = server.passes.clock() + (FULL_S if taken.left else NOTHING_S)
    if taken.more:
        server.dispatch.release()
    return len(taken.outgoing)


def _send(server: Server, outgoing: Sequence[Outgoing]) -> None:
    if not outgoing:
        return
    began_ns = time.time_ns()
    server.dispatch.send(outgoing)
    for one in outgoing:
        about = {"submission": one.submission_id, "round": one.round_id, "run": one.run_id}
        with working_on(**about, stage=one.stage):
            log.info("run %s (%s of round %s) sent to its queue", one.run_id, one.stage, one.round_id)
        mark("dispatch", one.round_id, began_ns, one.run_id, **{"grader.stage": one.stage})


def _take(server: Server, room: Mapping[Kind, Room]) -> Taken:
    """What goes out now."""
    free = {kind: of.refill for kind, of in room.items() if of.refill > 0}
    if not free:
        return Taken(left=True)
    with server.store.write(derived=True) as session:
        what = queue.load_pending_work(session)
        due_places = {kind: min(places, AT_ONCE) for kind, places in free.items()} if what.due else {}
        again = queue.list_due_retries(session, due_places)
        taken = Counter((one.stage, one.priority) for one in again)
        places = {p: min(_places(room, taken, p), AT_ONCE) for p in PRIORITIES}
        queued = {p: queue.next_queued(session, p, places[p]) if p in what.queued else [] for p in PRIORITIES}
        due = _mixed(*([one for one in again if one.priority == p] for p in PRIORITIES))
        new = _mixed(*(queued[p] for p in PRIORITIES))
        outgoing = _begin(server, session, due, new)
    # where fewer were found than could go, none is left
    left = bool(again) or any(len(queued[p]) >= places[p] for p in PRIORITIES)
    return Taken(outgoing, left, more=bool(outgoing) and AT_ONCE in (len(new), len(due)))


def _places(room: Mapping[Kind, Room], taken: Mapping[Kind, int], priority: str) -> int:
    """Rounds that may begin: as many as the emptiest queue has room for, though another stage's gets longer.

    Machines that can do the one must not stand idle because the other gets on more slowly.
    """
    left = [
        (of.refill - taken.get(k, 0), of.most - taken.get(k, 0)) for k, of in room.items() if k[1] == priority
    ]
    return max(0, min(max(usual for usual, _ in left), *(most for _, most in left)))


def _mixed(interactive: Sequence[T], batch: Sequence[T]) -> list[T]:
    """One chunk: those somebody waits for first, and of batch work what is left, or its share."""
    kept = min(len(batch), max(AT_ONCE - len(interactive), AT_ONCE // BATCH_EVERY))
    return [*interactive[: AT_ONCE - kept], *batch[:kept]]


def _begin(
    server: Server, session: Session, again: Sequence[DueRetry], new: Sequence[NextRound]
) -> list[Outgoing]:
    """Begin single stages whose next try is due, then rounds that were waiting."""
    if not again and not new:
        return []
    orders = [[one] for due in again if (one := lifecycle.next_order(session, due.round_id, due.stage))]
    orders += lifecycle.first_orders(session, [following.round_id for following in new])
    work = lifecycle.load_work(session, [group[0].round_id for group in orders])
    sent = [(group, _jobs_of_round(server, session, group, work)) for group in orders]
    lifecycle.mark_dispatched(session, [order for group, made in sent if made for order in group])
    begun = {group[0].round_id for group, made in sent if made}
    queue.mark_served(session, [following for following in new if following.round_id in begun])
    return [one for _, made in sent for one in made]


def _jobs_of_round(
    server: Server, session: Session, orders: Sequence[RunOrder], work: Mapping[str, Work]
) -> list[Outgoing]:
    """Jobs for runs of one round. A round for which none can be made becomes dead."""
    try:
        return jobs(server, session, orders, work[orders[0].round_id])
    except DBAPIError:
        raise
    except Exception:
        # else this round would undo the beginning of all others, for ever
        log.exception("the jobs of round %s could not be created", orders[0].round_id)
        if current := locking.lock_round(session, orders[0].round_id):
            finish_round.fail_round(session, current, NO_JOB())
        return []


def jobs(
    server: Server, session: Session, orders: Sequence[RunOrder], work: Work, material: str = ""
) -> list[Outgoing]:
    """A job for each run of one round; with `material`, all with that stage's, and without examples.

    Put together from JSON that was validated when it was stored; the machine validates the whole.
    """
    version = server.versions.get(session, work.rubric_version_id)
    examples: Shown = {}
    if work.taught and not material:
        examples = examples_for(session, server.versions, version, work.submission_id, work.student_id)
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
                "material": version.material(material or order.stage, examples.get(order.stage, ())),
                "rubric": version.rubric_json,
                "documents": work.prepared["documents"],
                "evidence": work.prepared["hidden_evidence"],
                "nonce": secrets.token_hex(8),
                # only what there is to say: machines of an earlier version do not know the words
                **server.config.stages[order.stage].model_dump(exclude_none=True),
                **({"draft": True} if version.show_draft else {}),
                **({"avoid": order.avoid} if order.avoid else {}),
                **({"alone": True} if order.alone else {}),
            },
            work.submission_id,
            again=order.attempt > 1,
        )
        for order in orders
    ]
