"""LTI with a Moodle and with a Canvas, each as its source has it: roles, names, scores, keys, registration.

Sources are named in cli/dev/platforms; the table of roles that is tested here is in lti.md.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from werkzeug.test import TestResponse

from app.platforms.lti import registration
from cli.commands.demo import DemoPlatform
from cli.dev.platforms.canvas import IN_COURSE, Canvas
from cli.dev.platforms.moodle import Moodle
from cli.dev.platforms.server import KINDS
from cli.dev.platforms.world import Person, Refusal
from grading.domain.permissions import Actor
from grading.integrations.lti.keys import new_key, signed
from grading.integrations.lti.messages import CANVAS_SUBMISSION
from grading.integrations.lti.values import AGS
from grading.store.accounts import users
from grading.store.grades import release as grade_release
from grading.store.integrations.lti import course_page, launch, registrations, scores
from grading.store.integrations.lti.tables import LtiContext, LtiLink, LtiMember, LtiScore
from grading.store.tables import Course, Identity, Membership, Round, Submission, User
from tests.integration.lti.lti_world import Campus, campus
from tests.integration.webapp import report

BOSS = Actor(1, True)


@pytest.fixture
def moodle(tmp_path: Path) -> Iterator[Campus]:
    with linked(tmp_path, Moodle) as made:
        yield made


@pytest.fixture
def canvas(tmp_path: Path) -> Iterator[Campus]:
    with linked(tmp_path, Canvas) as made:
        yield made


@contextmanager
def linked(place: Path, kind: type[Moodle] | type[Canvas]) -> Iterator[Campus]:
    with campus(place, kind) as made:
        made.link()
        yield made


def graded(here: Campus, person: str, **changes: Any) -> str:
    """A submission with a released grade."""
    submission = here.graded(person, released=False, **changes)
    with here.school.store.write() as session:
        grade_release.release_grade(session, round_of(here, submission), BOSS)
    return submission


def round_of(here: Campus, submission: str) -> str:
    with here.school.store.read() as session:
        return session.query(Round).filter_by(submission_id=submission, current=True).one().id


def change(here: Campus, submission: str, points: float) -> None:
    with here.school.store.write() as session:
        grade = grade_release.lock_current_grade(session, submission)
        assert grade is not None
        grade.final_points = points
        grade_release.add_event(session, grade, "grade.changed", f"changed:{submission}:{points}")


def withdraw(here: Campus, submission: str) -> None:
    with here.school.store.write() as session:
        grade_release.withdraw_grade(session, round_of(here, submission), BOSS)


def later(here: Campus, seconds: float) -> None:
    here.world.clock_offset_s += seconds
    here.school.store.clock_offset_s += seconds


def role_here(here: Campus, person: str) -> str:
    """Their role in the course; `nothing` for who has no place, or no account."""
    with here.school.store.read() as session:
        known = session.query(Identity).filter_by(subject=here.world.people[person].id).first()
        mine = session.get(Membership, (known.user_id, here.school.course)) if known else None
        return mine.role if mine else "nothing"


def update_roster(here: Campus) -> None:
    with here.school.store.read() as session:
        context = session.query(LtiContext).one().id
    launch.update_roster(here.school.store, here.passback().talk, context, "test")


# --- roles --------------------------------------------------------------------------------------------


def roles_in_docs() -> list[tuple[str, str, str, str]]:
    """Product, role there, role here after a launch and by the roster: the table of lti.md."""
    text = Path("docs/reference/lti.md").read_text("utf-8")
    row = r"^\| (Moodle|Canvas) \| [^|\n]*?`([A-Za-z-]+)` \| (\S+) \| (\S+) \|$"
    rows: list[tuple[str, str, str, str]] = re.findall(row, text, re.MULTILINE)
    assert {row[0] for row in rows} == {"Moodle", "Canvas"}
    return rows


def test_every_role_of_either_product_is_what_the_table_says(tmp_path: Path) -> None:
    for product, kind in KINDS.items():
        with linked(tmp_path, kind) as here:
            expected = {role: ways for name, role, *ways in roles_in_docs() if name.lower() == product}
            found = {}
            for number, role in enumerate(expected):
                for way in ("launch", "roster"):
                    key = f"{way}-{number}"
                    here.world.people[key] = Person(f"{number}{way == 'launch':d}99", f"{role} {way}", role)
                here.answer(here.browser(), f"launch-{number}")
            update_roster_of(here, [key for key in here.world.people if key.startswith("roster-")])
            for number, role in enumerate(expected):
                found[role] = [role_here(here, f"{way}-{number}") for way in ("launch", "roster")]
            assert found == expected, product
        for file in tmp_path.iterdir():
            file.unlink()


def update_roster_of(here: Campus, people: list[str]) -> None:
    """As if nobody else were in the course."""
    everybody = dict(here.world.people)
    here.world.people = {key: everybody[key] for key in people}
    update_roster(here)
    here.world.people = everybody


def test_who_has_no_role_becomes_nothing_and_reads_why(canvas: Campus) -> None:
    canvas.world.people["boss"] = Person("1", "Bo Boss", "AccountAdmin")
    answer = canvas.answer(canvas.browser(), "boss")
    page = answer.get_data(as_text=True)
    assert (answer.status_code, "gives you no role in this course" in page) == (403, True)
    with canvas.school.store.read() as session:
        assert session.query(Identity).filter_by(subject="1").count() == 0
        assert session.query(LtiMember).count() == 1


def test_a_role_given_here_opens_the_course_to_who_has_none_there(canvas: Campus) -> None:
    canvas.world.people["boss"] = boss = Person("1", "Bo Boss", "StudentEnrollment")
    canvas.launch(canvas.browser(), "boss")
    canvas.world.people["boss"] = replace(boss, role="AccountAdmin")
    assert canvas.answer(canvas.browser(), "boss").status_code == 403, "what the platform gave, it took away"
    with canvas.school.store.write() as session:
        users.enrol(session, canvas.user("boss"), canvas.school.course, "instructor")
    browser = canvas.browser()
    assert canvas.launch(browser, "boss") == f"/framed/assignments/{canvas.school.assignment}"
    assert browser.get(canvas.launch(browser, "boss", "")).status_code == 200, "they may place links, too"


def test_who_is_a_student_beside_other_roles_has_their_scores(
    canvas: Campus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A teaching assistant of one section may be a student of another."""
    both = {*IN_COURSE["TaEnrollment"], *IN_COURSE["StudentEnrollment"]}
    monkeypatch.setitem(IN_COURSE, "TaEnrollment", tuple(both))
    canvas.launch(canvas.browser(), "student-1")
    submission, sender = graded(canvas, "student-1"), canvas.passback()
    assert sender.send_due() == 1
    canvas.world.people["student-1"] = replace(canvas.world.people["student-1"], role="TaEnrollment")
    canvas.launch(canvas.browser(), "student-1")
    assert role_here(canvas, "student-1") == "grader"
    change(canvas, submission, 3.0)
    canvas.world.people["student-1"] = replace(canvas.world.people["student-1"], role="StudentEnrollment")
    assert sender.send_due() == 1


