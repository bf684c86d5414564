"""A school with two providers of single sign-on that are played in this process, without a socket.

What a provider publishes and answers can be changed piece by piece; what it is asked, it checks as the
standards say: client secret, redirect URI, code once, PKCE.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, unquote_plus, urlsplit

from flask.testing import FlaskClient
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from werkzeug.test import TestResponse

from app.web.auth import SignedIn
from grading.config.settings import parse
from grading.domain.ssrf import read
from grading.integrations.http_client import Answer
from grading.integrations.oidc.discovery import Directory
from grading.integrations.oidc.tokens import LOGOUT_EVENT, half_hash
from grading.store import tables
from grading.store.accounts import sessions, users
from tests.integration.webapp import School

PUBLIC = "https://grader.test"
ISSUER, OTHER = "https://login.university.test/realms/one", "https://login.partner.test"
NAME = {"name": "Anna Student", "email": "anna@school.test", "email_verified": True}
"""Claims of a person."""
STUDENT = {**NAME, "groups": ["grader-ba-students", "grader-gone-students", "choir"]}
"""The same of a student, with groups of which one names no course and one no rule."""
SECRET = "of%the university+"
ASK = "grading.integrations.oidc.client.ask"
RULES = [
    {"claim": "groups", "value": "grader-{course}-students", "course": "{course}"},
    {"claim": "groups", "value": "grader-{course}-staff", "course": "{course}", "role": "instructor"},
    {"claim": "realm.roles", "value": "grader-admin", "administrator": True},
    {"claim": "hd", "value": "school.test"},
]


@cache
def key(number: int) -> RSAKey:
    """Made once: that takes longer than most tests."""
    return RSAKey.generate_key(2048)


@cache
def elliptic() -> ECKey:
    return ECKey.generate_key("P-256")


def public(number: int, kid: str, **more: str) -> dict[str, Any]:
    told = key(number).as_dict(private=False)
    return {"kty": "RSA", "n": told["n"], "e": told["e"], "kid": kid, "use": "sig", **more}


def compact(part: Mapping[str, Any] | bytes) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return urlsafe_b64encode(raw).decode().rstrip("=")


@dataclass
class Played:
    """A provider; what `change_…` return is what it says."""

    issuer: str = ISSUER
    number: int = 0
    """Of its key."""
    kid: str = "one"
    secret: str = SECRET
    people: dict[str, dict[str, Any]] = field(default_factory=dict)
    checks_pkce: bool = True
    algorithm: str = "RS256"
    change_metadata: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told
    change_jwks: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told
    change_header: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told
    change_claims: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told
    change_id_token: Callable[[str], Any] = lambda told: told
    signed_in_at: Callable[[], float | None] = time.time
    """When its people typed their password there; None: it does not say."""
    change_answer: Callable[[dict[str, Any]], dict[str, Any] | Answer] = lambda told: told
    change_user_info: Callable[[dict[str, Any]], dict[str, Any] | Answer] = lambda told: told
    metadata_answer: Answer | Exception | None = None
    jwks_answer: Answer | None = None
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def metadata(self) -> dict[str, Any]:
        told = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/me",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/session/end",
            "response_types_supported": ["code", "id_token"],
            "code_challenge_methods_supported": ["S256"],
            "id_token_signing_alg_values_supported": ["RS256", "PS256", "ES256", "HS256", "none"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }
        return self.change_metadata(told)

    @property
    def jwks(self) -> dict[str, Any]:
        return self.change_jwks({"keys": [public(self.number, self.kid)]})

    def authorize(self, address: str, person: str = "anna") -> dict[str, str]:
        """What a browser brings back that was sent to this address and signed in there."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{next(self.numbers)}-of-{person}"
        self.codes[code] = {**asked, "sub": person}
        return {"code": code, "state": asked["state"], "iss": self.issuer}

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        """A token of these claims by its key."""
        head = {"alg": self.algorithm, "kid": self.kid, **header}
        return jwt.encode(head, dict(claims), key(self.number), algorithms=[str(head["alg"])])

    def claims(self, sub: str, nonce: str) -> dict[str, Any]:
        now = int(time.time())
        return {"iss": self.issuer, "sub": sub, "aud": "grader", "iat": now, "exp": now + 300, "nonce": nonce}

    def logout_token(self, **changes: Any) -> str:
        """A logout token; a change to None leaves a claim out."""
        now = int(time.time())
        told = {
            "iss": self.issuer, "aud": "grader", "iat": now, "exp": now + 120, "sub": "anna",
            "jti": f"logout-{next(self.numbers)}", "events": {LOGOUT_EVENT: {}}, **changes,
        }  # fmt: skip
        return self.sign({k: v for k, v in told.items() if v is not None}, typ="logout+jwt")

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """As a server."""
        self.asked.append(f"{method} {path}")
        if path.endswith("/.well-known/openid-configuration"):
            if isinstance(self.metadata_answer, Exception):
                raise self.metadata_answer
            return self.metadata_answer or _json(self.metadata)
        if path.endswith("/jwks"):
            return self.jwks_answer or _json(self.jwks)
        if path.endswith("/token"):
            return self._token(headers, {k: v[0] for k, v in parse_qs(body.decode()).items()})
        assert path.endswith("/me"), path
        subject = self.tokens[headers["Authorization"].removeprefix("Bearer ")]
        told = self.change_user_info({"sub": subject, **self.people.get(subject, {})})
        return told if isinstance(told, Answer) else _json(told)

    def _token(self, headers: Mapping[str, str], form: Mapping[str, str]) -> Answer:
        told = b64decode(headers.get("Authorization", "").removeprefix("Basic ")).decode()
        if [unquote_plus(one) for one in told.split(":")] != ["grader", self.secret]:
            return _json({"error": "invalid_client"}, 401)
        begun = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if begun is None or begun["redirect_uri"] != form["redirect_uri"]:
            return _json({"error": "invalid_grant", "error_description": "grant request is invalid"}, 400)
        if self.checks_pkce and compact(digest) != begun["code_challenge"]:
            return _json({"error": "invalid_grant", "error_description": "PKCE verification failed"}, 400)
        access = f"access-{next(self.numbers)}"
        self.tokens[access] = begun["sub"]
        told = {**self.claims(begun["sub"], begun["nonce"]), "at_hash": half_hash(access)}
        if "max_age" in begun and (moment := self.signed_in_at()) is not None:
            told["auth_time"] = int(moment)
        claims = self.change_claims(told)
        header = self.change_header({"alg": self.algorithm, "kid": self.kid})
        id_token = self.change_id_token(
            jwt.encode(header, claims, key(self.number), algorithms=[header["alg"]])
        )
        made = self.change_answer({"access_token": access, "token_type": "Bearer", "id_token": id_token})
        return made if isinstance(made, Answer) else _json(made)


