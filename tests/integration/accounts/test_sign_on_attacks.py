"""Attacks by which one person would reach another's account, or keep it, by single sign-on."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pyotp
import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from grading.store import tables
from grading.store.accounts import credentials, second_factor, single_sign_on, users
from grading.store.courses import invitations
from grading.store.database import now
from tests.integration.accounts.sign_on_world import (
    NAME,
    PUBLIC,
    Campus,
    as_person,
    campus,
    linked,
    logged_out,
    posted,
    proved,
    text_of,
    unlinked,
)
from tests.support.lock_waits import waits_or_is_over

STUDENT = {**NAME, "groups": ["grader-ba-students"]}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Campus]:
    with campus(tmp_path) as made:
        yield made


def test_a_second_provider_gets_no_say_over_people_of_the_first(tmp_path: Path) -> None:
    """Not even by the sign-in name that both may vouch for."""
    claim = "student_id"
    with campus(tmp_path, {"sign_in_name_claim": claim}, sign_in_name_claim=claim) as here:
        here.university.people |= {
            "b": {**NAME, "student_id": "ben", "hd": "school.test"},
            "n": {**NAME, "student_id": "new", "groups": ["grader-ba-staff"]},
        }
        for person in "bn":
            assert here.sign_in(here.browser(), person).status_code == 303
        for number, name in enumerate(("ben", "new")):
            here.partner.people[f"eve-{number}"] = {**NAME, "student_id": name}
            answer = here.sign_in(browser := here.browser(), f"eve-{number}", "partner")
            assert "is linked with another provider" in text_of(answer.get_data(as_text=True))
            assert here.reader(browser) is None
        here.partner.people["a"] = {**NAME, "student_id": "anna"}  # of nobody yet
        assert here.sign_in(here.browser(), "a", "partner").status_code == 303


@dataclass(frozen=True)
class Planted:
    """Every way in that whoever knows an account's password can make."""

    password: str
    session: FlaskClient
    token: str
    link: str

    def open(self, here: Campus, name: str) -> list[bool]:
        """Which of them still open the account."""
        signed_in = posted(
            browser := here.browser(), "/sign-in", "/sign-in", name=name, password=self.password
        )
        asked = here.browser().get(
            "/api/v1/me", headers={"Authorization": f"Bearer {self.token}"}, base_url=PUBLIC
        )
        return [
            signed_in.status_code != 401 or here.reader(browser) is not None,
            here.reader(self.session) is not None,
            asked.status_code == 200,
            here.browser().get(self.link, base_url=PUBLIC).status_code == 303,
        ]


def plant(here: Campus, name: str) -> Planted:
    """An instructor sets the password of a student of theirs, by the pages, and uses it."""
    teacher, people = as_person(here, "teacher"), f"/courses/{here.school.course}/people"
    with here.school.store.read() as session:
        user = users.find_user(session, "local", name)
        assert user is not None
        page = f"{people}/{user.id}"

    def link() -> str:
        shown = posted(teacher, page, f"{page}/link").get_data(as_text=True)
        found = re.search(r"https://grader\.test(/reset/[\w-]+)", shown)
        assert found is not None
        return found[1]

    thief, secret = here.browser(), "of the instructor"
    assert thief.get(link(), base_url=PUBLIC).status_code == 303
    posted(thief, "/reset", "/reset", password=secret, again=secret)
    posted(thief, "/sign-in", "/sign-in", name=name, password=secret)
    assert here.reader(thief) == user.id
    tokens = posted(thief, "/tokens", "/tokens", name="t", scope="read", days="730")
    token = re.search(r"grd_[\w-]+", tokens.get_data(as_text=True))
    assert token is not None
    made = Planted(secret, thief, token[0], link())
    assert made.open(here, name) == [True] * 4
    return made


def test_a_planted_account_opens_to_nobody_else_once_its_owner_comes(tmp_path: Path) -> None:
    """An instructor puts somebody into a roster who never signed in, and waits for their rights."""
    with campus(tmp_path, sign_in_name_claim="student_id") as here:
        page = f"/courses/{here.school.course}/people"
        posted(as_person(here, "teacher"), page, f"{page}/add", id="boss", role="student")
        planted = plant(here, "boss")
        here.university.people["b"] = {**NAME, "student_id": "boss", "realm": {"roles": ["grader-admin"]}}
        here.sign_in(owner := here.browser(), "b")
        with here.school.store.read() as session:
            user = users.find_user(session, "local", "boss")
            assert user is not None
            assert (user.administrator, user.id) == (True, here.reader(owner))
        assert planted.open(here, "boss") == [False] * 4
        assert "opened by University only" in text_of(
            owner.get("/account", base_url=PUBLIC).get_data(as_text=True)
        )


