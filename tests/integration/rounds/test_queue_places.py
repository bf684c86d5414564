"""Place and expected time: in the fair order, by measured speeds, at the cost of one look for all who ask."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, update

from app.submissions.status_texts import live, progress
from app.web.eta import Expecting
from grading.broker.canaries import PartHeartbeat
from grading.broker.heartbeats import Heartbeat, Lease
from grading.broker.machine_status import MachineState
from grading.execution.throughput import Rate
from grading.store import Store, tables
from grading.store.rounds import preparing, queue
from grading.store.rounds.queue import load_positions
from grading.store.views import submission as submission_view
from tests.integration.webapp import School

PROFILE = {"alone_s": 100.0, "full_s": 100.0, "full": 4, "tokens": 1000, "seen": 9}
STAGES = {"analysis": {"engine": "ollama", "model": "q"}, "feedback": {"engine": "ollama", "model": "g"}}


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def prepared(school: School, submission: str, priority: str = "interactive") -> str:
    """Queue a submission; its round."""
    with school.store.write() as session:
        row = session.query(tables.Round).filter_by(submission_id=submission).one()
        row.priority = priority
        session.flush()
        preparing.save_prepared(session, row.id, {})
        return row.id


def machines(profile: dict[str, float] = PROFILE, **heartbeat: Any) -> list[MachineState]:
    """One for each stage."""
    found = []
    for stage, place in STAGES.items():
        told = Heartbeat(
            stage, f"m-{stage}", 4, 0, {stage: place}, speed_profiles={stage: profile}, **heartbeat
        )
        found.append(
            MachineState(
                told.machine, "primary", 4, {stage: place}, alive=True, heartbeat_age_s=1.0, heartbeat=told
            )
        )
    return found


def asked(school: School, submission: str, who: str = "teacher") -> dict[str, Any]:
    """What the API tells of its queue, looked at anew."""
    school.app.extensions["grader-expecting"] = Expecting(school.dispatch)
    url = f"/api/v1/submissions/{submission}"
    return dict(school.client().get(url, headers=school.token(who)).get_json()["queue"])


# --- places ------------------------------------------------------------------------------------------


def test_places_are_the_order_in_which_rounds_are_sent(database_url: str) -> None:
    school, rng = School(database_url), random.Random(5)
    names = ("anna", "ben", "grader", "stranger")
    for _ in range(24):
        where = rng.choice([school.assignment, school.quick, school.elsewhere, school.elsewhere])
        made = school.submit(rng.choice(names), where)
        prepared(school, made, rng.choice(["interactive", "batch"]))
    with school.store.write() as session:
        session.execute(update(tables.Course).where(tables.Course.slug == "ba").values(served_interactive=7))
    with school.store.read() as session:
        line = load_positions(session)
        for priority in ("interactive", "batch"):
            order = [one.round_id for one in queue.next_queued(session, priority, 1000)]
            assert len(order) > 7
            assert sorted(order, key=line.before.__getitem__) == order
            assert [line.ahead(one, priority) for one in order] == list(range(len(order)))
        first = queue.next_queued(session, "batch", 1)[0].round_id
        assert line.position(first, "batch") == line.waiting["interactive"] + 1
    school.close()


def test_what_is_still_prepared_stands_where_it_will_join(school: School) -> None:
    first = [prepared(school, school.submit("anna")) for _ in range(3)]
    late = school.submit("ben")
    with school.store.read() as session:
        before = load_positions(session)
        (mine,) = session.query(tables.Round.id).filter_by(submission_id=late).one()
    assert before.before[mine] == 1  # everyone's first goes before anyone's second
    prepared(school, late)
    with school.store.read() as session:
        assert load_positions(session).before == before.before
    assert before.before[first[1]] == 2


def statements(store: Store) -> list[str]:
    """Statements from now on."""
    found: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *given: found.append(given[2]))
    return found


def test_a_hundred_who_ask_look_once(school: School) -> None:
    submissions = [school.submit("anna") for _ in range(3)]
    with school.store.read() as session:
        seen = [submission_view.load_view(session, one) for one in submissions]
        asked, given = statements(school.store), Expecting(school.dispatch)
        found = {given.queue(session, one).position for one in seen * 33}  # type: ignore[union-attr]
    assert found == {1, 2, 3}
    assert len(asked) < 15


# --- expected time -----------------------------------------------------------------------------------


def test_without_any_speed_the_last_hour_tells(school: School) -> None:
    assert asked(school, school.submit("anna")) == {"position": 1, "eta_s": pytest.approx(60, abs=15)}


def test_with_speeds_it_is_the_later_stage(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines())
    mine = school.submit("anna")
    prepared(school, mine)
    assert asked(school, mine) == {"position": 1, "eta_s": pytest.approx(100, abs=15)}
    slow = machines({**PROFILE, "health": 1 / 3})
    monkeypatch.setattr(school.dispatch, "machines", lambda: slow)
    assert asked(school, mine)["eta_s"] == pytest.approx(300, abs=15)


def test_behind_twenty_others_it_is_what_the_machine_needs_for_them(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine does 4 in 100 s."""
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines())
    for _ in range(21):
        last = school.submit("anna")
        prepared(school, last)
    told = asked(school, last)
    assert told["position"] == 21
    assert 500 < told["eta_s"] < 720


