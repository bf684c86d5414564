"""Model servers go away under their machines: nothing dies of it, and no run loses one of its tries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from cli.dev.embedded_redis import free_port, start_redis
from grading.store import Store
from grading.store.tables import Round, RoundStage, Run
from tests.support.factories import add_assignment, submit
from tests.support.servers.base import Behaviour, ModelServer
from tests.support.servers.ollama_server import OllamaHandler
from tests.support.system import Site, site, until

DEAD, WELL = "dead", "well"
"""The server of one machine is away from the first; that of the other one goes later, and comes back."""
COUNT = 4
"""Submissions before it goes, and as many while nobody can do them."""
MACHINE = """
[[machines]]
name = "{name}"
slots = 2
[machines.engines.ollama]
url = "http://127.0.0.1:{port}"
[machines.stages]
analysis = {{ engine = "ollama", model = "tiny" }}
feedback = {{ engine = "ollama", model = "tiny" }}
"""


@dataclass
class Outcome:
    """What came of it."""

    before: dict[str, int]
    """state -> rounds, when one of two servers was away."""
    meanwhile: dict[str, int]
    """The same, when both were."""
    why: dict[str, str]
    """machine -> what it said of its engine then."""
    after: dict[str, int]
    runs: list[tuple[str, str | None, bool]]
    """(machine, error, accepted) of all runs."""
    stages: list[tuple[str, int, int]]
    """(state, tries, runs) of all stages."""


def play(folder: Path, database_url: str) -> Outcome:
    """Two machines; first one of their servers is away, then both, then only the first one again."""
    ports = {DEAD: free_port(), WELL: free_port()}
    config = "".join(MACHINE.format(name=name, port=port) for name, port in ports.items())
    folder.mkdir(parents=True, exist_ok=True)
    with start_redis(folder / "redis") as redis, site(folder, config, database_url, redis.url) as made:
        for name, command in (("store", ["store"]), ("sweep", ["sweep"])):
            made.parts.start(name, *command)
        with server(ports[WELL]):
            for machine in ports:
                made.parts.start(machine, "worker", machine)
            made.until_alive(*ports)
            announce(made, "before")
            made.until_final(COUNT, 90)
            before = states(made.store)
        announce(made, "meanwhile")
        until(lambda: set(away(made)) == set(ports), 60, f"both know; logs in {folder}")
        meanwhile, why = states(made.store), away(made)
        with server(ports[WELL]):
            made.until_final(2 * COUNT, 120)
            with made.store.read() as session:
                runs = session.execute(select(Run.machine, Run.error, Run.accepted)).all()
                stages = session.execute(select(RoundStage.state, RoundStage.tries, RoundStage.runs)).all()
            return Outcome(before, meanwhile, why, states(made.store), plain(runs), plain(stages))


def plain(rows: Any) -> list[Any]:
    return [tuple(row) for row in rows]


def server(port: int) -> ModelServer:
    return ModelServer(OllamaHandler, Behaviour(("tiny",), seconds=0.1), port)


def announce(made: Site, student: str) -> None:
    """Submit and say so, as the web app does."""
    assignment = add_assignment(made.store, student, release="at_once")
    for number in range(COUNT):
        assert made.dispatch.announce(submit(made.store, assignment, f"{student}-{number}").round_id)


def states(store: Store) -> dict[str, int]:
    with store.read() as session:
        return dict(Counter(str(state) for state in session.scalars(select(Round.state))))


def away(made: Site) -> dict[str, str]:
    """machine -> why it takes nothing, of those that do not."""
    heartbeats = [state.heartbeat for state in made.dispatch.machines() if state.heartbeat is not None]
    return {
        heartbeat.machine: heartbeat.circuits["ollama"]["why"]
        for heartbeat in heartbeats
        if len(heartbeat.broken) == 2
    }


def test_a_server_that_is_away_costs_no_grade_while_another_machine_works(outcome: Outcome) -> None:
    assert outcome.before == {"graded": COUNT}


def test_with_all_servers_away_rounds_wait_and_go_on_when_one_is_back(outcome: Outcome) -> None:
    assert outcome.meanwhile["graded"] == COUNT
    assert not {"partial", "failed"} & set(outcome.meanwhile)
    assert outcome.after == {"graded": 2 * COUNT}
    assert set(outcome.why) == {DEAD, WELL}
    assert all("Start it" in why for why in outcome.why.values())


def test_no_stage_lost_a_try(outcome: Outcome) -> None:
    assert outcome.runs == [(WELL, None, True)] * (4 * COUNT)
    assert outcome.stages == [("done", 1, 1)] * (4 * COUNT)
