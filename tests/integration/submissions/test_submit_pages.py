"""Submitting: what is shown before it counts, once whatever happens, receipts, doors, extensions, groups."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import event
from sqlalchemy.orm import Session
from werkzeug.test import TestResponse

from grading.domain.lateness import LateRule, closes, lateness, steps
from grading.domain.permissions import Actor
from grading.store import blobs, tables
from grading.store.accounts import users
from grading.store.courses import groups
from grading.store.database import now
from grading.store.grades import extensions
from grading.store.privacy import retention
from grading.store.submissions import pending_uploads
from grading.store.tables import GroupMember, Submission, SubmissionMember
from grading.store.views import staff_home
from tests.integration.webapp import CODE, School, form_token, report, undo

KEY = "k" * 22


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def both(school_url: str) -> Iterator[School]:
    """On SQLite and on PostgreSQL."""
    made = School(school_url)
    yield made
    made.close()


def send(
    client: FlaskClient, assignment: int, then: str = "", key: str = KEY, data: bytes = CODE
) -> TestResponse:
    form = {"csrf_token": form_token(client), "key": key, "then": then}
    files = {"files": (io.BytesIO(data), "work.py")}
    return client.post(f"/assignments/{assignment}/submit", data={**form, **files})


def change(school: School, **values: Any) -> None:
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        for name, value in values.items():
            setattr(assignment, name, value)


def post(client: FlaskClient, url: str, **form: Any) -> TestResponse:
    return client.post(url, data={"csrf_token": form_token(client), **form})


def ago(school: School, **span: float) -> datetime:
    with school.store.read() as session:
        return now(session) - timedelta(**span)


def notebook(*cells: dict[str, Any]) -> bytes:
    full = [{"metadata": {}, "outputs": [], "execution_count": None, **cell} for cell in cells]
    for cell in full:
        if cell["cell_type"] != "code":
            del cell["outputs"], cell["execution_count"]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": full}).encode()


def test_staff_submit_for_a_student_whom_they_find_by_name(school: School) -> None:
    grader, url = school.client("grader"), f"/assignments/{school.assignment}/submit-for"
    found = grader.get(url, query_string={"q": "ann"}).get_data(as_text=True)
    assert re.findall(r'name="student" id="s\d+" value="(\d+)"', found) == [str(school.users["anna"])]
    for student in ("", str(school.users["stranger"]), str(school.users["teacher"])):
        form = {"csrf_token": form_token(grader), "student": student, "files": (io.BytesIO(CODE), "a.py")}
        answer = grader.post(url, data=form)
        assert answer.status_code == 422
        assert "Choose the student" in answer.get_data(as_text=True)
    own = send(school.client("ben"), school.assignment, "at_once").headers["Location"]
    change(school, due_at=ago(school, days=9), late={"days": 0})
    for _ in range(2):  # the same form twice is one submission
        form = {"csrf_token": form_token(grader), "student": str(school.users["anna"]), "key": "k" * 22}
        assert grader.post(url, data={**form, "files": (io.BytesIO(CODE), "a.py")}).status_code == 303
    with school.store.read() as session:
        (made,) = session.query(Submission).filter_by(student_id=school.users["anna"])
        assert (made.student_id, made.submitted_by) == (school.users["anna"], school.users["grader"])
    for end, said in (("receipt", "<dt>Submitted by</dt>"), ("receipt.txt", "Submitted by: Grader\n")):
        assert said in school.client("anna").get(f"/submissions/{made.id}/{end}").get_data(as_text=True)
        assert "Submitted by" not in school.client("ben").get(f"{own}/{end}").get_data(as_text=True)
    files = f"/api/v1/submissions/{made.id}/files"
    assert grader.get(files, headers=school.token("anna")).get_json()["submitted_by"] == "Grader"


# --- what was received, before it counts --------------------------------------------------------------


def test_an_upload_is_shown_before_it_counts(school: School) -> None:
    client = school.client("anna")
    error = {"output_type": "error", "ename": "NameError", "evalue": "x", "traceback": ["NameError: x"]}
    work = notebook(
        {"cell_type": "markdown", "source": "# Answer\n\nTODO: write it"},
        {"cell_type": "code", "source": "x = 1"},
        {"cell_type": "code", "source": "y", "execution_count": 2, "outputs": [error]},
    )
    form = {"csrf_token": form_token(client), "then": "look", "files": (io.BytesIO(work), "<b>work.ipynb")}
    answer = client.post(f"/assignments/{school.assignment}/submit", data=form)
    assert answer.status_code == 303
    page = client.get(answer.headers["Location"]).get_data(as_text=True)
    for words in (
        "Not submitted yet",
        "3 cells",
        "2 with code, 1 with text",
        "Not run, so there is no output:",
    ):
        assert words in page
    assert re.search(r"Stops with an error:</?\w*>? *cell 3", page) or "Stops with an error: cell 3" in page
    assert "cell 1" in page
    assert "<b>work" not in page
    assert school.count(Submission) == 0
    assert school.dispatch.announced == []
    for url in ("/", f"/assignments/{school.assignment}"):
        assert "not submitted" in client.get(url).get_data(as_text=True).lower()
    done = post(client, answer.headers["Location"])
    assert "/submissions/" in done.headers["Location"]
    assert (school.count(Submission), school.count(tables.Upload), school.count(tables.UploadFile)) == (
        1,
        0,
        0,
    )
    assert len(school.dispatch.announced) == 1
    # from a page that was left open, or after a lost answer: the same submission, not a second one
    assert post(client, answer.headers["Location"]).headers["Location"] == done.headers["Location"]
    assert client.get(answer.headers["Location"]).headers["Location"] == done.headers["Location"]
    assert school.count(Submission) == 1


def test_what_is_wrong_with_files_stands_at_their_field(school: School) -> None:
    client = school.client("anna")
    change(school, due_at=ago(school, days=-1), late={"days": 1})
    answer = send(client, school.assignment, "look", data=b"")
    page = answer.get_data(as_text=True)
    assert answer.status_code == 422
    (field,) = re.findall(r'<input[^>]* id="files"[^>]*>', page)
    assert 'aria-invalid="true"' in field
    assert 'aria-describedby="files-help files-problem"' in field
    (words,) = re.findall(r'id="files-problem" data-files-problem>([^<]+)<', page)
    assert "empty" in words
    assert page.count(words) == 1
    change(school, due_at=ago(school, days=9))
    closed = send(client, school.assignment, "look")
    assert closed.status_code == 409
    assert "files-problem" not in closed.get_data(as_text=True)
    assert 'class="alert alert-danger" role="alert">' in closed.get_data(as_text=True)


def test_another_upload_takes_the_place_of_the_first_and_none_is_left(school: School) -> None:
    client = school.client("anna")
    first = send(client, school.assignment, "look", data=b"first = 1\n").headers["Location"]
    second = send(client, school.assignment, "look", data=b"second = 2\n").headers["Location"]
    assert client.get(first).status_code == 404
    assert school.count(tables.Upload) == school.count(tables.Blob) == 1
    thrown = post(client, f"{second}/discard")
    assert thrown.status_code == 303
    assert (school.count(tables.Upload), school.count(tables.Blob), school.count(Submission)) == (0, 0, 0)
    assert post(client, second).status_code == 404


def test_what_was_uploaded_is_kept_for_a_day(school: School) -> None:
    client = school.client("anna")
    address = send(client, school.assignment, "look").headers["Location"]
    kept = school.services.config.retention
    school.store.clock_offset_s = 23 * 3600
    with school.store.write() as session:
        assert retention.delete_chunk(session, kept)["uploads"] == 0
    school.store.clock_offset_s = 25 * 3600
    with school.store.write() as session:
        assert retention.delete_chunk(session, kept)["uploads"] == 1
    assert school.count(tables.Blob) == 0
    assert client.get(address).status_code == 404


@pytest.mark.parametrize(("minutes", "counts_at_upload"), [(14, True), (16, False)])
def test_the_time_is_that_of_the_upload_for_15_minutes(
    school: School, minutes: int, counts_at_upload: bool
) -> None:
    client = school.client("anna")
    address = send(client, school.assignment, "look").headers["Location"]
    with school.store.read() as session:
        complete = session.query(tables.Upload).one().created_at
    # the door closes between the upload and the confirmation
    change(school, due_at=complete + timedelta(minutes=5), late={"days": 0})
    school.store.clock_offset_s = minutes * 60
    page = client.get(address).get_data(as_text=True)
    assert ("Submit these files" in page) is counts_at_upload
    done = post(client, address)
    assert done.status_code == (303 if counts_at_upload else 409)
    with school.store.read() as session:
        assert [one.created_at for one in session.query(Submission)] == [complete] * counts_at_upload
    assert school.count(tables.Upload) == (0 if counts_at_upload else 1)  # nothing is lost


def test_somebody_elses_upload_is_not_there(school: School) -> None:
    address = send(school.client("anna"), school.assignment, "look").headers["Location"]
    for name in ("ben", "teacher", "admin"):
        other = school.client(name)
        assert other.get(address).status_code == 404
        assert post(other, address).status_code == post(other, f"{address}/discard").status_code == 404
    assert school.count(tables.Upload) == 1


def test_characters_that_no_database_takes(both: School) -> None:
    change(both, due_at=ago(both, days=1), group_size=2)
    client, teacher = both.client("anna"), both.client("teacher")
    for url in ("/uploads/%00", "/uploads/a%00/discard", "/submissions/%00/receipt"):
        assert client.get(url).status_code in (404, 405)
        assert post(client, url).status_code in (404, 405)
    where = f"/assignments/{both.assignment}"
    assert client.get(f"{where}/files/data/%00").status_code == 404
    assert post(client, f"{where}/group", wish="invite", name="be\0n").status_code == 303
    later = ago(both, days=-30).strftime("%Y-%m-%dT%H:%M")
    form = {"student": both.users["anna"], "until": later, "zone": "UTC", "reason": "a\0b"}
    assert post(teacher, f"{where}/extensions", **form).status_code == 303
    assert "a b" in teacher.get(f"{where}/extensions").get_data(as_text=True)
    assert post(teacher, f"{where}/extensions", **{**form, "zone": "\0"}).status_code == 422


def test_no_check_that_compares_is_told_before_it_counts(school: School) -> None:
    with school.store.write() as session:
        version = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
        checks: list[dict[str, Any]] = [
            {"kind": "uses", "all_of": ["read_csv"], "label": "reads a file"},
            {"kind": "code_matches", "all_of": ["secret_pattern"], "label": "the secret"},
            {"kind": "output_close", "values": [41.5], "label": "the number"},
            {"kind": "passes_tests", "cases": [
                {"expression": "f(1)", "expected": "97719.5", "name": "adds one"},
                {"expression": "f(2)", "name": "the hidden one", "hidden": True},
            ]},
        ]  # fmt: skip
        rubric = dict(version.rubric)
        rubric["criteria"] = [{**rubric["criteria"][0], "checks": checks}, *rubric["criteria"][1:]]
        version.rubric = rubric
    client = school.client("anna")
    page = client.get(send(client, school.assignment, "look").headers["Location"]).get_data(as_text=True)
    for words in ("reads a file", "adds one", "There are also hidden tests."):
        assert words in page
    for words in ("the secret", "secret_pattern", "the number", "41.5", "97719.5", "the hidden one"):
        assert words not in page


def test_the_look_tells_what_was_defined_and_where_it_does_not_parse(school: School) -> None:
    client = school.client("anna")
    work = b"class A:\n    # because of f\n    def f(self):\n        return 1\n\nx = (1\n"
    page = client.get(send(client, school.assignment, "look", data=work).headers["Location"]).get_data(
        as_text=True
    )
    for words in (
        "1 class, 1 function or method, 1 line of comments",
        "has syntax errors",
        "line 6",
    ):
        assert words in page


# --- once, whatever happens ---------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["at_once", ""])
def test_the_same_form_submits_once(school: School, then: str) -> None:
    client = school.client("anna")
    first, again = (send(client, school.assignment, then) for _ in range(2))
    assert first.headers["Location"] == again.headers["Location"]
    assert school.count(Submission) == 1
    other = send(client, school.assignment, then, data=b"other = 1\n")  # back, other files, sent again
    assert other.headers["Location"] != first.headers["Location"]
    assert school.count(Submission) == 2


def test_two_clicks_at_the_same_moment_submit_once(both: School) -> None:
    change(both, max_submissions=1)
    address = send(both.client("anna"), both.assignment, "look").headers["Location"]
    clients = [both.client("anna") for _ in range(4)]
    tokens = [form_token(client) for client in clients]

    def click(place: int) -> tuple[int, str]:
        answer = clients[place].post(address, data={"csrf_token": tokens[place]})
        return answer.status_code, answer.headers.get("Location", "")

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(click, range(4)))
    assert len(answers) == 1
    assert {status for status, _ in answers} == {303}
    assert both.count(Submission) == 1


@pytest.mark.parametrize("method", ["get", "post"])
def test_who_comes_while_another_click_submits_is_led_to_the_submission(
    both: School, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other transaction commits between two reads of this request."""
    address = send(both.client("anna"), both.assignment, "look").headers["Location"]
    client, other = both.client("anna"), both.client("anna")
    tokens = [form_token(one) for one in (client, other)]
    load, clicked = pending_uploads.load_upload, []

    def load_after_the_other(session: Session, upload_id: str, user_id: int) -> pending_uploads.PendingUpload:
        if not clicked:
            clicked.append("once")
            clicked.append(other.post(address, data={"csrf_token": tokens[1]}).headers["Location"])
        return load(session, upload_id, user_id)

    monkeypatch.setattr(pending_uploads, "load_upload", load_after_the_other)
    answer = client.open(address, method=method.upper(), data={"csrf_token": tokens[0]})
    assert (answer.status_code, answer.headers.get("Location")) == (303, clicked[1])
    assert both.count(Submission) == 1


