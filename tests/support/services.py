"""The real services that tests use: PostgreSQL and a browser; Redis comes from cli.dev.embedded_redis.

Nothing here skips: a service that cannot be had is an error that names what to install.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg

from cli.dev.embedded_redis import free_port

Prepare = Callable[[str], None]
"""Brings the empty database at a URL to the state that tests start from, for example by migrating it."""

START_S = 90.0
MEMORY, ROOM = Path("/dev/shm"), 4 * 1024**3
BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # pages live for seconds: optimising their scripts and collecting garbage often costs more than it saves,
    # and what is not used for a moment, such as axe, is used again on the next page
    "--js-flags=--no-opt --min-semi-space-size=32 --no-flush-bytecode",
    # whatever is not on this machine is asked of a proxy that is not there
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=127.0.0.1;localhost",
]


class ServiceMissing(RuntimeError):
    """A program that the tests need is not on this machine."""


class Databases(Protocol):
    """Makes new databases; a state prepared once is copied for every later one."""

    def fresh(self, prepare: Prepare | None = None) -> str:
        """URL of a new database, empty or as `prepare` leaves it."""

    def drop(self, url: str) -> None:
        """Remove a database that `fresh` made."""


@dataclass
class SqliteDatabases:
    """SQLite files in a folder."""

    folder: Path
    templates: dict[Prepare, Path] = field(default_factory=dict)

    def fresh(self, prepare: Prepare | None = None) -> str:
        path = self.folder / f"{secrets.token_hex(6)}.db"
        if prepare:
            shutil.copyfile(self._template(prepare), path)
        return f"sqlite:///{path}"

    def drop(self, url: str) -> None:
        path = url.removeprefix("sqlite:///")
        for suffix in ("", "-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)

    def _template(self, prepare: Prepare) -> Path:
        if prepare not in self.templates:
            path = self.folder / f"template-{len(self.templates)}.db"
            prepare(f"sqlite:///{path}")
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.templates[prepare] = path
        return self.templates[prepare]


@dataclass
class PostgresDatabases:
    """Databases on one PostgreSQL server; `admin_url` may create and drop them."""

    admin_url: str
    templates: dict[Prepare, str] = field(default_factory=dict)

    def fresh(self, prepare: Prepare | None = None) -> str:
        return self._create(self._template(prepare) if prepare else "template0")

    def drop(self, url: str) -> None:
        self._run(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')

    def close(self) -> None:
        """Drop the templates, for servers that outlive the tests."""
        for name in self.templates.values():
            self.drop(self._url(name))
        self._admin.close()

    @cached_property
    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(libpq(self.admin_url), autocommit=True)

    def _template(self, prepare: Prepare) -> str:
        if prepare not in self.templates:
            url = self._create("template0")
            prepare(url)
            self.templates[prepare] = urlsplit(url).path[1:]
        return self.templates[prepare]

    def _create(self, template: str) -> str:
        name = f"grader_test_{secrets.token_hex(6)}"
        # small files are copied sooner than they are written to the log, as it is done otherwise since 15
        strategy = "STRATEGY FILE_COPY" if self._admin.info.server_version >= 15_00_00 else ""
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}" ENCODING \'UTF8\' {strategy}')
        return self._url(name)

    def _url(self, name: str) -> str:
        scheme, netloc, _, query, _ = urlsplit(self.admin_url)
        return urlunsplit(
            (scheme.replace("postgresql+psycopg", "postgresql"), netloc, f"/{name}", query, "")
        ).replace("postgresql:", "postgresql+psycopg:", 1)

    def _run(self, statement: str) -> None:
        self._admin.execute(statement.encode())


def in_memory() -> Path | None:
    """A folder in memory, where there is one with room: each of thousands of databases waits for the disk."""
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free > ROOM else None


def libpq(url: str) -> str:
    """The URL as psycopg takes it, without SQLAlchemy's driver name."""
    return url.replace("postgresql+psycopg:", "postgresql:", 1)


# --- PostgreSQL ---------------------------------------------------------------------------------------


