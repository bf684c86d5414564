"""Tests and executions in pages, API, events and exports: students see their own, never what is hidden."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grading.checks.visibility import for_student
from grading.domain.evidence import CriterionEvidence, Evidence, Flag
from grading.store import tables
from grading.store.completion import finish_round
from grading.store.database import now
from grading.store.privacy import export
from grading.store.privacy.erasure import find_student
from grading.store.rounds import locking
from grading.store.views import submission as submission_view
from tests.integration.sandbox.executed import (
    EVIL,
    KEPT_BACK,
    SECRETS,
    execution,
    notebook,
    outcome,
    ran_report,
    submit_tested,
)
from tests.integration.webapp import School

NEVER = (*SECRETS, KEPT_BACK)


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def page(school: School, who: str, submission: str, part: str = "") -> str:
    answer = school.client(who).get(f"/submissions/{submission}{part}")
    assert answer.status_code == 200
    return answer.get_data(as_text=True)


def api(school: School, who: str, submission: str) -> Any:
    answer = school.client().get(f"/api/v1/submissions/{submission}", headers=school.token(who))
    assert answer.status_code == 200
    return answer.get_json()


@pytest.mark.parametrize("part", ["", "/result", "/status.json"])
def test_a_student_never_sees_a_hidden_test_in_a_page(school: School, part: str) -> None:
    text = page(school, "anna", submit_tested(school), part)
    assert not [word for word in NEVER if word in text]


@pytest.mark.parametrize("part", ["", "/result"])
def test_a_student_sees_which_tests_failed_and_how_the_work_ran(school: School, part: str) -> None:
    text = page(school, "anna", submit_tested(school), part)
    assert "2 of 4 tests passed, 1 of 2 hidden tests passed" in text
    assert text.index("✗ not passed") < text.index("✓ passed")
    assert "search(42, (-5, 1, 3, 5, 7, 10))" in text
    assert "&#39;north&#39;: 12.5" in text
    assert "When we ran your work, 4 of 5 code cells ran without errors." in text
    assert "(120, 6)" in text
    assert text.count("NameError: name &#39;totl&#39; is not defined") == 1
    assert "“D:/homework/sales.csv” was replaced by “data/sales.csv”" in text
    assert "Not installed on the server: polars." in text


@pytest.mark.parametrize("who", ["anna", "teacher"])
def test_words_of_tests_and_outputs_are_only_text(school: School, who: str) -> None:
    text = page(school, who, submit_tested(school))
    assert EVIL not in text
    assert "<img" not in text
    assert "&lt;script&gt;window.pwned=1" in text


@pytest.mark.parametrize("who", ["teacher", "grader", "admin"])
def test_staff_see_all_of_it(school: School, who: str) -> None:
    submission = submit_tested(school, released=False)
    text = page(school, who, submission)
    assert all(word in text for word in NEVER)
    assert '<span class="state">hidden</span>' in text
    assert "The expected value of case 9 cannot be evaluated." in text
    assert "Fix them, then regrade." in text


def test_notes_on_the_run_are_in_plain_words(school: School) -> None:
    flags = tuple(
        Flag(code=code, message=f"details of {code}.", hold=code == "not_run")
        for code in ("not_run", "run_stopped", "missing_packages", "tests_broken")
    )
    submission = submit_tested(school, flags=flags)
    mine, theirs = page(school, "anna", submission), page(school, "teacher", submission)
    assert "This does not count against you" in mine
    assert "details of run_stopped." in mine
    assert "details of missing_packages." in mine
    assert "details of not_run." not in mine
    assert "details of tests_broken." not in mine
    assert theirs.count("details of ") == 4
    assert "Flags" not in mine


def test_before_the_release_a_student_sees_the_run_and_no_test(school: School) -> None:
    submission = submit_tested(school, released=False)
    text = page(school, "anna", submission)
    assert "(120, 6)" in text
    assert "tests passed" not in text
    assert not [word for word in NEVER if word in text]
    assert api(school, "anna", submission)["report"] is None


def test_nobody_else_sees_the_run(school: School) -> None:
    submission = submit_tested(school)
    for who in ("ben", "stranger"):
        assert school.client(who).get(f"/submissions/{submission}").status_code == 404
        assert school.client(who).get(f"/submissions/{submission}/result").status_code == 404


def test_the_api_gives_students_what_they_may_see(school: School) -> None:
    submission = submit_tested(school)
    body = json.dumps(api(school, "anna", submission))
    assert not [word for word in NEVER if word in body]
    assert api(school, "anna", submission)["report"] == for_student(ran_report()).model_dump(mode="json")
    assert api(school, "teacher", submission)["report"] == ran_report().model_dump(mode="json")


def test_a_page_without_a_run_is_as_before(school: School) -> None:
    submission = school.submit("anna", data=notebook(), name="work.ipynb")
    text = page(school, "anna", submission)
    assert "When we ran your work" not in text
    school.prepared(submission, {"documents": []})
    assert "When we ran your work" not in page(school, "anna", submission)


def test_only_the_execution_is_read_of_what_was_prepared(database_url: str) -> None:
    school = School(database_url)
    submission = submit_tested(school)
    with school.store.read() as session:
        round_id = submission_view.load_view(session, submission).round_id
        assert submission_view.load_execution(session, round_id) == execution()
    school.prepared(submission, {"documents": []})
    with school.store.read() as session:
        assert submission_view.load_execution(session, round_id) is None
    school.close()


def test_an_export_for_the_student_holds_no_hidden_test(school: School) -> None:
    submission = submit_tested(school)
    evidence = Evidence(
        criteria=(CriterionEvidence(criterion="load", share=0.5, outcomes=(outcome(),)),)
    ).model_dump(mode="json")
    content = {"documents": [], "evidence": evidence, "hidden_evidence": evidence, "paths": {}}
    school.prepared(submission, {**content, "execution": execution().model_dump(mode="json")})
    kept: dict[str, Any] = {
        "end": "finished",
        "cells": [{"number": 1, "state": "ran"}],
        "tests": [{"name": SECRETS[0]}],
    }
    kept |= {"answers": [{"state": "value", "value": {"text": SECRETS[3]}}], "variables": {}}
    with school.store.write() as session:
        session.add(
            tables.CachedExecution(key="k", submission_id=submission, content=kept, created_at=now(session))
        )
    buffer = io.BytesIO()
    with school.store.read() as session:
        student = find_student(session, "anna")
    export.write_export(school.store, student, buffer, "test")
    with zipfile.ZipFile(buffer) as archive:
        everything = b"".join(archive.read(name) for name in archive.namelist()).decode()
        data = json.loads(archive.read("data.json"))
    assert not [word for word in NEVER if word in everything]
    assert data["cached_executions"][0]["content"] == {"end": "finished", "cells": kept["cells"]}
    assert "(120, 6)" in json.dumps(data["rounds"][0]["prepared"]["execution"])
    tests = data["grades"][0]["report"]["criteria"][0]["evidence"][0]["tests"]
    assert [test["passed"] for test in tests if not test["hidden"]] == [True, False, False, True]


def test_events_say_only_where_to_look(school: School) -> None:
    submission = school.submit("anna", data=notebook(), name="work.ipynb")
    with school.store.write() as session:
        round_id = submission_view.load_view(session, submission).round_id
        current = locking.lock_round(session, round_id)
        assert current is not None
        finish_round.finish_round(
            session, current, ran_report(), finish_round.load_round_end(session, current.id), release=True
        )
    with school.store.read() as session:
        events = session.query(tables.Outbox).filter_by(kind="event").order_by(tables.Outbox.id)
        kinds = ["submission.received", "submission.completed", "grade.released"]
        assert [event.payload for event in events] == [
            {"type": kind, "submission": submission} for kind in kinds
        ]
