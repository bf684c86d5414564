from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from app import Services
from grading.integrations import events
from grading.store import tables
from tests.integration.webapp import CODE, SECRET, School, make_app

URL = "/webhooks/lms/canvas"
OLDER_SECRET = "whsec_" + base64.b64encode(b"an older secret of 32 bytes long").decode()


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def message(kind: str = "submission.created", **changes: Any) -> bytes:
    data = {
        "assignment": "ba/hw1",
        "student": {"id": "c-77", "name": "Carla Conti", "email": "carla@school.example"},
        "files": [{"name": "work.py", "content_base64": base64.b64encode(CODE).decode()}],
        **changes,
    }
    return json.dumps({"type": kind, "data": data}).encode()


def signed(body: bytes, message_id: str = "m1", secret: str = SECRET, age_s: float = 0) -> dict[str, str]:
    moment = datetime.now(UTC) - timedelta(seconds=age_s)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, moment, body.decode()),
        "Content-Type": "application/json",
    }


def test_a_submission_by_webhook_is_done_once(school: School) -> None:
    client, body = school.client(), message()
    first = client.post(URL, data=body, headers=signed(body))
    assert first.status_code == 200
    again = client.post(URL, data=body, headers=signed(body, age_s=200))
    assert (again.status_code, again.get_json()) == (200, first.get_json())
    assert (school.count(tables.Submission), len(school.dispatch.announced)) == (1, 1)
    with school.store.read() as session:
        identity = session.query(tables.Identity).filter_by(provider="lms:canvas").one()
        assert (identity.subject, identity.user.name) == ("c-77", "Carla Conti")


def test_another_body_under_the_same_id_is_a_conflict(school: School) -> None:
    client = school.client()
    for body, status in ((message(), 200), (message(priority="batch"), 409)):
        assert client.post(URL, data=body, headers=signed(body)).status_code == status
    assert school.count(tables.Submission) == 1


def test_old_forged_and_unknown_are_401(school: School) -> None:
    client, body = school.client(), message()
    good = signed(body)
    cases = [
        signed(body, age_s=400),
        signed(body, age_s=-400),
        signed(body, secret=OLDER_SECRET),
        {**good, "webhook-id": "m2"},
        {k: v for k, v in good.items() if k != "webhook-signature"},
        {},
    ]
    for headers in cases:
        answer = client.post(URL, data=body, headers=headers)
        assert (answer.status_code, answer.get_json()["code"]) == (401, "signature_invalid")
    assert client.post(URL, data=body + b" ", headers=good).status_code == 401
    assert client.post("/webhooks/lms/moodle", data=body, headers=good).status_code == 401
    assert school.count(tables.Submission) == 0


def test_secrets_can_be_rotated_and_must_be_long(school: School) -> None:
    short = "whsec_" + base64.b64encode(b"too short").decode()
    for secrets, used, status in (
        ((SECRET, OLDER_SECRET), OLDER_SECRET, 200),
        ((short,), short, 401),
        (("whsec_%%%",), SECRET, 401),
    ):
        services = Services(
            config=school.services.config,
            store=school.store,
            dispatch=school.dispatch,
            secret_key="x",
            lms_secrets={"canvas": secrets},
        )
        body = message()
        answer = make_app(services).test_client().post(URL, data=body, headers=signed(body, secret=used))
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (message("course.updated"), 200),
        (b"{", 422),
        (b"[]", 422),
        (json.dumps({"type": "submission.created"}).encode(), 422),
        (message(assignment="ba/none"), 404),
        (message(student={"id": ""}), 422),
        (message(files=[]), 422),
        (message(files=[{"name": "a.py", "content_base64": "%"}]), 422),
        (message(files=[{"name": "a.exe", "content_base64": "eA=="}]), 415),
    ],
)
def test_verified_messages_that_submit_nothing(school: School, body: bytes, status: int) -> None:
    users = school.count(tables.User)
    answer = school.client().post(URL, data=body, headers=signed(body))
    assert answer.status_code == status
    assert school.count(tables.Submission) == school.count(tables.InboundWebhook) == 0
    assert school.count(tables.User) == users