@pytest.mark.parametrize(
    "claim", [{"realm": {"roles": ["grader-admin"]}}, {"groups": ["grader-other-staff"]}]
)
def test_a_students_planted_ways_in_end_with_their_first_staff_role(
    tmp_path: Path, claim: dict[str, Any]
) -> None:
    """Also a sign-in of their own that the instructor linked."""
    with campus(tmp_path, sign_in_name_claim="student_id") as here:
        people = here.university.people
        people["c"] = {**NAME, "student_id": "carla", "groups": ["grader-ba-students"]}
        here.sign_in(here.browser(), "c")
        planted = plant(here, "carla")
        linked(here, planted.session, "thief", "partner", old=planted.password)
        here.sign_in(by_partner := here.browser(), "thief", "partner")
        assert here.reader(by_partner) is not None
        here.sign_in(here.browser(), "c")
        assert planted.open(here, "carla") == [True] * 4, "nothing new was given"
        people["c"] = {**people["c"], **claim}
        here.sign_in(owner := here.browser(), "c")
        assert here.reader(owner) is not None
        assert planted.open(here, "carla") == [False] * 4
        assert here.reader(by_partner) is None
        assert here.sign_in(here.browser(), "thief", "partner").status_code == 403
        own = posted(owner, "/tokens", "/tokens", name="t", scope="read", days="30")
        assert "grd_" in own.get_data(as_text=True)
        here.sign_in(again := here.browser(), "c")
        assert (here.reader(owner), here.reader(again)) == (here.reader(again), here.reader(owner))
        assert here.reader(owner) is not None, "what they made since then stays"


def test_ending_other_sessions_makes_no_new_one_of_an_old_one(here: Campus) -> None:
    """A stolen cookie becomes neither a recent sign-in nor one that the provider cannot end."""
    here.university.people["anna"] = STUDENT
    here.university.change_claims = lambda told: {**told, "sid": "there"}
    here.sign_in(browser := here.browser())
    here.sign_in(other := here.browser())
    cookie = browser.get_cookie("__Host-grader", domain="grader.test")
    assert cookie is not None
    thief = here.browser()
    thief.set_cookie("__Host-grader", cookie.value, domain="grader.test", secure=True)
    with here.school.store.write() as session:
        for one in session.query(tables.OpenSession):
            one.begun_at -= timedelta(days=29)
    assert posted(thief, "/account", "/account/sessions").status_code == 303
    assert here.reader(thief) is not None
    assert (here.reader(browser), here.reader(other)) == (None, None), "copies of the cookie end, too"
    assert "First show that this is your account" in linked(here, thief, "eve", "partner")
    with here.school.store.write() as session:
        row = session.query(tables.OpenSession).one()
        assert (row.provider_session, row.id_token.startswith("ey")) == ("there", True)
        assert timedelta(days=28) < now(session) - row.begun_at < timedelta(days=30)
    assert logged_out(here, here.university.logout_token(sub="anna"))[1] == {"ended": 1}
    assert here.reader(thief) is None


def with_second_factor(here: Campus, name: str) -> tuple[FlaskClient, pyotp.TOTP, tuple[str, ...]]:
    """A browser in which somebody is signed in, their app, and recovery codes."""
    user_id, key = here.school.users[name], here.school.services.secret_key
    with here.school.store.write() as session:
        second_factor.begin_enrolment(session, user_id, key)
        begun = second_factor.load_enrolment(session, user_id, name, key)
        assert begun is not None
        app = pyotp.TOTP(begun.secret)
        codes = second_factor.confirm_enrolment(session, user_id, app.at(int(time.time()) - 30), key)
    return as_person(here, name), app, codes


def test_a_sign_in_is_linked_only_with_the_second_factor(here: Campus) -> None:
    """Or who has session and password would be asked for no code ever after."""
    browser, _, codes = with_second_factor(here, "teacher")
    page = browser.get("/account/sign-ons/university", base_url=PUBLIC).get_data(as_text=True)
    assert 'name="one_time_code"' in page
    for code in ("", "000000"):
        said = linked(here, browser, "eve", old="correct horse", one_time_code=code)
        assert "The code is wrong" in said
    assert here.sign_in(here.browser(), "eve").status_code == 403
    assert "Linked: University" in linked(here, browser, "t", old="correct horse", one_time_code=codes[0])


