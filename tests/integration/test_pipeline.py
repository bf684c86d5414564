"""Store worker and machine workers as processes, on real Redis and both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from grading.model import Report, RoundState, StageState
from grading.store import migrate
from grading.store.tables import Grade, Round, RoundStage, Run
from tests.factories import add_assignment, hand_in
from tests.servers.ollama_server import ollama_server
from tests.services import SqliteDatabases
from tests.system import Site, assert_graded_once, site

TWO_MACHINES = """
[[machines]]
name = "dgx-spark-1"
slots = 2
[machines.engines.instant]
options = { seconds = 0.1 }
[machines.stages]
analysis = { engine = "instant", model = "small" }
feedback = { engine = "instant", model = "small" }

[[machines]]
name = "mac-studio-1"
slots = 2
[machines.engines.instant]
options = { seconds = 0.1 }
[machines.stages]
analysis = { engine = "instant", model = "large" }
feedback = { engine = "instant", model = "large" }
"""
ONE_WITHOUT_ITS_MODEL = """
[[machines]]
name = "dgx-spark-1"
[machines.stages]
analysis = {{ engine = "instant", model = "small" }}

[[machines]]
name = "mac-studio-1"
[machines.engines.ollama]
url = "{url}"
[machines.stages]
feedback = {{ engine = "ollama", model = "absent" }}
"""
MACHINES = ("dgx-spark-1", "mac-studio-1")


@pytest.fixture
def two_machines(fresh_database: Callable[..., str], redis_url: str, tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, TWO_MACHINES, fresh_database(migrate.upgrade), redis_url) as made:
        yield made


def start(made: Site) -> None:
    made.parts.start("store", "store")
    for machine in MACHINES:
        made.parts.start(machine, "worker", machine)


def announce(made: Site, count: int, priority: str = "interactive") -> list[str]:
    """Hand in and say so, as the web app does."""
    assignment = add_assignment(made.store, release="at_once")
    found = []
    for number in range(count):
        accepted = hand_in(made.store, assignment, f"{priority}-{number}", priority=priority)
        assert made.dispatch.announce(accepted.round_id)
        found.append(accepted.round_id)
    return found


def test_submissions_are_graded_once_by_two_machines_each(two_machines: Site) -> None:
    # both wait before a machine is there: people first, then batches
    batch = announce(two_machines, 6, "batch")
    people = announce(two_machines, 6)
    start(two_machines)
    two_machines.until_final(12, 40)
    assert_graded_once(two_machines.store, 12)
    with two_machines.store.read() as session:
        rows = {row.id: row for row in session.scalars(select(Round))}
        assert max(rows[r].dispatched_at for r in people) <= min(rows[r].dispatched_at for r in batch)
        reports = [Report.model_validate(row) for row in session.scalars(select(Grade.report))]
        runs = session.scalars(select(Run)).all()
    for report in reports:
        done = report.stages
        assert {p.machine for p in done.values()} == set(MACHINES)
        for provenance in done.values():
            model = "small" if provenance.machine == "dgx-spark-1" else "large"
            assert (provenance.engine, provenance.model, provenance.digest) == ("instant", model, "instant")
            assert provenance.tokens.prompt > 100
            assert provenance.tokens.output > 0
            assert provenance.first_token_s is not None
            assert 0.1 <= provenance.first_token_s <= provenance.seconds < 10
    assert {run.machine for run in runs} == set(MACHINES)
    assert all(run.attempt == 1 and run.finished_at >= run.dispatched_at for run in runs)
    assert two_machines.dispatch.leases_.held() == []


def test_a_stage_that_fails_leaves_the_other_ones_points_and_says_why(
    sqlite_databases: SqliteDatabases, redis_url: str, tmp_path: Path
) -> None:
    database = sqlite_databases.fresh(migrate.upgrade)
    with (
        ollama_server(("another",)) as server,
        site(tmp_path, ONE_WITHOUT_ITS_MODEL.format(url=server.url), database, redis_url) as made,
    ):
        start(made)
        (round_id,) = announce(made, 1)
        made.until_final(1, 40)
        with made.store.read() as session:
            current = session.get_one(Round, round_id)
            failed = session.get_one(RoundStage, (round_id, "feedback"))
            grade = session.scalars(select(Grade)).one()
        report = Report.model_validate(grade.report)
        assert current.state == RoundState.PARTIAL
        assert (failed.state, failed.error, failed.tries) == (StageState.DEAD, "model_missing", 1)
        assert "absent" in failed.message
        assert current.failure == failed.message == report.failures["feedback"]
        assert (grade.points, grade.max_points) == (None, 100.0)
        assert grade.points_so_far > 0
        assert grade.released_at is None
        assert report.feedback is None
        assert report.analysis is not None
