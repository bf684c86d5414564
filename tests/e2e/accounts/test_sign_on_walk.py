"""Single sign-on and the second factor by keyboard alone: in English, and on a phone in German."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyotp
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from werkzeug.serving import make_server

from grading.store import tables
from grading.store.accounts import second_factor
from grading.store.courses import invitations
from tests.conftest import WAIT_MS
from tests.e2e.browsing import PASSWORD, WIDTHS, look, with_passwords
from tests.e2e.conftest import Shown, watched
from tests.integration.accounts.sign_on_world import STUDENT, Campus, campus
from tests.integration.webapp import School

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

pytestmark = pytest.mark.soak

MOST_TABS = 80
CODES = re.compile(r"[A-Z2-7]{4}(-[A-Z2-7]{4}){3}")


@dataclass
class Providers:
    """The pages of both providers: each signs in who sits there, with a button."""

    here: Campus | None = None
    grader: str = ""
    person: str = "anna"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        assert self.here is not None
        name = environ["PATH_INFO"].split("/")[1]
        provider = self.here.partner if name == "partner" else self.here.university
        told = provider.authorize(f"{provider.issuer}/auth?{environ['QUERY_STRING']}", self.person)
        inputs = "".join(f'<input type="hidden" name="{key}" value="{told[key]}">' for key in told)
        action = f"{self.grader}/sign-on/{name}/callback"
        form = f'<form action="{action}">{inputs}<button>Sign in there</button></form>'
        start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
        return [f"<!doctype html><title>Provider</title><main>{form}</main>".encode()]


@pytest.fixture
def here(tmp_path: Path, server: tuple[str, Shown]) -> Iterator[Campus]:
    """The browser's address is the school's own, which is told to providers."""
    address, shown = server
    pages = Providers(grader=address)
    beside = make_server("127.0.0.1", 0, pages, threaded=True)
    thread = threading.Thread(target=beside.serve_forever)
    thread.start()
    issuers = [f"http://127.0.0.1:{beside.server_port}/{name}" for name in ("university", "partner")]
    with campus(tmp_path, {"issuer": issuers[1]}, issuer=issuers[0]) as made:
        pages.here = made
        made.university.issuer, made.partner.issuer = issuers
        config = made.school.services.config
        public = config.server.model_copy(update={"public_url": address})
        made.school.services = replace(
            made.school.services, config=config.model_copy(update={"server": public})
        )
        with_passwords(made.school, "teacher", "admin")
        shown.app = made.school.app
        yield made
        shown.app = None
    beside.shutdown()
    thread.join()
    beside.server_close()


@dataclass
class Walk:
    """A reader without a mouse."""

    page: Page
    here: Campus
    site: str
    pictures: Path
    language: str

    def reach(self, what: Locator) -> None:
        """By Tab."""
        expect(what).to_be_visible()
        for _ in range(MOST_TABS):
            if what.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {what}")

    def press(self, what: Locator) -> None:
        """Follow a link or send a form, by Enter."""
        self.reach(what)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def type(self, what: str, text: str) -> None:
        """Into the field of this id."""
        self.reach(self.page.locator(f"#{what}"))
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def send(self) -> None:
        """The form whose field has the focus."""
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def open(self, path: str) -> None:
        self.page.goto(self.site + path)

    def link(self, address: str) -> Locator:
        """A link of the main part."""
        return self.page.locator(f'main a[href*="{address}"]').first

    def there(self) -> None:
        """Sign in on the provider's page."""
        self.press(self.page.get_by_role("button", name="Sign in there"))

    def look(self, name: str) -> None:
        look(self.page, self.pictures, f"sign-on-{name}-{self.language}", all_widths=True)


@pytest.fixture(params=["en-US", "de-DE"])
def walk(
    request: pytest.FixtureRequest, browser: Browser, here: Campus, server: tuple[str, Shown], pictures: Path
) -> Iterator[Walk]:
    language = str(request.param)[:2]
    size = {"width": WIDTHS["wide" if language == "en" else "phone"], "height": 844}
    page = browser.new_page(viewport=size, locale=request.param)  # type: ignore[arg-type]
    made = Walk(page, here, server[0], pictures, language)
    with watched(page):
        page.set_default_timeout(WAIT_MS)
        yield made
    page.context.close()


