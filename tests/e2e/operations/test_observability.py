"""A whole system looked at from outside: metrics, dashboard and alerts made of them, logs, traces, events."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from celery import Celery
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as MetricCollector

from app.operations.metrics import replication_metrics
from cli.dev.embedded_redis import free_port, start_redis
from cli.dev.local_stack import accepts_uploads
from grading.broker.heartbeats import Heartbeat
from grading.domain.token_use import Use, UseKey
from grading.store import Store, schema
from grading.store.accounts import gateway_use
from grading.store.database import now
from grading.store.privacy import backup
from grading.store.reporting.replication import Replica, Replication, Slot
from grading.store.rounds import lifecycle, locking, preparing
from grading.store.tables import Token
from tests.support.engines import all_metrics
from tests.support.factories import add_assignment, begin_round, result, submit
from tests.support.redis_servers import certificates
from tests.support.servers.otlp import Collector, collector
from tests.support.services import SqliteDatabases
from tests.support.system import ASSIGNMENT, Site, furnish, site, until
from tests.support.tls_servers import tls_server

COUNT = 3
WORK = "# Isolde Wagenknecht counts her Zwetschgen\nmean(sales)"
PUPIL = "pupil-"
PERSONAL = ("Isolde", "Zwetschgen", PUPIL)
"""What stands in the work, and how those are called who submit it."""
PARTS = {"web", "store", "sweeper", "worker"}
CONFIG = """
[redis]
monitor = true

[[machines]]
name = "dgx-spark-1"
slots = 2
[machines.engines.instant]
options = { seconds = 0.1 }
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""
METRICS = all_metrics()
BATCHING = Heartbeat(
    "beside",
    "dgx-spark-1",
    2,
    0,
    {stage: {"engine": "instant", "model": "m"} for stage in ("analysis", "feedback")},
    engines={"instant": dict.fromkeys(METRICS, 1.0)},
    metrics={name: asdict(one) for name, one in METRICS.items()},
)
"""The machine's second process, with an engine that counts everything there is to count."""
SPANS = {"accept": 1, "prepare": 1, "dispatch": 2, "run": 2, "record": 2, "combine": 1}
"""Of one submission."""
WHOLE = ("grader_database_up 1", "grader_redis_up 1", "grader_engine_requests_total{")
PROMQL = {
    *("sum", "max", "min", "by", "on", "or", "and", "unless", "offset", "rate", "increase", "absent", "time"),
    "histogram_quantile",
}


