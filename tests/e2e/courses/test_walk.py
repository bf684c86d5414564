"""Accounts, people and courses, walked through by an administrator, an instructor and a student."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from grading.store import tables
from grading.store.accounts import credentials, users
from grading.store.accounts.sign_in_attempts import ONE_SOURCE, Caller
from grading.store.database import now
from tests.e2e.browsing import PASSWORD, come_in, faults, follow, look, sign_in, with_passwords
from tests.integration.webapp import School, report

TABLE = (
    "id;name;email;role\nanna;Anna Albrecht;anna@school.example;\nteacher;Teacher;;student\n"
    "s-1;Ada Lovelace;ada@school.example;\ns-2;Grace Brewster Murray Hopper;grace@navy.example;grader\n"
    "s-3;;not an address;\n;Nobody;;\n"
)


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    with made.store.write() as session:
        moment = now(session)
        work = session.get_one(tables.Assignment, made.assignment)
        work.due_at, work.title = moment + timedelta(days=3), "Sales of a small shop, by week and by day"
        session.get_one(tables.Assignment, made.quick).visible = False
        for course in session.query(tables.Course):
            course.title = {"ba": "Business Analytics", "other": "Statistics"}[course.slug]
    submission = made.submit("anna")
    made.grade(submission, report(), released=True)
    yield with_passwords(made, "anna", "admin")
    made.close()


def test_an_instructor_brings_in_a_class(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/courses")
    page.get_by_role("link", name="Business Analytics").click()
    expect(page.get_by_text("1 student submitted")).to_be_visible()
    faults(page, "people-course-staff")
    follow(page, page.get_by_role("link", name="People", exact=True))
    look(page, pictures, "people-roster", all_widths=True)
    page.get_by_role("link", name="Import CSV").click()
    page.get_by_label("Or paste the table here").fill("name\nAda")
    page.get_by_role("button", name="Preview changes").click()
    expect(page.get_by_role("alert")).to_contain_text("The first line must name the columns")
    look(page, pictures, "people-import")
    page.get_by_label("Or paste the table here").fill(TABLE)
    page.get_by_role("button", name="Preview changes").click()
    expect(page.get_by_text("Line 6:")).to_be_visible()
    look(page, pictures, "people-preview", all_widths=True)
    page.get_by_role("button", name="Apply changes").press("Enter")
    expect(page.get_by_text("2 people added, 1 changed.")).to_be_visible()
    page.get_by_label("Name, sign-in name or email").fill("s-1")
    page.keyboard.press("Enter")
    follow(page, page.get_by_role("link", name="Ada Lovelace"))
    faults(page, "people-person")
    page.get_by_label("Role in this course").select_option("grader")
    page.get_by_role("button", name="Change role").click()
    expect(page.get_by_text("Role changed.")).to_be_visible()
    page.get_by_label("Role in this course").select_option("student")
    page.get_by_role("button", name="Change role").click()
    page.get_by_role("button", name="Create link").click()
    expect(page.get_by_text("It is shown only once")).to_be_visible()
    shown = page.locator("[data-link]").inner_text()
    faults(page, "people-link")
    page.get_by_role("link", name="Done").click()
    page.get_by_text("Remove from course").click()
    expect(page.get_by_role("button", name="Remove Ada Lovelace")).to_be_visible()
    page.goto(f"{site}/courses/{school.course}/settings")
    page.get_by_label("Number of lowest grades to drop").fill("1")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Settings saved.")).to_be_visible()
    faults(page, "people-settings")
    page.get_by_role("link", name="Audit log", exact=True).first.click()
    expect(page.get_by_text("Teacher changed the settings of “Business Analytics”.")).to_be_visible()
    faults(page, "people-audit")
    page.context.clear_cookies()
    page.goto(shown.replace("http://localhost:8080", site))
    expect(page).to_have_url(f"{site}/reset")
    look(page, pictures, "people-reset")
    for label in ("New password", "Confirm password"):
        page.get_by_label(label, exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password set.")).to_be_visible()
    sign_in(page, site, "s-1")
    page.goto(f"{site}/courses")
    expect(page.get_by_role("link", name="Business Analytics")).to_be_visible()


def test_a_student_keeps_their_account(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    page.goto(f"{site}/sign-in")
    follow(page, page.get_by_role("link", name="Forgot your password?"))
    faults(page, "people-forgotten")
    page.get_by_role("link", name="Back to sign-in").click()
    for _ in range(12):  # until the next one waits for two minutes
        school.store.clock_offset_s += ONE_SOURCE.longest_s
        assert credentials.verify_password(school.store, "nobody-here", "wrong", Caller("127.0.0.1")) is None
    page.get_by_label("Name").fill("nobody-here")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text(re.compile("Try again in 1[0-9]{2} seconds"))
    look(page, pictures, "people-slowed")
    come_in(page, site, school, "anna")
    page.goto(f"{site}/courses/{school.course}")
    expect(page.get_by_text("8.5 of 10 points")).to_be_visible()
    look(page, pictures, "people-course-student", all_widths=True)
    page.goto(f"{site}/account")
    page.get_by_label("Email", exact=True).fill("anna@school.example")
    page.get_by_label("Email me when a result is available").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Settings saved.")).to_be_visible()
    look(page, pictures, "people-account", all_widths=True)
    page.get_by_label("Current password").fill(PASSWORD)
    for label in ("New password", "Confirm new password"):
        page.get_by_label(label, exact=True).fill("a new one, and long")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("Password changed.")).to_be_visible()


def test_an_administrator_runs_the_school(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    with school.store.write() as session:
        users.create_user(session, "new", name="Ne <New> O'Brien")
        session.get_one(tables.User, school.users["ben"]).disabled = True
    come_in(page, site, school, "admin")
    page.goto(f"{site}/users")
    look(page, pictures, "people-users")
    page.get_by_text("New account").click()
    page.get_by_label("Sign-in name", exact=True).fill("anna")
    page.get_by_role("button", name="Create account and invitation link").click()
    expect(page.get_by_role("alert")).to_contain_text("already taken")
    page.get_by_label("Sign-in name", exact=True).fill("prof")
    page.get_by_label("Name", exact=True).fill("Prof. Emmy Noether")
    page.get_by_role("button", name="Create account and invitation link").click()
    expect(page.get_by_role("heading", name="Link for Prof. Emmy Noether")).to_be_visible()
    page.get_by_role("link", name="Done").click()
    page.get_by_text("Disable or enable").click()
    look(page, pictures, "people-user")
    page.goto(f"{site}/courses/new")
    page.get_by_label("Title").fill("Algebra")
    page.get_by_label("Short name").fill("algebra")
    page.get_by_label("First instructor").fill("prof")
    faults(page, "people-new-course")
    page.get_by_role("button", name="Create course").click()
    expect(page.get_by_text("Course created.")).to_be_visible()
    expect(page.get_by_role("link", name="Prof. Emmy Noether")).to_be_visible()
    page.goto(f"{site}/courses")
    faults(page, "people-courses")
    page.goto(f"{site}/audit?kind=people")
    expect(page.get_by_text(re.compile("Admin created the course"))).to_have_count(0)
    expect(page.get_by_text("Admin created the account of Prof. Emmy Noether.").first).to_be_visible()
    look(page, pictures, "people-audit-all", all_widths=True)
