"""What pages that compare need: answers of the class, similar submissions, the course of another year."""

from __future__ import annotations

import random
from datetime import timedelta

from sqlalchemy.orm import Session

from grading.documents import set_apart
from grading.domain.document import Document
from grading.domain.evidence import CheckOutcome, CriterionEvidence, Evidence
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric
from grading.store import tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.review import rubric_items
from grading.store.similarity import comparisons
from tests.e2e.courses.show_school import TITLE, ShowSchool, a_report, notebook
from tests.integration.webapp import report
from workers.server.answers import answer_rows

ITEMS = {
    "clean": (("Say how many rows are left out, and why.", -0.5), ("A mean of the product is closer.", 0.0)),
    "think": (("Say what you would ask the owner.", -1.0), ("A question that data can answer.", 0.5)),
}
"""Criterion -> text and points of its rubric items."""
EARLIER = 6
"""Students of the year before."""


def compare_class(school: ShowSchool) -> None:
    """Read all answers of the assignment that is shown, and compare them with each other and those before."""
    earlier = _earlier_year(school)
    for assignment in (school.shown, earlier):
        _read_answers(school, assignment)
    with school.store.write() as session:
        found = comparisons.compare(session, school.shown)
        comparisons.save_comparison(session, school.shown, *found)
        _rubric_items(session, school)


def _rubric_items(session: Session, school: ShowSchool) -> None:
    """What staff says to many, with points."""
    assignment = session.get_one(tables.Assignment, school.shown)
    rubric = Rubric.model_validate(versions.version_by_number(session, school.shown, 1).rubric)
    actor = Actor(user_id=school.users["teacher"])
    for criterion in rubric.criteria:
        for text, points in ITEMS.get(criterion.id, ()):
            rubric_items.add_item(session, assignment, criterion, text, points, actor)


def _earlier_year(school: ShowSchool) -> int:
    """A course of the teacher a year ago with assignments of the same short names; the later one's id."""
    chance = random.Random(5)
    with school.store.write() as session:
        course = session.get_one(tables.Assignment, school.elsewhere).course
        course.title = "Business Analytics 1, last year"
        session.get_one(tables.Assignment, school.elsewhere).title = "Homework 1: Tables and types"
        users.enrol(session, school.users["teacher"], course.id, "instructor")
        shown = versions.version_by_number(session, school.shown, 1)
        rubric = Rubric.model_validate(shown.rubric)
        new = NewVersion("hw3", TITLE, "python", "after_review", "d-hw3-before", rubric)
        row = versions.import_version(session, course.slug, new)[0]
        row.due_at = now(session) - timedelta(days=360)
        assignment, course_id = row.id, course.id
    for number in range(EARLIER):
        login = f"e{2100 + number}"
        with school.store.write() as session:
            user = users.create_user(session, login, name=f"Earlier student {number + 1}")
            users.enrol(session, user.id, course_id, "student")
            school.users[login] = user.id
        levels = [chance.choice((1, 2, 2, 3, 4)) for _ in range(5)]
        work = school.submit(login, assignment, notebook(7 if number == 4 else 100 + number), "cafe.ipynb")
        school.grade(work, a_report(levels, chance), released=True)
        first = school.submit(login, school.elsewhere)
        school.grade(first, report(flags=()), released=True)
        school.moved_back(work, timedelta(days=361))
        school.moved_back(first, timedelta(days=375))
    return assignment


def _read_answers(school: ShowSchool, assignment: int) -> None:
    """As the store does when it prepares a round."""
    with school.store.write() as session:
        rubric = Rubric.model_validate(versions.version_by_number(session, assignment, 1).rubric)
        rounds = session.query(tables.Round).join(tables.Submission)
        for one in rounds.filter(tables.Submission.assignment_id == assignment).all():
            submission = session.get_one(tables.Submission, one.submission_id)
            documents = set_apart([Document.model_validate(each) for each in submission.documents])
            for row in answer_rows(documents, rubric, (), _evidence(documents)):
                owner = {"round_id": one.id, "submission_id": submission.id, "assignment_id": assignment}
                session.add(tables.Answer(**owner, **row))


def _evidence(documents: list[Document]) -> Evidence:
    """That of the checks of missing values, which two of the four ways to handle them meet."""
    met = any(name in cell.source for one in documents for cell in one.cells for name in ("dropna", "fillna"))
    outcome = CheckOutcome(check="2", label="leaves out or fills what is missing", earned=float(met))
    found = CriterionEvidence(criterion="clean", share=outcome.earned, outcomes=(outcome,))
    return Evidence(criteria=(found,))
