"""Pages of second opinions: policy, what waits for staff, side by side in a review, nothing for students."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from grading.domain.jobs import Quote
from grading.domain.second_opinions import CriterionOpinion, SecondOpinionPolicy
from grading.store.database import now
from grading.store.tables import Assignment, Round, SecondOpinion
from grading.store.trust import second_opinions
from tests.integration.webapp import School, form_token, report

WORDS = "It looks at nothing but the mean."
OPINION = CriterionOpinion(
    criterion="think", title="Thinks about it", highest=4, first=3, second=1, reason=WORDS,
    quotes=(Quote(text="print(sales.head())"),), apart=True,
)  # fmt: skip


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def given(school: School, *, released: bool) -> str:
    """A graded submission of anna with a second opinion that differs."""
    submission = school.submit("anna")
    school.grade(submission, report(), released=released)
    with school.store.write() as session:
        round_id = session.scalars(select(Round.id).where(Round.submission_id == submission)).one()
        session.add(
            SecondOpinion(
                round_id=round_id, stage="feedback", submission_id=submission,
                assignment_id=school.assignment, state="done", family="gemma", model="qwen3:30b",
                opinions=[OPINION.model_dump(mode="json")], apart=1, created_at=now(session),
            )
        )  # fmt: skip
    return submission


def test_the_policy_is_set_by_who_may_change_the_assignment(school: School) -> None:
    address = f"/assignments/{school.assignment}/trust/second-opinions"
    client = school.client("teacher")
    assert "No machine gives second opinions here." in client.get(address).get_data(as_text=True)
    form = {"csrf_token": form_token(client), "which": "near", "share": "20", "within": "2,5"}
    assert client.post(address, data={**form, "thresholds": "40 100.5"}).status_code == 422
    assert client.post(address, data={**form, "thresholds": "40 85"}).status_code == 303
    with school.store.read() as session:
        policy = second_opinions.policy_of(session.get_one(Assignment, school.assignment))
    assert policy == SecondOpinionPolicy(which="near", thresholds=(0.4, 0.85), within=0.025)
    page = client.get(address).get_data(as_text=True)
    assert 'value="40 85"' in page
    assert "Which submissions get" not in school.client("grader").get(address).get_data(as_text=True)


@pytest.mark.parametrize("released", [True, False])
def test_staff_find_what_differs_side_by_side(school: School, released: bool) -> None:
    submission = given(school, released=released)
    client = school.client("grader")
    page = client.get(f"/assignments/{school.assignment}/trust/second-opinions").get_data(as_text=True)
    assert ("1 grade was released before:" in page) is released
    home = client.get("/").get_data(as_text=True)
    assert ("released grade with another second opinion" in home) is released
    found = client.get(f"/assignments/{school.assignment}/review?look=second_opinion").get_data(as_text=True)
    assert submission in found
    review = client.get(f"/submissions/{submission}/review").get_data(as_text=True)
    assert WORDS in review
    assert "qwen3:30b" in review
    assert "The second opinion is more than one level apart: Thinks about it." in review


def test_students_see_nothing_of_it(school: School) -> None:
    submission = given(school, released=True)
    client, token = school.client("anna"), school.token("anna", "read")
    for address in (f"/submissions/{submission}", f"/api/v1/submissions/{submission}", "/"):
        text = client.get(address, headers=token).get_data(as_text=True)
        assert WORDS not in text
        assert "econd opinion" not in text
        assert "second_opinion" not in text
