"""Two pools run students' work while they are killed, stopped and told to end, and Redis forgets all."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from cli.dev.embedded_redis import start_redis
from grading.domain.evidence import Evidence
from grading.domain.round_states import RoundState
from grading.store import schema
from grading.store.tables import Outbox, Round
from tests.faults.sandbox.test_kills import TOML, add_python, running_drivers
from tests.support.factories import submit
from tests.support.services import SqliteDatabases
from tests.support.system import Site, assert_graded_once, count_final, site, until

COUNT = 60
SECONDS = 120.0
POOLS = ("sandbox", "sandbox-2")
WORK = "import time\n\ntime.sleep({})\n\n\ndef slow(x):\n    return {} * x  # {}\n"


def strike(made: Site, chance: random.Random, stopped: dict[str, float]) -> None:
    """One fault; pools that were stopped go on after longer than their holds."""
    for name, since in list(stopped.items()):
        if time.monotonic() - since > 18:
            os.kill(made.parts.running[name].pid, signal.SIGCONT)
            del stopped[name]
    name = chance.choice([one for one in POOLS if one not in stopped] or [POOLS[0]])
    what = chance.choice(["kill", "stop", "end", "end", "forget"])
    if what == "forget":
        made.dispatch.registry.redis.flushall()
    elif name in stopped:
        return
    elif what == "kill":
        made.parts.kill(name)
        made.parts.start(name, "sandbox")
    elif what == "stop":
        os.kill(made.parts.running[name].pid, signal.SIGSTOP)
        stopped[name] = time.monotonic()
    else:
        process = made.parts.running[name]
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)  # it was only just started
        made.parts.start(name, "sandbox")


def open_executions(made: Site) -> list[str]:
    """Rounds whose work is still to be run."""
    with made.store.read() as session:
        query = select(Outbox.key).where(Outbox.kind == "execute", Outbox.done_at.is_(None))
        return list(session.scalars(query))


@pytest.mark.soak
def test_everything_is_run_and_graded_once(
    tmp_path: Path, sqlite_databases: SqliteDatabases, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(20261120)
    url = sqlite_databases.fresh(schema.upgrade)
    with start_redis(tmp_path / "redis") as redis, site(tmp_path, TOML, url, redis.url) as made:
        for name, *command in (("store", "store"), ("sweep", "sweep"), ("one", "worker", "one")):
            made.parts.start(name, *command)
        for name in POOLS:
            made.parts.start(name, "sandbox")
        assignment = add_python(made.store)
        wants = []
        for number in range(COUNT):
            right = chance.random() < 0.5
            wants.append(float(right))
            source = WORK.format(chance.choice([0.1, 1, 2, 6]), 2 if right else 3, number)
            priority = chance.choice(["interactive", "batch"])
            done = submit(
                made.store, assignment, f"s-{number}", source_text=source, path="slow.py", priority=priority
            )
            made.dispatch.announce(done.round_id)
        until(running_drivers, 60, "work is run")
        stopped: dict[str, float] = {}
        until_s, struck = time.monotonic() + SECONDS, 0
        while time.monotonic() < until_s and count_final(made.store) < COUNT:
            strike(made, chance, stopped)
            struck += 1
            time.sleep(chance.uniform(1, 6))
        for name in stopped:
            os.kill(made.parts.running[name].pid, signal.SIGCONT)
        made.until_final(COUNT, 180)
        assert_graded_once(made.store, COUNT)
        with made.store.read() as session:
            rows = session.scalars(select(Round.prepared).order_by(Round.created_at, Round.id)).all()
            states = set(session.scalars(select(Round.state)))
        shares = [Evidence.model_validate((row or {})["evidence"]).of("code") for row in rows]
        assert sorted(one.share or 0.0 for one in shares if one) == sorted(wants)
        assert states == {RoundState.GRADED}
        until(lambda: not open_executions(made), 30, "nothing waits to be run")
    assert until(lambda: not running_drivers(), 30, "no box is left")
    with capsys.disabled():
        print(f"\n{COUNT} submissions, {struck} faults, none lost, none twice")
