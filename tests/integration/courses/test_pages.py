"""People of a course, their accounts and links, and courses, as their pages have them."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from flask.testing import FlaskClient
from sqlalchemy import event, select
from werkzeug.test import TestResponse

from app.accounts import sign_in as sign_in_pages
from grading.domain.errors import Conflict, Forbidden
from grading.store import tables
from grading.store.accounts import credentials, sessions, users
from grading.store.accounts.sign_in_attempts import ONE_SOURCE, Caller
from grading.store.audit import write_audit
from grading.store.courses import invitations, roster, user_admin
from grading.store.courses.invitations import LinkGone
from grading.store.database import now
from grading.store.integrations.lti.tables import LtiPlatform
from grading.tabular.roster_csv import parse_roster
from tests.integration.webapp import School, form_token, limit, report, stop_the_clock, undo

PASSWORD = "correct horse battery"
ROSTER = "id,name,email,role\nanna,Anna A,anna@school.example,\ns-1,Ada Lovelace,ada@school.example,\n"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are hashed weakly: how strongly is tested elsewhere."""
    monkeypatch.setattr(users, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    stop_the_clock(monkeypatch)


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


def post(client: FlaskClient, url: str, **form: object) -> TestResponse:
    return client.post(url, data={"csrf_token": form_token(client), **form})


def text(answer: TestResponse) -> str:
    return answer.get_data(as_text=True)


def people(school: School) -> str:
    return f"/courses/{school.course}/people"


def enter(
    school: School, name: str, password: str, client: FlaskClient | None = None
) -> tuple[FlaskClient, TestResponse]:
    client = client or school.client()
    token = form_token(client, "/sign-in")
    answer = client.post("/sign-in", data={"csrf_token": token, "name": name, "password": password})
    return client, answer


def with_password(school: School, name: str) -> None:
    with school.store.write() as session:
        users.set_password(session, session.get_one(tables.User, school.users[name]), PASSWORD)


def imported(school: School, table: str, client: FlaskClient | None = None) -> TestResponse:
    """Previewed and confirmed."""
    client = client or school.client("teacher")
    page = text(post(client, f"{people(school)}/import", table=table))
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', page)
    assert digest is not None, page
    return post(client, f"{people(school)}/import/confirm", table=table, digest=digest[1])


@contextmanager
def queries(school: School) -> Iterator[list[str]]:
    seen: list[str] = []

    def see(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(school.store.engine, "before_cursor_execute", see)
    yield seen
    event.remove(school.store.engine, "before_cursor_execute", see)


# --- importing ----------------------------------------------------------------------------------------


def test_a_table_is_previewed_then_confirmed_and_again_changes_nothing(both: School) -> None:
    client = both.client("teacher")
    page = text(post(client, f"{people(both)}/import", table=ROSTER))
    assert "<strong>1</strong> to be added" in page
    assert "<strong>1</strong> to be changed" in page
    assert both.count(tables.User) == 6
    answer = imported(both, ROSTER)
    assert answer.status_code == 303
    with both.store.read() as session:
        ada = users.find_user(session, "local", "s-1")
        assert ada is not None
        assert (ada.name, ada.email, users.roles(session, ada.id)) == (
            "Ada Lovelace",
            "ada@school.example",
            {both.course: "student"},
        )
        assert session.get_one(tables.User, both.users["anna"]).name == "Anna A"
        (row,) = session.query(tables.Audit).filter_by(action="roster.import").all()
        assert row.course_id == both.course
    again = text(post(client, f"{people(both)}/import", table=ROSTER))
    assert "No changes" in again
    assert "Apply changes" not in again
    imported_again = post(client, f"{people(both)}/import/confirm", table=ROSTER, digest="")
    assert imported_again.status_code == 409
    assert both.count(tables.User) == 7


def test_what_changed_since_the_preview_is_shown_again(school: School) -> None:
    client = school.client("teacher")
    page = text(post(client, f"{people(school)}/import", table=ROSTER))
    digest = re.findall(r'name="digest" value="([0-9a-f]+)"', page)[0]
    with school.store.write() as session:
        users.create_user(session, "s-1", name="Somebody else")
    answer = post(client, f"{people(school)}/import/confirm", table=ROSTER, digest=digest)
    assert answer.status_code == 409
    assert "changed after you opened this preview" in text(answer)
    assert school.count(tables.Membership) == 5


def test_a_student_line_never_changes_the_role_of_staff(school: School) -> None:
    with school.store.write() as session:
        users.enrol(session, school.users["admin"], school.course, "instructor")
    table = "id;name;role\ngrader;Grace;student\nteacher;T;student\nadmin;Root;\nstranger;S;student\n"
    page = text(post(school.client("teacher"), f"{people(school)}/import", table=table))
    assert "Staff roles do not change." in page
    assert "You cannot change your own role." in page
    imported(school, table)
    with school.store.read() as session:
        kept = {name: users.roles(session, school.users[name])[school.course] for name in school.users}
        names = {session.get_one(tables.User, one).name for one in school.users.values()}
    wanted = {"grader": "grader", "teacher": "instructor", "admin": "instructor", "stranger": "student"}
    assert {name: kept[name] for name in wanted} == wanted
    assert {"Grader", "Teacher", "Admin", "Stranger"} <= names  # nor the names of staff
    imported(school, "id,role\nanna,grader\n")
    with school.store.read() as session:
        assert users.roles(session, school.users["anna"]) == {school.course: "grader"}


def test_names_of_people_in_courses_of_others_stay(school: School) -> None:
    with school.store.write() as session:
        other = session.get_one(tables.Assignment, school.elsewhere).course_id
        users.enrol(session, school.users["ben"], other, "student")
    table = "id,name,email\nben,Benjamin,evil@x.example\n"
    page = text(post(school.client("teacher"), f"{people(school)}/import", table=table))
    assert "The name does not change" in page
    assert "The email address does not change" in page
    assert "No changes" in page


def test_problems_are_named_by_line_and_the_rest_is_imported(school: School) -> None:
    with school.store.write() as session:
        session.get_one(tables.User, school.users["ben"]).disabled = True
    table = "id,name,email\nben,Ben,\n,Nobody,\ns-2,<script>alert(1)</script>,\ns-3,C,none\n"
    page = text(post(school.client("teacher"), f"{people(school)}/import", table=table))
    assert re.search(r"Line 2:</strong> The account &#39;ben&#39; is disabled", page)
    assert "Line 3:</strong> The ID is missing." in page
    assert "Line 5:</strong> Invalid email address" in page
    with school.store.write() as session:
        session.get_one(tables.User, school.users["teacher"]).language = "de"
    german = text(post(school.client("teacher"), f"{people(school)}/import", table=table))
    assert "Zeile 2:</strong> Das Konto „ben“ ist deaktiviert" in german
    assert "Zeile 3:</strong> Die ID fehlt." in german
    assert "<script>alert" not in page
    imported(school, table)
    assert school.count(tables.Membership) == 6


def test_a_file_is_taken_like_pasted_text(school: School) -> None:
    client = school.client("teacher")
    file = (io.BytesIO("id\tname\ns-9\tZoë\n".encode("utf-16")), "people.txt")
    page = text(post(client, f"{people(school)}/import", file=file))
    assert "Zoë" in page
    none = post(client, f"{people(school)}/import", file=(io.BytesIO(b"PK\x03\x04"), "people.xlsx"))
    assert none.status_code == 422
    assert 'role="alert"' in text(none)


def test_two_thousand_people_at_once(school: School) -> None:
    table = "id,name,email\n" + "".join(f"s-{n},Student {n},s{n}@school.example\n" for n in range(2000))
    began = time.monotonic()
    with queries(school) as seen:
        assert imported(school, table).status_code == 303
        changed = table.replace("Student", "Learner")
        assert imported(school, changed).status_code == 303
    assert time.monotonic() - began < 30
    assert sum(statement.startswith("SELECT") for statement in seen) < 100  # not one for each person
    with school.store.read() as session:
        assert roster.list_members(session, school.course).total == 2004
        assert roster.list_members(session, school.course, "Learner 1999").total == 1


def test_people_of_one_name_are_listed_in_the_order_of_their_ids(both: School) -> None:
    """Also where the database keeps them in another order; else one is missed and another shown twice."""
    with both.store.write() as session:
        admin = users.actor_of(session, session.get_one(tables.User, both.users["admin"]))
        table = parse_roster("id,name\n" + "".join(f"twin-{n},Twin\n" for n in range(8)))
        roster.apply_import(session, both.course, table, admin)
    with both.store.write() as session:
        first = session.scalars(select(tables.User).where(tables.User.name == "Twin")).first()
        assert first is not None
        first.email = "written@again.example"  # PostgreSQL moves what it changes
    with both.store.read() as session:
        for page in (
            user_admin.list_users(session, "Twin"),
            roster.list_members(session, both.course, "Twin"),
        ):
            ids = [one.user_id for one in page.items]
            assert len(ids) == 8
            assert ids == sorted(ids)


def test_the_same_new_people_in_two_courses_at_once_are_made_once(both: School) -> None:
    with both.store.read() as session:
        other = session.get_one(tables.Assignment, both.elsewhere).course_id
        admin = users.actor_of(session, session.get_one(tables.User, both.users["admin"]))
    table = parse_roster("id\n" + "\n".join(f"s-{n}" for n in range(300)))

    def go(course: int) -> bool:
        try:
            with both.store.write() as session:
                roster.apply_import(session, course, table, admin)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(go, (both.course, other)))
    assert any(done)
    assert both.count(tables.User) == 306


# --- the list, roles, removing ------------------------------------------------------------------------


def test_the_list_is_searched_and_does_not_ask_more_for_more_people(both: School) -> None:
    client = both.client("grader")
    with queries(both) as few:
        client.get(people(both))
    imported(both, "id,name\n" + "".join(f"s-{n},Person {n:03}\n" for n in range(120)))
    with queries(both) as many:
        page = text(client.get(people(both)))
    assert len(many) == len(few)
    assert "124 people" in page
    assert "Page 1 of 5" in page
    listed = re.findall(r'/people/\d+">([^<]+)<', page)
    assert listed[:4] == ["Teacher", "Grader", "Anna", "Ben"]
    found = text(client.get(f"{people(both)}?q=PERSON+007"))
    assert "1 person" in found
    assert "No people match" in text(client.get(f"{people(both)}?q=%25"))
    assert "No people match" in text(client.get(f"{people(both)}?q=%00'\"&role=student"))
    assert "No people match" not in text(client.get(f"{people(both)}?page=99999&role=x"))


def test_one_person_is_added_or_the_reason_said(school: School) -> None:
    client = school.client("teacher")
    answer = post(client, f"{people(school)}/add", id="s-1", name="Ada", email="", role="grader")
    assert answer.headers["Location"] == f"{people(school)}?q=s-1"
    bad = post(client, f"{people(school)}/add", id="s-2", name="Ada", email="none", role="student")
    assert bad.status_code == 422
    assert 'value="s-2"' in text(bad)
    with school.store.read() as session:
        ada = users.find_user(session, "local", "s-1")
        assert ada is not None
        assert users.roles(session, ada.id) == {school.course: "grader"}
        assert users.find_user(session, "local", "s-2") is None


def test_roles_change_and_people_go_but_their_work_stays(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report(), released=True)
    teacher, anna = school.client("teacher"), school.users["anna"]
    with school.store.write() as session:
        session.add(tables.GroupMember(assignment_id=school.assignment, user_id=anna, group_id="1" * 32))
    assert post(teacher, f"{people(school)}/{anna}/role", role="king").status_code == 400
    assert post(teacher, f"{people(school)}/{anna}/role", role="grader").status_code == 303
    assert school.client("anna").get(people(school)).status_code == 200
    post(teacher, f"{people(school)}/{anna}/role", role="student")
    assert undo(teacher, people(school)).status_code == 303
    assert school.client("anna").get(people(school)).status_code == 200
    assert undo(teacher, people(school)).status_code == 303
    with school.store.write() as session:
        ben = tables.GroupMember(
            assignment_id=school.assignment, user_id=school.users["ben"], group_id="1" * 32
        )
        session.add(ben)
        session.get_one(tables.Assignment, school.assignment).group_size = 2
    assert post(teacher, f"{people(school)}/{anna}/remove").status_code == 303
    assert undo(teacher, people(school)).status_code == 303
    assert school.client("anna").get(f"/courses/{school.course}").status_code == 200
    assert school.count(tables.GroupMember) == 2
    assert post(teacher, f"{people(school)}/{anna}/remove").status_code == 303
    assert school.client("anna").get(f"/courses/{school.course}").status_code == 404
    assert teacher.get(f"{people(school)}/{anna}").status_code == 404
    assert teacher.get(f"/submissions/{submission}").status_code == 200
    assert school.client("anna").get(f"/submissions/{submission}").status_code == 200
    assert school.count(tables.GroupMember) == 1
    assert school.count(tables.Grade) == 1
    imported(school, "id\nanna\n")
    assert school.client("anna").get(f"/courses/{school.course}").status_code == 200
    with school.store.read() as session:
        rows = session.query(tables.Audit).filter_by(object=f"user:{anna}", course_id=school.course)
        assert [row.action for row in rows.order_by(tables.Audit.id)] == [
            *(["role.change"] * 4),
            *("roster.remove", "roster.restore", "roster.remove"),
        ]


def test_nobody_changes_their_own_place(school: School) -> None:
    teacher, own = school.client("teacher"), school.users["teacher"]
    assert post(teacher, f"{people(school)}/{own}/role", role="student").status_code == 403
    assert post(teacher, f"{people(school)}/{own}/remove").status_code == 403
    assert "This is you" in text(teacher.get(f"{people(school)}/{own}"))


# --- links --------------------------------------------------------------------------------------------


def made_link(school: School, by: str = "teacher", for_: str = "anna") -> str:
    answer = post(school.client(by), f"{people(school)}/{school.users[for_]}/link")
    assert answer.status_code == 200, text(answer)
    found = re.search(r"data-link>(http://localhost:8080(/reset/[\w-]{43}))<", text(answer))
    assert found is not None
    return found[2]


def set_by(
    school: School, link: str, password: str = PASSWORD, client: FlaskClient | None = None
) -> TestResponse:
    client = client or school.client()
    follow = client.get(link)
    if follow.status_code != 303:
        return follow
    token = form_token(client, "/reset")
    return client.post("/reset", data={"csrf_token": token, "password": password, "again": password})


def known(school: School, token: dict[str, str]) -> bool:
    """Whether the API takes a token."""
    return school.client().get("/api/v1/submissions/none", headers=token).status_code == 404


def test_a_link_sets_the_password_once(school: School) -> None:
    link, session_before = made_link(school), school.client("anna")
    tokens = [school.token(name) for name in ("anna", "ben")]
    other = made_link(school)  # one that was sent before stays valid until one of them is used
    assert set_by(school, link, "short").status_code == 400
    assert session_before.get("/account").status_code == 200
    assert set_by(school, other, "short").status_code == 400
    assert [known(school, one) for one in tokens] == [True, True]
    answer = set_by(school, other)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")
    assert session_before.get("/account").status_code == 303
    assert [known(school, one) for one in tokens] == [False, True]
    assert enter(school, "anna", PASSWORD)[1].status_code == 303
    assert set_by(school, link).status_code == 404
    again = set_by(school, other, "another password")
    assert again.status_code == 404
    assert "Ask for a new link" in text(again)
    assert enter(school, "anna", "another password")[1].status_code == 401


def test_only_the_hash_of_a_link_is_kept_and_it_reaches_no_other_page(school: School) -> None:
    link = made_link(school)
    secret = link.removeprefix("/reset/")
    with school.store.read() as session:
        (row,) = session.query(tables.ResetLink).all()
        assert row.hash == hashlib.sha256(secret.encode()).hexdigest()
        assert row.created_by == school.users["teacher"]
        audit = repr([(one.object, one.detail) for one in session.query(tables.Audit).all()])
        assert secret not in audit
    assert secret not in text(school.client("teacher").get(f"{people(school)}/{school.users['anna']}"))
    client = school.client()
    answer = client.get(link)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/reset")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    page = text(client.get("/reset"))
    assert secret not in page
    form = dict(re.findall(r'name="(csrf_token|username)" value="([^"]*)"', page))
    assert form["username"] == "anna"
    client.post("/reset", data={**form, "password": PASSWORD, "again": PASSWORD})
    assert 'value="anna"' in text(client.get("/sign-in"))  # what is typed next is the password


def test_links_end_after_seven_days_and_with_the_account(school: School) -> None:
    link = made_link(school)
    school.store.clock_offset_s = 7 * 24 * 3600 + 60
    assert set_by(school, link).status_code == 404
    school.store.clock_offset_s = 0
    assert school.client().get(link).status_code == 303
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).disabled = True
    assert school.client().get(link).status_code == 404
    for nonsense in ("/reset/x", f"/reset/{'x' * 5000}", "/reset/%00", "/reset"):
        assert school.client().get(nonsense).status_code == 404, nonsense