def _json(value: Any, status: int = 200) -> Answer:
    return Answer(status, {"content-type": "application/json"}, json.dumps(value).encode())


@dataclass
class Campus:
    """A school, its university and a partner's provider."""

    school: School
    university: Played = field(default_factory=Played)
    partner: Played = field(default_factory=lambda: Played(OTHER, number=1, kid="partner"))

    def begin(self, browser: FlaskClient, name: str = "university", target: str = "") -> str:
        """Where the button leads."""
        answer = browser.get(f"/sign-on/{name}{f'?next={target}' if target else ''}", base_url=PUBLIC)
        assert answer.status_code == 302, answer.get_data(as_text=True)
        return answer.location

    def bring(self, browser: FlaskClient, told: Mapping[str, Any], name: str = "university") -> TestResponse:
        """What a provider told the browser to bring."""
        return browser.get(f"/sign-on/{name}/callback", query_string=dict(told), base_url=PUBLIC)

    def sign_in(self, browser: FlaskClient, person: str = "anna", name: str = "university") -> TestResponse:
        """The whole way."""
        provider = self.university if name == "university" else self.partner
        return self.bring(browser, provider.authorize(self.begin(browser, name), person), name)

    def browser(self) -> FlaskClient:
        return self.school.app.test_client()

    def reader(self, browser: FlaskClient) -> int | None:
        """Who is signed in there."""
        told = browser.get("/session.json", base_url=PUBLIC).get_json()
        return told.get("user") if isinstance(told, dict) else None

    def forget(self, clock: Callable[[], float] = time.monotonic) -> None:
        """What providers published is asked for again."""
        allowed = self.school.services.config.server.allowed
        self.school.app.extensions["grader-sign-on"] = Directory(allowed, clock)

    def rows(self) -> tuple[int, ...]:
        """How many accounts, identities, memberships, sessions there are."""
        with self.school.store.read() as session:
            counted = (tables.User, tables.Identity, tables.Membership, tables.OpenSession)
            return tuple(session.query(table).count() for table in counted)


