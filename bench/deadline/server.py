"""The server of the benchmark: web hosts, store workers, sweepers, machines and their faults."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flask import Flask
from flask.sessions import SecureCookieSessionInterface
from sqlalchemy import func, select

from bench.pages import dataset
from bench.pages.school import Size
from bench.proxies import Places, Proxy, make_certificate
from bench.router.processes import Processes, process_cpu_s
from cli.dev.embedded_redis import RedisProcess, free_port, start_redis
from cli.dev.local_stack import accepts_uploads
from grading.domain.errors import ConfigError
from grading.domain.round_states import RoundState
from grading.store import Store, schema, tables
from grading.store.accounts import sessions, users

SECRET_KEY = "only for measuring"  # noqa: S105
MACHINES, SLOTS, SECONDS = ("m1", "m2", "m3", "m4"), 8, 20.0
"""As models take it: 200 submissions in about 2 minutes a stage."""
QUICK_S = 0.01
"""What an answer takes once nobody watches any more, so that all are graded soon."""
REDIS_AWAY_S = 5.0
START_S = 90.0
LOST = "a web host and a store worker, for good, and Redis, for 5 s"
HEAD = """
[server]
public_url = "{public_url}"
drain_s = 0
uploads_per_minute = 100000
api_per_minute = 10000000
threads = 8
[sandbox]
backend = "none"
"""
MACHINE = """
[[machines]]
name = "{name}"
slots = {slots}
grace_s = 1
[machines.engines.instant]
options = {{ seconds = {seconds} }}
[machines.stages]
analysis = {{ engine = "instant", model = "m" }}
feedback = {{ engine = "instant", model = "m" }}
"""


@dataclass
class School:
    """Everything that runs, and who takes part."""

    folder: Path
    store: Store
    processes: Processes
    redis: RedisProcess
    hosts: dict[str, int]
    """Name and port of each web host."""
    urls: Sequence[str]
    https: bool
    certificate: str = ""
    assignment: int = 0
    cookies: Sequence[str] = field(default_factory=tuple)
    students: Sequence[int] = field(default_factory=tuple)

    def configure(self, seconds: float) -> None:
        """Write config.toml; answers of machines take so long."""
        text = HEAD.format(public_url="https://localhost" if self.https else "http://localhost")
        text += "".join(MACHINE.format(name=name, slots=SLOTS, seconds=seconds) for name in MACHINES)
        (self.folder / "config.toml").write_text(text, encoding="utf-8")

    def start(self, name: str, *words: str) -> None:
        """Start `grader WORDS` in the folder."""
        launcher = [sys.executable, "-m", "cli", "--config", str(self.folder / "config.toml")]
        self.processes.start(name, [*launcher, *words])

    def start_all(self) -> None:
        """Everything but the proxy. Raises ConfigError where something does not answer."""
        for name, port in self.hosts.items():
            self.start(name, "web", "--port", str(port), "--var", str(self.folder))
        for number in range(len(self.hosts)):
            self.start(f"store-{number}", "store")
            self.start(f"sweep-{number}", "sweep")
        for name in MACHINES:
            self.start(name, "worker", name)
        for port in self.hosts.values():
            _until(lambda port=port: accepts_uploads(f"http://127.0.0.1:{port}"), START_S, "web")

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds of each web host that lives."""
        found = {}
        for name in self.hosts:
            if name in self.processes.running:
                found[name] = process_cpu_s(self.processes.running[name].pid)
        return found

    def lose(self) -> float:
        """Kill a web host and a store worker, where there is another, and Redis for a while; when it was."""
        if len(self.hosts) > 1:
            self.processes.kill(next(iter(self.hosts)))
            self.processes.kill("store-0")
        os.killpg(self.redis.process.pid, signal.SIGKILL)
        self.redis.process.wait(START_S)
        moment = time.monotonic()
        time.sleep(REDIS_AWAY_S)  # as long as a service manager and its file take
        password = unquote(urlsplit(self.redis.url).password or "")
        self.redis.process = start_redis(self.redis.folder, self.redis.port, password).process
        return moment

    def finish(self, timeout_s: float) -> None:
        """Let machines answer at once until all rounds are final. Raises ConfigError."""
        self.configure(QUICK_S)
        for name in MACHINES:
            self.processes.kill(name)
            self.start(name, "worker", name)
        _until(lambda: not self._open(), timeout_s, "all rounds end")

    def _open(self) -> int:
        final = [state for state in RoundState if state.final]
        with self.store.read() as session:
            return session.execute(select(func.count()).where(tables.Round.state.not_in(final))).scalar_one()

    def verdict(self, accepted: dict[int, str]) -> dict[str, Any]:
        """What SQL says about what was accepted."""
        with self.store.read() as session:
            rows = session.execute(select(tables.Submission.id, tables.Submission.student_id)).all()
            states = Counter(session.scalars(select(tables.Round.state)))
            grades = Counter(session.scalars(select(tables.Grade.submission_id)))
        by_student = Counter(student for _, student in rows)
        return {
            "lost": len(set(accepted.values()) - {row.id for row in rows}),
            "submitted_twice": sum(count > 1 for count in by_student.values()),
            "graded_twice": sum(count > 1 for count in grades.values()),
            "not_confirmed": len(rows) - len(accepted),
            "states": dict(states),
        }