def test_behind_twenty_others_in_the_sandbox_it_is_what_that_needs_for_them(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of 60 s at a time; then the machines need 100 s, and they have graded the others meanwhile."""
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines())
    for _ in range(21):
        last = school.submit("anna")
        with school.store.write() as session:
            round_id = session.query(tables.Round).filter_by(submission_id=last).one().id
            assert preparing.hand_on(session, round_id)
    without = asked(school, last)["eta_s"]
    assert without < 720
    checks = [PartHeartbeat("sandbox", "host:3", "", 1.0, Rate(2, 60.0))]
    monkeypatch.setattr(school.dispatch, "parts", lambda: checks)
    assert asked(school, last)["eta_s"] == pytest.approx(21 / 2 * 60 + 100, abs=15)
    fast = [PartHeartbeat("sandbox", "host:3", "", 1.0, Rate(2, 0.1))]
    monkeypatch.setattr(school.dispatch, "parts", lambda: fast)
    assert asked(school, last)["eta_s"] == pytest.approx(without, abs=15)


def test_a_guess_is_no_measured_speed(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines({**PROFILE, "seen": 0}))
    assert asked(school, school.submit("anna"))["eta_s"] == pytest.approx(60, abs=15)


def test_a_drained_machine_counts_for_nothing(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines(drained=True))
    assert asked(school, school.submit("anna"))["eta_s"] is None


@pytest.mark.parametrize("seen", [0, 9])
def test_where_no_machine_does_a_stage_no_time_is_told(
    school: School, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    only = machines({**PROFILE, "seen": seen})[:1]
    monkeypatch.setattr(school.dispatch, "machines", lambda: only)
    mine = school.submit("anna")
    prepared(school, mine)
    assert asked(school, mine) == {"position": 1, "eta_s": None}
    with school.app.test_request_context(), school.store.read() as session:
        view = submission_view.load_view(session, mine)
        assert live(view, progress(session, view), sees_score=True).detail == "Position 1."


def test_what_takes_longer_than_usual_has_no_time(school: School) -> None:
    mine = school.submit("anna")
    send(school, mine)
    with school.store.write() as session:
        row = session.query(tables.Round).filter_by(submission_id=mine).one()
        row.dispatched_at -= timedelta(hours=1)
    assert asked(school, mine)["eta_s"] is None


def send(school: School, submission: str) -> dict[str, str]:
    """Send a round's runs to machines; stage -> run."""
    with school.store.write() as session:
        row = session.query(tables.Round).filter_by(submission_id=submission).one()
        row.state, row.dispatched_at = "running", row.created_at
        for stage in row.stages:
            run = tables.Run(
                round_id=row.id,
                stage=stage.stage,
                attempt=1,
                state="dispatched",
                dispatched_at=row.created_at,
            )
            session.add(run)
            session.flush()
            stage.state, stage.run_id = "dispatched", run.id
        return {stage.stage: str(stage.run_id) for stage in row.stages}


def test_under_way_it_is_what_is_left_to_write(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines())
    mine = school.submit("anna")
    runs = send(school, mine)
    for stage, tokens in (("analysis", 900), ("feedback", 400)):
        lease = Lease(runs[stage], f"m-{stage}", "p", stage, "generating", tokens, 50.0)
        school.dispatch.held[runs[stage]] = lease
    assert asked(school, mine) == {"position": 0, "eta_s": pytest.approx(60, abs=15)}
    with school.store.write() as session:
        session.query(tables.RoundStage).filter_by(stage="feedback").one().state = "done"
    assert asked(school, mine)["eta_s"] < 30


def test_what_was_sent_and_not_begun_has_a_place(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: machines())
    begun, first, second, queued = (school.submit(who) for who in ("anna", "ben", "anna", "ben"))
    for run in send(school, begun).values():
        school.dispatch.held[run] = Lease(run, "m-analysis", "p", "analysis")
    send(school, first)
    send(school, second)
    prepared(school, queued)
    assert [asked(school, one)["position"] for one in (begun, first, second, queued)] == [0, 1, 2, 3]
    with school.app.test_request_context(), school.store.read() as session:
        view = submission_view.load_view(session, first)
        shown = live(view, progress(session, view), sees_score=False)
    assert shown.headline == "Next in the queue"
    assert shown.detail.startswith("Position 1. About ")


def test_words_are_coarse(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        school.dispatch, "machines", lambda: machines({**PROFILE, "alone_s": 371.0, "full_s": 371.0})
    )
    mine = school.submit("anna")
    prepared(school, mine)
    with school.app.test_request_context(), school.store.read() as session:
        view = submission_view.load_view(session, mine)
        shown = live(view, progress(session, view), sees_score=True)
    assert shown.detail == "Position 1. About 6 minutes until the grade is ready."
