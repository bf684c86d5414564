"""Questions to the instructor: found among noise, answered as notes of a draft, dismissed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.gateway_requests.asking import ModelQuestion
from app.gateway_requests.errors import NoSuchModel
from app.trust import question_drafts, question_texts
from grading.broker.gateway_requests import Event
from grading.domain.rubric import Rubric
from grading.domain.second_opinions import CriterionOpinion
from grading.statistics.question_groups import Cause
from grading.store import tables
from grading.store.assignments import versions
from grading.store.trust import questions
from tests.integration.trust.planted_gap import plant
from tests.integration.webapp import School, form_token, undo
from tests.support.system import until

GAP = Cause("name", "left_join()", "merge()")
ASKED = "submissions use merge() where the rubric names left_join(). Are they equal?"


@pytest.fixture
def school(school_url: str) -> Iterator[School]:
    made = School(school_url)
    yield made
    made.close()


def page_of(client: FlaskClient, assignment: int) -> str:
    answer = client.get(f"/assignments/{assignment}/trust/questions")
    assert answer.status_code == 200
    return unescape(answer.get_data(as_text=True))


def send(client: FlaskClient, assignment: int, action: str, cause: Cause = GAP, **form: str) -> int:
    data = {"csrf_token": form_token(client), "criterion": "join", "cause": cause.key, "base": "1", **form}
    return client.post(f"/assignments/{assignment}/trust/questions/{action}", data=data).status_code


def test_a_planted_gap_is_among_the_first_three(tmp_path: Path) -> None:
    school = School(tmp_path)
    assignment = plant(school, 100)
    with school.store.read() as session:
        found = questions.find_questions(session, assignment)
    assert GAP in [one.group.cause for one in found[:3]]
    school.close()


def test_an_answer_becomes_a_note_and_an_equal_name_of_a_draft(school: School) -> None:
    assignment = plant(school, 30)
    teacher, grader = school.client("teacher"), school.client("grader")
    page = page_of(teacher, assignment)
    assert ASKED in page
    assert "checks: level 0 of 4; model: level " in page
    assert 'both <- merge(sales, people, by = "id", all.x = TRUE)' in page
    assert "Student 1" not in page
    assert "Publishing the draft by itself changes no grade that is there" in page
    assert ASKED in page_of(grader, assignment)
    assert "Save in a draft" not in page_of(grader, assignment)
    assert send(teacher, assignment, "answer") == 409
    assert send(teacher, assignment, "answer", equal="yes", base="7") == 404
    assert send(teacher, assignment, "answer", equal="yes", note="by = is\nneeded.") == 303
    assert send(teacher, assignment, "answer", equal="yes", base="2") == 409
    with school.store.read() as session:
        draft = versions.load_newest(session, session.get_one(tables.Assignment, assignment))
        rubric = Rubric.model_validate(draft.version.rubric)
        audit = session.query(tables.Audit).filter_by(action="question.answer").one()
    assert draft.draft
    assert rubric.criteria[0].notes == ("merge() counts as left_join(). by = is needed.",)
    assert rubric.equivalents == {"left_join": ("merge",)}
    assert audit.detail == {"criterion": "join", "question": draft.version.note, "version": 2}
    page = page_of(teacher, assignment)
    assert "merge() counts as left_join(). by = is needed." in page
    assert "Save in a draft" not in page.partition("Answered and dismissed")[0].partition(ASKED)[2][:50]
    with school.store.read() as session:
        (gap,) = (one for one in questions.find_questions(session, assignment) if one.group.cause == GAP)
    form: dict[str, Any] = {"csrf_token": form_token(teacher), "purpose": "rubric", "which": "some"}
    form |= {"submission": list(gap.group.works)}
    assert "/dry-runs/" in teacher.post(f"/assignments/{assignment}/dry-runs", data=form).location
    assert school.count(tables.DryRunRound) == gap.group.count


def test_second_opinions_and_regrade_requests_are_disputes(tmp_path: Path) -> None:
    school = School(tmp_path)
    assignment = plant(school, 12, seed=3)
    with school.store.write() as session:
        rounds = session.query(tables.Round).join(tables.Submission).filter_by(assignment_id=assignment).all()
        opinion = CriterionOpinion(criterion="think", title="t", highest=4, second=0, apart=True)
        for n, one in enumerate(rounds[:6]):
            about = {"round_id": one.id, "submission_id": one.submission_id}
            if n % 2:
                session.add(
                    tables.SecondOpinion(
                        **about, assignment_id=assignment, stage="feedback", state="done", apart=1,
                        opinions=[opinion.model_dump(mode="json")], created_at=one.created_at,
                    )
                )  # fmt: skip
            else:
                of_student = {"student_id": one.student_id, "course_id": one.course_id}
                session.add(
                    tables.RegradeRequest(
                        **about, **of_student, criterion="think", reason="r", created_at=one.created_at
                    )
                )
    page = page_of(school.client("teacher"), assignment)
    assert "6 submissions are rated differently, for no common cause." in page
    assert "second opinion: level 0 of 4; 3 regrade requests" in page
    school.close()


def test_a_model_words_a_question_only_about_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    school = School(tmp_path)
    assignment = plant(school, 30)
    teacher = school.client("teacher")
    asked: list[ModelQuestion] = []
    answers = ["Give all of them full points?", "Should merge() count where left_join() is named?"]

    def ask(_gateway: Any, question: ModelQuestion, _limit: float, _gone: Any, heard: Any) -> str:
        asked.append(question)
        heard(Event(kind="begun", machine="one", model="qwen"))
        return json.dumps({"question": answers[len(asked) > 1]})

    monkeypatch.setattr(question_drafts, "ask_model", ask)
    assert send(teacher, assignment, "word") == 303
    assert "No machine with a model is available now." in page_of(teacher, assignment)
    assert not asked
    with school.store.read() as session:
        found = questions.find_questions(session, assignment)
    shown = [question_texts.shown(one, None) for one in found if one.group.cause == GAP]
    busy = school.app.extensions["grader-question-drafts"].busy
    for expected in (ASKED, f"3 submissions: {answers[1]}"):
        with school.app.test_request_context():
            assert question_drafts.begin(None, school.store, assignment, shown)  # type: ignore[arg-type]
        until(lambda: not busy, 30, "the model has answered")
        assert expected in page_of(teacher, assignment)
    assert "worded by qwen" in page_of(teacher, assignment)

    def refuse(*_: Any) -> str:
        raise NoSuchModel

    monkeypatch.setattr(question_drafts, "ask_model", refuse)
    with school.app.test_request_context():
        assert question_drafts.begin(None, school.store, assignment, shown)  # type: ignore[arg-type]
    until(lambda: not busy, 30, "the model has refused")
    assert "The questions were not worded: No machine has this model." in page_of(teacher, assignment)
    assert 'both <- merge(sales, people, by = "id"' in asked[0].user
    assert "Student" not in asked[0].user
    school.close()


def test_a_dismissed_question_can_be_opened_again(tmp_path: Path) -> None:
    school = School(tmp_path)
    assignment = plant(school, 30)
    teacher = school.client("teacher")
    path = f"/assignments/{assignment}/trust/questions"
    assert send(teacher, assignment, "dismiss") == 303
    assert "Question dismissed." in (page := page_of(teacher, assignment))
    assert ASKED in page.partition("Answered and dismissed")[2]
    assert send(teacher, assignment, "dismiss") == 303
    assert "was answered or dismissed in the meantime" in page_of(teacher, assignment)
    assert send(teacher, assignment, "reopen") == 303
    assert send(teacher, assignment, "dismiss") == 303
    undo(teacher, path)
    assert ASKED in page_of(teacher, assignment).partition("Answered and dismissed")[0]
    assert send(teacher, assignment, "reopen") == 404
    assert send(teacher, assignment, "dismiss", Cause("name", "left_join()", "other()")) == 404
    assert page_of(teacher, school.assignment).count("No question is open") == 1
    school.close()
