"""The frame around every page, and the pages of operating, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from grading.broker.heartbeats import Lease
from grading.store import tables
from grading.store.database import now
from tests.e2e.browsing import come_in, faults, follow, look
from tests.integration.webapp import School, report


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    receivers = [{"name": "lms", "url": "https://lms.example/events"}]
    made = School(tmp_path_factory.mktemp("school"), event_receivers=receivers)
    yield made
    made.close()


def make_busy(school: School) -> None:
    """Work in hand, work that waits, a dead round and a message that nobody took."""
    runs = []
    for who in ("anna", "ben"):
        submission = school.submit(who)
        with school.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
            round_.state = "running"
            run = tables.Run(
                round_id=round_.id,
                stage="analysis",
                attempt=1,
                state="dispatched",
                dispatched_at=now(session),
            )
            session.add(run)
            session.flush()
            runs.append(run.id)
    school.dispatch.held[runs[0]] = Lease(runs[0], "dgx-spark-1", "p", "analysis", "generating", 1240, 12.0)
    school.submit("anna", school.quick)
    dead = school.submit("ben", school.quick)
    school.grade(dead, report(points=None, status="partial", stages={}))
    with school.store.write() as session:
        for number in range(3):
            moment = now(session)
            row = tables.Outbox(
                kind="to:lms", key=f"graded:{number}", payload={}, created_at=moment - timedelta(days=2),
                not_before=moment, tries=10, done_at=moment, error="The receiver answered 503.",
            )  # fmt: skip
            session.add(row)
    school.token("teacher")
    school.token("anna", "submit")


def answer_test(school: School) -> None:
    """As the sweeper does, when the receiver took the test message."""
    with school.store.write() as session:
        row = session.query(tables.Outbox).filter_by(kind="test:lms").one()
        row.done_at = now(session)
        session.add(
            tables.SentMessage(
                receiver="lms", message_id=row.payload["id"], event=row.key, type="grade.released", attempt=1,
                at=now(session), seconds=0.25, url="https://lms.example/events", status=204, error="",
                headers={"webhook-signature": "v1,c2ln"}, body="{}", answer="",
            )
        )  # fmt: skip


def test_an_administrator_sees_how_it_is_and_sets_it_right(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    page = careful
    make_busy(school)
    come_in(page, site, school, "admin")
    page.goto(f"{site}/operations")
    expect(page.get_by_role("heading", name="Operations")).to_be_visible()
    expect(page.get_by_role("row", name="Technical review dgx-spark-1 generating 1,240 12 s")).to_be_visible()
    look(page, pictures, "operations", all_widths=True)
    page.get_by_role("link", name="Outbox", exact=True).click()
    expect(page.get_by_role("heading", name="Events for lms: 3")).to_be_visible()
    look(page, pictures, "operations-messages", all_widths=True)
    page.get_by_label("graded:1", exact=True).first.check()
    page.get_by_role("button", name="Resend selected").click()
    expect(page.get_by_role("status")).to_have_text("Resending one message.")
    page.get_by_role("button", name="Resend all 2").click()
    expect(page.get_by_text("No failed messages")).to_be_visible()
    follow(page, page.get_by_label("Operations").get_by_role("link", name="Webhooks"))
    look(page, pictures, "operations-webhooks")
    page.get_by_label("Event of the test message").select_option("grade.released")
    page.get_by_role("button", name="Send test message lms").click()
    expect(page.get_by_text("Sending the message")).to_be_visible()
    answer_test(school)
    expect(page.get_by_text("accepted the message with status 204 after 0.25 s.")).to_be_visible()
    expect(page.get_by_text("webhook-signature: v1,c2ln")).to_be_visible()
    look(page, pictures, "operations-webhook-test")
    follow(page, page.get_by_label("Operations").get_by_role("link", name="API tokens"))
    look(page, pictures, "operations-tokens", all_widths=True)
    row = page.get_by_role("row").filter(has_text="Anna")
    row.get_by_text("Revoke", exact=False).first.click()
    row.get_by_role("button", name="Revoke token").click()
    expect(page.get_by_role("row").filter(has_text="Anna")).to_have_count(0)
    page.goto(f"{site}/failed")
    look(page, pictures, "not-graded", all_widths=True)


def test_what_runs_is_shown_without_a_reload_and_can_stand_still(
    careful_alone: Page, school: School, site: str
) -> None:
    page = careful_alone
    come_in(page, site, school, "teacher")
    page.clock.install()
    page.goto(f"{site}/machines")
    page.get_by_text("Recent runs").first.click()
    page.locator("h1").click()  # the fold stays open, and nothing in the region is in use
    school.dispatch.away = True
    try:
        page.clock.run_for(6_000)
        expect(page.get_by_text("Redis is not reachable.")).to_be_visible()
        expect(page.get_by_text("None yet.").first).to_be_visible()
        page.get_by_role("button", name="Pause updates").click()
    finally:
        school.dispatch.away = False
    with page.expect_request("**/machines") as asked:
        page.get_by_role("button", name="Pause updates").click()
        page.clock.run_for(1_000)
    assert asked.value.method == "GET"
    expect(page.get_by_text("Redis is not reachable.")).to_be_hidden()


def test_the_menu_the_colours_and_the_language(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    page = careful
    come_in(page, site, school, "teacher")
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{site}/machines")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to main content")).to_be_focused()
    page.get_by_text("Menu").press("Enter")
    here = page.get_by_role("navigation", name="Main").get_by_role("link", name="Operations")
    expect(here).to_have_attribute("aria-current", "true")
    look(page, pictures, "menu")
    page.keyboard.press("Escape")
    expect(here).to_be_hidden()
    page.locator(".menu-reader summary").click()
    page.get_by_role("button", name="Dark").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.locator(".menu-reader summary").click()
    page.get_by_role("button", name="System default").click()
    look(page, pictures, "menu-reader")
    page.get_by_role("button", name="Deutsch").click()
    expect(page.locator("html")).to_have_attribute("lang", "de")
    assert page.url == f"{site}/machines"
    expect(page.get_by_role("heading", level=1)).to_have_text("Rechner")
    page.set_viewport_size({"width": 1280, "height": 800})
    faults(page, "machines-german")
    page.locator(".menu-reader summary").click()
    page.get_by_role("button", name="Abmelden").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/nothing-here", pytest.param("/operations/tokens", marks=pytest.mark.soak)]
)
def test_faults_are_said_in_plain_words(
    careful: Page, school: School, site: str, pictures: Path, path: str
) -> None:
    page = careful
    come_in(page, site, school, "anna")
    page.goto(f"{site}{path}")
    expect(page.get_by_role("link", name="Go to home page")).to_be_visible()
    look(page, pictures, f"fault{path.replace('/', '-')}", all_widths=True)
