"""What instructors' programs do by the API for single students: extensions and groups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from grading.store import tables
from grading.store.database import now
from tests.integration.api.test_resources import Script, code
from tests.integration.webapp import School


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    with made.store.write() as session:
        found = session.get_one(tables.Assignment, made.assignment)
        found.due_at = now(session) + timedelta(days=1)
    yield made
    made.close()


def later(school: School, days: int) -> str:
    with school.store.read() as session:
        return (now(session) + timedelta(days=days)).isoformat()


def test_extensions_are_given_listed_and_taken_back(school: School) -> None:
    teacher, path = Script(school, "teacher"), f"/assignments/{school.assignment}/extensions"
    both = [school.users["anna"], school.users["ben"]]
    wanted = {"students": both, "due": later(school, 5), "reason": "ill"}
    given = [teacher("POST", path, wanted, Idempotency_Key="e1").get_json() for _ in range(2)]
    assert given == [{"count": 2}] * 2
    first = teacher.get(f"{path}?limit=1")
    (anna,), (ben,) = first["items"], teacher.get(first["next"])["items"]
    assert (anna["student_id"], anna["student"], anna["reason"], anna["by"]) == (
        school.users["anna"], "Anna", "ill", "Teacher",
    )  # fmt: skip
    assert ben["student_id"] == school.users["ben"]
    assert teacher("DELETE", f"{path}/{both[0]}").status_code == 204
    assert code(teacher("DELETE", f"{path}/{both[0]}")) == (404, "not_found")
    assert [one["student_id"] for one in teacher.get(path)["items"]] == both[1:]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"students": []}, 422),
        ({"students": [999]}, 422),
        ({"due": "2001-01-01T00:00:00Z"}, 422),
        ({"due": "9999-01-01T00:00:00Z"}, 422),
    ],
)
def test_extensions_that_cannot_be_given(school: School, change: dict[str, object], status: int) -> None:
    wanted = {"students": [school.users["anna"]], "due": later(school, 5), **change}
    teacher, path = Script(school, "teacher"), f"/assignments/{school.assignment}/extensions"
    assert teacher("POST", path, wanted).status_code == status
    assert teacher.get(path)["items"] == []


def test_groups_are_made_and_changed_by_who_saw_them(school: School) -> None:
    teacher, path = Script(school, "teacher"), f"/assignments/{school.assignment}/groups"
    place = [{"user_id": school.users[name], "group": "a"} for name in ("anna", "ben")]
    assert teacher.get(path) == {"size": 1, "items": []}
    assert code(teacher("PATCH", path, {"members": place}, If_Match="*")) == (422, "group_invalid")
    assert code(teacher("POST", f"{path}/fill")) == (422, "group_invalid")
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).group_size = 2
    seen = teacher("GET", path).headers["ETag"]
    (group,) = teacher("PATCH", path, {"members": place}, If_Match=seen).get_json()["items"]
    assert [(one["id"], one["name"], one["confirmed"]) for one in group["members"]] == [
        ("anna", "Anna", True),
        ("ben", "Ben", True),
    ]
    assert code(teacher("PATCH", path, {"members": place}, If_Match=seen)) == (412, "changed_meanwhile")
    assert teacher("PATCH", path, {"members": place}).status_code == 428
    alone = [{"user_id": school.users["anna"], "group": ""}]
    assert teacher("PATCH", path, {"members": alone}, If_Match="*").get_json()["items"] == []
    assert teacher("POST", f"{path}/fill").get_json() == {"groups": 1, "moved": 2}
    strange = [{"user_id": school.users["stranger"], "group": "a"}]
    assert code(teacher("PATCH", path, {"members": strange}, If_Match="*")) == (422, "group_invalid")
