"""Going through one criterion: what is saved, what is hidden, who graded what, two people at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from grading.domain.document import Location
from grading.domain.evidence import CheckOutcome
from grading.domain.evidence import TestOutcome as Tested
from grading.domain.permissions import Actor
from grading.execution.display import ShownDocument, ShownExecution
from grading.execution.values import Played
from grading.similarity import packed
from grading.store import tables
from grading.store.database import now
from grading.store.grades import change_history
from grading.store.review import edits
from grading.store.views import criterion_worklist, review_worklist
from grading.store.views import submission as submission_view
from grading.store.views.criterion_worklist import CriterionProgress
from grading.store.views.review_worklist import Filters
from tests.integration.review.test_pages import audited, given, grade_of, news, post
from tests.integration.webapp import School


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def works(school: School) -> tuple[str, str]:
    """Submissions of Anna and Ben."""
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, given(1, 1.5))
    school.grade(ben, given(3, 3), released=True)
    return anna, ben


def root(school: School, criterion: str = "load") -> str:
    return f"/assignments/{school.assignment}/review/criteria/{criterion}"


def text_of(client: FlaskClient, path: str, **query: Any) -> str:
    answer = client.get(path, query_string=query or None)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.get_data(as_text=True)


def save(client: FlaskClient, path: str, seen: str = "", **form: Any) -> Any:
    page = text_of(client, path.partition("?")[0])
    found = re.search(r'name="seen" value="([^"]+)"', page)
    assert found is not None
    return post(client, path, seen=seen or found[1], **form)


def progress(school: School, criterion: str = "load") -> CriterionProgress:
    with school.store.read() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        return criterion_worklist.progress(
            criterion_worklist.load_worklist(session, assignment).get(criterion, ())
        )


def names(found: CriterionProgress) -> dict[str, int]:
    return {grader.name: count for grader, count in found.graders}


def test_each_level_is_one_form_that_leads_on(school: School, works: tuple[str, str]) -> None:
    anna, ben = works
    teacher, one = school.client("teacher"), root(school) + "/submissions/"
    assert f'href="{root(school).rpartition("/")[0]}"' in text_of(
        teacher, f"/assignments/{school.assignment}/review"
    )
    assert text_of(teacher, root(school).rpartition("/")[0]).count("0 of 2 graded, 2 left") == 2
    assert teacher.get(root(school) + "/next").location == one + anna
    answer = save(teacher, one + anna, level="3", text="Say why.")
    assert (answer.status_code, answer.location.partition("?")[0]) == (303, one + ben)
    assert grade_of(school, anna).criterion_points["load"] == 3
    with school.store.read() as session:
        view = submission_view.load_view(session, anna)
    assert view.grade is not None
    assert view.grade.report.criteria[0].reason == "Say why."
    page = text_of(teacher, answer.location)
    assert "Anna: level 3 saved." in page
    undo = re.search(r'name="change" value="([\d.]+)"', page)
    assert undo is not None
    assert "." in undo[1]
    # the level that it has is confirmed: nothing of the grade changes, and nobody is told
    answer = save(teacher, one + ben, level="3")
    assert answer.location.startswith(root(school) + "?undo=")
    assert "Staff has graded all submissions by this criterion." in text_of(teacher, root(school))
    assert (names(progress(school)), progress(school).left) == ({"Teacher": 2}, 0)
    assert news(school) == []
    with school.store.read() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        listed = review_worklist.load_page(session, assignment, Filters(look="changed"))
    assert [one.student for one in listed.items] == ["Anna"]
    assert audited(school, "grade.change")[-1]["kind"] == "confirm"
    answer = post(teacher, one + anna + "/undo", change=undo[1])
    assert answer.location == one + anna
    assert grade_of(school, anna).criterion_points["load"] == 1
    assert progress(school).graded == 1
    assert save(teacher, one + anna).location.startswith(root(school))  # without a level: as it is
    assert progress(school).graded == 2


def test_a_reviewed_grade_is_graded_by_all_criteria(school: School, works: tuple[str, str]) -> None:
    teacher, grader = school.client("teacher"), school.client("grader")
    with school.store.read() as session:
        round_id = submission_view.load_view(session, works[0]).round_id
        seen = change_history.stamp(session, round_id)
    assert post(grader, f"/submissions/{works[0]}/review/accept", seen=seen).status_code == 303
    assert [names(progress(school, one)) for one in ("load", "think")] == [{"Grader": 1}] * 2
    save(teacher, f"{root(school)}/submissions/{works[0]}", level="0")
    assert [names(progress(school, one)) for one in ("load", "think")] == [{"Teacher": 1}, {"Grader": 1}]


def test_a_grade_is_reviewed_when_its_last_criterion_is_graded(
    school: School, works: tuple[str, str]
) -> None:
    anna, teacher, grader = works[0], school.client("teacher"), school.client("grader")
    think = root(school).replace("/load", "/think")

    def reviewer() -> int | None:
        grade = grade_of(school, anna)
        assert (grade.reviewed_at is None) == (grade.reviewed_by is None)
        return grade.reviewed_by

    save(teacher, f"{root(school)}/submissions/{anna}", level="0")
    assert reviewer() is None
    answer = save(grader, f"{think}/submissions/{anna}")
    assert reviewer() == school.users["grader"]
    undo = re.search(r'name="change" value="([\d.]+)"', text_of(grader, answer.location))
    assert undo is not None
    post(grader, f"{think}/submissions/{anna}/undo", change=undo[1])
    assert reviewer() is None
    # what a person marked stays marked
    save(grader, f"{think}/submissions/{anna}")
    with school.store.write() as session:
        round_id = submission_view.load_view(session, anna).round_id
        edits.accept_grade(
            session, anna, change_history.stamp(session, round_id), Actor(school.users["teacher"])
        )
        moment = now(session)
        newest = session.query(tables.Change.id).order_by(tables.Change.id.desc()).first()
        assert newest is not None
    post(grader, f"{think}/submissions/{anna}/undo", change=str(newest[0]))
    assert reviewer() == school.users["teacher"]
    save(grader, f"{think}/submissions/{anna}")
    with school.store.write() as session:
        edits.undo_acceptance(session, anna, moment, Actor(school.users["teacher"]))
    assert reviewer() == school.users["grader"]


def test_names_and_levels_are_hidden(school: School, works: tuple[str, str]) -> None:
    anna, _ben = works
    teacher, path = school.client("teacher"), f"{root(school)}/submissions/{anna}"
    page = text_of(teacher, path)
    assert "Anna" in page
    assert "level 4 of 4" in page
    assert "The file is read with pandas." in page
    page = text_of(teacher, path, anonymous=1, blind=1)
    pseudonym = re.search(r"Student-[0-9A-F]{6}", page)
    assert pseudonym is not None
    assert "Anna" not in page
    assert "level 4 of 4" not in page
    assert "The file is read with pandas." not in page
    assert "Hidden until you have graded." in page
    assert pseudonym[0] in text_of(teacher, root(school), anonymous=1)
    answer = save(teacher, path + "?anonymous=1&blind=1", level="2")
    assert "anonymous=1" in answer.location
    assert "blind=1" in answer.location
    page = text_of(teacher, answer.location)
    assert f"{pseudonym[0]}: level 2 saved. The model proposes level 4." in page
    page = text_of(teacher, path, anonymous=1, blind=1)
    assert "level 4 of 4" in page
    assert "Anna" not in page
    # a colleague has not graded it yet
    assert "level 4 of 4" not in text_of(school.client("grader"), path, blind=1)
    assert "hidden" in text_of(school.client("grader"), root(school), blind=1)


def test_names_are_hidden_in_all_that_is_about_the_criterion(school: School) -> None:
    made = given(1, 1.5)
    place = Location(document="anna_sales.py", line=1)
    found = CheckOutcome(check="c", label="reads", earned=0.5, message="Anna forgot it.", location=place)
    test = Tested(name="t", passed=False, input="f()", expected="1", got="Hello, Anna!")
    first = made.criteria[0].model_copy(
        update={"reason": "Well done, Anna.", "evidence": (found.model_copy(update={"tests": (test,)}),)}
    )
    anna = school.submit("anna", data=b"# Anna's work\nimport pandas\n", name="anna_sales.py")
    school.grade(anna, made.model_copy(update={"criteria": (first, *made.criteria[1:])}))
    failed = Played(number=1, state="failed", error="No Anna.")
    ran = ShownDocument(path="anna_sales.py", end="finished", cells=(failed,))
    shown = ShownExecution(documents={"anna_sales.py": ran}).model_dump(mode="json")
    with school.store.write() as session:
        session.query(tables.Round).filter_by(submission_id=anna).one().prepared = {"execution": shown}
    teacher, path = school.client("teacher"), f"{root(school)}/submissions/{anna}"
    page = text_of(teacher, path)
    expected = ("Anna forgot it.", "Hello, Anna!", "No Anna.", "Well done, Anna.", "anna_sales.py")
    assert [text for text in expected if text not in page] == []
    page = text_of(teacher, path, anonymous=1)
    assert "anna" not in page.lower()
    # her sign-in name is the same as her name
    expected = ("[id] forgot it.", "Hello, [id]!", "No [id].", "[id]_sales.py")
    assert [text for text in expected if text not in page] == []
    # the text that was shown without names is no change of it
    save(teacher, f"{path}?anonymous=1", level="2", text="Well done, [id].")
    assert school.count(tables.Change) == 1


def test_two_people_get_different_submissions(school: School, works: tuple[str, str]) -> None:
    anna, ben = works
    teacher, grader = school.client("teacher"), school.client("grader")
    following = root(school) + "/next"
    assert teacher.get(following).location.endswith(anna)
    assert grader.get(following).location.endswith(ben)
    assert "Someone else has this submission open" in text_of(grader, f"{root(school)}/submissions/{anna}")
    assert "Someone else has this" not in text_of(teacher, f"{root(school)}/submissions/{anna}")
    save(grader, f"{root(school)}/submissions/{ben}", level="4")
    answer = grader.get(following)
    assert answer.location == root(school)
    assert "Other people are grading the remaining submissions now." in text_of(grader, answer.location)


def test_only_changes_of_the_same_criterion_are_in_conflict(school: School, works: tuple[str, str]) -> None:
    anna, _ben = works
    teacher, grader = school.client("teacher"), school.client("grader")
    paths = [f"{root(school, one)}/submissions/{anna}" for one in ("load", "think")]
    seen = [re.findall(r'name="seen" value="([^"]+)"', text_of(teacher, path))[0] for path in paths]
    assert save(grader, paths[1], level="4").status_code == 303
    assert post(teacher, paths[0], seen=seen[0], level="2").status_code == 303
    assert post(teacher, paths[0], seen=seen[0], level="2").status_code == 303  # the same form again
    answer = post(teacher, paths[1], seen=seen[1], level="1", text="My words.")
    assert answer.status_code == 409
    page = answer.get_data(as_text=True)
    assert "someone changed this grade" in page
    assert "My words." in page
    assert grade_of(school, anna).criterion_points == {"load": 2, "think": 6}
    assert school.count(tables.Change) == 2


def test_what_makes_no_sense_is_refused(school: School, works: tuple[str, str]) -> None:
    anna, _ben = works
    teacher, path = school.client("teacher"), f"{root(school)}/submissions/{anna}"
    assert save(teacher, path, level="9").status_code == 422
    assert teacher.get(root(school, "gone")).status_code == 404
    assert teacher.get(f"{root(school)}/submissions/{'0' * 32}").status_code == 404
    other = f"/assignments/{school.quick}/review/criteria/load/submissions/{anna}"
    assert teacher.get(other).status_code == 404
    assert save(teacher, path, level="2").status_code == 303
    with school.store.read() as session:
        (made,) = session.query(tables.Change).all()
    assert (
        post(teacher, f"{root(school, 'think')}/submissions/{anna}/undo", change=made.id).status_code == 404
    )
    assert edits.NEEDS_REASON
    assert made.reason


@pytest.fixture
def answered(school: School, works: tuple[str, str]) -> tuple[str, str]:
    """Both wrote the same for the criterion; a third one is similar."""
    anna, ben = works
    third = school.submit("admin")
    school.grade(third, given(2, 3))
    prints = [packed(range(10), 256), packed(range(10), 256), packed(range(8), 256)]
    with school.store.write() as session:
        rounds = {row.submission_id: row.id for row in session.query(tables.Round)}
        for work, key, fingerprints in zip(
            (anna, ben, third), ("k" * 32, "k" * 32, "n" * 32), prints, strict=True
        ):
            session.add(
                tables.Answer(
                    round_id=rounds[work], criterion="load", assignment_id=school.assignment,
                    submission_id=work, key=key, fingerprints=fingerprints,
                    outcome={"share": 1.0, "output": "<b>7</b>"},
                    regions=[{"document": "work.py", "cell": None, "first": 3, "last": 3}],
                )
            )  # fmt: skip
    return anna, ben


def test_a_group_gets_a_level_at_once(school: School, answered: tuple[str, str]) -> None:
    anna, _ben = answered
    teacher, groups = school.client("teacher"), root(school) + "/groups"
    one, other = f"{groups}/{'k' * 32}", f"{groups}/{'n' * 32}"
    page = text_of(teacher, groups)
    assert "2 groups of 3 submissions, 0 graded" in page
    assert "similar to group 1 (80 %)" in page
    assert "<b>7</b>" not in page
    assert teacher.get(groups + "/next").location == one
    page = text_of(teacher, one)
    assert "read_csv" in page
    assert "import pandas" not in page  # another line of the same file
    form = dict(re.findall(r'name="(bulk|seen)" value="([^"]+)"', page))
    answer = post(teacher, one, level="3", comment="Say why.", **form)
    assert answer.location.partition("?")[0] == other
    page = text_of(teacher, answer.location)
    assert "Saved for 2 submissions." in page
    assert [grade_of(school, work).criterion_points["load"] for work in answered] == [3, 3]
    with school.store.read() as session:
        kinds = [(row.kind, row.submission_id == anna) for row in session.query(tables.Change)]
    assert sorted(kinds) == [("add", False), ("add", True), ("confirm", False), ("points", True)]
    assert names(progress(school)) == {"Teacher": 2}
    undo = re.search(r'name="bulk" value="([^"]+)"', page)
    assert undo is not None
    assert undo[1] == form["bulk"]
    assert post(teacher, one + "/undo", bulk=undo[1]).location == one
    assert [grade_of(school, work).criterion_points["load"] for work in answered] == [1, 3]
    # together with the similar one, whose members are proposed
    answer = post(teacher, one, points="2,5", reason="Half.", similar="n" * 32, bulk="f" * 32)
    assert answer.location.startswith(groups + "?undo=")
    assert "Staff has graded all groups of this criterion." in text_of(teacher, answer.location)
    assert progress(school).graded == 3
    assert post(teacher, one, bulk="e" * 32).status_code == 422  # nothing to do


def test_a_member_leaves_its_group(school: School, answered: tuple[str, str]) -> None:
    anna, _ben = answered
    teacher, groups = school.client("teacher"), root(school) + "/groups"
    one = f"{groups}/{'k' * 32}"
    assert post(teacher, one + "/members", submission=anna).location == one
    undo = re.search(r'action="([^"]+)"[^>]*>(?:(?!</form>).)*name="back"', text_of(teacher, "/"), re.DOTALL)
    assert undo is not None
    assert undo[1] == one + "/members"
    assert "3 groups of 3 submissions" in text_of(teacher, groups)
    alone = f"{groups}/alone:{anna}"
    assert "Put back" in text_of(teacher, alone, anonymous=1)
    assert "Saved for 1 submission." in text_of(
        teacher, post(teacher, alone, level="2", bulk="a" * 32).location
    )
    assert grade_of(school, anna).criterion_points["load"] == 2
    assert post(teacher, alone + "/members", submission=anna, back="1").location == groups
    assert "2 groups of 3 submissions" in text_of(teacher, groups)
    assert post(teacher, one + "/members", submission="0" * 32).status_code == 404
