"""Machines grade golden submissions each night; who grades otherwise, or reads less, leaves the stage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from cli.dev.embedded_redis import free_port
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion, Rubric
from grading.store import schema
from grading.store.reporting import operations
from grading.store.tables import ParityAlarm, ShadowRun
from grading.store.trust import parity, stage_drains
from tests.support.factories import add_assignment, submit
from tests.support.servers.base import ModelServer
from tests.support.servers.ollama_server import ollama_server
from tests.support.services import SqliteDatabases
from tests.support.system import Site, site, until
from workers.server import shadow_runs
from workers.server.context import Server, open_server

pytestmark = pytest.mark.soak
CRITERIA = tuple(f"c{number}" for number in range(5))
RUBRIC = Rubric(criteria=tuple(Criterion(id=name, title=name, points=20) for name in CRITERIA))
NAMES = ("m1", "m2", "m3")
MACHINE = """
[[machines]]
name = "{name}"
slots = 16
[machines.engines.ollama]
url = "{url}"
context_tokens = {context}
[machines.stages]
analysis = {{ engine = "ollama", model = "tiny" }}
feedback = {{ engine = "ollama", model = "tiny" }}
"""
CONTEXT = 16_384
NOISE = 0.03
SHIFTED = ("work number 2.", "work number 5.", "work number 7.")
"""What three of the golden submissions say."""


@dataclass
class Graders:
    """The model servers of the machines: their levels have noise, and one may shift."""

    servers: dict[str, ModelServer]
    stricter: str = ""

    def play(self, name: str, drawn: random.Random) -> None:
        """Let a machine's model draw its levels, as one with a temperature does."""

        def answer(user: str, text: str) -> str:
            output = json.loads(text)
            if not isinstance(output, dict):
                return text
            shifted = name == self.stricter and any(words in user for words in SHIFTED)
            for at, one in enumerate(output.get("judgements", {}).values()):
                one["level"] = 1 + one["level"] % 2
                one["level"] += drawn.choice((-1, 1)) * (drawn.random() < NOISE)
                one["level"] += shifted and at % 2
            return json.dumps(output)

        self.servers[name].behaviour.answers = answer


@dataclass
class Night:
    """A system whose machines grade golden submissions, and the server that asks them."""

    made: Site
    server: Server
    graders: Graders
    assignment: int

    def pass_by(self) -> None:
        """One night: all that was graded before is of the night before."""
        with self.made.store.write() as session:
            session.execute(update(ShadowRun).values(night=ShadowRun.night))
            for run in session.scalars(select(ShadowRun)):
                run.night = run.night and run.night - timedelta(days=1)

        def compared() -> bool:
            shadow_runs.sweep(self.server)
            with self.made.store.read() as session:
                runs = session.scalars(select(ShadowRun.judged)).all()
            return bool(runs) and all(runs)

        until(compared, 120, "a night's golden runs are compared")

    def alarms(self) -> dict[str, ParityAlarm]:
        """Those that nobody ended, by machine."""
        with self.made.store.read() as session:
            return {one.machine: one for one in parity.list_alarms(session)}

    def end(self, machine: str) -> None:
        """The operator puts a machine back."""
        with self.made.store.write() as session:
            stage_drains.undrain_stage(session, machine, "analysis", "cli")
            out = operations.list_out(session)
        self.made.dispatch.tell_out(out)


def config(servers: dict[str, ModelServer], contexts: dict[str, int]) -> str:
    machines = (
        MACHINE.format(name=name, url=server.url, context=contexts.get(name, CONTEXT))
        for name, server in servers.items()
    )
    return "".join([f"[server]\nport = {free_port()}\n", *machines])


@pytest.fixture
def night(sqlite_databases: SqliteDatabases, redis_url: str, tmp_path: Path) -> Iterator[Night]:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(ollama_server()) for name in NAMES}
        graders = Graders(servers)
        for at, name in enumerate(NAMES):
            graders.play(name, random.Random(at))
        url = sqlite_databases.fresh(schema.upgrade)
        made = stack.enter_context(site(tmp_path, config(servers, {}), url, redis_url))
        made.parts.start("store", "store")
        for name in NAMES:
            made.parts.start(name, "worker", name)
        made.until_alive(*NAMES)
        assignment = add_assignment(made.store, release="at_once", rubric=RUBRIC)
        for number in range(10):
            text = f"# work number {number}.\n" + "\n".join(f"x{n} <- {n} * {number}" for n in range(60))
            accepted = submit(made.store, assignment, f"s{number}", source_text=text)
            made.dispatch.announce(accepted.round_id)
        made.until_final(10, 90)
        with made.store.write() as session:
            chosen = parity.propose(parity.list_candidates(session, assignment))
            assert parity.choose_golden(session, assignment, chosen, Actor(1, administrator=True)) == 10
        server = open_server(made.config)
        yield Night(made, server, graders, assignment)
        server.store.close()
        server.dispatch.registry.redis.close()
        server.dispatch.celery.close()


def test_who_grades_otherwise_or_reads_less_leaves_the_stage(night: Night) -> None:
    night.pass_by()
    night.pass_by()
    assert night.alarms() == {}

    night.graders.stricter = "m2"
    night.pass_by()
    (alarm,) = night.alarms().values()
    assert (alarm.machine, alarm.stage, alarm.out) == ("m2", "analysis", True)
    assert "otherwise than in earlier nights" in parity.reasons(alarm)[0].message

    def out(machine: str) -> set[str]:
        states = {one.name: one for one in night.made.dispatch.machines()}
        heartbeat = states[machine].heartbeat
        return set(heartbeat.broken) if heartbeat is not None else set()

    until(lambda: out("m2") == {"analysis"}, 30, "m2 says that it left the stage")
    assert out("m1") == set()
    night.graders.stricter = ""
    night.end("m2")
    until(lambda: out("m2") == set(), 30, "m2 is back")

    night.made.parts.kill("m3")
    halved = config(night.graders.servers, {"m3": CONTEXT // 2})
    (night.made.folder / "config.toml").write_text(halved, encoding="utf-8")
    night.made.parts.start("m3", "worker", "m3")
    night.made.until_alive(*NAMES)
    night.pass_by()
    (alarm,) = night.alarms().values()
    assert (alarm.machine, alarm.out) == ("m3", True)
    assert f"{CONTEXT // 2} tokens instead of {CONTEXT}" in parity.reasons(alarm)[0].message
