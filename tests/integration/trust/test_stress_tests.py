"""Stress tests through the whole server: variants are made, graded, recombined and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from grading.domain.check import check_kinds
from grading.domain.errors import Conflict
from grading.domain.jobs import read_job
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion, Rubric
from grading.store import schema, tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.blobs import load_blob
from grading.store.privacy import erasure
from grading.store.tables import StressVariant, Submission
from grading.store.tables.assignments import SAMPLE
from grading.store.trust import stress_tests
from grading.store.views import submission_lists
from grading.store.views.submission_lists import Filters
from grading.stress_tests import catalogue
from tests.support.aging import Fresh, Played, played
from tests.support.factories import add_assignment, submit
from tests.support.gullible import Biased, Flattered
from workers.machine.engines.base import Engine
from workers.machine.stages import run_stage
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.housekeeping import do_chores
from workers.server.prepare import prepare

RUBRIC = Rubric(
    criteria=(
        Criterion(
            id="reading",
            title="Reading the table",
            points=10,
            checks=(check_kinds()["uses"](any_of=("read.csv",)),),
        ),
        Criterion(id="opinion", title="Opinion on the table", points=10, stage="feedback"),
    )
)
WORK = """sales <- read.csv("sales.csv")
total <- sum(sales$revenue)

# the total is what the shop earned in the year, the mean says more about a month
print(total)
print(mean(sales$revenue))
"""


@pytest.fixture
def system(fresh_database: Fresh, redis_url: str, root: Path) -> Iterator[Played]:
    with played(fresh_database(schema.upgrade), redis_url, root) as made:
        yield made


def grade_all(system: Played, engine: Engine) -> None:
    """Prepare and grade all that waits, on an engine."""
    system.heartbeat()
    with system.store.read() as session:
        waiting = list(session.scalars(select(tables.Round.id).where(tables.Round.state == "received")))
    for round_id in waiting:
        prepare(system.server, round_id)
    while admit_runs(system.server):
        system.heartbeat()
        jobs = [read_job(one) for one in system.messages()]
        record.record(
            system.server,
            [run_stage(job, engine, "m", "dgx-spark-2", lambda *_: None) for job in jobs],
        )


def begun(system: Played, *students: str) -> tuple[int, str, Actor]:
    """A stress test of an assignment with a graded submission of each of these, and who began it."""
    assignment = add_assignment(system.store, rubric=RUBRIC)
    for student in students:
        submit(system.store, assignment, student, source_text=WORK)
    grade_all(system, Biased())
    with system.store.write() as session:
        actor = Actor(users.create_user(session, "teacher", name="Teacher").id)
        found = versions.load_assignment(session, assignment)
        return assignment, stress_tests.start(session, found, actor), actor


def finish(system: Played, engine: Engine) -> None:
    """Let the sweeper's chores and machines do the stress test."""
    for _ in range(40):
        do_chores(system.server)
        grade_all(system, engine)
        system.pass_time(6)
        with system.store.read() as session:
            if session.scalar(select(tables.StressTest.finished_at)) is not None:
                return
    raise AssertionError("the stress test did not end")


def samples(system: Played) -> int:
    with system.store.read() as session:
        query = select(func.count()).select_from(Submission).where(Submission.source == SAMPLE)
        return session.scalar(query) or 0


def test_a_gullible_grader_is_found_out_and_nothing_of_it_shows(
    system: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stress_tests, "WORST", 6)
    monkeypatch.setattr(catalogue, "MOST_INSTRUCTIONS", 3)
    assignment, stress_test_id, actor = begun(system, "s1")
    with system.store.write() as session, pytest.raises(Conflict):
        stress_tests.start(session, versions.load_assignment(session, assignment), actor)
    do_chores(system.server)
    assert samples(system) > 15
    with system.store.read() as session:
        long = select(StressVariant.variant_id).where(StressVariant.key == "length.code")
        files = select(tables.SubmissionFile).where(tables.SubmissionFile.submission_id.in_(long))
        (file,) = session.scalars(files)
        # what lies beside the work when it is run is the variant's, too
        assert load_blob(session, file.sha256).count(b"#") > WORK.count("#")
    with system.store.read() as session:
        listed = submission_lists.list_submissions(session, Filters())
        assert len(listed.items) == 1
    finish(system, Flattered())
    assert samples(system) == 0
    with system.store.read() as session:
        outcome = stress_tests.load_outcome(session, stress_test_id)
        (test,) = stress_tests.list_tests(session, assignment)
        generations = set(session.scalars(select(StressVariant.generation)))
    assert (max(generations), test.finished, outcome.failed) == (test.generation, True, 0)
    assert {0, 1, 2} <= generations
    moved = {row for row, _ in outcome.assessment.where("moved")}
    assert {"praise.prose", "praise.comment", "recombined"} <= moved
    assert not {"names", "layout.loose", "keywords.solution"} & moved


def test_variants_are_erased_with_their_student_and_a_cancelled_test_leaves_none(
    system: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stress_test_id, actor = begun(system, "s1", "s2")
    for _ in range(2):
        do_chores(system.server)
        system.pass_time(6)
    with system.store.write() as session, monkeypatch.context() as few:
        few.setattr(stress_tests, "MOST_RUNS", 1)  # fewer than there are by now
        source = session.scalars(select(StressVariant.source_id)).first() or ""
        more = [(catalogue.Planned(("praise",), "praise"), [])] * 500
        assert stress_tests.add_variants(session, stress_test_id, source, more) == 0
        session.rollback()
    before = samples(system)
    with system.store.write() as session:
        student = erasure.find_student(session, "s1")
        assert len(student.submissions) > 10
        erasure.erase_student(session, student, "test")
    assert 0 < samples(system) < before
    with system.store.write() as session:
        assert session.scalar(select(func.count(func.distinct(StressVariant.source_id)))) == 1
        stress_tests.cancel(session, stress_test_id, actor)
    finish(system, Biased())
    assert samples(system) == 0