def test_two_who_use_a_link_at_once_are_one(both: School) -> None:
    with both.store.write() as session:
        secret = invitations.create_links(session, [both.users["anna"]], "test", both.users["admin"])[
            both.users["anna"]
        ]

    def go(password: str) -> bool:
        try:
            invitations.use_link(both.store, secret, password)
        except LinkGone:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(go, ("the first password", "the second password")))
    assert sorted(done) == [False, True]
    kept = "the first password" if done[0] else "the second password"
    assert credentials.verify_password(both.store, "anna", kept, Caller("127.0.0.1")) == both.users["anna"]


def test_instructors_make_links_for_students_who_are_staff_nowhere(school: School) -> None:
    teacher = school.client("teacher")

    def asked(name: str, client: FlaskClient = teacher) -> int:
        return post(client, f"{people(school)}/{school.users[name]}/link").status_code

    assert asked("anna") == 200
    assert asked("grader") == asked("teacher") == 403
    assert asked("stranger") == 404
    assert asked("anna", school.client("grader")) == 403
    with school.store.write() as session:
        other = session.get_one(tables.Assignment, school.elsewhere).course_id
        users.enrol(session, school.users["ben"], other, "grader")
        users.enrol(session, school.users["admin"], school.course, "student")
        users.enrol(session, school.users["stranger"], school.course, "student")
    for name in ("ben", "admin", "stranger"):
        assert asked(name) == 403, name
        assert "An administrator" in text(teacher.get(f"{people(school)}/{school.users[name]}"))
    assert asked("grader", school.client("admin")) == 200