def test_a_score_that_was_sent_once_is_sent_again_whatever_they_are_since(canvas: Campus) -> None:
    canvas.launch(canvas.browser(), "student-1")
    graded(canvas, "student-1")
    sender = canvas.passback()
    assert sender.send_due() == 1
    with canvas.school.store.write() as session:
        session.query(LtiMember).update({"learner": False})
        scores.resend_score(session, 1, canvas.user("student-1"))
    assert sender.send_due() == 1


def test_a_role_that_a_roster_gave_is_lowered_by_it_outside_of_moodle(canvas: Campus) -> None:
    canvas.world.people["tutor"] = tutor = Person("2", "Tom Tutor", "TaEnrollment")
    update_roster(canvas)
    assert role_here(canvas, "tutor") == "grader"
    canvas.world.people["tutor"] = replace(tutor, role="StudentEnrollment")
    update_roster(canvas)
    assert role_here(canvas, "tutor") == "student"


def test_a_roster_lowers_no_staff_and_the_next_launch_does(moodle: Campus) -> None:
    """Moodle's non-editing teachers are learners in its roster (moodle/course:manageactivities)."""
    moodle.world.people["tutor"] = tutor = Person("1010", "Tom Tutor", "teacher")
    moodle.launch(moodle.browser(), "tutor")
    update_roster(moodle)
    assert role_here(moodle, "tutor") == "instructor"
    moodle.world.people["tutor"] = replace(tutor, role="student")
    moodle.launch(moodle.browser(), "tutor")
    assert role_here(moodle, "tutor") == "student"


