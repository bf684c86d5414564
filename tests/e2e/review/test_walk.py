"""Reviewing in a real browser: by keyboard, with two people at once, and the pages for a whole class."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.review import views
from grading.store import tables
from grading.store.accounts import users
from tests.e2e.browsing import come_in, follow, look
from tests.integration.review.test_pages import change, given, pointing
from tests.integration.webapp import CODE, School, report

CLASS = ("Aino Ahvenjärvi", "Bo Berg", "Chidinma Okonkwo-Fitzgerald", "Dmitri", "Élodie")


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    points = ((4, 6), (2, 3), (3, 4.5), (1, 1.5), (0, 3))
    with made.store.write() as session:
        for name in CLASS:
            user = users.create_user(session, f"s-{name}", name=name)
            users.enrol(session, user.id, made.course, "student")
            made.users[name] = user.id
    for number, (name, pair) in enumerate(zip(CLASS, points, strict=True)):
        submission = (
            made.submit(name, data=two_files(), name="work.zip") if number == 4 else made.submit(name)
        )
        made.grade(submission, pointing(given(*pair, held=number == 2)), released=number == 4)
    yield made
    made.close()


def two_files() -> bytes:
    """A ZIP file with work.py and another file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("work.py", CODE)
        made.writestr("zoo.R", "animals <- c('owl')\n")
    return packed.getvalue()


def at(page: Page, name: str) -> None:
    """The submission of somebody is open, and keys are listened to."""
    expect(page.locator("h1")).to_contain_text(name)
    ready(page)


def ready(page: Page) -> None:
    """Keys are listened to."""
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_visible()


def ids(school: School) -> dict[str, str]:
    with school.store.read() as session:
        rows = session.query(tables.Submission.id, tables.User.name).join(
            tables.User, tables.User.id == tables.Submission.student_id
        )
        return {name: found for found, name in rows}


def test_reviewing_by_keyboard(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/review")
    expect(page.locator(".review-list li")).to_have_count(5)
    ready(page)
    look(page, pictures, "review-1-list", all_widths=True)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    title = page.locator("h1")
    at(page, "Bo Berg")
    page.evaluate("window.stayed = true")
    page.keyboard.press("1")
    expect(page.locator("#rv-criterion-1")).to_be_focused()
    page.keyboard.press("l")
    page.keyboard.press("3")
    why = page.locator("#reason-1")
    expect(why).to_be_focused()
    expect(page.locator("#points-1")).to_have_value("3")
    page.keyboard.type("a jar of r and j? 1")  # keys are letters while one types
    look(page, pictures, "review-2-editing")
    page.keyboard.press("Enter")
    expect(page.locator("#rv-criterion-1")).to_contain_text("2 → 3 points")
    expect(page.locator("#rv-criterion-1")).to_be_focused()
    ready(page)
    page.keyboard.press("c")
    page.keyboard.type("Say where the file is from.")
    page.locator("#comment-text").press("Escape")
    page.locator(".line .number", has_text=re.compile("^3$")).click()
    expect(page.locator(".line-form")).to_contain_text("Comment on line 3")
    expect(page.locator("#comment-text")).to_have_value("Say where the file is from.")
    page.get_by_label("Also save as a saved comment of this course").check()
    look(page, pictures, "review-3-line")
    page.locator("#comment-text").press("Control+Enter")
    expect(page.locator(".document .comment").get_by_text("Say where the file is from.")).to_be_visible()
    expect(page.locator("#line-0-1-3")).to_be_focused()
    assert page.evaluate("window.stayed")  # nothing was loaded again
    look(page, pictures, "review-3-one", all_widths=True)
    page.keyboard.press("a")
    at(page, "Chidinma")
    expect(title).to_be_focused()
    expect(page.locator(".review-name .state-held")).to_be_visible()
    page.keyboard.press("r")
    anyway = page.get_by_role("button", name="Release anyway")
    expect(anyway).to_be_focused()
    page.keyboard.press("Enter")
    said = page.locator(".toast", has_text="The student can now see this grade.")
    expect(said).to_be_visible()
    look(page, pictures, "review-b-toast", all_widths=True)
    said.get_by_role("button", name="Undo").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".toast", has_text="Undone. The student cannot see this grade.")).to_be_visible()
    page.keyboard.press("r")
    expect(anyway).to_be_focused()
    page.keyboard.press("Enter")
    said.get_by_role("button", name="Close").focus()
    page.keyboard.press("Escape")
    expect(said).to_have_count(0)
    ready(page)
    page.keyboard.press("k")
    at(page, "Bo Berg")
    page.keyboard.press("/")
    page.keyboard.type("aino")
    page.keyboard.press("Enter")
    expect(page.locator(".review-list li")).to_have_count(1)
    page.go_back()
    at(page, "Bo Berg")
    for key in ("2", "l", "1"):
        page.keyboard.press(key)
    page.keyboard.type("Too short.")
    page.keyboard.press("Enter")
    page.keyboard.press("a")  # at once: it waits until all is saved
    at(page, "Chidinma")
    page.keyboard.press("k")
    expect(page.locator("#rv-criterion-2")).to_contain_text("3 → 1.5 points")
    expect(page.locator(".review-name")).to_contain_text("reviewed")


