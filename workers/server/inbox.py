"""Inboxes of the machines: signed results and messages, verified before anything is recorded.

An entry of an inbox is the id of a run, whose result the machine left under a key of its own, or a signed
message. Many results are taken at a time, written down in one transaction, and deleted after it: whatever
dies in between, the sweeper finds them.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from grading.broker.away import why_away
from grading.broker.celery_app import own_queue
from grading.broker.dispatch import AWAY, Entry, Left
from grading.broker.signing import Forged
from grading.domain.jobs import Result
from grading.domain.stages import is_background
from grading.shared.telemetry import working_on
from grading.store.away import why_away as why_sql_away
from grading.store.rounds import lifecycle
from grading.store.rounds.lifecycle import Recorded
from workers.server import record
from workers.server.admit import admit_after_result, admit_runs, jobs
from workers.server.context import Server
from workers.server.second_opinions import admit_opinions, take_back

log = logging.getLogger(__name__)
REFUSED = (
    "a message from machine %s was rejected: %s. If that machine is not compromised, create its Redis "
    "user again with `grader redis acl --machine` and give it that address."
)
RUN_ID = re.compile(r"[0-9a-f]{32}")
AT_ONCE = 16
"""Entries that are taken out of one inbox at once: whoever fills it keeps the others waiting for no more."""
ENOUGH = 32
"""From so many on no more are taken before these are done."""
LOOK_S = 1.0
"""How long one wait for an entry lasts, so that the end is noticed."""
RETRY_WAITS = (0.5, 1.0, 2.0, 5.0)
"""Seconds waited while Redis or the database is away; the last again and again."""


@dataclass(frozen=True)
class Inboxes:
    """Reads the inboxes of all machines until `stop`: the body of a thread. Any number may run."""

    server: Server
    stop: threading.Event

    def read(self) -> None:
        """Take what comes, and again what could not be written down."""
        entries: list[Entry] = []
        failures = 0
        while not self.stop.is_set():
            try:
                entries = entries or self.server.dispatch.wait_for_entry(LOOK_S)
                receive(self.server, entries)
                entries, failures = [], 0
            except (*AWAY, *record.SQL_AWAY) as error:
                why = why_sql_away(error) if isinstance(error, SQLAlchemyError) else why_away(error)
                log.warning("%s, %d results are not recorded yet, retrying: %s", why, len(entries), error)
                failures += 1
                self.stop.wait(RETRY_WAITS[min(failures, len(RETRY_WAITS)) - 1])
            except Exception:
                # the thread must outlive anything; what it left in Redis is found by the sweeper
                log.exception("the results of machines could not be read")
                entries = []


def receive(server: Server, entries: list[Entry]) -> None:
    """Do what is asked for by entries of inboxes, and by those found beside them, which are added.

    Raises redis and SQL errors; then all may come again.
    """
    left: list[Left] = []
    proven: list[Result] = []
    new = entries
    while new:
        runs = [entry for entry in new if RUN_ID.fullmatch(entry[1])]
        # what came meanwhile goes into the same transaction
        found, new = server.dispatch.left_results(runs, more=AT_ONCE if len(entries) < ENOUGH else 0)
        entries += new
        left += found
        proven += _proven(server, found)
    _record(server, left, proven)
    background = any(is_background(one.stage) for one in proven)
    for machine, entry in entries:
        if not RUN_ID.fullmatch(entry):
            _answer(server, machine, entry)
    if left:
        admit_after_result(server)
    if background:
        admit_opinions(server)


def record_left(server: Server, left: Sequence[Left]) -> list[Recorded]:
    """Write down results that lie in Redis, as far as they are proven, and delete them there."""
    return _record(server, left, _proven(server, left))


def _record(server: Server, left: Sequence[Left], proven: Sequence[Result]) -> list[Recorded]:
    recorded = record.record(server, proven)
    server.dispatch.delete_results(left)
    return recorded


def _proven(server: Server, left: Sequence[Left]) -> list[Result]:
    return [result for one in left if (result := _prove(server, one)) is not None]


def _prove(server: Server, left: Left) -> Result | None:
    content = _read(server, left.machine, left.content)
    if content is None or content[0] != "result" or content[1].get("run_id") != left.run_id:
        return None
    if left.holders and left.machine not in left.holders:
        log.error(
            "a result of machine %s was rejected: another machine has the lease of run %s",
            left.machine,
            left.run_id,
        )
        return None
    result = record.read(content[1])
    return None if result is None else _of(left.machine, result)


def _read(server: Server, machine: str, message: str) -> tuple[str, dict[str, Any]] | None:
    """Kind and content of a signed message; None, and a line in the log, when it is not proven."""
    try:
        return server.dispatch.keys.read(machine, json.loads(message))
    except (Forged, ValueError, RecursionError) as error:
        log.error(REFUSED, machine, error if isinstance(error, Forged) else type(error).__name__)
        return None


def _answer(server: Server, machine: str, message: str) -> None:
    """Do what a signed message asks for."""
    kind, content = _read(server, machine, message) or ("", {})
    if kind == "return":
        _send_on(server, machine, content)
    elif kind == "ready":
        admit_runs(server)
    elif kind:
        log.error(REFUSED, machine, "a result must be stored under the key of its run")


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
        log.info("run %s of machine %s is still running; it is not requeued", run_id, machine)
        return
    with server.store.write() as session:
        order = lifecycle.find_order(session, run_id)
        if order is not None and is_background(order.stage):
            take_back(session, order)
            return
        work = lifecycle.load_work(session, [order.round_id] if order else [])
        outgoing = jobs(server, session, [order], work[order.round_id]) if order else []
    others = [own_queue(one.name) for one in server.config.machines if one.name != machine]
    to = next((name for name in others if name == content.get("to")), "")
    if not outgoing:
        log.info("run %s of machine %s has finished; it is not requeued", run_id, machine)
    with working_on(run=run_id):
        for one in outgoing:
            try:
                server.dispatch.send([one], to)
            except AWAY as error:
                log.warning(
                    "%s, a returned run could not be requeued, the sweeper will requeue it: %s",
                    why_away(error),
                    error,
                )
            else:
                log.info("run %s of machine %s is requeued to %s", run_id, machine, to or "its queue")
