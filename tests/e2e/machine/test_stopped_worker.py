"""A worker that must end stops its model server, too, and the work goes back to its queue."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from grading.broker import celery_app
from grading.broker.dispatch import Outgoing
from tests.integration.machine.test_process import job
from tests.support.servers.ollama_server import ollama_server
from tests.support.services import SqliteDatabases
from tests.support.system import site, until

CONFIG = """
[[machines]]
name = "spark"
grace_s = 0.2
[machines.engines.ollama]
url = "{url}"
[machines.stages]
analysis = {{ engine = "ollama", model = "tiny" }}
feedback = {{ engine = "ollama", model = "tiny" }}
"""


def test_what_a_worker_cannot_finish_stops_at_the_model_server(
    tmp_path: Path, redis_url: str, sqlite_databases: SqliteDatabases
) -> None:
    with (
        ollama_server(seconds=60) as server,
        site(tmp_path, CONFIG.format(url=server.url), sqlite_databases.fresh(), redis_url) as system,
    ):
        system.parts.start("spark", "worker", "spark")
        content = job(budget_s=120)
        system.dispatch.send([Outgoing("run", "round", "analysis", "interactive", content)])
        until(lambda: server.stats.active == 1, 30, "the model is asked")
        (lease,) = system.dispatch.registry.held()
        assert lease.run_id == "run"
        worker = system.parts.running["spark"]
        worker.send_signal(signal.SIGTERM)
        until(lambda: server.stats.disconnects == 1, 20, "the server sees that nobody waits")
        assert worker.wait(60) == 0
        assert (server.stats.active, server.stats.finished) == (0, 0)
        assert system.dispatch.registry.held() == []
        told = [
            json.loads(row) for row in system.dispatch.registry.redis.lrange(celery_app.inbox("spark"), 0, -1)
        ]
        assert [one["kind"] for one in told] == ["return", "ready"]  # and no result
        assert json.loads(told[0]["body"]) == {"run_id": "run", "to": "analysis"}
