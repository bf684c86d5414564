"""The pages of trust in a real browser: from drawing a sample to released grades, and through the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from grading.store import tables
from grading.store.database import now
from tests.e2e.browsing import come_in, follow, look
from tests.e2e.courses.show_trust import give_opinions, mark_sample, plant_class, stress_variants
from tests.integration.review.test_pages import given
from tests.integration.trust.test_guarantees import Class
from tests.integration.webapp import School


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    Class(made, []).add(30, given(3, 4.5))
    yield made
    made.close()


def test_from_the_draw_to_released_grades(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.assignment}/review")
    follow(page, page.get_by_role("link", name="Trust"))
    expect(page.get_by_text("None yet")).to_be_visible()
    look(page, pictures, "trust-1-nothing", all_widths=True)
    expect(page.get_by_label("all criteria together")).to_be_checked()
    page.get_by_label("Levels to mark").fill("18")
    page.get_by_label("Wrong levels allowed").select_option("0.2")
    page.get_by_label("How sure").select_option("0.8")
    follow(page, page.get_by_role("button", name="Draw at random"))
    look(page, pictures, "trust-2-drawn", all_widths=True)
    follow(page, page.get_by_role("link", name=re.compile("Mark.*Loads the data")))
    look(page, pictures, "trust-3-mark", all_widths=True)
    for number in range(18):
        expect(page.get_by_text(re.compile(r"\d of \d+ marked by this criterion"))).to_be_visible()
        if number == 0:
            expect(page.locator("[data-across-title]")).to_contain_text("Loads the data")
        here = page.url
        page.keyboard.press("3")
        expect(page).not_to_have_url(here)
    expect(page.get_by_role("button", name="Release")).to_be_visible()
    look(page, pictures, "trust-4-proven", all_widths=True)
    follow(page, page.get_by_role("button", name="Release"))
    expect(page.get_by_text("released as proven.")).to_be_visible()
    look(page, pictures, "trust-5-released", all_widths=True)
    follow(page, page.get_by_role("button", name="Undo"))
    expect(page.get_by_role("button", name="Release")).to_be_visible()


def test_through_the_other_pages(careful: Page, school: School, site: str, pictures: Path) -> None:
    made = plant_class(school, 30)
    mark_sample(made, 10)
    give_opinions(made, 25)  # of so many, some are held, whichever come first
    page = careful
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{made.assignment}/trust")
    follow(page, page.get_by_role("link", name="Confidence"))
    expect(page.get_by_text("levels to be right")).to_be_visible()
    look(page, pictures, "trust-6-confidence", all_widths=True)

    follow(page, page.get_by_role("link", name="Second opinions"))
    look(page, pictures, "trust-7-opinions", all_widths=True)
    page.get_by_label("A random sample").check()
    follow(page, page.get_by_role("button", name="Save"))
    expect(page.get_by_label("A random sample")).to_be_checked()
    follow(page, page.get_by_role("link", name="Review them"))
    expect(page.locator("[data-chip]").first).to_contain_text("second opinion")
    page.go_back()

    follow(page, page.get_by_role("link", name="Questions"))
    look(page, pictures, "trust-8-questions", all_widths=True)
    follow(page, page.get_by_role("link", name="Example 1").first)
    expect(page.locator(":target")).to_contain_text("merge(")
    page.go_back()
    article = page.get_by_role("article").filter(has_text="merge() where the rubric names left_join()")
    article.get_by_label("Yes: checks and models count both").check()
    follow(page, article.get_by_role("button", name="Save in a draft"))
    expect(page.get_by_text("merge() counts as left_join().")).to_be_visible()

    follow(page, page.get_by_role("link", name="Stress test"))
    follow(page, page.get_by_role("button", name="Start stress test"))
    expect(page.get_by_text("Variants are being made")).to_be_visible()
    with page.expect_navigation():  # the page notices that it is over
        finish_stress_test(school, [one.submission_id for one in made.works[:2]])
    expect(page.get_by_text("kinds of variants would move released grades.")).to_be_visible()
    look(page, pictures, "trust-9-stress", all_widths=True)


def finish_stress_test(school: School, sources: list[str]) -> None:
    """Let it end with some variants that move grades."""
    with school.store.write() as session:
        test = session.query(tables.StressTest).one()
        session.query(tables.StressVariant).delete()
        session.add_all(stress_variants(test.id, sources))
        test.finished_at = now(session)
