"""Pages at the width of a phone in German, whose words are long: nothing is wider than the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.conftest import WAIT_MS
from tests.e2e.browsing import WIDTHS, come_in
from tests.e2e.courses.show_school import ShowSchool

MINE = (
    *("/", "/assignments/{shown}", "/assignments/{quick}/code"),
    *("/submissions/{result}", "/courses/{course}/my-grades"),
)
STAFF = (
    *("/regrades", "/submissions", "/failed", "/machines", "/assignments/{shown}/rubric"),
    *("/assignments/{shown}/review", "/submissions/{held}/review", "/assignments/{shown}/review/curve"),
    *("/assignments/{shown}/extensions", "/assignments/{shown}/statistics", "/courses/{course}/grades"),
    *("/courses/{course}/people", "/courses/{course}/audit", "/courses/{course}/statistics"),
)
ADMIN = ("/users", "/operations", "/operations/messages", "/operations/webhooks", "/audit")
CLIPPED = """() => [...document.querySelectorAll('.came-about')]
    .filter(one => one.scrollWidth > one.parentElement.clientWidth).length"""


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShowSchool]:
    made = ShowSchool(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


@pytest.mark.parametrize(("who", "paths"), [("anna", MINE), ("teacher", STAFF), ("admin", ADMIN)])
def test_pages_fit_a_phone(
    browser: Browser, school: ShowSchool, site: str, who: str, paths: tuple[str, ...]
) -> None:
    context = browser.new_context(viewport={"width": WIDTHS["phone"], "height": 844}, locale="de-DE")
    page, known = context.new_page(), {**school.made, "shown": school.shown, "course": school.course}
    known["quick"] = school.quick
    page.set_default_timeout(WAIT_MS)
    come_in(page, site, school, who)
    wrong = {}
    for path in paths:
        answer = page.goto(site + path.format(**known))
        assert answer is not None
        assert answer.ok, path
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if too_wide > 0 or page.evaluate(CLIPPED):
            wrong[path] = too_wide
    context.close()
    assert wrong == {}