def at_once(count: int, work: Callable[[], tuple[int, str]]) -> set[tuple[int, str]]:
    """What `count` threads got that began together."""
    start, answers = threading.Barrier(count), list[tuple[int, str]]()

    def one() -> None:
        start.wait()
        answers.append(work())

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == count
    return set(answers)


def test_fifty_at_once_submit_once(school_url: str) -> None:
    school, body = School(school_url), message()
    headers = signed(body)

    def post() -> tuple[int, str]:
        answer = school.app.test_client().post(URL, data=body, headers=headers)
        return answer.status_code, answer.get_json()["id"]

    ((status, _),) = at_once(50, post)
    assert status == 200
    assert school.count(tables.Submission) == school.count(tables.InboundWebhook) == 1
    assert len(school.dispatch.announced) == 1
    school.close()


def test_the_same_upload_at_once_is_one(school_url: str) -> None:
    school = School(school_url)
    headers = {**school.token("teacher"), "Idempotency-Key": "k"}

    def post() -> tuple[int, str]:
        form = {"assignment": "ba/hw1", "student": "new", "files": (io.BytesIO(CODE), "work.py")}
        answer = school.app.test_client().post("/api/v1/submissions", data=form, headers=headers)
        said = answer.get_json()
        return answer.status_code, said.get("id") or said["code"]

    found = at_once(20, post)
    assert {status for status, _ in found} <= {202, 409}
    assert {said for status, said in found if status == 409} <= {"idempotency_key_in_use"}
    assert {post()} == {one for one in found if one[0] == 202}
    assert school.count(tables.Submission) == 1
    school.close()


def test_the_documented_example_signs_as_expected(school: School, root: Path) -> None:
    text = (root / "docs" / "how-to" / "developers" / "webhooks.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(compile(example, "webhooks.md", "exec"), names)
    body = message()
    answer = school.client().post(URL, data=body, headers=names["signed"](body, "msg-1", SECRET))
    assert answer.status_code == 200


header = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60)
signature = st.one_of(
    header,
    st.lists(st.sampled_from(["v1,", "v1", "v1,%%%", "v2,eA==", "v1,eA==", ",", ""])).map(" ".join),
)
stamp = st.one_of(header, st.sampled_from(["nan", "inf", "-1", "1e309", "9" * 400, "0x10", "١٢"]))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


def malformed_headers(school: School, identifier: str, moment: str, sign: str, body: bytes) -> None:
    environ = {
        "HTTP_WEBHOOK_ID": identifier,
        "HTTP_WEBHOOK_TIMESTAMP": moment,
        "HTTP_WEBHOOK_SIGNATURE": sign,
    }
    answer = school.client().post(URL, data=body, environ_overrides=environ)
    assert answer.status_code == 401


