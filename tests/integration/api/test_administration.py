"""What administrators' programs do by the API: receivers of events, secrets, accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import TestResponse

from app.api.routes import PREFIX
from grading.store import outbox, tables
from grading.store.database import now
from tests.integration.webapp import School

RECEIVERS = [{"name": "lms", "url": "https://lms.example/events?key=hidden"}]


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path, event_receivers=RECEIVERS)
    yield made
    made.close()


class Administration:
    """A program with a token of an administrator."""

    def __init__(self, school: School) -> None:
        self.client, self.token = school.client(), school.token("admin", "admin")

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        path = path if path.startswith(PREFIX) else PREFIX + path
        sent = {} if body is None else {"json": body}
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.open(path, method=method, headers={**self.token, **more}, **sent)

    def get(self, path: str) -> Any:
        answer = self("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.get_json()


@pytest.fixture
def admin(school: School) -> Administration:
    return Administration(school)


def paused(school: School, tries: int = 3) -> None:
    """A receiver that is paused, with a message that was refused so often."""
    with school.store.write() as session:
        moment = now(session)
        outbox.add(session, "to:lms", "received:s1", {})
        session.add(tables.EventReceiver(
            name="lms", mark="m", failures=tries, failing_since=moment, paused_at=moment
        ))  # fmt: skip
        session.add_all(
            tables.SentMessage(
                receiver="lms", message_id="msg_1", event="received:s1", type="submission.received",
                submission_id="s1", attempt=attempt, at=moment + timedelta(minutes=attempt), seconds=0.1, url="https://lms.example/events",
                headers={"webhook-id": "msg_1"}, body="{}", status=500, error="answered 500", answer="no",
            )
            for attempt in range(1, tries + 1)
        )  # fmt: skip


def test_a_paused_receiver_is_seen_and_resumed(school: School, admin: Administration) -> None:
    (quiet,) = admin.get("/receivers")["items"]
    assert quiet == {
        "name": "lms", "configured": True, "url": "https://lms.example/events", "failures": 0,
        "failing_since": None, "paused_at": None, "waiting": 0,
    }  # fmt: skip
    assert admin("POST", "/receivers/lms/resume").status_code == 404
    paused(school)
    (standing,) = admin.get("/receivers")["items"]
    assert (standing["failures"], standing["waiting"], standing["paused_at"] is None) == (3, 1, False)
    assert admin("POST", "/receivers/lms/resume").get_json() == {"receiver": "lms", "waiting": 1}
    assert admin.get("/receivers")["items"][0]["paused_at"] is None
    with school.store.read() as session:
        assert session.query(tables.Audit).filter_by(action="receiver.resume").count() == 1


def test_a_test_message_is_sent_once_and_read(school: School, admin: Administration) -> None:
    assert admin("POST", "/receivers/gone/tests", {"type": "grade.released"}).status_code == 404
    assert admin("POST", "/receivers/lms/tests", {"type": "grade.lost"}).status_code == 404
    assert admin("POST", "/receivers/lms/tests", {}).status_code == 422
    answer = admin("POST", "/receivers/lms/tests", {"type": "grade.released"})
    made = answer.get_json()
    assert (answer.status_code, answer.headers["Location"]) == (202, made["url"])
    assert (made["receiver"], made["type"], made["delivery"]) == ("lms", "grade.released", None)
    with school.store.write() as session:
        (row,) = outbox.claim(session, "test:lms", 1, 60)
        session.add(
            tables.SentMessage(
                receiver="lms", message_id=row.payload["id"], event=row.key, type="grade.released",
                submission_id=row.payload["submission"], attempt=1, at=now(session), seconds=0.1,
                url="https://lms.example/events", headers={}, body="{}", status=204, error="", answer="",
            )
        )  # fmt: skip
        outbox.mark_done(session, row)
    found = admin.get(made["url"])
    assert (found["delivery"]["status"], found["delivery"]["message_id"]) == (204, row.payload["id"])
    assert admin("GET", "/receivers/lms/tests/none").status_code == 404
    assert school.client().post(made["url"].rpartition("/")[0], json={}).status_code == 401


def test_deliveries_are_listed_read_and_sent_again(school: School, admin: Administration) -> None:
    paused(school)
    first = admin.get("/deliveries?limit=2")
    rest = admin.get(first["next"])
    attempts = [one["attempt"] for one in (*first["items"], *rest["items"])]
    assert (attempts, rest["next"]) == ([3, 2, 1], None)
    assert admin.get("/deliveries?state=taken&receiver=lms")["items"] == []
    assert len(admin.get("/deliveries?state=failed&receiver=lms")["items"]) == 3
    at = quote(first["items"][0]["at"])
    later = [one["attempt"] for one in admin.get(f"/deliveries?since={at}")["items"]]
    earlier = [one["attempt"] for one in admin.get(f"/deliveries?until={at}")["items"]]
    assert (later, earlier) == ([3], [2, 1])
    one = admin.get(f"/deliveries/{first['items'][0]['id']}")
    assert (one["message_id"], one["body"], one["answer"], one["status"]) == ("msg_1", "{}", "no", 500)
    with school.store.write() as session:
        (row,) = outbox.claim(session, "to:lms", 1, 60)
        outbox.mark_failed(session, row, "answered 500", None)
    sent = admin("POST", f"/deliveries/{one['id']}/replay")
    assert (sent.status_code, sent.get_json()) == (200, {"receiver": "lms", "message_id": "msg_1"})
    with school.store.write() as session:
        assert len(outbox.claim(session, "to:lms", 1, 60)) == 1
    assert admin("POST", "/deliveries/999/replay").status_code == 404


def test_a_secret_is_told_once_and_kept_nowhere(school: School, admin: Administration) -> None:
    wanted = {"connection": "canvas"}
    made = admin("POST", "/webhook-secrets", wanted, Idempotency_Key="s1")
    again = admin("POST", "/webhook-secrets", wanted, Idempotency_Key="s1")
    secret = made.get_json()["secret"]
    assert (made.status_code, again.status_code) == (201, 201)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/=]{44}", secret)
    assert again.get_json() == {**made.get_json(), "secret": None}
    with school.store.read() as session:
        assert secret not in repr([vars(row) for row in session.query(tables.IdempotencyKey)])
    listed = admin.get("/webhook-secrets")
    assert listed["connections"] == ["canvas"]
    assert [one["ended_at"] for one in listed["items"]] == [None]
    assert secret not in repr(listed)
    assert admin("POST", "/webhook-secrets", wanted).status_code == 201
    assert admin("POST", "/webhook-secrets", wanted).status_code == 409
    assert admin("POST", "/webhook-secrets", {"connection": "none"}).status_code == 404
    assert admin("DELETE", f"/webhook-secrets/{listed['items'][0]['id']}").status_code == 204
    assert admin.get("/webhook-secrets")["items"][0]["ended_at"] is not None
    assert admin("DELETE", "/webhook-secrets/999").status_code == 404


def test_an_account_from_nothing_to_disabled(school: School, admin: Administration) -> None:
    wanted = {"sign_in_name": "nora", "name": "Nora", "email": "nora@school.example"}
    made = admin("POST", "/users", wanted)
    assert (made.status_code, made.headers["Location"]) == (201, made.get_json()["url"])
    nora = admin.get(made.get_json()["url"])
    assert (nora["ids"], nora["name"], nora["enters"], nora["courses"]) == (["nora"], "Nora", False, [])
    assert nora["identities"] == [{"provider": "local", "subject": "nora"}]
    assert admin("POST", "/users", wanted).status_code == 409
    assert admin("POST", "/users", {**wanted, "sign_in_name": "n2", "email": "none"}).status_code == 400
    one = f"/users/{nora['user_id']}"
    link = admin("POST", f"{one}/password-link", Idempotency_Key="l1")
    assert "/reset/" in link.get_json()["link"]
    assert admin("POST", f"{one}/password-link", Idempotency_Key="l1").get_json()["link"] is None
    changed = admin("PATCH", one, {"name": "Nora N.", "administrator": True}).get_json()
    assert (changed["name"], changed["email"], changed["administrator"]) == ("Nora N.", wanted["email"], True)
    assert admin("PATCH", one, {"disabled": True}).get_json()["disabled"] is True
    assert admin("POST", f"{one}/password-link").status_code == 403
    own = f"/users/{school.users['admin']}"
    assert admin("PATCH", own, {"disabled": True}).status_code == 403
    assert admin("PATCH", own, {"disabled": None}).status_code == 422
    assert admin("GET", "/users/999").status_code == 404


def test_everybody_is_listed_by_kind_and_search(admin: Administration) -> None:
    first = admin.get("/users?limit=4")
    rest = admin.get(first["next"])
    names = [one["name"] for one in (*first["items"], *rest["items"])]
    assert names == ["Admin", "Teacher", "Grader", "Anna", "Ben", "Stranger"]
    assert [one["name"] for one in admin.get("/users?kind=administrators")["items"]] == ["Admin"]
    assert [one["name"] for one in admin.get("/users?search=ann")["items"]] == ["Anna"]
    assert admin("GET", "/users?kind=none").status_code == 422
