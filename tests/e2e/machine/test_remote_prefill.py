"""Graded with a prompt that another process read; when that one is killed, graded all the same."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from bench.tiny_models import make_model
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import accepts_uploads
from grader_client import Client
from grading.domain.engine_details import Detail
from grading.domain.jobs import Result
from grading.store.tables import Run
from tests.support.engines import SMALLER, measured
from tests.support.services import SqliteDatabases
from tests.support.system import ASSIGNMENT, Site, count_final, furnish, site, until
from workers.machine.engines.remote_prefill.protocol import SECRET_VARIABLE

CONFIG = """
[server]
port = {port}
[stages.analysis]
[stages.feedback]
max_output_tokens = 500

[[machines]]
name = "spark"
prefill = {{ listen = "127.0.0.1:{reads}", models = ["{model}"] }}
[machines.stages]
analysis = {{ engine = "rules", model = "rules" }}

[[machines]]
name = "mac"
[machines.engines.hybrid.options]
readers = {{ spark = "127.0.0.1:{reads}" }}
strategy = "disaggregated"
[machines.stages]
feedback = {{ engine = "hybrid", model = "{model}" }}
"""


def test_one_machine_reads_and_another_writes(
    tmp_path: Path, redis_url: str, sqlite_databases: SqliteDatabases
) -> None:
    port, model = free_port(), make_model(tmp_path / "model", shape=SMALLER, context=32768)
    config = CONFIG.format(port=port, reads=free_port(), model=model)
    with site(tmp_path, config, sqlite_databases.fresh(), redis_url) as system:
        system.parts.environ[SECRET_VARIABLE] = "known on both sides"
        system.parts.start("prefill", "prefill", "spark")
        for part in ("spark", "mac"):
            system.parts.start(part, "worker", part)
        system.parts.start("web", "web", "--var", str(tmp_path))
        system.parts.start("store", "store")
        system.parts.start("sweep", "sweep")
        url = f"http://127.0.0.1:{port}"
        client = furnish(system.store, url)
        system.until_alive("spark", "mac")
        until(lambda: accepts_uploads(url), 30, "the web app answers")
        until(lambda: "prefill_listens" in log(tmp_path), 60, "prompts are read")
        first = submit(system, client, tmp_path, 1)
        assert (first.strategy, measured(first, "reader")) == ("disaggregated", "spark")
        assert measured(first, "fault") is None
        assert measured(first, "sent_bytes") > 100_000
        system.parts.kill("prefill")
        second = submit(system, client, tmp_path, 2)
        assert (second.strategy, measured(second, "fault")) == ("direct", "peer_unreachable")


def log(folder: Path) -> str:
    """What the reading process says."""
    return "".join(path.read_text() for path in folder.glob("**/prefill*.log"))


def submit(system: Site, client: Client, folder: Path, count: int) -> Detail:
    """Have one more graded; how its feedback came about."""
    work = folder / "work.R"
    work.write_text("sales <- read.csv('sales.csv')\nmean(sales$price)\n")
    client.submit([work], ASSIGNMENT, f"s-{count}")
    until(lambda: count_final(system.store) == count, 90, "it is graded")
    with system.store.read() as session:
        runs = session.scalars(select(Run).where(Run.stage == "feedback").order_by(Run.dispatched_at)).all()
    assert len(runs) == count
    result = Result.model_validate(runs[-1].result)
    assert result.ok, result
    return result.provenance.details["remote_prefill"]
