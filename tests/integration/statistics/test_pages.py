"""The page about a class: what counts, what it says, its files, and what it costs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from sqlalchemy import event

from app.statistics.plots import PLOTS, duration, scale_end
from app.web.charts import NARROW, WIDE, Mark, Plot, Series, alone, as_csv, inline
from grading.statistics.overview import Overview, overview
from grading.store import tables
from grading.store.accounts import users
from grading.store.reporting import class_statistics
from grading.store.tables.assignments import SAMPLE
from tests.integration.grades.classroom import a_report, change, mark, whole_class
from tests.integration.webapp import School


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def facts(school: School, assignment: int | None = None) -> Overview:
    with school.store.read() as session:
        return overview(class_statistics.load_submissions(session, assignment or school.assignment))


def graded(school: School, name: str, load: float, think: float) -> str:
    submission = school.submit(name)
    school.grade(submission, a_report(load, think))
    return submission


def test_only_what_counts_is_counted(school_url: str) -> None:
    school = School(school_url)
    graded(school, "anna", 4, 4)
    graded(school, "anna", 2, 2)
    graded(school, "ben", 1, 3)
    graded(school, "teacher", 4, 4)
    assert sorted(work.final_points or 0 for work in read(school)) == [5, 5.5]
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).counts = "best"
        sample = session.query(tables.Submission).filter_by(student_id=school.users["ben"]).one()
        sample.source = SAMPLE
    assert [work.final_points for work in read(school)] == [10]
    assert facts(school).students == 2
    assert facts(school, school.elsewhere).submitted == 0
    school.close()


def read(school: School) -> tuple[class_statistics.Work, ...]:
    with school.store.read() as session:
        return class_statistics.load_submissions(session, school.assignment).works


def test_people_beside_the_grader(school_url: str) -> None:
    school = School(school_url)
    one, two = graded(school, "anna", 4, 2), graded(school, "ben", 2, 3)
    mark(school, one, "think", 3)
    mark(school, one, "think", 2.5, "teacher", blind=False)
    change(school, two, "think", 6)
    undone = change(school, one, "load", 0)
    with school.store.write() as session:
        session.get_one(tables.Change, undone).undone_at = session.get_one(tables.Change, undone).at
        grade = session.query(tables.Grade).filter_by(submission_id=one).one()
        grade.reviewed_at, grade.reviewed_by = grade.created_at, school.users["teacher"]
    found = {criterion.id: criterion for criterion in facts(school).criteria}
    think, load = found["think"], found["load"]
    # (2, 3), (2, 2.5) and (3, 4), as six points are level four
    assert (think.people.n, think.people.difference) == (3, pytest.approx(2.5 / 3))
    assert (think.blind.n, think.blind.difference, think.changed, think.accepted) == (1, 1, 1, 0)
    assert (think.between.works, think.between.pairs.absolute) == (1, 0.5)
    assert (load.people.n, load.accepted, load.people.absolute) == (1, 1, 0)
    # people's changes count in what the class has
    assert think.item.shares is not None
    assert think.item.shares.most == 1
    school.close()


def test_the_page_says_all_of_it(school: School) -> None:
    whole_class(school, 30)
    page = school.client("teacher").get(f"/assignments/{school.assignment}/statistics").get_data(as_text=True)
    for words in (
        "30 <small>of 32 students",
        "Missing values are not handled",
        "passes tests: row 4",
        "dgx-spark-1",
        "Student003",
        "Pearson",
        'class="few"',
        "the latest",
    ):
        assert words in page, words
    assert len(re.findall('<svg [^>]*class="plot"', page)) == 2 * len(PLOTS)
    assert "Medium: students got" in page
    assert "Good: the criterion tells strong work from weak work." in page
    assert 'aria-current="page">Statistics' in page
    seen = school.client("grader").get(f"/assignments/{school.assignment}/statistics")
    assert seen.status_code == 200


def test_assignments_and_years_are_compared(school: School) -> None:
    graded(school, "anna", 4, 4)
    graded(school, "ben", 2, 2)
    graded(school, "teacher", 0, 0)
    url = f"/courses/{school.course}/statistics"
    teacher, admin = school.client("teacher"), school.client("admin")
    page = teacher.get(url).get_data(as_text=True)
    assert "Homework hw1" in page
    assert "mean 75 %" in page
    assert 'name="with"' not in page, "the other course is not the teacher's"
    # the same short name in another course: another year
    with school.store.read() as session:
        other = session.get_one(tables.Assignment, school.elsewhere).course_id
    assert f'name="with" value="{other}"' in admin.get(url).get_data(as_text=True)
    made = school.submit("stranger", school.elsewhere)
    with school.store.write() as session:
        user = school.users["stranger"]
        session.query(tables.Membership).filter_by(user_id=user).one().role = "student"
    school.grade(made, a_report(1, 1))
    compared = admin.get(f"{url}?with={other}&with=999").get_data(as_text=True)
    assert "mean 25 %" in compared
    assert "color-1" in compared
    assert "color-1" not in teacher.get(f"{url}?with={other}").get_data(as_text=True)


def test_a_class_without_submissions_or_grades(school: School) -> None:
    url = f"/assignments/{school.assignment}/statistics"
    client = school.client("teacher")
    assert "No data yet" in client.get(url).get_data(as_text=True)
    school.submit("anna")
    page = client.get(url).get_data(as_text=True)
    assert "No submission has a total yet." in page
    assert "No manual levels yet." in page
    for name in PLOTS:
        for ending in ("svg", "csv"):
            assert client.get(f"{url}/{name}.{ending}").status_code == 200


def test_numbers_follow_what_changes(school: School) -> None:
    client, url = school.client("teacher"), f"/assignments/{school.assignment}/statistics/people.csv"
    submission = graded(school, "anna", 4, 2)

    def levels() -> list[str]:
        text = client.get(url).get_data().decode("utf-8-sig")
        return [row["Levels by people"] for row in csv.DictReader(io.StringIO(text))]

    assert levels() == ["0", "0"]
    made = change(school, submission, "think", 6)
    assert levels() == ["0", "1"]
    mark(school, submission, "load", 3)
    assert levels() == ["1", "1"]
    with school.store.write() as session:
        session.get_one(tables.Change, made).undone_at = session.get_one(tables.Change, made).at
    assert levels() == ["1", "0"]
    graded(school, "ben", 1, 1)
    scores = client.get(url.replace("people", "scores")).get_data().decode("utf-8-sig")
    assert sum(int(row["Submissions"]) for row in csv.DictReader(io.StringIO(scores))) == 2


def test_files_stand_alone_whatever_is_in_them() -> None:
    hostile = '=HYPERLINK("x")<script>alert(1)</script>\x00\ud800&"\''
    marks = (Mark(hostile * 20, hostile, 2.0, low=-1, high=9, note=hostile), Mark(hostile, hostile, None))
    bars = Plot(
        "n", hostile, hostile, ("a",), ((hostile, 1.23456, None),), ticks=((0.0, hostile),), axis=hostile,
        series=(Series(hostile * 20, marks), Series(hostile, marks)),
    )  # fmt: skip
    columns = replace(bars, lying=False, series=bars.series[:1])
    for plot in (bars, columns):
        drawn = [alone(plot), *(inline(plot, width).encode() for width in (WIDE, NARROW))]
        root, *others = (ElementTree.fromstring(one) for one in drawn)
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            *("svg", "style", "title", "g", "rect", "path", "text")
        }
        # what the policy of pages would refuse is in none of them
        assert not [one for other in others for one in other.iter() if "style" in (*one.attrib, one.tag[-5:])]
        stops = [one.get("tabindex") for one in others[0].iter() if one.get("data-tip")]
        assert sorted(one or "" for one in stops) == ["-1"] * (len(stops) - 1) + ["0"]
        assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
        style = next(element.text or "" for element in root.iter() if element.tag.endswith("style"))
        assert "prefers-color-scheme: dark" in style
        assert "url(" not in style
    table = list(csv.reader(io.StringIO(as_csv(bars).decode("utf-8-sig"))))
    assert table[1][0].startswith("'=HYPERLINK")
    assert table[1][1:] == ["1.2346", ""]


def test_a_name_in_the_address_is_one_of_the_plots(school: School) -> None:
    client = school.client("teacher")
    for name in ("other.svg", "scores.exe", "..%2f.svg", "scores"):
        assert client.get(f"/assignments/{school.assignment}/statistics/{name}").status_code == 404


@contextmanager
def statements(school: School) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    seen: list[str] = []

    def listen(*given: Any) -> None:
        seen.append(given[2])

    event.listen(school.store.engine, "before_cursor_execute", listen)
    yield seen
    event.remove(school.store.engine, "before_cursor_execute", listen)


def test_queries_do_not_grow_with_the_class(school_url: str) -> None:
    school = School(school_url)
    counts = []
    whole_class(school, 3)
    client, url = school.client("teacher"), f"/assignments/{school.assignment}/statistics"
    client.get(url)
    for more in (1, 12):
        for n in range(more):
            account_and_submission(school, f"more{more}-{n}")
        with statements(school) as changed:
            assert client.get(url).status_code == 200
        with statements(school) as again:
            client.get(url)
        counts.append((len(changed), len(again)))
    assert counts[0] == counts[1]
    # what has not changed is not read again: the reader's session, the assignment, and what tells of changes
    assert counts[1][1] <= counts[1][0] - 5
    school.close()


def account_and_submission(school: School, name: str) -> None:
    with school.store.write() as session:
        school.users[name] = users.create_user(session, name, name=name).id
        users.enrol(session, school.users[name], school.course, "student")
    graded(school, name, 3, 3)


def test_scales_end_at_round_numbers() -> None:
    ends = {0: 1, 0.3: 1, 7: 8, 61: 80, 120: 120, 121: 240, 4_801: 14_400, 14_401: 28_800}
    assert {value: scale_end(value) for value in ends} == ends
    said = [duration(value) for value in (0.44, 12.3, 200, 7_200 * 2)]
    assert said == [
        "0.4\N{NO-BREAK SPACE}s",
        "12\N{NO-BREAK SPACE}s",
        "3.3\N{NO-BREAK SPACE}min",
        "4\N{NO-BREAK SPACE}h",
    ]
