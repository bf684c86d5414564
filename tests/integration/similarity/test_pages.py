"""Similar submissions: what a comparison finds and stores, who sees it, two submissions side by side."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from app.similarity.graph import drawn
from bench.similarity.planted import copied
from bench.similarity.programs import programs
from grading.documents import set_apart
from grading.domain.document import Document
from grading.domain.evidence import Evidence
from grading.domain.rubric import Rubric
from grading.store import tables
from grading.store.accounts import users
from grading.store.privacy.deletion import delete_submissions
from grading.store.views.similar_pairs import PairLine, Side
from tests.integration.grades.classroom import student
from tests.integration.webapp import School, form_token
from workers.server.answers import answer_rows
from workers.server.context import Server
from workers.server.housekeeping import do_chores

SIZE = 12


@pytest.fixture
def school(school_url: str) -> Iterator[School]:
    made = School(school_url)
    yield made
    made.store.close()


def handed_in(school: School, who: str, source: str, assignment: int | None = None) -> str:
    """A submission whose round has the answers that preparing it gives."""
    submission = school.submit(who, assignment, source.encode())
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        own = set_apart([Document.model_validate(one) for one in round_.submission.documents])
        rubric = Rubric.model_validate(round_.rubric_version.rubric)
        for row in answer_rows(own, rubric, (), Evidence()):
            of_it = {"round_id": round_.id, "submission_id": submission}
            session.add(tables.Answer(**of_it, assignment_id=round_.submission.assignment_id, **row))
    return submission


def sweep(school: School) -> None:
    """What the sweeper does when something is due."""
    do_chores(Server(config=school.services.config, store=school.store, dispatch=None))  # type: ignore[arg-type]


def test_a_copy_is_found_shown_to_staff_and_gone_with_its_student(school: School) -> None:
    sources = programs(SIZE, seed=3)
    works = []
    for n, source in enumerate(sources):
        student(school, f"student{n:02}")
        works.append(handed_in(school, f"student{n:02}", source))
    copy = handed_in(school, "ben", copied(sources[4], random.Random(7)))
    handed_in(school, "anna", "print(1)\n")
    elsewhere = handed_in(school, "stranger", copied(sources[6], random.Random(8)), school.elsewhere)
    url = f"/assignments/{school.assignment}/similarity"
    teacher = school.client("teacher")
    assert "Compare submissions" in teacher.get(url).get_data(as_text=True)
    done = teacher.post(f"{url}/compare", data={"csrf_token": form_token(teacher)})
    assert done.status_code == 303
    assert 'http-equiv="refresh"' in teacher.get(url).get_data(as_text=True)
    sweep(school)

    page = teacher.get(url).get_data(as_text=True)
    assert f"It includes {SIZE + 2} submissions of this assignment." in page
    assert "http-equiv" not in page
    pairs = re.findall(r'href="(/submissions/\w+/similarity/\w+)"', page)
    assert [set(pair.split("/")[2::2]) for pair in pairs] == [{works[4], copy}]
    assert page.count("<circle") == 2
    assert "Anna" in page[page.index("Not compared") :]
    with school.store.read() as session:
        found = {frozenset((row.one_id, row.other_id)) for row in session.query(tables.SimilarPair)}
    assert found == {frozenset({works[4], copy}), frozenset({works[6], elsewhere})}

    beside = teacher.get(pairs[0]).get_data(as_text=True)
    assert 'id="one-1"' in beside
    assert 'href="#other-1"' in beside
    assert beside.count("region-1") > 8
    course = teacher.get(f"/courses/{school.course}/similarity").get_data(as_text=True)
    assert pairs[0] in course
    other = f"/submissions/{works[6]}/similarity/{elsewhere}"
    seen = [
        school.client(who).get(path).status_code for who in ("ben", "teacher") for path in (pairs[0], other)
    ]
    assert seen == [404, 404, 200, 404]
    assert school.client("admin").get(other).status_code == 200
    with school.store.write() as session:
        users.enrol(session, school.users["teacher"], school_course(school), "grader")
    assert school.client("teacher").get(other).status_code == 200
    with school.store.write() as session:
        delete_submissions(session, [copy])
    assert school.client("teacher").get(pairs[0]).status_code == 404


def school_course(school: School) -> int:
    with school.store.read() as session:
        return session.get_one(tables.Assignment, school.elsewhere).course_id


def test_a_large_cluster_is_within_its_picture_and_a_small_one_leaves_no_room() -> None:
    sides = [
        Side(f"{n}", n, f"Student {n}", 1, datetime.now(UTC), 1, "Homework", 1, "Course") for n in range(40)
    ]
    pairs = [PairLine(sides[0], other, 0.8, 1) for other in sides[1:]]
    for shown in (pairs, pairs[:1]):
        graph = drawn(shown, [tuple(one.submission_id for one in sides[: len(shown) + 1])])
        assert len(graph.nodes) == len(shown) + 1
        assert all(0 < node.x < graph.width and 0 < node.y < graph.height for node in graph.nodes)
        assert graph.width < 300 or len(shown) > 1
