"""Through a learning platform's frame, in a real browser: from another site to the assignment and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, FrameLocator, Page, Route, expect

from grading.domain.permissions import Actor
from grading.store.grades import release
from grading.store.integrations.lti import registrations
from grading.store.integrations.lti.tables import LtiContext, LtiLink
from grading.store.tables import Round
from tests.conftest import WAIT_MS
from tests.integration.lti.lti_world import Campus, campus


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Campus]:
    with campus(tmp_path) as made:
        yield made


def opened(page: Page, here: Campus, person: str, link: str = "link-1") -> FrameLocator:
    page.goto(f"{here.world.base}/open?person={person}&link={link}")
    return page.frame_locator("iframe[name=tool]")


def test_launches_in_a_frame_and_a_grade_that_comes_back(careful_alone: Page, here: Campus) -> None:
    page = careful_alone
    page.set_default_timeout(WAIT_MS)
    frame = opened(page, here, "teacher-1")
    frame.get_by_role("button", name="Create course").click()
    expect(frame.get_by_text("This course has no assignments yet. Create one first:")).to_be_visible()
    # an instructor of the course that is here already gives its code instead
    with here.school.store.write() as session:
        session.query(LtiContext).one().course_id = None
        code = registrations.make_ticket(session, "test", here.school.course)
    frame = opened(page, here, "teacher-1")
    frame.get_by_label("Code").fill(code)
    frame.get_by_role("button", name="Link course").click()
    frame.get_by_label("Homework hw1").check()
    frame.get_by_role("button", name="Choose").click()
    expect(frame.get_by_role("heading", level=1)).to_contain_text("Homework hw1")
    # a student submits from the frame
    frame = opened(page, here, "student-1")
    expect(frame.get_by_role("heading", name="Homework hw1")).to_be_visible()
    cookies = {one["name"]: one for one in page.context.cookies()}
    kept = cookies["__Secure-grader-framed"]
    assert (kept["sameSite"], kept["secure"], kept["path"]) == ("None", True, "/framed")
    assert kept.get("partitionKey"), "the cookie is not partitioned"
    assert "grader" not in cookies
    frame.locator("input[type=file]").first.set_input_files(
        {"name": "work.py", "mimeType": "text/x-python", "buffer": b"x = 1\n"}
    )
    frame.locator("form button[type=submit], form button.btn-primary").first.click()
    expect(frame.locator("h1")).to_be_visible()
    # outside the frame nobody is signed in, and no other page can be put into a frame
    page.goto(f"{here.world.tool}/")
    expect(page).to_have_url(f"{here.world.tool}/sign-in?next=/")
    submission = here.graded("student-1", released=False)
    with here.school.store.write() as session:
        round_ = session.query(Round).filter_by(submission_id=submission, current=True).one()
        release.release_grade(session, round_.id, Actor(1, True))
    assert here.passback().send_due() == 1
    page.goto(f"{here.world.base}/gradebook")
    expect(page.locator("[data-cell='student-1-1']")).to_contain_text("8.5")


def test_deep_linking_places_links_that_lead_to_their_assignments(careful_alone: Page, here: Campus) -> None:
    here.link(here.school.quick)
    page = careful_alone
    frame = opened(page, here, "teacher-1", "")
    frame.get_by_label("Homework hw1").check()
    frame.get_by_label("Homework quick").check()
    frame.get_by_role("button", name="Choose").click()
    expect(frame.get_by_text("Links in the course:")).to_be_visible()
    frame = opened(page, here, "student-2", "link-2")
    expect(frame.get_by_role("heading", name="Homework hw1")).to_be_visible()
    with here.school.store.read() as session:
        placed = session.query(LtiLink).filter_by(link=here.world.links["link-2"].id).one()
        column = here.world.line_item_url(here.world.items[1])
        assert (placed.assignment_id, placed.line_item) == (here.school.assignment, column)


def test_without_cookies_in_frames_a_window_opens(browser: Browser, here: Campus) -> None:
    """Before the platform is asked: it answers once (mod_lti's auth.php unsets the launch)."""
    here.link()
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)

    def keeps_none(route: Route) -> None:
        """As browsers that keep no cookies of other sites in frames, partitioned or not."""
        asked = route.request
        answer = requests.request(
            asked.method, asked.url, data=asked.post_data, allow_redirects=False, timeout=30,
            headers={"Content-Type": asked.headers.get("content-type", "")},
        )  # fmt: skip
        kept = {name: one for name, one in answer.headers.items() if name != "Set-Cookie"}
        route.fulfill(status=answer.status_code, headers=kept, body=answer.content)

    login = f"{here.world.tool}/lti/login**"
    context.route(login, keeps_none)
    link = opened(page, here, "student-1").get_by_role("link", name="Open in a new window")
    expect(link).to_be_visible()
    context.unroute(login)
    with context.expect_page() as window:
        link.click()
    expect(window.value.get_by_role("heading", name="Homework hw1")).to_be_visible()
    assert "/framed/" in window.value.url
    context.close()


def test_the_comment_in_the_gradebook_leads_back_through_the_platform(
    careful_alone: Page, here: Campus
) -> None:
    here.link()
    here.launch(here.browser(), "student-1")
    submission = here.graded("student-1", released=False)
    with here.school.store.write() as session:
        round_ = session.query(Round).filter_by(submission_id=submission, current=True).one()
        release.release_grade(session, round_.id, Actor(1, True))
    assert here.passback().send_due() == 1
    page = careful_alone
    page.set_default_timeout(WAIT_MS)
    opened(page, here, "student-1")  # who is signed in to the platform
    page.goto(f"{here.world.base}/gradebook")
    with page.expect_popup() as window:
        page.get_by_role("link", name="/lti/results/").click()
    window.value.get_by_role("link", name="Open Test Moodle").click()
    frame = window.value.frame_locator("iframe[name=tool]")
    expect(frame.get_by_role("heading", name="Homework hw1")).to_be_visible()