@dataclass
class Seen:
    """All that can be seen of a system that graded COUNT submissions and failed one."""

    metrics: str = ""
    submissions: list[str] = field(default_factory=list)
    logs: dict[str, list[str]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    traces: Collector = field(default_factory=Collector)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, sqlite_databases: SqliteDatabases) -> Iterator[Seen]:
    folder, found = tmp_path_factory.mktemp("observed"), Seen()
    database, port = sqlite_databases.fresh(schema.upgrade), free_port()
    with (
        collector() as found.traces,
        tls_server(certificates(folder / "tls")) as shown,
        start_redis(folder / "redis") as redis,
        site(folder, CONFIG, database, redis.url) as system,
        watched(redis.url, found.events),
    ):
        backup.write_backup(system.store, folder / "backup.zip")
        system.parts.environ |= {
            "GRADER_PUBLIC_URL": f"https://localhost:{shown}",
            "GRADER_LOG": "json",
            "GRADER_SECRET_KEY": "only for this test, and long enough",
            "OTEL_EXPORTER_OTLP_ENDPOINT": found.traces.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        fail_one(system.store)
        system.parts.start("web", "web", "--port", str(port), "--var", str(folder))
        system.parts.start("store", "store")
        system.parts.start("sweeper", "sweep")
        system.parts.start("worker", "worker", "dgx-spark-1")
        url = f"http://127.0.0.1:{port}"
        client = furnish(system.store, url)
        use_gateway(system.store)
        until(lambda: accepts_uploads(url), 30, "the web app answers")
        system.until_alive("dgx-spark-1")
        until(lambda: any(one.part == "store" for one in system.dispatch.parts()), 30, "the store is there")
        until(lambda: found.events, 30, "who looks at the events hears them")
        content = {"work.R": WORK.encode()}
        found.submissions = [client.submit(content, ASSIGNMENT, f"{PUPIL}{n}")["id"] for n in range(COUNT)]
        system.until_final(COUNT + 1, 30)
        until(
            lambda: requests.get(f"{url}/metrics", timeout=60).text.count("part_age_seconds{"),
            30,
            "heartbeats",
        )
        until(lambda: whole_metrics(found, system, url), 30, "database, Redis and machines were measured")
        until(lambda: spans_arrived(found), 30, "traces arrive")
        until(lambda: events_arrived(found), 30, "events arrive")
        for part in PARTS:
            system.parts.kill(part)  # all was seen; ending in order takes seconds
            found.logs[part] = (folder / f"{part}.log").read_text().splitlines()
        yield found


def use_gateway(store: Store) -> None:
    """A token used a model today."""
    with store.write() as session:
        token = session.query(Token).one()
        used = {UseKey(token.id, "tiny", now(session).date()): Use(1, 5, 2)}
        gateway_use.add_use(session, used)


def whole_metrics(found: Seen, system: Site, url: str) -> bool:
    """Ask for the metrics, which leave out what did not answer in time."""
    system.dispatch.registry.heartbeat(BATCHING)
    found.metrics = requests.get(f"{url}/metrics", timeout=60).text
    return all(part in found.metrics for part in WHOLE)


def spans_arrived(found: Seen) -> bool:
    """Every part sends its own, each in its own time."""
    arrived = Counter(span.name for span in list(found.traces.spans))
    return all(arrived[name] >= count * COUNT for name, count in SPANS.items())


def events_arrived(found: Seen) -> bool:
    """Tasks say that they succeeded after what they did can be seen."""
    ended = Counter(names(event) for event in list(found.events))
    wanted = {"grader.run": 2 * COUNT, "grader.prepare": COUNT}
    return all(ended["task-succeeded", task] >= count for task, count in wanted.items())


def fail_one(store: Store) -> None:
    """A round whose stages died before any part runs, so that there are dead letters."""
    round_id = submit(store, add_assignment(store, "lost")).round_id
    with store.write() as session:
        preparing.save_prepared(session, round_id, {"documents": [], "evidence": {}})
        for order in begin_round(session, round_id):
            dead = result(order.run_id, round_id, order.stage, ok=False, retry="never")
            lifecycle.record_results(session, [dead])
    with store.write() as session:
        locking.set_round(session, round_id, state="failed", finished_at=now(session))


@contextmanager
def watched(redis_url: str, events: list[dict[str, Any]]) -> Iterator[None]:
    """Celery's events as Flower gets them."""
    app, tasks = Celery(broker=redis_url, set_as_current=False), dict[str, str]()

    def keep(event: dict[str, Any]) -> None:
        if "name" in event:
            tasks[event["uuid"]] = event["name"]
        events.append({**event, "name": tasks.get(event.get("uuid", ""))})

    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": keep})
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
        thread.start()
        yield
        receiver.should_stop = True
        thread.join(60)
    app.close()


def names(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], str(event["name"])


# --- metrics ------------------------------------------------------------------------------------------


REPLICATION = Replication(
    (Replica("db2", "streaming", True, 0),), (Slot("db2", True, 0, "reserved"),), "*", True, ""
)
"""Of a PostgreSQL; tests/faults/store/test_replication_alarms.py plays a real one."""


class Pair(MetricCollector):
    """Series that an SQLite has not."""

    def collect(self) -> Iterator[Metric]:
        yield from replication_metrics(REPLICATION)


def served(seen: Seen) -> dict[str, list[Any]]:
    """Name of a series -> its samples; families without samples do not count."""
    found: dict[str, list[Any]] = {}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Pair())
    text = seen.metrics + generate_latest(registry).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def expressions(root: Path) -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every panel and alert."""
    dashboard = json.loads((root / "deploy/grafana/dashboards/grader.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for group in yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


def used(expression: str) -> tuple[set[str], set[str]]:
    """The series and the labels that an expression names."""
    labels = {
        name
        for found in re.findall(r"\{([^}]*)\}", expression)
        for name in re.findall(r"(\w+)\s*[=!]", found)
    }
    grouped = re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expression)
    labels |= {name for found in grouped for name in re.findall(r"\w+", found)}
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without)\s*\([^)]*\)|offset \w+", " ", expression)
    return set(re.findall(r"\b[a-zA-Z_]\w*", bare)) - PROMQL, labels


def test_the_dashboard_and_alerts_name_only_what_is_served(seen: Seen, root: Path) -> None:
    series = served(seen)
    found = list(expressions(root))
    assert len(found) > 40
    for where, expression in found:
        series_used, labels_used = used(expression)
        assert series_used, f"{where} names nothing: {expression}"
        missing = series_used - series.keys() - {"up"}
        assert not missing, f"{where}: {missing} is not served"
        known = {"job"}.union(*(one.labels for name in series_used - {"up"} for one in series[name]))
        assert labels_used <= known, f"{where}: no label {labels_used - known}"


def test_nearly_every_series_is_looked_at(seen: Seen, root: Path) -> None:
    looked_at = set().union(*(used(expression)[0] for _, expression in expressions(root)))
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in served(seen)}
    unseen = families - {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in looked_at}
    assert unseen == set()


def test_the_documentation_has_every_metric(seen: Seen, root: Path) -> None:
    rows = re.findall(r"^\| `grader_.*", (root / "docs/reference/metrics.md").read_text(), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(grader_\w+)`", row.split("|")[1])}
    assert documented == {re.sub(r"_(bucket|sum|count)$", "", name) for name in served(seen)}


def test_metrics_tell_what_happened(seen: Seen) -> None:
    totals = {
        name: sum(sample.value for sample in samples)
        for name, samples in served(seen).items()
        if name.endswith(("_total", "_count"))
    }
    assert totals["grader_runs_total"] == 2 * COUNT + 2
    assert totals["grader_stage_duration_seconds_count"] == 2 * COUNT
    assert totals["grader_time_to_first_token_seconds_count"] == 2 * COUNT
    assert totals["grader_end_to_end_seconds_count"] == COUNT
    assert totals["grader_dead_letters_total"] == 2
    assert totals["grader_output_tokens_total"] > 0


# --- logs ---------------------------------------------------------------------------------------------


def test_every_line_of_every_process_is_json(seen: Seen) -> None:
    for part, lines in seen.logs.items():
        assert lines, f"{part} said nothing"
        for line in map(json.loads, lines):
            assert {"time", "level", "logger", "event"} <= line.keys()
            assert line["part"] == part


def test_a_submission_can_be_followed_through_all_processes(seen: Seen) -> None:
    lines = {part: [json.loads(line) for line in lines] for part, lines in seen.logs.items()}
    for submission in seen.submissions:
        (accepted,) = [line for line in lines["web"] if line.get("submission") == submission]
        about = [line for part in PARTS for line in lines[part] if line.get("round") == accepted["round"]]
        assert {line["part"] for line in about} >= {"web", "store", "worker"}
        worked = [line for line in about if line["part"] == "worker"]
        assert {line["submission"] for line in worked} == {submission}
        assert {line["stage"] for line in worked} == {"analysis", "feedback"}
        for run in {line["run"] for line in worked}:
            loggers = {line["logger"] for line in about if line.get("run") == run}
            assert loggers >= {"workers.server.admit", "workers.machine.worker", "workers.server.record"}
        combined = [
            line for line in about if line.get("submission") == submission and line["part"] == "store"
        ]
        assert any("graded" in line["event"] for line in combined)


def test_nobody_logs_what_students_wrote_or_are_called(seen: Seen) -> None:
    for part, lines in seen.logs.items():
        text = "\n".join(lines)
        for word in (*PERSONAL, "Wagenknecht"):
            assert word not in text, part


# --- traces -------------------------------------------------------------------------------------------


def test_a_trace_leads_from_the_submission_to_the_grade(seen: Seen) -> None:
    roots = {
        span.attributes["grader.submission"]: span for span in seen.traces.spans if span.name == "accept"
    }
    assert roots.keys() == set(seen.submissions)
    for root in roots.values():
        assert root.parent == ""
        assert root.attributes["grader.request"]
        spans = seen.traces.of(root.trace)
        by_name: dict[str, list[Any]] = {}
        for span in spans:
            by_name.setdefault(span.name, []).append(span)
        counts = {name: len(found) for name, found in by_name.items()}
        assert counts == SPANS
        services = {span.service for span in spans} - {"grader-sweeper"}  # may send it first
        assert services == {"grader-web", "grader-store", "grader-worker"}
        for name in ("prepare", "dispatch", "combine"):
            assert {span.parent for span in by_name[name]} == {root.id}
        sent = {span.id: span.attributes["grader.run"] for span in by_name["dispatch"]}
        for name in ("run", "record"):
            assert {span.parent: span.attributes["grader.run"] for span in by_name[name]} == sent
        run = by_name["run"][0]
        assert run.attributes["grader.machine"] == "dgx-spark-1"
        assert run.attributes["gen_ai.request.model"] == "m"
        assert run.attributes["gen_ai.usage.output_tokens"] > 0
        assert run.end - run.start >= 0.1e9
        assert not any(span.failed for span in spans)


def test_traces_hold_nothing_of_a_student(seen: Seen) -> None:
    text = str(seen.traces.spans)
    assert not [word for word in PERSONAL if word in text]


# --- events -------------------------------------------------------------------------------------------


def test_monitors_see_tasks_and_nothing_of_their_content(seen: Seen) -> None:
    runs = [event for event in seen.events if names(event) == ("task-succeeded", "grader.run")]
    assert len(runs) == 2 * COUNT
    text = str(seen.events)
    assert not [word for word in (*PERSONAL, "judgements", "achieved") if word in text]
