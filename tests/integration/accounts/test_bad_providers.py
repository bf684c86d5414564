"""Bad answers of a provider of single sign-on: each is refused with a plain sentence."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from joserfc import jws, jwt

from grading.domain.messages import verbatim
from grading.domain.ssrf import Refused
from grading.integrations.http_client import Answer, OutsideFailed, TooMuch
from grading.integrations.oidc.tokens import LOGOUT_EVENT
from tests.integration.accounts.sign_on_world import (
    ISSUER,
    OTHER,
    PUBLIC,
    STUDENT,
    Campus,
    Played,
    campus,
    compact,
    key,
    logged_out,
    public,
    text_of,
)

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
