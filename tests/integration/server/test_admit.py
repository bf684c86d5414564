"""What is let out of SQL for people and for batches, and what machines are told of the rest; a real Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grading.broker import celery_app
from grading.broker.dispatch import DEEPEST, Dispatch, Outgoing, open_dispatch
from grading.broker.heartbeats import BACKLOG, FRESH_S, Backlog, Heartbeat
from grading.broker.leases import HEARTBEATS, Leases
from grading.config.settings import Config, Database, load
from grading.store import Store, schema
from grading.store.rounds import preparing
from tests.support.factories import add_assignment, submit
from tests.support.queued_rounds import PREPARED, all_steps, fill
from tests.support.services import Prepare, SqliteDatabases
from tests.support.system import close_dispatch
from workers.server.admit import AT_ONCE, BATCH_EVERY, NOTHING_S, _mixed, admit_after_result, admit_runs
from workers.server.context import EVERY_S, FEW, Server, Told

BOTH = {stage: {"engine": "mlx", "model": "m"} for stage in ("analysis", "feedback")}
KINDS = [(stage, priority) for stage in BOTH for priority in ("interactive", "batch")]


@pytest.fixture
def settings(redis_url: str, root: Path) -> Config:
    return load(root / "config.toml", {"GRADER_REDIS_URL": redis_url})


@pytest.fixture
def dispatch(settings: Config) -> Iterator[Dispatch]:
    made = open_dispatch(settings)
    yield made
    close_dispatch(made)


@contextmanager
def running(settings: Config, url: str) -> Iterator[Server]:
    made = Server(
        settings.model_copy(update={"database": Database(url=url)}), Store(url), open_dispatch(settings)
    )
    yield made
    made.store.close()
    close_dispatch(made.dispatch)


@pytest.fixture
def server(settings: Config, fresh_database: Callable[[Prepare | None], str]) -> Iterator[Server]:
    with running(settings, fresh_database(schema.upgrade)) as made:
        yield made


@pytest.fixture
def on_sqlite(settings: Config, sqlite_databases: SqliteDatabases) -> Iterator[Server]:
    with running(settings, sqlite_databases.fresh(schema.upgrade)) as made:
        yield made


def heartbeat(leases: Leases, machine: str = "one", slots: int = 8, **other: Any) -> None:
    leases.heartbeat(Heartbeat(f"of {machine}", machine, slots, 0, BOTH, **other))


def send(dispatch: Dispatch, number: int, priority: str = "interactive", content: str = "") -> None:
    job = {"run_id": f"run-{number}", "content": content}
    dispatch.send([Outgoing(f"run-{number}", f"round-{number}", "analysis", priority, job)])


def waiting_round(store: Store, priority: str = "interactive") -> str:
    round_id = submit(store, add_assignment(store), f"{priority} one", priority=priority).round_id
    with store.write() as session:
        assert preparing.save_prepared(session, round_id, PREPARED)
    return round_id


# --- room -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "interactive", "batch"),
    [
        ({}, 16, 16),
        ({"limit": 3}, 6, 6),
        ({"reserved": "batch"}, 0, 16),
        ({"reserved": "testing"}, 0, 0),
        ({"circuits": {"mlx": {"state": "open"}}}, 0, 0),
        ({"circuits": {"mlx": {"state": "probing"}}}, 0, 0),
        ({"circuits": {"ollama": {"state": "open"}, "mlx": {"state": "closed"}}}, 16, 16),
        ({"drained": True}, 0, 0),
    ],
    ids=str,
)
def test_there_is_room_for_what_machines_take(
    dispatch: Dispatch, said: dict[str, Any], interactive: int, batch: int
) -> None:
    heartbeat(dispatch.registry, **said)
    for (_, priority), room in dispatch.room().items():
        places = {"interactive": interactive, "batch": batch}[priority]
        assert (room.refill, room.most) == (places, places * DEEPEST / 2)


def test_a_machine_of_an_earlier_version_counts_with_all_its_slots(dispatch: Dispatch) -> None:
    heartbeat(dispatch.registry)
    redis = dispatch.registry.redis
    row = json.loads(redis.hget(HEARTBEATS + "one", "of one"))
    for name in ("limit", "reserved", "circuits", "speed_profiles", "running"):
        del row[name]
    redis.hset(HEARTBEATS + "one", "of one", json.dumps(row))
    assert {room.refill for room in dispatch.room().values()} == {16}


def test_batch_work_takes_no_room_from_people_and_people_none_from_it(dispatch: Dispatch) -> None:
    heartbeat(dispatch.registry, slots=2)
    for priority in ("batch", "interactive"):
        for number in range(4):
            send(dispatch, number, priority)
        expected = dict.fromkeys(KINDS, 4) | {("analysis", priority): 0}
        if priority == "interactive":
            expected["analysis", "batch"] = 0
        assert {kind: room.refill for kind, room in dispatch.room().items()} == expected


def test_a_stage_whose_queue_runs_dry_does_not_wait_for_the_other_one(server: Server) -> None:
    """Feedback gets on slowly here: what waits for it may get longer, but not without end."""
    fill(server.store, waiting_round(server.store), 100)
    redis = server.dispatch.registry.redis
    heartbeat(server.dispatch.registry, slots=2)
    sent = 0
    while chunk := admit_runs(server):
        redis.delete("analysis")
        sent += chunk // 2
    assert sent == redis.llen("feedback")
    assert 2 * (DEEPEST - 2) <= sent <= 2 * DEEPEST


def test_nothing_begins_while_nobody_does_one_of_its_stages(server: Server) -> None:
    waiting_round(server.store)
    only = {"analysis": BOTH["analysis"]}
    server.dispatch.registry.heartbeat(Heartbeat("of one", "one", 8, 0, only))
    assert admit_runs(server) == 0


def test_one_of_eight_of_a_chunk_is_batch_work_whoever_waits() -> None:
    people, many = [f"p{n}" for n in range(40)], [f"b{n}" for n in range(40)]
    both = _mixed(people[:AT_ONCE], many[:AT_ONCE])
    assert both == [*people[: AT_ONCE - 2], *many[:2]]
    assert BATCH_EVERY * 2 == AT_ONCE == len(both)
    assert _mixed(people[:3], many) == [*people[:3], *many[: AT_ONCE - 3]]
    assert _mixed(people[:AT_ONCE], []) == people[:AT_ONCE]
    assert _mixed(people[:AT_ONCE], many[:1]) == [*people[: AT_ONCE - 1], many[0]]


def test_people_find_room_beside_a_batch_and_it_goes_on_beside_them(server: Server) -> None:
    """Far more of both than there is room for: each gets as much as machines can soon take of it."""
    for priority in ("batch", "interactive"):
        fill(server.store, waiting_round(server.store, priority), 20, priority=priority)
        if priority == "batch":
            heartbeat(server.dispatch.registry, slots=2)
            assert admit_runs(server) == 2 * 4
            assert admit_runs(server) == 0
    assert admit_runs(server) == 2 * 4  # people find theirs all the same
    lengths = server.dispatch.registry.lengths(celery_app.stage_queues(list(BOTH)))
    assert set(lengths.values()) == {4}
    server.dispatch.registry.redis.delete("analysis.batch", "feedback.batch")
    assert admit_runs(server) == 2 * 4  # and people who still wait do not stop it


def test_a_chunk_costs_the_same_whatever_waits(on_sqlite: Server) -> None:
    """The whole of it: room, order, beginning, sending, telling. Plans on both are in test_fair_line.py."""
    server = replace(on_sqlite, told=Told(lambda: 0.0))  # what is counted once a second is counted once
    first = {priority: waiting_round(server.store, priority) for priority in ("interactive", "batch")}
    costs = []
    for after, more in ((0, FEW), (FEW, 10_000)):
        for priority, of in first.items():
            fill(server.store, of, more, priority=priority, after=after)
        redis = server.dispatch.registry.redis
        redis.delete(*celery_app.stage_queues(list(BOTH)))
        heartbeat(server.dispatch.registry)
        admit_runs(server)
        redis.delete(*celery_app.stage_queues(list(BOTH)))
        with all_steps(server.store) as steps:
            assert admit_runs(server) == 2 * AT_ONCE
        costs.append(steps[0])
    assert costs[1] <= costs[0] * 1.1, costs


# --- what machines are told -------------------------------------------------------------------------------


def test_the_backlog_is_told_whole_and_old_words_are_not_believed(dispatch: Dispatch) -> None:
    backlog = Backlog(dispatch.registry.redis)
    assert backlog.read() == {}
    backlog.tell({("analysis", "interactive"): 3, ("feedback", "batch"): 2_000})
    assert backlog.read() == {("analysis", "interactive"): 3, ("feedback", "batch"): 2_000}
    assert dispatch.registry.look([]).backlog == backlog.read()
    backlog.tell({("analysis", "batch"): 1})
    assert backlog.read() == {("analysis", "batch"): 1}
    backlog.tell({})
    assert backlog.read() == {}
    backlog.tell({("analysis", "batch"): 1})
    told = float(dispatch.registry.redis.hget(BACKLOG, "at"))
    dispatch.registry.redis.hset(BACKLOG, "at", str(told - FRESH_S - 1))
    assert backlog.read() == {}
    assert dispatch.registry.look([]).backlog == {}


def test_a_release_tells_what_still_waits(server: Server) -> None:
    fill(server.store, waiting_round(server.store, "batch"), 9, priority="batch")
    assert admit_runs(server) == 0  # no machine is there
    told = Backlog(server.dispatch.registry.redis)
    assert told.read() == {("analysis", "batch"): 10, ("feedback", "batch"): 10}
    heartbeat(server.dispatch.registry, slots=2)
    assert admit_runs(server) == 8
    assert told.read() == {("analysis", "batch"): 6, ("feedback", "batch"): 6}


def test_much_is_counted_once_a_second(server: Server) -> None:
    moment = [100.0]
    told, read = Told(lambda: moment[0]), Backlog(server.dispatch.registry.redis).read
    of = waiting_round(server.store)
    fill(server.store, of, FEW)
    for after, later_s in ((FEW, EVERY_S / 2), (FEW + 5, EVERY_S)):
        told.tell(server.store, server.dispatch, left=True)
        fill(server.store, of, 5, after=after)
        moment[0] += later_s
        assert read()["analysis", "interactive"] == FEW + 1
    told.tell(server.store, server.dispatch, left=True)
    assert read()["analysis", "interactive"] == FEW + 11


# --- what machines see ------------------------------------------------------------------------------------


def test_a_look_tells_how_long_the_oldest_has_waited(dispatch: Dispatch) -> None:
    leases = dispatch.registry
    heartbeat(leases)
    names = celery_app.stage_queues(list(BOTH))
    assert leases.look(names).oldest_s == {}
    for number in range(3):
        send(dispatch, number, content="x" * 200_000)
    send(dispatch, 3, "batch")
    look = leases.look(names)
    assert look.lengths == {"analysis": 3, "feedback": 0, "analysis.batch": 1, "feedback.batch": 0}
    assert [one.machine for one in look.heartbeats] == ["one"]
    assert set(look.oldest_s) == {"analysis", "analysis.batch"}
    assert look.oldest_s["analysis"] >= look.oldest_s["analysis.batch"]
    # the oldest is what is taken next; a machine may count what it may not read
    age_message(leases, "analysis", 100.0)
    assert 100 <= leases.look(names).oldest_s["analysis"] < 160
    assert set(leases.look(names, mine=["analysis.batch"]).oldest_s) == {"analysis.batch"}
    assert leases.look(names, mine=[]).lengths == look.lengths


def test_a_run_that_begins_again_is_taken_next(dispatch: Dispatch) -> None:
    """Its owner has waited a turn already; the machine it was on may have died."""
    for number in range(2):
        send(dispatch, number)
    job = {"run_id": "lost", "content": ""}
    dispatch.send([Outgoing("lost", "round-9", "analysis", "interactive", job, again=True)])
    redis = dispatch.registry.redis
    taken = [json.loads(redis.rpop("analysis"))["headers"]["id"] for _ in range(3)]
    assert taken == ["lost", "run-0", "run-1"]


def age_message(leases: Leases, name: str, by_s: float) -> None:
    """The oldest message was sent earlier than it was."""
    message = json.loads(leases.redis.rpop(name))
    message["headers"][celery_app.SENT] -= by_s
    leases.redis.rpush(name, json.dumps(message))


def test_a_message_without_a_time_has_no_age(dispatch: Dispatch) -> None:
    """Of a server of an earlier version; and what a student wrote is not taken for one."""
    said = '"grader_sent": 1.0'
    send(dispatch, 1, content=said)
    message = json.loads(dispatch.registry.redis.rpop("analysis"))
    del message["headers"][celery_app.SENT]
    dispatch.registry.redis.rpush("analysis", json.dumps(message))
    look = dispatch.registry.look(["analysis"])
    assert (look.lengths, look.oldest_s) == ({"analysis": 1}, {})


def test_runs_of_a_round_say_when_they_were_sent(server: Server) -> None:
    """Several messages go out at once elsewhere than one."""
    waiting_round(server.store)
    heartbeat(server.dispatch.registry)
    before = server.dispatch.registry.time()
    assert admit_runs(server) == 2
    for stage in BOTH:
        row = server.dispatch.registry.redis.lindex(stage, -1)
        assert before - 1 <= json.loads(row)["headers"][celery_app.SENT] <= server.dispatch.registry.time()
    assert set(server.dispatch.registry.look(list(BOTH)).oldest_s) == set(BOTH)


def test_runs_go_out_on_a_connection_that_redis_closed(dispatch: Dispatch) -> None:
    """As after a restart of Redis: what is kept in a pool is closed on the other side."""
    send(dispatch, 1)
    dispatch.registry.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
    send(dispatch, 2)
    rows = dispatch.registry.redis.lrange("analysis", 0, -1)
    assert {json.loads(row)["headers"]["id"] for row in rows} == {"run-1", "run-2"}


def test_results_ask_for_no_pass_while_there_is_nothing_to_send(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment, passes = [0.0], []
    monkeypatch.setattr(server.passes, "clock", lambda: moment[0])
    heartbeat(server.dispatch.registry)
    room = type(server.dispatch).room
    monkeypatch.setattr(type(server.dispatch), "room", lambda self: passes.append(1) or room(self))
    admit_after_result(server)
    admit_after_result(server)
    assert len(passes) == 1
    waiting_round(server.store)  # who makes it wait asks by itself
    assert admit_runs(server) == 2
    moment[0] += NOTHING_S
    admit_after_result(server)
    assert len(passes) == 3