def test_who_becomes_staff_loses_links_that_an_instructor_made(school: School) -> None:
    link = made_link(school)
    post(school.client("teacher"), f"{people(school)}/{school.users['anna']}/role", role="grader")
    assert school.client().get(link).status_code == 404


def test_who_is_added_as_staff_elsewhere_loses_them_too_but_not_those_of_administrators(
    school: School,
) -> None:
    links_of = made_link(school), made_link(school, "admin", "ben")
    stranger, place = school.client("stranger"), f"/courses/{course_elsewhere(school)}/people/add"
    for name in ("anna", "ben"):
        assert post(stranger, place, id=name, role="grader").status_code == 303
    assert [school.client().get(link).status_code for link in links_of] == [404, 303]


def test_no_instructor_comes_into_the_accounts_of_others_by_adding_them(school: School) -> None:
    """Whoever knows an id can add it to their own course; that must lead into nobody's account."""
    place, stranger = f"/courses/{course_elsewhere(school)}/people", school.client("stranger")
    for name in ("anna", "ben"):
        assert post(stranger, f"{place}/add", id=name).status_code == 303
    anna, ben = school.users["anna"], school.users["ben"]
    # not activated yet: whoever sets the first password owns the account
    assert post(stranger, f"{place}/{anna}/link").status_code == 403
    with_password(school, "anna")
    school.submit("ben")
    for user in (anna, ben):
        assert post(stranger, f"{place}/{user}/link").status_code == 403
        assert "An administrator" in text(stranger.get(f"{place}/{user}"))
    assert post(stranger, f"{place}/invite", user=[anna, ben]).status_code == 303  # no table
    post(stranger, f"{place}/{anna}/remove")
    assert post(school.client("teacher"), f"{people(school)}/{anna}/link").status_code == 200
    # who was taken out of all courses still has what they submitted
    post(school.client("teacher"), f"{people(school)}/{ben}/remove")
    assert post(stranger, f"{place}/{ben}/link").status_code == 403
    assert post(school.client("admin"), f"{place}/{ben}/link").status_code == 200