@contextmanager
def opened(folder: Path, people: int, hosts: int, proxy: str, database: str) -> Iterator[School]:
    """A school that is ready for the evening."""
    url = database or f"sqlite:///{folder / 'bench.db'}"
    schema.upgrade(url)
    ports = {f"web-{number}": free_port() for number in range(hosts)}
    with ExitStack() as stack:
        store = Store(url)
        stack.callback(store.close)
        redis = stack.enter_context(start_redis(folder / "redis"))
        named = {"GRADER_DATABASE_URL": url, "GRADER_REDIS_URL": redis.url}
        environ = {**named, "GRADER_SECRET_KEY": SECRET_KEY, "PYTHONUNBUFFERED": "1"}
        processes = stack.enter_context(Processes(folder, environ))
        addresses = tuple(f"127.0.0.1:{port}" for port in ports.values())
        direct = [f"http://{address}" for address in addresses]
        school = School(folder, store, processes, redis, ports, direct, https=proxy != "none")
        school.configure(SECONDS)
        _enrol(school, people)
        school.start_all()
        if proxy != "none":
            certificate = make_certificate(folder)
            places = Places(
                folder / proxy,
                free_port(),
                free_port(),
                addresses,
                *certificate,
                connections=4 * people + 4096,
            )
            # everybody comes from one address here
            shorter = {r"limit_conn +grader_addresses 600;": ""}
            before = stack.enter_context(Proxy(proxy, places, shorter if proxy == "nginx" else {}))
            school.urls, school.certificate = [before.url], str(certificate[0])
        yield school


def _enrol(school: School, people: int) -> None:
    """Students who are signed in already, and an assignment."""
    with school.store.write() as session:
        made = dataset.add_people(session, Size(students=people, assignments=1))
        school.students, school.assignment = made.students, made.assignments[0]
        app = Flask("cookies")
        app.secret_key = SECRET_KEY
        signer = SecureCookieSessionInterface().get_signing_serializer(app)
        assert signer is not None
        name = "__Host-grader" if school.https else "grader"
        cookies = []
        for student in made.students:
            user = session.get_one(tables.User, student)
            begun = sessions.create_session(session, student)
            held = {"_user_id": f"{user.id}:{users.session_stamp(user)}:{begun}", "_fresh": True}
            cookies.append(f"{name}={signer.dumps(held)}")
        school.cookies = cookies


def _until(reached: Any, timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > end:
            raise ConfigError(f"Not within {timeout_s:g} s: {what}.")
        time.sleep(0.25)
