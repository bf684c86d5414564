"""Dead rounds are retried: by the store, the page and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from cli.main import grader
from grading import scoring
from grading.domain.evidence import Evidence
from grading.domain.messages import verbatim
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.round_states import RoundState, StageState
from grading.store import Store, outbox, schema
from grading.store.accounts import users
from grading.store.completion import finish_round
from grading.store.grades import release as grade_release
from grading.store.rounds import lifecycle, preparing, retry
from grading.store.tables import Audit, Grade, Outbox, Round, RoundStage
from tests.integration.webapp import School, form_token
from tests.support.factories import (
    RUBRIC,
    add_assignment,
    begin_round,
    begin_stage,
    document,
    result,
    submit,
)

PREPARED = {
    "documents": [document().model_dump(mode="json")],
    "evidence": Evidence(added_lines=1).model_dump(mode="json"),
}


@pytest.fixture
def store(fresh_database: Callable[..., str]) -> Iterator[Store]:
    made = Store(fresh_database(schema.upgrade))
    yield made
    made.close()


def run_all(store: Store, round_id: str, *, release: bool = False, **ok: bool) -> None:
    """Do what is due of a round, each stage well or for ever badly, and combine."""
    with store.write() as session:
        preparing.save_prepared(session, round_id, PREPARED)
        orders = begin_round(session, round_id)
        orders += [o for s in ok if (o := begin_stage(session, round_id, s)) is not None]
    for order in orders:
        with store.write() as session:
            kind = {"ok": True} if ok[order.stage] else {"ok": False, "retry": "never", "message": "no model"}
            lifecycle.record_results(session, [result(order.run_id, round_id, order.stage, **kind)])[0]  # type: ignore[arg-type]
    with store.write() as session:
        current = finish_round.lock_complete(session, round_id)
        assert current is not None
        finish_round.finish_round(
            session,
            current,
            outcome(session, round_id),
            finish_round.load_round_end(session, current.id),
            release=release,
        )


def outcome(session: object, round_id: str) -> Report:
    results = {r.stage: r for r in finish_round.accepted_results(session, round_id)}  # type: ignore[arg-type]
    failures = {s: verbatim("It did not work.") for s in ("analysis", "feedback") if s not in results}
    return scoring.combine(RUBRIC, Evidence(added_lines=1), results, failures)


def states(store: Store, round_id: str) -> tuple[str, dict[str, str]]:
    with store.read() as session:
        stages = session.scalars(select(RoundStage).where(RoundStage.round_id == round_id))
        return session.get_one(Round, round_id).state, {s.stage: s.state for s in stages}


def test_only_the_dead_stage_of_a_partial_round_is_done_again_and_there_is_one_grade(store: Store) -> None:
    round_id = submit(store, add_assignment(store)).round_id
    run_all(store, round_id, analysis=True, feedback=False)
    assert states(store, round_id) == ("partial", {"analysis": "done", "feedback": "dead"})
    with store.read() as session:
        (listed,) = retry.list_dead_rounds(session)
    assert [(s.stage, s.error, s.message) for s in listed.stages] == [
        ("feedback", "engine_failed", verbatim("no model"))
    ]
    with store.write() as session:
        assert retry.retry_round(session, round_id, "user:1")
    assert states(store, round_id) == ("running", {"analysis": "done", "feedback": "failed"})
    with store.write() as session:
        assert not retry.retry_round(session, round_id, "user:1")  # it is under way
        assert retry.list_dead_rounds(session) == []
    run_all(store, round_id, analysis=True, feedback=True)
    assert states(store, round_id) == ("graded", {"analysis": "done", "feedback": "done"})
    with store.read() as session:
        assert [grade.points is not None for grade in session.scalars(select(Grade))] == [True]
        told = session.scalars(select(Outbox.key).where(Outbox.kind == "event")).all()
        assert sorted(key for key in told if not key.startswith("received:")) == [
            f"graded:{round_id}",
            f"partial:{round_id}",
        ]
        (noted,) = session.scalars(select(Audit).where(Audit.action == "round.replay"))
    assert noted.detail["stages"] == ["feedback"]
    assert noted.detail["points_so_far"] > 0


def test_a_replayed_grade_that_was_taken_back_is_not_shown_by_itself(store: Store) -> None:
    assignment = add_assignment(store)
    with store.write() as session:
        teacher = Actor(users.create_user(session, "teacher").id)
    for seen in ("withdrawn", "never", "still"):
        round_id = submit(store, assignment, student=seen).round_id
        run_all(store, round_id, analysis=True, feedback=False)
        with store.write() as session:
            if seen != "never":
                grade_release.release_grade(session, round_id, teacher)
            if seen == "withdrawn":
                grade_release.withdraw_grade(session, round_id, teacher, "not yet")
            assert retry.retry_round(session, round_id, teacher.name)
        # the rule of the assignment would release it now, as it does what nobody took back
        run_all(store, round_id, release=True, analysis=True, feedback=True)
        with store.read() as session:
            grade = session.scalars(select(Grade).where(Grade.round_id == round_id)).one()
            assert (grade.released_at is None) == (seen == "withdrawn"), seen
            assert grade.released_by == (teacher.user_id if seen == "withdrawn" else None), seen


def test_a_replayed_stage_has_all_its_tries_again(store: Store) -> None:
    round_id = submit(store, add_assignment(store)).round_id
    run_all(store, round_id, analysis=False, feedback=False)
    assert states(store, round_id)[0] == "failed"
    with store.write() as session:
        assert retry.retry_round(session, round_id, "cli")
        order = begin_stage(session, round_id, "analysis")
        assert order is not None
        lifecycle.record_results(session, [result(order.run_id, round_id, "analysis", ok=False)])
        stage = session.get_one(RoundStage, (round_id, "analysis"))
        assert (stage.state, stage.tries, stage.runs) == (StageState.FAILED, 1, 2)


def test_a_round_that_could_not_be_prepared_is_prepared_again(store: Store) -> None:
    round_id = submit(store, add_assignment(store)).round_id
    with store.write() as session:
        preparing.reject_round(session, round_id, verbatim("The checks failed on it."))
    with store.write() as session:
        assert retry.retry_round(session, round_id, "cli")
    with store.write() as session:
        assert session.get_one(Round, round_id).state == RoundState.RECEIVED
        assert [row.key for row in outbox.claim(session, "prepare", 5, 60)] == [round_id]
    run_all(store, round_id, analysis=True, feedback=True)
    assert states(store, round_id)[0] == "graded"


def test_a_graded_round_is_left_alone(store: Store) -> None:
    round_id = submit(store, add_assignment(store)).round_id
    run_all(store, round_id, analysis=True, feedback=True)
    with store.write() as session:
        assert not retry.retry_round(session, round_id, "cli")
        assert retry.count_dead_rounds(session) == 0
    assert states(store, round_id)[0] == "graded"


# --- page ---------------------------------------------------------------------------------------------


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def fail(school: School, who: str) -> tuple[str, str]:
    """A submission whose round failed; ids of submission and round."""
    submission = school.submit(who)
    with school.store.write() as session:
        round_ = session.query(Round).filter_by(submission_id=submission).one()
        round_.state, round_.failure = "failed", verbatim("It did not work.")
        for stage in round_.stages:
            stage.state, stage.error, stage.message = (
                "dead",
                "model_missing",
                verbatim("Run there: ollama pull <m>"),
            )
        return submission, round_.id


def test_staff_see_what_is_dead_and_try_it_again(school: School) -> None:
    submission, round_id = fail(school, "anna")
    teacher = school.client("teacher")
    assert "To retry after fixing the cause, open the page <a" in teacher.get(
        f"/submissions/{submission}"
    ).get_data(as_text=True)
    page = teacher.get("/failed").get_data(as_text=True)
    assert "model_missing" in page
    assert "ollama pull &lt;m&gt;" in page
    form = {"csrf_token": form_token(teacher), "round": round_id}
    answer = teacher.post("/failed", data=form, follow_redirects=True)
    assert "Retrying 1 submission." in answer.get_data(as_text=True)
    assert "No failed submissions" in answer.get_data(as_text=True)
    assert school.dispatch.announced == [round_id]
    with school.store.read() as session:
        assert session.get_one(Round, round_id).state == "running"


def test_others_courses_stay_out_of_reach(school: School) -> None:
    _, round_id = fail(school, "anna")
    stranger = school.client("stranger")
    assert "model_missing" not in stranger.get("/failed").get_data(as_text=True)
    stranger.post("/failed", data={"csrf_token": form_token(stranger), "round": round_id})
    with school.store.read() as session:
        assert session.get_one(Round, round_id).state == "failed"
    assert school.client("anna").get("/failed").status_code == 403


# --- command ------------------------------------------------------------------------------------------


def test_the_command_lists_and_replays(store: Store, root: Path) -> None:
    wanted, other = (submit(store, add_assignment(store), student) for student in ("s1", "s2"))
    for accepted in (wanted, other):
        run_all(store, accepted.round_id, analysis=True, feedback=False)
    url = store.url

    def call(*words: str) -> str:
        arguments = ["--config", str(root / "config.toml"), "replay", *words]
        done = CliRunner().invoke(grader, arguments, env={"GRADER_DATABASE_URL": url, "COLUMNS": "200"})
        return done.output if done.exception is None else f"{done.output}{done.exception}"

    listing = call()
    assert wanted.submission_id in listing
    assert "engine_failed" in listing
    assert "0 of 0" in call("--all", "--error", "model_missing")
    assert "have no failed runs" in call("f" * 32)
    assert "1 of 1" in call(wanted.submission_id)
    assert states(store, wanted.round_id)[0] == "running"
    assert states(store, other.round_id)[0] == "partial"
    assert "1 of 1" in call("--all")
    assert "Nothing has failed" in call()
