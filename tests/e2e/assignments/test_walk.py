"""An instructor writes an assignment in a real browser: new, rubric, files, versions, dry run, applying."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from grading.domain.round_states import RoundState
from grading.store import tables
from grading.store.database import now
from grading.store.experiments import dry_runs
from tests.e2e.browsing import come_in, follow, look
from tests.integration.webapp import School, report

STEPS = (
    "Task: 1 thing is",
    "Rubric: 1 thing is",
    "Tests: 1 thing is",
    "Try: 1 thing is",
    "Publish: 1 thing is",
)


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


def test_from_a_new_assignment_to_a_published_rubric(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/courses/{school.course}/assignments/new")
    slug = page.get_by_label("Short name (used in URLs and file names)")
    page.get_by_label("Title").fill("1. Flüße und Café: Rivers!")
    expect(slug).to_have_value("1-fluesse-und-cafe-rivers")
    page.get_by_label("Title").fill("Rivers")
    expect(slug).to_have_value("rivers")
    page.get_by_label("Due", exact=True).fill("2026-12-01T23:59")
    look(page, pictures, "authoring-1-new")
    page.get_by_role("button", name="Create assignment").click()
    page.get_by_role("link", name="task text").click()
    expect(page.get_by_label("Task text", exact=True)).to_be_in_viewport()
    steps = page.get_by_role("navigation", name="Edit assignment")
    expect(steps.get_by_role("link")).to_have_text(
        ["✓ Details: complete", *(re.compile(one) for one in STEPS)]
    )
    page.get_by_label("Task text", exact=True).fill("# Rivers\n\nRead the *rivers*.")
    page.get_by_role("button", name="Preview task").click()
    expect(page.locator("#preview em")).to_have_text("rivers")
    page.get_by_label("Technical review").fill("Be brief.")
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_text("Saved as version 2")).to_be_visible()
    look(page, pictures, "authoring-2-task")
    follow(page, page.get_by_role("link", name="solution", exact=True))
    solution = {"name": "work.py", "mimeType": "text/plain", "buffer": b"rivers = read('a')\nmean(rivers)\n"}
    page.locator("#u-solution").set_input_files([solution])
    page.get_by_role("region", name="solution/").get_by_role("button", name="Upload files").click()
    expect(page.get_by_role("link", name="work.py")).to_be_visible()
    look(page, pictures, "authoring-3-files")
    follow(page, page.get_by_label("Edit assignment").get_by_role("link", name="Rubric"))
    edit_the_rubric(page, pictures)
    follow(page, page.get_by_role("link", name="Continue: Try"))
    follow(page, page.get_by_role("link", name="Continue: Publish"))
    expect(page.get_by_role("button", name="Publish version 4")).to_be_visible()
    look(page, pictures, "authoring-6-versions")
    page.get_by_role("link", name="Version 4", exact=True).click()
    expect(page.get_by_text("“Finds the mean” (10 points) was added.")).to_be_visible()
    look(page, pictures, "authoring-7-version")
    page.go_back()
    page.get_by_role("button", name="Publish version 4").click()
    expect(page.get_by_text("The assignment is now visible to students.")).to_be_visible()


def edit_the_rubric(page: Page, pictures: Path) -> None:
    """Add a criterion with checks by the keyboard's buttons, meet a mistake, look, save."""
    page.evaluate("window.stayed = true")
    page.get_by_role("button", name="Add a criterion").click()
    title = page.locator('[id="criteria.2.title"]')
    expect(title).to_be_focused()
    assert page.locator("[data-check][open]").count() == 0  # checks are folded until one is wanted
    title.fill("Finds the mean")
    page.locator('[id="criteria.2.points"]').fill("ten")
    page.locator('[id="new:criteria.2.checks"]').select_option(label="Uses functions")
    page.locator('[id="criteria.2.checks"]').get_by_role("button", name="Add a check").click()
    names = page.locator('[id="criteria.2.checks.0.all_of"]')
    expect(names).to_be_focused()
    names.fill("mean\nread")
    said = page.locator('[id="criteria.2.checks.0"] [data-preview]')
    expect(said).to_contain_text("Solution: met. uses mean and read")
    names.fill("mean\nmedian")
    expect(said).to_contain_text("Solution: partly met. uses mean; median is missing")
    names.fill("mean\nread")
    assert page.evaluate("window.stayed") is True
    page.get_by_role("button", name="Student view").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "Criterion 3 “Finds the mean”, Points: “ten” is not a number"
    )
    look(page, pictures, "authoring-4-mistake")
    page.locator('[id="criteria.2.points"]').fill("10")
    expect(page.locator("[data-total]")).to_have_text("25")
    sort_the_criteria(page)
    page.get_by_role("button", name="Student view").click()
    expect(page.locator("#preview")).to_contain_text("Finds the mean")
    look(page, pictures, "authoring-5-rubric", all_widths=True)
    page.get_by_role("button", name="Save and continue").click()
    expect(page.get_by_text("Saved as version 4")).to_be_visible()
    expect(page.get_by_role("heading", name="Tests and files")).to_be_visible()


