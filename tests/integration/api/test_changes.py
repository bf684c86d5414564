"""What a PATCH changes: the field it names, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.api import openapi
from app.api.routes import ROUTES, Route
from tests.integration.api.test_resources import Script, code
from tests.integration.webapp import School

ASSIGNMENT: dict[str, Any] = {
    "title": "Basket",
    "slug": "basket",
    "language": "r",
    "due": "2026-12-01T22:59:00Z",
    "release": "at",
    "release_at": "2026-12-09T08:00:00Z",
    "late": {"grace_minutes": 5, "per_day": 0.1, "at_least": 0.5, "days": 3},
    "max_submissions": 3,
    "group_size": 2,
    "counts": "best",
    "visible": False,
}
"""Each field as a new assignment would not have it."""
ANOTHER: dict[str, Any] = {
    "title": "Market basket",
    "slug": "market-basket",
    "language": "python",
    "due": "2026-12-02T22:59:00Z",
    "release_at": "2026-12-10T08:00:00Z",
    "late": {"grace_minutes": 0, "per_day": 0.2, "at_least": 0.0, "days": None},
    "max_submissions": 4,
    "group_size": 3,
    "counts": "latest",
    "visible": True,
}
CLEARED = {"due", "release_at", "max_submissions"}
"""What can be taken away: `null` is a value of them."""
COURSE = {"title": "Analytics", "archived": True, "drop_lowest": 1}
PATCHES = [route for route in ROUTES if route.method == "PATCH"]


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def assignment(school: School) -> str:
    """The address of one whose settings are ASSIGNMENT."""
    there = Script(school, "teacher")("POST", f"/courses/{school.course}/assignments", ASSIGNMENT)
    assert there.status_code == 201, there.text
    return str(there.get_json()["url"])


@pytest.mark.parametrize("field", sorted(ANOTHER))
def test_a_change_of_one_field_of_an_assignment_leaves_the_others(
    school: School, assignment: str, field: str
) -> None:
    teacher = Script(school, "teacher")
    before = teacher.get(assignment)
    done = teacher("PATCH", assignment, {field: ANOTHER[field]}, If_Match="*")
    assert done.status_code == 200, done.text
    expected = {**before, field: ANOTHER[field]}
    if field == "slug":
        expected["path"] = f"ba/{ANOTHER[field]}"
    assert done.get_json() == expected == teacher.get(assignment)


def test_without_a_date_of_release_there_is_none(school: School, assignment: str) -> None:
    teacher = Script(school, "teacher")
    before = teacher.get(assignment)
    done = teacher("PATCH", assignment, {"release": "at_once"}, If_Match="*")
    assert done.get_json() == {**before, "release": "at_once", "release_at": None}


@pytest.mark.parametrize("field", sorted(ASSIGNMENT))
def test_null_takes_away_what_can_be_taken_away(school: School, assignment: str, field: str) -> None:
    teacher = Script(school, "teacher")
    before = teacher.get(assignment)
    done = teacher("PATCH", assignment, {field: None}, If_Match="*")
    if field == "release_at":  # this one is released at a date
        assert code(done) == (422, "assignment_invalid")
    elif field in CLEARED:
        assert done.get_json() == {**before, field: None}
    else:
        assert code(done) == (422, "field_invalid")
        assert done.get_json()["detail"].startswith(field)


@pytest.mark.parametrize("field", sorted(COURSE))
def test_a_change_of_one_field_of_a_course_leaves_the_others(school: School, field: str) -> None:
    teacher, path = Script(school, "teacher"), f"/courses/{school.course}"
    before = teacher.get(path)
    assert before[field] != COURSE[field]
    assert code(teacher("PATCH", path, {field: None}, If_Match="*")) == (422, "field_invalid")
    done = teacher("PATCH", path, {field: COURSE[field]}, If_Match="*")
    assert done.get_json() == {**before, field: COURSE[field]} == teacher.get(path)


@pytest.mark.parametrize("route", PATCHES, ids=[route.name for route in PATCHES])
def test_the_description_of_a_change_has_no_defaults(route: Route) -> None:
    """Generated clients send those that it has, and so would reset what they do not name."""
    assert route.body is not None
    fields = openapi.document()["components"]["schemas"][route.body.__name__]["properties"]
    assert [name for name, field in fields.items() if "default" in field] == []
    nullable = {name for name, field in fields.items() if {"type": "null"} in field.get("anyOf", ())}
    assert nullable <= CLEARED
