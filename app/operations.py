"""What operators look at: health, readiness, metrics and the machines."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Flask, Response, jsonify, render_template, request
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from app import who
from app.services import Services, services
from grading.store import migrate, views

pages = Blueprint("operations", __name__)


@pages.get("/healthz")
def health() -> Response:
    """The process answers."""
    return jsonify(status="ok")


@pages.get("/readyz")
def ready() -> tuple[Response, int]:
    """200 when uploads can be accepted: the database is there, with all migrations. Redis may be away."""
    given = services()
    try:
        migrated = migrate.current(given.store) == migrate.newest()
        database = "ok" if migrated else "migrations are missing; run `grader db upgrade`"
    except SQLAlchemyError:
        migrated, database = False, "away"
    backlog = given.dispatch.backlog()
    alive = sum(machine.alive for machine in given.dispatch.machines())
    status = "unavailable" if not migrated else "ok" if backlog is not None and alive else "degraded"
    redis = "ok" if backlog is not None else "away; work waits in the database"
    body = {"status": status, "database": database, "redis": redis, "machines_alive": alive}
    return jsonify(body), 200 if migrated else 503


@pages.get("/machines")
def machines() -> str:
    """The machines and the queues, for staff."""
    actor = who.actor()
    who.require(actor, "machines.see")
    dispatch = services().dispatch
    return render_template("machines.html", machines=dispatch.machines(), queues=dispatch.backlog())


class State(Collector):
    """Reads the state of the system at each scrape."""

    def __init__(self, given: Services) -> None:
        self.given = given

    def collect(self) -> Iterator[Metric]:
        """Rounds, queues and machines."""
        rounds = GaugeMetricFamily("grader_rounds", "Current rounds by state.", labels=["state"])
        with self.given.store.read() as session:
            for state, count in views.rounds_by_state(session).items():
                rounds.add_metric([state], count)
        yield rounds
        backlog = self.given.dispatch.backlog()
        yield GaugeMetricFamily("grader_redis_up", "1 when Redis answers.", value=backlog is not None)
        queues = GaugeMetricFamily("grader_queue_length", "Messages in a queue.", labels=["queue"])
        for name, length in (backlog or {}).items():
            queues.add_metric([name], length)
        yield queues
        up = GaugeMetricFamily("grader_machine_up", "1 when the machine beats.", labels=["machine"])
        busy = GaugeMetricFamily("grader_machine_busy_slots", "Slots that generate.", labels=["machine"])
        slots = GaugeMetricFamily("grader_machine_slots", "Slots of a machine.", labels=["machine"])
        for machine in self.given.dispatch.machines():
            up.add_metric([machine.name], machine.alive)
            busy.add_metric([machine.name], machine.busy)
            slots.add_metric([machine.name], machine.slots)
        yield from (up, busy, slots)


def add_metrics(app: Flask, given: Services) -> None:
    """Serve /metrics from a registry of this app's own."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(State(given))
    requests = Counter(
        "grader_http_requests", "Answered requests.", ["endpoint", "status"], registry=registry
    )

    def count(response: Response) -> Response:
        requests.labels(request.endpoint or "none", str(response.status_code)).inc()
        return response

    def metrics() -> Response:
        """For Prometheus: rounds, queues, machines and requests."""
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    app.after_request(count)
    app.add_url_rule("/metrics", "metrics", metrics)
