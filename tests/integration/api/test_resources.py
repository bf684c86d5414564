"""What programs do by the API, resource by resource; who may what is in `pages_expected.py`."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import update
from werkzeug.test import TestResponse

from app.api import framework, openapi
from app.api.docs_page import operations_by_tag
from app.api.routes import PREFIX, ROUTES, Deprecation
from grading.domain.permissions import SCOPES
from grading.store import tables
from grading.store.courses import courses
from grading.store.database import now
from tests.integration.webapp import School, report

ALL = ("read", "submit", "grade", "manage")


class Script:
    """Somebody's program."""

    def __init__(self, school: School, name: str) -> None:
        self.client: FlaskClient = school.client()
        self.token = school.token(name, *ALL)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {} if body is None else {"json": body}
        path = path if path.startswith(PREFIX) else PREFIX + path
        return self.client.open(path, method=method, headers={**self.token, **more}, **sent)

    def get(self, path: str) -> Any:
        answer = self("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.get_json()


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    """For what changes nothing."""
    made = School(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


def graded(school: School, name: str = "anna", **changes: Any) -> str:
    submission = school.submit(name)
    school.grade(submission, report(**changes))
    return submission


def code(answer: TestResponse) -> tuple[int, str]:
    assert answer.mimetype == "application/problem+json", answer.text
    return answer.status_code, answer.get_json()["code"]


# --- the table and its document -------------------------------------------------------------------------


def test_the_document_has_every_route_and_no_other(shared: School) -> None:
    document = shared.client().get(f"{PREFIX}/openapi.json").get_json()
    described = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    there = {
        (method, rule.rule.replace("<int:", "<").replace("<path:", "<").replace("<", "{").replace(">", "}"))
        for rule in shared.app.url_map.iter_rules()
        if rule.endpoint.startswith("api.")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert described == there
    assert document["openapi"] == "3.1.0"
    assert {route.tag for route in ROUTES} == set(openapi.TAGS)
    for route in ROUTES:
        said = document["paths"][openapi.path_of(route)][route.method.lower()]
        assert said["security"] == [{"token": sorted(route.guard.scopes)}]
        assert {int(one) for one in said["responses"]} == {route.status, *route.statuses}


def test_what_is_kept_of_answers_names_nobody() -> None:
    """An answer to a POST waits by its key for weeks: numbers, truths, ids, addresses, names of systems.

    The delivery of a test message is none yet when the message was only asked for.
    """
    for route in ROUTES:
        if route.keyed and not route.by_hand:
            assert route.gives is not None, route.name
            texts = {
                name for name, one in route.gives.model_fields.items() if one.annotation not in (int, bool)
            }
            named = {"id", "url", "state", "submission", "message_id", "receiver", "connection"}
            named |= {"type", "created_at", "delivery"}
            assert texts - set(route.said_once) <= named, route.name


def test_a_deprecated_route_says_so_in_every_answer_and_in_the_document(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_me = next(one for one in ROUTES if one.name == "me")
    notice = Deprecation(since=date(2027, 1, 1), sunset=date(2028, 1, 1))
    old = replace(of_me, rule="/old", deprecated=notice)
    school.app.add_url_rule(f"{PREFIX}/old", "api.old", framework.handler(old))
    answers = [Script(school, "anna")("GET", "/old"), school.client().get(f"{PREFIX}/old")]
    assert [answer.status_code for answer in answers] == [200, 401]
    for answer in answers:
        assert answer.headers["Deprecation"] == "@1798761600"
        assert answer.headers["Sunset"] == "Sat, 01 Jan 2028 00:00:00 GMT"
    assert "Deprecation" not in Script(school, "anna")("GET", "/me").headers
    monkeypatch.setattr(openapi, "ROUTES", [old, of_me])
    paths = openapi.document.__wrapped__()["paths"]
    operation = paths[f"{PREFIX}/old"]["get"]
    assert operation["deprecated"] is True
    assert all({"Deprecation", "Sunset"} <= set(one["headers"]) for one in operation["responses"].values())
    assert "deprecated" not in paths[f"{PREFIX}/me"]["get"]
    with pytest.raises(ValueError, match="365 days"):
        Deprecation(since=date(2027, 1, 1), sunset=date(2027, 12, 31))


def test_people_read_the_same(shared: School) -> None:
    page = shared.client("anna").get("/help/api").get_data(as_text=True)
    for route in ROUTES:
        assert f"{route.method} {openapi.path_of(route)}".replace("'", "&#39;") in page
    assert "/help/api" in shared.client("anna").get("/tokens").get_data(as_text=True)


def test_people_read_what_a_value_may_be() -> None:
    operations = {one.anchor: one for _, _, listed in operations_by_tag() for one in listed}
    submissions = {one.name: one.kind for one in operations["submissions"].parameters}
    assert (submissions["limit"], submissions["since"]) == ("integer", "date-time")
    assert submissions["status"] == '"received" | "queued" | "running" | "graded" | "partial" | "failed"'
    status = {one.name: one.kind for one in operations["status"].gives}
    assert status["timing"] == "{ received_at, prepared_at, dispatched_at, finished_at }"
    assert status["queue"] == "{ position, eta_s } | null"
    assert (status["report"], status["flags"]) == ("object | null", "[ object ]")


def test_scopes_are_offered_to_whom_they_are_of_use(shared: School) -> None:
    offered = {
        name: set(re.findall(r'name="scope" value="(\w+)"', shared.client(name).get("/tokens").text))
        for name in ("anna", "grader", "teacher", "admin")
    }
    assert offered["anna"] == {"submit", "read"}
    assert offered["grader"] == offered["teacher"] == {"submit", "read", "grade", "manage", "chat"}
    assert offered["admin"] == set(SCOPES)
    mine = Script(shared, "teacher")
    mine.token = shared.token("teacher", "read")
    refused = mine("PATCH", f"/courses/{shared.course}", {"title": "Another"}, If_Match="*")
    assert code(refused) == (403, "scope_missing")
    assert "'manage'" in refused.get_json()["detail"]


# --- lists ----------------------------------------------------------------------------------------------


def test_a_list_is_walked_to_its_end_whatever_comes_meanwhile(school_url: str) -> None:
    school = School(school_url)
    teacher = Script(school, "teacher")
    expected = [school.submit(name) for name in ("anna", "ben", "anna", "ben", "anna")][::-1]
    found, address = [], "/submissions?limit=2&status=received"
    while address:
        answer = teacher("GET", address)
        page = answer.get_json()
        assert len(page["items"]) <= 2
        assert ('rel="next"' in answer.headers.get("Link", "")) == (page["next"] is not None)
        found += [one["id"] for one in page["items"]]
        address = page["next"]
        school.submit("ben")  # newer than all that was shown
    assert found == expected
    first = school.submit("anna")
    with school.store.write() as session:
        session.query(tables.Submission).filter_by(id=first).one().created_at = now(session)
    assert [one["id"] for one in teacher.get("/submissions?limit=1&student=anna")["items"]] == [first]
    school.close()


def test_a_list_can_begin_with_the_oldest(school_url: str) -> None:
    school = School(school_url)
    teacher = Script(school, "teacher")
    expected = [school.submit(name) for name in ("anna", "ben", "anna", "ben")]
    found, address = [], "/submissions?limit=2&sort=oldest"
    while address:
        page = teacher.get(address)
        found += [one["id"] for one in page["items"]]
        address = page["next"]
        if len(found) == 2:
            expected.append(school.submit("ben"))  # comes last
    assert found == expected
    assert [one["id"] for one in teacher.get("/submissions?sort=newest")["items"]] == expected[::-1]
    assert code(teacher("GET", "/submissions?sort=length")) == (422, "field_invalid")
    school.close()


def test_many_submissions_are_asked_for_at_once(school_url: str) -> None:
    school = School(school_url)
    teacher, anna = Script(school, "teacher"), Script(school, "anna")
    mine, theirs, third = (school.submit(name) for name in ("anna", "ben", "ben"))
    elsewhere = school.submit("stranger", school.elsewhere)
    asked = "&".join(f"id={one}" for one in (mine, theirs, elsewhere, "0" * 32))
    seen = {one["id"]: one["status"] for one in teacher.get(f"/submissions?{asked}")["items"]}
    assert seen == {mine: "received", theirs: "received"}
    assert [one["id"] for one in anna.get(f"/submissions?{asked}")["items"]] == [mine]
    first = teacher.get(f"/submissions?id={third}&id={mine}&limit=1&sort=oldest")
    assert [one["id"] for one in first["items"]] == [mine]
    second = teacher.get(first["next"])
    assert ([one["id"] for one in second["items"]], second["next"]) == ([third], None)
    many = "&".join(f"id={number}" for number in range(201))
    assert code(teacher("GET", f"/submissions?{many}")) == (422, "field_invalid")
    assert code(teacher("GET", "/submissions?id=")) == (422, "field_invalid")
    school.close()


def test_every_list_goes_on_by_its_cursor(school: School) -> None:
    admin = Script(school, "admin")
    school.submit("anna")
    for path, key in (
        ("/courses", "id"),
        ("/assignments", "id"),
        (f"/courses/{school.course}/members", "user_id"),
        (f"/assignments/{school.assignment}/grades", "student_id"),
    ):
        whole = [one[key] for one in admin.get(path)["items"]]
        first = admin.get(f"{path}?limit=1")
        second = admin.get(first["next"])
        assert [first["items"][0][key], second["items"][0][key]] == whole[:2], path


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("colour=red", "colour"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=1.5", "limit"),
        ("limit=2&limit=3", "limit"),
        ("status=lost", "status"),
        ("since=yesterday", "since"),
        ("since=1700000000", "since"),
        ("flagged=yes", "flagged"),
        ("course=-1", "course"),
    ],
)
def test_a_parameter_that_cannot_be_taken_is_named(shared: School, query: str, named: str) -> None:
    answer = Script(shared, "teacher")("GET", f"/submissions?{query}")
    assert code(answer) == (422, "field_invalid")
    assert named in answer.get_json()["detail"]


def test_a_made_up_cursor_is_refused(shared: School) -> None:
    teacher = Script(shared, "teacher")
    for cursor in ("x", "WzFd", "bnVsbA", "WyJ4IiwieSJd", "%00"):
        assert code(teacher("GET", f"/submissions?cursor={cursor}")) == (422, "cursor_invalid")
    assert code(teacher("GET", "/courses?cursor=WyJ4Il0")) == (422, "cursor_invalid")


def test_filters_tell_students_no_more_than_lines_do(school_url: str) -> None:
    school = School(school_url)
    submission = graded(school)
    teacher, anna = Script(school, "teacher"), Script(school, "anna")
    assert [one["id"] for one in teacher.get("/submissions?flagged=true&student=anna")["items"]] == [
        submission
    ]
    assert anna.get("/submissions?flagged=true")["items"] == []
    (mine,) = anna.get("/submissions?flagged=false")["items"]
    assert (mine["score"], mine["flags"], mine["held"], mine["released"]) == (None, None, None, False)
    assert Script(school, "ben").get("/submissions")["items"] == []
    assert Script(school, "stranger").get(f"/submissions?course={school.course}")["items"] == []
    assert teacher.get("/submissions?student=nobody")["items"] == []
    assert teacher.get("/submissions?since=2100-01-01T00:00:00Z")["items"] == []
    assert teacher.get("/submissions?until=0001-01-01T00:00:00%2B14:00")["items"] == []
    school.close()


# --- once -----------------------------------------------------------------------------------------------


def test_a_key_does_something_once_and_answers_the_same(school: School) -> None:
    admin = Script(school, "admin")
    new = {"slug": "new", "title": "New"}
    first = admin("POST", "/courses", new, Idempotency_Key="k")
    again = admin("POST", "/courses", new, Idempotency_Key='"k"')  # quoted, as a structured field
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.get_json() == first.get_json()
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert school.count(tables.Course) == 3
    other = admin("POST", "/courses", {**new, "slug": "other"}, Idempotency_Key="k")
    assert code(other) == (422, "idempotency_key_reused")
    elsewhere = admin("POST", f"/assignments/{school.assignment}/release", new, Idempotency_Key="k")
    assert elsewhere.status_code == 422
    # somebody else's key of the same name is another one
    named = {"everything": True}
    theirs = Script(school, "teacher")(
        "POST", f"/assignments/{school.assignment}/release", named, Idempotency_Key="k"
    )
    assert theirs.status_code == 200


def test_what_was_refused_leaves_no_key(school: School) -> None:
    admin = Script(school, "admin")
    taken = {"slug": "ba", "title": "Again"}
    assert code(admin("POST", "/courses", taken, Idempotency_Key="k")) == (409, "conflict")
    assert school.count(tables.IdempotencyKey) == 0
    assert admin("POST", "/courses", {**taken, "slug": "ba2"}, Idempotency_Key="k").status_code == 201


def test_a_key_that_is_in_use_is_refused(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, seen = Script(school, "admin"), []
    create = courses.create_course

    def meanwhile(*args: Any, **kwargs: Any) -> int:
        seen.append(code(admin("POST", "/courses", {"slug": "new", "title": "New"}, Idempotency_Key="k")))
        return create(*args, **kwargs)

    monkeypatch.setattr(courses, "create_course", meanwhile)
    new = {"slug": "new", "title": "New"}
    assert admin("POST", "/courses", new, Idempotency_Key="k").status_code == 201
    assert seen == [(409, "idempotency_key_in_use")]


def test_the_same_at_once_beside_other_processes_is_done_once(
    school_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framework, "in_use", lambda _: nullcontext())  # that looks at one process only
    school = School(school_url)
    token = school.token("admin", *ALL)
    start, found = threading.Barrier(8), list[tuple[int, str]]()

    def post() -> None:
        start.wait()
        sent = {"slug": "new", "title": "New"}
        headers = {**token, "Idempotency-Key": "k"}
        answer = school.app.test_client().post(f"{PREFIX}/courses", json=sent, headers=headers)
        found.append((answer.status_code, answer.text))

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {status for status, _ in found} == {201}
    assert len(set(found)) == 1
    assert school.count(tables.Course) == 3
    school.close()


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\u00e9"])
def test_keys_are_printable_and_short(shared: School, key: str) -> None:
    answer = Script(shared, "admin")("POST", "/courses", {"slug": "a", "title": "A"}, Idempotency_Key=key)
    assert code(answer) == (422, "field_invalid")


# --- courses, people, assignments, rubrics ----------------------------------------------------------------


def test_a_course_from_nothing_to_a_grade(school: School) -> None:
    admin = Script(school, "admin")
    made = admin("POST", "/courses", {"slug": "ds", "title": "Data", "instructor": "teacher"}).get_json()
    teacher = Script(school, "teacher")
    people = {"members": [{"id": "ada", "name": "Ada", "email": "ada@x.example"}, {"id": "anna"}]}
    added = teacher("POST", f"{made['url']}/members", people, Idempotency_Key="people")
    assert added.get_json() == {"made": 1, "joined": 1, "changed": 0, "unchanged": 0}
    assert teacher("POST", f"{made['url']}/members", people, Idempotency_Key="people").text == added.text
    with school.store.read() as session:
        kept = json.dumps([one.answer for one in session.query(tables.IdempotencyKey)])
    assert "da" not in kept.replace("data", "")  # nothing of a person waits there for its erasure
    by_name = {one["id"]: one for one in teacher.get(f"{made['url']}/members?role=student")["items"]}
    assert by_name["ada"]["name"] == "Ada"
    ada = f"{made['url']}/members/{by_name['ada']['user_id']}"
    assert teacher("PATCH", ada, {"role": "grader"}).get_json()["role"] == "grader"
    assert teacher("DELETE", ada).status_code == 204
    assert code(teacher("GET", ada)) == (404, "not_found")
    new = {"title": "Basket", "slug": "basket", "due": "2030-01-01T00:00:00+01:00", "task": "Do it."}
    there = teacher("POST", f"{made['url']}/assignments", new).get_json()
    shown = teacher("GET", there["url"])
    assert shown.get_json()["due"] == "2029-12-31T23:00:00Z"
    rubric = {"criteria": [{"id": "load", "title": "Loads", "points": 5}]}
    before = teacher("GET", f"{there['url']}/rubric?which=newest")
    put = {"rubric": rubric, "publish": True, "note": "first"}
    done = teacher("PUT", f"{there['url']}/rubric", put, If_Match=before.headers["ETag"])
    assert done.get_json() == {"version": 2, "published": True}
    stale = teacher("PUT", f"{there['url']}/rubric", put, If_Match=before.headers["ETag"])
    assert code(stale) == (412, "changed_meanwhile")
    assert teacher.get(f"{there['url']}/rubric")["max_points"] == 5
    assert [one["version"] for one in teacher.get(f"{there['url']}/versions")["items"]] == [2, 1]
    assert {one["title"] for one in Script(school, "anna").get("/assignments")["items"]} >= {"Basket"}


@pytest.mark.parametrize(
    ("rubric", "named"),
    [
        ({}, "criteria"),
        ({"criteria": []}, "criteria"),
        ({"criteria": [{"id": "a", "title": "A", "points": -1}]}, "points"),
        ({"criteria": [{"id": "a", "title": "A", "points": 1, "stage": "none"}]}, "stage"),
    ],
)
def test_a_wrong_rubric_names_the_field(shared: School, rubric: dict[str, Any], named: str) -> None:
    path = f"/assignments/{shared.assignment}/rubric"
    answer = Script(shared, "teacher")("PUT", path, {"rubric": rubric}, If_Match="*")
    assert code(answer) == (422, "rubric_invalid")
    assert named in answer.get_json()["detail"]


def test_one_bad_person_adds_nobody(shared: School) -> None:
    before = shared.count(tables.User)
    people = {"members": [{"id": "new"}, {"id": "bad", "email": "none"}]}
    answer = Script(shared, "teacher")("POST", f"/courses/{shared.course}/members", people)
    assert code(answer) == (422, "member_refused")
    assert "members.1" in answer.get_json()["detail"]
    assert shared.count(tables.User) == before


def test_dates_far_away_and_names_that_are_taken_are_refused(shared: School) -> None:
    teacher, path = Script(shared, "teacher"), f"/assignments/{shared.assignment}"
    for due in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"):
        assert code(teacher("PATCH", path, {"due": due}, If_Match="*")) == (422, "date_invalid")
    assert code(teacher("PATCH", path, {"slug": "quick"}, If_Match="*")) == (422, "assignment_invalid")
    assert code(teacher("PATCH", path, {"late": {"days": -1}}, If_Match="*"))[0] == 422


def test_lost_updates_are_refused(school: School) -> None:
    teacher = Script(school, "teacher")
    for path, change in (
        (f"/courses/{school.course}", {"title": "Another"}),
        (f"/assignments/{school.assignment}", {"title": "Another"}),
    ):
        tag = teacher("GET", path).headers["ETag"]
        assert code(teacher("PATCH", path, change)) == (428, "if_match_missing")
        done = teacher("PATCH", path, change, If_Match=tag)
        assert (done.status_code, done.get_json()["title"]) == (200, "Another")
        assert code(teacher("PATCH", path, {"title": "Third"}, If_Match=tag)) == (412, "changed_meanwhile")
        assert done.headers["ETag"] == teacher("GET", path).headers["ETag"]
        assert teacher("GET", path, If_None_Match=done.headers["ETag"]).status_code == 304


# --- results ----------------------------------------------------------------------------------------------


def test_a_change_keeps_the_original_and_refuses_lost_updates(school: School) -> None:
    submission = graded(school)
    teacher, path = Script(school, "teacher"), f"/submissions/{submission}"
    seen = teacher("GET", f"{path}/result").headers["ETag"]
    change = {"kind": "points", "target": "load", "points": 1, "reason": "The file is not read."}
    assert code(teacher("POST", f"{path}/changes", change)) == (428, "if_match_missing")
    made = teacher("POST", f"{path}/changes", change, If_Match=seen, Idempotency_Key="c")
    assert made.status_code == 201
    assert teacher("POST", f"{path}/changes", change, If_Match=seen, Idempotency_Key="c").text == made.text
    late = {**change, "points": 2}
    assert code(teacher("POST", f"{path}/changes", late, If_Match=seen)) == (412, "changed_meanwhile")
    load = teacher.get(f"{path}/result")["criteria"][0]
    assert (load["points"], load["original_points"], load["changed_because"]) == (1, 4, change["reason"])
    without = {**change, "reason": ""}
    assert code(teacher("POST", f"{path}/changes", without, If_Match="*")) == (422, "change_refused")
    number = made.get_json()["change"]
    undone = teacher("DELETE", f"{path}/changes/{number}", If_Match=made.headers["ETag"])
    assert undone.status_code == 204
    assert teacher.get(f"{path}/result")["score"] == 8.5
    (kept,) = teacher.get(f"{path}/changes")["items"]
    assert (kept["before"], kept["value"], kept["undone_by"]) == ({"points": 4.0}, {"points": 1.0}, "Teacher")
    with school.store.read() as session:
        actions = [one.action for one in session.query(tables.Audit).order_by(tables.Audit.id)]
    assert [one for one in actions if one.startswith("grade.")] == ["grade.change", "grade.undo"]


def test_students_see_results_between_release_and_withdrawal(school: School) -> None:
    one, other = graded(school), graded(school, "ben", held=True)
    teacher, anna = Script(school, "teacher"), Script(school, "anna")
    assert code(anna("GET", f"/submissions/{one}/result")) == (404, "not_found")
    path = f"/assignments/{school.assignment}"
    assert code(teacher("POST", f"{path}/release", {})) == (422, "nothing_named")
    assert teacher("POST", f"{path}/release", {"everything": True}).get_json() == {"count": 1}
    assert anna.get(f"/submissions/{one}/result")["score"] == 8.5
    assert teacher("POST", f"/submissions/{other}/release").get_json()["released"] is True
    wanted = {"submissions": [one], "reason": "A mistake"}
    assert teacher("POST", f"{path}/withdraw", wanted).get_json() == {"count": 1}
    assert code(anna("GET", f"/submissions/{one}/result")) == (404, "not_found")
    states = {one["student"]: one["released"] for one in teacher.get(f"{path}/grades")["items"]}
    assert states == {"anna": False, "ben": True}


def test_regrades_are_asked_answered_and_rerun(school: School) -> None:
    submission = graded(school)
    teacher, anna = Script(school, "teacher"), Script(school, "anna")
    teacher("POST", f"/submissions/{submission}/release")
    path = f"/submissions/{submission}/regrades"
    assert code(anna("POST", path, {"reason": "No."})) == (422, "regrade_refused")
    asked = anna("POST", path, {"reason": "The file is read in line 3.", "criterion": "load"}).get_json()
    assert [one["id"] for one in teacher.get("/regrades?state=open")["items"]] == [asked["id"]]
    assert [one["id"] for one in anna.get("/regrades")["items"]] == [asked["id"]]
    too_many = {"verdict": "points", "words": "You are right.", "points": 400}
    assert code(teacher("POST", f"{asked['url']}/answer", too_many)) == (422, "regrade_refused")
    answer = teacher("POST", f"{asked['url']}/answer", {**too_many, "points": 3})
    assert answer.get_json() == {"id": asked["id"], "state": "accepted"}
    assert anna.get(asked["url"])["answer"] == "You are right."
    reruns = f"/assignments/{school.assignment}/reruns"
    assert code(teacher("POST", reruns, {})) == (422, "regrade_refused")
    begun = teacher("POST", reruns, {"which": "latest"}, Idempotency_Key="r").get_json()
    assert teacher("POST", reruns, {"which": "latest"}, Idempotency_Key="r").get_json() == begun
    assert (begun["submissions"], len(school.dispatch.announced)) == (1, 1)
    assert teacher.get(begun["url"])["total"] == 1
    assert teacher("POST", f"{begun['url']}/discard").get_json()["state"] == "discarded"
    assert teacher.get(begun["url"])["discarded_at"]
    assert len(teacher.get(reruns)["items"]) == 1


def test_files_and_exports(school: School) -> None:
    submission = graded(school)
    teacher = Script(school, "teacher")
    (file,) = teacher.get(f"/submissions/{submission}/files")["items"]
    got = teacher("GET", file["url"])
    assert (len(got.data), got.mimetype) == (file["size"], "application/octet-stream")
    assert got.headers["Content-Disposition"] == "attachment; filename=work.py"
    table = teacher("GET", f"/assignments/{school.assignment}/grades.csv?criteria=true&separator=semicolon")
    assert table.text.splitlines()[0].startswith("id;name;state;")
    assert teacher("GET", f"/courses/{school.course}/grades.csv").text.startswith("id,name,")
    assert teacher("GET", f"/assignments/{school.assignment}/everything.zip").data[:2] == b"PK"
    moved = update(tables.Blob).values(object_key="aa/in-an-object-store", data=b"")
    with school.store.write() as session:
        session.execute(moved)
    away = teacher("GET", file["url"])  # no object store is there
    assert (code(away), away.headers["Retry-After"]) == ((503, "files_unavailable"), "30")
    assert graded(school, "ben")


# --- bodies and limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (b"{", "application/json", (422, "field_invalid")),
        (b"[]", "application/json", (422, "field_invalid")),
        (b'{"slug": "a", "title": "\\u0000"}', "application/json", (422, "nul_refused")),
        (b'{"slug": "a", "title": "\\ud800"}', "application/json", (422, "field_invalid")),
        (b'{"slug": "a", "title": 1}', "application/json", (422, "field_invalid")),
        (b"[" * 100_000, "application/json", (422, "field_invalid")),
        (b"slug=a", "application/x-www-form-urlencoded", (415, "wrong_content_type")),
        (b" " * (2 * 1024 * 1024), "application/json", (422, "field_invalid")),
        (b" " * (2 * 1024 * 1024 + 1), "application/json", (413, "upload_too_large")),
    ],
)
def test_bodies_that_cannot_be_taken(
    shared: School, data: bytes, kind: str, expected: tuple[int, str]
) -> None:
    headers = {**shared.token("admin", *ALL), "Content-Type": kind}
    assert code(shared.client().post(f"{PREFIX}/courses", data=data, headers=headers)) == expected


def test_limits_are_told_and_kept(tmp_path: Path) -> None:
    school = School(tmp_path, api_per_minute=2)
    first, second = Script(school, "anna"), Script(school, "anna")  # two tokens of one person
    answers = [first("GET", "/me"), second("GET", "/me"), first("GET", "/courses")]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert [one.headers["RateLimit"].split(";")[1] for one in answers] == ["r=1", "r=0", "r=0"]
    assert answers[0].headers["RateLimit-Policy"] == '"api";q=2;w=60'
    assert code(answers[2]) == (429, "too_many_requests")
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 60
    assert Script(school, "ben")("GET", "/me").status_code == 200
    school.close()
