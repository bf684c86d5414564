"""A pool of ranks grades; one of them is killed in the middle of a submission, and the pool comes back."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from bench.tiny_models import make_model
from cli.dev.embedded_redis import start_redis
from grading.store.tables import Round, RoundStage, Run
from tests.support.factories import add_assignment, submit
from tests.support.sharded import addresses, gone
from tests.support.system import Site, site, until

# lost ranks: tests/integration/engines/test_sharded.py; an engine that is away: test_engine_away.py
pytestmark = pytest.mark.soak

POOL, RESERVE = "pool", "reserve"
"""The machine of several ranks, and one that takes its stage only while that one cannot."""
CONFIG = """
[stages.analysis]
max_output_tokens = 500
[stages.feedback]

[[machines]]
name = "pool"
[machines.engines.sharded.options]
hosts = {hosts}
[machines.stages]
analysis = {{ engine = "sharded", model = "{model}" }}

[[machines]]
name = "words"
[machines.stages]
feedback = {{ engine = "rules", model = "rules" }}

[[machines]]
name = "reserve"
role = "spare"
joins_after_s = 15
[machines.stages]
analysis = {{ engine = "rules", model = "rules" }}
"""


@dataclass
class Outcome:
    """What came of three submissions: one before a rank is killed, one meanwhile, one afterwards."""

    states: list[str]
    machines: list[str | None]
    """Who did the analysis of each."""
    tries: list[int]
    """Of each analysis."""
    why: str
    """What the pool said of itself while it was away."""
    idle_why: str
    """And what when a rank was killed while there was nothing to do."""
    ranks: tuple[list[int], list[int]]
    """Process ids before and afterwards."""


def play(folder: Path, database_url: str) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    model, hidden = make_model(folder / "model", "qwen2", context=32768), folder / "hidden"
    config = CONFIG.format(hosts=addresses(2), model=model)
    with start_redis(folder / "redis") as redis, site(folder, config, database_url, redis.url) as made:
        for name in ("store", "sweep"):
            made.parts.start(name, name)
        for name in (POOL, "words"):  # the other comes later: it would take what the pool should have
            made.parts.start(name, "worker", name)
        made.until_alive(POOL, "words")
        assignment = add_assignment(made.store, release="at_once")
        announce(made, assignment, "before")
        made.until_final(1, 90)
        first = ranks(made)
        announce(made, assignment, "meanwhile")
        until(lambda: writes(made), 90, f"the pool works on the second; logs in {folder}")
        model.rename(hidden)  # so that it stays away until another machine has done its work
        os.kill(first[1], signal.SIGKILL)
        why = until(lambda: away(made), 60, f"the pool says that it is away; logs in {folder}")
        made.parts.start(RESERVE, "worker", RESERVE)
        made.until_final(2, 90)
        hidden.rename(model)
        until(lambda: not away(made), 120, f"the pool is back; logs in {folder}")
        made.parts.kill(RESERVE)
        second = ranks(made)
        announce(made, assignment, "afterwards")
        made.until_final(3, 90)
        os.kill(second[0], signal.SIGKILL)
        idle = until(lambda: away(made), 60, f"the pool says so without any work; logs in {folder}")
        outcome = read(made, (str(why), str(idle)), (first, second))
    gone([*first, *second])
    return outcome


def announce(made: Site, assignment: int, student: str) -> None:
    """Submit and say so, as the web app does."""
    assert made.dispatch.announce(submit(made.store, assignment, student).round_id)


def ranks(made: Site) -> list[int]:
    """The processes of the pool's ranks: children of its worker, in the order they were started."""
    worker = made.parts.running[POOL].pid
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = (map(int, line.split()) for line in told.stdout.splitlines())
    return sorted(pid for pid, parent in pairs if parent == worker)


def writes(made: Site) -> bool:
    """Whether the pool reads or writes for a run now."""
    held = made.dispatch.registry.held()
    return any(lease.machine == POOL and lease.phase in ("reading", "generating") for lease in held)


def away(made: Site) -> str:
    """Why the pool takes no work, if it does not."""
    heartbeats = [
        state.heartbeat for state in made.dispatch.machines() if state.name == POOL and state.heartbeat
    ]
    return "; ".join(heartbeat.circuits["sharded"]["why"] for heartbeat in heartbeats if heartbeat.broken)


def read(made: Site, why: tuple[str, str], processes: tuple[list[int], list[int]]) -> Outcome:
    with made.store.read() as session:
        states = session.scalars(select(Round.state).order_by(Round.created_at)).all()
        query = select(Run.machine).join(Round, Round.id == Run.round_id)
        done = session.scalars(
            query.where(Run.stage == "analysis", Run.accepted).order_by(Round.created_at)
        ).all()
        tried = select(RoundStage.tries).join(Round, Round.id == RoundStage.round_id)
        tries = session.scalars(tried.where(RoundStage.stage == "analysis").order_by(Round.created_at)).all()
    return Outcome([str(state) for state in states], list(done), list(tries), *why, processes)


def test_all_are_graded_by_the_pool_and_while_it_is_away_by_another(outcome: Outcome) -> None:
    assert outcome.states == ["graded"] * 3
    assert outcome.machines == [POOL, RESERVE, POOL]


def test_the_loss_of_a_rank_costs_no_try_and_is_told(outcome: Outcome) -> None:
    assert outcome.tries == [1, 1, 1]
    assert "Rank 1" in outcome.why
    assert "Rank 0" in outcome.idle_why


def test_all_ranks_were_started_again(outcome: Outcome) -> None:
    before, after = outcome.ranks
    assert (len(before), len(after)) == (2, 2)
    assert not set(before) & set(after)