def test_a_form_that_was_sent_twice_at_once_submits_once(both: School) -> None:
    clients = [both.client("anna") for _ in range(4)]
    tokens = [form_token(client) for client in clients]

    def click(place: int) -> str:
        data = {"csrf_token": tokens[place], "key": KEY, "files": (io.BytesIO(CODE), "work.py")}
        return clients[place].post(f"/assignments/{both.assignment}/submit", data=data).headers["Location"]

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(click, range(4)))) == 1
    assert both.count(Submission) == 1


def test_after_a_lost_connection_the_page_finds_it(school: School) -> None:
    client, other = school.client("anna"), school.client("ben")
    where = f"/assignments/{school.assignment}/submit/arrived.json?key={KEY}"
    assert client.get(where).get_json() == {"url": None}
    address = send(client, school.assignment, "look").headers["Location"]
    assert client.get(where).get_json() == {"url": address}
    submitted = send(client, school.assignment, "at_once").headers["Location"]
    assert client.get(where).get_json() == {"url": submitted}
    assert other.get(where).get_json() == {"url": None}
    for bad in ("", "%", "_" * 22, "x" * 500):
        assert client.get(where.replace(KEY, bad)).get_json() == {"url": None}


# --- the receipt --------------------------------------------------------------------------------------


def test_the_receipt_can_be_checked_by_its_own_command(school: School, tmp_path: Path) -> None:
    client = school.client("anna")
    form = {
        "csrf_token": form_token(client),
        "files": [(io.BytesIO(CODE), "wörk file.py"), (io.BytesIO(b"# Notes\n\nWords.\n"), "notes.md")],
    }
    address = client.post(f"/assignments/{school.assignment}/submit", data=form).headers["Location"]
    text = client.get(f"{address}/receipt.txt").get_data()
    with school.store.read() as session:
        submission = session.query(Submission).one()
    kept = tmp_path / "receipt.txt"
    kept.write_bytes(text)
    command = f"grep -E '^[0-9a-f]{{64}} [0-9]+ ' {kept} | sha256sum"
    worked_out = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert worked_out.split()[0] == submission.fingerprint
    assert f"Fingerprint:  {submission.fingerprint}".encode() in text
    for data, name in ((CODE, "wörk file.py"), (b"# Notes\n\nWords.\n", "notes.md")):
        assert f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}\n".encode() in text
    assert f"{submission.created_at:%Y-%m-%d %H:%M:%S} UTC, in time".encode() in text
    page = client.get(f"{address}/receipt").get_data(as_text=True)
    assert submission.fingerprint in page
    assert "Anna" in page
    assert school.client("ben").get(f"{address}/receipt.txt").status_code == 404


