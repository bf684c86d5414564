"""The page of stress tests: it says first whether grades hold, then what helps, then all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grading.store import tables
from grading.store.database import now
from tests.integration.webapp import School


@pytest.fixture
def school(tmp_path: Path) -> School:
    return School(tmp_path)


def planted(school: School, criteria: tuple[str, ...]) -> None:
    """A stress test whose model praise moves on the first criterion, and instructions on another, held."""
    source = school.submit("anna")
    got = dict.fromkeys(criteria, 1.0)
    rows = [
        ("unchanged.1", "unchanged", "same", got, False),
        ("praise.prose", "praise", "not higher", {**got, criteria[0]: 3.0}, False),
        ("instructions.comments.1", "instructions", "not higher", {**got, criteria[1]: 3.0}, True),
        ("names.1", "names", "same", got, False),
    ]
    with school.store.write() as session:
        version = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
        test = tables.StressTest(
            id=tables.new_id(), assignment_id=school.assignment, rubric_version_id=version.id, seed=1,
            by=school.users["teacher"], created_at=now(session), finished_at=now(session),
        )  # fmt: skip
        session.add(test)
        session.flush()
        for key, family, expects, points, held in rows:
            outcome = {"criteria": points, "total": sum(points.values()), "held": held, "flags": []}
            session.add(
                tables.StressVariant(
                    stress_test_id=test.id, source_id=source, key=key, family=family, expects=expects,
                    ended=True, outcome=outcome,
                )
            )  # fmt: skip


def test_the_first_lines_say_whether_grades_hold_and_what_helps(school: School) -> None:
    address = f"/assignments/{school.assignment}/trust/stress-test"
    client = school.client("teacher")
    assert "Start stress test" in client.get(address).text
    assert "Start stress test" not in school.client("grader").get(address).text
    with school.store.read() as session:
        version = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
        criteria = tuple(one["id"] for one in version.rubric["criteria"])
    planted(school, criteria)
    page = client.get(address).text
    for said in (
        "1 of 3 kinds of variants would move released grades.",
        "1 more kind sways the model, but every such grade waits for review.",
        "On average, released grades gain at most ",
        "What moves grades, and what helps",
        "Praise in the text (up to +",
        "Instructions to the model, in comments",
    ):
        assert said in page, said
    german = client.get(address, headers={"Accept-Language": "de"}).text
    assert "1 von 3 Arten von Varianten würde freigegebene Bewertungen verändern." in german
