"""Every page in German and English, at three widths, in light and dark, by Tab; here a phone in German."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.conftest import WAIT_MS
from tests.e2e.browsing import WIDTHS, come_in, faults
from tests.e2e.conftest import watched
from tests.e2e.courses.show_pages import ShownPage, every_page, open_school, shown_pages
from tests.e2e.courses.show_school import ShowSchool
from tests.e2e.courses.show_trust import plant_trust

LOOKED_AT = ("review-held-release", "for-student", "invitations", "session-ended")
"""Names of pages that no other walk looks at."""
MINE = (
    *("/", "/assignments/{shown}", "/assignments/{quick}/code"),
    *("/submissions/{result}", "/courses/{course}/my-grades"),
)
STAFF = (
    *("/regrades", "/submissions", "/failed", "/machines", "/assignments/{shown}/rubric"),
    *("/assignments/{shown}/review", "/submissions/{held}/review", "/assignments/{shown}/review/curve"),
    *("/assignments/{shown}/extensions", "/assignments/{shown}/statistics", "/courses/{course}/grades"),
    *("/courses/{course}/people", "/courses/{course}/audit", "/courses/{course}/statistics"),
    *("/assignments/{shown}/review/criteria", "/assignments/{shown}/review/criteria/clean/next"),
    *("/assignments/{shown}/review/criteria/clean/groups", "/assignments/{shown}/similarity"),
    "/assignments/{shown}/review/criteria/clean/groups/next",
)
ADMIN = (
    *("/users", "/operations", "/operations/messages", "/operations/webhooks", "/operations/token-use"),
    "/audit",
)
CLIPPED = """() => [...document.querySelectorAll(".came-about")]
    .filter((one) => one.scrollWidth > one.parentElement.clientWidth).map((one) => one.textContent)"""
BEYOND = """() => {
    const out = [...document.querySelectorAll("main svg text")].filter((text) => {
        if (!text.checkVisibility()) return false;
        const [inner, outer] = [text, text.ownerSVGElement].map((one) => one.getBoundingClientRect());
        return inner.left < outer.left - 2 || inner.right > outer.right + 2;
    });
    return [document.documentElement.scrollWidth - window.innerWidth, out.map((text) => text.textContent)];
}"""
"""How much wider than the window the page is, and texts that reach out of their picture."""
WATCH = """() => {
    window.visited = new Set();
    window.unseen = [];
    document.addEventListener("focusin", ({target}) => {
        if (window.visited.has(target)) return;
        window.visited.add(target);
        const style = getComputedStyle(target);
        const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
        const seen = outlined || style.boxShadow !== "none";
        // a bar of a plot gets its line around it, the editor shows a cursor
        if (seen || target.closest(".ace_editor, .plot .bar")) return;
        window.unseen.push(target.outerHTML.slice(0, 160));
    }, true);
    const modal = document.querySelector("dialog:modal") ?? document;
    const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    const groups = new Set();
    window.controls = [...modal.querySelectorAll(controls)].filter((one) => {
        if (one.tabIndex < 0 || one.disabled || one.closest(".ace_editor, [inert]")) return false;
        if (!one.checkVisibility({visibilityProperty: true})) return false;
        if (one.type !== "radio") return true;
        const group = `${one.form?.id}${one.form?.action}${one.name}`;
        return !groups.has(group) && groups.add(group);
    });
    return window.controls.length;
}"""
"""Remember what is focused, and whether that can be seen; the number of controls."""
LEFT = """() => window.controls.filter((one) => {
    const reached = one.type === "radio"
        ? [...window.visited].some((other) => other.name === one.name) : window.visited.has(one);
    return !reached && one.checkVisibility({visibilityProperty: true});
}).map((one) => one.outerHTML.slice(0, 160))"""
"""Controls that were not reached and are still there."""


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShowSchool]:
    made = open_school(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


@pytest.mark.parametrize(("who", "paths"), [("anna", MINE), ("teacher", STAFF), ("admin", ADMIN)])
def test_pages_fit_a_phone_in_german(
    browser: Browser, school: ShowSchool, site: str, who: str, paths: tuple[str, ...]
) -> None:
    page = browser.new_page(viewport={"width": WIDTHS["phone"], "height": 844}, locale="de-DE")
    known = {**school.made, "shown": school.shown, "course": school.course, "quick": school.quick}
    page.set_default_timeout(WAIT_MS)
    come_in(page, site, school, who)
    wrong = {}
    for path in paths:
        answer = page.goto(site + path.format(**known))
        assert answer is not None
        assert answer.ok, path
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        wider, texts = page.evaluate(BEYOND)
        if wider > 0 or texts or page.evaluate(CLIPPED):
            wrong[path] = wider, texts
    page.context.close()
    assert wrong == {}


def test_what_no_other_walk_looks_at(browser: Browser, school: ShowSchool, site: str) -> None:
    page = browser.new_page(viewport={"width": WIDTHS["phone"], "height": 900}, locale="de-DE")
    with watched(page):
        come_in(page, site, school, "teacher")
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        pages = [one for one in shown_pages(school) if one.name in LOOKED_AT]
        wrong = {one.name: found for one in pages if (found := looked_at(page, site, one, ("dark",)))}
    page.context.close()
    assert wrong == {}


def test_what_only_the_soak_and_pictures_show_is_there(
    browser: Browser, school: ShowSchool, site: str, root: Path
) -> None:
    """Every address and picture, the pages of trust, and what readers do first."""
    school.trust = plant_trust(school, 30)
    shown = list(every_page(school))
    assert len({one.name for one in shown}) == len(shown)
    kept = {f"{one.name}-{look}.webp" for one in shown for look in one.keep}
    assert kept == {one.name for one in (root / "docs" / "screens").iterdir()}
    addresses = school.app.url_map.bind("")
    paths = {one.name: one.path.partition("?")[0] for one in shown}
    assert {name for name, path in paths.items() if not addresses.test(path)} == {"nothing-here"}
    teacher = school.client("teacher")
    trust = {one.name: teacher.get(one.path).status_code for one in shown if one.name.startswith("trust-")}
    assert set(trust.values()) == {200}, trust
    page = browser.new_page(viewport={"width": WIDTHS["phone"], "height": 900})
    page.set_default_timeout(WAIT_MS)
    for one in shown:
        if one.first and one.name not in LOOKED_AT:
            come_in(page, site, school, one.who)
            page.goto(site + one.path)
            one.first(page)
    page.context.close()


@pytest.mark.soak
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("language", ["de-DE", "en-GB"])
def test_every_page_in_every_look(
    browser: Browser, school: ShowSchool, site: str, language: str, width: str
) -> None:
    wrong: dict[str, list[Any]] = {}
    for shown in every_page(school):
        size = {"width": WIDTHS[width], "height": 900}
        context = browser.new_context(locale=language, reduced_motion="reduce", viewport=size)  # type: ignore[arg-type]
        page = context.new_page()
        with watched(page):
            if shown.who:
                come_in(page, site, school, shown.who)
            if found := looked_at(page, site, shown):
                wrong[shown.name] = found
        context.close()
    assert wrong == {}


def looked_at(
    page: Page, site: str, shown: ShownPage, schemes: tuple[str, ...] = ("light", "dark")
) -> list[Any]:
    """What is wrong with a page at the width the window has; colours alone where one scheme was seen."""
    page.goto(site + shown.path)
    if shown.first:
        shown.first(page)
    wrong: list[Any] = []
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        wider, texts = page.evaluate(BEYOND)
        wrong += [(scheme, wider, texts)] if wider > 0 or texts else []
        try:
            faults(page, shown.name, "all" if scheme == schemes[0] else "colours")
        except AssertionError as error:
            wrong.append((scheme, str(error)[:600]))
    return wrong + not_reached(page)


def not_reached(page: Page) -> list[Any]:
    """Controls that Tab does not reach, or whose focus cannot be seen."""
    count = page.evaluate(WATCH)
    for _ in range(2):
        for _press in range(count + 5):
            page.keyboard.press("Tab")
        left = page.evaluate(LEFT)
        if not left:
            break
    unseen = page.evaluate("window.unseen")
    return [("not reached", one) for one in left] + [("focus not seen", one) for one in unseen]