# --- doors --------------------------------------------------------------------------------------------


def test_the_late_rule_in_dates() -> None:
    due = datetime(2026, 11, 24, 22, 59, tzinfo=UTC)
    rule = LateRule(grace_minutes=10, per_day=0.2, at_least=0.5, days=4)
    found = steps(due, rule)
    assert [credit for _, credit in found] == [1.0, 0.8, 0.6, 0.5]
    for until, credit in found:
        assert lateness(until, due, rule).credit == credit
        assert lateness(until + timedelta(seconds=1), due, rule).credit < credit or until == closes(due, rule)
    assert closes(due, rule) == due + timedelta(days=4)
    assert lateness(due + timedelta(days=4, seconds=1), due, rule).closed
    assert closes(due, LateRule()) is None
    assert steps(due, LateRule()) == [(due, 1.0)]
    assert [credit for _, credit in steps(due, LateRule(per_day=0.5))] == [1.0, 0.5, 0.0]
    said = [
        "Late penalty after that: 20 % of the points per day or part of a day.",
        "Late submissions earn at least 50 % of their points.",
    ]
    assert [one.message for one in rule.penalty()] == said
    assert LateRule(grace_minutes=10).penalty() == ()


def api(school: School, name: str, student: str) -> int:
    form = {"assignment": "ba/hw1", "student": student, "files": (io.BytesIO(CODE), "work.py")}
    return school.client().post("/api/v1/submissions", data=form, headers=school.token(name)).status_code


