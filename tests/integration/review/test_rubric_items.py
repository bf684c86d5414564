"""Rubric items on pages: added while grading, applied and removed, edited everywhere after a preview."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from grading.store import tables
from grading.store.grades import change_history
from grading.store.review import rubric_items
from tests.integration.review.test_criterion import progress, root, text_of
from tests.integration.review.test_pages import given, grade_of, news, post
from tests.integration.webapp import School


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def works(school: School) -> tuple[str, str]:
    """Submissions of Anna and Ben, 3 of 4 points for loading; Ben sees his grade."""
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, given(3, 3))
    school.grade(ben, given(3, 3), released=True)
    return anna, ben


def items(school: School) -> list[rubric_items.RubricItem]:
    with school.store.read() as session:
        return list(rubric_items.list_items(session, school.assignment, "load"))


def points(school: School, *works: str) -> list[float]:
    return [grade_of(school, work).criterion_points["load"] for work in works]


def seen(school: School, work: str) -> str:
    with school.store.read() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=work, current=True).one()
        return change_history.stamp(session, round_.id)


def undo_of(page: str) -> dict[str, str]:
    """The fields of a toast's form."""
    toast = re.search(r'<form[^>]*data-undo.*?</form>|class="toast.*?</form>', page, re.S)
    assert toast is not None
    return dict(re.findall(r'name="(bulk|change|seen)" value="([^"]+)"', toast[0]))


def added(school: School, client: FlaskClient, work: str, text: str, **more: Any) -> rubric_items.RubricItem:
    """An item, added and applied on the page of a criterion."""
    form = {"kind": "new_item", "target": "load", "text": text, "points": "−1", **more}
    answer = post(client, f"{root(school)}/submissions/{work}/items", **form)
    assert answer.location.endswith(f"/submissions/{work}"), answer.get_data(as_text=True)
    return items(school)[-1]


def test_an_item_is_added_applied_and_removed_while_grading(school: School, works: tuple[str, str]) -> None:
    anna, ben = works
    teacher, one = school.client("teacher"), f"{root(school)}/submissions"
    item = added(school, teacher, anna, "No <b>header</b>.")
    assert (item.text, item.points, points(school, anna, ben)) == ("No <b>header</b>.", -1, [2, 3])
    page = text_of(teacher, f"{one}/{anna}")
    assert "No &lt;b&gt;header&lt;/b&gt;." in page
    pressed = re.findall(r'<button[^>]*name="level" value="(\d)"[^>]*aria-pressed="true"', page)
    assert pressed == ["3"]  # the level without the item
    assert re.search(r'<button class="[^"]*rubric-item here" aria-pressed="true"', page)
    assert progress(school).graded == 0  # an item is no judgement of the criterion
    target = f"load/{item.item}"
    # on the other page of review, with the stamp of the whole grade
    review = f"/submissions/{ben}/review"
    page = text_of(teacher, review)
    assert f'name="target" value="{target}"' in page
    answer = post(teacher, review + "/change", kind="item", target=target, seen=seen(school, ben))
    assert (answer.status_code, points(school, ben)) == (303, [2])
    assert news(school) == ["grade.changed"]
    page = text_of(school.client("ben"), f"/submissions/{ben}")
    assert '<strong class="text-nowrap">−1</strong> No &lt;b&gt;header' in page
    assert "2</strong> of 4" in page
    # the same again, as two people do at the same time, is no conflict where the criterion is graded
    answer = post(teacher, f"{one}/{ben}/items", kind="item", target=target)
    assert (answer.status_code, points(school, ben)) == (303, [2])
    assert post(teacher, f"{one}/{ben}/items", kind="remove_item", target=target).status_code == 303
    assert points(school, anna, ben) == [2, 3]
    page = text_of(teacher, review)
    assert "a rubric item was removed" in page
    assert "−1 points for “No &lt;b&gt;header" in page
    # by the API
    header = school.token("teacher")
    listed = teacher.get(f"/api/v1/assignments/{school.assignment}/rubric-items", headers=header).json
    assert listed["items"] == [
        {"item": item.item, "criterion": "load", "text": "No <b>header</b>.", "points": -1}
    ]
    result = teacher.get(f"/api/v1/submissions/{anna}/result", headers=header).json["criteria"][0]
    assert (result["points"], result["items"][0]["points"], result["original_points"]) == (2, -1, 3)
    # giving the level that stands there without the item confirms it
    stamp = re.search(r'name="seen" value="([^"]+)"', text_of(teacher, f"{one}/{anna}"))
    assert stamp is not None
    post(teacher, f"{one}/{anna}", level="3", seen=stamp[1])
    assert points(school, anna) == [2]
    with school.store.read() as session:
        assert session.query(tables.Change).order_by(tables.Change.id.desc()).first().kind == "confirm"


