"""The sweeper on a real Redis and both databases: what was lost is set going again, and nothing twice."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from grading.broker import celery_app
from grading.broker.dispatch import Outgoing
from grading.broker.heartbeats import DEAD_AFTER_S, Heartbeat, Lease
from grading.broker.leases import HEARTBEATS, LEASES, Leases
from grading.config.settings import Config, Database, Machine, Placement, load
from grading.domain.errors import for_student
from grading.domain.round_states import RoundState, RunState, StageState
from grading.scheduling.stalls import MARGIN_S
from grading.store import schema
from grading.store.database import now
from grading.store.reporting import operations
from grading.store.rounds import lifecycle
from grading.store.tables import Grade, Outbox, Round, RoundStage, Run
from tests.support.factories import add_assignment, result, submit
from tests.support.system import close_dispatch
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.context import Server, open_server
from workers.server.lost_runs import NOWHERE_S
from workers.server.prepare import prepare
from workers.server.sweeper import EVERY_S, STILL_S, UNANNOUNCED_S, Sweeper

BOTH = {stage: {"engine": "instant", "model": "m"} for stage in ("analysis", "feedback")}


@dataclass
class Clock:
    """A clock that tests set."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Cluster:
    """A server side, one sweeper with its own clock, and machines that are only heartbeats."""

    server: Server
    clock: Clock
    sweeper: Sweeper

    @property
    def leases(self) -> Leases:
        return self.server.dispatch.registry

    def heartbeat(self, machine: str = "dgx-spark-2", ago_s: float = 0.0, slots: int = 4) -> None:
        self.leases.heartbeat(Heartbeat(f"of {machine}", machine, slots, 0, BOTH))
        row = json.loads(self.leases.redis.hget(HEARTBEATS + machine, f"of {machine}"))
        self.leases.redis.hset(
            HEARTBEATS + machine, f"of {machine}", json.dumps({**row, "at": row["at"] - ago_s})
        )

    def running(self) -> str:
        """A round whose two stages are dispatched."""
        accepted = submit(self.server.store, add_assignment(self.server.store))
        assert prepare(self.server, accepted.round_id)
        self.heartbeat()
        assert admit_runs(self.server) == 2
        return accepted.round_id

    def take(self, round_id: str, stage: str, machine: str = "dgx-spark-2", phase: str = "starting") -> str:
        """A machine takes a run out of its queue and claims it."""
        run_id = self.current(round_id, stage)
        for name in celery_app.stage_queues([stage]):
            for row in self.leases.redis.lrange(name, 0, -1):
                if json.loads(row)["headers"]["id"] == run_id:
                    self.leases.redis.lrem(name, 1, row)
        lease = Lease(run_id, machine, f"of {machine}", stage, phase)
        assert self.leases.claim(lease, round_id).answer == "granted"
        return run_id

    def stood_still(self, run_id: str, seconds: float) -> None:
        """The run has not moved for so long."""
        key = LEASES + next(iter(self.leases.holders(run_id)))
        row = json.loads(self.leases.redis.hget(key, run_id))
        self.leases.redis.hset(key, run_id, json.dumps({**row, "moved": row["moved"] - seconds}))

    def stage(self, round_id: str, stage: str) -> RoundStage:
        with self.server.store.read() as session:
            return session.get_one(RoundStage, (round_id, stage))

    def message(self, run_id: str) -> dict[str, Any]:
        """The job that waits in a queue for this run."""
        for name in celery_app.stage_queues(list(BOTH)):
            for row in self.leases.redis.lrange(name, 0, -1):
                content = json.loads(row)
                if content["headers"]["id"] == run_id:
                    job: dict[str, Any] = json.loads(base64.b64decode(content["body"]))[1]["job"]
                    return job
        raise AssertionError(run_id)

    def current(self, round_id: str, stage: str) -> str:
        with self.server.store.read() as session:
            return str(session.get_one(RoundStage, (round_id, stage)).run_id)

    def runs(self, round_id: str, stage: str) -> list[str]:
        with self.server.store.read() as session:
            query = select(Run.state).where(Run.round_id == round_id, Run.stage == stage)
            return list(session.scalars(query.order_by(Run.attempt)))

    def tries(self, round_id: str, stage: str) -> int:
        with self.server.store.read() as session:
            return session.get_one(RoundStage, (round_id, stage)).tries

    def state(self, round_id: str) -> str:
        with self.server.store.read() as session:
            return session.get_one(Round, round_id).state

    def age(self, seconds: float) -> None:
        """Everything in SQL happened so much earlier, and so much time passes on the sweeper's clock."""
        with self.server.store.write() as session:
            moment = now(session) - timedelta(seconds=seconds)
            session.execute(update(Round).values(created_at=moment))
            session.execute(update(Outbox).values(not_before=moment))
            session.execute(update(Run).values(dispatched_at=moment))
        self.clock.at += seconds

    def waiting(self) -> set[str]:
        return self.leases.waiting(celery_app.stage_queues(list(BOTH)))

    def sweep(self) -> None:
        self.sweeper.step()

    def trust_heartbeats(self) -> None:
        """Redis and the sweeper have seen each other long enough to call a machine dead."""
        self.sweep()
        self.clock.at += DEAD_AFTER_S


