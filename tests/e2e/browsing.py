"""Walking through the pages in a real browser: signing in, pictures, faults of accessibility."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urljoin

import hypothesis
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from grading.store import tables
from grading.store.accounts import users
from tests.integration.webapp import School

PASSWORD = "correct horse battery"
WIDTHS = {"phone": 390, "laptop": 1024, "wide": 1600}
COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe that tell light from dark."""
VIOLATIONS = """options => axe.run(document, options).then(
    found => found.violations.map(one => ({id: one.id, impact: one.impact, html: one.nodes[0].html})))"""


def with_passwords(school: School, *names: str) -> School:
    """These people can sign in with PASSWORD."""
    with school.store.write() as session:
        for name in names:
            user = session.get_one(tables.User, school.users[name])
            user.password_hash = users.hash_password(PASSWORD)
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


def as_new(page: Page) -> None:
    """Signed out, on a page without scripts, with nothing stored.

    On the same site: where a page leaves for no site, or another one, the browser starts another process.
    """
    for other in page.context.pages:
        if other is not page:
            other.close()
    page.unroute_all()
    page.goto(urljoin(page.url, "/healthz"))
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.context.clear_cookies()
    page.set_viewport_size({"width": 1280, "height": 720})
    page.emulate_media(media="null", color_scheme="light", reduced_motion="reduce")


def follow(page: Page, what: Locator) -> None:
    """Click what leads to another page, and wait for it whole.

    Before its scripts nobody hears its keys, and before it scrolled to its anchor a click may miss.
    """
    with page.expect_navigation():
        what.click()


def look(page: Page, pictures: Path, name: str, *, all_widths: bool = False) -> None:
    """Find no serious fault of accessibility: of colours in dark, of any other kind in light.

    With `all_widths` in light at the widest of WIDTHS and in dark at the narrowest, and nothing may be wider
    than the page. Where pictures are kept they are taken, then at all of WIDTHS and in both.

    Without, it is another state of such a page, and only `make soak` looks at it in dark, and at colours in
    light: they are variables, whose contrast in both schemes unit/web/test_contrast.py holds.
    """
    page.wait_for_load_state()  # without its styles a page is wider
    before = page.viewport_size
    orders = {"light": tuple(WIDTHS), "dark": tuple(reversed(WIDTHS))}
    for scheme in orders if all_widths or kept() or soaking() else ("light",):
        order = orders[scheme]
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
        seen = order if kept() else (order[0], order[-1]) if scheme == "light" else order[-1:]
        for width_name in seen if all_widths else ("",):
            if width_name:
                fits(page, name, width_name)
            picture(page, pictures, "-".join(part for part in (name, width_name, scheme) if part))
        light = "all" if soaking() else "others"
        faults(page, f"{name} in {scheme}", "colours" if scheme == "dark" else light)
    if before:
        page.set_viewport_size(before)


def fits(page: Page, name: str, width_name: str) -> None:
    """At this width nothing is wider than the page."""
    page.set_viewport_size({"width": WIDTHS[width_name], "height": 900})
    too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert too_wide <= 0, (name, width_name, too_wide)


def soaking() -> bool:
    """Whether these are the long tests."""
    return hypothesis.settings.get_current_profile_name() == "soak"


def kept() -> bool:
    """Whether somebody wants to see pictures: taking them is slow."""
    return "GRADER_SCREENSHOTS" in os.environ


def picture(page: Page, pictures: Path, name: str, *, full_page: bool = True) -> None:
    """A screenshot, where pictures are kept."""
    if kept():
        page.screenshot(path=pictures / f"{name}.png", full_page=full_page)


def faults(page: Page, name: str, kinds: Literal["all", "colours", "others"] = "all") -> None:
    """Fail on what axe finds, of all kinds, of colours or of all others, once the page is there."""
    page.wait_for_load_state()  # a page whose styles are still to come has other colours
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    options: dict[str, Any] = {"resultTypes": ["violations"], "selectors": False}
    if kinds == "colours":
        options["runOnly"] = {"type": "rule", "values": COLOURS}
    elif kinds == "others":  # to look at colours takes as long as all others together
        options["rules"] = {rule: {"enabled": False} for rule in COLOURS}
    found: list[dict[str, Any]] = page.evaluate(VIOLATIONS, options)
    bad = [(one["id"], one["html"]) for one in found]
    assert bad == [], (name, bad)