# --- names --------------------------------------------------------------------------------------------


def test_names_follow_the_platform_until_they_are_changed_here(moodle: Campus) -> None:
    def name() -> str:
        with moodle.school.store.read() as session:
            return session.get_one(User, moodle.user("new")).name

    moodle.world.people["new"] = new = Person("500", "", "student")  # a site that shares no names
    moodle.launch(moodle.browser(), "new")
    assert name() == "Test Moodle: 500"
    for said, shown in (("Ann\N{NO-BREAK SPACE} O'Neill\t", "Ann O'Neill"), ("Ann & Lee", "Ann & Lee")):
        moodle.world.people["new"] = replace(new, name=said)
        moodle.launch(moodle.browser(), "new")
        assert name() == shown
        update_roster(moodle)  # which writes & as in HTML
        assert name() == shown
    with moodle.school.store.write() as session:
        session.get_one(User, moodle.user("new")).name = "Ann Lee"
    moodle.launch(moodle.browser(), "new")
    assert name() == "Ann Lee"


# --- scores -------------------------------------------------------------------------------------------


def test_canvas_keeps_the_time_of_submission_its_attempts_and_one_comment(canvas: Campus) -> None:
    """Lti::IMS::ScoresController: what is not constant is a new attempt, and each comment one more."""
    canvas.launch(canvas.browser(), "student-1")
    submission, sender = graded(canvas, "student-1"), canvas.passback()
    later(canvas, 86_400)
    assert sender.send_due() == 1
    with canvas.school.store.read() as session:
        at = session.get_one(Submission, submission).created_at
    told = canvas.world.of("student-1")
    assert told.submitted_at == at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for points in (3.0, 4.0):
        change(canvas, submission, points)
        assert sender.send_due() == 1
    assert (told.points, told.attempts, len(told.comments)) == (4.0, 1, 1)
    withdraw(canvas, submission)
    assert sender.send_due() == 1
    assert (told.points, told.attempts) == (None, 1)
    assert canvas.world.log[-1][CANVAS_SUBMISSION]["new_submission"] is False
    graded(canvas, "student-1")
    assert sender.send_due() == 1
    assert (told.points, told.attempts, len(told.comments)) == (8.5, 2, 2)


def test_a_release_that_canvas_never_heard_of_is_still_a_submission(canvas: Campus) -> None:
    canvas.launch(canvas.browser(), "student-1")
    graded(canvas, "student-1")
    sender = canvas.passback()
    assert sender.send_due() == 1
    second = graded(canvas, "student-1")
    withdraw(canvas, second)
    assert sender.send_due() == 1
    with canvas.school.store.write() as session:
        grade_release.release_grade(session, round_of(canvas, second), BOSS)
    assert sender.send_due() == 1
    told = canvas.world.of("student-1")
    assert (told.points, told.attempts, len(told.comments)) == (8.5, 2, 2)


def test_a_score_of_an_earlier_version_is_no_new_attempt(canvas: Campus) -> None:
    canvas.launch(canvas.browser(), "student-1")
    submission, sender = graded(canvas, "student-1"), canvas.passback()
    assert sender.send_due() == 1
    with canvas.school.store.write() as session:
        session.query(LtiScore).update({"submission_id": "", "comment": ""})
    told = canvas.world.of("student-1")
    told.submitted_at = "2026-11-20T20:00:00.000Z"  # when it was sent, not when it was submitted
    change(canvas, submission, 3.0)
    assert sender.send_due() == 1
    assert (told.points, told.attempts, len(told.comments)) == (3.0, 1, 1)