def sort_the_criteria(page: Page) -> None:
    """By a button, by keys and by the handle; where it stands is said, and it stays unfolded."""
    page.get_by_role("button", name="Move up: Finds the mean").click()
    expect(page.locator('[id="criteria.1.title"]')).to_have_value("Finds the mean")
    expect(page.get_by_role("button", name="Move up: Finds the mean")).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="position 2 of 3")).to_have_count(1)
    title = page.locator("summary", has_text="Finds the mean")
    title.press("Alt+ArrowUp")
    expect(page.locator('[id="criteria.0"] summary', has_text="Finds the mean")).to_be_focused()
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator('[id="criteria.2"] summary', has_text="Finds the mean")).to_be_focused()
    page.locator('[id="criteria.2"] [data-handle]').scroll_into_view_if_needed()
    page.locator('[id="criteria.2"] [data-handle]').hover()
    page.mouse.down()
    page.locator('[id="criteria.1"] > details > summary').hover()
    page.locator('[id="criteria.0"] > details > summary').hover(position={"x": 5, "y": 25})
    page.mouse.up()
    expect(page.get_by_role("status").filter(has_text="position 2 of 3")).to_have_count(1)
    expect(page.locator('[id="criteria.1.title"]')).to_have_value("Finds the mean")
    expect(page.locator('[id="criteria.1.title"]')).to_be_visible()


def test_a_button_pressed_before_the_scripts_came_ends_at_its_place(
    careful: Page, school: School, site: str
) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.route("**/editor.js", lambda route: route.abort(), times=1)
    page.goto(f"{site}/assignments/{school.assignment}/rubric")
    page.get_by_role("button", name="Add a criterion").click()
    expect(page.locator('[id="criteria.2.title"]')).to_be_focused()


def test_a_dry_run_is_compared_and_applied(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    handed = [school.submit(name) for name in ("anna", "ben", "grader")]
    for number, submission in enumerate(handed):
        points = 8.5 - 2 * number
        school.grade(submission, report(points=points, points_so_far=points), released=number == 0)
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/rubric")
    page.locator('[id="criteria.0"] > details > summary').click()
    page.locator('[id="criteria.0.points"]').fill("14")
    page.get_by_role("button", name="Save draft").click()
    follow(page, page.get_by_role("navigation", name="Edit assignment").get_by_role("link", name="Try"))
    look(page, pictures, "authoring-8-try")
    page.get_by_role("button", name="Start dry run").click()
    expect(page.get_by_text("0 / 3 graded")).to_be_visible()
    page.evaluate("window.old = true")
    finish(school, page.url.rsplit("/", 1)[-1])
    expect(page.get_by_text("All 3 graded.")).to_be_visible()
    assert page.evaluate("window.old") is None
    expect(page.locator("circle.plot-dot")).to_have_count(3)
    look(page, pictures, "authoring-9-dry-run", all_widths=True)
    page.get_by_role("link", name="Anna, submission 1").click()
    expect(page.get_by_role("heading", name="Loads the data")).to_be_visible()
    look(page, pictures, "authoring-10-tried")
    page.go_back()
    page.get_by_label("get the new grade and are notified").check()
    page.get_by_label("I have reviewed the changes").check()
    page.get_by_role("button", name="Apply grades").click()
    expect(page.get_by_text("3 grades were replaced.")).to_be_visible()
    page.goto(f"{site}/submissions/{handed[0]}")
    expect(page.get_by_text("18.5 of 20 points", exact=True)).to_be_visible()


def finish(school: School, dry_run_id: str) -> None:
    """What the machines and the server would do."""
    with school.store.write() as session:
        line = dry_runs.list_dry_runs(session, school.assignment, dry_run_id)[0]
        assert line.total == 3
        links = session.query(tables.DryRunRound).filter_by(dry_run_id=dry_run_id).all()
        for number, link in enumerate(sorted(links, key=lambda one: one.submission_id)):
            points = (18.5, 4.0, 12.0)[number]
            made = report(points=18.5, points_so_far=18.5, max_points=20)
            round_ = session.get_one(tables.Round, link.round_id)
            round_.state, round_.finished_at = RoundState.GRADED, now(session)
            owner = session.get_one(tables.Submission, link.submission_id).student_id
            points = 18.5 if owner == school.users["anna"] else points
            session.add(
                tables.Grade(
                    round_id=link.round_id, submission_id=link.submission_id, points=points,
                    points_so_far=points, final_points=points, max_points=20, held=False,
                    report=made.model_dump(mode="json"), created_at=now(session),
                )
            )  # fmt: skip
