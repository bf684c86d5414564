"""Shadow runs, sent to idle machines, and what comes of them: parity of machines, trials of models.

The jobs are those of the rounds that graded the same work. Results come back without rounds or leases: as
answers that a machine leaves, as those of rehearsals.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, cast

from pydantic import ValidationError
from sqlalchemy.orm import Session

from grading.broker.canaries import examination_key
from grading.broker.celery_app import SHADOW, own_queue, stage_queues, unsaid
from grading.broker.machine_status import MachineState
from grading.domain.shadow_runs import ShadowOutcome
from grading.store import periodic_tasks
from grading.store.database import now
from grading.store.reporting import operations
from grading.store.rounds import lifecycle
from grading.store.rounds.lifecycle import RunOrder, Work
from grading.store.tables import ShadowRun
from grading.store.trust import parity, shadow_runs
from workers.server.admit import jobs
from workers.server.context import Server

log = logging.getLogger(__name__)
TASK = "shadow runs"
AGAIN = timedelta(0)
"""The sweeper comes again by itself; meanwhile no other one does the same."""
BESIDE_BUDGET_S = 60.0
"""For a message to arrive and an answer to be read."""
MOST_AT_ONCE = 16
NO_WORK = "no_work"
"""Code of a run whose submission's text was removed meanwhile."""
NOT_COMPARED = ("run_id", "round_id", "nonce", "attempt", "budget_s", "avoid", "alone", "draft")
"""Fields of a job that say nothing of what is graded."""


def sweep(server: Server) -> None:
    """Plan nights, read answers, send the next runs, compare: one sweeper at a time. Raises redis errors."""
    with server.store.read() as session:
        due = parity.assignments_due(session, parity.night_of(now(session)), _machines(server))
        if not due and not shadow_runs.any_open(session):
            return
        # what waits for a machine that is off for the night waits without a write
        moving = due or shadow_runs.busy_machines(session) or parity.judge(session)
    if not moving and not any(_next_for(server, state) for state in _free(server)):
        return
    with server.store.write() as session:
        periodic_tasks.schedule(session, TASK)
        if periodic_tasks.claim(session, TASK) is None:
            return
        for assignment_id in due:
            plan(server, session, assignment_id)
    try:
        collect(server)
        send(server)
        compare(server)
    finally:
        with server.store.write() as session:
            periodic_tasks.reschedule(session, TASK, AGAIN)


def plan(server: Server, session: Session, assignment_id: int) -> None:
    """Tonight's runs of an assignment's golden submissions, for all machines."""
    night = parity.night_of(now(session))
    count = parity.plan_night(session, assignment_id, night, _machines(server))
    log.info("parity of assignment %d: %d shadow runs for the night of %s", assignment_id, count, night)


def _machines(server: Server) -> dict[str, tuple[str, ...]]:
    """All machines with their stages."""
    return {machine.name: tuple(machine.stages) for machine in server.config.machines}


def collect(server: Server) -> None:
    """Record the answers that machines left, and take back what nobody answered."""
    with server.store.read() as session:
        questions = shadow_runs.list_questions(session)
    redis = server.dispatch.registry.redis
    keys = {question: examination_key(machine, question) for question, machine in questions.items()}
    rows = cast("list[str | None]", redis.mget(list(keys.values()))) if keys else []
    answers = {question: row for question, row in zip(keys, rows, strict=True) if row is not None}
    with server.store.write() as session:
        for question, row in answers.items():
            shadow_runs.record(session, question, _read(row))
        shadow_runs.take_back_overdue(session)
    if answers:
        redis.delete(*(keys[question] for question in answers))


def _read(row: str) -> dict[str, ShadowOutcome]:
    """A machine's answer, as far as it makes sense: machines are not trusted."""
    try:
        content = json.loads(row)
    except (ValueError, RecursionError):
        return {}
    found = {}
    for run_id, reported in content.items() if isinstance(content, dict) else ():
        try:
            found[str(run_id)] = ShadowOutcome.model_validate(reported, extra="ignore")
        except ValidationError as error:
            log.error("the outcome of shadow run %s was rejected: %d errors", run_id, error.error_count())
    return found


