"""The result in a real browser: read it, jump through comments, print it, ask for a regrade, answer it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from grading.domain.report import CriterionGrade
from grading.store import tables
from grading.store.database import now
from grading.store.grades.final_score import update_final_score
from tests.e2e.browsing import PASSWORD, come_in, follow, look, picture, with_passwords
from tests.integration.results.result_samples import NOTEBOOK, change, graded
from tests.integration.webapp import School, report


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def submission(school: School) -> str:
    """Late, changed by a person, the second submission of two."""
    school.submit("anna")
    made = graded(school)
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        assignment.due_at, assignment.late = now(session) - timedelta(hours=2), {"per_day": 0.1}
        update_final_score(session, session.query(tables.Grade).filter_by(submission_id=made).one())
    change(school, made, kind="points", target="think", points=6, reason="Well argued on page 3.")
    change(school, made, kind="remark", target="finding:1", text="You mean `sum(sales)`.", reason="Clearer.")
    change(school, made, kind="add", text="Good idea, keep it.", document=NOTEBOOK, cell=1, line=3)
    return made


def test_a_student_reads_jumps_and_asks(
    careful: Page, school: School, site: str, submission: str, pictures: Path
) -> None:
    page = careful
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    expect(page.locator(".points")).to_contain_text("of 10 points")
    expect(page.locator("[data-stages]")).to_be_hidden()  # all are done: the score comes first
    expect(page.locator(".sum")).to_contain_text("10 of 10, 10 % off for one day late: 9")
    expect(page.get_by_text("Of 2 submissions, the latest one counts: this one.")).to_be_visible()
    image = page.locator("img.picture")
    image.scroll_into_view_if_needed()
    expect(image).to_have_js_property("naturalWidth", 320)
    passed = page.locator("details.criterion", has_text="Thinks about it")
    expect(passed).not_to_have_attribute("open", "")
    passed.locator("summary").first.press("Enter")
    passed.get_by_text("changed manually").click()
    expect(page.get_by_text("Before: 4.5 of 6 points")).to_be_visible()
    look(page, pictures, "result-student", all_widths=True)

    page.keyboard.press("n")
    expect(page.locator("[data-comment]").first).to_be_focused()
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.textContent") != first
    page.keyboard.press("p")
    assert page.evaluate("document.activeElement.textContent") == first
    page.get_by_label("Use keys n (next) and p (previous)").uncheck()
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.matches('[data-comment]')") is False
    page.get_by_role("button", name="Next comment").click()
    assert page.evaluate("document.activeElement.matches('[data-comment]')") is True
    page.locator("details.document > summary").click()  # closed
    page.locator("#criterion-1 > summary").click()
    page.get_by_role("link", name="work.ipynb, cell 2, line 2").click()
    expect(page.locator(".line:focus")).to_be_visible()
    expect(page.locator(".line:focus")).to_contain_text("sales.csv")

    page.get_by_text("Request a regrade").click()
    page.get_by_label("What should be regraded?").select_option(label="Loads the data")
    page.get_by_label("What is wrong").fill("The plot is there, in cell 2. The check did not see it.")
    page.context.clear_cookies()
    # a form of a young page goes unasked; its answer has what was typed
    follow(page, page.get_by_role("button", name="Send request"))
    expect(page.get_by_role("heading", name="Not sent yet")).to_be_visible()
    expect(page.get_by_label("Text 1")).to_have_value(re.compile("^The plot is there, in cell 2."))
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    page.get_by_text("Request a regrade").click()
    page.get_by_label("What should be regraded?").select_option(label="Loads the data")
    page.get_by_label("What is wrong").fill("The plot is there, in cell 2. The check did not see it.")
    page.context.clear_cookies()
    page.clock.set_fixed_time(datetime.now(UTC) + timedelta(seconds=61))
    page.get_by_role("button", name="Send request").click()
    dialog = page.get_by_role("dialog", name="Sign in to send this form")
    expect(dialog).to_be_visible()
    look(page, pictures, "result-signed-out", all_widths=True)
    with_passwords(school, "anna", "ben")
    for name, said in (("ben", "Nothing was sent, because Anna filled in this form."), ("anna", "")):
        dialog.get_by_label("Sign-in name").fill(name)
        dialog.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert") if said else page.locator(".regrade-open")).to_contain_text(said)
    expect(page.get_by_text("Your request was sent.")).to_be_visible()
    expect(page.locator(".regrade-open")).to_contain_text("The plot is there")
    look(page, pictures, "result-asked")


def test_staff_answer_and_the_student_sees_it(
    careful: Page, school: School, site: str, submission: str, pictures: Path
) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/submissions/{submission}")
    expect(page.get_by_text("Clearer.").first).to_be_attached()
    look(page, pictures, "result-staff", all_widths=True)
    page.goto(f"{site}/regrades")
    look(page, pictures, "regrades", all_widths=True)
    follow(page, page.get_by_role("link", name="Homework hw1, submission 2"))
    look(page, pictures, "regrade", all_widths=True)
    page.get_by_label("Accept: change the points for this criterion").check()
    page.get_by_label("Points, 0 to 4").fill("9")
    page.get_by_label("Message to the student").fill("You are right, I saw it.")
    page.get_by_role("button", name="Send response").click()
    expect(page.get_by_role("alert")).to_contain_text("Enter points from 0 to 4.")
    page.get_by_label("Points, 0 to 4").fill("3,5")
    page.get_by_role("button", name="Send response").click()
    expect(page.get_by_text("Response sent.")).to_be_visible()
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}#regrades")
    expect(page.locator(".regrade-accepted")).to_contain_text("You are right, I saw it.")


def test_on_paper_folds_are_open_and_nothing_is_pressed(
    careful: Page, school: School, site: str, submission: str, pictures: Path
) -> None:
    page = careful
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(page.get_by_text("Model digest", exact=True)).to_be_visible()
    expect(page.get_by_text("Machine", exact=True)).to_have_count(0)
    for hidden in ("header.top", ".comment-list", "#regrades", ".live"):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    picture(page, pictures, "result-print")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.origin[open]").count() == 0


def test_without_javascript_all_of_it_can_be_read(
    school: School, site: str, submission: str, browser: Browser
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    expect(page.get_by_text("You mean sum(sales).")).to_be_visible()
    expect(page.get_by_role("button", name="Next comment")).to_have_count(0)
    page.get_by_text("Request a regrade").click()
    expect(page.get_by_role("button", name="Send request")).to_be_visible()
    context.close()


def test_partial_results_are_no_zero(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    partial = school.submit("ben")
    made = report(
        status="partial", points=None, points_so_far=4, feedback=None,
        failures={"feedback": "The machine did not answer in time."},
    )  # fmt: skip
    made = made.model_copy(update={"criteria": (made.criteria[0], ungraded(made.criteria[1]))})
    school.grade(partial, made, released=True)
    come_in(page, site, school, "ben")
    page.goto(f"{site}/submissions/{partial}")
    expect(page.get_by_text("points so far, total pending")).to_be_visible()
    expect(page.get_by_text("Its points are pending, not zero.")).to_be_visible()
    expect(page.get_by_text("not rated", exact=True)).to_be_visible()
    look(page, pictures, "result-partial")


def ungraded(one: CriterionGrade) -> CriterionGrade:
    return one.model_copy(update={"points": None, "level": None, "basis": "ungraded", "reason": ""})