def test_no_instructor_takes_an_account_of_no_course(school: School) -> None:
    """An administrator made it for somebody who may become staff; its id leads nobody into it."""
    with school.store.write() as session:
        users.create_user(session, "prof", name="Professor")
    place, stranger = f"/courses/{course_elsewhere(school)}/people", school.client("stranger")
    answer = post(stranger, f"{place}/add", id="prof", name="Mine", email="mine@evil.example")
    assert answer.status_code == 422
    assert "Ask an administrator to add it to its first course" in text(answer)
    with school.store.write() as session:
        prof = users.find_user(session, "local", "prof")
        assert prof is not None
        assert (prof.name, prof.email) == ("Professor", "")
        with pytest.raises(Forbidden, match="is not in a course yet"):
            users.find_or_create_student(session, "local", "prof", "", "", course_elsewhere(school))
    assert post(school.client("admin"), f"{place}/add", id="prof").status_code == 303


def test_who_was_removed_from_a_course_comes_back_to_it_but_into_no_other(school: School) -> None:
    teacher, anna = school.client("teacher"), school.users["anna"]
    assert post(teacher, f"{people(school)}/{anna}/remove").status_code == 303
    elsewhere = f"/courses/{course_elsewhere(school)}/people/add"
    assert post(school.client("stranger"), elsewhere, id="anna").status_code == 422
    assert post(teacher, f"{people(school)}/add", id="anna").status_code == 303
    assert post(teacher, f"{people(school)}/{anna}/link").status_code == 200


def course_elsewhere(school: School) -> int:
    with school.store.read() as session:
        return session.get_one(tables.Assignment, school.elsewhere).course_id


def test_links_for_many_are_a_table_sent_once(school: School) -> None:
    with school.store.write() as session:
        session.get_one(tables.User, school.users["ben"]).name = '=HYPERLINK("x")'
    with_password(school, "anna")
    client = school.client("teacher")
    page = text(client.get(f"{people(school)}/invite"))
    assert "4 people of this course have no password" not in page
    listed = re.findall(r'name="user" id="u\d+" value="(\d+)"( checked)?', page)
    assert listed == [(str(school.users["ben"]), " checked")]
    answer = post(client, f"{people(school)}/invite", user=[school.users["ben"]])
    assert answer.mimetype == "text/csv"
    assert answer.headers["Cache-Control"] == "no-store"
    rows = list(csv.DictReader(io.StringIO(answer.get_data().decode("utf-8-sig"))))
    assert [(row["id"], row["name"]) for row in rows] == [("ben", '\'=HYPERLINK("x")')]
    path = rows[0]["link"].removeprefix("http://localhost:8080")
    page = text(client.get(f"{people(school)}/invite"))
    assert "1 of those listed has a valid link" in page
    assert "checked" not in page
    assert post(client, f"{people(school)}/invite", user=[school.users["ben"]]).status_code == 200
    assert set_by(school, path).status_code == 303  # the earlier link stays valid
    assert "There is nobody to invite." not in page
    assert f'value="{school.users["ben"]}"' not in text(client.get(f"{people(school)}/invite"))
    chosen = [school.users[name] for name in ("anna", "grader", "stranger", "teacher")]
    picked = post(client, f"{people(school)}/invite", user=chosen)
    assert picked.get_data().decode().count("/reset/") == 1  # anna, who is a student here


