"""What an adversary would try on leases, sweeps and records: nothing stuck, no bad case blocks the rest."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from cli.commands.machines import _wait_out
from cli.main import grader
from grading.broker.dispatch import open_dispatch
from grading.broker.heartbeats import DEAD_AFTER_S, Heartbeat, Lease
from grading.broker.leases import HEARTBEATS, LEASES
from grading.config.settings import load
from grading.domain.errors import GraderError
from grading.domain.jobs import Tokens
from grading.domain.messages import verbatim
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState, RunState, StageState
from grading.domain.rubric import Criterion, Rubric
from grading.store import schema
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.grades import release as grade_release
from grading.store.privacy import erasure
from grading.store.privacy.erasure import find_student
from grading.store.rounds import preparing, retry
from grading.store.tables import Grade, Outbox, Round, RoundStage, Run
from tests.support.factories import COURSE, RUBRIC, add_assignment, begin_round, begin_stage, result, submit
from tests.support.german import in_german
from tests.support.system import close_dispatch
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.context import Server, open_server
from workers.server.lost_runs import LostRuns
from workers.server.messages import NO_JOB
from workers.server.prepare import prepare

BOTH = {stage: {"engine": "instant", "model": "m"} for stage in ("analysis", "feedback")}
HERE = "dgx-spark-2"


@pytest.fixture
def server(
    fresh_database: Callable[..., str], redis_url: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    environ = {"GRADER_DATABASE_URL": fresh_database(schema.upgrade), "GRADER_REDIS_URL": redis_url}
    made = open_server(load(root / "config.toml", environ))
    monkeypatch.setattr(made.dispatch.registry, "uptime_s", lambda: 3600.0)
    yield made
    close_dispatch(made.dispatch)
    made.store.close()


def looking(server: Server) -> LostRuns:
    """Eyes that have seen Redis long enough to believe the heartbeats."""
    at = [1000.0]
    lost = LostRuns(server, lambda: at[0])
    lost.sweep()
    at[0] += DEAD_AFTER_S
    return lost


def heartbeat(server: Server, machine: str = HERE, ago_s: float = 0.0) -> None:
    leases = server.dispatch.registry
    leases.heartbeat(Heartbeat(f"of {machine}", machine, 4, 0, BOTH))
    row = json.loads(str(leases.redis.hget(HEARTBEATS + machine, f"of {machine}")))
    leases.redis.hset(HEARTBEATS + machine, f"of {machine}", json.dumps({**row, "at": row["at"] - ago_s}))


def running(server: Server, assignment: int, student: str = "s1") -> dict[str, str]:
    """A round that was begun; its runs by stage. Its messages are nowhere."""
    round_id = submit(server.store, assignment, student).round_id
    assert prepare(server, round_id)
    with server.store.write() as session:
        return {order.stage: order.run_id for order in begin_round(session, round_id)}


def round_of(server: Server, run_id: str) -> Round:
    with server.store.read() as session:
        return session.get_one(Round, session.get_one(Run, run_id).round_id)


def stage_of(server: Server, run_id: str) -> RoundStage:
    with server.store.read() as session:
        run = session.get_one(Run, run_id)
        return session.get_one(RoundStage, (run.round_id, run.stage))


def hold(server: Server, run_id: str, stage: str = "analysis", **other: Any) -> None:
    """A machine works on it."""
    lease = Lease(run_id, HERE, f"of {HERE}", stage, **other)
    assert server.dispatch.registry.claim(lease, "round").answer == "granted"


def older(server: Server, run_id: str, seconds: float) -> None:
    leases = server.dispatch.registry.redis
    row = json.loads(str(leases.hget(LEASES + HERE, run_id)))
    changed = {**row, "since": row["since"] - seconds, "moved": row["moved"] - seconds}
    leases.hset(LEASES + HERE, run_id, json.dumps(changed))


def test_a_rubric_with_a_stage_nobody_does_holds_nobody_up(server: Server) -> None:
    """One bad round must not roll back the release of all others, for ever."""
    odd = Rubric(criteria=(*RUBRIC.criteria, Criterion(id="x", title="X", points=1, stage="stlye")))
    with server.store.write() as session:
        new = NewVersion("odd", "Odd", "r", "at_once", digest="odd", rubric=odd)
        bad = versions.import_version(session, COURSE, new)[0].id
    first = submit(server.store, bad, "s1").round_id
    good = submit(server.store, add_assignment(server.store), "s2").round_id
    for round_id in (first, good):
        assert prepare(server, round_id)
    heartbeat(server)
    admit_runs(server)
    with server.store.read() as session:
        assert session.get_one(Round, good).state == RoundState.RUNNING
        dead = session.get_one(Round, first)
        assert dead.state == RoundState.FAILED
        assert dead.failure == NO_JOB()
        assert "die Bewertungsteile des Bewertungsrasters" in in_german(dead.failure)
        assert [one.round_id for one in retry.list_dead_rounds(session)] == [first]
    admit_runs(server)
    with server.store.write() as session:
        assert retry.retry_round(session, first, "cli")


@pytest.mark.parametrize(
    "said",
    [
        {"machine": "m\0"},
        {"tokens": Tokens.model_construct(prompt=10**20)},
        {"engine": "\ud800"},
    ],
)
@pytest.mark.parametrize("ok", [True, False])
def test_a_result_the_database_refuses_ends_as_a_failed_try(
    server: Server, said: dict[str, Any], ok: bool
) -> None:
    """Else it is under way until its message is gone, is begun again for free, and so for ever."""
    run_id = running(server, add_assignment(server.store))["analysis"]
    good = result(run_id, round_of(server, run_id).id, "analysis", ok=ok)
    bad = good.model_copy(update={"provenance": good.provenance.model_copy(update=said)})
    record.record(server, [bad])
    with server.store.read() as session:
        assert session.get_one(Run, run_id).state in (RunState.DONE, RunState.FAILED)
    stage = stage_of(server, run_id)
    assert (stage.state, stage.tries) in ((StageState.FAILED, 1), (StageState.DONE, 1))


def test_a_round_whose_grade_cannot_be_written_is_dead(server: Server) -> None:
    """A grade is there already, by hand, say: the last result must be recorded all the same."""
    runs = running(server, add_assignment(server.store))
    at = round_of(server, runs["analysis"])
    with server.store.write() as session:
        values = {"points_so_far": 0.0, "max_points": 1.0, "report": {}, "created_at": at.created_at}
        session.add(Grade(round_id=at.id, submission_id=at.submission_id, **values))
    for stage, run_id in runs.items():
        record.record(server, [result(run_id, at.id, stage)])
    record.combine(server, at.id)
    assert round_of(server, runs["analysis"]).state == RoundState.FAILED
    with server.store.read() as session:
        assert set(session.scalars(select(Run.state))) == {RunState.DONE}
    with server.store.write() as session:
        assert retry.retry_round(session, at.id, "cli")
    record.combine(server, at.id)
    assert round_of(server, runs["analysis"]).state == RoundState.GRADED


def test_an_answer_of_another_shape_costs_a_try(server: Server) -> None:
    """Refused only, it would be lost, free of charge, and begun again without an end."""
    run_id = running(server, add_assignment(server.store))["analysis"]
    at = round_of(server, run_id).id
    newer = {**result(run_id, at, "analysis").model_dump(mode="json"), "of_version_9": True}
    assert record.read(newer) == result(run_id, at, "analysis")  # what it adds is left out
    said = record.read({**newer, "ok": "perhaps"})
    assert said is not None
    assert record.record(server, [said])[0].outcome == "failed"
    assert (stage_of(server, run_id).state, stage_of(server, run_id).tries) == (StageState.FAILED, 1)
    assert record.read({"run_id": run_id}) is None


def test_nothing_is_begun_while_redis_answers_but_takes_nothing(server: Server) -> None:
    """Else all that waits is written down as under way, every 5 s, for as long as Redis has no memory."""
    round_id = submit(server.store, add_assignment(server.store)).round_id
    assert prepare(server, round_id)
    heartbeat(server)
    redis = server.dispatch.registry.redis
    used = str(redis.config_get("maxmemory")["maxmemory"])
    redis.config_set("maxmemory", 1)
    try:
        assert admit_runs(server) == 0
    finally:
        redis.config_set("maxmemory", used)
    with server.store.read() as session:
        assert session.get_one(Round, round_id).state == RoundState.QUEUED
    assert admit_runs(server) == 2


def test_a_grade_released_after_a_replay_is_news(server: Server) -> None:
    runs = running(server, add_assignment(server.store))
    at = round_of(server, runs["analysis"]).id
    record.record(server, [result(runs["analysis"], at, "analysis")])
    record.record(server, [result(runs["feedback"], at, "feedback", ok=False, retry="never")])
    with server.store.write() as session:
        teacher = Actor(users.create_user(session, "teacher", "correct horse battery").id)
    for _ in range(2):
        record.combine(server, at)
        with server.store.write() as session:
            grade_release.release_grade(session, at, teacher)
            grade_release.release_grade(session, at, teacher)
        with server.store.write() as session:
            again = retry.retry_round(session, at, "cli")
            order = begin_stage(session, at, "feedback")
        assert again == (order is not None)
        if order is not None:
            record.record(server, [result(order.run_id, at, "feedback")])
    assert round_of(server, runs["analysis"]).state == RoundState.GRADED
    with server.store.read() as session:
        told = select(Outbox.key).where(Outbox.key.startswith("released:"))
        assert len(list(session.scalars(told))) == 2


def test_all_that_is_dead_is_replayed_in_chunks(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignment = add_assignment(server.store)
    dead = [submit(server.store, assignment, f"s{number}").round_id for number in range(5)]
    with server.store.write() as session:
        for round_id in dead:
            preparing.reject_round(session, round_id, verbatim("No."))
    monkeypatch.setattr("cli.commands.data.AT_ONCE", 2)
    arguments = ["--config", str(root / "config.toml"), "replay", "--all"]
    done = CliRunner().invoke(grader, arguments, env={"GRADER_DATABASE_URL": server.store.url})
    assert "5 of 5" in done.output
    with server.store.read() as session:
        assert retry.count_dead_rounds(session) == 0


def test_erasing_and_recording_do_not_wait_for_each_other(server: Server) -> None:
    """PostgreSQL would end one of them after a second: the erasure, or the result of another try."""
    assignment, raised, together = add_assignment(server.store), list[Exception](), threading.Barrier(2)

    def erase(student: str) -> None:
        with server.store.write() as session:
            erasure.erase_student(session, find_student(session, student), "cli")

    def both(*todo: Callable[[], object]) -> None:
        def one(do: Callable[[], object]) -> None:
            together.wait(60)
            try:
                do()
            except Exception as error:  # noqa: BLE001 - looked at below
                raised.append(error)

        threads = [threading.Thread(target=one, args=(do,)) for do in todo]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    for number in range(8):
        runs = running(server, assignment, f"e{number}")
        at = round_of(server, runs["analysis"]).id
        record.record(server, [result(runs["feedback"], at, "feedback")])
        last = result(runs["analysis"], at, "analysis")
        both(partial(record.record, server, [last]), partial(erase, f"e{number}"))
    assert raised == []
    with server.store.read() as session:
        assert session.scalars(select(Round.id)).all() == []


def test_a_drain_does_not_call_a_machine_ended_while_redis_is_away(root: Path) -> None:
    dispatch = open_dispatch(load(root / "config.toml", {"GRADER_REDIS_URL": "redis://127.0.0.1:1/0"}))
    with pytest.raises(GraderError, match="Redis does not answer"):
        _wait_out(dispatch, HERE, 5)
    close_dispatch(dispatch)


def test_a_rubric_with_a_stage_nobody_does_is_not_imported(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "basket"
    shutil.copytree(root / "samples/assignments/python-basket", folder)
    content = (folder / "assignment.toml").read_text()
    assert '"feedback"' in content
    (folder / "assignment.toml").write_text(content.replace('"feedback"', '"feedbakc"'))
    arguments = ["--config", str(root / "config.toml"), "assignment", "import", str(folder)]
    done = CliRunner().invoke(grader, arguments, env={"GRADER_DATABASE_URL": f"sqlite:///{tmp_path}/db"})
    assert "stage 'feedbakc' is not in config.toml" in f"{done.output}{done.exception}"
    assert not (tmp_path / "db").exists()
