"""kill -9 in the middle of 50 submissions: all end graded, each once, whatever died."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, func, select

from cli.embedded import free_port, start_redis
from cli.settings import Settings
from cli.submit import Client
from cli.supervisor import processes
from cli.system import System
from grading.model import RoundState, RunState
from grading.store import Store, migrate
from grading.store.tables import Base, Round, Run
from tests.factories import add_assignment, hand_in
from tests.services import SqliteDatabases
from tests.system import ASSIGNMENT, assert_graded_once, count_final, furnish, site, until

COUNT = 50
TAKE_OVER_S = 30.0
MACHINES = """
[server]
uploads_per_minute = 100000

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

    def hand_in(self, number: int) -> str:
        content = {"work.R": f"# work of {number}\nmean(sales)".encode()}
        return str(self.client.submit_bytes(content, ASSIGNMENT, f"s-{number}")["id"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "config.toml").write_text(MACHINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADER_DATABASE_URL", f"sqlite:///{folder / 'grader.db'}")
        settings = Settings(folder / "config.toml")
        with System(settings, folder=folder / "var", port=free_port(), own_redis=True) as system:
            store = Store(settings.config.database.url)
            client = furnish(store, system.url)
            yield Running(system, store, client)
            store.close()


def test_all_are_graded_once_when_a_part_is_killed(running: Running, part: str) -> None:
    pass
