"""Writing code in the browser: who may, what is kept, what a check shows, how it is submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.submissions import code_editor
from grading.checks.precheck import PrecheckOutcome
from grading.domain.evidence import CheckOutcome, TestOutcome
from grading.store import tables
from grading.store.privacy import retention
from grading.store.submissions import prechecks
from tests.integration.webapp import School, form_token, limit

CODE = "def f(x):\r\n    return '</textarea><b>'\r\n"
TESTS = (
    TestOutcome(name="twice", passed=False, input="f(2)", got="<i>3</i>", message="gave 3"),
    TestOutcome(name="once", passed=True, input="f(1)"),
)


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    offer(made)
    yield made
    made.close()


def offer(school: School, on: bool = True) -> None:
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).code_editor = on


def url(school: School, part: str = "") -> str:
    return f"/assignments/{school.assignment}/code{part}"


def post(school: School, client: FlaskClient, part: str = "", code: str = CODE, **form: Any) -> TestResponse:
    return client.post(url(school, part), data={"csrf_token": form_token(client), "code": code, **form})


def finish(school: School, *outcomes: CheckOutcome) -> None:
    """As a sandbox worker does with what was announced last."""
    with school.store.write() as session:
        assert prechecks.claim_precheck(session, school.dispatch.announced[-1]) is not None
        prechecks.save_outcome(session, school.dispatch.announced[-1], PrecheckOutcome(outcomes=outcomes))


def test_the_setting_decides_and_one_script_is_offered(school: School) -> None:
    anna = school.client("anna")
    form = f"/assignments/{school.assignment}"
    assert "Write and check your code in the browser" in anna.get(form).get_data(as_text=True)
    offer(school, on=False)
    assert "Write and check your code" not in anna.get(form).get_data(as_text=True)
    assert anna.get(url(school)).status_code == 404
    assert post(school, anna).status_code == post(school, anna, "/check").status_code == 404
    assert (school.count(tables.Submission), school.count(tables.Precheck)) == (0, 0)


def test_a_check_shows_the_visible_tests_beside_the_code(school: School) -> None:
    anna = school.client("anna")
    assert "It submits nothing." in anna.get(url(school)).get_data(as_text=True)
    assert post(school, anna, "/check").status_code == 303
    page = anna.get(url(school)).get_data(as_text=True)
    assert "data-pending" in page
    assert "Queued …" in page
    assert "return &#39;&lt;/textarea&gt;&lt;b&gt;&#39;" in page
    again = post(school, anna, "/check", code="x = 1")
    assert again.status_code == 409
    assert "Your previous check is still running." in again.get_data(as_text=True)
    assert "x = 1</textarea>" in again.get_data(as_text=True)  # nothing typed is lost
    finish(school, CheckOutcome(check="t", label="tests", earned=0.5, tests=TESTS))
    part = anna.get(url(school, "/outcome")).get_data(as_text=True)
    assert "data-pending" not in part
    assert "f(2)" in part
    assert "&lt;i&gt;3&lt;/i&gt;" in part
    assert "<i>" not in part
    assert "data-pending" not in school.client("ben").get(url(school)).get_data(as_text=True)
    assert school.client("ben").get(url(school, "/outcome")).get_data(as_text=True).count("f(2)") == 0
    assert school.count(tables.Submission) == 0
    assert "f(x)" not in anna.get(f"{url(school)}?from=starter").get_data(as_text=True)
    school.store.clock_offset_s = 25 * 3600
    with school.store.write() as session:
        assert retention.delete_chunk(session, school.services.config.retention)["prechecks"] == 1


def test_what_is_submitted_is_a_submission_with_a_receipt(school: School) -> None:
    anna = school.client("anna")
    page = anna.get(url(school)).get_data(as_text=True)
    (key,) = re.findall(r'name="key" value="([^"]+)"', page)
    first, second = (post(school, anna, key=key).headers["Location"] for _ in range(2))
    assert first == second
    receipt = anna.get(f"{first}/receipt").get_data(as_text=True)
    assert "main.py" in receipt
    with school.store.read() as session:
        (row,) = session.query(tables.Submission)
        assert row.documents[0]["cells"][0]["source"].strip() == CODE.replace("\r\n", "\n").strip()
    empty = post(school, anna, code="")
    assert empty.status_code == 422
    assert re.search(r'id="code-problem" data-code-problem>[^<]*empty', empty.get_data(as_text=True))
    assert 'aria-invalid="true"' in empty.get_data(as_text=True)


def test_checks_have_a_quota(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, code_editor.check, "2 per minute")
    anna, ben = school.client("anna"), school.client("ben")
    codes = [post(school, anna, "/check").status_code for _ in range(3)]
    assert codes == [303, 409, 429]
    assert post(school, ben, "/check").status_code == 303


def test_the_files_of_the_editor_are_served_and_no_others(school: School) -> None:
    nobody = school.client()
    for name in code_editor.ACE:
        answer = nobody.get(f"/ace/{name}")
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] != "no-store"
        answer.close()
    for name in ("worker-javascript.js", "../widget.js", "css/../ace.js", "snippets/r.js"):
        assert nobody.get(f"/ace/{name}").status_code == 404