def test_the_work_stands_beside_its_rubric(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/submissions/{ids(school)['Élodie']}/review")
    ready(page)
    border, line = page.get_by_role("separator"), page.locator("#line-0-1-3")
    border.press("ArrowRight")
    expect(border).to_have_attribute("aria-valuenow", "58")
    border.hover()
    page.mouse.down()
    page.mouse.move(500, 400)
    page.mouse.up()
    moved = border.get_attribute("aria-valuenow") or ""
    assert 25 < int(moved) < 50
    page.reload()
    ready(page)
    expect(border).to_have_attribute("aria-valuenow", moved)
    page.get_by_role("link", name="zoo.R").click()
    expect(page.locator("#file-1")).to_be_visible()
    expect(line).to_be_hidden()
    page.locator("#rv-criterion-1 h3").hover()
    expect(page.locator("#work .marked")).to_have_count(3)
    page.get_by_role("link", name="work.py, line 3").first.press("Enter")
    expect(line).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator(".line-form")).to_contain_text("Comment on line 2")
    page.get_by_role("button", name="Cancel").click()
    page.keyboard.press("c")
    page.keyboard.type("Why an empty line?")
    page.keyboard.press("Control+Enter")
    mine = page.locator("#work .comment-person")
    expect(mine).to_contain_text("Why an empty line?")
    mine.get_by_role("link", name="Undo").press("Enter")
    expect(mine).to_have_count(0)
    expect(line.locator("xpath=preceding-sibling::*[1]")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollHeight <= window.innerHeight")  # only parts scroll
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.locator("#rubric")).to_be_hidden()
    page.locator(".review-sides").get_by_role("link", name="Rubric").click()
    expect(line).to_be_hidden()
    page.get_by_text("Withdraw …").click()
    look(page, pictures, "review-b-rubric")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="work.py, line 3").first.click()
    expect(line).to_be_focused()
    look(page, pictures, "review-c-work")


def test_keys_can_be_read_and_switched_off(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "grader")
    page.goto(f"{site}/submissions/{ids(school)['Dmitri']}/review")
    ready(page)
    page.keyboard.press("?")
    box = page.get_by_role("dialog")
    expect(box).to_be_visible()
    look(page, pictures, "review-4-keys")
    page.keyboard.press("j")  # nothing happens behind it
    box.get_by_label("Enable keyboard shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    page.keyboard.press("c")
    expect(page.locator("#comment-text")).to_be_hidden()
    expect(page.locator("h1")).to_contain_text("Dmitri")
    expect(page.get_by_role("button", name="Release")).to_have_count(0)  # graders may not


def test_somebody_else_was_faster(
    careful: Page, school: School, site: str, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "ASK_EVERY_S", 0.3)
    page, submission = careful, ids(school)["Aino Ahvenjärvi"]
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/submissions/{submission}/review")
    page.locator("#rv-criterion-1 summary", has_text="Change").click()
    page.locator("#reason-1").fill("Half a thought")
    page.locator("#rv-criterion-2 summary", has_text="Change").click()
    page.locator("#points-2").fill("2")
    page.locator("#reason-2").fill("Too short.")
    theirs = {"kind": "points", "target": "think", "points": "5", "reason": "Short, but to the point."}
    assert change(school.client("grader"), submission, **theirs).status_code == 303
    expect(page.locator("#viewers")).to_contain_text("Also viewing now: Grader")
    expect(page.locator("#viewers")).to_contain_text("This grade was changed meanwhile.")
    page.locator("#reason-2").press("Enter")
    told = page.get_by_role("alert")
    expect(told).to_contain_text("Someone changed this grade while you were viewing it.")
    expect(told).to_contain_text("Short, but to the point.")
    expect(told).to_be_focused()
    expect(page.locator("#points-2")).to_have_value("2")
    look(page, pictures, "review-5-conflict")
    page.locator("#reason-2").press("Enter")
    expect(page.locator("#rv-criterion-2")).to_contain_text("6 → 2 points")
    theirs = {"kind": "text", "target": "feedback.next_step", "text": "Read on."}
    assert change(school.client("grader"), submission, **theirs).status_code == 303
    page.get_by_role("button", name="Show changes").click()
    expect(page.locator("#rv-words")).to_contain_text("Read on.")
    page.context.clear_cookies()
    page.locator("#reason-1").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("[data-rv=told-here]")).to_contain_text("Not saved: your session has ended.")
    expect(page.locator("#reason-1")).to_have_value("Half a thought")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.goto(f"{site}/healthz")
    assert asked == ["beforeunload"]  # it is not saved yet


def test_the_whole_class(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/review/curve")
    page.get_by_label("Method").select_option("root")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("grades would change")).to_be_visible()
    look(page, pictures, "review-6-curve", all_widths=True)
    page.get_by_label("Reason (visible to students)").fill("The task was long.")
    page.get_by_role("button", name="Apply to").click()
    expect(page.get_by_text("The task was long.")).to_be_visible()
    page.goto(f"{site}/assignments/{school.assignment}/review/release")
    page.get_by_label("Date and time").fill("2031-05-01T12:30")
    expect(page.get_by_label("On a date")).to_be_checked()
    follow(page, page.get_by_role("button", name="Save"))
    expect(page.get_by_label("Date and time")).to_have_value("2031-05-01T12:30")
    look(page, pictures, "review-7-release")


def test_second_marking_and_comments(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "admin")
    page.goto(f"{site}/assignments/{school.assignment}/second-marking")
    page.get_by_label("How many").fill("2")
    follow(page, page.get_by_role("button", name="Select"))
    look(page, pictures, "review-8-draw")
    page.get_by_role("link", name="Continue").click()
    expect(page.get_by_text(report().feedback.next_step if report().feedback else "")).to_have_count(0)
    look(page, pictures, "review-9-mark", all_widths=True)
    for box in page.locator(".review-marking fieldset").all():
        box.get_by_role("radio").nth(3).check()
    page.get_by_role("button", name="Save and next").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.goto(f"{site}/courses/{school.course}/comments")
    page.get_by_label("New comment").fill("Name your axes.")
    follow(page, page.get_by_role("button", name="Save"))
    look(page, pictures, "review-a-comments")
