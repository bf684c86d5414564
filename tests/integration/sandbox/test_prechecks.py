"""Code that is checked before it is submitted: run once, by the visible tests only, and not kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.broker.dispatch import Dispatch
from grading.checks.kinds.tests import Case, PassesTests
from grading.checks.precheck import PrecheckOutcome
from grading.documents import UploadedFile, read
from grading.domain.errors import SandboxUnavailable
from grading.domain.rubric import Criterion, Rubric
from grading.store import schema, tables
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.submissions import prechecks
from grading.store.submissions.prechecks import LOST_AFTER, FoundPrecheck, PrecheckRunning
from grading.store.tables import CachedExecution
from tests.integration.sandbox.test_sandbox_runs import RIGHT, WRONG, School, made
from tests.support.factories import COURSE, add_student
from tests.support.services import SqliteDatabases
from workers.sandbox.backends import open_backend
from workers.sandbox.plan_runner import Runner
from workers.sandbox.prechecks import run_precheck
from workers.server.sweeper import Sweeper


@pytest.fixture
def school(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[School]:
    yield from made(fresh_database(schema.upgrade), redis_url, root, open_backend("bubblewrap"))


@pytest.fixture
def lite(sqlite_databases: SqliteDatabases, redis_url: str, root: Path) -> Iterator[School]:
    yield from made(sqlite_databases.fresh(schema.upgrade), redis_url, root, open_backend("bubblewrap"))


def asked(school: School, student: str, source: str, name: str = "double.py") -> str:
    """A precheck of somebody that waits."""
    content = read([UploadedFile(name, source.encode())])
    user_id = add_student(school.server.store, student)
    with school.server.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        return prechecks.create_precheck(session, assignment, user_id, source, content)


def found(school: School, precheck_id: str) -> FoundPrecheck:
    with school.server.store.read() as session:
        row = session.get_one(tables.Precheck, precheck_id)
        last = prechecks.find_precheck(session, row.assignment_id, row.user_id)
    assert last is not None
    return last


def outcome(school: School, precheck_id: str) -> PrecheckOutcome:
    run_precheck(school.server, school.runner, precheck_id)
    last = found(school, precheck_id)
    assert last.outcome is not None
    return last.outcome


def test_the_visible_tests_run_and_no_hidden_one(lite: School) -> None:
    school = lite
    passed = outcome(school, asked(school, "ada", WRONG))  # right for the visible test only
    (tests,) = passed.outcomes
    assert [(one.input, one.passed, one.hidden) for one in tests.tests] == [("double(2)", True, False)]
    said = json.dumps(passed.model_dump(mode="json"))
    assert "'ab'" not in said
    assert "hidden test" not in said
    failed = outcome(school, asked(school, "ben", "print('begin')\n\ndef double(x):\n    return 5\n"))
    (tests,) = failed.outcomes
    assert [(one.got, one.passed) for one in tests.tests] == [("5", False)]
    (document,) = failed.execution.documents.values()
    assert [output.text for cell in document.cells for output in cell.outputs] == ["begin\n"]
    with school.server.store.read() as session:
        kept = session.scalars(select(CachedExecution.content)).all()
    assert "begin" not in json.dumps(kept, default=str)


def test_one_runs_once_and_a_person_has_one_at_a_time(school: School) -> None:
    first = asked(school, "ada", RIGHT)
    with pytest.raises(PrecheckRunning):
        asked(school, "ada", WRONG)
    assert found(school, first).pending
    waiting = school.waiting()[celery_app.SANDBOX]
    assert school.server.dispatch.announce_precheck(first)
    assert school.waiting()[celery_app.SANDBOX] == waiting + 1
    outcome(school, first)
    opened = school.sandbox.opened
    run_precheck(school.server, school.runner, first)  # announced twice
    assert school.sandbox.opened == opened > 0
    second = asked(school, "ada", "while True: pass\n")
    run_precheck(school.server, school.runner, first)  # it was replaced
    assert found(school, second).pending
    school.server.store.clock_offset_s = LOST_AFTER.total_seconds() + 1
    assert found(school, second).lost
    third = asked(school, "ada", RIGHT)
    run_precheck(school.server, school.runner, second)
    assert found(school, third).pending


def test_a_check_whose_message_was_lost_is_queued_again(
    lite: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(Dispatch, "announce_precheck", lambda _self, precheck_id: sent.append(precheck_id))
    lost, redis = asked(lite, "ada", RIGHT), lite.server.dispatch.registry.redis
    sweeper = Sweeper(lite.server)
    # nobody is there who could run it; it may be on its way; it was lost; it waits in the queue
    for alive, later_s, queued in ((False, 6, False), (True, 0, False), (True, 6, False), (True, 6, True)):
        redis.delete(*celery_app.SANDBOX_QUEUES)
        if alive:
            Canaries(redis).heartbeat("sandbox", "here:1", "v")
        if queued:
            redis.lpush(celery_app.SANDBOX, "{}")
        lite.server.store.clock_offset_s = later_s
        sweeper.step()
    redis.delete(*celery_app.SANDBOX_QUEUES)
    assert sent == [lost]
    assert outcome(lite, lost).outcomes


@pytest.mark.soak
def test_code_in_r_is_checked_too(lite: School) -> None:
    case = Case(expression="double(2)", expected="4")
    criteria = (Criterion(id="code", title="Code", points=1, checks=(PassesTests(cases=(case,)),)),)
    new = NewVersion("double-r", "Double", "r", "at_once", "1", rubric=Rubric(criteria=criteria))
    with lite.server.store.write() as session:
        lite.assignment = versions.import_version(session, COURSE, new)[0].id
    found = outcome(lite, asked(lite, "ada", "double <- function(x) 2 * x\nstop('later')\n", "main.R"))
    assert [(one.input, one.passed) for one in found.outcomes[0].tests] == [("double(2)", True)]
    (document,) = found.execution.documents.values()
    assert [(cell.state, cell.line, "later" in cell.error) for cell in document.cells] == [
        ("failed", 2, True)
    ]


def test_a_sandbox_that_is_away_is_said(lite: School, monkeypatch: pytest.MonkeyPatch) -> None:
    school = lite

    def away(*_: object) -> None:
        raise SandboxUnavailable("no room")

    monkeypatch.setattr(Runner, "run_unkept", away)
    assert outcome(school, asked(school, "ada", RIGHT)).unavailable
