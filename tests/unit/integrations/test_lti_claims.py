"""Launches: one that is right, and everything that is not, each refused with a sentence."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from grading.integrations.lti.keys import ToolKey, new_key, public_jwk, signed
from grading.integrations.lti.launch_verification import UnknownKey, checked, verified
from grading.integrations.lti.values import (
    CLAIM,
    DEEP,
    DEEP_LINKING,
    RESOURCE,
    ROLE,
    LaunchRefused,
    Platform,
    role_of,
)

NOW = 1_800_000_000
PLATFORM = Platform(
    1, "Test", "https://lms.example", "client-1", "https://lms.example/a", "https://lms.example/t",
    "https://lms.example/jwks",
)  # fmt: skip
GOOD: dict[str, Any] = {
    "iss": "https://lms.example", "sub": "u-1", "aud": "client-1", "nonce": "n-1",
    "iat": NOW - 5, "exp": NOW + 300, "name": "Ada",
    f"{CLAIM}version": "1.3.0",
    f"{CLAIM}message_type": RESOURCE,
    f"{CLAIM}deployment_id": "1",
    f"{CLAIM}roles": [f"{ROLE}membership#Learner"],
    f"{CLAIM}context": {"id": "c-1", "title": "Course"},
    f"{CLAIM}resource_link": {"id": "r-1"},
    f"{CLAIM}custom": {"grader_assignment": "7"},
}  # fmt: skip


@cache
def key(name: str) -> ToolKey:
    return new_key()


def jwks(*names: str) -> dict[str, Any]:
    return {"keys": [public_jwk(key(name)) for name in names]}


def without(*names: str) -> dict[str, Any]:
    return {k: v for k, v in GOOD.items() if k not in names}


def b64(value: bytes | dict[str, Any]) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def by_hand(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    start = f"{b64(header)}.{b64(claims)}"
    mac = b"" if secret is None else hmac.new(secret, start.encode(), hashlib.sha256).digest()
    return f"{start}.{b64(mac)}"


def test_a_good_launch_says_who_comes_and_where_to() -> None:
    said = verified(signed(key("a"), GOOD), jwks("b", "a"))
    launch = checked(said, PLATFORM, NOW)
    assert (launch.subject, launch.name, launch.role, launch.link) == ("u-1", "Ada", "student", "r-1")
    assert (launch.assignment, launch.context, launch.nonce) == (7, "c-1", "n-1")


def test_several_audiences_need_their_party_to_be_this_tool() -> None:
    several = {**GOOD, "aud": ["client-1", "other"], "azp": "client-1"}
    assert checked(several, PLATFORM, NOW).subject == "u-1"


BAD: dict[str, dict[str, Any]] = {
    "another issuer": {**GOOD, "iss": "https://evil.example"},
    "issuer with a slash": {**GOOD, "iss": "https://lms.example/"},
    "no issuer": without("iss"),
    "another audience": {**GOOD, "aud": "client-2"},
    "no audience": without("aud"),
    "empty list of audiences": {**GOOD, "aud": []},
    "audience in an object": {**GOOD, "aud": {"client-1": 1}},
    "audience among numbers": {**GOOD, "aud": ["client-1", 3], "azp": "client-1"},
    "part of the audience": {**GOOD, "aud": "client-1 client-2"},
    "several audiences without a party": {**GOOD, "aud": ["client-1", "x"]},
    "made for another party": {**GOOD, "azp": "client-2"},
    "expired": {**GOOD, "exp": NOW - 61},
    "no expiry": without("exp"),
    "expiry in words": {**GOOD, "exp": "tomorrow"},
    "expiry true": {**GOOD, "exp": True},
    "expiry without end": {**GOOD, "exp": float("inf")},
    "expiry not a number": {**GOOD, "exp": float("nan")},
    "valid for a day": {**GOOD, "exp": NOW + 86_400},
    "issued in the future": {**GOOD, "iat": NOW + 120},
    "issued long ago": {**GOOD, "iat": NOW - 7200},
    "no time of issue": without("iat"),
    "not before later": {**GOOD, "nbf": NOW + 120},
    "no nonce": without("nonce"),
    "empty nonce": {**GOOD, "nonce": ""},
    "nonce as a list": {**GOOD, "nonce": ["n-1"]},
    "endless nonce": {**GOOD, "nonce": "n" * 300},
    "LTI 1.1": {**GOOD, f"{CLAIM}version": "1.1"},
    "no version": without(f"{CLAIM}version"),
    "another message": {**GOOD, f"{CLAIM}message_type": "LtiSubmissionReviewRequest"},
    "no message": without(f"{CLAIM}message_type"),
    "no deployment": without(f"{CLAIM}deployment_id"),
    "empty deployment": {**GOOD, f"{CLAIM}deployment_id": ""},
    "deployment as a number": {**GOOD, f"{CLAIM}deployment_id": 1},
    "nobody": without("sub"),
    "subject with a line break": {**GOOD, "sub": "u-1\n"},
    "subject with NUL": {**GOOD, "sub": "u\0"},
    "subject with a blank": {**GOOD, "sub": " u-1"},
    "endless subject": {**GOOD, "sub": "u" * 256},
    "subject as a number": {**GOOD, "sub": 1},
    "no roles": without(f"{CLAIM}roles"),
    "roles as text": {**GOOD, f"{CLAIM}roles": "Learner"},
    "no course": without(f"{CLAIM}context"),
    "course without id": {**GOOD, f"{CLAIM}context": {"title": "x"}},
    "no link": without(f"{CLAIM}resource_link"),
    "link without id": {**GOOD, f"{CLAIM}resource_link": {}},
    "link as text": {**GOOD, f"{CLAIM}resource_link": "r-1"},
    "deep linking to nowhere": {**GOOD, f"{CLAIM}message_type": DEEP_LINKING},
    "deep linking to a number": {
        **GOOD,
        f"{CLAIM}message_type": DEEP_LINKING,
        f"{DEEP}deep_linking_settings": {"deep_link_return_url": 3},
    },
}


@pytest.mark.parametrize("name", BAD)
def test_claims_that_are_wrong_are_refused(name: str) -> None:
    with pytest.raises(LaunchRefused):
        checked(BAD[name], PLATFORM, NOW)


@cache
def forged() -> dict[str, str]:
    public = RSAKey.import_key(public_jwk(key("a")))
    good = signed(key("a"), GOOD)
    head, body, mac = good.split(".")
    kid = key("a").kid
    return {
        "alg none": by_hand({"alg": "none", "kid": kid}, GOOD, None),
        "alg None": by_hand({"alg": "None", "kid": kid}, GOOD, None),
        "alg missing": by_hand({"kid": kid}, GOOD, None),
        "HMAC with the public key as PEM": by_hand(
            {"alg": "HS256", "kid": kid}, GOOD, public.as_pem(private=False)
        ),
        "HMAC with the public key as DER": by_hand(
            {"alg": "HS256", "kid": kid}, GOOD, public.as_der(private=False)
        ),
        "HMAC with nothing": by_hand({"alg": "HS256", "kid": kid}, GOOD, b""),
        "RS256 with an HMAC": by_hand({"alg": "RS256", "kid": kid}, GOOD, public.as_pem(private=False)),
        "PS256": by_hand({"alg": "PS256", "kid": kid}, GOOD, b"x"),
        "alg as a list": by_hand({"alg": ["RS256"], "kid": kid}, GOOD, b"x"),
        "another's signature": f"{head}.{body}.{signed(key('b'), GOOD).split('.')[2]}",
        "another body": f"{head}.{b64({**GOOD, 'sub': 'u-2'})}.{mac}",
        "another head": f"{b64({'alg': 'RS256', 'kid': kid, 'x': 1})}.{body}.{mac}",
        "no signature": f"{head}.{body}.",
        "a cut signature": good[:-8],
        "key in the head": by_hand({"alg": "RS256", "kid": kid, "jwk": public_jwk(key("b"))}, GOOD, b"x"),
        "address of keys in the head": by_hand(
            {"alg": "RS256", "kid": kid, "jku": "https://evil.example"}, GOOD, b"x"
        ),
        "something critical": by_hand({"alg": "RS256", "kid": kid, "crit": ["exp"]}, GOOD, b"x"),
        "kid as a path": by_hand({"alg": "RS256", "kid": "../../dev/null"}, GOOD, b""),
        "kid as a query": by_hand({"alg": "RS256", "kid": "x' or '1'='1"}, GOOD, b""),
        "kid as a list": by_hand({"alg": "RS256", "kid": [kid]}, GOOD, b"x"),
        "kid empty": by_hand({"alg": "RS256", "kid": ""}, GOOD, b"x"),
        "no kid among several keys": by_hand({"alg": "RS256"}, GOOD, b"x"),
        "two parts": f"{head}.{body}",
        "five parts, encrypted": f"{good}.x.y",
        "nothing": "",
        "not base64": "%%%.%%%.%%%",
        "not ASCII": "é.é.é",
        "head as a list": f"{b64(b'[]')}.{body}.{mac}",
        "a head that is deep": f"{b64(b'[' * 20_000)}.{body}.{mac}",
        "too long": f"{head}.{'A' * 70_000}.{mac}",
    }


def test_signatures_that_are_wrong_are_refused() -> None:
    taken = []
    for name, token in forged().items():
        try:
            verified(token, jwks("a", "b"))
        except LaunchRefused:
            continue
        taken.append(name)
    assert taken == []
    assert len(BAD) + len(forged()) >= 70


def test_a_body_that_is_no_object_is_refused() -> None:
    from joserfc import jws

    header = {"alg": "RS256", "kid": key("a").kid}
    for body in (b"[]", b"1", b"", b"\xff", b"[" * 5000):
        token = jws.serialize_compact(header, body, RSAKey.import_key(key("a").private))
        with pytest.raises(LaunchRefused):
            verified(token, jwks("a"))


def test_a_key_that_is_not_published_is_told_from_a_wrong_signature() -> None:
    with pytest.raises(UnknownKey):
        verified(signed(key("a"), GOOD), jwks("b"))
    twice = {"keys": [public_jwk(key("a")), {**public_jwk(key("b")), "kid": key("a").kid}]}
    with pytest.raises(UnknownKey):
        verified(signed(key("a"), GOOD), twice)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"keys": "x"},
        {"keys": [1, None]},
        {"keys": [{"kty": "oct", "k": "eA"}]},
        {"keys": [{"kty": "RSA"}]},
        {"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]},
        {"keys": [{"kty": "RSA", "n": 3, "e": 3}]},
    ],
)
def test_keys_that_are_none_are_refused(bad: dict[str, Any]) -> None:
    listed = bad.get("keys")
    named = dict(bad)
    if isinstance(listed, list):
        named["keys"] = [{**one, "kid": key("a").kid} if isinstance(one, dict) else one for one in listed]
    with pytest.raises(LaunchRefused):
        verified(signed(key("a"), GOOD), named)


@pytest.mark.filterwarnings("ignore:Key size")
def test_a_short_key_is_refused() -> None:
    short = RSAKey.generate_key(1024)
    weak = ToolKey(short.thumbprint(), short.as_pem(private=True).decode())
    with pytest.raises(LaunchRefused, match="too short"):
        verified(signed(weak, GOOD), {"keys": [public_jwk(weak)]})


@pytest.mark.parametrize(
    ("roles", "here"),
    [
        ([f"{ROLE}membership#Instructor"], "instructor"),
        ([f"{ROLE}membership#Learner"], "student"),
        (
            [f"{ROLE}membership#Instructor", f"{ROLE}membership/Instructor#TeachingAssistant"],
            "grader",
        ),
        (["Instructor"], "instructor"),
        ([f"{ROLE}institution/person#Administrator", f"{ROLE}system/person#SysAdmin"], None),
        ([f"{ROLE}institution/person#Instructor"], None),
        ([f"{ROLE}membership#Administrator"], None),
        ([f"{ROLE}institution/person#Instructor", f"{ROLE}membership#Learner"], "student"),
        ([], None),
    ],
)
def test_roles_in_the_course_count_and_nobody_becomes_an_administrator(
    roles: list[str], here: str | None
) -> None:
    assert role_of(roles) == here
