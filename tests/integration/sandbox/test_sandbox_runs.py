"""From a submission whose work must be run to a round that is queued with what that showed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.checks.kinds.tests import Case, PassesTests
from grading.config.settings import SandboxSettings, load
from grading.documents import Limits, UploadedFile, read
from grading.domain.evidence import Evidence
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.execution.values import Code, Request, Work
from grading.store import blob_moves, schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.submissions import intake, receipts
from grading.store.submissions.intake import IncomingSubmission
from grading.store.tables import CachedExecution, Outbox, Round
from tests.support.factories import COURSE, add_student, submit
from tests.support.german import in_german
from tests.support.object_stores import LARGE, in_memory
from tests.support.services import SqliteDatabases
from tests.support.system import close_dispatch
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.base import Backend, SandboxSpec, Session
from workers.sandbox.backends.selection import NoBackend
from workers.sandbox.plan_runner import Runner, Shelf
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime
from workers.sandbox.worker import HOLD_S, KILLS_WORKER, MOST_KILLS, PUT_OFF_S, ClaimedRounds, run_round
from workers.server.context import Server, open_server
from workers.server.prepare import prepare
from workers.server.sweeper import Sweeper

RUBRIC = Rubric(
    criteria=(
        Criterion(
            id="code",
            title="Code",
            points=60,
            checks=(
                PassesTests(
                    cases=(
                        Case(expression="double(2)", expected="4"),
                        Case(expression="double('ab')", expected="'ab' * 2", hidden=True),
                    )
                ),
            ),
        ),
        Criterion(id="reflection", title="Reflection", points=40, stage="feedback"),
    )
)
RIGHT = "def double(x):\n    return x + x\n"
WRONG = "def double(x):\n    return 4\n"


@dataclass
class Counting:
    """A backend that counts its sandboxes."""

    inner: Backend
    opened: int = 0

    @property
    def name(self) -> str:
        return self.inner.name

    def problem(self) -> str:
        return self.inner.problem()

    def open(self, spec: SandboxSpec) -> Session:
        self.opened += 1
        return self.inner.open(spec)


@dataclass
class School:
    """A server side with an assignment that asks for a run, and a runner."""

    server: Server
    runner: Runner
    sandbox: Counting
    assignment: int
    holding: ClaimedRounds = field(init=False)

    def __post_init__(self) -> None:
        self.holding = ClaimedRounds(self.server)

    def received(self, student: str, source: str = RIGHT) -> str:
        return submit(
            self.server.store, self.assignment, student, source_text=source, path="double.py"
        ).round_id

    def tried(self, student: str, source: str = RIGHT) -> Evidence:
        """Submit, prepare and run, as the store worker and the pool do."""
        round_id = self.received(student, source)
        assert not prepare(self.server, round_id)
        run_round(self.server, self.runner, self.holding, round_id)
        return self.evidence(round_id)

    def evidence(self, round_id: str) -> Evidence:
        row = self.row(round_id)
        assert row.state != RoundState.RECEIVED
        return Evidence.model_validate((row.prepared or {})["evidence"])

    def row(self, round_id: str) -> Round:
        with self.server.store.read() as session:
            query = select(Round).where(Round.id == round_id)
            found = session.execute(query).scalar_one()
            _ = found.prepared  # deferred
            return found

    def rows(self, round_id: str) -> dict[str, Outbox]:
        with self.server.store.read() as session:
            return {row.kind: row for row in session.scalars(select(Outbox).where(Outbox.key == round_id))}

    def later(self, round_id: str, seconds: float = 60.0) -> None:
        with self.server.store.write() as session:
            earlier = now(session) - timedelta(seconds=seconds)
            session.execute(update(Outbox).where(Outbox.key == round_id).values(not_before=earlier))

    def waiting(self) -> dict[str, int]:
        return {
            name: int(self.server.dispatch.registry.redis.llen(name)) for name in celery_app.SANDBOX_QUEUES
        }

    def kept(self) -> int:
        with self.server.store.read() as session:
            return session.execute(select(func.count()).select_from(CachedExecution)).scalar_one()


def made(url: str, redis_url: str, root: Path, sandbox: Backend) -> Iterator[School]:
    environ = {"GRADER_DATABASE_URL": url, "GRADER_REDIS_URL": redis_url}
    config = load(root / "config.toml", environ)
    settings = SandboxSettings(
        memory_mb=256, seconds=20, cell_s=5, packages=("prophet_that_nobody_has", "IPython")
    )
    config = config.model_copy(update={"sandbox": settings})
    server = open_server(config)
    with server.store.write() as session:
        new = NewVersion("double", "Double", "python", "at_once", "1", rubric=RUBRIC)
        assignment = versions.import_version(session, COURSE, new)[0].id
    counting = Counting(sandbox)
    with Shelf() as shelf:
        runner = Runner(
            server.store, Executor(counting, lambda language: find_runtime(language, config.sandbox)), shelf
        )
        yield School(server, runner, counting, assignment)
    close_dispatch(server.dispatch)
    server.store.close()


@pytest.fixture
def school(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[School]:
    yield from made(fresh_database(schema.upgrade), redis_url, root, open_backend("bubblewrap"))


@pytest.fixture
def lite(sqlite_databases: SqliteDatabases, redis_url: str, root: Path) -> Iterator[School]:
    yield from made(sqlite_databases.fresh(schema.upgrade), redis_url, root, open_backend("bubblewrap"))


def share(evidence: Evidence) -> float | None:
    found = evidence.of("code")
    return found.share if found else None


def test_code_that_asks_for_the_day_is_run_anew_on_another_day(lite: School) -> None:
    def key(day: int, source: str) -> str:
        runner = dataclasses.replace(lite.runner, today=lambda: date(2026, 11, day))
        code = Code(number=1, source=source)
        return runner.key(Request(work=Work(language="python", cells=(code,))))

    dated = "from datetime import date\nprint(date.today())"
    assert key(23, dated) == key(23, dated)
    assert key(23, dated) != key(24, dated)
    assert key(23, "today = 1") == key(24, "today = 1")


def test_right_and_wrong_are_told_apart_by_running_them(school: School) -> None:
    assert share(school.tried("ada")) == 1.0
    wrong = school.tried("ben", WRONG)
    assert share(wrong) == 0.5
    assert [(t.passed, t.hidden) for t in wrong.criteria[0].outcomes[0].tests] == [
        (False, True),
        (True, False),
    ]


def test_data_that_was_submitted_lies_beside_the_work_when_it_is_run(lite: School) -> None:
    source = (
        "import csv\n\nwith open('factor.csv') as file:\n    factor = int(next(csv.reader(file))[0])\n\n\n"
        "def double(x):\n    return x * factor\n"
    )
    factors = b"2\n" * LARGE
    files = [UploadedFile("double.py", source.encode()), UploadedFile("factor.csv", factors)]
    content = read(files, Limits(max_data_bytes=len(factors)))
    store = lite.server.store
    student = add_student(store, "ada")
    with store.write() as session:
        accepted = intake.accept_submission(
            session, IncomingSubmission(lite.assignment, student, "api", content)
        )
    objects = in_memory()
    assert blob_moves.move_to_objects(store, objects).blobs == 1
    assert not prepare(lite.server, accepted.round_id)
    # while the object store is away the round waits, which counts as no try
    for _ in range(2):
        lite.later(accepted.round_id)
        assert run_round(lite.server, lite.runner, lite.holding, accepted.round_id) == PUT_OFF_S[0]
        row = lite.rows(accepted.round_id)["execute"]
        assert (row.tries, row.done_at) == (0, None)
    store.objects = objects
    lite.later(accepted.round_id)
    run_round(lite.server, lite.runner, lite.holding, accepted.round_id)
    assert share(lite.evidence(accepted.round_id)) == 1.0
    assert share(lite.tried("ben", source)) == 0.0  # without the file it does not run
    with store.read() as session:
        listed = receipts.list_files(session, accepted.submission_id)
    assert [file.path for file in listed] == ["double.py", "factor.csv"]


def test_machines_get_nothing_of_hidden_tests(lite: School) -> None:
    round_id = lite.received("ben", WRONG)
    prepare(lite.server, round_id)
    run_round(lite.server, lite.runner, lite.holding, round_id)
    prepared = lite.row(round_id).prepared or {}
    assert "'ab'" in str(prepared["evidence"])
    assert "'ab'" not in str(prepared["hidden_evidence"])


def test_the_same_work_is_run_once(school: School) -> None:
    first = school.tried("ada")
    sandboxes = school.sandbox.opened
    assert sandboxes == 2  # the work, and the expected values
    assert school.tried("ben") == first
    assert school.sandbox.opened == sandboxes
    school.tried("cem", RIGHT + "# mine\n")
    assert school.sandbox.opened == sandboxes + 1
    assert school.kept() == 3


def test_other_tests_files_limits_or_packages_are_another_execution(lite: School) -> None:
    (request,) = [r for k, r in plan_of(lite).items() if k.startswith("work:")]
    keys = {lite.runner.key(request)}
    for change in (
        {"expressions": request.expressions[:1]},
        {"files": {"data/x.csv": "0" * 64}},
        {"limits": request.limits.model_copy(update={"memory_mb": 300})},
        {"work": request.work.model_copy(update={"prelude": "x = 1"})},
    ):
        keys.add(lite.runner.key(request.model_copy(update=change)))
    other = dataclasses.replace(find_runtime("python", SandboxSettings()), digest="other")
    runner = Runner(lite.server.store, Executor(lite.sandbox, lambda _: other), lite.runner.shelf)
    assert len(keys | {runner.key(request)}) == 6


def plan_of(school: School) -> dict[str, object]:
    from workers.server.prepare import _load

    round_id = school.received("ada")
    with school.server.store.read() as session:
        submission = _load(school.server, session, round_id)
    assert submission is not None
    return dict(submission.plan(school.server).requests)


def test_a_package_that_is_missing_here_costs_nothing_and_waits_for_a_person(lite: School) -> None:
    lost = lite.tried("ada", "import prophet_that_nobody_has\n\n" + RIGHT)
    assert share(lost) is None
    assert [(f.code, f.hold) for f in lost.flags] == [("missing_packages", True)]
    wrong = lite.tried("ben", WRONG + "\nimport prophet_that_nobody_has\n")
    assert share(wrong) == 0.5  # what was tested and is wrong stays wrong
    assert [(f.code, f.hold) for f in wrong.flags] == [("missing_packages", True)]


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        ("import secretcourselib\n\n" + RIGHT, [("unknown_packages", False)]),
        ("raise ModuleNotFoundError(\"No module named 'IPython'\", name='IPython')\n" + RIGHT, []),
        ("import os; os._exit(0)\n" + RIGHT, [("run_stopped", True)]),
        (
            "x = bytearray(900 << 20)\nfor n in range(0, len(x), 4096): x[n] = 1\n" + RIGHT,
            [("run_stopped", True)],
        ),
    ],
    ids=["made up", "said to be missing", "exit", "memory"],
)
def test_work_that_keeps_itself_from_being_run_fails_its_tests(
    lite: School, source: str, flags: list[tuple[str, bool]]
) -> None:
    evidence = lite.tried("ada", source)
    assert share(evidence) == 0
    assert [(f.code, f.hold) for f in evidence.flags] == flags
    stopped = [in_german(flag.coded) for flag in evidence.flags if flag.code == "run_stopped"]
    assert all("wurde abgebrochen: Das Programm " in words for words in stopped)


def test_what_ran_out_of_time_is_run_again_the_next_time(lite: School) -> None:
    rubric = RUBRIC.criteria[0].checks[0].model_copy(update={"seconds": 2.0})
    slow = Rubric(criteria=(RUBRIC.criteria[0].model_copy(update={"checks": (rubric,)}), RUBRIC.criteria[1]))
    with lite.server.store.write() as session:
        new = NewVersion("double", "Double", "python", "at_once", "2", rubric=slow)
        versions.import_version(session, COURSE, new)
    source = "import time\ndef double(x):\n    while x == 2:\n        time.sleep(1)\n    return x + x\n"
    evidence = lite.tried("ada", source)
    assert share(evidence) == 0.5
    assert lite.kept() == 1  # the expected values only


def test_a_round_waits_for_the_pool_and_for_nobody_else(lite: School) -> None:
    plain = submit(lite.server.store, lite.assignment, "ada", source_text=RIGHT, path="double.py")
    assert not prepare(lite.server, plain.round_id)
    assert lite.waiting() == {"sandbox": 1, "sandbox.batch": 0}
    rows = lite.rows(plain.round_id)
    assert rows["prepare"].done_at is not None
    assert rows["execute"].done_at is None
    batch = submit(
        lite.server.store, lite.assignment, "ben", source_text=RIGHT, path="double.py", priority="batch"
    )
    prepare(lite.server, batch.round_id)
    assert lite.waiting() == {"sandbox": 1, "sandbox.batch": 1}
    run_round(lite.server, lite.runner, lite.holding, plain.round_id)
    assert lite.row(plain.round_id).state == RoundState.QUEUED
    assert lite.rows(plain.round_id)["execute"].done_at is not None


def test_nobody_runs_what_somebody_else_runs(lite: School) -> None:
    round_id = lite.received("ada")
    prepare(lite.server, round_id)
    other = ClaimedRounds(lite.server)
    held = other.take(round_id)
    assert held is not None
    assert run_round(lite.server, lite.runner, lite.holding, round_id) == HOLD_S
    assert lite.sandbox.opened == 0
    other.give_back(held)
    run_round(lite.server, lite.runner, lite.holding, round_id)
    assert lite.row(round_id).state == RoundState.QUEUED


def test_a_server_without_a_sandbox_says_so_and_counts_nothing(
    sqlite_databases: SqliteDatabases, redis_url: str, root: Path
) -> None:
    for school in made(
        sqlite_databases.fresh(schema.upgrade), redis_url, root, NoBackend("Install bubblewrap.")
    ):
        evidence = school.tried("ada")
        assert share(evidence) is None
        assert [(f.code, "bubblewrap" in f.message) for f in evidence.flags] == [("not_run", True)]
        assert school.kept() == 0


def test_where_nothing_shall_be_run_no_pool_is_needed(lite: School) -> None:
    none = lite.server.config.model_copy(update={"sandbox": SandboxSettings(backend="none")})
    server = dataclasses.replace(lite.server, config=none)
    round_id = lite.received("ada")
    assert prepare(server, round_id)
    assert [flag.code for flag in lite.evidence(round_id).flags] == ["not_run"]
    assert "execute" not in lite.rows(round_id)


# --- what the sweeper does ----------------------------------------------------------------------------


def test_a_forgotten_round_is_sent_again_when_a_pool_lives(school: School) -> None:
    round_id = school.received("ada")
    prepare(school.server, round_id)
    redis = school.server.dispatch.registry.redis
    redis.delete(*celery_app.SANDBOX_QUEUES)  # the message is lost
    sweeper = Sweeper(school.server)
    school.later(round_id)
    sweeper.step()
    assert school.waiting()["sandbox"] == 0  # nobody is there who could run it
    Canaries(redis).heartbeat("sandbox", "here:1", "v")
    sweeper.step()
    assert school.waiting()["sandbox"] >= 1
    before = school.waiting()["sandbox"]
    school.later(round_id)
    sweeper.step()
    assert school.waiting()["sandbox"] == before  # it waits in the queue


def test_a_submission_that_ends_the_pool_again_and_again_is_held_for_a_person(lite: School) -> None:
    round_id = lite.received("ada")
    prepare(lite.server, round_id)
    for _ in range(MOST_KILLS):
        assert ClaimedRounds(lite.server).take(round_id) is not None  # by a process that is killed then
        assert lite.row(round_id).state == RoundState.RECEIVED
        lite.later(round_id)
    assert run_round(lite.server, lite.runner, lite.holding, round_id) is None
    evidence = lite.evidence(round_id)
    assert share(evidence) is None
    assert [flag.message for flag in evidence.flags if flag.hold] == [KILLS_WORKER]
    assert lite.rows(round_id)["execute"].done_at is not None
    assert lite.sandbox.opened == 0