def test_after_the_door_closed_only_staff_and_extensions_get_in(school: School) -> None:
    change(school, due_at=ago(school, days=2.5), late={"per_day": 0.1, "days": 1})
    client = school.client("anna")
    page = client.get(f"/assignments/{school.assignment}").get_data(as_text=True)
    assert "are closed" in page
    assert "data-submit-form" not in page
    for then in ("look", "at_once"):
        answer = send(client, school.assignment, then)
        assert answer.status_code == 409
        assert "Ask your instructor for an extension" in answer.get_data(as_text=True)
    assert api(school, "anna", "anna") == 409
    assert (school.count(Submission), school.count(tables.Upload)) == (0, 0)
    assert api(school, "teacher", "anna") == 202  # staff may, and it is late
    assert "3 days late" in school.client("teacher").get("/submissions").get_data(as_text=True)
    teacher = school.client("teacher")
    until = f"{ago(school, days=-1):%Y-%m-%dT%H:%M}"
    url = f"/assignments/{school.assignment}/extensions"
    assert post(teacher, url, student=school.users["anna"], until=until, zone="UTC").status_code == 303
    assert send(client, school.assignment, "at_once").status_code == 303
    assert send(school.client("ben"), school.assignment, "at_once").status_code == 409


def test_the_number_of_submissions_is_respected(school: School) -> None:
    change(school, max_submissions=1)
    client = school.client("anna")
    assert "You have 1 of 1 submissions left" in client.get(f"/assignments/{school.assignment}").get_data(
        as_text=True
    )
    assert send(client, school.assignment).status_code == 303
    assert send(client, school.assignment).status_code == 303  # the same form again
    answer = send(client, school.assignment, key="z" * 22)
    assert answer.status_code == 409
    assert "All 1 submissions" in answer.get_data(as_text=True)
    assert api(school, "anna", "anna") == 409
    assert api(school, "teacher", "anna") == 202
    assert send(school.client("ben"), school.assignment).status_code == 303