def test_a_break_glass_account_has_no_sign_in_of_a_provider(here: Campus) -> None:
    browser, _, codes = with_second_factor(here, "admin")
    linked(here, browser, "a", "partner", old="correct horse", one_time_code=codes[0])
    with here.school.store.write() as session:
        user = session.get_one(tables.User, here.school.users["admin"])
        second_factor.set_break_glass(session, user, True, "cli")
    page = "/account/sign-ons/university"
    refused = (
        browser.get(page, base_url=PUBLIC),
        posted(browser, "/account", page, old="correct horse", one_time_code=codes[1]),
    )
    for answer in refused:
        assert "No sign-in is linked with it" in text_of(answer.get_data(as_text=True))
    assert here.sign_in(here.browser(), "eve").status_code == 403
    here.sign_in(here.browser(), "a", "partner")  # linked before
    with here.school.store.read() as session:
        assert [one.name for one in second_factor.recent_break_glass(session)] == ["Admin"]


def reset(here: Campus, name: str) -> None:
    """The password is set by a link that an administrator made."""
    with here.school.store.write() as session:
        secret = invitations.create_links(session, [here.school.users[name]], "user:1", 1)
    browser = here.browser()
    browser.get(f"/reset/{secret[here.school.users[name]]}", base_url=PUBLIC)
    assert posted(browser, "/reset", "/reset", password="a new horse", again="a new horse").status_code == 303


def change(here: Campus, name: str) -> None:
    """The owner changes the password on their own page, with what is ticked there."""
    form = {"old": "correct horse", "password": "a new horse", "again": "a new horse", "tokens": "1"}
    assert posted(as_person(here, name), "/account", "/account/password", **form).status_code == 303


@pytest.mark.parametrize("recover", [reset, change])
def test_a_sign_in_that_was_linked_opens_nothing_after_a_new_password(
    here: Campus, recover: Callable[[Campus, str], None]
) -> None:
    """Whoever knew the old one may have linked it. It is not forgotten: it would make another account."""
    thief = as_person(here, "teacher")
    linked(here, thief, "eve", old="correct horse")
    here.university.people |= {"eve": STUDENT, "anna": STUDENT}
    here.sign_in(by_provider := here.browser(), "eve")
    here.sign_in(anna := here.browser())
    before = here.rows()[0]
    recover(here, "teacher")
    assert (here.reader(thief), here.reader(by_provider)) == (None, None)
    answer = here.sign_in(by_provider, "eve")
    assert "The password of your account was reset after this sign-in was linked" in text_of(
        answer.get_data(as_text=True)
    )
    assert (here.reader(by_provider), here.rows()[0]) == (None, before), "nor does it make another account"
    assert here.reader(anna) is not None
    # its owner sees it, and links it again or unlinks it, each with the new password
    posted(owner := here.browser(), "/sign-in", "/sign-in", name="teacher", password="a new horse")
    shown = text_of(owner.get("/account", base_url=PUBLIC).get_data(as_text=True))
    assert "Locked, as the password was reset" in shown
    assert "current password is wrong" in linked(here, owner, "eve", old="correct horse")
    assert "Linked: University" in linked(here, owner, "eve", old="a new horse")
    assert here.sign_in(by_provider, "eve").status_code == 303
    assert here.reader(by_provider) == here.school.users["teacher"]
    assert unlinked(owner, old="a new horse").status_code == 303
    assert here.reader(by_provider) is None


def test_the_sign_in_that_made_an_account_stays_after_a_new_password(here: Campus) -> None:
    """Or an instructor who makes a link would keep its owner out."""
    here.university.people["anna"] = STUDENT
    here.sign_in(browser := here.browser())
    here.school.users["a"] = here.reader(browser) or 0
    reset(here, "a")
    assert here.sign_in(browser).status_code == 303
    assert here.reader(browser) == here.school.users["a"]


def test_a_link_that_is_under_way_ends_with_the_session(here: Campus) -> None:
    """A provider may take seconds to answer; the owner resets the password meanwhile."""
    thief = as_person(here, "teacher")
    page = "/account/sign-ons/university"
    answer = posted(thief, page, page, old="correct horse").get_data(as_text=True)
    way = re.search(r'href="(https://login[^"]+)"', answer)
    assert way is not None
    told = here.university.authorize(html.unescape(way[1]), "eve")

    def slow(user_info: dict[str, Any]) -> dict[str, Any]:
        reset(here, "teacher")
        return user_info

    here.university.change_user_info = slow
    here.bring(thief, told)
    here.university.change_user_info = lambda told: told
    assert here.sign_in(here.browser(), "eve").status_code == 403
    with here.school.store.read() as session:
        assert session.query(tables.Identity).filter_by(subject="eve").count() == 0


