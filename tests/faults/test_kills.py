"""kill -9 in the middle of 50 submissions, again and again: all end graded, each once, whatever died."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import aliased

from cli.dev.embedded_redis import free_port, start_redis
from cli.dev.local_stack import System
from cli.dev.supervisor import processes
from cli.settings import Settings
from grader_client import Client
from grading.store import Store, schema
from grading.store.tables import Run
from tests.support.factories import add_assignment, submit
from tests.support.services import SqliteDatabases
from tests.support.system import ASSIGNMENT, assert_graded_once, count_final, furnish, site, until

COUNT = 50
TAKE_OVER_S = 30.0
PARTS = ("sweep", "web", "store")
WORKERS = ("worker-dgx-spark-1", "worker-dgx-spark-2")
"""What becomes of their work is seen in test_machines, too."""
MACHINES = """
[server]
uploads_per_minute = 100000
api_per_minute = 10000000

[[machines]]
name = "dgx-spark-1"
slots = 2
[machines.engines.instant]
options = { seconds = 0.3 }
[machines.stages]
analysis = { engine = "instant", model = "m" }

[[machines]]
name = "mac-studio-1"
slots = 2
[machines.engines.instant]
options = { seconds = 0.3 }
[machines.stages]
feedback = { engine = "instant", model = "m" }

[[machines]]
name = "dgx-spark-2"
role = "spare"
slots = 2
[machines.engines.instant]
options = { seconds = 0.3 }
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""


@dataclass(frozen=True)
class Running:
    """A whole system that starts again what dies."""

    system: System
    store: Store
    client: Client

    def kill(self, part: str) -> None:
        """kill -9 of a part's process group."""
        os.killpg(processes(self.system.folder)[part], signal.SIGKILL)

    def submit(self, number: int) -> str:
        content = {"work.R": f"# work of {number}\nmean(sales)".encode()}
        return str(self.client.submit(content, ASSIGNMENT, f"s-{number}")["id"])


@contextmanager
def system_in(folder: Path) -> Iterator[Running]:
    """The whole system, with SQLite in this folder."""
    url = f"sqlite:///{folder / 'grader.db'}"
    (folder / "config.toml").write_text(f'[database]\nurl = "{url}"\n{MACHINES}')
    settings = Settings(folder / "config.toml")
    with System(settings, folder=folder / "var", port=free_port(), own_redis=True) as system:
        store = Store(url)
        yield Running(system, store, furnish(store, system.url))
        store.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with system_in(tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.mark.soak
@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("part", [*PARTS, *WORKERS])
def test_kills_again_and_again(running: Running, part: str, number: int) -> None:
    running.system.until_ready(60)
    kill_in_the_middle(running, (part,))


def kill_in_the_middle(running: Running, parts: Sequence[str]) -> None:
    """Kill the web app while uploads are under way, all others after the first grades."""
    store = running.store
    before = count_final(store)
    with ThreadPoolExecutor(4) as pool:
        submitted: list[Future[str]] = [pool.submit(running.submit, n) for n in range(before, before + COUNT)]
        killed = datetime.now(UTC)
        for part in sorted(parts, key=lambda name: name != "web"):
            if part == "web":
                until(lambda: sum(one.done() for one in submitted) >= COUNT // 5, 90, "the first uploads")
            else:
                until(lambda: count_final(store) >= before + COUNT // 5, 90, "the first grades")
            killed = datetime.now(UTC)
            running.kill(part)
        ids = {one.result() for one in submitted}
    assert len(ids) == COUNT
    until(lambda: count_final(store) >= before + COUNT, 120, f"all end; see {running.system.folder}")
    assert_graded_once(store, before + COUNT)
    waits = taken_over(store, killed)
    print(f"{parts}: {(datetime.now(UTC) - killed).total_seconds():.1f} s, sent again after {waits}")
    assert all(wait <= TAKE_OVER_S for wait in waits)
    assert "worker-dgx-spark-1" not in parts or waits


def taken_over(store: Store, killed: datetime) -> list[float]:
    """Seconds from the kill to the next run of each stage whose run was lost."""
    lost, following = aliased(Run), aliased(Run)
    same = (following.round_id == lost.round_id) & (following.stage == lost.stage)
    query = (
        select(following.dispatched_at)
        .join(lost, same & (following.attempt == lost.attempt + 1))
        .where(lost.error == "machine_lost", following.dispatched_at >= killed)
    )
    with store.read() as session:
        return sorted((moment - killed).total_seconds() for moment in session.scalars(query))


@pytest.mark.soak
def test_a_spare_takes_over_from_a_machine_that_stays_dead(
    sqlite_databases: SqliteDatabases, tmp_path: Path
) -> None:
    database = sqlite_databases.fresh(schema.upgrade)
    with start_redis(tmp_path / "redis") as redis, site(tmp_path, MACHINES, database, redis.url) as made:
        names = [machine.name for machine in made.config.machines]
        made.parts.start("store", "store")
        made.parts.start("sweep", "sweep")
        for name in names:
            made.parts.start(name, "worker", name)
        made.until_alive(*names)
        assignment = add_assignment(made.store, release="at_once")
        for number in range(COUNT):
            made.dispatch.announce(submit(made.store, assignment, f"s-{number}").round_id)
        until(lambda: count_final(made.store) >= COUNT // 5, 30, "the first grades")
        killed = datetime.now(UTC)
        made.parts.kill("dgx-spark-1")
        made.until_final(COUNT, 60)
        assert_graded_once(made.store, COUNT)
        waits = taken_over(made.store, killed)
        print(f"a machine that stays dead: sent again after {waits}")
        assert waits
        assert all(wait <= TAKE_OVER_S for wait in waits)
        with made.store.read() as session:
            query = select(Run.machine).where(Run.stage == "analysis", Run.finished_at > killed, Run.accepted)
            after = set(session.scalars(query.where(Run.dispatched_at > killed)))
        assert after == {"dgx-spark-2"}