def test_hidden_assignments_and_archived_courses(school: School) -> None:
    change(school, visible=False)
    client, teacher = school.client("anna"), school.client("teacher")
    url = f"/assignments/{school.assignment}"
    assert client.get(url).status_code == client.get(f"{url}/submit").status_code == 404
    assert send(client, school.assignment).status_code == 404
    assert api(school, "anna", "anna") == 404
    for page in ("/", "/submissions"):
        assert "Homework hw1" not in client.get(page).get_data(as_text=True)
    assert "Students cannot see this" in teacher.get(url).get_data(as_text=True)
    assert send(teacher, school.assignment).status_code == 303  # staff try it out
    change(school, visible=True)
    with school.store.write() as session:
        session.get_one(tables.Course, school.course).archived = True
    assert "This course has ended" in client.get(url).get_data(as_text=True)
    for one in (client, teacher):
        assert send(one, school.assignment, key="a" * 22).status_code == 409
    assert api(school, "teacher", "anna") == 409


def test_only_starter_and_data_can_be_downloaded(school: School) -> None:
    files = {
        "starter/work.py": b"x = 0\n",
        "data/sales.csv": b"a,b\n",
        "solution/work.py": b"SECRET",
        "tests/t.py": b"SECRET",
    }
    with school.store.write() as session:
        version = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
        version.files = dict(zip(files, blobs.store_blobs(session, files.values()), strict=True))
        version.task = "# Do *this*\n\n<script>alert(1)</script>"
    client, url = school.client("anna"), f"/assignments/{school.assignment}"
    page = client.get(url).get_data(as_text=True)
    assert "sales.csv" in page
    assert "SECRET" not in page
    assert "<em>this</em>" in page
    assert "<script>alert" not in page
    answer = client.get(f"{url}/files/data/sales.csv")
    assert (answer.get_data(), answer.headers["Content-Disposition"]) == (
        b"a,b\n",
        "attachment; filename=sales.csv",
    )
    for path in ("solution/work.py", "tests/t.py", "starter/../solution/work.py", "data/", "assignment.toml"):
        assert client.get(f"{url}/files/{path}").status_code == 404
        assert school.client("teacher").get(f"{url}/files/{path}").status_code == 404


# --- extensions ---------------------------------------------------------------------------------------