def test_the_address_of_a_link_is_the_schools_whatever_a_request_says(school: School) -> None:
    client = school.client("admin")
    form, url = {"csrf_token": form_token(client)}, f"/users/{school.users['anna']}/link"
    cookie = client.get_cookie("grader")
    assert cookie is not None
    headers = {"Host": "evil.example", "Cookie": f"grader={cookie.value}"}
    page = text(school.app.test_client(use_cookies=False).post(url, data=form, headers=headers))
    assert "http://localhost:8080/reset/" in page
    assert "evil.example" not in page


def test_following_links_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for view in (sign_in_pages.follow, sign_in_pages.set_password):
        limit(monkeypatch, view, "5 per minute")
    school = School(tmp_path)
    client = school.client()
    assert [client.get("/reset/guess").status_code for _ in range(6)] == [404] * 5 + [429]
    token = form_token(client, "/sign-in")
    codes = [client.post("/reset", data={"csrf_token": token}).status_code for _ in range(6)]
    assert codes[-1] == 429
    school.close()


# --- signing in, sessions -----------------------------------------------------------------------------


def test_a_pause_between_tries_is_said_kindly_and_tells_nothing_of_others(school: School) -> None:
    with_password(school, "anna")
    said: dict[str, list[tuple[int, str, str]]] = {}
    for name in ("anna", "nobody-at-all"):
        answers = [enter(school, name, "wrong")[1] for _ in range(ONE_SOURCE.free + 2)]
        said[name] = [
            (
                one.status_code,
                one.headers.get("Retry-After", ""),
                re.findall(r'role="alert">([^<]+)<', text(one))[0],
            )
            for one in answers
        ]
    assert said["anna"] == said["nobody-at-all"]  # whether the account exists cannot be told
    assert said["anna"][0] == (401, "", "Wrong sign-in name or password. Check both and try again.")
    assert said["anna"][-1][:2] == (429, "1")
    assert "Try again in 1 second." in said["anna"][-1][2]
    assert set_by(school, made_link(school)).status_code == 303  # a new password begins anew
    assert enter(school, "anna", PASSWORD)[1].status_code == 303
    assert "Ask your instructor or an administrator" in text(school.client().get("/forgotten"))


def attacked(school: School) -> None:
    """Wrong passwords from many addresses, so that strangers wait."""
    for number in range(40):
        school.store.clock_offset_s += 61
        assert credentials.verify_password(school.store, "anna", "wrong", Caller(f"10.0.0.{number}")) is None