def settings(partner: Mapping[str, Any], **university: Any) -> dict[str, Any]:
    first = {"title": "University", "issuer": ISSUER, "client_id": "grader", "rules": RULES, **university}
    second = {"title": "Partner", "issuer": OTHER, "client_id": "grader", **partner}
    return {"providers": {"university": first, "partner": second}}


@contextmanager
def campus(
    place: Path | str, partner: Mapping[str, Any] | None = None, **university: Any
) -> Iterator[Campus]:
    """Both providers answer in this process; an address that the rules of SSRF refuse is refused."""
    school = School(place, public_url=PUBLIC)
    machines = [one.model_dump() for one in school.services.config.machines]
    whole = {
        "server": {"public_url": PUBLIC},
        "machines": machines,
        "sign_on": settings(partner or {}, **university),
    }
    secrets = {"university": SECRET, "partner": SECRET}
    school.services = replace(school.services, config=parse(whole), sign_on_secrets=secrets)
    made = Campus(school)

    def ask(method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", **_: Any) -> Answer:
        read(url)
        for provider in (made.university, made.partner):
            if url.startswith(f"{provider.issuer}/"):
                return provider.answer(method, urlsplit(url).path, headers, body)
        raise AssertionError(f"somebody else is asked: {url}")

    with patch(ASK, ask):
        yield made
    school.close()


def logged_out(here: Campus, token: str, name: str = "university") -> tuple[int, dict[str, Any]]:
    """Status and answer of a back-channel logout."""
    answer = here.browser().post(f"/sign-on/{name}/logout", data={"logout_token": token}, base_url=PUBLIC)
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.status_code, answer.get_json()


def text_of(page: str) -> str:
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def linked(here: Campus, browser: FlaskClient, person: str, name: str = "university", **form: str) -> str:
    """Link by the pages; the page that follows."""
    page = f"/account/sign-ons/{name}"
    if "csrf_token" not in browser.get(page, base_url=PUBLIC).get_data(as_text=True).split("<main")[1]:
        return text_of(browser.get(page, base_url=PUBLIC).get_data(as_text=True))
    answer = posted(browser, page, page, **form)
    way = re.search(r'href="(https://login[^"]+)"', answer.get_data(as_text=True))
    if way is None:
        return text_of(answer.get_data(as_text=True))
    assert "prompt=login&amp;max_age=0" in way[1]
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


def proved(here: Campus, browser: FlaskClient, person: str, name: str = "university") -> TestResponse:
    """Sign in again at a provider, to show that an account is one's own; what the answer leads to."""
    asked = browser.get(f"/sign-on/{name}?again=1&next=/account", base_url=PUBLIC)
    assert "prompt=login&max_age=0" in asked.location
    provider = here.university if name == "university" else here.partner
    return here.bring(browser, provider.authorize(asked.location, person), name)


def unlinked(browser: FlaskClient, **form: str) -> TestResponse:
    """Unlink the first sign-in of one's own by the pages."""
    page = browser.get("/account", base_url=PUBLIC).get_data(as_text=True)
    way = re.search(r'href="(/account/sign-ons/\d+/unlink)"', page)
    assert way is not None
    return posted(browser, way[1], way[1], **form)


def posted(browser: FlaskClient, page: str, to: str, **form: str) -> TestResponse:
    """A form of a page, sent."""
    found = re.search(
        r'name="csrf_token" value="([^"]+)"', browser.get(page, base_url=PUBLIC).get_data(as_text=True)
    )
    assert found is not None
    sent = {"csrf_token": found[1], **form}
    return browser.post(to, data=sent, base_url=PUBLIC, headers={"Referer": f"{PUBLIC}{page}"})