def malformed_signature(school: School, sign: str, body: bytes) -> None:
    malformed_headers(school, "m1", str(int(datetime.now(UTC).timestamp())), sign, body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(
        ["\x00", "a\x00b", "../../etc/passwd", "submission.created", "1e999", "\U0001f600" * 40]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
PLACES = [
    ("type",), ("data",), ("data", "assignment"), ("data", "student"), ("data", "student", "id"),
    ("data", "student", "name"), ("data", "files"), ("data", "files", 0), ("data", "files", 0, "name"),
    ("data", "files", 0, "content_base64"), ("data", "files", 0, "url"), ("data", "priority"),
    ("data", "course"), ("data", "members"), ("data", "members", 0), ("data", "members", 0, "role"),
    ("data", "removed"), ("data", "slug"), ("data", "title"), ("data", "due_at"),
]  # fmt: skip


@st.composite
def broken_bodies(draw: st.DrawFn) -> bytes:
    """A documented message with something else in one or two places, or cut, or other bytes altogether."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=300))
    kind = draw(st.sampled_from(list(events.INWARD)))
    whole = json.loads(json.dumps(draw(st.sampled_from(events.examples(kind)))))
    for place in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2)):
        inside: Any = whole
        for step in place[:-1]:
            inside = inside.get(step) if isinstance(inside, dict) else inside
            inside = inside[step] if isinstance(inside, list) and isinstance(step, int) and inside else inside
        if isinstance(inside, dict) and isinstance(place[-1], str):
            inside[place[-1]] = draw(anything)
    body = json.dumps(whole).encode()
    return body[: draw(st.integers(0, len(body)))] if draw(st.integers(0, 4)) == 0 else body


def malformed_body(school: School, body: bytes) -> None:
    """Well signed, so that what is in it is read; whatever that is, it is no fault of ours."""
    moment, number = datetime.now(UTC), hashlib.sha256(body).hexdigest()[:32]
    signature = hmac.new(base64.b64decode(SECRET[6:]), digestmod=hashlib.sha256)
    signature.update(f"{number}.{int(moment.timestamp())}.".encode() + body)
    headers = {
        "webhook-id": number,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": "v1," + base64.b64encode(signature.digest()).decode(),
    }
    answer = school.client().post(URL, data=body, headers=headers)
    assert answer.status_code < 500, (answer.status_code, answer.get_data(), body)
    if answer.status_code == 200:
        assert answer.get_json()["status"] in ("ignored", "done", "accepted")
    assert school.count(tables.Submission) == 0  # no example names an assignment that is here


@settings(max_examples=100)
@given(identifier=header, moment=stamp, sign=signature, body=st.binary(max_size=200))
def test_malformed_headers_never_break_it(
    shared: School, identifier: str, moment: str, sign: str, body: bytes
) -> None:
    malformed_headers(shared, identifier, moment, sign, body)


@settings(max_examples=50)
@given(sign=signature, body=st.binary(max_size=200))
def test_malformed_signatures_at_the_right_time_are_401(shared: School, sign: str, body: bytes) -> None:
    malformed_signature(shared, sign, body)


@settings(max_examples=100)
@given(body=broken_bodies())
def test_malformed_bodies_never_break_it(shared: School, body: bytes) -> None:
    malformed_body(shared, body)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=40_000, deadline=None)
@given(identifier=header, moment=stamp, sign=signature, body=st.binary(max_size=200))
def test_many_malformed_headers(shared: School, identifier: str, moment: str, sign: str, body: bytes) -> None:
    malformed_headers(shared, identifier, moment, sign, body)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=20_000, deadline=None)
@given(sign=signature, body=st.binary(max_size=200))
def test_many_malformed_signatures(shared: School, sign: str, body: bytes) -> None:
    malformed_signature(shared, sign, body)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=40_000, deadline=None)
@given(body=broken_bodies())
def test_many_malformed_bodies(shared: School, body: bytes) -> None:
    malformed_body(shared, body)


ELSEWHERE = {
    "submission.created": message(assignment="other/hw1"),
    "submission.created, no such course": message(assignment="none/hw1"),
    "roster.updated": json.dumps(
        {
            "type": "roster.updated",
            "data": {"course": "other", "members": [{"id": "x", "role": "instructor"}]},
        }
    ).encode(),
    "assignment.upserted": json.dumps(
        {"type": "assignment.upserted", "data": {"course": "other", "slug": "hw1", "title": "Changed"}}
    ).encode(),
}


@pytest.mark.parametrize("body", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_connection_reaches_only_the_courses_it_is_bound_to(school: School, body: bytes) -> None:
    counted = (tables.User, tables.Membership, tables.Submission, tables.Assignment, tables.Audit)
    before = [school.count(table) for table in counted]
    answer = school.client().post(URL, data=body, headers=signed(body))
    problem = answer.get_json()
    assert (answer.status_code, problem["code"]) == (403, "course_not_bound")
    assert "server.lms_connections" in problem["detail"]
    assert [school.count(table) for table in counted] == before


def test_a_connection_of_every_course_reaches_each(tmp_path: Path) -> None:
    school = School(tmp_path, lms_connections={"canvas": ["*"]})
    try:
        body = message(assignment="other/hw1")
        assert school.client().post(URL, data=body, headers=signed(body)).status_code == 200
    finally:
        school.close()
