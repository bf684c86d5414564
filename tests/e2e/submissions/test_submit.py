"""Submitting, in a real browser: home, task, files, what was received, receipt, groups, extensions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from grading.checks.precheck import PrecheckOutcome
from grading.domain.evidence import CheckOutcome, TestOutcome
from grading.store import blobs, tables
from grading.store.accounts import users
from grading.store.database import now
from grading.store.submissions import prechecks
from tests.e2e.browsing import come_in, follow, look, picture
from tests.integration.webapp import CODE, School, report

IN_TWO_DAYS = re.compile(r"^(tomorrow|in [23] days)$")
"""By the reader's calendar, which may be a day before or after the server's."""
TASK = """Load the sales of the last year and say what you find.

1. Read `sales.csv` and show its first rows.
2. Plot the sum of each month.
3. Write in three sentences what surprised you.

- Work alone or as a pair.
- Keep your outputs in the notebook.
"""
WORK = {"name": "work.py", "mimeType": "text/plain", "buffer": CODE}


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    with made.store.write() as session:
        moment = now(session)
        course = session.get_one(tables.Course, made.course)
        course.title = "Business Analytics"
        names = (
            "Cleo Martin",
            "Dan Okafor",
            "Eva Lindqvist",
            "Farid Haddad",
            "Greta Maria von Hohenstein-Falkenberg",
        )
        for name in names:
            short = name.split()[0].lower()
            made.users[short] = users.create_user(session, short, name=name).id
            users.enrol(session, made.users[short], made.course, "student")
        first = session.get_one(tables.Assignment, made.assignment)
        in_two_days = (moment + timedelta(days=2)).replace(hour=12)  # of the calendar, at any hour
        first.title, first.due_at = "Sales of a year", in_two_days
        first.late, first.max_submissions, first.group_size = (
            {"grace_minutes": 10, "per_day": 0.1, "at_least": 0.5, "days": 5},
            5,
            2,
        )
        quick = session.get_one(tables.Assignment, made.quick)
        quick.title, quick.due_at = "A first script", moment - timedelta(hours=30)
        version = session.query(tables.RubricVersion).filter_by(assignment_id=first.id).one()
        version.task = TASK
        files = {
            "starter/work.ipynb": b"{}",
            "data/sales.csv": b"day,sum\n" * 9000,
            "solution/x.py": b"secret",
        }
        version.files = dict(zip(files, blobs.store_blobs(session, files.values()), strict=True))
        rubric = dict(version.rubric)
        checks: list[dict[str, Any]] = [
            {"kind": "uses", "all_of": ["read_csv"], "label": "reads the file"},
            {"kind": "all_executed"},
            {"kind": "no_todo"},
            {"kind": "passes_tests", "cases": [{"expression": "total(sales)", "name": "the sum is right"}]},
        ]  # fmt: skip
        rubric["criteria"] = [{**rubric["criteria"][0], "checks": checks}, *rubric["criteria"][1:]]
        version.rubric = rubric
    made.grade(made.submit("anna", made.quick), report(), released=True)
    yield made
    made.close()


def notebook() -> bytes:
    error = {
        "output_type": "error",
        "ename": "NameError",
        "evalue": "name 'salse' is not defined",
        "traceback": [],
    }
    shown = {"output_type": "stream", "name": "stdout", "text": "   day  sum\n"}
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": "# Sales of a year"},
        {"cell_type": "code", "source": CODE.decode(), "execution_count": 1, "outputs": [shown]},
        {"cell_type": "code", "source": "salse.plot()", "execution_count": 2, "outputs": [error]},
        {"cell_type": "code", "source": "sales.sum()", "execution_count": None, "outputs": []},
        {"cell_type": "markdown", "source": "What surprised me: TODO"},
    ]  # fmt: skip
    made = [{"metadata": {}, **cell} for cell in cells]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}).encode()


def test_from_home_to_the_receipt(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "anna")
    page.goto(site)
    expect(page.get_by_text(IN_TWO_DAYS)).to_be_visible()
    look(page, pictures, "home-student", all_widths=True)
    follow(page, page.get_by_role("link", name="Submit Sales of a year"))
    expect(page.get_by_role("link", name="sales.csv")).to_be_visible()
    page.get_by_text("Late penalty after that").click()
    page.get_by_text("Loads the data").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="sales.csv").click()
    assert download.value.path().read_bytes() == b"day,sum\n" * 9000
    files = page.get_by_label("Your files")
    wrong = {"name": "photo.png", "mimeType": "image/png", "buffer": b"\x89PNG"}
    files.set_input_files([WORK, wrong])
    expect(page.get_by_role("alert")).to_contain_text("photo.png cannot be graded")
    page.get_by_role("button", name="Remove photo.png").press("Enter")
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_role("button", name="Remove work.py")).to_be_focused()
    files.set_input_files([{"name": "broken.ipynb", "mimeType": "text/plain", "buffer": b"{"}])
    page.get_by_role("button", name="Upload and preview").click()
    expect(page.locator("#files-problem")).to_contain_text("broken.ipynb")
    expect(page.locator("[data-problem]")).to_be_hidden()
    expect(files).to_be_focused()
    expect(files).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Remove broken.ipynb").click()
    expect(files).not_to_have_attribute("aria-invalid", "true")
    drop(page, "answer.ipynb", notebook())
    expect(page.locator("[data-files] li")).to_have_count(2)
    look(page, pictures, "assignment-student", all_widths=True)
    page.get_by_role("button", name="Upload and preview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Not submitted yet")
    expect(page.get_by_text("Stops with an error: cell 3")).to_be_visible()
    expect(page.get_by_text("A TODO or placeholder remains: cell 5")).to_be_visible()
    expect(page.get_by_text("the sum is right")).to_be_visible()
    look(page, pictures, "received", all_widths=True)
    assert school.count(tables.Submission) == 1
    page.goto(site)
    expect(page.get_by_text("You uploaded files but have not submitted them yet.")).to_be_visible()
    page.get_by_role("link", name="Sales of a year", exact=True).click()
    page.get_by_role("link", name="Check and submit").click()
    page.get_by_role("button", name="Submit these files").dblclick()
    expect(page.locator("[data-live]")).to_contain_text("Received")
    assert school.count(tables.Submission) == 2
    page.get_by_role("link", name="Receipt").first.click()
    expect(page.get_by_text("Fingerprint", exact=True)).to_be_visible()
    look(page, pictures, "receipt", all_widths=True)
    page.emulate_media(media="print")
    picture(page, pictures, "receipt-print")
    page.emulate_media(media="screen")


def drop(page: Page, name: str, data: bytes) -> None:
    """Drag a file into the form."""
    made = (
        "([name, text]) => { const t = new DataTransfer(); t.items.add(new File([text], name)); return t; }"
    )
    transfer = page.evaluate_handle(made, [name, data.decode()])
    page.dispatch_event("[data-drop]", "drop", {"dataTransfer": transfer})


def test_a_lost_answer_is_found_again(careful: Page, school: School, site: str, pictures: Path) -> None:
    page, before = careful, school.count(tables.Submission)
    come_in(page, site, school, "ben")
    page.goto(f"{site}/assignments/{school.quick}/submit")

    def lose(route: Route) -> None:
        route.fetch()  # the server gets it, the browser never hears of it
        route.abort("connectionreset")

    page.route(
        "**/submit", lambda route: lose(route) if route.request.method == "POST" else route.continue_()
    )
    page.get_by_label("Your files").set_input_files([WORK])
    page.get_by_role("button", name="Submit now").click()
    expect(page.locator("[data-live]")).to_contain_text("Received", timeout=60_000)
    assert school.count(tables.Submission) == before + 1


def test_without_scripts_it_is_an_ordinary_form(browser: Any, school: School, site: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    come_in(page, site, school, "cleo")
    page.goto(f"{site}/assignments/{school.quick}")
    page.get_by_label("Your files").set_input_files([WORK])
    page.get_by_role("button", name="Upload and preview").click()
    page.get_by_role("button", name="Submit these files").click()
    expect(page.locator("[data-live]")).to_contain_text("Received")
    context.close()


def test_code_is_written_checked_and_submitted(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    page = careful
    offer_editor(school)
    come_in(page, site, school, "dan")
    page.goto(f"{site}/assignments/{school.quick}")
    follow(page, page.get_by_role("link", name="Write and check your code in the browser"))
    editor = page.get_by_role("group", name="main.py, press Enter to edit, Escape to leave")
    editor.press("Enter")
    page.keyboard.type("def f(x):\nreturn 2 * x")
    written = page.locator("#code")
    expect(written).to_have_value("def f(x):\n    return 2 * x")
    page.reload()
    expect(page.get_by_text("This browser kept your last code.")).to_be_visible()
    expect(written).to_have_value("def f(x):\n    return 2 * x")
    page.get_by_role("button", name="Check", exact=True).press("Enter")
    expect(page.locator("#outcome")).to_contain_text("Queued …")
    expect(page.get_by_role("button", name="Check", exact=True)).to_be_disabled()
    finish_precheck(school)
    expect(page.locator("#outcome")).to_be_focused()
    expect(page.locator("#outcome")).to_contain_text("1 passed")
    look(page, pictures, "code", all_widths=True)
    page.get_by_role("button", name="Submit", exact=True).press("Enter")
    expect(page.locator("[data-live]")).to_contain_text("Received")
    expect(page.get_by_role("link", name="Receipt").first).to_be_visible()
    page.goto(f"{site}/assignments/{school.quick}/code")
    follow(page, page.get_by_role("link", name="Start again from the starter"))
    expect(written).to_have_value("")
    editor.press("Enter")
    page.keyboard.type("x = 1")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Check", exact=True)).to_be_focused()
    cookies = page.context.cookies()
    page.context.clear_cookies()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Sign in to send this form")
    expect(dialog).to_be_visible()
    page.context.add_cookies(cookies)  # type: ignore[arg-type]  # as they were
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog).to_have_count(0)
    page.reload()
    expect(written).to_have_value("x = 1")
    page.get_by_text("Dan Okafor").first.click()
    follow(page, page.get_by_role("button", name="Sign out"))
    assert page.evaluate("Object.keys(localStorage).filter(one => one.startsWith('grader-code'))") == []


def offer_editor(school: School) -> None:
    """The quick assignment is written in the browser."""
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.quick).code_editor = True


def finish_precheck(school: School) -> None:
    """As a sandbox worker does, with one test passed."""
    announced = school.dispatch.announced[-1]
    test = TestOutcome(name="twice", passed=True, input="f(2)")
    passed = CheckOutcome(check="t", label="tests", earned=1, message="1 of 1 test passed", tests=(test,))
    with school.store.write() as session:
        prechecks.claim_precheck(session, announced)
        prechecks.save_outcome(session, announced, PrecheckOutcome(outcomes=(passed,)))


def test_code_is_checked_without_scripts(browser: Any, school: School, site: str) -> None:
    offer_editor(school)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    come_in(page, site, school, "greta")
    page.goto(f"{site}/assignments/{school.quick}/code")
    page.get_by_label("main.py").fill("print(1)")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_text("Queued …")).to_be_visible()
    finish_precheck(school)
    page.reload()
    expect(page.get_by_text("1 passed")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("[data-live]")).to_contain_text("Received")
    context.close()


def test_a_pair_finds_together(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "eva")
    page.goto(f"{site}/assignments/{school.assignment}")
    page.get_by_label("Sign-in name of a classmate").fill("farid")
    page.get_by_role("button", name="Send invitation").click()
    expect(page.get_by_text("invited, has not accepted")).to_be_visible()
    page.context.clear_cookies()
    come_in(page, site, school, "farid")
    page.goto(f"{site}/")
    expect(page.get_by_text("A classmate invites you into a group.")).to_be_visible()
    page.get_by_role("link", name="Sales of a year", exact=True).click()
    page.get_by_role("button", name="Accept invitation").click()
    expect(page.get_by_text("Your submission counts for your group:")).to_be_visible()


def test_staff_give_extensions_and_make_groups(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    page = careful
    school.grade(school.submit("dan"), report(held=True))
    come_in(page, site, school, "teacher")
    page.goto(site)
    expect(page.get_by_role("link", name="1 to review")).to_be_visible()
    look(page, pictures, "home-staff", all_widths=True)
    page.goto(f"{site}/submissions?assignment={school.assignment}")
    look(page, pictures, "submissions-staff")
    page.goto(f"{site}/assignments/{school.assignment}")
    look(page, pictures, "assignment-staff")
    page.goto(f"{site}/assignments/{school.assignment}/extensions")
    zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    expect(page.get_by_label("Time zone")).to_have_value(zone)
    page.get_by_label("Dan Okafor").check()
    page.get_by_label("Greta").check()
    page.get_by_label("New due date", exact=True).fill("2031-05-04T18:00")
    page.get_by_label("Reason").fill("Was ill for two weeks")
    page.get_by_role("button", name="Add extension").click()
    expect(page.get_by_text(f"2 students have until 04 May 2031, 18:00 ({zone})")).to_be_visible()
    look(page, pictures, "extensions", all_widths=True)
    page.goto(f"{site}/assignments/{school.assignment}/groups")
    page.get_by_text("Assign randomly …").click()
    page.get_by_role("button", name="Assign randomly").click()
    expect(page.get_by_role("status").first).to_contain_text("moved")
    look(page, pictures, "groups", all_widths=True)
