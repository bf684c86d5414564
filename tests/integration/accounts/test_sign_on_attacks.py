"""Attacks by which one person would reach another's account, or keep it, by single sign-on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyotp
import pytest
from flask.testing import FlaskClient

from grading.store import tables
from grading.store.accounts import second_factor, sessions, users
from tests.integration.accounts.sign_on_world import (
    NAME,
    PUBLIC,
    Campus,
    as_person,
    campus,
    linked,
    logged_out,
    posted,
    text_of,
)

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
    assert "your sign-in must be recent" in linked(here, thief, "eve", "partner")
    with here.school.store.write() as session:
        row = session.query(tables.OpenSession).one()
        assert (row.provider_session, row.id_token.startswith("ey")) == ("there", True)
        assert sessions.is_new(session, row.id, timedelta(days=30))
        assert not sessions.is_new(session, row.id, timedelta(days=28))
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
    said = linked(here, browser, "eve", old="correct horse", one_time_code=codes[1])
    assert "No sign-in is linked with it" in said
    assert here.sign_in(here.browser(), "eve").status_code == 403
    here.sign_in(here.browser(), "a", "partner")  # linked before
    with here.school.store.read() as session:
        assert [one.name for one in second_factor.recent_break_glass(session)] == ["Admin"]
