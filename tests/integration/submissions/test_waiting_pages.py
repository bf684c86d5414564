"""Waiting pages: told when to ask again, seen at once what changes, and cheap however many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.submissions import status_poll
from app.submissions.status_texts import AT_WORK, REVIEW, STEPS, Live, Progress, StageStatus, next_look_s
from bench.pages.page_times import counted
from grading.broker.heartbeats import Lease
from grading.store import tables
from grading.store.accounts import users
from grading.store.views.submission import Queue
from tests.integration.webapp import School, form_token, report


@pytest.fixture
def school(database_url: str) -> Iterator[School]:
    made = School(database_url)
    yield made
    made.close()


def board(school: School) -> status_poll.Board:
    found: status_poll.Board = school.app.extensions["grader-waiting"]
    return found


def ask(client: FlaskClient, submission: str, etag: str = "") -> Any:
    headers = {"If-None-Match": etag} if etag else {}
    return client.get(f"/submissions/{submission}/status.json", headers=headers)


def set_state(school: School, submission: str, state: str, **leases: str) -> None:
    """The round's state; `leases` are phases by stage."""
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        round_.state = state
        for stage in round_.stages if state == "running" else ():
            run = f"{round_.id[:20]}{stage.stage}"
            stage.state, stage.run_id = "dispatched", run
            if stage.stage in leases:
                phase = leases[stage.stage]
                school.dispatch.held[run] = Lease(run, "dgx-spark-1", "p", stage.stage, phase, 7, 3.0)


def test_what_did_not_change_costs_no_query(school: School) -> None:
    """Once a second one look for all who wait; in between nobody asks the database anything."""
    submissions = [school.submit(name) for name in ("anna", "ben", "anna")]
    clients = [school.client(name) for name in ("anna", "ben", "anna")]
    for one in submissions:
        set_state(school, one, "queued")
    tags = [ask(client, one).headers["ETag"] for client, one in zip(clients, submissions, strict=True)]
    for client, one, tag in zip(clients, submissions, tags, strict=True):
        ask(client, one, tag)
    board(school)._looked_at = 1e12  # as if it had looked just now
    school.app.extensions["grader-expecting"]._rest_s = 1e12
    with counted(school.store) as said:
        answers = [
            ask(client, one, tag).status_code
            for client, one, tag in zip(clients, submissions, tags, strict=True)
            for _ in range(5)
        ]
    assert answers == [304] * 15
    assert said == []


def test_one_look_is_for_all(school: School) -> None:
    few = [school.submit("anna") for _ in range(2)]
    client = school.client("anna")
    costs = []
    for count in (2, 30):
        few += [school.submit("anna") for _ in range(count - len(few))]
        tags = {one: ask(client, one).headers["ETag"] for one in few}
        ask(client, few[0], tags[few[0]])
        board(school).forget()
        school.app.extensions["grader-expecting"]._rest_s = 1e12  # its look is another matter
        with counted(school.store) as said:
            ask(client, few[0], tags[few[0]])
        costs.append(len([one for one in said if "from users" not in one.lower()]))
    assert costs[0] == costs[1]


def test_changes_are_told_after_a_look(school: School) -> None:
    submission = school.submit("anna")
    client = school.client("anna")
    set_state(school, submission, "queued")
    first = ask(client, submission)
    assert first.get_json()["headline"] == "Queued"
    set_state(school, submission, "running", analysis="generating")
    board(school).forget()
    now = ask(client, submission, first.headers["ETag"])
    assert (now.status_code, now.get_json()["headline"]) == (200, "Being graded")
    assert "7 tokens" in now.get_json()["stages"][0]["detail"]
    school.grade(submission, report(), released=True)
    board(school).forget()
    last = ask(client, submission, now.headers["ETag"]).get_json()
    assert (last["headline"], last["tab"], last["settled"], last["next_s"]) == ("Graded", "Graded", True, 0)


