"""Store worker and machine workers as processes, on real Redis and both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from grading.domain.errors import for_student
from grading.domain.report import Report
from grading.domain.round_states import RoundState, RunState, StageState
from grading.store import schema
from grading.store.tables import Grade, Round, RoundStage, Run
from tests.support.factories import add_assignment, submit
from tests.support.servers.ollama_server import ollama_server
from tests.support.services import SqliteDatabases
from tests.support.system import Site, assert_graded_once, site

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
ANALYSIS_AND_FEEDBACK = """
[[machines]]
name = "dgx-spark-1"
[machines.stages]
analysis = {{ engine = "instant", model = "small" }}

[[machines]]
name = "mac-studio-1"
[machines.engines.ollama]
url = "{url}"
context_tokens = {context}
[machines.stages]
feedback = {{ engine = "ollama", model = "tiny" }}
"""
WithOllama = Callable[[str, int], AbstractContextManager[Site]]
"""A fault of the next request and the context in tokens give a system that runs."""
MACHINES = ("dgx-spark-1", "mac-studio-1")


KINDS = ["postgres_databases", pytest.param("sqlite_databases", marks=pytest.mark.soak)]
"""Systems of tests/faults and tests/e2e have SQLite."""


@pytest.fixture(params=KINDS)
def two_machines(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> Iterator[Site]:
    url = request.getfixturevalue(request.param).fresh(schema.upgrade)
    with site(tmp_path, TWO_MACHINES, url, redis_url) as made:
        yield made


def start(made: Site) -> None:
    made.parts.start("store", "store")
    for machine in MACHINES:
        made.parts.start(machine, "worker", machine)
    made.until_alive(*MACHINES)


def announce(made: Site, count: int, priority: str = "interactive") -> list[str]:
    """Submit and say so, as the web app does."""
    assignment = add_assignment(made.store, release="at_once")
    found = []
    for number in range(count):
        accepted = submit(made.store, assignment, f"{priority}-{number}", priority=priority)
        assert made.dispatch.announce(accepted.round_id)
        found.append(accepted.round_id)
    return found


def test_submissions_are_graded_once_by_machines_that_share_the_work(two_machines: Site) -> None:
    start(two_machines)
    announce(two_machines, 6, "batch")
    announce(two_machines, 6)
    two_machines.until_final(12, 90)
    assert_graded_once(two_machines.store, 12)
    with two_machines.store.read() as session:
        reports = [Report.model_validate(row) for row in session.scalars(select(Grade.report))]
        runs = session.scalars(select(Run)).all()
    for report in reports:
        done = report.stages
        for provenance in done.values():
            model = "small" if provenance.machine == "dgx-spark-1" else "large"
            assert (provenance.engine, provenance.model, provenance.digest) == ("instant", model, "instant")
            assert provenance.tokens.prompt > 100
            assert provenance.tokens.output > 0
            assert provenance.first_token_s is not None
            assert 0.1 <= provenance.first_token_s <= provenance.seconds < 60
    assert {run.machine for run in runs} == set(MACHINES)
    assert all(run.attempt == 1 and run.finished_at >= run.dispatched_at for run in runs)
    assert two_machines.dispatch.registry.held() == []


@pytest.fixture
def with_ollama(sqlite_databases: SqliteDatabases, redis_url: str, tmp_path: Path) -> WithOllama:
    @contextmanager
    def make(fault: str, context: int) -> Iterator[Site]:
        with ollama_server(fault=fault) as server:
            server.behaviour.times = 1
            config = ANALYSIS_AND_FEEDBACK.format(url=server.url, context=context)
            with site(tmp_path, config, sqlite_databases.fresh(schema.upgrade), redis_url) as made:
                start(made)
                yield made

    return make


@pytest.mark.soak  # tests/integration/engines/test_model_faults.py has the same with a machine that is played
def test_a_stage_that_cannot_be_done_leaves_the_points_so_far_and_says_why(with_ollama: WithOllama) -> None:
    with with_ollama("", 1024) as made:  # no room for any prompt
        (round_id,) = announce(made, 1)
        made.until_final(1, 90)
        with made.store.read() as session:
            current = session.get_one(Round, round_id)
            failed = session.get_one(RoundStage, (round_id, "feedback"))
            grade = session.scalars(select(Grade)).one()
    report = Report.model_validate(grade.report)
    assert current.state == RoundState.PARTIAL
    assert (failed.state, failed.error, failed.tries) == (StageState.DEAD, "job_invalid", 1)
    assert current.failure.message == report.failures["feedback"] == for_student("job_invalid").message
    assert failed.message.message.endswith(".")  # the operator's
    assert (grade.points, grade.max_points, grade.released_at) == (None, 100.0, None)
    assert [(c.criterion, c.basis) for c in report.criteria] == [
        ("code", "checks"),
        ("reflection", "ungraded"),
    ]
    assert report.feedback is None
    assert report.analysis is not None


def test_a_stage_that_failed_once_is_done_at_the_second_try(with_ollama: WithOllama) -> None:
    with with_ollama("500", 32768) as made:
        made.parts.start("sweep", "sweep")
        (round_id,) = announce(made, 1)
        made.until_final(1, 90)
        assert_graded_once(made.store, 1)
        with made.store.read() as session:
            query = select(Run.state).where(Run.round_id == round_id, Run.stage == "feedback")
            assert list(session.scalars(query.order_by(Run.attempt))) == [RunState.FAILED, RunState.DONE]
