"""The pages of the school to be looked at, and what their readers do first: for pictures and for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect

from grading.broker.canaries import PartHeartbeat
from tests.e2e.courses.show_answers import compare_class
from tests.e2e.courses.show_school import ShowSchool
from tests.e2e.courses.show_trust import plant_trust
from tests.e2e.home.test_first_walk import four_machines
from tests.e2e.lti.show_platforms import connect


def open_school(place: Path) -> ShowSchool:
    """The school with all there is to see."""
    school = ShowSchool(place)
    connect(school, school.shown)
    compare_class(school)
    school.dispatch.machines = four_machines  # type: ignore[method-assign]
    parts = [PartHeartbeat(part, f"host:{part}", "", 2.0) for part in ("store", "sweeper", "sandbox")]
    school.dispatch.parts = lambda: parts  # type: ignore[method-assign]
    return school


@dataclass(frozen=True)
class ShownPage:
    """A page, who looks at it, and what of it is kept in docs/screens: `width-scheme` names."""

    name: str
    who: str
    path: str
    keep: tuple[str, ...] = ()
    first: Callable[[Page], None] | None = None
    """What the reader does before the picture is taken."""
    whole: bool = True


def click(selector: str) -> Callable[[Page], None]:
    """Click this, where it is visible; it has to be there."""

    def clicked(page: Page) -> None:
        expect(page.locator(selector)).to_be_attached()
        if page.locator(selector).is_visible():
            page.locator(selector).click()

    return clicked


def press(*keys: str) -> Callable[[Page], None]:
    """Press these keys, on a page that listens to them."""

    def pressed(page: Page) -> None:
        page.locator("[data-rv=help]:visible, [data-across-help]:visible").first.wait_for()
        for key in keys:
            page.keyboard.press(key)

    return pressed


def compare_courses(page: Page) -> None:
    """Set the first other course beside this one."""
    page.locator("input[name=with]").first.check()
    with page.expect_navigation():
        page.locator("form:has(input[name=with]) button").first.click()


def preview_check(page: Page) -> None:
    """Unfold a criterion with a check, and let the check say what it finds."""
    page.locator('[id="criteria.1"] > details > summary').click()
    check = page.locator('[id="criteria.1.checks.0"] summary').first
    check.click()
    names = page.locator('[id="criteria.1.checks.0.any_of"]')
    names.fill("dropna\nfillna\nnotna")
    page.locator('[id="criteria.1.checks.0"] [data-preview]:not(:empty)').wait_for()
    check.evaluate("one => one.scrollIntoView()")


def write_comment(page: Page) -> None:
    """Comment on a line and send it."""
    page.locator("[data-rv=help]:visible").wait_for()
    page.keyboard.press("c")
    page.keyboard.type("Say why you leave these rows out.")
    page.keyboard.press("Control+Enter")


def grade_with_a_key(page: Page) -> None:
    """Give a level; the message on the next page has a button to undo it."""
    press("3")(page)
    page.locator(".toast [data-undo]").wait_for()


def send_test_message(page: Page) -> None:
    """Send one to the first receiver; its page waits for the answer."""
    with page.expect_navigation():
        page.locator("form[action$='/test'] button").first.click()


def session_ends(page: Page) -> None:
    """A comment is sent after the session ended."""
    cookies = page.context.cookies()
    page.context.clear_cookies()
    write_comment(page)
    page.locator("dialog[open]").wait_for()
    page.context.add_cookies(cookies)  # type: ignore[arg-type]  # as they were


def every_page(school: ShowSchool) -> Iterator[ShownPage]:
    """All of them. Those of trust come last: their class comes into the course when they are asked for."""
    yield from shown_pages(school)
    school.trust = school.trust or plant_trust(school)
    at = f"/assignments/{school.trust}/trust"
    for name, path in (
        ("release", ""), ("confidence", "/confidence"), ("opinions", "/second-opinions"),
        ("questions", "/questions"), ("models", "/models"), ("stress", "/stress-test"),
        ("machines", "/machines"),
    ):  # fmt: skip
        keep = () if name == "models" else ("laptop-light",)
        yield ShownPage(f"trust-{name}", "teacher", f"{at}{path}", keep, whole=False)
    yield ShownPage(
        "trust-model", "teacher", f"{at}/models", ("laptop-light",), first=open_trial, whole=False
    )


def open_trial(page: Page) -> None:
    """The newest trial of a model."""
    if page.url.endswith("/models"):
        with page.expect_navigation():
            page.locator(".trust-answers a").first.click()


def shown_pages(school: ShowSchool) -> list[ShownPage]:
    """All but those of trust."""
    made, shown, course = school.made, school.shown, school.course
    at, of = f"/assignments/{shown}", f"/courses/{course}"
    return [
        ShownPage("sign-in", "", "/sign-in"),
        ShownPage("home-student", "anna", "/", ("laptop-light",)),
        ShownPage("home-staff", "teacher", "/", ("laptop-light",)),
        ShownPage("submissions", "teacher", "/submissions"),
        ShownPage("courses", "teacher", "/courses"),
        ShownPage("course", "teacher", of),
        ShownPage("course-student", "anna", of),
        ShownPage("assignment", "anna", at),
        ShownPage("assignment-staff", "teacher", at),
        ShownPage("submit", "anna", f"{at}/submit", ("laptop-light",)),
        ShownPage("code", "anna", f"/assignments/{school.quick}/code", ("laptop-light",)),
        ShownPage("waiting", "admin", f"/submissions/{made['running']}"),
        ShownPage("queued", "admin", f"/submissions/{made['queued']}"),
        ShownPage("result", "anna", f"/submissions/{made['result']}", ("laptop-light",)),
        ShownPage("result-partial", "teacher", f"/submissions/{made['partial']}"),
        ShownPage("result-failed", "teacher", f"/submissions/{made['failed']}"),
        ShownPage("receipt", "anna", f"/submissions/{made['result']}/receipt"),
        ShownPage("review-list", "teacher", f"{at}/review"),
        ShownPage(
            "review",
            "teacher",
            f"/submissions/{made['graded']}/review",
            ("wide-light", "phone-light"),
            whole=False,
        ),
        ShownPage("review-held", "teacher", f"/submissions/{made['held']}/review"),
        ShownPage(
            "review-held-release",
            "teacher",
            f"/submissions/{made['held']}/review",
            first=click("[data-rv=release]"),
            whole=False,
        ),
        ShownPage(
            "review-chips",
            "teacher",
            f"{at}/review?look=held&released=no&low=5",
            ("laptop-light",),
            whole=False,
        ),
        ShownPage(
            "review-keys", "teacher", f"/submissions/{made['graded']}/review", first=press("?"), whole=False
        ),
        ShownPage("criteria", "teacher", f"{at}/review/criteria"),
        ShownPage("criterion", "teacher", f"{at}/review/criteria/clean/next"),
        ShownPage(
            "criterion-undo",
            "teacher",
            f"{at}/review/criteria/think/next",
            ("laptop-light",),
            first=grade_with_a_key,
            whole=False,
        ),
        ShownPage("criterion-list", "teacher", f"{at}/review/criteria/clean"),
        ShownPage("answer-groups", "teacher", f"{at}/review/criteria/clean/groups"),
        ShownPage("answer-group", "teacher", f"{at}/review/criteria/clean/groups/next", ("laptop-light",)),
        ShownPage("rubric-items", "teacher", f"{at}/review/criteria/clean/items"),
        ShownPage("similarity", "teacher", f"{at}/similarity", ("laptop-light",)),
        ShownPage(
            "similarity-pair",
            "teacher",
            f"{at}/similarity",
            first=click("[aria-labelledby=pairs-title] td:last-child a >> nth=0"),
        ),
        ShownPage("similarity-course", "teacher", f"{of}/similarity"),
        ShownPage("for-student", "teacher", f"{at}/submit-for"),
        ShownPage("invitations", "teacher", f"{of}/people/invite"),
        ShownPage("review-release", "teacher", f"{at}/review/release"),
        ShownPage("review-curve", "teacher", f"{at}/review/curve"),
        ShownPage("regrades", "teacher", "/regrades"),
        ShownPage("regrade", "teacher", "/regrades/1"),
        ShownPage("second-marking", "teacher", f"{at}/second-marking"),
        ShownPage("second-mark", "teacher", f"/submissions/{made['graded']}/second-marking"),
        ShownPage("saved-comments", "teacher", f"{of}/comments"),
        ShownPage("rubric", "teacher", f"{at}/rubric", ("laptop-light",), whole=False),
        ShownPage(
            "rubric-check", "teacher", f"{at}/rubric", ("laptop-light",), first=preview_check, whole=False
        ),
        ShownPage("rubric-read", "teacher", f"{at}/rubric/view"),
        ShownPage("task", "teacher", f"{at}/task"),
        ShownPage("settings", "teacher", f"{at}/settings"),
        ShownPage("versions", "teacher", f"{at}/versions"),
        ShownPage("dry-runs", "teacher", f"{at}/dry-runs"),
        ShownPage("statistics", "teacher", f"{at}/statistics", ("laptop-light",)),
        ShownPage("statistics-course", "teacher", f"{of}/statistics"),
        ShownPage(
            "statistics-compared", "teacher", f"{of}/statistics", ("laptop-light",), first=compare_courses
        ),
        ShownPage("teaching", "teacher", f"{at}/examples"),
        ShownPage("extensions", "teacher", f"{at}/extensions"),
        ShownPage("groups", "teacher", f"{at}/groups"),
        ShownPage("class-upload", "teacher", f"{at}/class"),
        ShownPage("gradebook", "teacher", f"{of}/grades", ("laptop-light",)),
        ShownPage("my-grades", "anna", f"{of}/my-grades"),
        ShownPage("people", "teacher", f"{of}/people"),
        ShownPage("people-import", "teacher", f"{of}/people/import"),
        ShownPage("course-settings", "teacher", f"{of}/settings"),
        ShownPage("course-audit", "teacher", f"{of}/audit"),
        ShownPage("account", "anna", "/account"),
        ShownPage(
            "session-ended",
            "teacher",
            f"/submissions/{made['graded']}/review",
            first=session_ends,
            whole=False,
        ),
        ShownPage("tokens", "anna", "/tokens"),
        ShownPage("accounts", "admin", "/users"),
        ShownPage("operations", "admin", "/operations"),
        ShownPage("machines", "admin", "/machines"),
        ShownPage("messages", "admin", "/operations/messages"),
        ShownPage("webhooks", "admin", "/operations/webhooks", ("laptop-light",), whole=False),
        ShownPage("webhook-test", "admin", "/operations/webhooks", first=send_test_message),
        ShownPage("deliveries", "admin", "/operations/deliveries"),
        ShownPage("delivery", "admin", "/operations/deliveries/2"),
        ShownPage("webhook-secrets", "admin", "/operations/webhook-secrets"),
        ShownPage("platforms", "admin", "/platforms"),
        ShownPage("platform", "admin", "/platforms/1", first=click("details.panel summary")),
        ShownPage("course-platform", "teacher", f"{of}/platform"),
        ShownPage("operations-tokens", "admin", "/operations/tokens"),
        ShownPage("token-use", "admin", "/operations/token-use"),
        ShownPage("not-graded", "teacher", "/failed"),
        ShownPage("audit", "admin", "/audit"),
        ShownPage("menu", "teacher", "/machines", first=click(".menu-main summary")),
        ShownPage("menu-reader", "teacher", "/machines", first=click(".menu-reader summary")),
        ShownPage("nothing-here", "anna", "/nothing-here"),
        ShownPage("not-for-you", "anna", "/users"),
    ]
