"""Single sign-on: what a provider says right is taken, and every bad answer is refused with a plain sentence.

docs/explanation/single-sign-on.md lists which of these shows which rule of RFC 9700 and OpenID Connect.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask.testing import FlaskClient
from joserfc import jws, jwt

from cli.doctor import sign_on
from cli.doctor.finding import Bounds, Installation
from grading.domain.messages import verbatim
from grading.integrations.http_client import OutsideFailed
from grading.integrations.oidc.values import provider_of
from grading.store import tables
from grading.store.accounts import users
from tests.integration.accounts.sign_on_world import (
    ISSUER,
    NAME,
    OTHER,
    PUBLIC,
    STUDENT,
    Campus,
    Played,
    as_person,
    campus,
    elliptic,
    linked,
    logged_out,
    posted,
    proved,
    text_of,
    unlinked,
)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Campus]:
    with campus(tmp_path) as made:
        yield made


def test_who_is_in_the_groups_gets_an_account_and_the_course(here: Campus) -> None:
    here.university.people["anna-7"] = STUDENT
    browser = here.browser()
    told = here.university.authorize(here.begin(browser, target="/courses"), "anna-7")
    answer = here.bring(browser, told)
    assert (answer.status_code, answer.location) == (303, "/courses")
    user_id = here.reader(browser)
    assert user_id is not None
    with here.school.store.read() as session:
        user = session.get_one(tables.User, user_id)
        assert (user.name, user.email, user.administrator) == ("Anna Student", "anna@school.test", False)
        assert users.roles(session, user_id) == {here.school.course: "student"}
        identity = session.query(tables.Identity).filter_by(user_id=user_id).one()
        assert (identity.provider, identity.subject) == (provider_of(ISSUER), "anna-7")
    again = here.browser()
    here.sign_in(again, "anna-7")
    assert here.reader(again) == user_id


def test_staffs_rights_go_with_the_claim_and_what_staff_gave_stays(here: Campus) -> None:
    people, course = here.university.people, here.school.course
    people["t"] = {
        **NAME,
        "groups": ["grader-ba-staff", "grader-ba-students"],
        "realm": {"roles": ["grader-admin"]},
    }
    browser = here.browser()
    here.sign_in(browser, "t")
    user_id = here.reader(browser) or 0

    def rights() -> tuple[bool, str | None]:
        with here.school.store.read() as session:
            administrator = session.get_one(tables.User, user_id).administrator
            return administrator, users.roles(session, user_id).get(course)

    assert rights() == (True, "instructor")
    people["t"] = {**NAME, "groups": ["grader-ba-students"], "hd": "school.test"}
    here.sign_in(here.browser(), "t")
    assert rights() == (False, "student")
    people["t"] = {**NAME, "hd": "school.test"}
    here.sign_in(here.browser(), "t")
    assert rights() == (False, "student")  # their work stays in sight
    people["t"] = {**NAME, "groups": "grader-ba-staff"}
    here.sign_in(here.browser(), "t")
    assert rights() == (False, "student"), "a role that nobody's rule gave is not the rule's to change"
    with here.school.store.write() as session:
        users.enrol(session, user_id, course, "grader")
    people["t"] = {**NAME}
    here.sign_in(here.browser(), "t")
    assert rights() == (False, "grader")


def test_nobody_unknown_gets_in_without_a_rule_that_fits(here: Campus) -> None:
    before = here.rows()
    here.university.people["eve"] = {
        **NAME,
        "groups": ["grader-ba", "xgrader-ba-students", "grader-ba-studentsx"],
    }
    answer = here.sign_in(browser := here.browser(), "eve")
    assert answer.status_code == 403
    assert "You have no account in Grader" in text_of(answer.get_data(as_text=True))
    assert here.sign_in(here.browser(), "eve", "partner").status_code == 403
    assert here.reader(browser) is None
    assert here.rows() == before


def test_first_sign_ins_at_the_same_moment_make_one_account(school_url: str) -> None:
    """Of one person in several browsers, and of two people whose sign-in name or address is the same."""
    with campus(school_url, sign_in_name_claim="student_id") as here:
        shared = {**STUDENT, "email": "one@school.test"}
        here.university.people |= {
            "p": {**shared, "student_id": "one-name"}, "q": {**shared, "student_id": "one-name"},
            "r": shared, "s": shared,
        }  # fmt: skip
        people = "ppqqrrss"
        before, together = here.rows()[0], Barrier(len(people))

        def wait(told: dict[str, Any]) -> dict[str, Any]:
            together.wait(60)
            return told

        here.university.change_user_info = wait
        browsers = [here.browser() for _ in people]
        begun = [here.begin(browser) for browser in browsers]
        told = [here.university.authorize(way, who) for way, who in zip(begun, people, strict=True)]
        with ThreadPoolExecutor(len(people)) as pool:
            answers = list(pool.map(here.bring, browsers, told))
        got: dict[str, set[tuple[int, int | None]]] = {who: set() for who in people}
        for who, browser, answer in zip(people, browsers, answers, strict=True):
            got[who].add((answer.status_code, here.reader(browser)))
        accounts = {user for found in got.values() for _, user in found} - {None}
        assert sorted(status for found in got.values() for status, _ in found) == [303, 303, 303, 403], got
        assert len(accounts) == 3, got
        assert here.rows()[0] == before + 3


# --- no account is reached -------------------------------------------------------------------------


def test_a_code_that_was_stolen_reaches_no_account(here: Campus) -> None:
    """RFC 9700 4.5: whoever reads a victim's answer can redeem it nowhere."""
    here.university.people["anna"] = STUDENT
    victim, thief = here.browser(), here.browser()
    stolen = here.university.authorize(here.begin(victim))
    assert here.bring(thief, stolen).status_code == 401  # there is no state in that browser
    own = here.university.authorize(here.begin(thief), "eve")
    answer = here.bring(thief, {**stolen, "state": own["state"]})
    assert "PKCE verification failed" in text_of(answer.get_data(as_text=True))
    here.university.checks_pkce = False  # and a provider that does not look
    stolen = here.university.authorize(here.begin(victim))
    own = here.university.authorize(here.begin(thief), "eve")
    answer = here.bring(thief, {**stolen, "state": own["state"]})
    assert "belongs to another sign-in" in text_of(answer.get_data(as_text=True))
    assert here.reader(thief) is None