def test_what_this_process_changes_is_seen_at_once(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report())
    anna, teacher = school.client("anna"), school.client("teacher")
    live_status = ask(anna, submission)
    assert live_status.get_json()["headline"] == "Awaiting review"
    teacher.post(f"/submissions/{submission}/release", data={"csrf_token": form_token(teacher)})
    assert ask(anna, submission, live_status.headers["ETag"]).get_json()["headline"] == "Graded"


def test_what_students_change_does_not_look_for_all(school: School) -> None:
    """Thousands submit at a deadline; each sees what became of it, and their sign-out ends what they see."""
    waiting, own = school.submit("anna"), school.submit("ben")
    anna, ben = school.client("anna"), school.client("ben")
    for one in (waiting, own):
        set_state(school, one, "queued")
    tags = [ask(client, one).headers["ETag"] for client, one in ((anna, waiting), (ben, own))]
    ask(anna, waiting, tags[0])
    board(school)._looked_at = 1e12
    for one in (waiting, own):
        set_state(school, one, "running", analysis="generating")
    ben.post("/language", data={"csrf_token": form_token(ben), "language": "en"})
    assert ask(anna, waiting, tags[0]).status_code == 304
    assert ask(ben, own, tags[1]).get_json()["headline"] == "Being graded"
    copy, cookie = school.app.test_client(), ben.get_cookie("grader")
    assert cookie is not None
    copy.set_cookie("grader", cookie.value)
    assert ask(copy, own, tags[1]).status_code == 200
    ben.post("/sign-out", data={"csrf_token": form_token(ben)})
    assert ask(copy, own, tags[1]).status_code == 401


def test_one_look_is_also_for_those_who_submitted(school: School) -> None:
    """On the evening of a deadline everybody who waits has just changed something."""
    names = ("anna", "ben")
    submissions, clients = [school.submit(name) for name in names], [school.client(name) for name in names]
    for client in clients:
        client.post("/language", data={"csrf_token": form_token(client), "language": "en"})
    tags = [ask(client, one).headers["ETag"] for client, one in zip(clients, submissions, strict=True)]
    board(school)._rest_s = 0.0
    ask(clients[0], submissions[0], tags[0])
    board(school)._rest_s = school.app.extensions["grader-expecting"]._rest_s = 1e12
    with counted(school.store) as said:
        for client, one, tag in zip(clients, submissions, tags, strict=True):
            assert ask(client, one, tag).status_code == 304
    assert said == []


