"""Walking through the pages in a real browser: signing in, pictures, faults of accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from grading.store import accounts, tables
from tests.integration.webapp import School

PASSWORD = "correct horse battery"
WIDTHS = {"phone": 390, "laptop": 1024, "wide": 1600}


def with_passwords(school: School, *names: str) -> School:
    """These people can sign in with PASSWORD."""
    with school.store.write() as session:
        for name in names:
            user = session.get_one(tables.User, school.users[name])
            user.password_hash = accounts.hash_password(PASSWORD)
    return school


def sign_in(page: Page, site: str, name: str) -> None:
    """By the form, as people do."""
    page.goto(site)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def come_in(page: Page, site: str, school: School, name: str) -> None:
    """With a session of somebody, without the slow password."""
    client = school.client(name)
    client.get("/healthz")
    cookie = client.get_cookie("grader")
    assert cookie is not None
    page.context.add_cookies([{"name": "grader", "value": cookie.value, "url": site}])


def look(page: Page, pictures: Path, name: str, *, all_widths: bool = False) -> None:
    """Take pictures and find no serious fault of accessibility, in light and dark.

    With `all_widths` at each of WIDTHS, where nothing may be wider than the page.
    """
    before = page.viewport_size
    widths = WIDTHS if all_widths else {"": 0}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
        for width_name, width in widths.items():
            if width:
                page.set_viewport_size({"width": width, "height": 900})
                too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert too_wide <= 0, (name, width_name, too_wide)
            kind = "-".join(part for part in (name, width_name, scheme) if part)
            page.screenshot(path=pictures / f"{kind}.png", full_page=True)
        faults(page, f"{name} in {scheme}")
    if before:
        page.set_viewport_size(before)


def faults(page: Page, name: str) -> None:
    """Fail on what axe finds serious or critical."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    bad = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
    assert bad == [], (name, bad)