def test_used_up_attempts_are_told_with_what_to_do(canvas: Campus) -> None:
    canvas.world.allowed_attempts = 1  # type: ignore[union-attr]
    canvas.launch(canvas.browser(), "student-1")
    sender = canvas.passback()
    graded(canvas, "student-1")
    assert sender.send_due() == 1
    change(canvas, graded(canvas, "student-1"), 3.0)
    sender.send_due()
    with canvas.school.store.read() as session:
        (failed,) = course_page.load_course_page(session, canvas.school.course).failed
    assert failed.error.startswith("Canvas accepts no more attempts of this student. Allow more attempts")
    canvas.world.allowed_attempts = 2  # type: ignore[union-attr]
    later(canvas, 6)
    assert sender.send_due() == 1


def test_moodle_takes_scores_of_one_second_and_keeps_the_comment(moodle: Campus) -> None:
    """scores.php keeps whole seconds, refuses a second score of one, and clears feedback that is missing."""
    moodle.launch(moodle.browser(), "student-1")
    submission, sender = graded(moodle, "student-1"), moodle.passback()
    for points in (None, 3.0, 4.0):
        if points is not None:
            change(moodle, submission, points)
        assert sender.send_due() == 1
    told = moodle.world.of("student-1")
    assert (told.points, told.comments) == (4.0, [f"{moodle.world.tool}/lti/results/{submission}"])
    assert not [one for one in moodle.world.log if "refused" in one]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_scores_of_staff_who_try_it_are_not_sent(tmp_path: Path, kind: type[Moodle] | type[Canvas]) -> None:
    with linked(tmp_path, kind) as here:
        graded(here, "teacher-1")
        sender = here.passback()
        assert (sender.send_due(), sender.reconcile(), sender.compare()) == (0, 0, 0)
        assert here.world.log == []


def test_a_link_of_canvas_without_an_assignment_has_no_place_for_grades(canvas: Campus) -> None:
    """Placed by Link Selection into a module: its launches name no line item."""
    world = canvas.world
    link = world.add_link("In a module", {"grader_assignment": str(canvas.school.quick)}, None)
    key = next(name for name, one in world.links.items() if one is link)
    claims = world.claims(world.people["student-1"], link, "n")
    assert "lineitem" not in claims[AGS]
    canvas.launch(canvas.browser(), "student-1", key)
    columns = len(world.items)
    with canvas.school.store.write() as session:
        session.query(LtiLink).filter_by(assignment_id=canvas.school.assignment).update(
            {"assignment_id": canvas.school.quick}
        )
        session.query(LtiLink).filter_by(link=link.id).update({"assignment_id": canvas.school.assignment})
    graded(canvas, "student-1")
    assert canvas.passback().send_due() == 0
    with canvas.school.store.read() as session:
        (failed,) = course_page.load_course_page(session, canvas.school.course).failed
    assert "belongs to no assignment" in failed.error
    assert len(world.items) == columns


