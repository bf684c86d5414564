"""Canaries through real queues: at most one waits, and a worker whose consumer hangs ends itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grading.broker import canaries as timing
from grading.broker.canaries import Canaries
from grading.broker.connections import connect
from grading.execution.throughput import Rate
from tests.support.system import Site, site, until
from workers.celery_worker import EXIT_STATUS
from workers.server import server_heartbeats
from workers.server.context import Server

ONE = """
[[machines]]
name = "one"
slots = 2
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""
QUICK = """
import signal, sys, workers.celery_worker as watch

def now_be_quick(*_):
    watch.OVERDUE_S, watch.STEADY_S = 3, 1

watch.LOOK_EVERY_S = 0.1
signal.signal(signal.SIGUSR2, now_be_quick)
sys.argv[0] = "grader"
from cli.main import main
main()
"""


@pytest.fixture
def canaries(redis_url: str) -> Iterator[Canaries]:
    client = connect(redis_url)
    yield Canaries(client)
    client.close()


def _later(canaries: Canaries, seconds: float) -> None:
    """Make the canary of the queue so much older."""
    import json

    answers = timing.ANSWERS + "q"
    if answered := int(canaries.redis.get(answers) or 0):  # type: ignore[arg-type]
        canaries.redis.set(answers, int(answered - seconds * 1000))
    row = json.loads(str(canaries.redis.hget(timing.CANARIES, "q")))
    older = {key: value - seconds * 1000 if value else 0 for key, value in row.items()}
    canaries.redis.hset(timing.CANARIES, "q", json.dumps(older))


def test_no_more_than_one_canary_waits_in_a_queue(canaries: Canaries) -> None:
    assert canaries.due("q")
    canaries.redis.lpush("q", "the canary")
    assert not canaries.due("q")
    for _ in range(5):
        _later(canaries, 100)
        assert not canaries.due("q")  # it is in the queue still
    waiting = canaries.waiting(["q"])["q"]
    assert (waiting.waits_s >= 500, waiting.sent_s < 10) == (True, True)
    canaries.redis.delete("q")
    assert not canaries.due("q")
    _later(canaries, timing.LOST_AFTER_S)
    assert canaries.due("q")  # it got lost
    canaries.answer("q")
    assert canaries.waiting(["q"])["q"].waits_s == 0
    assert not canaries.due("q")
    _later(canaries, timing.EVERY_S)
    assert canaries.due("q")


def test_parts_are_known_while_they_speak(canaries: Canaries) -> None:
    canaries.heartbeat("store", "server:1", "v1")
    assert timing.rate_of_checks(canaries.parts()) is None
    canaries.heartbeat("sweeper", "server:2", "v1")
    assert {(p.part, p.process, p.software, p.alive) for p in canaries.parts()} == {
        ("store", "server:1", "v1", True),
        ("sweeper", "server:2", "v1", True),
    }
    canaries.heartbeat("sandbox", "server:3", "v1", Rate(4, 1.5))
    assert timing.rate_of_checks(canaries.parts()) == Rate(4, 1.5)


@pytest.fixture
def one(tmp_path: Path, redis_url: str) -> Iterator[Site]:
    with site(tmp_path, ONE, f"sqlite:///{tmp_path}/grader.db", redis_url) as made:
        yield made


def test_a_worker_whose_consumer_hangs_is_seen_and_ends_itself(
    one: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grading.broker.machine_status.OVERDUE_S", 0.4)
    server = Server(one.config, one.store, one.dispatch)
    config = ["--config", str(one.folder / "config.toml")]
    with (one.folder / "one.log").open("wb") as log:
        worker = one.parts.running["one"] = subprocess.Popen(
            [sys.executable, "-c", QUICK, *config, "worker", "one"],
            env=one.parts.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    one.until_alive("one")

    def waits_s() -> float | None:
        return one.dispatch.machines()[0].canary_age_s

    server_heartbeats.sweep(server)  # once: another canary is not due for half a minute
    until(lambda: waits_s() == 0, 30, "the canary comes back")
    assert not one.dispatch.machines()[0].hung
    # what a lost connection did to consumers: it sends heartbeats and has free slots, and reads no queue
    one.dispatch.celery.control.cancel_consumer("machine.one", reply=True, timeout=30, limit=1)

    monkeypatch.setattr(timing, "EVERY_S", 0.0)
    server_heartbeats.sweep(server)
    until(lambda: one.dispatch.machines()[0].hung, 30, "the machine is seen to hang")
    worker.send_signal(signal.SIGUSR2)
    assert worker.wait(60) == EXIT_STATUS
    assert "the consumer of machine.one has stalled" in (one.folder / "one.log").read_text()
