"""Finding lost runs: what breaks off, comes late, is of another version, or is there by the thousand."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from grading.broker.heartbeats import DEAD_AFTER_S, Lease
from grading.broker.leases import LEASES
from grading.domain.round_states import RunState, StageState
from grading.scheduling import stalls
from grading.store.rounds import lifecycle, queue
from grading.store.tables import Run
from tests.integration.broker.test_lost_and_stuck import (
    HERE,
    heartbeat,
    hold,
    looking,
    older,
    running,
    server,
    stage_of,
)
from tests.support.factories import add_assignment
from workers.server.context import Server
from workers.server.lost_runs import FIND_FOR_S, NOWHERE_S, LostRuns
from workers.server.sweeper import Sweeper

__all__ = ["server"]


def test_a_lease_of_an_unknown_stage_does_not_stop_the_search(server: Server) -> None:
    lost = looking(server)
    hold(server, "0" * 32, stage="style")
    older(server, "0" * 32, 100_000)
    run_id = running(server, add_assignment(server.store))["analysis"]
    hold(server, run_id)
    older(server, run_id, 10_000)
    heartbeat(server)
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.FAILED


def test_a_machine_is_not_dead_before_its_first_heartbeat(server: Server) -> None:
    """After FLUSHALL a machine may take new work up to 3 s before it sends heartbeats again."""
    lost = looking(server)
    run_id = running(server, add_assignment(server.store))["analysis"]
    hold(server, run_id)
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.DISPATCHED
    older(server, run_id, DEAD_AFTER_S + 1)
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.FAILED


def test_runs_of_a_dead_process_are_lost_together_also_when_the_search_breaks_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sweeper, or the next sweep, must not take the last of several for one that was alone."""
    assignment, lost = add_assignment(server.store), looking(server)
    runs = [running(server, assignment, f"s{number}")["analysis"] for number in range(3)]
    for run_id in runs:
        hold(server, run_id)
    heartbeat(server, ago_s=60)
    seen: list[int] = []
    really = lifecycle.mark_lost

    def lose(*arguments: Any, **options: Any) -> str | None:
        seen.append(len(server.dispatch.registry.held()))
        return really(*arguments, **options)

    monkeypatch.setattr(lifecycle, "mark_lost", lose)
    lost.sweep()
    assert seen == [3, 3, 3]
    assert server.dispatch.registry.held() == []
    assert [(stage_of(server, r).losses, stage_of(server, r).tries) for r in runs] == [(1, 0)] * 3


def test_a_run_that_waits_for_its_turn_for_ever_is_taken_away(server: Server) -> None:
    """A Redis that lost its last second may have forgotten that the run began, and that it ended."""
    lost = looking(server)
    run_id = running(server, add_assignment(server.store))["analysis"]
    hold(server, run_id, phase="waiting")
    heartbeat(server)
    lost.sweep()
    older(server, run_id, stalls.WAITING_S + 1)
    lost.sweep()
    stage = stage_of(server, run_id)
    assert (stage.state, stage.tries, stage.losses) == (StageState.FAILED, 0, 0)


def test_the_oldest_runs_are_looked_at_first(server: Server) -> None:
    assignment = add_assignment(server.store)
    runs = [running(server, assignment, f"s{number}")["analysis"] for number in range(3)]
    with server.store.write() as session:
        old = session.get_one(Run, runs[2])
        session.execute(
            update(Run).where(Run.id == old.id).values(dispatched_at=old.dispatched_at.replace(year=2020))
        )
    with server.store.read() as session:
        assert [run_id for run_id, _ in queue.list_in_flight(session, limit=1)] == [runs[2]]


def test_a_clock_of_redis_that_was_set_makes_no_machine_dead(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, leases = looking(server), server.dispatch.registry
    run_id = running(server, add_assignment(server.store))["analysis"]
    hold(server, run_id)
    heartbeat(server, ago_s=3600)
    moment = leases.time()
    monkeypatch.setattr(leases, "time", lambda: moment + 3600)
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.DISPATCHED
    monkeypatch.setattr(lost, "_redis_since", 1.0)  # a while later
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.FAILED


@pytest.mark.parametrize("later_s", [3600, -3600])
def test_another_clock_makes_no_run_stalled_and_no_dead_machine_live(
    server: Server, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    """As when a successor is promoted whose clock is off."""
    lost, leases = looking(server), server.dispatch.registry
    ids = running(server, add_assignment(server.store))
    hold(server, ids["analysis"])
    heartbeat(server, ago_s=0)
    moment = leases.time()
    monkeypatch.setattr(leases, "time", lambda: moment + later_s)
    lost.sweep()
    assert lost._aged(older_lease(leases.held()[0])).idle_s < DEAD_AFTER_S
    assert [one.alive for one in leases.heartbeats()] == [True]
    heartbeat(server, ago_s=later_s)  # by another clock, which nobody sends any more
    assert [one.alive for one in leases.heartbeats()] == [False]


def older_lease(lease: Lease) -> Lease:
    return replace(lease, idle_s=3600.0, since_s=3600.0)


def test_thousands_of_lost_messages_do_not_hold_up_the_sweep(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, assignment = [1000.0], add_assignment(server.store)
    lost = LostRuns(server, lambda: at[0])
    runs = [running(server, assignment, f"s{number}") for number in range(3)]
    lost.sweep()
    at[0] += NOWHERE_S + 1
    really = lost._find

    def slow(run_id: str) -> None:
        at[0] += FIND_FOR_S
        really(run_id)

    monkeypatch.setattr(lost, "_find", slow)
    lost.sweep()
    with server.store.read() as session:
        states = list(session.scalars(select(Run.state).order_by(Run.dispatched_at)))
    assert states.count(RunState.LOST) == 2
    assert set(states[-2:]) == {RunState.DISPATCHED}
    assert len(runs) == 3


def test_a_machine_of_version_0_1_that_stamps_no_movement_is_not_stalled(server: Server) -> None:
    lost, redis = looking(server), server.dispatch.registry.redis
    run_id = running(server, add_assignment(server.store))["analysis"]
    hold(server, run_id, phase="generating")
    older(server, run_id, 400)
    row = json.loads(str(redis.hget(LEASES + HERE, run_id)))
    redis.hset(LEASES + HERE, run_id, json.dumps({key: row[key] for key in row if key != "moved"}))
    heartbeat(server)
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.DISPATCHED
    older_by = json.dumps(
        {**json.loads(str(redis.hget(LEASES + HERE, run_id))), "since": row["since"] - 100_000}
    )
    redis.hset(LEASES + HERE, run_id, older_by)
    lost.sweep()
    assert stage_of(server, run_id).state == StageState.FAILED


def test_a_redis_that_takes_no_heartbeats_makes_no_machine_dead(server: Server) -> None:
    """It still answers when it has no memory left: then all machines are silent, and none has died."""
    sweeper, redis = Sweeper(server, time.monotonic), server.dispatch.registry.redis
    sweeper.lost._redis_since = time.monotonic() - 60
    run_id = running(server, add_assignment(server.store))["analysis"]
    hold(server, run_id)
    heartbeat(server, ago_s=60)
    used = str(redis.config_get("maxmemory")["maxmemory"])
    redis.config_set("maxmemory", 1)
    try:
        sweeper.step()
    finally:
        redis.config_set("maxmemory", used)
    sweeper.step()
    assert stage_of(server, run_id).state == StageState.DISPATCHED