def test_an_answer_counts_once(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    browser = here.browser()
    address = here.begin(browser)
    told = here.university.authorize(address)
    cookie = browser.get_cookie("__Host-grader", domain="grader.test")
    assert here.bring(browser, told).status_code == 303
    assert here.bring(browser, told).status_code == 401
    # with a copy of the cookie, and a provider that redeems a code twice and says the same
    copy = here.browser()
    assert cookie is not None
    copy.set_cookie("__Host-grader", cookie.value, domain="grader.test", secure=True)
    here.university.codes[told["code"]] = {
        "redirect_uri": f"{PUBLIC}/sign-on/university/callback", "sub": "anna", "code_challenge": "",
        "nonce": parse_qs(urlsplit(address).query)["nonce"][0],
    }  # fmt: skip
    here.university.checks_pkce = False
    answer = here.bring(copy, told)
    assert "was already used" in text_of(answer.get_data(as_text=True))
    assert here.reader(copy) is None


def test_a_provider_that_is_mixed_up_with_another_reaches_no_account(here: Campus) -> None:
    """RFC 9700 4.4: each has an address of its own here, and says who it is."""
    here.university.people["anna"] = STUDENT
    browser = here.browser()
    begun = here.begin(browser, "partner")  # an attacker's provider was chosen,
    told = here.university.authorize(begun, "anna")  # and sent the browser on to the honest one
    assert here.bring(browser, told, "partner").status_code == 401
    assert here.partner.asked[-1].startswith("GET"), "the code went to nobody"
    begun = here.begin(browser, "partner")
    told = here.university.authorize(begun, "anna")
    assert here.bring(browser, told).status_code == 401
    here.partner.change_metadata = lambda told: {
        **told,
        "authorization_response_iss_parameter_supported": False,
    }
    here.forget()
    told = here.university.authorize(here.begin(browser, "partner"), "anna")
    assert here.bring(browser, told, "partner").status_code == 401, "iss counts also where it is not promised"
    assert here.reader(browser) is None


def test_another_providers_token_reaches_no_account(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    here.sign_in(here.browser())
    for change in (
        {"change_claims": lambda told: {**told, "iss": ISSUER}},
        {"change_claims": lambda told: {**told, "iss": ISSUER}, "number": 0, "kid": "one"},
    ):
        here.partner = replace(Played(OTHER, number=1, kid="partner"), **change)
        here.forget()
        assert here.sign_in(browser := here.browser(), "anna", "partner").status_code == 401
        assert here.reader(browser) is None
    here.partner = Played(OTHER, number=1, kid="partner")
    here.forget()
    assert here.sign_in(browser := here.browser(), "anna", "partner").status_code == 403
    assert here.reader(browser) is None, "the same subject of another issuer is another person"


@pytest.mark.parametrize("verified", [True, False, None, "yes"])
def test_an_email_that_somebody_else_claims_reaches_no_account(here: Campus, verified: object) -> None:
    with here.school.store.write() as session:
        session.get_one(tables.User, here.school.users["teacher"]).email = "teacher@school.test"
    here.university.people["eve"] = {
        "email": "teacher@school.test", "email_verified": verified, "hd": "school.test", "name": "Teacher",
        "preferred_username": "teacher",
    }  # fmt: skip
    browser = here.browser()
    here.sign_in(browser, "eve")
    assert here.reader(browser) not in (None, *here.school.users.values())
    with here.school.store.read() as session:
        email = session.get_one(tables.User, here.reader(browser)).email
        assert email == ("teacher@school.test" if verified is True else "")


def test_a_sign_in_name_by_the_operators_rule(tmp_path: Path) -> None:
    with campus(tmp_path, sign_in_name_claim="student_id") as here:
        people = here.university.people
        people["s-1"] = {**NAME, "student_id": "ben"}
        answer = here.sign_in(here.browser(), "s-1")
        assert "nothing that gives you one" in text_of(answer.get_data(as_text=True)), "no rule lets them in"
        inside = {**NAME, "hd": "school.test"}
        people["s-1"] = {**inside, "student_id": "ben"}
        browser = here.browser()
        assert here.sign_in(browser, "s-1").status_code == 303
        assert here.reader(browser) == here.school.users["ben"]
        people["s-2"] = {**inside, "student_id": "ben"}  # the number was given again
        answer = here.sign_in(here.browser(), "s-2")
        assert "linked with another person" in text_of(answer.get_data(as_text=True))
        people["s-3"] = {**inside, "student_id": "admin"}
        answer = here.sign_in(here.browser(), "s-3")
        assert "Its owner must link it" in text_of(answer.get_data(as_text=True))
        people["s-4"] = {**inside, "student_id": ["ben", "anna"]}
        answer = here.sign_in(here.browser(), "s-4")
        assert "is not 1 to 200 printable characters" in text_of(answer.get_data(as_text=True))
        people["s-5"] = {**inside, "student_id": "new-5"}
        browser = here.browser()
        here.sign_in(browser, "s-5")
        with here.school.store.read() as session:
            found = users.find_user(session, "local", "new-5")
            assert found is not None, "a roster that comes later finds them"
            assert found.id == here.reader(browser)


def test_an_email_as_sign_in_name_must_be_verified(tmp_path: Path) -> None:
    with campus(tmp_path, sign_in_name_claim="email") as here:
        with here.school.store.write() as session:
            ben = session.get_one(tables.User, here.school.users["ben"])
            ben.identities[0].subject = "ben@school.test"
        here.university.people["eve"] = {
            "email": "ben@school.test", "email_verified": False, "hd": "school.test",
        }  # fmt: skip
        answer = here.sign_in(here.browser(), "eve")
        assert "does not say that it verified your email" in text_of(answer.get_data(as_text=True))
        # one answer's address with the other's word for it
        here.university.change_claims = lambda told: {**told, "email_verified": True}
        assert here.sign_in(here.browser(), "eve").status_code == 401
        here.university.change_claims = lambda told: told
        for told in (["ben@school.test"], {"a": "ben@school.test"}, ""):  # what is no text is not verified
            here.university.people["eve"]["email"] = told
            assert here.sign_in(here.browser(), "eve").status_code == 401
        here.university.people["eve"] |= {"email": "ben@school.test", "email_verified": True}
        assert here.sign_in(browser := here.browser(), "eve").status_code == 303
        assert here.reader(browser) == here.school.users["ben"]


def test_a_disabled_account_stays_out(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    here.sign_in(browser := here.browser())
    with here.school.store.write() as session:
        session.get_one(tables.User, here.reader(browser)).disabled = True
    answer = here.sign_in(browser := here.browser())
    assert (answer.status_code, here.reader(browser)) == (403, None)


# --- keys, pages, linking, signing out ------------------------------------------------------------


def test_keys_change_and_what_is_unknown_is_asked_for_seldom(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    times = [1000.0]
    here.forget(lambda: times[-1])
    assert here.sign_in(here.browser()).status_code == 303
    here.university.number, here.university.kid = 1, "two"
    assert here.sign_in(here.browser()).status_code == 303, "fetched at once for a key that is not known"
    here.university.change_header = lambda told: {**told, "kid": "three"}
    asked = here.university.asked
    for fetched in (2, 3):
        for _ in range(5):
            assert here.sign_in(here.browser()).status_code == 401
        assert asked.count("GET /realms/one/jwks") == fetched
        times.append(times[-1] + 10)


def test_each_of_several_web_processes_finds_a_new_key(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    browsers, processes = [], []
    for _ in range(2):
        here.forget()  # a directory of its own, on the same Redis or none
        here.sign_in(here.browser())
        processes.append(here.school.app.extensions["grader-sign-on"])
    here.university.number, here.university.kid = 1, "two"
    for process in processes:
        here.school.app.extensions["grader-sign-on"] = process
        here.sign_in(browser := here.browser())
        browsers.append(here.reader(browser))
    assert None not in browsers


def test_elliptic_curves_sign_too(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    told = elliptic().as_dict(private=False)
    here.university.change_jwks = lambda _: {"keys": [{**told, "kid": "ec", "use": "sig"}]}

    def sign(token: str) -> str:
        payload = json.loads(jws.extract_compact(token.encode()).payload)
        return jwt.encode({"alg": "ES256", "kid": "ec"}, payload, elliptic(), algorithms=["ES256"])

    here.university.change_id_token = sign
    assert here.sign_in(here.browser()).status_code == 303


def test_the_cookie_stays_small_however_often_a_sign_in_begins(here: Campus) -> None:
    browser = here.browser()
    first = here.university.authorize(here.begin(browser))
    for _ in range(9):
        here.begin(browser, target="/courses?" + "x" * 200)
    cookie = browser.get_cookie("__Host-grader", domain="grader.test")
    assert cookie is not None
    assert len(cookie.value) < 3500
    assert here.bring(browser, first).status_code == 401


def test_what_a_request_says_of_its_host_is_told_to_nobody(here: Campus) -> None:
    answer = here.browser().get("/sign-on/university", base_url="https://evil.test")
    asked = parse_qs(urlsplit(answer.location).query)
    assert asked["redirect_uri"] == [f"{PUBLIC}/sign-on/university/callback"]
    assert asked["scope"] == ["openid profile email"]
    assert "no-store" in answer.headers["Cache-Control"]
    refused = here.bring(here.browser(), {"code": "x", "state": "y"})
    assert refused.headers["Referrer-Policy"] == "same-origin"
    assert refused.headers["X-Frame-Options"] == "DENY"


def test_a_provider_that_is_away_is_asked_once_in_a_while(here: Campus) -> None:
    here.university.metadata_answer = OutsideFailed(verbatim("timed out"))
    for _ in range(5):
        assert here.browser().get("/sign-on/university", base_url=PUBLIC).status_code == 502
    assert len(here.university.asked) == 1


def test_an_answer_leads_only_to_this_server(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    for target in ("https://evil.test/", "//evil.test", "/\\evil.test"):
        browser = here.browser()
        told = here.university.authorize(here.begin(browser, target=target))
        assert here.bring(browser, told).location == "/"


def test_the_sign_in_page_has_a_button_for_each(here: Campus) -> None:
    page = here.browser().get("/sign-in?next=/courses", base_url=PUBLIC).get_data(as_text=True)
    assert re.findall(r'href="(/sign-on/[^"]+)"[^>]*>([^<]+)<', page) == [
        ("/sign-on/university?next=/courses", "Sign in with University"),
        ("/sign-on/partner?next=/courses", "Sign in with Partner"),
    ]


def test_linking_needs_the_password_and_the_same_session(here: Campus) -> None:
    browser = as_person(here, "teacher")
    assert "Enter your current password" in linked(here, browser, "u-1")
    assert "current password is wrong" in linked(here, browser, "u-1", old="wrong horse")
    page = linked(here, browser, "u-1", old="correct horse")
    assert "Linked: University" in page
    here.sign_in(other := here.browser(), "u-1")
    assert here.reader(other) == here.school.users["teacher"]
    # who is linked is nobody else's, and a second one of the provider is refused
    anna = as_person(here, "anna")
    assert "already linked with another account" in linked(here, anna, "u-1", old="correct horse")
    assert "Unlink it first" in _second(here, browser)
    # another one that was begun in this session and comes back into another person's
    page = anna.get("/account/sign-ons/partner", base_url=PUBLIC).get_data(as_text=True)
    assert "Link Partner" in page


def _second(here: Campus, browser: FlaskClient) -> str:
    return linked(here, browser, "u-2", old="correct horse")


def test_an_attackers_answer_cannot_be_linked_with_a_victims_account(here: Campus) -> None:
    victim, eve = as_person(here, "teacher"), as_person(here, "anna")
    page = "/account/sign-ons/university"
    answer = posted(eve, page, page, old="correct horse")
    way = re.search(r'href="(https://login[^"]+)"', answer.get_data(as_text=True))
    assert way is not None
    told = here.university.authorize(html.unescape(way[1]), "eve")
    assert here.bring(victim, told).status_code == 401  # the state is eve's
    # and a sign-in that eve's browser began links nothing once somebody else is signed in there
    with eve.session_transaction(base_url=PUBLIC) as cookie:
        begun = {name: value for name, value in cookie.items() if name.startswith("_state_")}
    other = as_person(here, "ben")
    with other.session_transaction(base_url=PUBLIC) as cookie:
        cookie.update(begun)
    answer = here.bring(other, told)
    assert "Nothing was linked" in text_of(answer.get_data(as_text=True))
    with here.school.store.read() as session:
        assert session.query(tables.Identity).filter_by(subject="eve").count() == 0


def test_unlinking_ends_its_sessions_and_leaves_a_way_in(here: Campus) -> None:
    browser = as_person(here, "teacher")
    linked(here, browser, "u-1", old="correct horse")
    here.sign_in(other := here.browser(), "u-1")
    assert unlinked(browser, old="correct horse").status_code == 303
    assert (here.reader(other), here.reader(browser)) == (None, here.school.users["teacher"])
    assert here.sign_in(here.browser(), "u-1").status_code == 403
    here.university.people["anna"] = STUDENT
    here.sign_in(alone := here.browser())
    assert proved(here, alone, "anna").status_code == 303
    assert "only way into your account" in text_of(unlinked(alone).get_data(as_text=True))


def test_signing_out_offers_to_sign_out_there(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    here.sign_in(browser := here.browser())
    page = browser.get("/account", base_url=PUBLIC).get_data(as_text=True)
    token = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert token is not None
    answer = browser.post(
        "/sign-out", data={"csrf_token": token[1]}, base_url=PUBLIC, headers={"Referer": PUBLIC}
    )
    way = re.search(r'href="(https://login[^"]+)"', answer.get_data(as_text=True))
    assert way is not None
    address = html.unescape(way[1])
    assert address.startswith(f"{ISSUER}/session/end?id_token_hint=ey")
    assert "client_id=grader" in address
    assert "post_logout_redirect_uri=https%3A%2F%2Fgrader.test%2Fsign-on%2Fsigned-out" in address
    assert here.reader(browser) is None
    assert "You signed out" in text_of(browser.get(
        "/sign-on/signed-out", base_url=PUBLIC, follow_redirects=True).get_data(as_text=True))  # fmt: skip


def test_the_doctor_says_what_a_provider_lacks(here: Campus, tmp_path: Path) -> None:
    secrets = {"GRADER_SIGN_ON_UNIVERSITY_SECRET": "x", "GRADER_SIGN_ON_PARTNER_SECRET": "y"}
    here.partner.change_metadata = lambda told: {**told, "issuer": ISSUER}

    def found(environ: dict[str, str]) -> list[tuple[str, str]]:
        installation = Installation(here.school.services.config, tmp_path, environ, Bounds())
        return [(one.level, one.code or one.message) for one in sign_on.diagnose(installation)]

    (level, words), partner = found(secrets)
    assert level == "ok"
    assert "publishes 1 keys; names itself in its answers" in words
    assert partner == ("failure", "sign_on_provider")
    assert found({}) == [("failure", "sign_on_secret_missing")] * 2


def test_a_provider_signs_out_on_the_server(here: Campus) -> None:
    here.university.people |= {"anna": STUDENT, "ben": STUDENT}
    here.university.change_claims = lambda told: {**told, "sid": f"sid-{len(here.university.tokens)}"}
    browsers = [here.browser() for _ in range(3)]
    for browser in browsers:
        here.sign_in(browser)
    here.sign_in(ben := here.browser(), "ben")
    with here.school.store.read() as session:
        sids = [one.provider_session for one in session.query(tables.OpenSession).order_by("begun_at")]

    def there() -> list[bool]:
        return [here.reader(one) is not None for one in (*browsers, ben)]

    assert logged_out(here, here.university.logout_token(sub="anna", sid=sids[0])) == (200, {"ended": 1})
    assert there() == [False, True, True, True]
    assert logged_out(here, here.university.logout_token(sub=None, sid=sids[1])) == (200, {"ended": 1})
    token = here.university.logout_token(sub="anna")
    assert logged_out(here, token) == (200, {"ended": 1})
    assert there() == [False, False, False, True]
    here.sign_in(browsers[0])
    status, told = logged_out(here, token)
    assert (status, "already used" in told["error_description"]) == (400, True)
    # a session of which the provider named none may be the one that is meant
    here.university.change_claims = lambda told: told
    here.sign_in(nameless := here.browser())
    assert logged_out(here, here.university.logout_token(sub="anna", sid="x")) == (200, {"ended": 1})
    assert here.reader(nameless) is None
    here.university.change_claims = lambda told: {**told, "sid": f"sid-{len(here.university.tokens)}"}
    # a token of the other provider, for the same subject or session, ends nothing of this one's
    for claims_ in ({"sub": "anna"}, {"sub": None, "sid": sids[-1]}):
        assert logged_out(here, here.partner.logout_token(**claims_), "partner") == (200, {"ended": 0})
    assert logged_out(here, here.partner.logout_token(sub="anna"))[0] == 400
    assert there() == [True, False, False, True]
    # nor does a session with a password
    teacher = as_person(here, "teacher")
    linked(here, teacher, "anna-t", old="correct horse")
    assert logged_out(here, here.university.logout_token(sub="anna-t")) == (200, {"ended": 0})
    assert here.reader(teacher) is not None


def test_an_id_token_is_no_logout_token(here: Campus) -> None:
    here.university.people["anna"] = STUDENT
    here.sign_in(browser := here.browser())
    with here.school.store.read() as session:
        token = session.query(tables.OpenSession).filter(tables.OpenSession.id_token != "").one().id_token
    status, told = logged_out(here, token)
    assert (status, told["error"]) == (400, "invalid_request")
    assert here.reader(browser) is not None