def test_an_extension_settles_grades_and_is_audited(both: School) -> None:
    change(both, due_at=ago(both, days=1, hours=12), late={"per_day": 0.25})
    submission = both.submit("anna")
    both.grade(submission, report(points=8, points_so_far=8))
    teacher, url = both.client("teacher"), f"/assignments/{both.assignment}/extensions"

    def final() -> tuple[float | None, float]:
        with both.store.read() as session:
            grade = session.query(tables.Grade).one()
            return grade.final_points, grade.credit

    until = (ago(both, days=-1)).astimezone().replace(tzinfo=None)
    people = [both.users["anna"], both.users["ben"]]
    form = {
        "student": people,
        "until": f"{until:%Y-%m-%dT%H:%M}",
        "zone": "Europe/Berlin",
        "reason": "ill <b>",
    }
    early = {**form, "until": f"{until - timedelta(hours=1):%Y-%m-%dT%H:%M}", "reason": "ill"}
    post(teacher, url, **early)
    post(teacher, url, **form)
    undo(teacher, url)
    with both.store.read() as session:
        given = session.query(tables.Extension).filter_by(student_id=people[0]).one()
        assert (given.reason, given.due_at.strftime("%M")) == ("ill", until.strftime("%M"))
    answer = post(teacher, url, **form)
    assert answer.status_code == 303
    page = teacher.get(url).get_data(as_text=True)
    assert "(Europe/Berlin)" in page
    assert "ill &lt;b&gt;" in page
    assert final() == (8.0, 1.0)
    with both.store.read() as session:
        berlin = session.query(tables.Extension).filter_by(student_id=people[0]).one().due_at
        assert berlin.strftime("%M") == until.strftime("%M")
        assert session.query(tables.Audit).filter_by(action="extension.give").count() == 8
    assert "your extension" in both.client("anna").get("/").get_data(as_text=True)
    revoked = post(teacher, f"{url}/{people[0]}/revoke")
    assert revoked.status_code == 303
    assert final() == (4.0, 0.5)
    undo(teacher, url)
    assert final() == (8.0, 1.0)
    post(teacher, f"{url}/{people[0]}/revoke")
    assert final() == (4.0, 0.5)
    assert post(teacher, f"{url}/{people[0]}/revoke").status_code == 303
    assert post(teacher, f"{url}/{both.users['stranger']}/revoke").status_code == 404
    with both.store.read() as session:
        assert session.query(tables.Audit).filter_by(action="extension.revoke").count() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"zone": "../../etc/passwd"},
        {"zone": "Europe"},
        {"until": "soon"},
        {"until": "9999-12-31T23:59"},
        {"until": "2001-01-01T00:00"},
        {"until": "2031-01-01T00:00+05:00"},
        {"student": "999999"},
        {"student": "x"},
    ],
)
def test_a_wrong_extension_says_what_to_do(school: School, wrong: dict[str, str]) -> None:
    change(school, due_at=ago(school, days=1))
    form = {"student": str(school.users["anna"]), "until": "2031-01-01T00:00", "zone": "UTC", **wrong}
    answer = post(school.client("teacher"), f"/assignments/{school.assignment}/extensions", **form)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.get_data(as_text=True)
    assert school.count(tables.Extension) == 0


# --- groups -------------------------------------------------------------------------------------------


def group(school: School, client: FlaskClient, wish: str, name: str = "") -> str:
    answer = post(client, f"/assignments/{school.assignment}/group", wish=wish, name=name)
    assert answer.status_code == 303
    return client.get(f"/assignments/{school.assignment}").get_data(as_text=True)


def test_a_group_submits_together(both: School) -> None:
    change(both, group_size=2, max_submissions=3)
    anna, ben = both.client("anna"), both.client("ben")
    assert "No other student of this course" in group(both, anna, "invite", "teacher")
    assert "No other student of this course" in group(both, anna, "invite", "anna")
    assert "must accept" in group(both, anna, "invite", "ben")
    alone = both.submit("anna")  # nobody has agreed yet
    assert ben.get(f"/submissions/{alone}").status_code == 404
    assert "invites you" in ben.get("/").get_data(as_text=True)
    assert "You joined the group" in group(both, ben, "confirm")
    together = send(ben, both.assignment).headers["Location"]
    with both.store.read() as session:
        row = session.query(Submission).filter_by(student_id=both.users["ben"]).one()
        assert row.number == 2
        members = session.query(SubmissionMember).one()
        assert (members.submission_id, members.user_id) == (row.id, both.users["anna"])
    both.grade(row.id, report(points=7.25, points_so_far=7.25), released=True)
    for client in (anna, ben):
        assert "7.25" in client.get("/").get_data(as_text=True)
        assert client.get(together).status_code == 200
        assert "7.25" in client.get(f"{together}/result").get_data(as_text=True)
        receipt = client.get(f"{together}/receipt").get_data(as_text=True)
        assert "Ben, Anna" in receipt
    assert "has already submitted" in group(both, anna, "leave")
    assert "You have 1 of 3 submissions left" in anna.get(f"/assignments/{both.assignment}").get_data(
        as_text=True
    )
    # what Anna submitted before they were a group counts for her alone
    assert "You have 1 of 3 submissions left" in ben.get(f"/assignments/{both.assignment}").get_data(
        as_text=True
    )
    with both.store.read() as session:
        assignment = session.get_one(tables.Assignment, both.assignment)
        assert groups.group_members(session, assignment, both.users["ben"]) == (
            both.users["anna"],
            both.users["ben"],
        )