def test_a_platform_that_asks_for_patience_is_left_alone(
    moodle: Campus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for person in ("student-1", "student-2"):
        moodle.launch(moodle.browser(), person)
        graded(moodle, person)
    sender, asked = moodle.passback(), []

    def busy(item: int, said: Any) -> None:
        asked.append(said)
        raise Refusal(429, "too many requests", retry_after=1200)

    with monkeypatch.context() as patch:
        patch.setattr(moodle.world, "score", busy)
        sender.send_due()
        for wait in (6, 600):
            later(moodle, wait)
            sender.send_due()
        assert len(asked) == 1
    later(moodle, 600)
    assert sender.send_due() == 2


# --- launches -----------------------------------------------------------------------------------------


def test_a_launch_that_is_over_says_so_in_the_platforms_words(canvas: Campus) -> None:
    """Canvas posts an error for the second use of a launch (launch_no_longer_valid)."""
    browser = canvas.browser()
    begun = canvas.world.begin("student-1", "link-1")
    browser.post("/lti/login", data=begun)
    pages = []
    for _ in range(2):
        location = browser.post("/lti/login", data=begun).location
        asked = {name: found[0] for name, found in parse_qs(urlsplit(location).query).items()}
        pages.append(browser.post("/lti/launch", data=canvas.world.authorize(asked, "student-1")))
    assert [one.status_code for one in pages] == [303, 401]
    page = pages[1].get_data(as_text=True)
    assert "launch_no_longer_valid: The launch has either expired or already been consumed" in page
    assert f"Error code 401, request {pages[1].headers['X-Request-ID']}." in page
    assert "open the assignment again" in page


def test_the_hint_of_a_platform_is_sent_back_once(canvas: Campus) -> None:
    browser, begun = canvas.browser(), canvas.world.begin("student-1", "link-1")
    browser.post("/lti/login", data=begun)
    location = browser.post("/lti/login", data=begun).location
    assert location.count(begun["lti_message_hint"]) == 1
    assert len(location) < len(begun["lti_message_hint"]) + 900


def test_cookies_are_tried_before_the_platform_is_asked(moodle: Campus) -> None:
    stranger = moodle.school.app.test_client(use_cookies=False)
    begun = moodle.world.begin("student-1", "link-1")
    first = stranger.post("/lti/login", data=begun)
    assert first.status_code == 303
    assert first.location.startswith("/lti/login?")
    page = stranger.get(first.location).get_data(as_text=True)
    assert "Open in a new window" in page
    window = moodle.browser()  # keeps them
    way = re.search(r'href="(/lti/login[^"]*)"', page)
    assert way is not None
    answer = window.get(way[1].replace("&amp;", "&"))
    assert window.get(answer.location).location.startswith(moodle.world.addresses()["authorize_url"])
    alone = stranger.get(first.location, headers={"Sec-Fetch-Dest": "document"}).get_data(as_text=True)
    assert "Allow cookies" in alone
    assert "Open in a new window" not in alone


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_is_chosen_is_taken_by_either_product(tmp_path: Path, kind: type[Moodle] | type[Canvas]) -> None:
    with linked(tmp_path, kind) as here:
        browser = here.browser()
        way = here.launch(browser, "teacher-1", "")
        form = {"csrf_token": hidden(browser.get(way), "csrf_token"), "assignment": str(here.school.quick)}
        page = browser.post(way, data=form, headers={"Referer": here.world.tool})
        address = re.search(r'action="([^"]*)"', page.get_data(as_text=True))
        assert address is not None
        answer = requests.post(unescape(address[1]), data={"JWT": hidden(page, "JWT")}, timeout=30)
        assert (answer.status_code, "Links in the course:" in answer.text) == (200, True)
        placed = list(here.world.links.values())[-1]
        assert placed.custom == {"grader_assignment": str(here.school.quick)}
        assert here.world.items[placed.item or 0].most == 10.0


def hidden(page: TestResponse, name: str) -> str:
    """The value of a hidden field."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page.get_data(as_text=True))
    assert found is not None
    return found[1]


def test_a_new_key_counts_at_once_and_keys_that_nobody_has_cost_little(moodle: Campus) -> None:
    world, browser = moodle.world, moodle.browser()
    world.key = new_key()  # right after keys were fetched
    known = world.fetched
    moodle.launch(browser, "student-1")
    assert world.fetched == known + 1
    strange = new_key()
    for number in range(30):
        asked = moodle.login(browser, "student-1", "link-1")
        claims = world.claims(world.people["student-1"], world.links["link-1"], asked["nonce"])
        token = signed(replace(strange, kid=f"key-{number}"), claims)
        form = {"id_token": token, "state": asked["state"]}
        assert browser.post("/lti/launch", data=form).status_code == 401
    assert world.fetched <= known + 11
    moodle.launch(browser, "student-1")


def test_launches_beside_each_other_wait_for_a_new_key(
    moodle: Campus, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = moodle.world
    world.key = new_key()
    browsers = [moodle.browser() for _ in range(4)]
    asked = [moodle.login(browser, "student-1", "link-1") for browser in browsers]
    forms = [world.authorize(one, "student-1") for one in asked]
    jwks, together = world.jwks, threading.Barrier(4)

    def slowly() -> dict[str, Any]:
        with suppress(threading.BrokenBarrierError):
            together.wait(0.3)  # the others are refused meanwhile, or wait
        return jwks()

    monkeypatch.setattr(world, "jwks", slowly)
    with ThreadPoolExecutor(4) as pool:
        posts = [
            pool.submit(one.post, "/lti/launch", data=form) for one, form in zip(browsers, forms, strict=True)
        ]
    assert [one.result().status_code for one in posts] == [303] * 4


def test_a_long_return_address_is_left_out_of_a_launch(
    moodle: Campus, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = moodle.world.claims

    def longer(*args: Any) -> dict[str, Any]:
        claims = said(*args)
        claims["https://purl.imsglobal.org/spec/lti/claim/launch_presentation"]["return_url"] += "x" * 3000
        return claims

    monkeypatch.setattr(moodle.world, "claims", longer)
    moodle.launch(moodle.browser(), "student-1")


# --- the way back -------------------------------------------------------------------------------------


def test_the_link_of_a_comment_leads_back_through_the_platform(tmp_path: Path) -> None:
    ways = {"moodle": "/mod/lti/view.php?l=1", "canvas": "/courses/7"}
    for product, way in ways.items():
        with linked(tmp_path, KINDS[product]) as here:
            here.launch(here.browser(), "student-1")
            submission = graded(here, "student-1")
            page = here.browser().get(f"/lti/results/{submission}").get_data(as_text=True)
            assert f'href="{here.world.base}{way}"' in page
            assert f"Open Test {product.title()}" in page
            assert here.browser().get("/lti/results/nothing").status_code == 303
            answer = here.school.client("teacher").get(f"/lti/results/{submission}")
            assert answer.location == f"/submissions/{submission}"
        for file in tmp_path.iterdir():
            file.unlink()


def test_the_demo_shows_grades_in_its_platform(tmp_path: Path) -> None:
    with campus(tmp_path) as here:
        school = here.school
        with school.store.write() as session:
            for name, user in (("instructor", school.users["teacher"]), ("student", school.users["anna"])):
                session.add(Identity(user_id=user, provider="local", subject=name))
            slug = session.get_one(Course, school.course).slug
        school.grade(school.submit("anna"), report(), released=True)
        with DemoPlatform(school.store, here.world.tool, slug) as platform:
            assert here.passback().send_due() == 1
            page = requests.get(f"{platform.url}/gradebook", timeout=30).text
    assert re.search(r'data-cell="student-1-1">8.5', page)


# --- registration -------------------------------------------------------------------------------------


def test_canvas_registers_itself_with_placements_and_the_audience_of_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At Instructure the issuer is another host than the one that says how it is set up."""
    with campus(tmp_path, Canvas) as here:
        world, client = here.world, here.school.app.test_client()
        assert isinstance(world, Canvas)
        world.client_id, world.said_issuer = "10000000000042", "https://canvas.example"
        asked: list[Any] = []
        taken = world.register

        def register(header: str, said: Any) -> dict[str, Any]:
            asked.append(said)
            return taken(header, said)

        monkeypatch.setattr(world, "register", register)
        with here.school.store.write() as session:
            ticket = registrations.make_ticket(session, "test")
        invite = requests.get(f"{world.base}/invite", timeout=30).json()
        refused = client.get(f"/lti/register/{ticket}", query_string=invite)
        assert (refused.status_code, asked) == (422, [])
        monkeypatch.setitem(registration.SERVES_ISSUER, "localhost", "canvas.example")
        answer = client.get(f"/lti/register/{ticket}", query_string=invite)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        assert world.base in answer.headers["Content-Security-Policy"].partition("frame-ancestors")[2]
        tool = asked[0]["https://purl.imsglobal.org/spec/lti-tool-configuration"]
        own = "https://canvas.instructure.com/lti/"
        assert tool[f"{own}privacy_level"] == "public"
        choosing = dict.fromkeys(("assignment_selection", "link_selection"), "LtiDeepLinkingRequest")
        assert world.placements == choosing
        with here.school.store.read() as session:
            found = registrations.find_platform(session, world.issuer, world.client_id)
        assert found is not None
        assert (found.audience, found.family) == ("", "canvas")
        assert world.base in found.origins
        here.passback().talk.send(found, [], "GET", world.services()["line_items_url"], "application/json")