def send(server: Server) -> None:
    """Give each idle machine its next runs, as many as it has slots."""
    for state in _free(server):
        if _next_for(server, state):
            _send_to(server, state)


def _free(server: Server) -> list[MachineState]:
    """Machines that are idle and have no shadow runs, where no work waits for any."""
    states = [state for state in server.dispatch.machines() if _idle(state)]
    if not states or _work_waits(server):
        return []
    with server.store.read() as session:
        busy = shadow_runs.busy_machines(session)
    return [state for state in states if state.name not in busy]


def _next_for(server: Server, state: MachineState) -> bool:
    with server.store.read() as session:
        return bool(shadow_runs.next_for(session, state.name, _places(state), 1))


def _places(state: MachineState) -> dict[str, shadow_runs.Place]:
    return {stage: (place["engine"], place["model"]) for stage, place in state.stages.items()}


def _idle(state: MachineState) -> bool:
    return state.alive and not state.drained and not state.busy and not state.gateway_requests


def _work_waits(server: Server) -> bool:
    """Whether anything waits for any machine; also while that is not known."""
    backlog = server.dispatch.backlog()
    return backlog is None or any(backlog.get(name) for name in stage_queues(list(server.config.stages)))


def _send_to(server: Server, state: MachineState) -> None:
    question, most = uuid.uuid4().hex, min(state.slots, MOST_AT_ONCE)
    with server.store.write() as session:
        found = shadow_runs.next_for(session, state.name, _places(state), most)
        work = lifecycle.load_work(session, [run.round_id for run in found])
        runs = [run for run in found if work[run.round_id].prepared]
        shadow_runs.give_up(session, [run for run in found if run not in runs], NO_WORK)
        if not runs:
            return
        raw = [_message(server, session, run, work[run.round_id]) for run in runs]
        seconds = server.config.stages[runs[0].stage].budget_s + BESIDE_BUDGET_S
        shadow_runs.mark_sent(session, runs, state.name, question, seconds + BESIDE_BUDGET_S)
    until = server.dispatch.registry.time() + seconds
    server.dispatch.celery.send_task(
        SHADOW, args=[question, raw, until], queue=own_queue(state.name), ignore_result=True, **unsaid()
    )


def _message(server: Server, session: Session, run: ShadowRun, work: Work) -> dict[str, Any]:
    """The job of a run; its fence is the same each night: who wrote the work could not know it."""
    order = RunOrder(run.id, run.round_id, run.stage, 1, "batch")
    (outgoing,) = jobs(server, session, [order], work)
    job = {name: value for name, value in outgoing.job.items() if name != "draft"}
    fence = f"{run.submission_id} {run.stage}"
    job["nonce"] = hashlib.sha256(fence.encode()).hexdigest()[:16]
    run.job_hash = _hash(job)
    return {"job": job, "engine": run.engine, "model": run.model}


def _hash(job: Mapping[str, Any]) -> str:
    graded = {name: value for name, value in job.items() if name not in NOT_COMPARED}
    return hashlib.sha256(json.dumps(graded, sort_keys=True).encode()).hexdigest()


def compare(server: Server) -> None:
    """Compare the nights' runs that are complete, and report machines that were taken out."""
    with server.store.read() as session:
        judged = parity.judge(session)
    if not judged:
        return
    states = server.dispatch.machines()

    def able(stage: str) -> Collection[str]:
        return {one.name for one in states if one.alive and not one.drained and stage in one.stages}

    with server.store.write() as session:
        raised = [alarm for one in judged for alarm in parity.settle(session, one, able)]
        for alarm in raised:
            reasons = " ".join(one.message for one in parity.reasons(alarm))
            log.error("parity: machine %s, stage %s: %s", alarm.machine, alarm.stage, reasons)
        out = operations.list_out(session)
    if any(alarm.out for alarm in raised):
        server.dispatch.tell_out(out)