def test_what_cannot_be_an_item_is_said(school: School, works: tuple[str, str]) -> None:
    anna, _ = works
    teacher, one = school.client("teacher"), f"{root(school)}/submissions/{anna}/items"
    answer = post(teacher, one, kind="new_item", text="Too many points", points="−5")
    page = answer.get_data(as_text=True)
    assert answer.status_code == 422
    assert "Enter at most 4 points" in page
    assert "Too many points</textarea>" in page  # nothing typed is lost
    for form in ({"kind": "item", "target": "think/x"}, {"kind": "remove_item", "target": "load/x"}):
        assert post(teacher, one, **form).status_code in (303, 422)
    assert post(teacher, one, kind="item", target="load/" + "0" * 32).status_code == 404
    review = f"/submissions/{anna}/review/items"
    assert post(teacher, review, target="gone", text="x", seen=seen(school, anna)).status_code == 422
    assert post(teacher, review, target="load", text="", seen=seen(school, anna)).status_code == 422
    assert (
        post(teacher, review, target="load", text="x", points="−2", seen=seen(school, anna)).status_code
        == 303
    )
    assert points(school, anna) == [1]
    assert items(school)[0].text == "x"


def test_an_edit_shows_its_effect_first_and_is_undone_at_once(school: School, works: tuple[str, str]) -> None:
    anna, ben = works
    teacher, page_of_items = school.client("teacher"), f"{root(school)}/items"
    item = added(school, teacher, anna, "No header.")
    post(teacher, f"{root(school)}/submissions/{ben}/items", kind="item", target=f"load/{item.item}")
    page = text_of(teacher, page_of_items)
    assert "2 submissions have it" in page
    assert text_of(teacher, root(school), item=item.item).count('<th scope="row">') == 2
    form = {"seen": "1", "bulk": "b" * 32, "text": "No header at all.", "points": "-2"}
    answer = post(teacher, f"{page_of_items}/{item.item}", **form)
    asked = answer.get_data(as_text=True)
    assert (answer.status_code, points(school, anna, ben)) == (200, [2, 2])
    assert "1 of these grades is released." in asked
    assert asked.count("−1</span>") >= 2
    answer = post(teacher, f"{page_of_items}/{item.item}", sure="1", **form)
    assert (answer.status_code, points(school, anna, ben)) == (303, [1, 1])
    page = text_of(teacher, page_of_items)
    assert "Rubric item saved. 2 submissions were updated." in page
    assert "No header at all." in text_of(school.client("ben"), f"/submissions/{ben}")
    # two edit at once: the second one is told
    answer = post(teacher, f"{page_of_items}/{item.item}", sure="1", **{**form, "bulk": "c" * 32})
    assert answer.status_code == 409
    assert post(teacher, f"{page_of_items}/{item.item}/undo", **undo_of(page)).status_code == 303
    assert points(school, anna, ben) == [2, 2]
    # words only: nobody is asked
    form = {"seen": "3", "bulk": "d" * 32, "text": "Read the header.", "points": "-1"}
    assert post(teacher, f"{page_of_items}/{item.item}", **form).status_code == 303
    assert "Read the header." in text_of(school.client("ben"), f"/submissions/{ben}")
    form = {"seen": "4", "bulk": "e" * 32, "delete": "1"}
    assert post(teacher, f"{page_of_items}/{item.item}", **form).status_code == 200
    assert post(teacher, f"{page_of_items}/{item.item}", sure="1", **form).status_code == 303
    assert (points(school, anna, ben), items(school)) == ([3, 3], [])
    page = text_of(teacher, page_of_items)
    assert "Rubric item deleted. 2 submissions were updated." in page
    post(teacher, f"{page_of_items}/{item.item}/undo", bulk="e" * 32)
    assert (points(school, anna, ben), len(items(school))) == ([2, 2], 1)