def test_a_group_has_its_bounds(school: School) -> None:
    with school.store.write() as session:
        for name in ("cleo", "dan"):
            school.users[name] = users.create_user(session, name, name=name.capitalize()).id
            users.enrol(session, school.users[name], school.course, "student")
    change(school, group_size=2)
    anna, ben, cleo = (school.client(name) for name in ("anna", "ben", "cleo"))
    group(school, anna, "invite", "ben")
    assert "is already in a group" in group(school, cleo, "invite", "ben")
    assert "yours is full" in group(school, anna, "invite", "cleo")
    assert "Accept or decline it first" in group(school, ben, "invite", "cleo")
    assert "You left the group" in group(school, ben, "leave")
    assert school.count(GroupMember) == 0  # one person is no group
    assert "Ask your classmate to invite you again" in post(
        ben, f"/assignments/{school.assignment}/group", wish="confirm"
    ).get_data(as_text=True)
    group(school, cleo, "invite", "ben")
    change(school, group_size=1)
    assert "has no groups" in group(school, anna, "invite", "dan")


def test_two_who_invite_the_same_person_at_once(both: School) -> None:
    with both.store.write() as session:
        both.users["cleo"] = users.create_user(session, "cleo", name="Cleo").id
        users.enrol(session, both.users["cleo"], both.course, "student")
    change(both, group_size=3)
    clients = [both.client(name) for name in ("anna", "cleo")]
    tokens = [form_token(client) for client in clients]

    def ask(place: int) -> int:
        form = {"csrf_token": tokens[place], "wish": "invite", "name": "ben"}
        return clients[place].post(f"/assignments/{both.assignment}/group", data=form).status_code

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(ask, range(2))) <= {303, 409}
    with both.store.read() as session:
        assert session.query(GroupMember).filter_by(user_id=both.users["ben"]).count() == 1


def test_both_of_a_pair_leave_at_once(both: School) -> None:
    change(both, group_size=3)
    with both.store.write() as session:
        for name in ("anna", "ben"):
            groups.add_member(session, both.assignment, both.users[name], "f" * 32, confirmed=True)
    clients = [both.client(name) for name in ("anna", "ben")]
    tokens = [form_token(client) for client in clients]

    def go(place: int) -> int:
        form = {"csrf_token": tokens[place], "wish": "leave"}
        return clients[place].post(f"/assignments/{both.assignment}/group", data=form).status_code

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(go, range(2))) == [303, 303]
    assert both.count(GroupMember) == 0


def test_staff_make_groups_by_hand_by_chance_and_by_file(school: School) -> None:
    with school.store.write() as session:
        names = [f"student{n}" for n in range(5)]
        for name in names:
            school.users[name] = users.create_user(session, name, name=name).id
            users.enrol(session, school.users[name], school.course, "student")
    change(school, group_size=3)
    teacher, url = school.client("grader"), f"/assignments/{school.assignment}/groups"
    anna, ben = school.users["anna"], school.users["ben"]

    def state() -> str:
        found = re.search(r'name="state" value="(\w+)"', teacher.get(url).get_data(as_text=True))
        assert found is not None
        return found[1]

    stale = state()
    typed = {f"group-{anna}": "red", f"group-{ben}": "red"}
    assert post(teacher, url, state=stale, **typed).status_code == 303
    answer = post(teacher, url, state=stale, **{f"group-{anna}": ""})
    assert answer.status_code == 422
    assert "Someone changed the groups" in answer.get_data(as_text=True)
    with school.store.read() as session:
        first = groups.group_of(session, school.assignment, anna)
        assert first is not None
        assert [one.name for one in first.people] == ["Anna", "Ben"]
    assert post(teacher, f"{url}/fill").status_code == 303
    assert undo(teacher, url).status_code == 303
    with school.store.read() as session:
        assert len(groups.list_groups(session, school.assignment)) == 1
        assert groups.group_of(session, school.assignment, anna) == first
    assert post(teacher, f"{url}/fill").status_code == 303
    with school.store.read() as session:
        sizes = sorted(len(one.people) for one in groups.list_groups(session, school.assignment))
        assert sizes == [2, 2, 3]
        assert groups.group_of(session, school.assignment, anna) == first
    table = teacher.get(f"{url}.csv").get_data(as_text=True)
    assert table.startswith("group,student,name")
    too_many = "group;student\n" + "".join(f"a;{name}\n" for name in ("anna", "ben", *names))
    swapped = "group,student\nx,anna\nx,student0\n"
    for content, status, words in (
        (too_many, 422, "at most 3 submit together"),
        ("group,student\n1,nobody\n1,anna\n1,anna\n", 422, "line 2: this course has no student with"),
        ("a,b\n", 422, "must name the columns group and student"),
        ("\xff\x00".encode("latin-1").decode("latin-1"), 422, "must name the columns group and student"),
        ("", 422, "Choose a CSV file"),
        (swapped, 303, ""),
    ):
        form = {"csrf_token": form_token(teacher), "file": (io.BytesIO(content.encode()), "g.csv")}
        answer = teacher.post(f"{url}/file", data=form)
        assert (answer.status_code, words in answer.get_data(as_text=True)) == (status, True), content
    with school.store.read() as session:
        now_with = groups.group_of(session, school.assignment, anna)
        assert now_with is not None
        assert [one.name for one in now_with.people] == ["Anna", "student0"]
        assert groups.group_of(session, school.assignment, ben) is None  # alone is no group
        people = session.query(GroupMember).count()
        assert people == len({row.user_id for row in session.query(GroupMember)})