def test_a_student_signs_in_links_and_unlinks(walk: Walk) -> None:
    page, here = walk.page, walk.here
    here.university.people |= {"anna": STUDENT}
    here.partner.people |= {"anna": {"name": "Anna <b>Student</b>"}}
    walk.open("/sign-in")
    walk.look("sign-in")
    walk.press(walk.link("/sign-on/partner"))
    walk.there()
    walk.look("refused")
    walk.open("/sign-in")
    walk.press(walk.link("/sign-on/university"))
    walk.there()
    expect(page.locator("h1")).to_be_visible()
    walk.open("/account")
    walk.press(walk.link("/account/sign-ons/partner"))
    walk.look("link-again")
    walk.press(walk.link("/sign-on/university"))
    walk.there()
    walk.look("link-shown")
    walk.press(page.locator("main form button"))
    walk.look("link-go")
    walk.press(walk.link("/partner/auth"))
    walk.there()
    walk.look("linked")
    walk.press(page.locator('main a[href$="/unlink"]').last)
    walk.look("unlink")
    walk.press(page.locator("main form button"))
    expect(page.locator('main a[href$="/unlink"]')).to_have_count(1)
    page.evaluate("document.querySelector('form[action$=\"/sign-out\"]').requestSubmit()")
    expect(walk.link("/session/end")).to_be_visible()
    walk.look("signed-out")


def test_an_instructor_sets_up_a_second_factor_and_gets_a_new_password(walk: Walk) -> None:
    page, school = walk.page, walk.here.school
    walk.open("/sign-in")
    walk.type("name", "teacher")
    walk.type("password", PASSWORD)
    walk.send()
    walk.open("/account/second-factor")
    walk.look("second-factor-begin")
    walk.type("password", PASSWORD)
    walk.send()
    walk.look("second-factor-setup")
    secret = "".join(page.locator("code.secret").inner_text().split())
    app = pyotp.TOTP(secret)
    walk.type("one_time_code", app.at(int(time.time()) - 30))
    walk.send()
    codes = [one.inner_text() for one in page.locator("code.secret").all()]
    assert len([one for one in codes if CODES.fullmatch(one)]) == second_factor.RECOVERY_CODES
    walk.look("recovery-codes")
    walk.press(walk.link("/account"))
    walk.open("/account/second-factor")
    walk.look("second-factor-on")
    walk.open("/account/sign-ons/university")
    walk.look("link-password")
    walk.type("old", PASSWORD)
    walk.type("one_time_code", codes[0])
    walk.send()
    walk.press(walk.link("/university/auth"))
    walk.there()
    expect(page.locator('main a[href$="/unlink"]')).to_have_count(1)
    with school.store.write() as session:
        user_id = school.users["teacher"]
        secret = invitations.create_links(session, [user_id], "user:1", 1)[user_id]
    page.context.clear_cookies()
    walk.open(f"/reset/{secret}")
    walk.look("set-password")
    for field in ("password", "again"):
        walk.type(field, "a new one, and long")
    walk.send()
    walk.press(walk.link("/sign-on/university"))
    walk.there()
    walk.look("locked-refused")
    walk.open("/sign-in")
    walk.type("name", "teacher")
    walk.type("password", "a new one, and long")
    walk.send()
    walk.look("code")
    walk.reach(page.locator("summary"))
    page.keyboard.press("Enter")
    walk.type("recovery_code", codes[1])
    walk.look("code-recovery")
    walk.send()
    walk.open("/account")
    walk.look("locked")


def test_an_administrator_breaks_the_glass(walk: Walk) -> None:
    page, school = walk.page, walk.here.school
    app = break_glass(school)
    config = school.services.config
    off = config.sign_on.model_copy(update={"local_accounts": False})
    school.services = replace(school.services, config=config.model_copy(update={"sign_on": off}))
    school.app.extensions["grader"] = school.services
    walk.here.university.people |= {"anna": STUDENT}
    walk.open("/sign-in")
    walk.press(walk.link("/sign-on/university"))
    walk.there()
    anna = page.evaluate("fetch('/session.json').then(one => one.json()).then(one => one.user)")
    page.context.clear_cookies()
    walk.open("/sign-in")
    walk.look("break-glass-folded")
    walk.reach(page.locator("main summary"))
    page.keyboard.press("Enter")
    walk.look("break-glass")
    walk.type("name", "admin")
    walk.type("password", PASSWORD)
    walk.send()
    walk.type("one_time_code", app.now())
    walk.send()
    walk.open("/operations")
    expect(page.locator("main")).to_contain_text("Admin")
    walk.look("break-glass-operations")
    walk.open(f"/users/{anna}")
    walk.look("administered")
    walk.open("/account/sign-ons/university")
    walk.look("link-break-glass")


def break_glass(school: School) -> pyotp.TOTP:
    """The app of the administrator, whose account is a break-glass account."""
    user_id, key = school.users["admin"], school.services.secret_key
    with school.store.write() as session:
        second_factor.begin_enrolment(session, user_id, key)
        begun = second_factor.load_enrolment(session, user_id, "admin", key)
        assert begun is not None
        app = pyotp.TOTP(begun.secret)
        second_factor.confirm_enrolment(session, user_id, app.at(int(time.time()) - 30), key)
        second_factor.set_break_glass(session, session.get_one(tables.User, user_id), True, "cli")
    return app