def test_nobody_waits_while_another_request_looks(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read anew meanwhile is not lost when the look ends with what it saw before."""
    submission, other = school.submit("anna"), school.submit("ben")
    for one in (submission, other):
        set_state(school, one, "running", analysis="generating")
    anna, ben = school.client("anna"), school.client("ben")
    tag = ask(anna, submission).headers["ETag"]
    looks, goes_on, leases = threading.Event(), threading.Event(), school.dispatch.leases

    def slow(runs: Sequence[str]) -> Any:
        found = leases(runs)
        if threading.current_thread() is look:
            looks.set()
            assert goes_on.wait(30)
        return found

    monkeypatch.setattr(school.dispatch, "leases", slow)
    board(school).forget()
    look = threading.Thread(target=ask, args=(anna, submission, tag))
    look.start()
    assert looks.wait(30)
    bens = ask(ben, other).headers["ETag"]
    school.grade(submission, report(), released=True)
    told = ask(anna, submission)
    assert told.get_json()["headline"] == "Graded"
    school.grade(other, report(), released=True)
    board(school).forget()  # what happens meanwhile is for the next look
    goes_on.set()
    look.join()
    assert ask(anna, submission, told.headers["ETag"]).status_code == 304
    assert ask(ben, other, bens).get_json()["headline"] == "Graded"


def test_an_ended_session_is_noticed(school: School) -> None:
    """Also by a page that is told from what was seen before."""
    submission = school.submit("anna")
    client = school.client("anna")
    tag = ask(client, submission).headers["ETag"]
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).disabled = True
    board(school).forget()
    assert ask(client, submission, tag).status_code in (200, 304, 401)
    assert ask(client, submission, tag).status_code == 401
    assert ask(client, submission).status_code == 401
    assert ask(school.client(), submission).status_code == 401


def test_others_learn_nothing_of_it(school: School) -> None:
    submission = school.submit("anna")
    tag = ask(school.client("anna"), submission).headers["ETag"]
    for name in ("ben", "stranger"):
        for given in ("", tag, "*"):
            assert ask(school.client(name), submission, given).status_code == 404
    for unknown in ("0" * 32, "..", "x" * 500, "%00"):
        assert ask(school.client("anna"), unknown, "x").status_code in (404, 308)
    assert set(board(school)._requested) == {submission}


def test_a_language_of_ones_own(school: School) -> None:
    submission = school.submit("anna")
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).language = "xx"
    assert ask(school.client("anna"), submission).get_json()["headline"] == "Received"


def test_a_session_without_a_number_is_nobody(school: School) -> None:
    submission = school.submit("anna")
    for name in ("", "x:y", "1", f"{school.users['anna']}:wrong", "9" * 40):
        client = school.app.test_client()
        with client.session_transaction() as cookie:
            cookie["_user_id"] = name
        assert ask(client, submission, "x").status_code == 401


# --- when to ask again --------------------------------------------------------------------------------


def next_s(state: str, *, eta: int | None = None, alike: int = 1, at_work: bool = False, **more: Any) -> int:
    final = state in ("graded", "partial", "failed")
    view = SimpleNamespace(state=state, final=final)
    status = "running" if at_work else "dispatched"
    how_far = Progress(queue=Queue(position=3, eta_s=eta), stages={"analysis": StageStatus(status=status)})
    now = Live(
        status=state, headline="", detail="", tab="", stages=(), result="", settled=more.get("settled", False)
    )
    return next_look_s(view, how_far, now, alike)  # type: ignore[arg-type]


def test_pauses_follow_what_may_change() -> None:
    assert next_s("running", at_work=True) == AT_WORK
    assert next_s("received") == AT_WORK
    assert next_s("queued", eta=5) == 3
    assert next_s("queued", eta=50) == 5
    assert next_s("queued", eta=5000) == 12
    assert next_s("queued") == 12
    assert next_s("graded") == REVIEW
    assert next_s("graded", settled=True) == 0


@pytest.mark.parametrize("state", ["received", "queued", "running", "graded"])
def test_many_who_wait_ask_less_often_each(state: str) -> None:
    told = [next_s(state, eta=30, alike=count, at_work=True) for count in (1, 100, 500, 5000)]
    assert told == sorted(told)
    assert set(told) <= set(STEPS)
    assert 500 / next_s(state, eta=30, alike=500, at_work=True) <= 50


def test_readers_are_read_together(school: School) -> None:
    from grading.store.views import status as live_status

    with school.store.read() as session:
        ids = [*school.users.values(), 999]
        with counted(school.store) as said:
            found = live_status.load_readers(session, ids)
        assert len([one for one in said if one != "BEGIN"]) == 2
        user = session.get_one(tables.User, school.users["teacher"])
        assert found[user.id].stamp == users.session_stamp(user)
        assert found[user.id].actor == users.actor_of(session, user)
    assert set(found) == set(school.users.values())


def test_pages_carry_what_the_script_needs(tmp_path: Path) -> None:
    school = School(tmp_path)
    page = school.client("anna").get(f"/submissions/{school.submit('anna')}").get_data(as_text=True)
    for part in (
        "data-live=",
        "data-result=",
        "data-shown=",
        "data-tab=",
        "data-stage-row",
        "submissions/status.js",
    ):
        assert part in page
    school.close()
