"""LTI 1.3 against the test platform: launches, frames, choosing, scores, rosters, comparing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from flask.testing import FlaskClient

from cli.dev.platforms.server import registration_of
from cli.dev.platforms.world import Person
from grading.domain.permissions import Actor
from grading.integrations.lti.keys import new_key, signed
from grading.store.accounts import users
from grading.store.grades import release as grade_release
from grading.store.integrations.lti import course_page, launch, registrations, scores
from grading.store.integrations.lti.tables import (
    LtiContext,
    LtiLink,
    LtiNonce,
    LtiPlatform,
    LtiScore,
    LtiScoreAttempt,
)
from grading.store.tables import Audit, Identity, Membership, Outbox, Round, User
from tests.integration.lti.lti_world import Campus, campus
from tests.integration.webapp import form_token

BOSS = Actor(1, True)
POSTGRESQL_FIRST = pytest.mark.parametrize(
    "databases", ["postgresql", pytest.param("sqlite", marks=pytest.mark.soak)], indirect=True
)
"""For what a launch does: test_products.py launches on SQLite."""


@pytest.fixture
def here(school_url: str) -> Iterator[Campus]:
    with campus(school_url) as made:
        yield made


def round_of(here: Campus, submission: str) -> str:
    with here.school.store.read() as session:
        return session.query(Round).filter_by(submission_id=submission, current=True).one().id


def release(here: Campus, submission: str) -> None:
    with here.school.store.write() as session:
        grade_release.release_grade(session, round_of(here, submission), BOSS)


def later(here: Campus, seconds: float) -> None:
    """For both."""
    here.world.clock_offset_s += seconds
    here.school.store.clock_offset_s += seconds


def rows(here: Campus, table: type[Any]) -> list[Any]:
    with here.school.store.read() as session:
        return list(session.query(table))


def test_a_student_lands_on_handing_in_and_their_released_grade_arrives(here: Campus) -> None:
    here.link()
    browser = here.browser()
    way = here.launch(browser, "student-1")
    assert way == f"/framed/assignments/{here.school.assignment}/submit"
    assert browser.get(way).status_code == 200
    submission = here.graded("student-1", released=False)
    sender = here.passback()
    assert sender.work() == 0
    release(here, submission)
    assert sender.send_due() == 1
    (item,) = here.world.items.values()
    told = here.world.of("student-1")
    assert (told.points, item.most) == (8.5, 10.0)
    assert told.comments == [f"{here.world.tool}/lti/results/{submission}"]
    with here.school.store.write() as session:
        grade_release.withdraw_grade(session, round_of(here, submission), BOSS)
    assert sender.send_due() == 1
    assert here.world.log[-1]["gradingProgress"] == "NotReady"
    assert "scoreGiven" not in here.world.log[-1]
    assert here.world.of("student-1").points is None
    assert sender.send_due() == 0
    assert [one.status for one in rows(here, LtiScoreAttempt)] == [200, 200]


def test_a_platform_that_is_down_for_an_hour_has_the_score_afterwards(here: Campus) -> None:
    here.link()
    here.launch(here.browser(), "student-1")
    submission, sender = here.graded("student-1", released=False), here.passback()
    up, here.world.base = here.world.base, "http://localhost:9"
    with here.school.store.write() as session:
        context, platform = session.query(LtiContext).one(), session.query(LtiPlatform).one()
        line_items, token = context.line_items_url, platform.token_url
        context.line_items_url = platform.token_url = "http://localhost:9/nobody"
    release(here, submission)
    for wait in (0, 6, 301, 1801):
        later(here, wait)
        assert sender.send_due() == 0
    with here.school.store.write() as session:
        context, platform = session.query(LtiContext).one(), session.query(LtiPlatform).one()
        context.line_items_url, platform.token_url = line_items, token
        seen = course_page.load_course_page(session, here.school.course)
        assert [(one.name, one.dead) for one in seen.failed] == [("Ada Student", False)]
        assert "does not answer" in seen.failed[0].error
    here.world.base = up
    staff = here.school.client("teacher").get(f"/courses/{here.school.course}/platform")
    assert "Scores that were not sent" in staff.get_data(as_text=True)
    links = f"/api/v1/courses/{here.school.course}/platform-links"
    (link,) = here.school.client().get(links, headers=here.school.token("teacher")).get_json()["items"]
    told = {name: link[name] for name in ("platform", "assignment_id", "sent", "failed", "problem")}
    assert told == {
        "platform": "lti", "assignment_id": here.school.assignment, "sent": 0, "failed": 1, "problem": "",
    }  # fmt: skip
    later(here, 7201)
    assert sender.send_due() == 1
    assert here.world.of("student-1").points == 8.5
    assert [one.status for one in rows(here, LtiScoreAttempt)] == [None, None, None, None, 200]
    assert overview_of(here).failed == ()


def overview_of(here: Campus) -> course_page.CoursePage:
    with here.school.store.read() as session:
        return course_page.load_course_page(session, here.school.course)


def test_the_comparison_finds_a_planted_difference_and_overwrites_nothing(here: Campus) -> None:
    here.link()
    for person in ("student-1", "student-2"):
        here.launch(here.browser(), person)
        release(here, here.graded(person, released=False))
    sender = here.passback()
    assert sender.send_due() == 2
    assert sender.compare() == 0
    item = here.world.items[1]
    here.world.of("student-1").points = 3.0
    del item.scores[here.world.people["student-2"].id]
    assert sender.compare() == 2
    found = {one.name: (one.ours, one.theirs) for one in overview_of(here).different}
    assert found == {"Ada Student": (8.5, 3.0), "Ben Student": (8.5, None)}
    assert sender.send_due() == 0, "nothing is sent without a person"
    teacher = here.school.client("teacher")
    page = f"/courses/{here.school.course}/platform"
    assert "8.5 points here, 3 in the learning platform" in teacher.get(page).get_data(as_text=True)
    chosen = [f"1:{here.user(one)}" for one in ("student-1", "student-2")]
    token = form_token(teacher, page)
    assert teacher.post(f"{page}/again", data={"csrf_token": token, "lti": chosen}).status_code == 303
    assert sender.send_due() == 2
    assert sender.compare() == 0
    assert overview_of(here).different == ()


def test_changed_grades_go_out_with_rising_times_and_errors_are_tried_again(here: Campus) -> None:
    here.link()
    here.launch(here.browser(), "student-1")
    submission, sender = here.graded("student-1", released=False), here.passback()
    release(here, submission)
    assert sender.send_due() == 1
    for points in (1.0, 2.0, 3.0):
        with here.school.store.write() as session:
            grade = grade_release.lock_current_grade(session, submission)
            assert grade is not None
            grade.final_points = points
            grade_release.add_event(session, grade, "grade.changed", f"changed:{points}")
        assert sender.send_due() == 1
    stamps = [one["timestamp"] for one in here.world.log]
    assert stamps == sorted(set(stamps))
    assert [one["scoreGiven"] for one in here.world.log] == [8.5, 1.0, 2.0, 3.0]
    # a column that somebody deleted there is made again, as it was made by us
    here.world.items.clear()
    with here.school.store.write() as session:
        scores.resend_score(session, 1, here.user("student-1"))
    assert sender.send_due() == 0
    later(here, 6)
    sender = here.passback()
    assert sender.send_due() == 1
    assert here.world.of("student-1").points == 3.0
    # what changed without a word is found
    with here.school.store.write() as session:
        session.query(LtiScore).update({"points": 1.0})
    assert sender.reconcile() == 1
    assert sender.reconcile() == 0
    assert sender.send_due() == 1


def refused(client: FlaskClient, **form: str) -> str:
    answer = client.post("/lti/launch", data=form)
    assert answer.status_code in (401, 403), answer.status_code
    return answer.get_data(as_text=True)


@POSTGRESQL_FIRST
def test_launches_are_refused_that_are_used_again_or_of_another_browser_or_installation(here: Campus) -> None:
    here.link()
    world, browser = here.world, here.browser()
    asked = here.login(browser, "student-1", "link-1")
    form = world.authorize(asked, "student-1")
    token = form["id_token"]
    # without the cookie nobody is signed in
    stranger = here.browser()
    assert "has expired or was started" in refused(stranger, **form)
    assert stranger.get(f"/framed/assignments/{here.school.assignment}").status_code == 401
    assert browser.post("/lti/launch", data=form).status_code == 303
    assert "already used" in refused(browser, **form)
    other = here.login(browser, "student-1", "link-1")
    assert "another login request" in refused(
        browser, id_token=here.id_token("student-1", "link-1", "x"), state=other["state"]
    )
    assert "has expired or was started" in refused(browser, id_token=token, state=other["state"] + "x")
    assert "has expired or was started" in refused(browser, id_token=token)
    claims = world.claims(world.people["student-1"], world.links["link-1"], other["nonce"])
    strange = signed(new_key(), claims)
    assert "does not publish" in refused(browser, id_token=strange, state=other["state"])
    world.deployment = "2"
    moved = here.login(browser, "student-1", "link-1")
    assert "not accepted yet" in refused(browser, **world.authorize(moved, "student-1"))
    admin = here.school.client("admin")
    assert "Accept" in admin.get("/platforms").get_data(as_text=True)
    token_ = form_token(admin, "/platforms")
    data = {"csrf_token": token_, "deployment": "2"}
    assert admin.post(f"/platforms/{here.platform_id}/deployment", data=data).status_code == 303
    with here.school.store.read() as session:
        assert session.query(LtiNonce).count() == 3
        known = session.query(Identity).filter(Identity.provider.startswith("lti:")).count()
    assert known == 2, "a refused launch makes nobody"


@POSTGRESQL_FIRST
def test_a_new_key_of_the_platform_is_fetched_once_and_a_frame_gives_nothing_more(here: Campus) -> None:
    here.link()
    here.world.key = new_key()
    later(here, 120)
    known = here.world.fetched
    browser = here.browser()
    here.launch(browser, "student-1")
    here.launch(browser, "teacher-1")
    assert here.world.fetched == known + 1
    with here.school.store.write() as session:
        user = session.get_one(User, here.user("teacher-1"))
        user.administrator = True
    course = here.school.course
    assert browser.get(f"/framed/courses/{course}").status_code == 200
    # even an administrator is none in a frame, sees no other course, and nothing of the site's own
    elsewhere = f"/framed/assignments/{here.school.elsewhere}"
    for path in (elsewhere, "/framed/users", "/framed/tokens", "/framed/platforms", "/framed/sign-in"):
        assert browser.get(path).status_code == 404, path
    # outside the frame the same browser is nobody, and a session from outside is nobody in the frame
    assert browser.get(f"/courses/{course}").status_code == 303
    admin = here.school.client("admin")
    assert admin.get("/framed/").status_code == 401
    framed, plain = (browser.get(path).headers for path in (f"/framed/courses/{course}", "/sign-in"))
    assert f"frame-ancestors 'self' {here.world.base}" in framed["Content-Security-Policy"]
    assert "X-Frame-Options" not in framed
    assert "frame-ancestors 'none'" in plain["Content-Security-Policy"]
    assert plain["X-Frame-Options"] == "DENY"
    assert browser.post(f"/framed/courses/{course}/platform/code").status_code == 400, (
        "no form without its token"
    )
    cookie = browser.get_cookie("__Secure-grader-framed", path="/framed")
    assert cookie is not None
    browser.set_cookie("grader", cookie.value)
    assert browser.get("/tokens").status_code == 303, "the cookie of a frame signs nobody in outside"


def test_people_are_known_by_issuer_and_subject_and_their_roles_follow(here: Campus) -> None:
    with here.school.store.write() as session:
        session.get_one(User, here.school.users["teacher"]).email = "ada@school.invalid"
    here.link()
    here.launch(here.browser(), "student-1")
    assert here.user("student-1") != here.school.users["teacher"], "never by an address"
    course, user = here.school.course, here.user("student-1")

    def role() -> str:
        with here.school.store.read() as session:
            return session.get_one(Membership, (user, course)).role

    assert role() == "student"
    here.world.people["student-1"] = replace(here.world.people["student-1"], role="editingteacher")
    here.launch(here.browser(), "student-1")
    assert role() == "instructor"
    with here.school.store.write() as session:
        users.enrol(session, user, course, "grader")
    here.launch(here.browser(), "student-1")
    assert role() == "grader", "what was given here by hand stays"
    with here.school.store.write() as session:
        session.get_one(User, user).disabled = True
    assert here.answer(here.browser(), "student-1").status_code == 403


def test_the_roster_comes_by_pages_and_who_left_keeps_their_work(here: Campus) -> None:
    here.link()
    for number in range(3, 9):
        person = f"student-{number}"
        here.world.people[person] = Person(str(2000 + number), f"Student {number}", "student")
    here.world.people["boss"] = Person("1", "Boss", "admin")
    teacher, page = here.school.client("teacher"), f"/courses/{here.school.course}/platform"
    answer = teacher.post(f"{page}/roster", data={"csrf_token": form_token(teacher, page)})
    assert answer.status_code == 303
    assert here.passback().update_rosters() == 1
    with here.school.store.read() as session:
        of_it = session.query(Membership).filter_by(course_id=here.school.course, role="student").count()
        assert session.query(Identity).filter_by(subject="1").count() == 0
    assert of_it == 2 + 8
    del here.world.people["student-8"]
    context = rows(here, LtiContext)[0].id
    assert launch.update_roster(here.school.store, here.passback().talk, context, "test") == (8, 1)
    assert len(rows(here, Membership)) == len(
        {(one.user_id, one.course_id) for one in rows(here, Membership)}
    )


def test_a_platform_registers_itself_once_by_a_link(tmp_path: Path) -> None:
    with campus(tmp_path) as here:
        with here.school.store.write() as session:
            ticket = registrations.make_ticket(session, "test")
        here.world.client_id = "another-client"
        invite = requests.get(f"{here.world.base}/invite", timeout=30).json()
        client = here.school.app.test_client()
        assert client.get("/lti/register/nothing", query_string=invite).status_code == 404
        evil = {**invite, "openid_configuration": "http://10.0.0.1/x"}
        assert client.get(f"/lti/register/{ticket}", query_string=evil).status_code == 422
        answer = client.get(f"/lti/register/{ticket}", query_string=invite)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        assert client.get(f"/lti/register/{ticket}", query_string=invite).status_code == 404
        with here.school.store.read() as session:
            found = registrations.find_platform(session, here.world.base, "another-client")
            assert found is not None
            assert (found.token_url, found.family) == (f"{here.world.base}/mod/lti/token.php", "moodle")
            assert registrations.find_platform(session, here.world.base) is None, (
                "two of one issuer: which is not said"
            )


def test_keys_are_made_once_and_shown_for_a_week_after_they_were_replaced(here: Campus) -> None:
    first = registrations.signing_key(here.school.store)
    assert registrations.signing_key(here.school.store) == first
    second = new_key()
    with here.school.store.write() as session:
        registrations.rotate_key(session, second, "test")
    assert registrations.signing_key(here.school.store).kid == second.kid

    said = here.browser().get("/lti/canvas.json").json
    assert said is not None
    assert (said["public_jwk_url"], len(said["scopes"])) == (f"{here.world.tool}/lti/jwks", 4)

    def shown() -> set[str]:
        answer = here.browser().get("/lti/jwks").json
        assert answer is not None
        assert all(set(one) == {"kty", "n", "e", "kid", "alg", "use"} for one in answer["keys"])
        return {one["kid"] for one in answer["keys"]}

    assert shown() == {first.kid, second.kid}
    later(here, 8 * 86_400)
    assert shown() == {second.kid}


def test_an_issuer_has_one_address_of_keys(here: Campus) -> None:
    other = registration_of(here.world)
    changed = type(other)(**{**other.__dict__, "client_id": "x", "jwks_url": "https://evil.example/jwks"})
    with here.school.store.write() as session, pytest.raises(Exception, match="another public keyset URL"):
        registrations.register_platform(session, changed, "test")


def test_a_platform_is_changed_and_removed_and_grades_stay(here: Campus) -> None:
    here.link()
    here.launch(here.browser(), "student-1")
    submission, boss, page = (
        here.graded("student-1", released=False),
        here.school.client("admin"),
        "/platforms/1",
    )
    release(here, submission)
    token = form_token(boss, page)
    shown = boss.get(page).get_data(as_text=True)
    assert "The link to one course is deleted." in shown
    assert "One assignment link is deleted." in shown
    with here.school.store.read() as session:
        said = registrations.load_registration(session, here.platform_id)
    form: dict[str, str] = {key: value for key, value in vars(said).items() if isinstance(value, str)}
    form |= {"csrf_token": token, "origins": "https://lms.school.example", "name": "Ours"}
    refused = boss.post(page, data={**form, "token_url": "nothing"})
    assert refused.status_code == 422
    assert "token_url" in refused.get_data(as_text=True)
    assert boss.post(page, data=form).status_code == 303
    with here.school.store.read() as session:
        changed = registrations.load_registration(session, here.platform_id)
    assert (changed.name, changed.issuer) == ("Ours", said.issuer)
    assert "https://lms.school.example" in changed.origins
    assert here.passback().send_due() == 1
    assert boss.post(f"{page}/remove", data={"csrf_token": token}).status_code == 303
    assert boss.get(page).status_code == 404
    left = [
        rows(here, one) for one in (LtiPlatform, LtiContext, LtiLink, LtiScore, LtiScoreAttempt, LtiNonce)
    ]
    assert left == [[]] * 6
    assert here.passback().send_due() == 0
    with here.school.store.read() as session:
        assert session.query(Round).filter_by(submission_id=submission, state="graded").count() == 1
        assert session.query(Identity).filter_by(subject=here.world.people["student-1"].id).count() == 1
        actions = {one.action for one in session.query(Audit)}
    assert {"lti.platform.change", "lti.platform.remove"} <= actions


@POSTGRESQL_FIRST
def test_people_may_be_called_as_long_as_lti_allows(here: Campus) -> None:
    name = "x" * 255
    here.world.people[name] = replace(here.world.people["student-1"], id=name)
    here.link()
    here.launch(here.browser(), name)
    assert here.user(name)


KILLED = """
import json, os, signal, sys
from grading.config.settings import Server
from grading.store import Store
from workers.server.delivery.lti import Passback
def run(url, public, at):
    allowed = ("localhost", "127.0.0.1/32", "::1/128")
    sender = Passback(Server(public_url=public, outside_allowed=allowed), Store(url))
    real = sender.talk.__class__.send
    def send(self, platform, scopes, method, url, kind, body=None):
        if "/scores" in url and at == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(self, platform, scopes, method, url, kind, body)
        if "/scores" in url and at == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    sender.talk.__class__.send = send
    sender.send_due()
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        run(*json.loads(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
Sender = Callable[[str, str, str], int]


@pytest.fixture(scope="module")
def sender() -> Iterator[Sender]:
    """Sends what is due of a database and kills itself; forked of one process that has the modules."""
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def run(url: str, public: str, at: str) -> int:
            """How it ended."""
            print(json.dumps([url, public, at]), file=asked, flush=True)
            return int(told.readline())

        yield run
        asked.close()  # then it ends


def killed(here: Campus, sender: Sender, times: int) -> None:
    """A sender that dies before or after the platform took a score: the next one tells it, later."""
    here.link()
    here.launch(here.browser(), "student-1")
    submission = here.graded("student-1", released=False)
    release(here, submission)
    url, public = here.school.store.url, here.world.tool
    for number in range(times):
        with here.school.store.write() as session:
            grade = grade_release.lock_current_grade(session, submission)
            assert grade is not None
            grade.final_points = float(number % 10)
            grade_release.add_event(session, grade, "grade.changed", f"changed:{number}")
        at = "after" if number % 2 else "before"
        assert sender(url, public, at) == -signal.SIGKILL
        with here.school.store.write() as session:  # as if the leases had run out
            session.query(LtiScore).update({"leased_until": None})
            past = session.query(User).first()
            assert past is not None
            session.query(Outbox).filter_by(kind="lti", done_at=None).update({"not_before": past.created_at})
        here.passback().send_due()
        assert here.world.of("student-1").points == float(number % 10)
    stamps = [one["timestamp"] for one in here.world.log]
    assert stamps == sorted(set(stamps)), "each score is later than the one before"
    assert not [one for one in here.world.log if "refused" in one]
    assert len(here.world.items) == 1
    assert [one for one in rows(here, Outbox) if one.kind == "lti" and one.done_at is None] == []


def test_a_sender_that_is_killed_loses_no_score(here: Campus, sender: Sender) -> None:
    killed(here, sender, 2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_sender_that_is_killed_a_hundred_times_loses_no_score(here: Campus, sender: Sender) -> None:
    killed(here, sender, 100)


@POSTGRESQL_FIRST
def test_signing_out_in_a_frame_ends_its_session_only(here: Campus) -> None:
    here.link()
    browser, other = here.browser(), here.browser()
    way = here.launch(browser, "student-1")
    here.launch(other, "student-1")
    thief, cookie = here.browser(), browser.get_cookie("__Secure-grader-framed", path="/framed")
    assert cookie is not None
    thief.set_cookie("__Secure-grader-framed", cookie.value, path="/framed", secure=True)
    assert [one.get(way).status_code for one in (browser, thief, other)] == [200] * 3
    token = re.search(r'name="csrf_token" value="([^"]+)"', browser.get(way).get_data(as_text=True))
    assert token is not None
    answer = browser.post(
        "/framed/sign-out", data={"csrf_token": token[1]}, headers={"Referer": here.world.tool}
    )
    assert (
        answer.status_code,
        "Your session from the learning platform has ended" in answer.get_data(as_text=True),
    ) == (200, True)
    assert [one.get(way).status_code for one in (browser, thief, other)] == [401, 401, 200]


@POSTGRESQL_FIRST
def test_launches_are_audited(here: Campus) -> None:
    here.link()
    assert {"lti.platform", "lti.deployment", "lti.launch", "lti.course"} <= {
        one.action for one in rows(here, Audit)
    }
    assert len(rows(here, LtiLink)) == 0
    here.launch(here.browser(), "student-1")
    assert len(rows(here, LtiLink)) == 1