def test_a_browser_of_before_gets_in_while_strangers_wait(school: School) -> None:
    with_password(school, "anna")
    client, answer = enter(school, "anna", PASSWORD)
    cookie = answer.headers.getlist("Set-Cookie")[0]
    assert all(
        part in cookie for part in ("grader-known=", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=")
    )
    assert post(client, "/sign-out").status_code == 303
    attacked(school)
    assert enter(school, "anna", PASSWORD)[1].status_code == 429
    assert enter(school, "anna", PASSWORD, client)[1].status_code == 303
    post(client, "/account/sessions")  # ends what other browsers show, not this one
    assert enter(school, "anna", PASSWORD, client)[1].status_code == 303
    client.set_cookie("grader-known", "W10.forged.x")
    assert enter(school, "anna", PASSWORD, client)[1].status_code == 429


@pytest.mark.parametrize(
    ("public_url", "status"), [("https://x.example", 303), ("http://localhost:8080", 429)]
)
def test_addresses_are_those_a_trusted_proxy_tells(tmp_path: Path, public_url: str, status: int) -> None:
    """Without https no proxy is trusted, and who names other addresses is slowed down all the same."""
    school = School(tmp_path, public_url=public_url)
    with_password(school, "anna")
    told = {"X-Forwarded-For": "192.0.2.1", "Referer": "https://localhost/"}
    for _ in range(ONE_SOURCE.free + 1):
        assert entered(school, "wrong", told) == 401
    assert entered(school, PASSWORD, {**told, "X-Forwarded-For": "203.0.113.9, 192.0.2.1"}) == 429
    assert entered(school, PASSWORD, {**told, "X-Forwarded-For": "192.0.2.2"}) == status
    school.close()


def entered(school: School, password: str, headers: dict[str, str]) -> int:
    """What signing in as anna is answered by HTTPS, as a proxy passes it on."""
    client = school.client()
    page = text(client.get("/sign-in", base_url="https://localhost"))
    token = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert token is not None
    form = {"csrf_token": token[1], "name": "anna", "password": password}
    return client.post("/sign-in", data=form, headers=headers, base_url="https://localhost").status_code


def test_a_link_leads_in_while_strangers_wait(school: School) -> None:
    client, link = school.client(), made_link(school)
    assert set_by(school, link, client=client).status_code == 303
    attacked(school)
    assert enter(school, "anna", PASSWORD)[1].status_code == 429
    assert enter(school, "anna", PASSWORD, client)[1].status_code == 303


def test_the_session_changes_at_sign_in(school: School) -> None:
    with_password(school, "anna")
    client = school.client()
    token = form_token(client, "/sign-in")
    before = client.get_cookie("grader")
    client.post("/sign-in", data={"csrf_token": token, "name": "anna", "password": PASSWORD})
    after = client.get_cookie("grader")
    assert before is not None
    assert after is not None
    assert after.value != before.value
    assert post_with(client, "/account/sessions", token) == 400  # the form of before is no good


def post_with(client: FlaskClient, url: str, token: str) -> int:
    return client.post(url, data={"csrf_token": token}).status_code


def test_a_changed_password_ends_other_sessions_and_links(school: School) -> None:
    with_password(school, "anna")
    link = made_link(school)
    here, there = school.client("anna"), school.client("anna")
    new = "a better one, longer"
    form = {"old": PASSWORD, "password": new, "again": new}
    assert post(here, "/account/password", **{**form, "old": "wrong"}).status_code == 403
    assert post(here, "/account/password", **{**form, "again": "differs"}).status_code == 400
    assert (
        post(here, "/account/password", **{**form, "password": "short", "again": "short"}).status_code == 400
    )
    assert there.get("/account").status_code == 200
    assert post(here, "/account/password", **form).status_code == 303
    assert here.get("/account").status_code == 200
    assert there.get("/account").status_code == 303
    assert school.client().get(link).status_code == 404
    assert enter(school, "anna", new)[1].status_code == 303


def test_tokens_end_with_the_old_password_where_that_is_wanted(school: School) -> None:
    with_password(school, "anna")
    client, token = school.client("anna"), school.token("anna")
    form = {"old": PASSWORD, "password": PASSWORD + "2", "again": PASSWORD + "2"}
    assert 'name="tokens" value="1" checked' in text(client.get("/account"))
    assert post(client, "/account/password", **form).status_code == 303
    assert known(school, token)  # a program of theirs goes on
    again = {"old": PASSWORD + "2", "password": PASSWORD, "again": PASSWORD, "tokens": "1"}
    assert post(client, "/account/password", **{**again, "old": "wrong"}).status_code == 403
    assert known(school, token)
    assert post(client, "/account/password", **again).status_code == 303
    assert not known(school, token)
    assert "your API tokens are revoked" in text(client.get("/account"))


def test_guessing_the_old_password_is_slowed_as_at_sign_in(school: School) -> None:
    with_password(school, "anna")
    client = school.client("anna")
    form = {"password": "a better one", "again": "a better one"}
    for _ in range(ONE_SOURCE.free + 1):
        assert post(client, "/account/password", old="wrong", **form).status_code == 403
    slowed = post(client, "/account/password", old=PASSWORD, **form)
    assert (slowed.status_code, slowed.headers["Retry-After"]) == (429, "1")
    assert "Try again in 1 second." in text(slowed)
    attacked(school)  # which is nothing to who is signed in
    assert post(client, "/account/password", old=PASSWORD, **form).status_code == 303


def copied(school: School, client: FlaskClient) -> FlaskClient:
    """Another browser with the same cookie."""
    thief, cookie = school.client(), client.get_cookie("grader")
    assert cookie is not None
    thief.set_cookie("grader", cookie.value)
    return thief


def test_signing_out_ends_the_session_and_no_other_one(both: School) -> None:
    submission = both.submit("anna")
    here, there = both.client("anna"), both.client("anna")
    here.get("/account")
    thief, status = copied(both, here), f"/submissions/{submission}/status.json"
    seen = thief.get(status)
    assert (thief.get("/account").status_code, seen.status_code) == (200, 200)
    assert post(here, "/sign-out").status_code == 303
    assert thief.get("/account").status_code == 303
    assert thief.get(status, headers={"If-None-Match": seen.headers["ETag"]}).status_code == 401
    assert there.get("/account").status_code == 200
    assert there.get(status).status_code == 200
    again = {"csrf_token": form_token(thief, "/sign-in")}
    assert thief.post("/sign-out", data=again).status_code == 303  # of a session that is over
    assert post(there, "/account/sessions").status_code == 303
    assert there.get("/account").status_code == 200


def test_sessions_are_bounded_and_end_after_a_month(both: School, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_PER_USER", 3)
    browsers = []
    for _ in range(4):
        browsers.append(both.client("anna"))
        both.store.clock_offset_s += 1
    other = both.client("ben")
    assert [one.get("/account").status_code for one in browsers] == [303, 200, 200, 200]
    for days, left in ((29, 4), (2, 0)):
        both.store.clock_offset_s += days * 86400
        with both.store.write() as session:
            sessions.delete_expired(session)
            assert session.query(tables.OpenSession).count() == left
    assert other.get("/account").status_code == 303


def test_who_signs_in_anew_leaves_no_session_behind(school: School) -> None:
    with_password(school, "anna")
    client, _ = enter(school, "anna", PASSWORD)
    before = copied(school, client)
    assert before.get("/account").status_code == 200
    enter(school, "anna", PASSWORD, client)
    assert client.get("/account").status_code == 200
    assert before.get("/account").status_code == 303


def test_signing_out_everywhere_else(school: School) -> None:
    here, there = school.client("anna"), school.client("anna")
    assert post(here, "/account/sessions").status_code == 303
    assert here.get("/account").status_code == 200
    assert there.get("/account").status_code == 303


def test_headers_follow_current_advice(school: School) -> None:
    headers = school.client().get("/sign-in").headers
    assert {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "X-Permitted-Cross-Domain-Policies": "none",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }.items() <= dict(headers).items()
    assert "camera=()" in headers["Permissions-Policy"]
    assert "Server" not in headers
    assert "X-Powered-By" not in headers


# --- the own account ----------------------------------------------------------------------------------


def test_what_somebody_sets_is_kept_and_checked(school: School) -> None:
    client = school.client("anna")
    form = {"email": "anna@school.example", "language": "xx", "mail_when_ready": "1"}
    assert post(client, "/account", **form).status_code == 303
    with school.store.read() as session:
        user = session.get_one(tables.User, school.users["anna"])
        assert (user.email, user.language, user.mail_when_ready) == ("anna@school.example", "", True)
    assert post(client, "/account", email="", mail_when_ready="1").status_code == 400
    bad = post(client, "/account", email="<b>@x.example")
    assert bad.status_code == 400
    assert 'role="alert"' in text(bad)
    assert "<b>@" not in text(bad)


def test_the_language_of_an_account_is_that_of_each_page(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("app.web.i18n.languages", "app.accounts.profile.languages"):
        monkeypatch.setattr(place, lambda: ("en", "de"))
    client = school.client("anna")
    assert '<html lang="en">' in text(client.get("/account"))
    post(client, "/account", email="", language="de")
    assert '<html lang="de">' in text(client.get("/account", headers={"Accept-Language": "en"}))
    assert '<html lang="de">' in text(client.get("/nothing/here"))
    post(client, "/account", email="", language="")
    assert '<html lang="en">' in text(client.get("/account"))


# --- users --------------------------------------------------------------------------------------------


def test_an_administrator_makes_and_changes_accounts(school: School) -> None:
    client = school.client("admin")
    made = post(client, "/users", sign_in_name="new", name="New One", email="n@x.example")
    assert "/reset/" in text(made)
    taken = post(client, "/users", sign_in_name="new", name="Another", email="")
    assert taken.status_code == 409
    assert 'value="Another"' in text(taken)
    with school.store.read() as session:
        new = users.find_user(session, "local", "new")
        assert new is not None
        assert (new.name, new.password_hash, new.administrator) == ("New One", None, False)
    url = f"/users/{new.id}"
    assert post(client, url, name="Newer", email="").status_code == 303
    assert post(client, url, name="", email="").status_code == 400
    assert f'href="{url}/erase"' in text(client.get(url))
    with school.store.write() as session:
        session.add(tables.Identity(provider="lti:1", subject="z-0001", user_id=new.id))
    assert "Type “new” to confirm" in text(client.get(f"{url}/erase"))  # not what a platform calls them
    post(client, f"{url}/administrator", value="1")
    page = text(client.get(f"{url}"))
    assert "/erase" not in page  # staff are not erased
    assert "Newer" in page
    assert "Remove administrator role" in page
    post(client, f"{url}/disabled", value="1")
    assert post(client, f"{url}/link").status_code == 403
    post(client, f"{url}/disabled", value="0")
    assert post(client, f"{url}/link").status_code == 200


def test_administrators_do_not_shut_themselves_out(school: School) -> None:
    client, own = school.client("admin"), school.users["admin"]
    assert post(client, f"/users/{own}/administrator", value="0").status_code == 403
    assert post(client, f"/users/{own}/disabled", value="1").status_code == 403


def test_a_disabled_account_does_not_get_its_old_sessions_back(school: School) -> None:
    session_of_ben, url = school.client("ben"), f"/users/{school.users['ben']}/disabled"
    token = school.token("ben")
    assert known(school, token)
    admin = school.client("admin")
    assert session_of_ben.get("/account").status_code == 200
    post(admin, url, value="1")
    assert session_of_ben.get("/account").status_code == 303
    post(admin, url, value="0")
    assert session_of_ben.get("/account").status_code == 303
    assert not known(school, token)


def test_the_list_of_users_is_searched_and_filtered(both: School) -> None:
    client = both.client("admin")
    with queries(both) as few:
        client.get("/users")
    with both.store.write() as session:
        for number in range(70):
            users.create_user(session, f"u-{number}", name=f"User {number:02}", email=f"u{number}@x.example")
    with queries(both) as many:
        page = text(client.get("/users"))
    assert len(many) == len(few)
    assert "76 accounts" in page
    assert "1 account" in text(client.get("/users?q=u42@X"))
    counts = {"administrators": 1, "staff": 3, "disabled": 0, "invited": 76}
    for kind, count in counts.items():
        page = text(client.get(f"/users?kind={kind}"))
        assert (f"{count} account" if count == 1 else f"{count} accounts") in page, kind


# --- courses ------------------------------------------------------------------------------------------


def test_a_course_is_made_with_its_instructor(school: School) -> None:
    client = school.client("admin")
    form = {"title": "Statistics & more", "slug": "stats", "instructor": "teacher"}
    for wrong in ({"slug": "Has Blanks"}, {"slug": "ba"}, {"title": " "}, {"instructor": "ghost"}):
        answer = post(client, "/courses/new", **{**form, **wrong})
        assert answer.status_code in (400, 409)
        assert 'role="alert"' in text(answer)
        assert school.count(tables.Course) == 2
    answer = post(client, "/courses/new", **form)
    course = int(answer.headers["Location"].split("/")[2])
    assert school.client("teacher").get(f"/courses/{course}/settings").status_code == 200
    assert "Statistics &amp; more" in text(school.client("teacher").get("/courses"))
    assert "Statistics" not in text(school.client("anna").get("/courses"))


def test_settings_are_checked_kept_and_audited(school: School) -> None:
    client, url = school.client("teacher"), f"/courses/{school.course}/settings"
    for wrong in ({"title": ""}, {"drop_lowest": "-1"}, {"drop_lowest": "51"}, {"drop_lowest": "x"}):
        assert post(client, url, **{"title": "T", "drop_lowest": "1", **wrong}).status_code == 400
    assert post(client, url, title="Analytics", drop_lowest="2", archived="1").status_code == 303
    with school.store.read() as session:
        course = session.get_one(tables.Course, school.course)
        assert (course.title, course.drop_lowest, course.archived) == ("Analytics", 2, True)
        (row,) = session.query(tables.Audit).filter_by(action="course.change").all()
        assert row.detail["after"] == {"title": "Analytics", "drop_lowest": 2, "archived": True}
    assert "This course has ended" in text(school.client("anna").get(f"/courses/{school.course}"))


def test_the_course_page_shows_each_reader_their_own(both: School) -> None:
    with both.store.write() as session:
        moment = now(session)
        due = session.get_one(tables.Assignment, both.assignment)
        due.due_at = moment
        session.get_one(tables.Assignment, both.quick).visible = False
        later = moment + timedelta(days=365)
        session.add(
            tables.Extension(
                assignment_id=both.assignment, student_id=both.users["anna"], due_at=later, at=moment
            )
        )
    url = f"/courses/{both.course}"
    first, second = both.submit("anna"), both.submit("anna")
    both.grade(first, report(points=3.25), released=True)
    with both.store.write() as session:
        session.add(tables.SubmissionMember(submission_id=second, user_id=both.users["ben"]))
    page = text(both.client("anna").get(url))
    assert "your extension" in page
    assert second in page
    assert f'3.25 of 10 points</strong> (<a href="/submissions/{first}">Submission 1</a>)' in page
    assert "Homework quick" not in page
    both.grade(second, report(points=7.75))
    assert "7.75" not in text(both.client("anna").get(url))
    with both.store.write() as session:
        session.query(tables.Grade).filter_by(submission_id=second).one().released_at = moment
    assert "7.75 of 10 points" in text(both.client("anna").get(url))
    assert "7.75 of 10 points" in text(both.client("ben").get(url))
    staff = text(both.client("grader").get(url))
    assert "1 student submitted" in staff
    assert "hidden from students" in staff
    both.submit("anna")
    with queries(both) as few:
        both.client("anna").get(url)
    for _ in range(20):
        both.submit("anna")
    with queries(both) as many:
        both.client("anna").get(url)
    assert len(many) == len(few)


# --- the audit ----------------------------------------------------------------------------------------


def test_the_audit_of_a_course_in_plain_sentences(both: School) -> None:
    submission, elsewhere = both.submit("anna"), both.submit("ben", both.elsewhere)
    both.grade(submission, report())
    both.grade(elsewhere, report())
    teacher = both.client("teacher")
    post(teacher, f"/submissions/{submission}/release")
    post(both.client("stranger"), f"/submissions/{elsewhere}/release")
    made_link(both)
    url = f"/courses/{both.course}/audit"
    page = text(teacher.get(url))
    assert "Teacher released the grade of submission 1 of Anna for “Homework hw1”." in page
    assert "Teacher created a link for Anna to set a password." in page
    post(teacher, f"{people(both)}/{both.users['anna']}/role", role="grader")
    assert "student → grader" in text(teacher.get(url))
    due = {"before": None, "due": "2026-11-25T21:59:00+00:00", "student": both.users["anna"], "points": 1.5}
    with both.store.write() as session:
        write_audit(session, "user:1", "extension.give", f"assignment:{both.assignment}", due)
    assert "due: 25 Nov 2026, 21:59 UTC · points: 1.5 · student: Anna" in text(teacher.get(url))
    assert "Stranger" not in page
    grades = text(teacher.get(f"{url}?kind=grades"))
    assert "released the grade" in grades
    assert "created a link" not in grades
    assert "No results" in text(teacher.get(f"{url}?person=stranger"))
    assert "released the grade" in text(teacher.get(f"{url}?person=TEACH&kind=grades"))
    everything = text(both.client("admin").get("/audit"))
    assert "Stranger released the grade of submission 1 of Ben" in everything
    assert both.client("teacher").get(f"{url}?before=x&kind=%00&person=%00%25").status_code == 200


def test_the_audit_names_learning_platforms_and_says_what_other_things_are(both: School) -> None:
    urls = dict.fromkeys(("authorize_url", "token_url", "jwks_url"), "https://lms.example/x")
    of = {"issuer": "https://lms.example", "client_id": "7", "origins": [], "created_by": "Admin", **urls}
    with both.store.write() as session:
        platform = LtiPlatform(name="Moodle of the school", created_at=now(session), **of)
        session.add(platform)
        session.flush()
        write_audit(session, "user:1", "lti.platform.enabled", f"platform:{platform.id}", {"enabled": False})
        write_audit(session, "user:1", "lti.platform.enabled", "platform:999", {"enabled": False})
        write_audit(session, "user:1", "machine.drain", "machine:mac-studio-1", {"why": "heat"})
        write_audit(session, "user:1", "token.create", "token:999", {"scopes": ["submit", "read", "later"]})
    shown = text(both.client("admin").get("/audit"))
    assert "turned the learning platform “Moodle of the school” on or off." in shown
    assert "machine mac-studio-1" in shown
    assert "scopes: submit; read status and results; later" in shown
    assert "999" in shown, "of what is gone the number stays"


def test_the_audit_is_paged_and_asks_the_same_for_any_length(school: School) -> None:
    teacher, url = school.client("teacher"), f"/courses/{school.course}/audit"
    made_link(school)
    with queries(school) as few:
        teacher.get(url)
    for _ in range(2):
        post(teacher, f"{people(school)}/invite", user=[school.users["anna"], school.users["ben"]])
    with school.store.write() as session:
        for number in range(120):
            tables_row = tables.Audit(
                at=now(session),
                actor=f"user:{school.users['grader']}",
                action="grade.view",
                object=f"submission:{number:032x}",
                course_id=school.course,
                detail={"<b>x</b>": "<script>alert(1)</script>"},
            )
            session.add(tables_row)
    with queries(school) as many:
        page = text(teacher.get(url))
    assert len(many) <= len(few) + 1  # submissions are looked up, too
    assert page.count("viewed the grade") == 25
    assert "<script>alert" not in page
    seen = 25
    while older := re.search(r'href="([^"]+before=\d+)"', page):
        page = text(teacher.get(older[1].replace("&amp;", "&")))
        seen += page.count("viewed the grade")
    assert seen == 120


def test_rows_find_their_course_by_themselves(school: School) -> None:
    submission = school.submit("anna")
    objects = {
        f"submission:{submission}": school.course,
        f"assignment:{school.assignment}": school.course,
        f"course:{school.course}": school.course,
        f"user:{school.course}": None,
        "submission:gone": None,
        "assignment:99999999999": None,
        "assignment:x": None,
        "database": None,
    }
    with school.store.write() as session:
        for one in objects:
            write_audit(session, "test", "test.row", one)
        write_audit(session, "test", "test.row", "user:1", course_id=school.course)
    with school.store.read() as session:
        rows = session.query(tables.Audit).filter_by(action="test.row").order_by(tables.Audit.id).all()
        assert {row.object: row.course_id for row in rows[:-1]} == objects
        assert rows[-1].course_id == school.course


def test_linkable_is_asked_by_whoever_makes_links(school: School) -> None:
    with school.store.read() as session:
        teacher = users.actor_of(session, session.get_one(tables.User, school.users["teacher"]))
        invitations.require_invitable(session, teacher, school.course, [school.users["anna"]])
        for name in ("grader", "stranger", "admin"):
            with pytest.raises(Forbidden):
                invitations.require_invitable(session, teacher, school.course, [school.users[name]])
