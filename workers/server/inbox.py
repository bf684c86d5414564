"""What machines tell the server, each in an inbox of its own: nothing of it counts before it is proven."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from grading.dispatch import AWAY
from grading.jobs import Result
from grading.logs import working_on
from grading.queue import own_queue
from grading.signing import Forged
from grading.store import rounds
from grading.store.rounds import Recorded
from workers.server import finish
from workers.server.context import Server
from workers.server.release import jobs, release

log = logging.getLogger(__name__)
REFUSED = (
    "a message from machine %s was refused: %s. If that machine is in order, make its user in Redis anew "
    "with `grader redis acl --machine` and give it that address."
)


def receive(server: Server, machine: str, message: object) -> Recorded | None:
    """What came out of the inbox of `machine`; what became of it, if it was a result. Raises SQL errors."""
    try:
        kind, content = server.dispatch.keys.read(machine, message)
    except Forged as error:
        log.error(REFUSED, machine, error)
        return None
    if kind == "result":
        return _record(server, machine, content)
    if kind == "return":
        _send_on(server, machine, content)
    else:
        release(server)
    return None


def receive_copy(server: Server, machine: str, run_id: str, copy: str) -> Recorded | None:
    """The copy of a result of this run that `machine` left; None when it is none. Raises SQL errors."""
    try:
        kind, content = server.dispatch.keys.read(machine, json.loads(copy))
    except (Forged, ValueError, RecursionError) as error:
        log.error(REFUSED, machine, type(error).__name__)
        return None
    if kind != "result" or content.get("run_id") != run_id:
        return None
    return _record(server, machine, content)


def _record(server: Server, machine: str, content: Mapping[str, Any]) -> Recorded | None:
    result = finish.read(content)
    if result is None:
        return None
    holders = server.dispatch.holders(result.run_id)
    if holders and machine not in holders:
        log.error("a result of machine %s was refused: run %s is in other hands", machine, result.run_id)
        return None
    return finish.record(server, _of(machine, result))


def _of(machine: str, result: Result) -> Result:
    """With the machine that sent it, whatever it says of itself."""
    how = result.provenance.model_copy(update={"machine": machine})
    return result.model_copy(update={"provenance": how})


def _send_on(server: Server, machine: str, content: Mapping[str, Any]) -> None:
    """A run that its machine does not do goes to another one, or back to the queue of its stage.

    It is put together anew: what another machine is to do is not taken from this one.
    """
    run_id = str(content.get("run_id"))
    if server.dispatch.holders(run_id):
        # a machine that connects again gives back all messages, and keeps its leases
        log.info("run %s of machine %s goes on; its message is not sent again", run_id, machine)
        return
    with server.store.write() as session:
        order = rounds.under_way(session, run_id)
        work = rounds.work_of(session, [order.round_id] if order else [])
        outgoing = jobs(server, session, [order], work[order.round_id]) if order else []
    others = [own_queue(one.name) for one in server.config.machines if one.name != machine]
    to = next((name for name in others if name == content.get("to")), "")
    if not outgoing:
        log.info("run %s of machine %s is over; it is not sent again", run_id, machine)
    with working_on(run=run_id):
        for one in outgoing:
            try:
                server.dispatch.send([one], to)
            except AWAY as error:
                log.warning("redis is away, a run that was given back is found missing later: %s", error)
            else:
                log.info("run %s of machine %s goes to %s", run_id, machine, to or "its queue")
