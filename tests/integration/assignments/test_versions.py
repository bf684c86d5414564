"""Versions of an assignment: never changed, the newest counts, what was graded keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import select

from grading.store import Store, schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.tables import Assignment, Round, RubricVersion
from grading.store.views import authoring
from tests.support.factories import COURSE, RUBRIC, submit

FIRST = NewVersion("sales", "Sales", "r", "at_once", digest="1", rubric=RUBRIC, task="Sum it up.")


def test_versions_are_only_added(fresh_database: Callable[..., str]) -> None:
    store = Store(fresh_database(schema.upgrade))
    second = replace(FIRST, digest="2", task="Sum it up by region.")
    graded_with = {}
    for new, number, added in ((FIRST, 1, True), (FIRST, 1, False), (second, 2, True), (FIRST, 3, True)):
        with store.write() as session:
            assignment, version, is_new = versions.import_version(session, COURSE, new)
            assert (version.number, is_new) == (number, added)
        graded_with[submit(store, assignment.id).round_id] = number
    with store.read() as session:
        rows = session.scalars(select(RubricVersion).order_by(RubricVersion.number)).all()
        assert [row.task for row in rows] == ["Sum it up.", "Sum it up by region.", "Sum it up."]
        for round_id, number in graded_with.items():
            assert session.get_one(Round, round_id).rubric_version.number == number
        there = authoring.load_written(session, session.get_one(Assignment, assignment.id))
        found = (there.task, there.solution, there.tested, there.draft, there.published)
        assert found == (True, False, False, False, True)
        assert there.rubric == RUBRIC.model_dump(mode="json")
    store.close()
