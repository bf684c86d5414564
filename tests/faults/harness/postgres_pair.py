"""A primary of PostgreSQL and its replica, on loopback: to be killed, cut off, promoted and rewound."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from cli.dev.embedded_redis import free_port
from tests.support.services import find_postgres, unprivileged_user

PATIENCE_S = 60.0
PROMOTE = (
    "ALTER SYSTEM RESET synchronous_standby_names",
    "SELECT pg_reload_conf()",
    "SELECT pg_promote()",
)
"""As docs/how-to/administrators/postgresql.md says."""
FOR_REWIND = (
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
)
"""What pg_rewind calls on the new primary; the same page grants it."""
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "fsync": "off",  # a killed process loses nothing that the kernel has
    "wal_log_hints": "on",  # pg_rewind needs it
    "hot_standby": "on",
    "max_connections": "200",
    "shared_buffers": "'64MB'",
    "wal_keep_size": "'256MB'",
    "max_slot_wal_keep_size": "'512MB'",
    "wal_sender_timeout": "'5s'",
    "wal_receiver_timeout": "'5s'",
    "wal_retrieve_retry_interval": "'500ms'",
}


@dataclass
class Node:
    """One server: a folder, a port, and its process while it runs."""

    name: str
    folder: Path
    password: str
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / self.name

    @property
    def url(self) -> str:
        """For libpq, of the database `grader`."""
        return f"postgresql://grader:{self.password}@127.0.0.1:{self.port}/grader"

    def run(self, program: str, *words: str | Path) -> str:
        """Run a program of PostgreSQL, as whom PostgreSQL runs."""
        return run(find_postgres() / program, *words, environ={"PGPASSWORD": self.password})

    def make(self) -> None:
        """A new cluster."""
        file = self.folder / "password"
        file.write_text(self.password)
        _give(file)
        self.run("initdb", "-D", self.data, "-U", "grader", "-A", "md5", "--pwfile", file,
                 "-E", "UTF8", "--no-locale", "--no-sync")  # fmt: skip
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host replication all 127.0.0.1/32 md5\n")
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write("include 'grader.conf'\n")

    def copy(self, source: Node) -> None:
        """Become a replica of another, with a slot there."""
        slot = ("-C", "-S", self.name)
        self.run("pg_basebackup", "-D", self.data, "-d", source.conninfo, "-X", "stream", *slot,
                 "--checkpoint=fast", "--no-sync")  # fmt: skip
        self.follow(source)

    @property
    def conninfo(self) -> str:
        """For replication, without a database."""
        return f"host=127.0.0.1 port={self.port} user=replicator password={self.password}"

    def follow(self, source: Node) -> None:
        """Be a replica of another from the next start on."""
        (self.data / "standby.signal").touch()
        _give(self.data / "standby.signal")
        self.settings |= {
            "primary_conninfo": f"'{source.conninfo} application_name={self.name}'",
            "primary_slot_name": f"'{self.name}'",
            "recovery_target_timeline": "'latest'",
        }

    def start(self, *, wait: bool = True) -> None:
        """Start it and wait until it answers."""
        self.configure()
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [find_postgres() / "postgres", "-D", self.data],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                **as_postgres(),
            )  # fmt: skip
        if wait:
            self.until("SELECT 1")

    def configure(self) -> None:
        """Write its settings, for the next start or reload."""
        lines = {**SETTINGS, **self.settings, "port": str(self.port)}
        lines["unix_socket_directories"] = f"'{self.folder}'"
        file = self.data / "grader.conf"
        file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        _give(file)

    def kill(self) -> None:
        """kill -9 of all its processes: the end of the host."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        for child in self._children():  # they have groups of their own
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self.process = None

    def freeze(self) -> None:
        """SIGSTOP of all: the host takes connections and says nothing."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT of all."""
        self._send(signal.SIGCONT)

    def stop(self) -> None:
        """As systemctl stop: a shutdown in order."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def rewind(self, source: Node) -> None:
        """Undo what this stopped server has and the new primary has not, and follow that."""
        source.ask("CHECKPOINT")
        with suppress(psycopg.errors.DuplicateObject):
            source.ask("SELECT pg_create_physical_replication_slot(%s)", self.name)
        # it recovers a killed server by itself first
        self.run("pg_rewind", "-D", self.data, "--source-server", f"{source.conninfo} dbname=postgres",
                 "--no-sync")  # fmt: skip
        self.follow(source)

    def ask(self, statement: str, *values: Any) -> Any:
        """The first value that a statement gives."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            found = connection.execute(statement, values)
            row = found.fetchone() if found.description else None
            return row[0] if row else None

    def until(self, statement: str, timeout_s: float = PATIENCE_S) -> Any:
        """Ask again until the answer is true."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            with suppress(psycopg.OperationalError):
                if value := self.ask(statement):
                    return value
            time.sleep(0.05)
        raise AssertionError(f"{self.name}: {statement}\n{self.log()[-3000:]}")

    def log(self) -> str:
        """What it wrote."""
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    def _children(self) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if stat.resolve() == self.data.resolve():
                    found.append(int(stat.parent.name))
        return found

    def _send(self, number: int) -> None:
        for pid in self._children():
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass
class Pair:
    """Two servers; the first is the primary, until `promote`."""

    primary: Node
    replica: Node

    @property
    def url(self) -> str:
        """Names both, in the order in which they began."""
        one, other = sorted((self.primary, self.replica), key=lambda node: node.name)
        hosts = f"127.0.0.1:{one.port},127.0.0.1:{other.port}"
        return f"postgresql://grader:{one.password}@{hosts}/grader"

    def synchronous(self) -> None:
        """A commit waits until the replica has it on its disk."""
        self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.ask("SELECT pg_reload_conf()")
        self.until_streaming("sync")

    def until_streaming(self, state: str = "") -> None:
        """Wait until the replica has all."""
        where = f" AND sync_state = '{state}'" if state else ""
        self.primary.until(
            "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' "
            f"AND replay_lsn >= pg_current_wal_lsn() - 1000000{where}"
        )

    def promote(self) -> None:
        """Fence the old primary, and make the replica the primary."""
        if self.primary.process is not None:
            self.primary.kill()
        for statement in PROMOTE:
            self.replica.ask(statement)
        self.primary, self.replica = self.replica, self.primary

    def rejoin(self) -> None:
        """The old primary becomes the replica."""
        self.replica.rewind(self.primary)
        self.replica.start()
        self.until_streaming()


def as_postgres() -> dict[str, Any]:
    """Whom PostgreSQL runs as, for subprocess."""
    user = unprivileged_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def run(*words: str | Path, environ: Mapping[str, str] | None = None, cwd: Path = Path("/")) -> str:
    """Run a program as whom PostgreSQL runs; what it writes."""
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **(environ or {})}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=600, check=False, **as_postgres(),
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done.stdout


def _give(path: Path) -> None:
    user = unprivileged_user()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)
    if path.is_file():
        path.chmod(0o600)


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's user may enter and write to; removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="grader-pair-"))
    _give(folder)
    folder.chmod(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_pair(settings: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """A primary with an empty database `grader`, and a replica that follows it."""
    with postgres_folder() as folder:
        password = secrets.token_hex(12)
        one, two = (Node(name, folder, password, dict(settings or {})) for name in ("db1", "db2"))
        try:
            one.make()
            one.start(wait=False)
            create_database(one)
            two.copy(one)
            two.start()
            pair = Pair(one, two)
            pair.until_streaming()
            yield pair
        finally:
            for node in (one, two):
                if node.process is not None:
                    node.thaw()
                    node.kill()


def create_database(node: Node) -> None:
    """The empty database `grader`, as soon as the server answers, and the user for replicas."""
    url = node.url.removesuffix("grader") + "postgres"
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE grader")
                role = sql.SQL("CREATE ROLE replicator LOGIN REPLICATION PASSWORD {}")
                connection.execute(role.format(node.password))
                for function in FOR_REWIND:
                    connection.execute(f"GRANT EXECUTE ON FUNCTION {function} TO replicator".encode())
                return
        except psycopg.OperationalError:
            assert time.monotonic() < end, node.log()[-3000:]
            time.sleep(0.05)
