"""The gradebook, grades as tables and back, everything as a zip, and erasing a student."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from grading.documents import zip_names
from grading.scoring.course import Counted, course_standing
from grading.store import tables
from grading.store.accounts import users
from grading.store.courses import courses
from grading.store.database import now
from grading.store.review import csv_import
from grading.store.views import gradebook
from grading.tabular import grades_csv
from grading.tabular.grades_csv import TableUnreadable
from tests.integration.webapp import School, form_token, report, without_tokens

CRITERIA = {"load": "Loads the data", "think": "Thinks about it"}


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def graded(school: School, name: str, points: float, assignment: int | None = None, **more: Any) -> str:
    submission = school.submit(name, assignment)
    school.grade(submission, report(points=points, points_so_far=points), **{"released": True, **more})
    return submission


def text_of(client: FlaskClient, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, (url, answer.status_code)
    return answer.get_data(as_text=True)


def read(answer: bytes, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(answer.decode("utf-8-sig")), delimiter=separator))


# --- what a course comes to ---------------------------------------------------------------------------


def test_the_lowest_shares_are_dropped_and_nothing_unknown_is_zero() -> None:
    grades = [
        Counted(points=8, max_points=10),
        Counted(points=10, max_points=20),
        Counted(points=None, max_points=10),
        Counted(points=None, max_points=10, missing=True),
    ]
    plain = course_standing(grades, 0)
    assert (plain.points, plain.max_points, plain.dropped, plain.open) == (18, 40, frozenset(), 1)
    one = course_standing(grades, 1)
    assert (one.points, one.max_points, one.dropped) == (18, 30, frozenset({3}))
    assert course_standing(grades, 2).dropped == {3, 1}
    assert course_standing(grades, 99).dropped == {3, 1}
    assert course_standing([], 3).points == 0


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=12),
    st.integers(0, 12),
)
def test_dropping_never_lowers_a_share(found: list[tuple[int | None, int, bool]], drop: int) -> None:
    grades = [Counted(points=p, max_points=m, missing=x and p is None) for p, m, x in found if (p or 0) <= m]
    before, after = course_standing(grades, 0), course_standing(grades, drop)
    assert len(after.dropped) <= drop
    assert all(grades[place].known for place in after.dropped)
    if before.max_points and after.max_points and len({one.max_points for one in grades}) == 1:
        assert after.points / after.max_points >= before.points / before.max_points - 1e-9


# --- the page -----------------------------------------------------------------------------------------


@pytest.fixture
def either(database_url: str) -> Iterator[School]:
    """On both kinds of SQL."""
    made = School(database_url)
    yield made
    made.close()


def test_what_counts(either: School) -> None:
    """The newest, or the best; also what somebody of the group submitted; with credit and own due dates."""
    graded(either, "anna", 9)
    newest = graded(either, "anna", 4)
    best = graded(either, "ben", 7, either.quick)
    graded(either, "ben", 2, either.quick)
    with either.store.write() as session:
        moment = now(session)
        homework, quick = (session.get_one(tables.Assignment, n) for n in (either.assignment, either.quick))
        quick.counts, quick.group_size = "best", 2
        homework.due_at = moment - timedelta(days=1)
        session.add(tables.SubmissionMember(submission_id=best, user_id=either.users["anna"]))
        session.get_one(tables.Course, either.course).drop_lowest = 1
        grade = session.query(tables.Grade).filter_by(submission_id=newest).one()
        grade.credit, grade.final_points, grade.adjustment = 0.5, 2.0, 1.0
    with either.store.read() as session:
        book = gradebook.load_gradebook(session, courses.load_course(session, either.course))
    rows = {row.student.subject: row for row in book.rows}
    assert [column.id for column in book.columns] == [either.assignment, either.quick]
    anna, ben = rows["anna"], rows["ben"]
    assert [(c.points, c.submission_id) for c in anna.cells] == [(2.0, newest), (7.0, best)]
    assert (anna.standing.points, anna.standing.max_points, anna.standing.dropped) == (7, 10, {0})
    assert [(c.points, c.state) for c in ben.cells] == [(None, "missing"), (7.0, "graded")]
    with either.store.write() as session:
        later = now(session) + timedelta(days=1)
        session.add(
            tables.Extension(
                assignment_id=either.assignment, student_id=either.users["ben"], due_at=later, at=later
            )
        )
    with either.store.read() as session:
        book = gradebook.load_gradebook(session, courses.load_course(session, either.course), "BEN")
    assert [(row.student.subject, row.cells[0].state) for row in book.rows] == [("ben", "ahead")]


def test_students_see_their_own_and_only_what_is_released(school: School) -> None:
    graded(school, "anna", 6.25, released=False)
    graded(school, "ben", 7.75)
    page = f"/courses/{school.course}/my-grades"
    anna = text_of(school.client("anna"), page)
    assert "6.25" not in anna
    assert "7.75" not in anna
    assert "Ben" not in without_tokens(anna)
    assert "not graded yet" in anna
    assert "No grades yet." in anna
    assert "0 of 0" not in anna
    assert "7.75" in text_of(school.client("ben"), page)
    assert school.client("teacher").get(page).status_code == 403
    staff = text_of(school.client("grader"), f"/courses/{school.course}/grades")
    assert "6.25" in staff
    assert "not released" in staff
    assert "Download as CSV" not in staff


def test_pages_of_students_and_nobody(school: School) -> None:
    with school.store.write() as session:
        for number in range(30):
            user = users.create_user(session, f"x{number}", name=f"Extra {number:02d}")
            users.enrol(session, user.id, school.course, "student")
    teacher = school.client("teacher")
    first = text_of(teacher, f"/courses/{school.course}/grades")
    assert "32 students, page 1 of 2" in first
    rows = text_of(teacher, f"/courses/{school.course}/grades?page=2&part=rows")
    assert (rows.count("<tr>"), "<html" in rows) == (7, False)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = "extra 15b"
    names = re.findall(r'class="name">([^<]*)<', text_of(teacher, f"/courses/{school.course}/grades?q=extra"))
    assert names[14:18] == ["Extra 14", "Extra 15", "extra 15b", "Extra 16"]
    assert "No students match" in text_of(teacher, f"/courses/{school.course}/grades?q=%25")
    assert text_of(teacher, f"/courses/{school.course}/grades?page=999999999&q=%00x")
    with school.store.write() as session:
        users.enrol(session, school.users["teacher"], accounts_course(session), "instructor")
        empty = accounts_course(session)
    assert "course has no assignments" in text_of(school.client("teacher"), f"/courses/{empty}/grades")


def accounts_course(session: Any) -> int:
    """An empty course."""
    found = session.query(tables.Course).filter_by(slug="empty").one_or_none()
    if found is None:
        found = tables.Course(slug="empty", title="Empty")
        session.add(found)
        session.flush()
    return int(found.id)


# --- tables out ---------------------------------------------------------------------------------------

FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "\n=1",
    "＝1",
    "|calc",
    "%x",
    '=HYPERLINK("x")',
)


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_begins_like_a_formula(text: str) -> None:
    said = grades_csv.safe_cell(text)
    assert said.startswith("'")
    assert "\n" not in said
    assert "\r" not in said


@given(st.text(max_size=30))
def test_any_text_stays_one_harmless_cell(text: str) -> None:
    content = b"".join(grades_csv.csv_lines(["id"], [[text, "next"]], ";"))
    (_, row) = read(content, ";")
    assert row[1] == "next"
    assert not row[0].lstrip().startswith(grades_csv.FORMULA)


def test_numbers_stay_numbers() -> None:
    values = [grades_csv.safe_cell(one) for one in (-1.5, 0.0, 12, None, True, 7.125)]
    assert values == ["-1.5", "0", "12", "", "yes", "7.12"]


def test_the_course_and_an_assignment_as_csv(school: School) -> None:
    graded(school, "anna", 8.5)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = "=cmd|' /C calc'!A0"
    teacher = school.client("teacher")
    url = f"/courses/{school.course}/grades.csv"
    answer = teacher.get(url, query_string={"separator": "semicolon", "bom": "1"})
    assert answer.data.startswith(b"\xef\xbb\xbf")
    assert "filename=ba-grades.csv" in answer.headers["Content-Disposition"]
    header, anna, ben = read(answer.data, ";")
    assert header == ["id", "name", "Homework hw1", "Homework quick", "total", "of", "dropped"]
    assert anna == ["anna", "'=cmd|' /C calc'!A0", "8.5", "", "8.5", "10", ""]
    assert ben[2:] == ["", "", "0", "0", ""]
    one = read(teacher.get(url, query_string={"assignment": school.assignment, "criteria": "1"}).data)
    assert one[0][-2:] == ["Loads the data [load]", "Thinks about it [think]"]
    assert one[1][-2:] == ["4", "4.5"]
    assert teacher.get(url, query_string={"assignment": school.elsewhere}).status_code == 404
    assert teacher.get(url, query_string={"assignment": "x"}).status_code == 404
    assert school.client("grader").get(url).status_code == 403
    with school.store.read() as session:
        assert session.query(tables.Audit).filter_by(action="grades.export").count() == 2


# --- tables in ----------------------------------------------------------------------------------------


def parse(text: str) -> grades_csv.GradeTable:
    return grades_csv.parse_grades(text.encode(), CRITERIA)


def test_a_quoted_decimal_comma_is_one_where_commas_separate_columns() -> None:
    table = parse('id,think\nanna,"2,5"\nben,"1,000"\n')
    assert [(one.student, one.points) for one in table.wishes] == [("anna", 2.5)]
    assert [(line, str(said)) for line, said in table.problems] == [(3, "'1,000' is not a number of points")]


def test_what_is_written_can_be_read() -> None:
    table = parse("id;Loads the data [load];think;adjustment;name\nanna;3,5;;-1;x\n'-ben;;2;;y\n")
    said = [(one.student, one.target, one.points) for one in table.wishes]
    assert said == [("anna", "load", 3.5), ("anna", "adjustment", -1), ("-ben", "think", 2)]
    assert (table.problems, table.ignored) == ((), ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("name,load\n", "No column identifies the students"),
        ("id,name\n", "No column has points"),
        ("id,load,Loads the data\n", "Two columns"),
        ('id,load\n"anna,3\n', "cannot be read"),
        ("id,load\n" + "a,1\n" * 5001, "more than 5000"),
    ],
)
def test_tables_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(TableUnreadable, match=why):
        parse(text)


def test_lines_that_cannot_be_used() -> None:
    rows = ("anna,nan", "ben,1e999", "c,1_0", "d,x", "anna,3", ",4", "e,", "f,0x10", "")
    table = parse("id,load\n" + "\n".join(rows))
    assert table.wishes == ()
    assert [line for line, _ in table.problems] == [2, 3, 4, 5, 6, 7, 9]


def upload(
    school: School, table: str, reason: str = "regraded by hand"
) -> tuple[FlaskClient, str, dict[str, str]]:
    """Somebody who has looked at the preview; the page, and the form on it."""
    teacher = school.client("teacher")
    url = f"/assignments/{school.assignment}/grades/import"
    form = {"csrf_token": form_token(teacher), "table": table, "reason": reason}
    page = teacher.post(url, data=form).get_data(as_text=True)
    digest = re.search(r'name="digest" value="(\w+)"', page)
    return teacher, page, {**form, "digest": digest[1] if digest else ""}


def make(school: School, client: FlaskClient, form: dict[str, str]) -> int:
    return client.post(f"/assignments/{school.assignment}/grades/import/apply", data=form).status_code


def points(school: School, submission: str) -> tuple[float | None, float, float | None]:
    with school.store.read() as session:
        grade = session.query(tables.Grade).filter_by(submission_id=submission).one()
        return grade.points, grade.adjustment, grade.final_points


TABLE = "id,load,adjustment\nanna,2,-1\nben,3,\nnobody,1,\n"


def test_import_previews_and_then_changes_once(school: School) -> None:
    submission = graded(school, "anna", 8.5)
    client, page, form = upload(school, TABLE)
    assert "Apply these 2 changes" in page
    assert "&#39;ben&#39; has no grade" in page
    assert "&#39;nobody&#39; is not a student" in page
    assert "8.5 → <strong>5.5</strong>" in page
    assert points(school, submission) == (8.5, 0.0, 8.5)
    assert make(school, client, form) == 303
    assert points(school, submission) == (6.5, -1.0, 5.5)
    assert make(school, client, form) == 303  # once more: nothing is different any more
    assert school.count(tables.Change) == 2
    with school.store.read() as session:
        change = session.query(tables.Change).filter_by(kind="points").one()
        assert (change.reason, change.value, change.by) == (
            "regraded by hand", {"points": 2.0}, school.users["teacher"],
        )  # fmt: skip
        assert session.query(tables.Audit).filter_by(action="grade.change").count() == 2
    assert "no changes" in upload(school, TABLE)[1]


def test_an_import_is_undone_as_a_whole_and_is_no_curve(school: School) -> None:
    submission = graded(school, "anna", 8.5)
    client, _page, form = upload(school, TABLE)
    assert make(school, client, form) == 303
    page = client.get(f"/courses/{school.course}/grades").get_data(as_text=True)
    found = re.search(r'action="([^"]+/grades/import/undo)".*?name="bulk" value="(\w+)"', page, re.DOTALL)
    assert found is not None
    curves = client.get(f"/assignments/{school.assignment}/review/curve").get_data(as_text=True)
    assert found[2] not in curves
    undo = {"csrf_token": form["csrf_token"], "bulk": found[2]}
    curve_undo = f"/assignments/{school.assignment}/review/curve/undo"
    assert client.post(curve_undo, data=undo).status_code == 404
    assert client.post(found[1], data=undo).status_code == 303
    assert points(school, submission) == (8.5, 0.0, 8.5)
    assert "Undone for 1 submission." in client.get("/").get_data(as_text=True)


def test_a_sum_that_is_changed_is_not_passed_over(school: School) -> None:
    """Sums follow from criteria and adjustment: who changes only those hears of it."""
    graded(school, "anna", 8.5)
    page = upload(school, "id,load,points,final\nanna,4.5,9,8.5\n")[1]
    assert "no changes" in page
    assert "Line 2: &#39;points&#39; is calculated; change a criterion or &#39;adjustment&#39;" in page
    assert "final&#39; is calculated" not in page
    assert "is calculated" not in upload(school, "id,load,points,final\nanna,1,5,5\n")[1]
    teacher, table = school.client("teacher"), "id,load\nanna,99\n"
    form = {"csrf_token": form_token(teacher), "table": table, "reason": "x"}
    url = f"/assignments/{school.assignment}/grades/import"
    german = teacher.post(url, data=form, headers={"Accept-Language": "de"}).get_data(as_text=True)
    assert "Zeile 2: 99 liegt nicht zwischen 0 und den" in german


def test_what_was_changed_meanwhile_is_shown_again(school: School) -> None:
    submission = graded(school, "anna", 8.5)
    client, _, form = upload(school, TABLE)
    other = upload(school, "id,load\nanna,1\n")
    assert make(school, other[0], other[2]) == 303
    assert make(school, client, form) == 409
    assert points(school, submission)[0] == 5.5
    assert make(school, client, {**form, "digest": ""}) == 409


def test_an_adjustment_is_the_whole_one_whatever_a_curve_did(school: School) -> None:
    submission = graded(school, "anna", 5)
    with school.store.write() as session:
        grade = session.query(tables.Grade).filter_by(submission_id=submission).one()
        session.add(
            tables.Change(
                round_id=grade.round_id, submission_id=submission, kind="adjust", target="curve",
                value={"points": 2}, before={}, bulk="b", at=now(session), reason="curve",
            )
        )  # fmt: skip
        session.flush()
        from grading.store.grades.final_score import update_final_score

        update_final_score(session, grade)
    client, _, form = upload(school, "id,adjustment\nanna,1\n")
    assert make(school, client, form) == 303
    assert points(school, submission)[1] == 1.0


def test_out_and_in_again_changes_nothing(school: School) -> None:
    graded(school, "anna", 8.5)
    url = f"/courses/{school.course}/grades.csv"
    out = school.client("teacher").get(url, query_string={"assignment": school.assignment, "criteria": "1"})
    with school.store.read() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        plan = csv_import.plan_import(session, assignment, grades_csv.parse_grades(out.data, CRITERIA))
    assert (plan.changes, plan.problems, plan.ignored) == ((), (), ())
    assert plan.same == 3


def test_imports_are_refused_without_reason_or_with_nonsense(school: School) -> None:
    graded(school, "anna", 8.5)
    assert "Enter a reason" in upload(school, TABLE, "")[1]
    assert "not between 0 and" in upload(school, "id,load\nanna,5\n")[1]
    assert "too large" in upload(school, "id,adjustment\nanna,-5000\n")[1]
    teacher = school.client("teacher")
    form = {"csrf_token": form_token(teacher), "reason": "x", "file": (io.BytesIO(b"PK\x03\x04zip"), "x.csv")}
    answer = teacher.post(f"/assignments/{school.assignment}/grades/import", data=form)
    assert (answer.status_code, "not a text file" in answer.get_data(as_text=True)) == (422, True)
    script = upload(school, "id,load\n<script>alert(1)</script>,x\n")[1]
    assert "<script>alert" not in script


# --- everything of an assignment ----------------------------------------------------------------------


def test_the_zip_holds_all_with_safe_names(school: School) -> None:
    graded(school, "anna", 8.5)
    school.submit("anna", data=b"x = 2\n", name="con.py")
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = "../../etc/\u202epasswd\x00"
        for row in session.query(tables.SubmissionFile).all():
            if row.path == "con.py":
                row.path = "..\\..\\windows/CON.py"
    answer = school.client("teacher").get(f"/assignments/{school.assignment}/everything.zip")
    with zipfile.ZipFile(io.BytesIO(answer.data)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        report_ = next(archive.read(name) for name in names if name.endswith("report.md"))
    assert {"README.txt", "grades.csv"} <= set(names)
    assert len(names) == 5
    for name in names:
        assert ".." not in name.split("/")
        assert name.isprintable()
        assert not name.startswith("/")
    assert any(name.endswith("submission-2/windows/_CON.py") for name in names)
    assert b"8.5 of 10 points" in report_
    assert school.client("anna").get(f"/assignments/{school.assignment}/everything.zip").status_code == 403


def test_the_zip_is_written_while_it_is_sent(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was asked for was made: memory does not grow with the class."""
    from app.gradebook import views

    made: list[int] = []

    def files() -> Iterator[tuple[str, bytes]]:
        for number in range(1000):
            made.append(number)
            yield f"{number}.bin", bytes(range(256)) * 8

    pieces = views._zipped(files())
    first = next(pieces)
    assert (len(made), first[:2]) == (1, b"PK")
    rest = b"".join(pieces)
    with zipfile.ZipFile(io.BytesIO(first + rest)) as archive:
        assert (archive.testzip(), len(archive.namelist())) == (None, 1000)


