"""The client of the HTTP API against a served app."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from flask import Flask, Response, request
from werkzeug.serving import make_server

import grader_client
from app.api import openapi
from cli.dev.embedded_redis import free_port
from grader_client import Client, answers, errors
from grader_client import client as client_module
from grading.store import tables
from tests.integration.webapp import CODE, School, report
from tests.support.servers.closing import ends_what_it_sends


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries end at once."""
    monkeypatch.setattr(client_module, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(client_module, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(client_module, "LONGEST_POLL_S", 0.02)


class Served:
    """An app at an address; `hiccups` are answers that callers get before the app is asked."""

    def __init__(self, app: Flask) -> None:
        self.hiccups: list[Response] = []
        self.heard: list[tuple[str, str, int]] = []
        app.before_request(self._hiccup)
        app.after_request(self._hear)
        self.server = make_server("127.0.0.1", 0, ends_what_it_sends(app), threaded=True)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def _hiccup(self) -> Response | None:
        return self.hiccups.pop(0) if self.hiccups else None

    def _hear(self, response: Response) -> Response:
        self.heard.append((request.method, request.path, response.status_code))
        return response

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def served(school: School) -> Iterator[Served]:
    made = Served(school.app)
    yield made
    made.close()


def client_of(school: School, served: Served, name: str, *scopes: str) -> Client:
    token = school.token(name, *scopes)["Authorization"].removeprefix("Bearer ")
    return Client(served.url + "/", token)


@pytest.fixture
def anna(school: School, served: Served) -> Client:
    return client_of(school, served, "anna", "submit", "read")


@pytest.fixture
def teacher(school: School, served: Served) -> Client:
    return client_of(school, served, "teacher", "submit", "read", "grade")


def test_from_a_file_to_a_released_result(
    school: School, anna: Client, teacher: Client, tmp_path: Path
) -> None:
    work = tmp_path / "work.py"
    work.write_bytes(CODE)
    accepted = anna.submit([work], "ba/hw1", "anna")
    assert accepted["status"] == anna.submission(accepted["id"])["status"] == "received"
    school.grade(accepted["id"], report())
    seen: list[str] = []
    done = anna.wait(accepted["id"], 30, lambda view: seen.append(view["status"]))
    assert seen == ["graded"]
    assert (done["status"], done["score"], done["released"]) == ("graded", None, False)
    with pytest.raises(errors.NotFound):
        anna.result(accepted["id"])
    with pytest.raises(errors.Forbidden) as refused:
        anna.release(accepted["id"])
    assert refused.value.code == "scope_missing"
    assert teacher.release(accepted["id"]) == {"submission": accepted["id"], "released": True}
    assert anna.result(accepted["id"])["score"] == anna.submission(accepted["id"])["score"] == 8.5
    assert "grd_" not in repr(anna)


def test_waiting_asks_by_the_etag_and_ends(school: School, served: Served, anna: Client) -> None:
    submission = anna.submit({"work.py": CODE}, "ba/hw1", "anna")["id"]
    seen: list[str] = []
    with pytest.raises(errors.NotGradedYet, match="is still received") as early:
        anna.wait(submission, 0.1, lambda view: seen.append(view["status"]))
    assert seen == ["received"]
    assert early.value.status == "received"
    asked = [status for method, _, status in served.heard if method == "GET"]
    assert asked[0] == 200
    assert set(asked[1:]) == {304}


def test_it_is_submitted_once_however_often_it_is_sent(
    school: School, served: Served, anna: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_answers = served.server.app
    lost = iter([True] + [False] * 10)

    def losing(environ: Any, start: Any) -> Any:
        sent = list(app_answers(environ, start))
        if environ["REQUEST_METHOD"] == "POST" and next(lost):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return sent

    monkeypatch.setattr(served.server, "app", losing)
    anna.submit({"work.py": CODE}, "ba/hw1", "anna")
    assert [entry for entry in served.heard if entry[0] == "POST"] == [
        ("POST", "/api/v1/submissions", 202)
    ] * 2
    assert school.count(tables.Submission) == 1
    first = anna.submit({"work.py": CODE}, "ba/hw1", "anna", idempotency_key="hw1-anna")
    assert anna.submit({"work.py": CODE}, "ba/hw1", "anna", idempotency_key="hw1-anna") == first
    with pytest.raises(errors.InvalidRequest) as reused:
        anna.submit({"work.py": b"x = 1"}, "ba/hw1", "anna", idempotency_key="hw1-anna")
    assert reused.value.code == "idempotency_key_reused"


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_obeyed(
    served: Served, anna: Client, monkeypatch: pytest.MonkeyPatch, date: bool
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", slept.append)
    when = datetime.now(UTC) + timedelta(seconds=30)
    wait = when.strftime("%a, %d %b %Y %H:%M:%S GMT") if date else "30"
    served.hiccups = [Response(status=429, headers={"Retry-After": wait}), Response(status=502)]
    assert anna.submit({"work.py": CODE}, "ba/hw1", "anna")["status"] == "received"
    assert 27 < slept[0] <= 30
    assert slept[1] <= 0.01
    served.hiccups = [Response(status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(errors.TooManyRequests):
        anna.submission("x")
    assert len(slept) == 2


def test_a_list_goes_on_over_all_pages(school: School, teacher: Client) -> None:
    sent = [school.submit(name) for name in ("anna", "ben")]
    school.grade(sent[0], report())
    assert [one["id"] for one in teacher.list_submissions()] == sent[::-1]
    (graded,) = teacher.list_submissions(status="graded", released=False, course=school.course)
    assert graded["id"] == sent[0]
    until = datetime.now(UTC) - timedelta(days=1)
    assert list(teacher.list_submissions(until=until)) == []


def test_a_long_list_is_read_page_by_page(school: School, served: Served, teacher: Client) -> None:
    for _ in range(51):
        school.submit("anna")
    assert len({one["id"] for one in teacher.list_submissions(student="anna")}) == 51
    assert [path for _, path, _ in served.heard] == ["/api/v1/submissions"] * 2


def test_errors_have_the_code_and_the_id_of_the_request(served: Served, anna: Client, school: School) -> None:
    with pytest.raises(errors.NotFound, match="The assignment 'ba/none' does not exist") as missing:
        anna.submit({"work.py": CODE}, "ba/none", "anna")
    assert (missing.value.status, missing.value.code) == (404, "not_found")
    assert len(missing.value.request_id) == 32
    with pytest.raises(errors.NotSignedIn):
        Client(served.url, "grd_none").submission("x")
    served.hiccups = [Response("<html>", status=500, headers={"X-Request-ID": "r-1"})]
    with pytest.raises(errors.ServerFailed, match="answered 500 without saying why"):
        anna.submission("x")
    served.hiccups = [Response("<html>", status=200)]
    with pytest.raises(errors.ApiError, match="answered 200"):
        anna.submission("x")


def test_a_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PATIENCE_S", 0.05)
    away = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(errors.ServerAway, match=f"{away} does not answer"):
        Client(away, "grd_none").submission("x")


@pytest.mark.parametrize(
    ("type_", "described"),
    [
        (answers.Accepted, "SubmissionAccepted"),
        (answers.Submission, "SubmissionStatus"),
        (answers.SubmissionItem, "SubmissionItem"),
        (answers.Result, "Result"),
        (answers.Released, "State"),
    ],
)
def test_the_types_have_the_fields_that_are_described(type_: type, described: str) -> None:
    schema = openapi.document()["components"]["schemas"][described]
    assert set(get_type_hints(type_)) == set(schema["properties"])


def test_everything_is_exported() -> None:
    of_errors = {
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)
    }
    assert of_errors <= set(grader_client.__all__)