@pytest.fixture
def cluster(
    fresh_database: Callable[..., str], redis_url: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    environ = {"GRADER_DATABASE_URL": fresh_database(schema.upgrade), "GRADER_REDIS_URL": redis_url}
    server, clock = open_server(load(root / "config.toml", environ)), Clock()
    # the Redis of the tests may be younger than the 10 s after which heartbeats are believed
    monkeypatch.setattr(server.dispatch.registry, "uptime_s", lambda: 3600.0)
    yield Cluster(server, clock, Sweeper(server, clock))
    close_dispatch(server.dispatch)
    server.store.close()


def test_a_round_that_was_never_announced_is_prepared(cluster: Cluster) -> None:
    accepted = submit(cluster.server.store, add_assignment(cluster.server.store))
    cluster.sweep()
    assert cluster.state(accepted.round_id) == RoundState.RECEIVED  # its announcement may still come
    cluster.age(UNANNOUNCED_S + 1)
    cluster.heartbeat()
    cluster.sweep()
    assert cluster.state(accepted.round_id) == RoundState.RUNNING
    assert cluster.waiting() == {cluster.current(accepted.round_id, s) for s in BOTH}


def test_the_run_of_a_dead_process_is_lost_and_sent_again_at_once(cluster: Cluster) -> None:
    round_id = cluster.running()
    dead = cluster.take(round_id, "analysis")
    cluster.trust_heartbeats()
    cluster.heartbeat("mac-studio-2")
    cluster.heartbeat("dgx-spark-2", ago_s=DEAD_AFTER_S + 1)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.LOST, RunState.DISPATCHED]
    assert cluster.runs(round_id, "feedback") == [RunState.DISPATCHED]  # its message still waits
    assert cluster.waiting() == {cluster.current(round_id, s) for s in BOTH}
    assert cluster.tries(round_id, "analysis") == 2
    assert [heartbeat.machine for heartbeat in cluster.leases.heartbeats()] == ["mac-studio-2"]
    # should the machine come back, its old run does not count any more
    late = cluster.leases.claim(Lease(dead, "dgx-spark-2", "x", "analysis"), round_id)
    assert late.answer == "superseded"


def test_a_live_machine_keeps_its_run(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.take(round_id, "analysis")
    cluster.trust_heartbeats()
    cluster.age(600)
    cluster.heartbeat(ago_s=DEAD_AFTER_S - 7)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]