def test_a_sign_in_that_is_under_way_during_a_reset_opens_nothing(school_url: str) -> None:
    """Neither one that was let in just before, nor one that waits for it, which also gives nothing."""
    with campus(school_url) as here:
        user_id, store = here.school.users["teacher"], here.school.store
        linked(here, as_person(here, "teacher"), "eve", old="correct horse")
        sign_in, thief = single_sign_on.sign_in, here.browser()

        def slow(*given: Any) -> single_sign_on.Arrival:
            arrived = sign_in(*given)
            reset(here, "teacher")
            return arrived

        with patch("grading.store.accounts.single_sign_on.sign_in", slow):
            answers = [here.sign_in(thief, "eve")]
        assert "Linked: University" in linked(here, as_person(here, "teacher"), "eve", old="correct horse")
        here.university.people["eve"] = {**NAME, "realm": {"roles": ["grader-admin"]}}
        told = here.university.authorize(here.begin(thief), "eve")
        under_way = Thread(target=lambda: answers.append(here.bring(thief, told)))
        with store.write() as session:
            users.set_password(session, session.get_one(tables.User, user_id), "", "of the reset")
            credentials.end_what_was_added(session, user_id, "system")
            under_way.start()
            waits_or_is_over(store, under_way)
        under_way.join()
        for answer in answers:
            assert "was reset after this sign-in was linked" in text_of(answer.text)
        with store.read() as session:
            user = session.get_one(tables.User, user_id)
            assert (user.administrator, user.password_hash) == (False, "of the reset")
            assert session.query(tables.OpenSession).filter_by(user_id=user_id).count() == 0


def test_a_stolen_session_unlinks_nothing(here: Campus) -> None:
    """What a rule gave would go with it, and perhaps the owner's way in."""
    browser, _, codes = with_second_factor(here, "teacher")
    linked(here, browser, "t", old="correct horse", one_time_code=codes[0])
    for form, said in (
        ({}, "Enter your current password"),
        ({"old": "wrong horse"}, "The current password is wrong. Nothing was changed"),
        ({"old": "correct horse"}, "The code is wrong"),
        ({"old": "correct horse", "one_time_code": codes[0]}, "The code is wrong"),
    ):
        answer = unlinked(browser, **form)
        assert (answer.status_code, said in text_of(answer.get_data(as_text=True))) == (403, True), form
    other = as_person(here, "anna")
    with here.school.store.read() as session:
        number = session.query(tables.Identity).filter_by(subject="t").one().id
    way = f"/account/sign-ons/{number}/unlink"
    assert other.get(way, base_url=PUBLIC).status_code == 404
    assert posted(other, "/account", way, old="correct horse").status_code == 404
    assert here.sign_in(here.browser(), "t").status_code == 303
    assert unlinked(browser, old="correct horse", one_time_code=codes[1]).status_code == 303


def test_who_has_no_password_signs_in_again_to_link_or_unlink(here: Campus) -> None:
    """A session, new or old, is no proof; nor is a sign-in at the provider from before."""
    here.university.people |= {"anna": STUDENT, "eve": STUDENT}
    here.sign_in(browser := here.browser())
    cookie = browser.get_cookie("__Host-grader", domain="grader.test")
    assert cookie is not None
    thief = here.browser()
    thief.set_cookie("__Host-grader", cookie.value, domain="grader.test", secure=True)

    def refused(answer: TestResponse, said: str) -> None:
        assert (answer.status_code, said in text_of(answer.get_data(as_text=True))) == (401, True)
        assert "First show that this is your account" in linked(here, browser, "anna-p", "partner")

    assert "First show that this is your account" in linked(here, browser, "anna-p", "partner")
    refused(proved(here, browser, "eve"), "does not open your account in Grader")
    here.university.signed_in_at = lambda: time.time() - 90
    refused(proved(here, browser, "anna"), "You did not sign in at the provider again")
    here.university.signed_in_at = lambda: None
    for wrong in ({}, {"auth_time": "now"}):
        here.university.change_claims = lambda told, wrong=wrong: {**told, **wrong}
        refused(proved(here, browser, "anna"), "does not say when you signed in there")
    here.university.signed_in_at, here.university.change_claims = time.time, lambda told: told
    assert proved(here, browser, "anna").location == "/account"
    assert "First show" in linked(here, thief, "eve-p", "partner"), "a copy of the cookie proves nothing"
    here.partner.signed_in_at = lambda: time.time() - 90
    with pytest.raises(AssertionError, match="You did not sign in at the provider again"):
        linked(here, browser, "anna-p", "partner")
    here.partner.signed_in_at = lambda: None  # does not say it; the name on the page says who was linked
    assert "Linked: Partner" in linked(here, browser, "anna-p", "partner")
    with patch("app.accounts.proof.LASTS_S", -5):  # ten minutes later
        assert "First show" in text_of(browser.get("/account/sign-ons/partner", base_url=PUBLIC).text)


