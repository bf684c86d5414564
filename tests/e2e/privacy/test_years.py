"""A student's way through a real system, then out of it; and a system that moves to another computer."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis import Redis

from cli.dev.embedded_redis import free_port, start_redis
from cli.dev.local_stack import accepts_uploads
from cli.main import grader
from grader_client import Client
from grading.broker.heartbeats import Heartbeat
from grading.store import schema
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.privacy.erasure import find_student
from tests.support.aging import redis_rows, shapes
from tests.support.factories import COURSE
from tests.support.services import SqliteDatabases
from tests.support.system import ASSIGNMENT, Site, assert_graded_once, count_final, furnish, site, until

CONFIG = """
[server]
port = {port}
[[machines]]
name = "dgx-spark-1"
slots = 4
[machines.stages]
analysis = {{ engine = "rules", model = "rules" }}
feedback = {{ engine = "rules", model = "rules" }}
"""
CANARIES = {
    what: f"zqkanari{what}" for what in ("name", "mail", "id", "file", "code", "output", "text", "second")
}
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "cells": [
        {"id": "a", "cell_type": "markdown", "metadata": {}, "source": f"I think {CANARIES['text']} is why."},
        {
            "id": "b",
            "cell_type": "code",
            "metadata": {},
            "execution_count": 1,
            "source": f"# {CANARIES['code']}\nmean = total / n",
            "outputs": [{"output_type": "stream", "name": "stdout", "text": f"{CANARIES['output']}\n"}],
        },
    ],
}


def start(made: Site, *parts: str) -> str:
    """Start parts and wait until they are there; the web app's address."""
    commands = {"web": ("web", "--var", str(made.folder / "var")), "worker": ("worker", "dgx-spark-1")}
    for part in parts:
        made.parts.start(part, *commands.get(part, (part,)))
    url = f"http://127.0.0.1:{made.config.server.port}"
    until(lambda: accepts_uploads(url), 60, f"the web app answers; see {made.folder}")
    if "worker" in parts:
        made.until_alive("dgx-spark-1")
    return url


def run(made: Site, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """A command on this site; it must succeed."""
    monkeypatch.setenv("GRADER_DATABASE_URL", made.config.database.url)
    monkeypatch.setenv("GRADER_REDIS_URL", made.config.redis.url)
    done = CliRunner().invoke(grader, ["--config", str(made.folder / "config.toml"), *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def everything_kept(made: Site) -> dict[str, bytes]:
    """The bytes of every file: logs, the database, the files of Redis; and the rows of Redis."""
    database = Path(made.store.engine.url.database or "")
    files = [*made.folder.rglob("*"), *(Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm"))]
    kept = {path.name: path.read_bytes() for path in files if path.is_file() and path.suffix != ".zip"}
    with Redis.from_url(made.config.redis.url, decode_responses=True) as client:
        rows = redis_rows(client)
    return {**kept, "redis": "\n".join(rows).encode()}


def found(kept: dict[str, bytes]) -> set[tuple[str, str]]:
    """(where, which canary), also where it is part of an encoded message."""
    looked_for = [(what, shape) for what in CANARIES.values() for shape in shapes(what)]
    return {(where, what) for where, data in kept.items() for what, shape in looked_for if shape in data}


def sent_to_one_that_is_gone(made: Site) -> bool:
    """Whether the second submission waits in Redis for the machine; one heartbeat is sent for it."""
    stages = {stage: {"engine": "rules", "model": "rules"} for stage in ("analysis", "feedback")}
    made.dispatch.registry.heartbeat(Heartbeat("gone", "dgx-spark-1", 4, 0, stages))
    return ("redis", CANARIES["second"]) in found(everything_kept(made))


def test_a_student_is_exported_and_erased_everywhere(
    sqlite_databases: SqliteDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite_databases.fresh(schema.upgrade)
    with (
        start_redis(tmp_path / "redis") as redis,
        site(tmp_path, CONFIG.format(port=free_port()), database, redis.url) as made,
    ):
        client = furnish(made.store, start(made, "web", "store", "sweep", "worker"))
        with made.store.write() as session:
            user = users.create_user(
                session, CANARIES["id"], name=CANARIES["name"], email=f"{CANARIES['mail']}@mail.invalid"
            )
            users.enrol(session, user.id, versions.find_or_create_course(session, COURSE).id, "student")
        work = {f"{CANARIES['file']}.ipynb": json.dumps(NOTEBOOK).encode()}
        client.submit(work, ASSIGNMENT, CANARIES["id"])
        client.submit({"work.R": b"x <- 1 # of another student"}, ASSIGNMENT, "ben")
        made.until_final(2, 60)
        # a second submission stays under way: its machine is gone
        made.parts.kill("worker")
        second = client.submit({"again.R": CANARIES["second"].encode()}, ASSIGNMENT, CANARIES["id"])
        until(lambda: sent_to_one_that_is_gone(made), 60, "it is sent")
        assert client.submission(second["id"])["status"] == "running"
        before = found(everything_kept(made))
        assert {what for _, what in before} == set(CANARIES.values())
        assert ("redis", CANARIES["second"]) in before

        run(made, monkeypatch, "export", CANARIES["id"], str(tmp_path / "export.zip"))
        with zipfile.ZipFile(tmp_path / "export.zip") as archive:
            exported = b"".join(archive.read(name) for name in archive.namelist())
        assert [what for what in CANARIES.values() if what.encode() not in exported] == []
        assert b"of another student" not in exported

        run(made, monkeypatch, "erase", CANARIES["id"], "--yes")
        until(lambda: not found(everything_kept(made)), 20, "Redis has written its file anew")
        assert count_final(made.store) == 1
        with made.store.read() as session:
            assert find_student(session, "ben").submissions
        print(f"canaries: {len(before)} before in {sorted({where for where, _ in before})}, 0 after")


@pytest.mark.soak
def test_a_system_moves_to_another_computer_in_the_middle_of_its_work(
    sqlite_databases: SqliteDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop, back up, restore there, start, as maintenance.md says. Another folder, Redis and port."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with (
        start_redis(here / "redis") as redis,
        site(here, CONFIG.format(port=free_port()), sqlite_databases.fresh(), redis.url) as old,
    ):
        client = furnish(old.store, start(old, "web", "store", "sweep", "worker"))
        for number in range(4):
            client.submit({"work.R": f"x <- {number}".encode()}, ASSIGNMENT, f"s-{number}")
        old.until_final(4, 60)
        done = client.submit({"work.R": b"x <- 4"}, ASSIGNMENT, "s-4")
        client.wait(done["id"], 30)
        old.parts.kill("worker")
        for number in range(5, 10):
            client.submit({"work.R": f"x <- {number}".encode()}, ASSIGNMENT, f"s-{number}")
        old.parts.stop()
        run(old, monkeypatch, "backup", str(there / "move.zip"))
        assert count_final(old.store) == 5
    # Redis is not moved: what it held is found missing
    database = f"sqlite:///{there / 'grader.db'}"
    (there / "config.toml").write_text(CONFIG.format(port=free_port()))
    monkeypatch.setenv("GRADER_DATABASE_URL", database)
    words = ["--config", str(there / "config.toml"), "restore", str(there / "move.zip")]
    assert CliRunner().invoke(grader, words).exit_code == 0
    with (
        start_redis(there / "redis") as redis,
        site(there, (there / "config.toml").read_text(), database, redis.url) as new,
    ):
        moved = Client(start(new, "web", "store", "sweep", "worker"), client.token)
        assert moved.submission(done["id"])["status"] == "graded"  # tokens move along
        new.until_final(10, 90)
        assert_graded_once(new.store, 10)
