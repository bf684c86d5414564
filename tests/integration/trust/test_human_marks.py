"""Marks from before: imported whole, once, and compared between people and with the grader."""

from __future__ import annotations

from pathlib import Path

import pytest

from grading.statistics.overview import overview
from grading.store import change_tracking, schema, tables
from grading.store.change_tracking import Stamp
from grading.store.privacy import erasure
from grading.store.reporting import class_statistics
from grading.store.trust import confidence
from tests.integration.grades.classroom import a_report, student
from tests.integration.webapp import School
from tests.support.commands import Grader, in_process

CONFIG = """
[[machines]]
name = "m"
[machines.stages]
analysis = { engine = "rules", model = "rules" }
feedback = { engine = "rules", model = "rules" }
"""
TABLE = """id,marker,load,think
anna,AB,4,3
anna,CD,3,
ben@school.example,AB,1,6
ben@school.example,CD,1,4.5
old-1,AB,2,3
old-1,CD,2,0
"""


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grader:
    return in_process(monkeypatch, capsys)


def test_marks_from_before(
    school_url: str, tmp_path: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    school = School(school_url)
    monkeypatch.setenv("GRADER_DATABASE_URL", school_url)
    monkeypatch.setenv("GRADER_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.setattr(schema, "require_usable", lambda _store: None)  # made without migrations
    with school.store.write() as session:
        session.get_one(tables.User, school.users["ben"]).email = "ben@school.example"
    for name in ("anna", "ben"):
        school.grade(school.submit(name), a_report(3, 2))
    file = tmp_path / "marks.csv"

    file.write_text(TABLE + "old-2,AB,well,1\n")
    refused = grader("trust", "import", str(file), "--assignment", "ba/hw1")
    assert refused.status == 1
    assert "line 8: 'well' in 'load' is not a number" in refused.error
    assert "nothing was imported" in refused.error
    file.write_text(TABLE)
    tried = grader("trust", "import", str(file), "--assignment", "ba/hw1", "--dry-run")
    assert "11 marks would be imported: 3 works, 2 markers (AB, CD), 1 missing" in tried.out
    assert stored(school) == []
    before = changed(school)
    done = grader("trust", "import", str(file), "--assignment", "ba/hw1")
    assert changed(school) != before  # pages that show how far people agree are made anew
    assert "2 works have a submission here" in done.out
    assert "compared between people only: old-1" in done.out
    assert "no mark changes" in grader("trust", "import", str(file), "--assignment", "ba/hw1").out
    assert len(stored(school)) == 11
    assert all("old-1" not in f"{one.work} {one.marker}" for one in stored(school))
    file.write_text("id,marker,load\nanna,AB,3\n")
    assert "1 of them change" in grader("trust", "import", str(file), "--assignment", "ba/hw1").out
    assert len(stored(school)) == 11

    with school.store.read() as session:
        made = overview(class_statistics.load_submissions(session, school.assignment))
        known = confidence.labels(session, school.course)
    found = {one.id: one for one in made.criteria}
    assert (found["load"].blind.n, found["load"].between.works, found["load"].between.people) == (4, 3, 2)
    assert (found["think"].blind.n, found["think"].between.works) == (3, 2)
    assert (len(known), sum(one.wrong for one in known), sum(one.weight for one in known)) == (7, 3, 4.0)

    with school.store.write() as session:
        known_as = erasure.find_identity(session, "anna")
        erasure.erase_student(session, known_as, "cli")
    assert len(stored(school)) == 8
    listed = grader("trust", "imports", "--assignment", "ba/hw1").out
    assert ("1: marks.csv, " in listed, "2: marks.csv, " in listed) == (True, True)
    assert "Removed 8 marks of marks.csv." in grader("trust", "remove", "1", "--yes").out
    assert stored(school) == []
    assert "This import does not exist." in grader("trust", "remove", "1", "--yes").error
    file.write_text(TABLE)
    assert "11 marks imported" in grader("trust", "import", str(file), "--assignment", "ba/hw1").out

    # who comes after the import: their marks are found again, and erased with them
    file.write_text("id,marker,load\nold-2,AB,3\nold-2,CD,3\n")
    grader("trust", "import", str(file), "--assignment", "ba/hw1")
    for name in ("old-1", "old-2"):
        student(school, name)
    newer = school.submit("old-1")
    file.write_text(TABLE)
    again = grader("trust", "import", str(file), "--assignment", "ba/hw1").out
    assert "1 works of earlier files have a submission here now" in again
    assert [one.submission_id for one in stored(school)].count(newer) == 4
    file.write_text("id,marker,load\nold-1,AB,3\n")
    grader("trust", "import", str(file), "--assignment", "ba/hw1")
    assert len(stored(school)) == 13
    with school.store.write() as session:
        known_as = erasure.find_identity(session, "old-2")
        erasure.erase_student(session, known_as, "cli")
    assert len(stored(school)) == 11
    school.close()


def changed(school: School) -> Stamp:
    with school.store.read() as session:
        return change_tracking.stamp(session, school.course, school.assignment)


def stored(school: School) -> list[tables.HumanMark]:
    with school.store.read() as session:
        return session.query(tables.HumanMark).all()