def test_a_proof_counts_by_the_databases_clock(here: Campus) -> None:
    """A web host may be a minute behind it."""
    here.university.people["anna"] = STUDENT
    here.sign_in(browser := here.browser())
    here.school.store.clock_offset_s = 30
    proved(here, browser, "anna")
    assert "Linked: Partner" in linked(here, browser, "anna-p", "partner")
    here.school.store.clock_offset_s += 600
    assert "First show" in text_of(browser.get("/account/sign-ons/partner", base_url=PUBLIC).text)


def test_a_link_that_the_version_before_began_is_begun_again(here: Campus) -> None:
    """During a rolling update: nothing says when it was begun."""
    browser, page = as_person(here, "teacher"), "/account/sign-ons/university"
    way = re.search(r'href="(https://login[^"]+)"', posted(browser, page, page, old="correct horse").text)
    assert way is not None
    told = here.university.authorize(html.unescape(way[1]), "t")
    with browser.session_transaction(base_url=PUBLIC) as cookie:
        cookie[f"_state_university_{told['state']}"]["data"].pop("since")
        cookie.modified = True
    answer = here.bring(browser, told)
    assert (answer.status_code, "Sign in again" in text_of(answer.text)) == (401, True)
    assert "Linked: University" in linked(here, browser, "t", old="correct horse")


def test_a_password_that_is_turned_off_proves_nothing(here: Campus) -> None:
    browser = as_person(here, "teacher")
    linked(here, browser, "t", old="correct horse")
    config = here.school.services.config
    off = config.sign_on.model_copy(update={"local_accounts": False})
    here.school.services = replace(here.school.services, config=config.model_copy(update={"sign_on": off}))
    here.school.app.extensions["grader"] = here.school.services
    answer = linked(here, browser, "eve", "partner", old="correct horse")
    assert "First show that this is your account" in answer
    assert unlinked(browser, old="correct horse").status_code == 403
    assert proved(here, browser, "t").status_code == 303
    assert "Linked: Partner" in linked(here, browser, "t-p", "partner")
    assert unlinked(browser).status_code == 303


def test_an_administrator_unlinks_a_sign_in_that_is_not_its_owners(here: Campus) -> None:
    linked(here, as_person(here, "teacher"), "eve", old="correct horse")
    here.university.people["anna"] = STUDENT
    here.sign_in(only := here.browser())
    admin = as_person(here, "admin")
    page = f"/users/{here.school.users['teacher']}"
    shown = admin.get(page, base_url=PUBLIC).get_data(as_text=True)
    way = re.search(r'action="(/users/\d+/sign-ons/\d+/unlink)"', shown)
    assert way is not None
    assert "oidc:" not in shown
    assert posted(as_person(here, "anna"), "/account", way[1]).status_code == 403
    assert posted(admin, page, way[1]).status_code == 303
    assert here.sign_in(here.browser(), "eve").status_code == 403
    page = f"/users/{here.reader(only)}"
    assert "Sign-in through a provider" in text_of(admin.get(page, base_url=PUBLIC).text)
    way = re.search(r'action="(/users/\d+/sign-ons/\d+/unlink)"', admin.get(page, base_url=PUBLIC).text)
    assert way is not None
    posted(admin, page, way[1])
    assert "Disable the account instead" in text_of(admin.get(page, base_url=PUBLIC).text)


def test_an_administrators_stolen_session_unlinks_none_of_their_own(here: Campus) -> None:
    """Their page among all accounts leads to the form that asks for a proof."""
    linked(here, admin := as_person(here, "admin"), "boss", old="correct horse")
    page = f"/users/{here.school.users['admin']}"
    own = re.search(r'href="/account/sign-ons/(\d+)/unlink"', admin.get(page, base_url=PUBLIC).text)
    assert own is not None
    answer = posted(admin, page, f"{page}/sign-ons/{own[1]}/unlink")
    assert (answer.status_code, answer.location) == (303, f"/account/sign-ons/{own[1]}/unlink")
    assert here.sign_in(here.browser(), "boss").status_code == 303
    assert unlinked(admin, old="correct horse").status_code == 303