def test_names_in_the_file_of_groups_are_no_formulas(school: School) -> None:
    change(school, group_size=2)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["ben"]).name = '=HYPERLINK("x")'
    text = school.client("teacher").get(f"/assignments/{school.assignment}/groups.csv").get_data(as_text=True)
    assert ',ben,"\'=HYPERLINK(""x"")"' in text


# --- home ---------------------------------------------------------------------------------------------


def test_home_says_what_waits_for_staff(school: School) -> None:
    held, plain, seen, failed, open_ = (school.submit(name) for name in ("anna", "anna", "ben", "ben", "ben"))
    school.grade(held, report(held=True))
    school.grade(plain, report())
    school.grade(seen, report(), released=True)
    with school.store.write() as session:
        session.query(tables.Round).filter_by(submission_id=failed).one().state = "failed"
        round_ = session.query(tables.Round).filter_by(submission_id=seen).one()
        asked = tables.RegradeRequest(
            submission_id=seen, round_id=round_.id, student_id=school.users["ben"], course_id=school.course,
            reason="please", created_at=now(session),
        )  # fmt: skip
        session.add(asked)
    with school.store.read() as session:
        (one,) = [
            w
            for w in staff_home.load_work(session, frozenset({school.course}))
            if w.assignment_id == school.assignment
        ]
    assert (one.to_review, one.held, one.requests, one.failed, one.in_progress) == (1, 0, 1, 0, 1)
    page = school.client("teacher").get("/").get_data(as_text=True)
    for words in (
        "<strong>1</strong> to review",
        "<strong>1</strong> in progress",
        "<strong>1</strong> regrade request",
    ):
        assert words in page
    assert "to review" not in school.client("stranger").get("/").get_data(as_text=True)
    assert open_
    with school.store.write() as session:
        session.query(tables.Grade).filter_by(submission_id=plain).one().released_at = now(session)
    page = school.client("teacher").get("/").get_data(as_text=True)
    assert "to review</a>" not in page, "what was counted before is shown"


def test_no_query_more_for_more_rows(school: School) -> None:
    counted: list[str] = []
    event.listen(school.store.engine, "before_cursor_execute", lambda *given: counted.append(given[2]))

    def queries(name: str, url: str) -> int:
        client = school.client(name)
        counted.clear()
        assert client.get(url).status_code == 200
        return len(counted)

    pages = [
        ("anna", "/"),
        ("teacher", "/"),
        ("teacher", "/submissions"),
        ("anna", f"/assignments/{school.assignment}"),
    ]
    school.grade(school.submit("anna"), report(), released=True)
    before = {page: queries(*page) for page in pages}
    for _ in range(6):
        school.grade(school.submit("anna"), report(), released=True)
        school.submit("ben", school.quick)
    assert {page: queries(*page) for page in pages} == before
    assert not [one for one in counted if "grades.report" in one]


def test_bounds_of_extensions_groups_and_uploads(school: School) -> None:
    actor = Actor(school.users["teacher"], roles={school.course: "instructor"})
    change(school, due_at=ago(school, days=1))
    with school.store.write() as session, pytest.raises(extensions.NotExtended):
        assignment = session.get_one(tables.Assignment, school.assignment)
        extensions.grant_extension(session, assignment, [], now(session), "", actor)
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        assignment.group_size = 2
        made = groups.arrange_at_random(session, assignment, "user:1")
        assert made == (1, 2)
    assert timedelta(days=retention.UPLOADS_DAYS) == pending_uploads.KEEP_FOR


def test_a_notebook_under_another_kernel_is_read_in_the_assignments_language(tmp_path: Path) -> None:
    """Work and assignment are in Python; the editor left the kernel of an R notebook in the file."""
    school = School(tmp_path)
    cells = [{"cell_type": "code", "source": "x = 1", "metadata": {}, "outputs": [], "execution_count": 1}]
    metadata = {"kernelspec": {"name": "ir", "language": "R"}}
    book = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}).encode()
    submitted = school.submit("anna", data=book, name="work.ipynb")
    with school.store.read() as session:
        (document,) = session.get_one(tables.Submission, submitted).documents
    assert (document["language"], document["cells"][0]["language"]) == ("python", "python")
    assert "its cells are read as Python" in document["notes"][0]
    assert "its cells are read as Python" in school.client("anna").get(f"/submissions/{submitted}").text
    school.close()
