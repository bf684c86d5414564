"""The system for tests: a database, a Redis and its parts as processes that are started by hand."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from sqlalchemy import func, select

from grader_client import Client
from grading.broker.dispatch import Dispatch, open_dispatch
from grading.config.settings import Config, load
from grading.domain.round_states import RoundState
from grading.store import Store, schema
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.tables import Grade, Round, Run
from tests.support.factories import COURSE, RUBRIC
from tests.support.fork_server import SUPPORTED, Process, fork_server

ASSIGNMENT = f"{COURSE}/sales"
STOP_S = 15.0
SECRET_KEY = "only for tests, and long enough"
PATIENCE_S = 60.0
"""What must come may take as long on a busy machine, however fast it is on an idle one."""

LONGEST_PAUSE_S = 0.25
"""Between two looks at whether it has come."""

GIVEN_UP = threading.Event()
"""Nobody wants to know any more what came of it."""


def until(reached: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Wait until `reached` gives something true, for PATIENCE_S or longer, and return that.

    It is asked less often when it takes long: what looks at a whole system costs much.
    """
    patience_s = max(timeout_s, PATIENCE_S)
    begun = time.monotonic()
    while not (value := reached()):
        waited = time.monotonic() - begun
        assert not GIVEN_UP.is_set(), f"given up: {what}"
        assert waited < patience_s, f"not within {patience_s:g} s: {what}"
        time.sleep(min(0.05 + waited / 20, LONGEST_PAUSE_S))
    return value


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended, also where nobody has asked for its status yet."""
    try:
        if sys.platform == "linux":
            return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


@dataclass
class Parts:
    """Processes `grader …`, each in its own group; nothing starts them again."""

    folder: Path
    environ: dict[str, str]
    running: dict[str, subprocess.Popen[bytes] | Process] = field(default_factory=dict)

    def start(
        self, name: str, *command: str, prefix: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        """Start `PREFIX grader COMMAND`, with more environment; its output goes to `name`.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = self._begin(command, log, prefix, {**self.environ, **(environ or {})})

    def output(self, *command: str) -> str:
        """What `grader COMMAND` writes; it must end well."""
        with TemporaryFile(dir=self.folder) as log:
            status = self._begin(command, log, (), self.environ).wait(PATIENCE_S)
            log.seek(0)
            said = log.read().decode()
        assert status == 0, (command, said)
        return said

    def _begin(
        self, command: Sequence[str], log: IO[bytes], prefix: Sequence[str], environ: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | Process:
        words = ("--config", str(self.folder / "config.toml"), *command)
        if SUPPORTED and not prefix:
            return fork_server().start(words, environ, log)
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "cli", *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """kill -9 its process group, as a machine that loses power."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)

    def stop(self) -> None:
        """End all of them in order, by force after 15 s."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                if process.poll() is None:
                    os.killpg(process.pid, number)
            for process in self.running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S)
        self.running.clear()


@dataclass(frozen=True)
class Site:
    """A folder with config.toml, the database and the queue it names, and parts to start."""

    folder: Path
    config: Config
    store: Store
    dispatch: Dispatch
    parts: Parts

    def until_alive(self, *machines: str, timeout_s: float = 90.0) -> None:
        """Wait until these machines send heartbeats."""

        def alive() -> bool:
            return set(machines) <= {state.name for state in self.dispatch.machines() if state.alive}

        until(alive, timeout_s, f"machines {machines} heartbeat; see the logs in {self.folder}")

    def until_final(self, count: int, timeout_s: float) -> None:
        """Wait until so many rounds are graded, partial or failed."""
        what = f"{count} rounds end; see the logs in {self.folder}"
        until(lambda: count_final(self.store) >= count, timeout_s, what)


def count_final(store: Store) -> int:
    """How many rounds are graded, partial or failed."""
    final = [state for state in RoundState if state.final]
    with store.read() as session:
        return session.execute(select(func.count()).where(Round.state.in_(final))).scalar_one()


@contextmanager
def site(folder: Path, config: str, database_url: str, redis_url: str) -> Iterator[Site]:
    """Write config.toml, with no part started yet; all parts end with the context."""
    (folder / "config.toml").write_text(config, encoding="utf-8")
    addresses = {"GRADER_DATABASE_URL": database_url, "GRADER_REDIS_URL": redis_url}
    read = load(folder / "config.toml", addresses)
    store, dispatch = _opened(database_url), open_dispatch(read)
    parts = Parts(folder, {"GRADER_SECRET_KEY": SECRET_KEY, **os.environ, **addresses})
    try:
        yield Site(folder, read, store, dispatch, parts)
    finally:
        parts.stop()
        close_dispatch(dispatch)
        store.close()


def _opened(database_url: str) -> Store:
    """The database, migrated where its tables are not those of this code; most tests come with a copy."""
    path = Path(database_url.removeprefix("sqlite:///"))
    if database_url.startswith("sqlite:///") and not path.exists():
        path.write_bytes(_migrated())
    store = Store(database_url)
    if schema.reached_revision(store) != schema.newest_revision():
        schema.upgrade(database_url)
    return store


@cache
def _migrated() -> bytes:
    """A SQLite file as migrations leave it: made once, for it takes longer than most tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "grader.db"
        schema.upgrade(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()


def close_dispatch(dispatch: Dispatch) -> None:
    """Give back its connections."""
    dispatch.registry.redis.close()
    dispatch.celery.close()


def furnish(store: Store, url: str) -> Client:
    """An assignment with RUBRIC and a client that may submit for anybody."""
    with store.write() as session:
        users.ensure_administrator(session)
        versions.import_version(
            session, COURSE, NewVersion("sales", "Sales", "r", "at_once", "1", rubric=RUBRIC)
        )
        administrator = users.find_user(session, "local", "admin")
        assert administrator is not None
        scopes = ["submit", "read"]
        token = users.create_token(session, administrator.id, "test", scopes, timedelta(hours=1))
    return Client(url, token.secret)


def assert_graded_once(store: Store, count: int) -> None:
    """Every one of `count` rounds is graded, with one grade and one accepted run a stage."""
    with store.read() as session:
        states = Counter(session.scalars(select(Round.state)))
        grades = Counter(session.scalars(select(Grade.round_id)))
        runs = Counter(session.execute(select(Run.round_id, Run.stage).where(Run.accepted)).all())
    assert states == {RoundState.GRADED: count}
    assert len(grades) == count
    assert set(grades.values()) == {1}
    assert len(runs) == 2 * count
    assert set(runs.values()) == {1}