@dataclass
class Postgres:
    """A PostgreSQL server of one's own, on loopback."""

    url: str
    folder: Path
    command: list[str | Path]
    run_as: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.run_as,
            )
        _wait_for_postgres(self.url, self.process, self.folder / "log")

    def stop(self) -> None:
        """As `pg_ctl stop -m immediate`: at once, without a checkpoint; its children follow."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)


@contextmanager
def running_postgres() -> Iterator[str]:
    """URL of TEST_DATABASE_URL's server, else of one started here: new, on loopback, durable in nothing."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    with own_postgres(durable=False) as postgres:
        yield postgres.url


@contextmanager
def own_postgres(*, durable: bool) -> Iterator[Postgres]:
    """A new server that ends with the context; a `durable` one keeps what was committed when it is killed."""
    programs = find_postgres()
    # not pytest's tmp_path: the postgres user must be able to enter its parents
    folder = Path(tempfile.mkdtemp(prefix="grader-postgres-", dir=None if durable else in_memory()))
    user = unprivileged_user()
    try:
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        postgres = _made_postgres(programs, folder, user, durable)
        try:
            postgres.start()
            yield postgres
        finally:
            postgres.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_postgres() -> Path:
    """The folder that holds `initdb` and `postgres`."""
    folders = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *sorted(Path("/opt/homebrew/opt").glob("postgresql@*/bin"), reverse=True),
        *sorted(Path("/usr/local/opt").glob("postgresql@*/bin"), reverse=True),
    ]
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ServiceMissing(
        "PostgreSQL is not on this machine. Run scripts/bootstrap test, or set TEST_DATABASE_URL to a server "
        "where the tests may create databases."
    )


def unprivileged_user() -> pwd.struct_passwd | None:
    """Whom PostgreSQL runs as when the tests run as root, which it refuses; None when they do not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "_postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServiceMissing("PostgreSQL does not run as root and there is no user 'postgres' to run it as.")


def _made_postgres(programs: Path, folder: Path, user: pwd.struct_passwd | None, durable: bool) -> Postgres:
    run_as: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    password = secrets.token_urlsafe(16)
    password_file = folder / "password"
    password_file.write_text(password)
    password_file.chmod(0o600)
    if user:
        os.chown(password_file, user.pw_uid, user.pw_gid)
    data, port = folder / "data", free_port()
    initdb: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "grader",
        "-A",
        "md5",  # to look at a password by SCRAM takes longer than to connect
        "--pwfile",
        password_file,
    ]
    made = subprocess.run(
        [*initdb, "-E", "UTF8", "--no-locale", "--no-sync"],
        cwd=folder, capture_output=True, text=True, timeout=60, **run_as,
    )  # fmt: skip
    if made.returncode:
        raise ServiceMissing(f"initdb failed: {made.stderr.strip()}")
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        "fsync": "off",
        "synchronous_commit": "on" if durable else "off",
        "full_page_writes": "off",
        "autovacuum": "off",  # each database is there for a moment
        "max_connections": 200,
        "shared_buffers": "64MB",
        "max_wal_size": "128MB",
    }
    command: list[str | Path] = [programs / "postgres", "-D", data]
    for key, value in settings.items():
        command += ["-c", f"{key}={value}"]
    url = f"postgresql+psycopg://grader:{password}@127.0.0.1:{port}/postgres"
    return Postgres(url, folder, command, run_as)


def _wait_for_postgres(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(psycopg.OperationalError):
            psycopg.connect(libpq(url), connect_timeout=10).close()
            return
        time.sleep(0.05)
    raise ServiceMissing(f"PostgreSQL did not start:\n{log.read_text(errors='replace')[-2000:]}")


# --- browser ------------------------------------------------------------------------------------------


def find_browser() -> str:
    """Path of a Chromium or Chrome: CHROMIUM, else the system's, first the one that draws no windows."""
    names = [
        os.environ.get("CHROMIUM", "chromium-headless-shell"),
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
    ]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise ServiceMissing("There is no Chromium on this machine. Run scripts/bootstrap test, or set CHROMIUM.")