def test_a_message_that_vanished_is_sent_again(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.leases.redis.flushall()
    cluster.heartbeat()
    cluster.sweep()
    cluster.age(NOWHERE_S - 1)
    cluster.sweep()
    assert cluster.waiting() == set()  # it may be on its way
    cluster.age(2)
    cluster.sweep()
    for stage in BOTH:
        assert cluster.runs(round_id, stage) == [RunState.LOST, RunState.DISPATCHED]
        assert cluster.tries(round_id, stage) == 1  # no machine had begun it
    assert cluster.waiting() == {cluster.current(round_id, s) for s in BOTH}


def test_a_message_handed_to_a_worker_that_died_before_its_claim_is_sent_again(cluster: Cluster) -> None:
    round_id = cluster.running()
    redis = cluster.leases.redis
    message = redis.lpop("analysis")
    redis.hset("unacked", "tag", json.dumps([json.loads(message), "", "analysis"]))
    cluster.sweep()
    cluster.clock.at += NOWHERE_S - 1
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]
    cluster.clock.at += 2
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.LOST, RunState.DISPATCHED]
    assert cluster.tries(round_id, "analysis") == 1
    assert cluster.runs(round_id, "feedback") == [RunState.DISPATCHED]


def hand_to(cluster: Cluster, machine: str) -> None:
    """Move the message of the analysis into the machine's own queue."""
    cluster.leases.redis.lmove("analysis", celery_app.own_queue(machine), "LEFT", "RIGHT")


def test_what_was_handed_to_a_live_machine_waits_there(cluster: Cluster) -> None:
    round_id = cluster.running()
    hand_to(cluster, "dgx-spark-2")
    cluster.sweep()
    cluster.age(NOWHERE_S + 1)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]


def test_what_was_handed_to_a_machine_that_died_is_sent_again(cluster: Cluster) -> None:
    round_id = cluster.running()
    hand_to(cluster, "mac-studio-1")
    cluster.sweep()
    cluster.age(NOWHERE_S + 1)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.LOST, RunState.DISPATCHED]
    assert cluster.current(round_id, "analysis") in cluster.waiting()


def test_a_complete_round_that_nobody_combined_is_combined(cluster: Cluster) -> None:
    """As a process that died between finding a run lost and combining leaves it."""
    round_id = cluster.running()
    for stage in BOTH:
        run_id = cluster.take(round_id, stage)
        with cluster.server.store.write() as session:
            lifecycle.record_results(session, [result(run_id, round_id, stage)])
        cluster.leases.give_back(cluster.leases.held_of([run_id])[run_id])
    assert cluster.state(round_id) == RoundState.RUNNING
    cluster.sweep()
    assert cluster.state(round_id) == RoundState.GRADED


def test_a_redis_that_just_came_back_makes_no_machine_dead(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = cluster.running()
    cluster.take(round_id, "analysis")
    cluster.trust_heartbeats()
    cluster.heartbeat(ago_s=60)  # as the append-only file kept it
    monkeypatch.setattr(cluster.leases, "uptime_s", lambda: DEAD_AFTER_S - 1)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]
    monkeypatch.setattr(cluster.leases, "uptime_s", lambda: DEAD_AFTER_S + 1)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis")[0] == RunState.LOST


def test_a_sweeper_that_just_started_makes_no_machine_dead(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.take(round_id, "analysis")
    cluster.heartbeat(ago_s=60)
    cluster.sweep()
    cluster.clock.at += DEAD_AFTER_S - 1
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]


