"""One criterion for all submissions in a real browser: one key for each, Undo, without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from grading.domain.permissions import Actor
from grading.similarity import packed
from grading.store import tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.review import rubric_items
from tests.e2e.browsing import come_in, follow, look
from tests.integration.review.test_pages import given
from tests.integration.webapp import School

CLASS = ("Aino Ahvenjärvi", "Bo Berg", "Chidinma Okonkwo-Fitzgerald")


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    with made.store.write() as session:
        for name in CLASS:
            user = users.create_user(session, f"s-{name}", name=name)
            users.enrol(session, user.id, made.course, "student")
            made.users[name] = user.id
    for name in CLASS:
        made.grade(made.submit(name), given(2, 3))
    yield made
    made.close()


def at(page: Page, name: str) -> None:
    expect(page.locator("[data-across-title]")).to_contain_text(name)
    expect(page.locator("[data-across-title]")).to_be_focused()


def test_one_key_a_submission(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/review")
    follow(page, page.get_by_role("link", name="Review by criterion"))
    look(page, pictures, "criterion-1-all", all_widths=True)
    follow(page, page.get_by_role("link", name=re.compile("Start.*Loads the data")))
    expect(page.locator("[data-across-title]")).to_contain_text("Aino")
    look(page, pictures, "criterion-2-one", all_widths=True)
    page.keyboard.press("3")
    at(page, "Bo Berg")
    expect(page.get_by_text("Aino Ahvenjärvi: level 3 saved.")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("No header.")  # keys are letters while one types
    page.keyboard.press("Escape")
    page.keyboard.press("i")  # what is written becomes a rubric item
    expect(page.locator("[data-item-text]")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("-1")
    page.keyboard.press("Control+Enter")
    at(page, "Bo Berg")
    item = page.get_by_role("button", name="⇧1 −1 No header.", exact=True)
    expect(item).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text("Now 1 of 4 points")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("Say 1 or 2.")
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Digit1")
    expect(item).to_have_attribute("aria-pressed", "false")
    expect(page.locator("[data-across-text]")).to_have_value(re.compile("Say 1 or 2"))  # it waits for a level
    page.keyboard.press("Shift+Digit1")
    expect(item).to_have_attribute("aria-pressed", "true")
    look(page, pictures, "criterion-2-items", all_widths=True)
    page.keyboard.press("n")
    expect(page.locator("[data-across-text]")).to_be_focused()  # it is not saved yet
    page.keyboard.press("Control+Enter")
    at(page, "Chidinma")
    expect(page.get_by_text("2 of 3 graded, 1 left: Teacher 2")).to_be_visible()
    page.keyboard.press("u")
    at(page, "Bo Berg")
    expect(page.get_by_text("1 of 3 graded, 2 left: Teacher 1")).to_be_visible()
    page.keyboard.press("?")
    look(page, pictures, "criterion-3-keys")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    at(page, "Chidinma")
    page.keyboard.press("k")
    at(page, "Bo Berg")
    page.go_back()
    expect(page.locator("[data-across-title]")).to_contain_text("Chidinma")
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_visible()  # keys are listened to
    page.keyboard.press("0")
    expect(page.get_by_text("Staff has graded all submissions by this criterion.")).to_be_visible()
    look(page, pictures, "criterion-4-list", all_widths=True)
    follow(page, page.get_by_role("link", name="Hide names"))
    expect(page.get_by_text("Chidinma")).to_have_count(0)


def test_it_works_without_scripts(browser: Browser, school: School, site: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/review/criteria/think/next?blind=1")
    page.get_by_role("button", name="partly there").click()
    expect(page.locator("h1")).to_contain_text("Bo Berg")
    page.get_by_role("button", name="Undo").first.click()
    expect(page.locator("h1")).to_contain_text("Aino")
    context.close()


def test_a_group_with_one_key(careful: Page, school: School, site: str, pictures: Path) -> None:
    with school.store.write() as session:
        for number, row in enumerate(session.query(tables.Round)):
            session.add(
                tables.Answer(
                    round_id=row.id, criterion="think", assignment_id=school.assignment,
                    submission_id=row.submission_id, key=("b" if number else "a") * 32,
                    fingerprints=packed(range(10), 256), outcome={"share": 0.5, "tests": 2, "passed": 1},
                    regions=[{"document": "work.py", "cell": None, "first": 3, "last": 4}],
                )
            )  # fmt: skip
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        version = versions.published_version(session, assignment)
        think = versions.load_content(session, version).rubric.criteria[1]
        teacher = Actor(school.users["teacher"])
        rubric_items.add_item(session, assignment, think, "Name the reason.", -1, teacher)
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/review/criteria/think/groups")
    look(page, pictures, "groups-1-all", all_widths=True)
    follow(page, page.get_by_role("link", name="Next ungraded group"))
    page.keyboard.press("Shift+Digit1")
    applied = page.get_by_role("button", name=re.compile("Name the reason"))
    expect(applied).to_have_attribute("aria-pressed", "true")
    look(page, pictures, "groups-2-one", all_widths=True)
    page.keyboard.press("3")
    at(page, "Group 2")
    page.keyboard.press("u")
    at(page, "Group 1")
    page.get_by_label("Comment at the answer of each member").fill("Say why.")
    page.get_by_text("Other points, or only the comment").click()
    page.get_by_label("Points, 0 to 6").press("Enter")  # the first button, a level, is not pressed by it
    at(page, "Group 2")
    expect(page.get_by_text("Saved for")).to_be_visible()
