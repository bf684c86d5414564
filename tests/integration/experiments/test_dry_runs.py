"""Gradings that do not count yet: dry runs, tries and re-runs, through the whole server."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from grading.broker.heartbeats import Heartbeat
from grading.config.settings import load
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store, schema, tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.experiments import apply, dry_runs, impact, undo_apply
from grading.store.experiments.dry_runs import Purpose, StartedDryRun
from grading.store.grades import release
from grading.store.grades.final_score import update_final_score
from grading.store.privacy import erasure, export
from grading.store.submissions import intake
from grading.store.tables import Change, DryRun, Grade, Outbox, Round, RubricVersion, Submission
from grading.store.views import submission as submission_view
from grading.store.views import submission_lists
from grading.store.views.submission_lists import Filters
from tests.support.factories import RUBRIC, add_assignment, document, result, submit
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.context import Server, open_server
from workers.server.prepare import prepare

HALF = Rubric(
    criteria=(
        RUBRIC.criteria[0],
        Criterion(id="reflection", title="Reflection", points=20, stage="feedback"),
    )
)
TEACHER = Actor(1)


@pytest.fixture
def server(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[Server]:
    environ = {"GRADER_DATABASE_URL": fresh_database(schema.upgrade), "GRADER_REDIS_URL": redis_url}
    made = open_server(load(root / "config.toml", environ))
    heartbeat(made)
    with made.store.write() as session:
        teacher = users.create_user(session, "teacher", name="Teacher")
        assert teacher.id == TEACHER.user_id
    yield made
    made.store.close()
    made.dispatch.registry.redis.close()
    made.dispatch.celery.close()


def heartbeat(server: Server) -> None:
    """A machine that is there, for the next ten seconds."""
    stages = {name: {"engine": "instant", "model": "m"} for name in ("analysis", "feedback")}
    server.dispatch.registry.heartbeat(Heartbeat("p", "dgx-spark-1", 8, 0, stages))


def grade(server: Server, *round_ids: str, ok: bool = True, prepared: bool = False) -> None:
    """Prepare these rounds unless they are, let machines answer, combine."""
    heartbeat(server)
    for round_id in round_ids:
        assert prepared or prepare(server, round_id)
    while admit_runs(server):
        pass
    with server.store.read() as session:
        runs = session.execute(
            select(tables.RoundStage.round_id, tables.RoundStage.stage, tables.RoundStage.run_id).where(
                tables.RoundStage.round_id.in_(round_ids)
            )
        ).all()
    for run in runs:
        good = ok or run.stage != "feedback"
        more = {} if good else {"retry": "never", "message": "no model"}
        record.record(server, [result(run.run_id, run.round_id, run.stage, ok=good, **more)])


def submitted(server: Server, *students: str, release: str = "after_review") -> list[str]:
    """Graded submissions of these students; their submissions."""
    assignment = add_assignment(server.store, release=release)
    made = [submit(server.store, assignment, student) for student in students]
    grade(server, *(one.round_id for one in made))
    return [one.submission_id for one in made]


def the_assignment(session: object) -> tables.Assignment:
    found = session.scalars(select(tables.Assignment)).one()  # type: ignore[attr-defined]
    assert isinstance(found, tables.Assignment)
    return found


def change_rubric(store: Store, rubric: Rubric = HALF) -> int:
    """A draft with another rubric; its number."""
    with store.write() as session:
        found = the_assignment(session)
        row = versions.load_newest(session, found).version
        said = replace(versions.load_content(session, row), rubric=rubric)
        return versions.save_draft(session, found, said, row.number, TEACHER).number


def begin(store: Store, ids: list[str], purpose: Purpose = "rubric") -> StartedDryRun:
    with store.write() as session:
        found = the_assignment(session)
        version = versions.load_newest(session, found).version
        return dry_runs.start_dry_run(session, found, version, ids, purpose, TEACHER)


def news(store: Store) -> list[str]:
    with store.read() as session:
        return sorted(session.scalars(select(Outbox.key).where(Outbox.kind == "event")))


def counting(store: Store, submission: str) -> tuple[str, float | None, bool]:
    """The round that counts, its points and whether students see it."""
    with store.read() as session:
        view = submission_view.load_view(session, submission)
        assert view.grade is not None
        return view.round_id, view.grade.final_points, view.released


def test_a_dry_run_counts_nowhere_until_it_is_applied(server: Server) -> None:
    one, two = submitted(server, "s1", "s2", release="at_once")
    before = {s: counting(server.store, s) for s in (one, two)}
    told = news(server.store)
    with server.store.write() as session:
        round_id = before[one][0]
        said = {"kind": "points", "target": "reflection", "value": {"points": 30}, "before": {}}
        by = {"reason": "better than that", "by": TEACHER.user_id, "at": now(session)}
        session.add(Change(round_id=round_id, submission_id=one, **said, **by))
        update_final_score(session, session.scalars(select(Grade).where(Grade.round_id == round_id)).one())
    before[one] = counting(server.store, one)
    change_rubric(server.store)
    begun = begin(server.store, [one, two])
    grade(server, *begun.round_ids)
    assert news(server.store) == told
    assert {s: counting(server.store, s) for s in (one, two)} == before
    with server.store.read() as session:
        fresh = session.scalars(select(Grade).where(Grade.round_id.in_(begun.round_ids))).all()
        assert [grade.released_at for grade in fresh] == [None, None]
        listed = submission_lists.list_submissions(session, Filters())
        assert sorted(line.id for line in listed.items) == sorted((one, two))
        run = session.get_one(DryRun, begun.dry_run_id)
        all_of_it = impact.load_impact(session, run)
        found = {move.submission_id: move for move in all_of_it.rows}
    assert (found[two].before, found[two].after) == (20, 10)
    assert (found[one].before, found[one].after) == (30, 20)  # what a person gave, cut to what there is
    assert [(c.why, c.name) for c in all_of_it.conflicts[one]] == [("too_many", "Reflection")]
    assert (found[one].changes, found[two].changes) == (1, 0)
    with server.store.write() as session:
        done = apply.apply_dry_run(session, begun.dry_run_id, TEACHER, keep_released=False)
    assert done.replaced == 2
    for submission in (one, two):
        round_id, points, seen = counting(server.store, submission)
        assert round_id in begun.round_ids
        assert (points, seen) == (found[submission].after, True)
    fresh_news = [key for key in news(server.store) if key not in told]
    assert sorted(key.partition(":")[0] for key in fresh_news) == ["graded", "graded", "released", "released"]
    with server.store.read() as session:
        counts = session.scalars(select(RubricVersion).order_by(RubricVersion.published_at.desc())).first()
        assert counts is not None
        assert counts.number == 2
        carried = session.scalars(select(Change).where(Change.submission_id == one)).all()
        assert [row.kind for row in carried] == ["points", "points"]
        again = impact.load_impact(session, session.get_one(DryRun, begun.dry_run_id))
        assert {row.submission_id: row.delta for row in again.rows} == {
            submission: move.delta for submission, move in found.items()
        }
    with pytest.raises(Conflict), server.store.write() as session:
        apply.apply_dry_run(session, begun.dry_run_id, TEACHER, keep_released=False)
    with server.store.read() as session:
        moment = session.get_one(DryRun, begun.dry_run_id).applied_at
    assert moment is not None
    undo_it(server.store, begun.dry_run_id, moment)
    assert {s: counting(server.store, s) for s in (one, two)} == before
    with server.store.read() as session:
        found = versions.find_published(session, the_assignment(session))
        assert found is not None
        assert found.number == 1
        assert session.scalars(select(Change.round_id)).all() == [before[one][0]]
        fresh = session.scalars(select(Grade).where(Grade.round_id.in_(begun.round_ids))).all()
        assert [grade.released_at for grade in fresh] == [None, None]
        assert (
            session.scalars(select(Round.reason).where(Round.id.in_(begun.round_ids))).all()
            == ["dry run"] * 2
        )
    # it is as if it had not been applied: it can be applied again
    with server.store.write() as session:
        assert apply.apply_dry_run(session, begun.dry_run_id, TEACHER, keep_released=False) == done
    assert counting(server.store, one)[1:] == (20, True)


def undo_it(store: Store, dry_run_id: str, moment: datetime) -> None:
    with store.write() as session:
        undo_apply.undo_application(session, dry_run_id, moment, TEACHER)


def test_what_happened_since_keeps_a_dry_run_applied(server: Server) -> None:
    (one,) = submitted(server, "s1")
    number = change_rubric(server.store)
    begun = begin(server.store, [one])
    grade(server, *begun.round_ids)
    with server.store.write() as session:
        apply.apply_dry_run(session, begun.dry_run_id, TEACHER, keep_released=True)
        moment = now(session)
    with pytest.raises(CannotUndo), server.store.write() as session:
        undo_apply.undo_application(session, begun.dry_run_id, moment, Actor(2))
    applied = counting(server.store, one)
    with server.store.write() as session:
        release.release_all(session, the_assignment(session).id, TEACHER)
        released = now(session)
    with pytest.raises(CannotUndo, match="changed, released, reviewed or regraded"):
        undo_it(server.store, begun.dry_run_id, moment)
    assert counting(server.store, one) == (*applied[:2], True)
    with server.store.write() as session:
        release.undo_release(session, the_assignment(session).id, released, TEACHER)
        assignment = the_assignment(session).id
    later = submit(server.store, assignment, "s2").round_id
    with pytest.raises(CannotUndo, match=f"graded with version {number}"):
        undo_it(server.store, begun.dry_run_id, moment)
    with server.store.write() as session:
        session.get_one(Round, later).rubric_version_id = 1
        added = Change(
            round_id=applied[0],
            submission_id=one,
            kind="add",
            at=now(session),
            before={},
            value={"text": "x"},
        )
        session.add(added)
    with pytest.raises(CannotUndo, match="changed, released, reviewed or regraded"):
        undo_it(server.store, begun.dry_run_id, moment)
    with server.store.write() as session:
        session.query(Change).delete()
    undo_it(server.store, begun.dry_run_id, moment)


def test_what_students_see_stays_where_that_is_wanted(server: Server) -> None:
    (one,) = submitted(server, "s1", release="at_once")
    before = counting(server.store, one)
    change_rubric(server.store)
    begun = begin(server.store, [one])
    grade(server, *begun.round_ids)
    with server.store.write() as session:
        done = apply.apply_dry_run(session, begun.dry_run_id, TEACHER, keep_released=True)
    assert (done.replaced, done.kept_released) == (0, 1)
    assert counting(server.store, one) == before


def test_a_dry_run_from_before_another_version_is_not_applied(server: Server) -> None:
    (one,) = submitted(server, "s1")
    change_rubric(server.store)
    begun = begin(server.store, [one])
    grade(server, *begun.round_ids)
    number = change_rubric(server.store, RUBRIC)
    with server.store.write() as session:
        assert versions.publish_version(session, the_assignment(session), number, TEACHER)
    with pytest.raises(Conflict, match="Version 3"), server.store.write() as session:
        apply.apply_dry_run(session, begun.dry_run_id, TEACHER, keep_released=False)


def test_a_re_run_takes_the_place_when_it_is_there_and_never_takes_a_grade_away(server: Server) -> None:
    one, two = submitted(server, "s1", "s2", release="at_once")
    before = {s: counting(server.store, s) for s in (one, two)}
    begun = begin(server.store, [one, two], "rerun")
    with server.store.read() as session:
        mine = dict(
            session.execute(select(Round.submission_id, Round.id).where(Round.id.in_(begun.round_ids))).all()
        )
        assert session.scalars(select(Round.priority).where(Round.reason == "re-run")).all() == ["batch"] * 2
    assert counting(server.store, one) == before[one]
    grade(server, mine[one])
    round_id, points, seen = counting(server.store, one)
    assert (round_id, points, seen) == (mine[one], before[one][1], True)
    grade(server, mine[two], ok=False)
    assert counting(server.store, two) == before[two]
    assert f"partial:{mine[two]}" not in news(server.store)
    with server.store.read() as session:
        currents = select(func.count()).where(Round.submission_id == one, Round.current)
        assert session.scalar(currents) == 1


def test_a_re_run_yields_to_a_later_grading(server: Server) -> None:
    (one,) = submitted(server, "s1")
    begun = begin(server.store, [one], "rerun")
    with server.store.write() as session:
        later = intake.add_round(
            session,
            session.get_one(Submission, one),
            the_assignment(session),
            reason="regrade",
            priority="interactive",
        ).id
    grade(server, *begun.round_ids)
    with server.store.read() as session:
        assert submission_view.load_view(session, one).round_id == later


def test_discarding_ends_what_has_not_begun(server: Server) -> None:
    one, two = submitted(server, "s1", "s2")
    begun = begin(server.store, [one, two])
    grade(server, begun.round_ids[0])
    with server.store.write() as session:
        dry_runs.discard_dry_run(session, begun.dry_run_id, TEACHER)
    with server.store.read() as session:
        states = session.scalars(select(Round.state).where(Round.id.in_(begun.round_ids))).all()
        waits = select(Outbox).where(Outbox.key == begun.round_ids[1], Outbox.done_at.is_(None))
        assert session.scalars(waits).all() == []
    assert sorted(states) == [RoundState.FAILED, RoundState.GRADED]
    assert not prepare(server, begun.round_ids[1])
    with pytest.raises(Conflict), server.store.write() as session:
        dry_runs.discard_dry_run(session, begun.dry_run_id, TEACHER)
    with pytest.raises(CannotUndo), server.store.write() as session:
        moment = session.get_one(DryRun, begun.dry_run_id).discarded_at
        assert moment is not None
        dry_runs.restore_dry_run(session, begun.dry_run_id, moment, TEACHER)
    # what is graded as a whole is kept, and can be opened again
    begun = begin(server.store, [one])
    grade(server, *begun.round_ids)
    with server.store.write() as session:
        assert dry_runs.discard_dry_run(session, begun.dry_run_id, TEACHER)
        moment = now(session)
    with server.store.write() as session:
        dry_runs.restore_dry_run(session, begun.dry_run_id, moment, TEACHER)
        dry_runs.require_open(session.get_one(DryRun, begun.dry_run_id))


def test_the_starter_and_the_solution_are_submissions_nobody_sees(server: Server) -> None:
    (one,) = submitted(server, "s1")
    with server.store.write() as session:
        found = the_assignment(session)
        version = versions.load_newest(session, found).version
        version.starter = [document("# do it").model_dump(mode="json")]
        version.solution = [document("x <- 1\ny <- 2").model_dump(mode="json")]
        tried = [
            dry_runs.create_sample_submission(session, found, version, what, TEACHER)
            for what in ("starter", "solution")
        ]
        assert None not in tried
        same = dry_runs.create_sample_submission(session, found, version, "starter", TEACHER)
        assert same == tried[0]
        hidden = [str(name) for name in tried]
    begun = begin(server.store, [*hidden, one], "try")
    grade(server, *begun.round_ids)
    with server.store.read() as session:
        run = session.get_one(DryRun, begun.dry_run_id)
        rows = {row.sample: row for row in impact.load_impact(session, run).rows}
        assert rows["solution"].after is not None
        assert set(rows) == {"", "starter", "solution"}
        assert [line.id for line in submission_lists.list_submissions(session, Filters()).items] == [one]
        assert submission_lists.list_attempts(session, TEACHER.user_id, the_assignment(session).id) == ()
        for submission in hidden:
            with pytest.raises(NotFound):
                submission_view.load_view(session, submission)
        assert intake.count_submissions(session, the_assignment(session).id, [1]) == {1: (0, 0)}
        assert dry_runs.select_submissions(session, the_assignment(session).id, "all") == [one]
        assert dry_runs.select_submissions(session, the_assignment(session).id, hidden) == []
    own = submit(server.store, 1, "teacher2")
    with server.store.read() as session:
        assert session.get_one(Submission, own.submission_id).number == 1
    out = io.BytesIO()
    with server.store.read() as session:
        student = erasure.find_student(session, "user:1")
    export.write_export(server.store, student, out, "user:1")
    with zipfile.ZipFile(out) as archive:
        kept = json.loads(archive.read("data.json"))
    assert kept.get("submissions", []) == []
    assert not any(name.startswith("submissions/") for name in archive.namelist())
    with server.store.read() as session:
        assert set(erasure.find_student(session, "user:1").submissions) == set(hidden)  # goes with an erasure