class Rest(threading.Event):
    """Waiting that takes so many seconds on a clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self._clock, self._seconds = clock, seconds

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.at += self._seconds
        return False


def test_a_sweeper_that_stood_still_lets_machines_send_heartbeats_first(cluster: Cluster) -> None:
    """The computer was paused, and with it machines that are on it."""
    round_id = cluster.running()
    cluster.take(round_id, "analysis")
    cluster.trust_heartbeats()
    cluster.heartbeat(ago_s=60)
    cluster.sweeper.rest(Rest(cluster.clock, EVERY_S + STILL_S + 1))
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]
    for _ in range(3):
        cluster.sweeper.rest(Rest(cluster.clock, EVERY_S + STILL_S))  # late, as on a busy computer
        cluster.sweep()
    assert cluster.runs(round_id, "analysis")[0] == RunState.LOST


def test_the_third_loss_of_begun_work_makes_the_stage_dead(cluster: Cluster) -> None:
    round_id = cluster.running()
    done = cluster.take(round_id, "feedback")
    record.record(cluster.server, [result(done, round_id, "feedback")])
    cluster.leases.give_back(cluster.leases.held_of([done])[done])
    cluster.trust_heartbeats()
    for _ in range(lifecycle.MAX_TRIES):
        cluster.heartbeat("dgx-spark-2")
        cluster.heartbeat("mac-studio-2")
        cluster.sweep()
        cluster.take(round_id, "analysis")
        cluster.heartbeat("dgx-spark-2", ago_s=60)
        cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.LOST] * lifecycle.MAX_TRIES
    assert cluster.state(round_id) == RoundState.PARTIAL
    with cluster.server.store.read() as session:
        assert session.get_one(Round, round_id).failure == for_student("machine_lost")


def test_two_sweepers_at_once_change_nothing_twice(cluster: Cluster) -> None:
    lost, forgotten = cluster.running(), cluster.running()
    cluster.take(lost, "analysis")
    for stage in BOTH:
        run_id = cluster.take(forgotten, stage)
        record.record(cluster.server, [result(run_id, forgotten, stage)])
        cluster.leases.give_back(cluster.leases.held_of([run_id])[run_id])
    unannounced = submit(cluster.server.store, add_assignment(cluster.server.store)).round_id
    # another process: a lock of its own
    twin = Server(cluster.server.config, cluster.server.store, cluster.server.dispatch)
    sweepers = [cluster.sweeper, Sweeper(twin, cluster.clock)]
    for sweeper in sweepers:
        sweeper.lost._heartbeats_can_be_trusted()
    cluster.age(DEAD_AFTER_S + 1)
    cluster.heartbeat("dgx-spark-2", ago_s=60)
    cluster.heartbeat("mac-studio-2")
    together = threading.Barrier(2)
    failed: list[BaseException] = []

    def sweep(sweeper: Sweeper) -> None:
        together.wait()
        try:
            sweeper.step()
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=sweep, args=(sweeper,)) for sweeper in sweepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert cluster.runs(lost, "analysis") == [RunState.LOST, RunState.DISPATCHED]
    assert cluster.state(forgotten) == RoundState.GRADED
    assert cluster.state(unannounced) == RoundState.RUNNING
    with cluster.server.store.read() as session:
        assert session.scalar(select(func.count()).select_from(Grade)) == 1
    sent = [
        row
        for name in celery_app.stage_queues(list(BOTH))
        for row in cluster.leases.redis.lrange(name, 0, -1)
    ]
    assert len(sent) == len(cluster.waiting()) == 4


def test_a_run_that_was_written_but_not_sent_is_sent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = submit(cluster.server.store, add_assignment(cluster.server.store))
    prepare(cluster.server, accepted.round_id)
    cluster.heartbeat()

    def away(_self: object, _group: list[Outgoing]) -> None:
        raise ConnectionError("Redis is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(cluster.server.dispatch), "send", away)
        admit_runs(cluster.server)
    assert cluster.state(accepted.round_id) == RoundState.RUNNING
    assert cluster.waiting() == set()
    cluster.sweep()
    cluster.age(NOWHERE_S + 1)
    cluster.sweep()
    assert cluster.waiting() == {cluster.current(accepted.round_id, s) for s in BOTH}


def test_people_are_served_before_batches_and_only_as_much_as_machines_can_take(cluster: Cluster) -> None:
    assignment = add_assignment(cluster.server.store)
    for priority in ("batch", "interactive"):
        for number in range(12):
            accepted = submit(cluster.server.store, assignment, f"{priority}-{number}", priority=priority)
            prepare(cluster.server, accepted.round_id)
    assert admit_runs(cluster.server) == 0  # no machine is there
    cluster.heartbeat(slots=1)
    assert admit_runs(cluster.server) == 2 * 2 * 2  # twice what it takes, of each stage and priority
    cluster.heartbeat()  # 4 slots
    assert admit_runs(cluster.server) == 2 * 2 * (8 - 2)
    lengths = cluster.leases.lengths(celery_app.stage_queues(list(BOTH)))
    assert lengths == {"analysis": 8, "feedback": 8, "analysis.batch": 8, "feedback.batch": 8}
    assert admit_runs(cluster.server) == 0


def test_a_database_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(name="one", stages={"analysis": Placement(engine="rules", model="rules")})
    nowhere = Database(url="postgresql://grader@127.0.0.1:1/grader")
    server = open_server(Config(machines=(machine,), database=nowhere))
    Sweeper(server).step()
    assert "the database is unavailable" in caplog.text
    server.store.close()


def lose_together(cluster: Cluster, round_id: str) -> None:
    """A machine dies with both stages in its hands."""
    cluster.heartbeat("mac-studio-2")
    cluster.heartbeat("dgx-spark-2")
    for stage in BOTH:
        cluster.take(round_id, stage)
    cluster.heartbeat("dgx-spark-2", ago_s=60)
    cluster.sweep()


def test_runs_lost_together_cost_no_try_and_after_the_second_time_they_are_alone(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.trust_heartbeats()
    for losses, alone in ((1, False), (2, True)):
        lose_together(cluster, round_id)
        for name in BOTH:
            stage = cluster.stage(round_id, name)
            assert (stage.tries, stage.losses, stage.alone) == (1, losses, alone)  # the one under way now
            assert bool(cluster.message(cluster.current(round_id, name)).get("alone")) is alone


def test_a_run_that_waited_for_its_turn_was_not_begun(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.take(round_id, "analysis")
    cluster.take(round_id, "feedback", phase="waiting")
    cluster.trust_heartbeats()
    cluster.heartbeat("mac-studio-2")
    cluster.heartbeat("dgx-spark-2", ago_s=60)
    cluster.sweep()
    begun, waited = (cluster.stage(round_id, name) for name in ("analysis", "feedback"))
    assert (begun.tries, begun.losses, begun.alone) == (2, 1, False)  # nobody else can have killed it
    assert (waited.tries, waited.losses, waited.alone) == (1, 0, False)


def test_the_third_loss_is_the_last_also_when_the_first_was_shared(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.trust_heartbeats()
    for turn in range(lifecycle.MAX_LOSSES):
        cluster.heartbeat("dgx-spark-2")
        cluster.heartbeat("mac-studio-2")
        cluster.sweep()
        cluster.take(round_id, "analysis")
        if turn == 0:
            cluster.take(round_id, "feedback")
        cluster.heartbeat("dgx-spark-2", ago_s=60)
        cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.LOST] * 3
    assert cluster.stage(round_id, "analysis").state == StageState.DEAD
    assert cluster.stage(round_id, "feedback").losses == 1


def test_a_run_that_came_to_an_end_is_not_alone_any_more(cluster: Cluster) -> None:
    round_id = cluster.running()
    cluster.trust_heartbeats()
    for _ in range(2):
        lose_together(cluster, round_id)
    assert cluster.stage(round_id, "analysis").alone
    run_id = cluster.take(round_id, "analysis", "mac-studio-2")
    record.record(cluster.server, [result(run_id, round_id, "analysis", ok=False)])
    stage = cluster.stage(round_id, "analysis")
    assert (stage.alone, stage.tries, stage.state) == (False, 1, StageState.FAILED)


@pytest.mark.parametrize(
    ("phase", "tokens", "allowed_s"), [("loading", 0, 300), ("reading", 2000, 140), ("generating", 0, 60)]
)
def test_a_live_machine_that_stands_still_loses_the_run_to_others(
    cluster: Cluster, phase: str, tokens: int, allowed_s: float
) -> None:
    round_id = cluster.running()
    run_id = cluster.take(round_id, "analysis")
    cluster.trust_heartbeats()
    lease = Lease(run_id, "dgx-spark-2", "of dgx-spark-2", "analysis", phase, round_id=round_id)
    cluster.leases.progress(replace(lease, prompt_tokens=tokens))
    cluster.heartbeat()
    cluster.stood_still(run_id, allowed_s)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]
    cluster.stood_still(run_id, MARGIN_S + 2)
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.LOST, RunState.DISPATCHED]
    stage = cluster.stage(round_id, "analysis")
    assert (stage.avoid, stage.losses, stage.tries) == (["dgx-spark-2"], 1, 2)
    assert cluster.message(cluster.current(round_id, "analysis"))["avoid"] == ["dgx-spark-2"]


def test_a_late_result_of_a_lost_run_changes_nothing_once_another_counts(cluster: Cluster) -> None:
    round_id = cluster.running()
    first = cluster.take(round_id, "analysis")
    cluster.trust_heartbeats()
    cluster.heartbeat("mac-studio-2")
    cluster.heartbeat("dgx-spark-2", ago_s=60)
    cluster.sweep()
    second = cluster.take(round_id, "analysis", "mac-studio-2")
    assert record.record(cluster.server, [result(second, round_id, "analysis")])[0].outcome == "accepted"
    assert record.record(cluster.server, [result(first, round_id, "analysis")])[0].outcome == "duplicate"
    assert cluster.runs(round_id, "analysis") == [RunState.DUPLICATE, RunState.DONE]


def test_a_redis_that_forgot_everything_costs_a_live_machine_nothing(cluster: Cluster) -> None:
    round_id = cluster.running()
    run_id = cluster.take(round_id, "analysis")
    cluster.sweep()
    cluster.leases.redis.flushall()
    cluster.sweep()
    cluster.heartbeat()
    lease = Lease(run_id, "dgx-spark-2", "of dgx-spark-2", "analysis", "generating", 7, round_id=round_id)
    assert cluster.leases.progress(lease)
    cluster.clock.at += NOWHERE_S + 1
    cluster.sweep()
    assert cluster.runs(round_id, "analysis") == [RunState.DISPATCHED]
    assert cluster.runs(round_id, "feedback") == [RunState.LOST, RunState.DISPATCHED]


def test_drained_machines_are_told_to_a_redis_that_forgot_them(cluster: Cluster) -> None:
    with cluster.server.store.write() as session:
        operations.drain(session, "dgx-spark-2", "admin", "a new disk")
    cluster.sweep()
    assert cluster.leases.heartbeat(Heartbeat("p", "dgx-spark-2", 4, 0, BOTH))
    cluster.leases.redis.flushall()
    cluster.sweep()
    assert cluster.leases.heartbeat(Heartbeat("p", "dgx-spark-2", 4, 0, BOTH))
    with cluster.server.store.write() as session:
        assert operations.undrain(session, "dgx-spark-2", "admin")
    cluster.sweep()
    assert not cluster.leases.heartbeat(Heartbeat("p", "dgx-spark-2", 4, 0, BOTH))


@pytest.mark.parametrize("out", [True, False])
def test_what_an_operator_says_while_the_sweeper_tells_who_is_out_stays(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, out: bool
) -> None:
    store, told = cluster.server.store, []
    with store.write() as session:
        operations.set_drained(session, "dgx-spark-2", "admin", out=not out)
    tell = type(cluster.leases).drain

    def late(leases: Leases, machines: Iterable[str]) -> None:
        told.append(sorted(machines))
        if len(told) == 1:  # it read who is out, and has not said so
            with store.write() as session:
                now_out = operations.set_drained(session, "dgx-spark-2", "admin", out=out)
            tell(leases, now_out)
        tell(leases, machines)

    monkeypatch.setattr(type(cluster.leases), "drain", late)
    cluster.sweep()
    assert cluster.leases.heartbeat(Heartbeat("p", "dgx-spark-2", 4, 0, BOTH)) is out
    assert len(told) == 2
