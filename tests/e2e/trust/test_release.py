"""From drawing a sample to released grades in a real browser: keys, what the page says, Undo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browsing import come_in, follow, look
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
    page.get_by_label("Submissions to mark").fill("9")
    page.get_by_label("Wrong levels allowed").select_option("0.2")
    page.get_by_label("How sure").select_option("0.8")
    follow(page, page.get_by_role("button", name="Draw at random"))
    look(page, pictures, "trust-2-drawn", all_widths=True)
    follow(page, page.get_by_role("link", name=re.compile("Mark.*Loads the data")))
    look(page, pictures, "trust-3-mark", all_widths=True)
    for criterion in ("Loads the data", "Thinks about it"):
        for number in range(9):
            title = page.locator("[data-across-title]")
            expect(title).to_contain_text(criterion)
            expect(page.get_by_text(f"{number} of 9 marked by this criterion")).to_be_visible()
            page.keyboard.press("3")
    expect(page.get_by_role("button", name="Release")).to_be_visible()
    look(page, pictures, "trust-4-proven", all_widths=True)
    follow(page, page.get_by_role("button", name="Release"))
    expect(page.get_by_text("released unread.")).to_be_visible()
    look(page, pictures, "trust-5-released", all_widths=True)
    follow(page, page.get_by_role("button", name="Undo"))
    expect(page.get_by_role("button", name="Release")).to_be_visible()