@given(st.text(max_size=120))
def test_names_stay_in_their_folder(text: str) -> None:
    path = zip_names.path(text)
    parts = path.split("/")
    assert path
    assert all(
        part and part not in (".", "..") and len(part) <= 81 and part == part.rstrip(" .") for part in parts
    )
    assert not set('<>:"\\|?*') & set(path)


def test_names_are_told_apart_whatever_their_capitals() -> None:
    names = zip_names.Names()
    found = [names.unique(one) for one in ("a/Work.py", "a/work.py", "a/work.py", "a/WORK-2.py", "a/.x")]
    assert len({one.casefold() for one in found}) == 5


# --- erasing ------------------------------------------------------------------------------------------


def test_erasing_asks_for_the_id_and_leaves_nothing(school: School) -> None:
    submission = graded(school, "anna", 8.5)
    admin, anna = school.client("admin"), school.users["anna"]
    page = f"/users/{anna}/erase"
    assert "<li>1 submission</li>" in text_of(admin, page)
    copy = admin.get(f"/users/{anna}/export.zip")
    with zipfile.ZipFile(io.BytesIO(copy.data)) as archive:
        assert "data.json" in archive.namelist()
    token = form_token(admin)
    for wrong in ("", "Anna", "ben", "user:999", f"user:{anna}0"):
        assert admin.post(page, data={"csrf_token": token, "typed": wrong}).status_code == 422
    assert school.count(tables.Submission) == 1
    assert admin.post(page, data={"csrf_token": token, "typed": " anna "}).status_code == 303
    assert school.count(tables.Submission) == 0
    assert admin.get(f"/submissions/{submission}").status_code == 404
    assert school.client("teacher").get(page).status_code == 403
    assert admin.get(f"/users/{school.users['teacher']}/erase").status_code == 403
    assert admin.get("/users/987654/erase").status_code == 404
