"""Single sign-on: what a provider says right is taken, and every bad answer is refused with a plain sentence.

docs/explanation/single-sign-on.md lists which of these shows which rule of RFC 9700 and OpenID Connect.
"""

from __future__ import annotations

import hmac
import html
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask.testing import FlaskClient
from joserfc import jws, jwt
from werkzeug.test import TestResponse

from app.web.auth import SignedIn
from cli.doctor import sign_on
from cli.doctor.finding import Bounds, Installation
from grading.domain.messages import verbatim
from grading.domain.ssrf import Refused
from grading.integrations.http_client import Answer, OutsideFailed, TooMuch
from grading.integrations.oidc.tokens import LOGOUT_EVENT
from grading.integrations.oidc.values import provider_of
from grading.store import tables
from grading.store.accounts import sessions, users
from tests.integration.accounts.sign_on_world import (
    ISSUER,
    OTHER,
    PUBLIC,
    Campus,
    Played,
    campus,
    compact,
    elliptic,
    key,
    public,
)

NAME = {"name": "Anna Student", "email": "anna@school.test", "email_verified": True}
STUDENT = {**NAME, "groups": ["grader-ba-students", "grader-gone-students", "choir"]}
NOW = int(time.time())
SHORT = (
    "qBOBK4ow_iLS-38WIG83-nb0UHizRr5z8qKUoSQU4d_etVov2efhs-Q4sfBc_pGqVinDVq4DWW_7ocd7kogDO"
    "N__ZT4iB6JMN9HZXWntTWhh09y27-VMz9bCHcU7f7c8ohbLoM7b6togVYhkHQ--cUT1JTArK_MdxWTYDLEswKU"
)
"""The modulus of a key of 1024 bits."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    """One school for all that is refused: each test sees that nothing of it stayed."""
    with campus(tmp_path_factory.mktemp("sign-on")) as made:
        yield made


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Campus]:
    with campus(tmp_path) as made:
        yield made


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


@dataclass(frozen=True)
class Bad:
    """One way in which a provider, or who stands between, may be wrong."""

    name: str
    sentence: str
    university: dict[str, Any]
    query: Callable[[dict[str, str]], dict[str, Any]] = lambda told: told


def claims(**changes: Any) -> dict[str, Any]:
    """ID tokens with these claims; None leaves one out."""
    return {"change_claims": lambda told: {k: v for k, v in {**told, **changes}.items() if v is not None}}


def metadata(**changes: Any) -> dict[str, Any]:
    return {"change_metadata": lambda told: {k: v for k, v in {**told, **changes}.items() if v is not None}}


def token_answer(**changes: Any) -> dict[str, Any]:
    return {"change_answer": lambda told: {k: v for k, v in {**told, **changes}.items() if v is not None}}


def raw(status: int, body: bytes, **headers: str) -> Answer:
    return Answer(status, {"content-type": "application/json", **headers}, body)


def with_header(**header: Any) -> dict[str, Any]:
    return {"change_header": lambda told: {k: v for k, v in {**told, **header}.items() if v is not None}}


def parts(token: str) -> list[str]:
    return token.split(".")


def unsigned(token: str) -> str:
    return f"{compact({'alg': 'none'})}.{parts(token)[1]}."


def with_public_key_as_secret(token: str) -> str:
    """The classic: HS256 with the published key as its secret."""
    signed = f"{compact({'alg': 'HS256', 'kid': 'one'})}.{parts(token)[1]}"
    secret = key(0).as_pem(private=False)
    return f"{signed}.{compact(hmac.digest(secret, signed.encode(), 'sha256'))}"


def by_another_key(token: str) -> str:
    payload = json.loads(jws.extract_compact(token.encode()).payload)
    return jwt.encode({"alg": "RS256", "kid": "one"}, payload, key(1), algorithms=["RS256"])


def with_own_key_in_header(token: str) -> str:
    payload = json.loads(jws.extract_compact(token.encode()).payload)
    header = {"alg": "RS256", "kid": "mine", "jwk": public(1, "mine")}
    return jwt.encode(header, payload, key(1), algorithms=["RS256"])


def tampered(token: str) -> str:
    head, _payload, signature = parts(token)
    told = json.loads(jws.extract_compact(token.encode()).payload)
    return ".".join((head, compact({**told, "sub": "admin"}), signature))


BAD = [
    # the answer that the browser brings (RFC 6749 4.1.2, RFC 9207, RFC 9700 4.4 and 4.7)
    Bad("no state", "started in another browser", {}, lambda q: {**q, "state": ""}),
    Bad("wrong state", "started in another browser", {}, lambda q: {**q, "state": "x" * 30}),
    Bad("two states", "'state' more than once", {}, lambda q: {**q, "state": [q["state"], "x"]}),
    Bad("two codes", "'code' more than once", {}, lambda q: {**q, "code": [q["code"], "x"]}),
    Bad("two issuers", "'iss' more than once", {}, lambda q: {**q, "iss": [ISSUER, OTHER]}),
    Bad("no code", "has no code", {}, lambda q: {**q, "code": ""}),
    Bad("a huge code", "is too long", {}, lambda q: {**q, "code": "x" * 5000}),
    Bad("no iss though promised", "from another provider", {}, lambda q: {**q, "iss": ""}),
    Bad("iss of the other provider", "from another provider", {}, lambda q: {**q, "iss": OTHER}),
    Bad("iss with a slash more", "from another provider", {}, lambda q: {**q, "iss": f"{ISSUER}/"}),
    Bad("cancelled", "you cancelled", {}, lambda q: {
        "state": q["state"], "iss": ISSUER, "error": "access_denied",
    }),
    Bad("an error", "error: server_error: it broke", {}, lambda q: {
        "state": q["state"], "iss": ISSUER, "error": "server_error", "error_description": "it broke.",
    }),
    Bad("an error without state", "started in another browser", {}, lambda q: {"iss": ISSUER, "error": "x"}),
    Bad("an error with a code", "error: login_required", {}, lambda q: {**q, "error": "login_required"}),
    # the token endpoint (RFC 6749 5, RFC 7636)
    Bad("a code that is unknown", "invalid_grant: grant request", {}, lambda q: {**q, "code": "stolen"}),
    Bad("another client secret", "invalid_client", {"secret": "another"}),
    Bad("an endless error", "complete the sign-in: " + "x" * 200, {"change_answer": lambda _: raw(
        400, json.dumps({"error": "x" * 9000}).encode())}),
    Bad("no ID token", "has no ID token", token_answer(id_token=None)),
    Bad("an ID token that is a list", "has no ID token", token_answer(id_token=["x"])),
    Bad("no access token", "no access token", token_answer(access_token=None)),
    Bad("an access token of lines", "no access token", token_answer(access_token="a\r\nX: y")),
    Bad("a token type of its own", "no access token", token_answer(token_type="mac")),
    Bad("no token type", "no access token", token_answer(token_type=None)),
    Bad("a redirect of the token endpoint", "a redirect (307)", {"change_answer": lambda _: raw(
        307, b"", location="https://evil.test/token")}),
    Bad("the token endpoint is broken", "answered 500", {"change_answer": lambda _: raw(500, b"oops")}),
    Bad("a page instead of tokens", "not a JSON object", {"change_answer": lambda _: raw(200, b"<html>")}),
    Bad("a list instead of tokens", "not a JSON object", {"change_answer": lambda _: raw(200, b"[1]")}),
    Bad("brackets without end", "not a JSON object", {"change_answer": lambda _: raw(200, b"[" * 200_000)}),
    Bad("a status that says no", "answered 403", {"change_answer": lambda _: raw(403, b"{}")}),
    # the ID token (OpenID Connect Core, 3.1.3.7; RFC 8725)
    Bad("algorithm none", "algorithm that Grader does not accept", {"change_id_token": unsigned}),
    Bad("HS256 with the public key", "algorithm that Grader does not", {
        "change_id_token": with_public_key_as_secret}),
    Bad("an algorithm that the provider does not list", "algorithm that Grader does not accept", {
        "algorithm": "PS256", **metadata(id_token_signing_alg_values_supported=["RS256"])}),
    Bad("a key that is unknown", "a key that the provider does not publish", with_header(kid="two")),
    Bad("a key ID that is a number", "no valid key ID", {"change_id_token": lambda t: ".".join(
        (compact({"alg": "RS256", "kid": 1}), *parts(t)[1:]))}),
    Bad("no key ID and two keys", "a key that the provider does not publish", {
        **with_header(kid=None), "change_jwks": lambda t: {"keys": [*t["keys"], public(1, "two")]}}),
    Bad("two keys of one name", "a key that the provider does not publish", {
        "change_jwks": lambda t: {"keys": [*t["keys"], public(1, "one")]}}),
    Bad("the key of another provider", "signature", {"change_id_token": by_another_key}),
    Bad("a key of its own in the header", "does not publish", {"change_id_token": with_own_key_in_header}),
    Bad("claims that were changed", "signature", {"change_id_token": tampered}),
    Bad("an encryption key", "does not publish", {
        "change_jwks": lambda _: {"keys": [public(0, "one") | {"use": "enc"}]}}),
    Bad("a key for another algorithm", "does not publish", {
        "change_jwks": lambda _: {"keys": [public(0, "one", alg="RS512")]}}),
    Bad("a short key", "key is too short", {"change_jwks": lambda _: {"keys": [
        {"kty": "RSA", "kid": "one", "n": SHORT, "e": "AQAB"}]}}),
    Bad("a key that is none", "key cannot be read", {"change_jwks": lambda _: {"keys": [
        {"kty": "RSA", "kid": "one", "n": SHORT * 2, "e": "!"}]}}),
    Bad("an encrypted token", "no signed token", {"change_id_token": lambda _: "a.b.c.d.e"}),
    Bad("no token at all", "no signed token", {"change_id_token": lambda _: "x.y"}),
    Bad("a huge token", "no signed token", {"change_id_token": lambda _: "x" * 70_000 + ".y.z"}),
    Bad("a header that is none", "header of the provider's token", {"change_id_token": lambda _: "!.!.!"}),
    Bad("an access token as ID token", "of another type", with_header(typ="at+jwt")),
    Bad("a logout token as ID token", "of another type", with_header(typ="logout+jwt")),
    Bad("another issuer", "from another issuer", claims(iss=OTHER)),
    Bad("no issuer", "from another issuer", claims(iss=None)),
    Bad("another audience", "not for Grader alone", claims(aud="other")),
    Bad("another audience, we as azp", "not for Grader alone", claims(aud="other", azp="grader")),
    Bad("no audience", "not for Grader alone", claims(aud=None)),
    Bad("an audience that is an object", "not for Grader alone", claims(aud={"grader": 1})),
    Bad("two audiences without azp", "authorized party is not Grader", claims(aud=["grader", "other"])),
    Bad("two audiences with azp", "not for Grader alone", claims(aud=["grader", "other"], azp="grader")),
    Bad("another azp", "authorized party is not Grader", claims(azp="other")),
    Bad("expired", "has expired", claims(exp=NOW - 120, iat=NOW - 300)),
    Bad("no exp", "no valid 'exp'", claims(exp=None)),
    Bad("an exp that is a text", "no valid 'exp'", claims(exp="soon")),
    Bad("an exp that is true", "no valid 'exp'", claims(exp=True)),
    Bad("no iat", "no valid 'iat'", claims(iat=None)),
    Bad("issued in the future", "in the future", claims(iat=NOW + 3600, exp=NOW + 7200)),
    Bad("valid only in the future", "in the future", claims(nbf=NOW + 3600)),
    Bad("an old one that is still valid", "is not new", claims(iat=NOW - 3600, exp=NOW + 3600)),
    Bad("no nonce", "no valid 'nonce'", claims(nonce=None)),
    Bad("another nonce", "belongs to another sign-in", claims(nonce="of another sign-in")),
    Bad("another access token", "was not issued with this access token", claims(at_hash="A" * 22)),
    Bad("no subject", "no valid 'sub'", claims(sub=None)),
    Bad("an empty subject", "no valid 'sub'", claims(sub="")),
    Bad("a subject with a blank", "no valid 'sub'", claims(sub="anna ")),
    Bad("a subject that is a number", "no valid 'sub'", claims(sub=7)),
    Bad("a subject without end", "no valid 'sub'", claims(sub="x" * 256)),
    # user info (Core 5.3.2 and 5.3.4)
    Bad("user info of another person", "about another person", {
        "change_user_info": lambda t: {**t, "sub": "ben"}}),
    Bad("user info without subject", "about another person", {"change_user_info": lambda _: {"name": "x"}}),
    Bad("user info that is refused", "answered 401", {"change_user_info": lambda _: raw(401, b"{}")}),
    Bad("user info that redirects", "redirect (302)", {"change_user_info": lambda _: raw(302, b"")}),
    Bad("user info that is signed", "signs or encrypts its user info", {
        "change_user_info": lambda _: Answer(200, {"content-type": "application/jwt"}, b"x.y.z")}),
    Bad("user info that is a text", "not a JSON object", {"change_user_info": lambda _: raw(200, b'"x"')}),
    # discovery and keys (OpenID Connect Discovery 4.3, RFC 9700 4.4)
    Bad("no keys", "publishes no keys", {"change_jwks": lambda _: {"keys": []}}),
    Bad("keys that are a text", "publishes no keys", {"change_jwks": lambda _: {"keys": "x"}}),
    Bad("keys that cannot be had", "answered 404", {"jwks_answer": raw(404, b"{}")}),
]  # fmt: skip

BAD_DISCOVERY = [
    Bad("another issuer", "for another issuer", metadata(issuer=OTHER)),
    Bad("the issuer with a slash", "for another issuer", metadata(issuer=f"{ISSUER}/")),
    Bad("no issuer", "for another issuer", metadata(issuer=None)),
    Bad("no token endpoint", "no valid address 'token_endpoint'", metadata(token_endpoint=None)),
    Bad("plain http", "'token_endpoint' without https", metadata(
        token_endpoint="http://login.university.test/t")),
    Bad("keys by plain http", "'jwks_uri' without https", metadata(jwks_uri="http://login.university.test/k")),
    Bad("a script", "no valid address 'authorization_endpoint'", metadata(
        authorization_endpoint="javascript:x")),
    Bad("an address with a user", "no valid address", metadata(jwks_uri="https://a@login.university.test/k")),
    Bad("a number", "no valid address 'userinfo_endpoint'", metadata(userinfo_endpoint=7)),
    Bad("only implicit", "authorization code flow", metadata(response_types_supported=["id_token"])),
    Bad("only PKCE plain", "PKCE with S256", metadata(code_challenge_methods_supported=["plain"])),
    Bad("only HS256", "ID tokens with none of", metadata(
        id_token_signing_alg_values_supported=["HS256", "none"])),
    Bad("no secrets", "accepts no client secret", metadata(token_endpoint_auth_methods_supported=["tls"])),
    Bad("a page", "not a JSON object", {"metadata_answer": raw(200, b"<html>")}),
    Bad("a redirect", "redirect (301)", {"metadata_answer": raw(301, b"")}),
    Bad("nothing there", "answered 404", {"metadata_answer": raw(404, b"")}),
    Bad("a huge one", "too large", {"metadata_answer": TooMuch()}),
    Bad("no answer", "does not answer", {"metadata_answer": OutsideFailed(verbatim("timed out"))}),
    Bad("an inner address", "may not connect to the provider", {"metadata_answer": Refused()}),
]  # fmt: skip


def test_there_are_enough_bad_answers() -> None:
    assert len(BAD) + len(BAD_DISCOVERY) + len(BAD_LOGOUT) >= 100
    for cases in (BAD, BAD_DISCOVERY, BAD_LOGOUT):
        assert len({one.name for one in cases}) == len(cases)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_answer_is_refused_with_a_sentence(shared: Campus, bad: Bad) -> None:
    shared.university = replace(Played(people={"anna": STUDENT}), **bad.university)
    shared.forget()
    before, browser = shared.rows(), shared.browser()
    answer = browser.get("/sign-on/university", base_url=PUBLIC)
    if answer.status_code == 302:  # else what it publishes is wrong
        answer = shared.bring(browser, bad.query(shared.university.authorize(answer.location)))
    assert answer.status_code in (401, 502)
    page = text_of(answer.get_data(as_text=True))
    assert bad.sentence in page
    assert "Sign-in with University failed" in page
    assert shared.reader(browser) is None
    assert shared.rows() == before


@pytest.mark.parametrize("bad", BAD_DISCOVERY, ids=lambda bad: bad.name)
def test_a_bad_configuration_is_refused_with_a_sentence(shared: Campus, bad: Bad) -> None:
    shared.university = replace(Played(), **bad.university)
    shared.forget()
    answer = shared.browser().get("/sign-on/university", base_url=PUBLIC)
    assert answer.status_code == 502
    assert bad.sentence in text_of(answer.get_data(as_text=True))
    assert shared.university.asked == [f"GET {'/realms/one/.well-known/openid-configuration'}"]


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
        browser = here.browser()
        assert here.sign_in(browser, "s-1").status_code == 303
        assert here.reader(browser) == here.school.users["ben"]
        people["s-2"] = {**NAME, "student_id": "ben"}  # the number was given again
        answer = here.sign_in(here.browser(), "s-2")
        assert "linked with another person" in text_of(answer.get_data(as_text=True))
        people["s-3"] = {**NAME, "student_id": "admin"}
        answer = here.sign_in(here.browser(), "s-3")
        assert "Its owner must link it" in text_of(answer.get_data(as_text=True))
        people["s-4"] = {**NAME, "student_id": ["ben", "anna"]}
        answer = here.sign_in(here.browser(), "s-4")
        assert "is not 1 to 200 printable characters" in text_of(answer.get_data(as_text=True))
        people["s-5"] = {**NAME, "student_id": "new-5", "hd": "school.test"}
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
        here.university.people["eve"] = {"email": "ben@school.test", "email_verified": False}
        answer = here.sign_in(here.browser(), "eve")
        assert "does not say that it verified your email" in text_of(answer.get_data(as_text=True))
        # one answer's address with the other's word for it
        here.university.change_claims = lambda told: {**told, "email_verified": True}
        assert here.sign_in(here.browser(), "eve").status_code == 401
        here.university.people["eve"] = {"email": "ben@school.test", "email_verified": True}
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
    assert here.sign_in(here.browser()).status_code == 303
    here.university.number, here.university.kid = 1, "two"
    assert here.sign_in(here.browser()).status_code == 303, "fetched at once for a key that is not known"
    here.university.change_header = lambda told: {**told, "kid": "three"}
    asked = here.university.asked
    for _ in range(5):
        assert here.sign_in(here.browser()).status_code == 401
    assert asked.count("GET /realms/one/jwks") == 3


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


def linked(here: Campus, browser: FlaskClient, person: str, name: str = "university", **form: str) -> str:
    """Link by the pages; the page that follows."""
    page = f"/account/sign-ons/{name}"
    answer = posted(browser, page, page, **form)
    way = re.search(r'href="(https://login[^"]+)"', answer.get_data(as_text=True))
    if way is None:
        return text_of(answer.get_data(as_text=True))
    assert "prompt=login" in way[1]
    provider = here.university if name == "university" else here.partner
    done = here.bring(browser, provider.authorize(html.unescape(way[1]), person), name)
    assert done.status_code == 303, text_of(done.get_data(as_text=True))
    return text_of(browser.get("/account", base_url=PUBLIC).get_data(as_text=True))


@cache
def hashed() -> str:
    return users.hash_password("correct horse")


def as_person(here: Campus, name: str) -> FlaskClient:
    """A browser in which somebody is signed in with a password."""
    browser = here.browser()
    with here.school.store.write() as session, browser.session_transaction(base_url=PUBLIC) as cookie:
        user = session.get_one(tables.User, here.school.users[name])
        user.password_hash = hashed()
        session.flush()
        found = users.load_reader(session, user.id)
        assert found is not None
        cookie["_user_id"] = SignedIn(found, sessions.create_session(session, user.id)).get_id()
        cookie["_fresh"] = True
        cookie["csrf_token"] = f"{user.id}.{'0' * 40}"
    assert here.reader(browser) == here.school.users[name]
    return browser


def posted(browser: FlaskClient, page: str, to: str, **form: str) -> TestResponse:
    """A form of a page, sent."""
    found = re.search(
        r'name="csrf_token" value="([^"]+)"', browser.get(page, base_url=PUBLIC).get_data(as_text=True)
    )
    assert found is not None
    sent = {"csrf_token": found[1], **form}
    return browser.post(to, data=sent, base_url=PUBLIC, headers={"Referer": f"{PUBLIC}{page}"})


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


def unlinked(browser: FlaskClient) -> TestResponse:
    page = browser.get("/account", base_url=PUBLIC).get_data(as_text=True)
    way = re.search(r'action="(/account/sign-ons/\d+/unlink)"', page)
    assert way is not None
    return posted(browser, "/account", way[1])


def test_unlinking_ends_its_sessions_and_leaves_a_way_in(here: Campus) -> None:
    browser = as_person(here, "teacher")
    linked(here, browser, "u-1", old="correct horse")
    here.sign_in(other := here.browser(), "u-1")
    assert unlinked(browser).status_code == 303
    assert (here.reader(other), here.reader(browser)) == (None, here.school.users["teacher"])
    assert here.sign_in(here.browser(), "u-1").status_code == 403
    here.university.people["anna"] = STUDENT
    here.sign_in(alone := here.browser())
    unlinked(alone)
    assert "only way into your account" in text_of(
        alone.get("/account", base_url=PUBLIC).get_data(as_text=True)
    )


def test_an_old_session_of_an_account_without_a_password_links_nothing(here: Campus) -> None:
    """Or whoever stole one would stay for good, by a provider of their own."""
    here.university.people["anna"] = STUDENT
    here.sign_in(browser := here.browser())
    with here.school.store.write() as session:
        begun = session.query(tables.OpenSession).one()
        begun.begun_at -= timedelta(minutes=11)
    assert "your sign-in must be recent" in linked(here, browser, "eve", "partner")
    here.sign_in(browser)
    assert "Linked: Partner" in linked(here, browser, "anna-p", "partner")


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


BAD_LOGOUT = [
    Bad("no token", "has no logout token", {"token": ""}),
    Bad("no JWT", "no signed token", {"token": "x"}),
    Bad("a nonce", "must not have a nonce", {"nonce": "n"}),
    Bad("no events", "no logout event", {"events": None}),
    Bad("another event", "no logout event", {"events": {"http://other": {}}}),
    Bad("an event that is a text", "no logout event", {"events": {LOGOUT_EVENT: "x"}}),
    Bad("another audience", "not for Grader alone", {"aud": "other"}),
    Bad("another issuer", "from another issuer", {"iss": OTHER}),
    Bad("nobody", "neither a person nor a session", {"sub": None}),
    Bad("no jti", "no valid 'jti'", {"jti": None}),
    Bad("expired", "has expired", {"exp": NOW - 120, "iat": NOW - 300}),
    Bad("no exp", "no valid 'exp'", {"exp": None}),
    Bad("old", "is not new", {"iat": NOW - 3600}),
    Bad("a subject that is a list", "no valid 'sub'", {"sub": ["anna"]}),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_LOGOUT, ids=lambda bad: bad.name)
def test_a_bad_logout_token_ends_nothing(shared: Campus, bad: Bad) -> None:
    shared.university = Played(people={"anna": STUDENT})
    shared.forget()
    shared.sign_in(browser := shared.browser())
    token = bad.university.get("token")
    told = shared.university.logout_token(**bad.university) if token is None else token
    answer = logged_out(shared, told)
    assert answer[0] == 400
    assert bad.sentence in answer[1]["error_description"]
    assert shared.reader(browser) is not None


def logged_out(here: Campus, token: str, name: str = "university") -> tuple[int, dict[str, Any]]:
    answer = here.browser().post(f"/sign-on/{name}/logout", data={"logout_token": token}, base_url=PUBLIC)
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.status_code, answer.get_json()


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
