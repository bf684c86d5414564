"""Waiting, leaving and coming back; the gradebook, tables out and in, and erasing, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from grading.broker.heartbeats import Lease
from grading.config.mail import Mail
from grading.store import tables
from grading.store.accounts import users
from tests.e2e.browsing import come_in, look
from tests.integration.webapp import School, report


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    mail = Mail(url="smtp://localhost", sender="Grader <grader@school.example>")
    object.__setattr__(made.services, "config", made.services.config.model_copy(update={"mail": mail}))
    with made.store.write() as session:
        session.get_one(tables.User, made.users["anna"]).email = "anna@school.example"
        session.get_one(tables.Course, made.course).drop_lowest = 1
        for number in range(28):
            user = users.create_user(session, f"s-{1000 + number}", name=f"Student Number {number + 1}")
            users.enrol(session, user.id, made.course, "student")
    yield made
    made.close()


def advance(school: School, submission: str, state: str) -> None:
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        round_.state = state
        for stage in round_.stages if state == "running" else ():
            stage.state, stage.run_id = "dispatched", f"{submission[:20]}{stage.stage}"
            lease = Lease(stage.run_id, "dgx-spark-1", "p", stage.stage, "generating", 120, 4.0)
            school.dispatch.held[stage.run_id] = lease


def test_waiting_leaving_and_coming_back(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    submission = school.submit("anna")
    advance(school, submission, "queued")
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    status = page.locator("[data-live]")
    expect(status).to_contain_text("Queued")
    expect(page).to_have_title(re.compile(r"^Queued, position 1 · Homework hw1, submission 1 · Grader$"))
    page.get_by_label("Email me at anna@school.example").check()
    expect(page.get_by_text("You will get an email when the result is available.")).to_be_visible()
    expect(page.get_by_label("Email me at anna@school.example")).to_be_checked()
    look(page, pictures, "waiting", all_widths=True)

    def cut(route: Route) -> None:
        route.abort()

    page.route("**/status.json", cut)
    page.evaluate("window.dispatchEvent(new Event('offline'))")
    expect(status).to_contain_text("Connection to the server lost.")
    advance(school, submission, "running")
    page.unroute("**/status.json", cut)
    page.evaluate("window.dispatchEvent(new Event('online'))")
    expect(status).to_contain_text("Technical review: generating")
    expect(status).to_contain_text("120 tokens")
    expect(status).not_to_contain_text("dgx-spark-1")
    expect(page.get_by_text("Connection to the server lost.")).to_be_hidden()
    expect(page).to_have_title(re.compile(r"^Being graded · "))
    look(page, pictures, "at-work", all_widths=True)
    said = page.evaluate("""() => {
        window.said = [];
        new MutationObserver((all) => all.forEach(() => window.said.push(
            document.querySelector('[data-headline]').textContent))).observe(
            document.querySelector('[data-headline]'), {childList: true, characterData: true, subtree: true});
        return window.said.length;
    }""")
    assert said == 0
    school.grade(submission, report(), released=True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_role("status").filter(has_text="Graded")).to_be_visible()
    expect(page).to_have_title(re.compile(r"^Graded · "))
    expect(page.locator("[data-mail-wish]")).to_be_hidden()
    assert page.evaluate("window.said") == ["Graded"]  # heard once


def test_a_session_that_ended_is_said(careful: Page, school: School, site: str) -> None:
    page = careful
    submission = school.submit("anna")
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    expect(page.locator("[data-live]")).to_contain_text("Received")
    page.context.clear_cookies()
    page.evaluate("window.dispatchEvent(new Event('online'))")
    expect(page.get_by_role("link", name="Sign in to continue")).to_be_visible()


def test_the_gradebook_out_and_in(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    school.grade(school.submit("ben"), report(points=7.0, points_so_far=7.0), released=True)
    school.grade(school.submit("ben", school.quick), report(points=9.0, points_so_far=9.0, held=True))
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/courses/{school.course}/grades")
    expect(page.get_by_role("row").filter(has_text="Ben")).to_contain_text("7")
    look(page, pictures, "gradebook", all_widths=True)
    page.get_by_role("button", name="Show all 30").click()
    expect(page.get_by_text("Showing all 30 students.")).to_be_visible()
    expect(page.locator("[data-rows] tr")).to_have_count(30)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    assert "Ben" in download.value.path().read_text()
    page.get_by_role("link", name=re.compile("Upload CSV.*Homework hw1")).click()
    page.get_by_label("Or paste the table here").fill("id,load,adjustment\nben,3,1\nnobody,1,\n")
    page.get_by_label("Reason for the change").fill("looked at again")
    look(page, pictures, "import", all_widths=True)
    page.get_by_role("button", name="Preview changes").click()
    expect(page.get_by_text("'nobody' is not a student in this course")).to_be_visible()
    look(page, pictures, "import-preview", all_widths=True)
    page.get_by_role("button", name="Apply these 2 changes").click()
    expect(page.get_by_text("2 changes were made.")).to_be_visible()
    page.get_by_label("Search by name or sign-in name").fill("ben")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("[data-rows] tr")).to_have_count(1)
    come_in(page, site, school, "ben")
    page.goto(f"{site}/courses/{school.course}/my-grades")
    expect(page.get_by_role("heading", name="My grades")).to_be_visible()
    look(page, pictures, "my-grades", all_widths=True)


def test_erasing_a_student(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    with school.store.write() as session:
        student = users.create_user(session, "gone", name="Gone Tomorrow").id
        users.enrol(session, student, school.course, "student")
    come_in(page, site, school, "admin")
    page.goto(f"{site}/users/{student}/erase")
    look(page, pictures, "erase", all_widths=True)
    page.get_by_label("to confirm").fill("somebody")
    page.get_by_role("button", name="Delete all data of this student").click()
    expect(page.get_by_text("Nothing was deleted")).to_be_visible()
    page.get_by_label("to confirm").fill("gone")
    page.get_by_role("button", name="Delete all data of this student").click()
    expect(page.get_by_text("All data of gone was deleted.")).to_be_visible()
