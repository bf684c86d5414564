"""/metrics: who may read it, what it says, and what it still says when something is away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from app.operations import metrics
from cli.servers.certificates import certificate_ends
from grading.broker.heartbeats import Heartbeat
from grading.broker.machine_status import MachineState
from grading.scheduling.crossings import UsualPrompts
from grading.store import tables
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.learning_platforms import all_tables
from grading.store.reporting.operations import usual_prompts
from grading.store.reporting.replication import Replica, Replication, Slot
from grading.store.rounds import lifecycle
from tests.integration.webapp import School, configuration, make_app
from tests.support.factories import begin_round, result
from tests.support.redis_servers import certificates
from tests.support.tls_servers import tls_server

TOKEN = "only-for-metrics"
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    made.services = replace(made.services, metrics_token=TOKEN)
    made.app = make_app(made.services)
    yield made
    made.close()


def read(school: School) -> Values:
    answer = school.client().get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.get_data(as_text=True))
        for sample in family.samples
    }


def value(values: Values, name: str, **labels: str) -> float:
    return values[name, frozenset(labels.items())]


def names(values: Values) -> set[str]:
    return {name for name, _ in values}


def fail(school: School, number: int, error: str = "engine_failed") -> None:
    """A run of analysis on dgx-spark-1 that ended so, for good."""
    submission = school.submit("anna")
    with school.store.write() as session:
        session.execute(
            update(tables.Round).where(tables.Round.submission_id == submission).values(state="queued")
        )
        round_id = session.query(tables.Round.id).filter_by(submission_id=submission).scalar()
        assert isinstance(round_id, str)
        order = next(one for one in begin_round(session, round_id) if one.stage == "analysis")

        failed = result(order.run_id, round_id, "analysis", ok=False, error=error, retry="never")
        lifecycle.record_results(session, [failed])


def test_usual_prompts_are_those_of_the_accepted_runs_of_a_stage(school: School) -> None:
    with school.store.read() as session:
        assert usual_prompts(session, ["analysis"]) == UsualPrompts()
    for new in (600, 640, 9000):
        fail(school, new)
        with school.store.write() as session:
            last = session.query(tables.Run).filter_by(stage="analysis", accepted=False)
            counts = {"prompt_tokens": 2000 + new, "cached_tokens": 2000, "output_tokens": 300}
            last.update({"accepted": True, **counts})
    with school.store.read() as session:
        assert usual_prompts(session, ["analysis"]) == UsualPrompts(3, known=2000, new=640, output=300)
        assert usual_prompts(session, ["feedback"]) == UsualPrompts()


@pytest.mark.parametrize(
    ("remote", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.9", {}, 401),
        ("", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.9"}, 401),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.9"}, 401),
        ("10.0.0.9", {"Authorization": f"Bearer {TOKEN}"}, 200),
        ("10.0.0.9", {"Authorization": "Bearer wrong"}, 401),
        ("10.0.0.9", {"Authorization": "Bearer "}, 401),
        ("10.0.0.9", {"Authorization": "Bearer schlüssel"}, 401),
    ],
)
def test_metrics_are_for_this_machine_or_with_the_token(
    school: School, remote: str, headers: dict[str, str], status: int
) -> None:
    answer = school.client().get("/metrics", headers=headers, environ_base={"REMOTE_ADDR": remote})
    assert answer.status_code == status
    if status != 200:
        assert "GRADER_METRICS_TOKEN" in answer.get_json()["detail"]
        assert "grader_" not in answer.get_data(as_text=True)


def test_without_a_token_none_is_accepted(school: School) -> None:
    app = make_app(replace(school.services, metrics_token=""))
    answer = app.test_client().get(
        "/metrics", headers={"Authorization": "Bearer "}, environ_base={"REMOTE_ADDR": "10.0.0.9"}
    )
    assert answer.status_code == 401


def test_without_redis_everything_else_is_told(school: School) -> None:
    school.dispatch.away = True
    values = read(school)
    assert value(values, "grader_redis_up") == 0
    assert value(values, "grader_database_up") == 1
    assert value(values, "grader_queue_depth", priority="interactive") == 0
    # losing Redis says nothing about the machines
    assert not {"grader_machine_up", "grader_stage_machines_up", "grader_part_age_seconds"} & names(values)


def test_without_the_database_everything_else_is_told(school: School) -> None:
    with school.store.write() as session:
        all_tables().drop_all(session.connection())
    values = read(school)
    assert value(values, "grader_database_up") == 0
    assert value(values, "grader_machine_up", machine="dgx-spark-1") == 1
    assert "grader_queue_depth" not in names(values)
    all_tables().create_all(school.store.engine)
    values = read(school)
    assert value(values, "grader_database_up") == 1
    assert value(values, "grader_http_requests_total", endpoint="metrics", status="200") == 1


def test_what_hangs_is_away_and_holds_up_one_thread_only(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PATIENCE_S", 0.05)
    answers, asked = threading.Event(), []

    def hang(backlog: Callable[[], dict[str, int] | None] = school.dispatch.backlog) -> dict[str, int] | None:
        asked.append(threading.current_thread())
        answers.wait(30)
        return backlog()

    monkeypatch.setattr(school.dispatch, "backlog", hang)
    for _ in range(3):
        values = read(school)
        assert value(values, "grader_redis_up") == 0
        assert "grader_machine_up" not in names(values)
    assert len(asked) == 1
    answers.set()
    asked[0].join(60)
    monkeypatch.setattr(metrics, "PATIENCE_S", 10)
    assert value(read(school), "grader_redis_up") == 1


def test_machines_and_parts_are_told_from_redis(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(school.dispatch, "able", ("analysis",))
    values = read(school)
    assert value(values, "grader_machine_busy_slots", machine="dgx-spark-1") == 3
    assert value(values, "grader_machine_gateway_requests", machine="dgx-spark-1") == 0
    assert value(values, "grader_machine_up", machine="mac-studio-1") == 0
    assert value(values, "grader_stage_machines_up", stage="analysis") == 1
    assert value(values, "grader_stage_machines_up", stage="feedback") == 0
    assert value(values, "grader_part_age_seconds", part="sweeper") == 2


@pytest.mark.parametrize(("state", "shown"), [("closed", 0), ("probing", 1), ("open", 2)])
def test_circuits_are_told_as_their_machines_say(
    school: School, monkeypatch: pytest.MonkeyPatch, state: str, shown: int
) -> None:
    places = {"analysis": {"engine": "rules"}, "feedback": {"engine": "ollama"}}
    circuits = {
        "ollama": {"state": state, "stages": ["feedback"] if shown else []},
        "made-up": {"state": "open"},
    }
    heartbeat = Heartbeat("process", "dgx-spark-1", 8, 0, places, circuits=circuits)
    told = [MachineState("dgx-spark-1", "primary", 8, places, alive=True, heartbeat=heartbeat)]
    monkeypatch.setattr(school.dispatch, "machines", lambda: told)
    values = read(school)
    assert value(values, "grader_circuit_state", machine="dgx-spark-1", engine="ollama") == shown
    assert value(values, "grader_circuit_state", machine="dgx-spark-1", engine="rules") == 0
    assert not any("made-up" in dict(labels).values() for _, labels in values)
    assert value(values, "grader_stage_machines_up", stage="feedback") == (0 if shown else 1)
    assert value(values, "grader_stage_machines_up", stage="analysis") == 1


def test_a_circuit_in_a_state_nobody_knows_is_not_told(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"analysis": {"engine": "rules"}}
    heartbeat = Heartbeat("process", "dgx-spark-1", 8, 0, places, circuits={"rules": {"state": "melted"}})
    told = [MachineState("dgx-spark-1", "primary", 8, places, alive=True, heartbeat=heartbeat)]
    monkeypatch.setattr(school.dispatch, "machines", lambda: told)
    assert "grader_circuit_state" not in names(read(school))


def test_a_machine_cannot_make_series_without_end(school: School) -> None:
    for number in range(3):
        fail(school, number, f"made-up-{number}")
    ended = {"stage": "analysis", "machine": "dgx-spark-1", "outcome": "failed", "error": "other"}
    values = read(school)
    assert value(values, "grader_runs_total", **ended) == 3
    assert value(values, "grader_dead_stages", stage="analysis", error="other") == 3


def test_requests_are_counted_and_timed_by_view_not_by_address(school: School) -> None:
    client = school.client()
    for path in ("/healthz", "/healthz", "/nothing/here", "/nothing/there"):
        client.get(path)
    values = read(school)
    assert value(values, "grader_http_requests_total", endpoint="operations.health", status="200") == 2
    assert value(values, "grader_http_requests_total", endpoint="none", status="404") == 2
    duration = "grader_http_request_duration_seconds"
    assert value(values, f"{duration}_count", endpoint="operations.health") == 2
    assert 0 < value(values, f"{duration}_sum", endpoint="operations.health") < 10


def test_backups_sizes_and_disks(school: School) -> None:
    before = read(school)
    assert "grader_backup_age_seconds" not in names(before)
    assert value(before, "grader_database_bytes") > 10_000
    for files in ("data", "temporary"):
        assert value(before, "grader_disk_free_bytes", files=files) > 0
    with school.store.write() as session:
        write_audit(session, "cli", "database.backup", "database", {})
        session.flush()
        session.query(tables.Audit).update({"at": now(session) - timedelta(hours=40)})
    assert 144_000 <= value(read(school), "grader_backup_age_seconds") < 144_100


def test_replicas_of_one_name_and_slots_that_nothing_uses_yet(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = tuple(Replica("walreceiver", "streaming", False, behind) for behind in (10**9, 0))
    slots = (Slot("db2", False, 9, "extended"), Slot("db3", True, 9, "reserved"), Slot("new", False, 0, ""))
    found = Replication(replicas, slots, "", archives=False, failing="")
    monkeypatch.setattr(metrics, "load_replication", lambda _: found)
    values = read(school)
    assert value(values, "grader_replica_lag_bytes", replica="walreceiver") == 10**9
    used = {labels: one for (name, labels), one in values.items() if name == "grader_replication_slot_active"}
    assert used == {frozenset({("slot", "db2")}): 0, frozenset({("slot", "db3")}): 1}


def test_ends_of_certificates(tmp_path: Path) -> None:
    tls = certificates(tmp_path / "tls")
    with tls_server(tls) as port:
        seen = configuration(public_url=f"https://localhost:{port}")
        assert certificate_ends(seen) == {"web": 0.0}  # it is not trusted
        redis = seen.redis.model_copy(update={"url": f"rediss://:p@localhost:{port}/0?ssl_ca_certs={tls.ca}"})
        trusted = configuration().model_copy(update={"redis": redis})
        assert certificate_ends(trusted) == {"redis": datetime(2099, 12, 31, tzinfo=UTC).timestamp()}
    assert certificate_ends(seen) == {}


def test_certificates_are_looked_at_now_and_then(school: School) -> None:
    looks: list[float] = []

    def look() -> dict[str, float]:
        looks.append(0.0)
        return {"web": float(len(looks))}

    moment = [0.0]
    collector = metrics.FromServer(replace(school.services, certificate_ends=look), lambda: moment[0])

    def told() -> list[float]:
        (family,) = [one for one in collector.collect() if "certificate" in one.name]
        return [sample.value for sample in family.samples]

    assert [told(), told()] == [[1.0], [1.0]]
    moment[0] = metrics.LOOK_EVERY_S
    assert [told(), told()] == [[2.0], [2.0]]
