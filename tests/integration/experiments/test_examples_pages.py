"""The page for teaching: who may, what each form does and says, and what hostile input comes to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from grading.store import tables
from grading.store.experiments.example_evaluation import PURPOSE
from grading.store.privacy import retention
from tests.integration.grades.classroom import a_report, change, student
from tests.integration.statistics.test_pages import statements
from tests.integration.webapp import School, form_token

BAD = "<script>alert(1)</script>"


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def corrected(school: School, name: str = "anna", criterion: str = "think", points: float = 3) -> int:
    submission = school.submit(name, data=f"# {BAD}\nprint('{name}')\n".encode())
    school.grade(submission, a_report(4, 4))
    return change(school, submission, criterion, points, f"No reason {BAD}")


class Browser:
    """A teacher with a token."""

    def __init__(self, school: School, name: str = "teacher") -> None:
        self.client: FlaskClient = school.client(name)
        self.token = form_token(self.client)
        self.place = f"/assignments/{school.assignment}/examples"

    def get(self, rest: str = "") -> str:
        answer = self.client.get(self.place + rest)
        assert answer.status_code == 200
        text = answer.get_data(as_text=True)
        answer.close()
        return text

    def post(self, rest: str = "", **form: Any) -> TestResponse:
        return self.client.post(self.place + rest, data={"csrf_token": self.token, **form})


def rows(school: School) -> list[tuple[bool, str, str]]:
    with school.store.read() as session:
        found = session.query(tables.Example).order_by(tables.Example.id)
        return [(one.active, one.excerpt, one.reason) for one in found]


def test_choose_edit_switch_remove(school: School) -> None:
    teacher, number = Browser(school), corrected(school)
    page = teacher.get()
    assert "No examples yet." in page
    assert BAD not in page
    page = teacher.get(f"/new?change={number}")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert BAD not in page
    answer = teacher.post(change=number, excerpt=f"x {BAD}", reason="So.")
    assert answer.status_code == 303
    assert rows(school) == [(True, f"x {BAD}", "So.")]
    page = teacher.get()
    assert BAD not in page
    assert page.count('/examples/1/remove"') == 2  # of the example, and of the message's Undo
    assert teacher.post(change=number, excerpt="again", reason="").status_code == 409
    assert teacher.post("/1", excerpt="other", reason="Because.").status_code == 303
    refused = teacher.post("/1", excerpt="y" * 2_001, reason="Kept words")
    assert refused.status_code == 422
    assert "at most 2000" in refused.get_data(as_text=True)
    assert "y" * 2_001 in refused.get_data(as_text=True)
    assert teacher.post("/1/switch", on="0").status_code == 303
    assert rows(school) == [(False, "other", "Because.")]
    assert teacher.post("/1/switch", on="1").status_code == 303
    assert teacher.post("/1/remove").status_code == 303
    page = teacher.get()
    assert teacher.post("/1/remove").status_code == 404
    assert "No examples yet." in page
    undo = re.search(r'examples(/1/restore)".*?name="at" value="([^"]+)"', page, re.DOTALL)
    assert undo is not None
    assert teacher.post(undo[1], at="2026-01-01T00:00:00+00:00").status_code == 409
    assert teacher.post(undo[1], at=undo[2]).status_code == 303
    assert rows(school) == [(True, "other", "Because.")]
    assert teacher.post("/1/remove").status_code == 303
    # what was removed can be chosen again, and then not be put back
    assert teacher.post(change=number, excerpt="new", reason="").status_code == 303
    with school.store.read() as session:
        removed_at = session.get_one(tables.Example, 1).removed_at
        assert removed_at is not None
    refused = teacher.post("/1/restore", at=removed_at.isoformat())
    assert refused.status_code == 409
    assert "already an example" in refused.get_data(as_text=True)
    with school.store.read() as session:
        actions = [row.action for row in session.query(tables.Audit).order_by(tables.Audit.id)]
    assert [one for one in actions if one.startswith("example.")] == [
        *("example.add", "example.edit", "example.off", "example.on", "example.remove"),
        *("example.restore", "example.remove", "example.add"),
    ]
    assert "grade.view" in actions
    # its text is kept for a day only
    school.store.clock_offset_s = 25 * 3600
    with school.store.write() as session:
        assert retention.delete_chunk(session, school.services.config.retention)["removed examples"] == 1
    assert rows(school) == [(False, "", ""), (True, "new", "")]


def test_numbers_of_others_and_of_nothing(school: School) -> None:
    teacher, number = Browser(school), corrected(school)
    elsewhere = f"/assignments/{school.elsewhere}/examples"
    stranger = Browser(school, "stranger")
    stranger.place = elsewhere
    assert stranger.post(change=number, excerpt="x", reason="").status_code == 404
    teacher.post(change=number, excerpt="x", reason="")
    for rest in ("/1", "/1/switch", "/1/remove"):
        assert stranger.post(rest, excerpt="stolen", on="0").status_code == 404
    assert rows(school) == [(True, "x", "")]
    for bad in ("", "0", "-1", "９", "99999999999999999999", "1;drop", "%00"):
        assert teacher.client.get(f"{teacher.place}/new", query_string={"change": bad}).status_code == 404
        assert teacher.post(change=bad, excerpt="x", reason="").status_code == 404
    assert teacher.client.get(teacher.place, query_string={"criterion": BAD, "page": "-3"}).status_code == 200
    assert school.client("grader").get(teacher.place).status_code == 403
    assert school.client("anna").get(teacher.place).status_code == 403


def test_measuring_begins_once(school: School) -> None:
    teacher, number = Browser(school), corrected(school)
    assert teacher.post("/measure").status_code == 409
    teacher.post(change=number, excerpt="x", reason="")
    assert "Nothing to measure yet" in teacher.get()
    student(school, "cem")
    corrected(school, "ben")
    corrected(school, "cem")
    before = len(school.dispatch.announced)
    assert "Regrade 2 submissions" in teacher.get()
    assert teacher.post("/measure").status_code == 303
    assert len(school.dispatch.announced) == before + 2
    again = teacher.post("/measure")
    assert again.status_code == 409
    assert "already running" in again.get_data(as_text=True)
    with school.store.write() as session:
        rounds = session.query(tables.Round).filter_by(reason=PURPOSE).all()
        assert [(one.current, one.priority) for one in rounds] == [(False, "batch")] * 2
        for round_ in rounds:
            found = a_report(4, 4)
            plain = {name: how.model_copy(update={"uses_model": False}) for name, how in found.stages.items()}
            round_.state = "graded"
            content = found.model_copy(update={"stages": plain}).model_dump(mode="json")
            values = {"points_so_far": 1, "max_points": 10, "created_at": round_.created_at}
            grade = tables.Grade(
                round_id=round_.id, submission_id=round_.submission_id, report=content, **values
            )
            session.add(grade)
    assert "by the rules engine, which does not use examples." in teacher.get()


def test_queries_do_not_grow_with_corrections(school: School) -> None:
    teacher, counts = Browser(school), []
    teacher.post(change=corrected(school), excerpt="x", reason="")
    for n in range(9):
        student(school, f"more{n}")
        corrected(school, f"more{n}")
        if n in (1, 8):
            teacher.get()
            with statements(school) as seen:
                teacher.get()
            counts.append(len(seen))
    assert counts[0] == counts[1]


def test_a_draft_without_a_rubric_that_counts(school: School) -> None:
    with school.store.write() as session:
        session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).update(
            {"published_at": None}
        )
    assert "No examples yet." in Browser(school).get()
