"""Signed tokens (JWT) of other servers: the signature by one of the server's keys, issuer and audience.

Which claims a token must have besides belongs to who reads it: `lti.launch_verification`, `oidc.tokens`.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from grading.domain.errors import GraderError
from grading.domain.messages import MessageType

LARGEST = 64_000
LEAST_BITS = 2048
CURVES = {"ES256": "P-256"}
_PUBLIC = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}


@dataclass(frozen=True)
class TokenErrors:
    """What is raised, with which sentence, for a token that is refused."""

    refused: type[GraderError]
    unknown_key: type[GraderError]
    not_signed: MessageType
    part_unreadable: MessageType
    """Takes `what`: header or content."""
    content_unreadable: MessageType
    algorithm: MessageType
    signature: MessageType
    key_id: MessageType
    key_unreadable: MessageType
    key_too_short: MessageType
    """Takes `least`, in bits."""
    issuer: MessageType
    audience: MessageType
    authorized_party: MessageType


def header_of(token: str, errors: TokenErrors) -> dict[str, Any]:
    """The header, not checked by anybody. Raises `errors.refused`."""
    return _json(_parts(token, errors)[0], "header", errors)


def claims_of(token: str, errors: TokenErrors) -> dict[str, Any]:
    """The claims, not checked by anybody: only to find whose they are. Raises `errors.refused`."""
    return _json(_parts(token, errors)[1], "content", errors)


def verified(
    token: str, jwks: Mapping[str, Any], algorithms: Sequence[str], errors: TokenErrors
) -> dict[str, Any]:
    """The claims of a token signed with one of these keys. Raises `errors.unknown_key` and `.refused`.

    `algorithms` are those of public keys: `none` and HMAC, whose key would be the public one, are never
    among them, so what a token's header says cannot choose them.
    """
    header = header_of(token, errors)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise errors.refused(errors.algorithm)
    key = _key(jwks, header.get("kid"), algorithm, errors)
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    try:
        found = jws.deserialize_compact(token, key, algorithms=[algorithm], registry=registry)
    except (JoseError, ValueError, TypeError, KeyError):
        raise errors.refused(errors.signature) from None
    try:
        claims = json.loads(found.payload or b"")
    except (ValueError, RecursionError):
        raise errors.refused(errors.content_unreadable) from None
    if not isinstance(claims, dict):
        raise errors.refused(errors.content_unreadable)
    return claims


def require_addressed(claims: Mapping[str, Any], issuer: str, client_id: str, errors: TokenErrors) -> None:
    """Go on with a token of this issuer for this client. Raises `errors.refused`."""
    if claims.get("iss") != issuer:
        raise errors.refused(errors.issuer)
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences or not all(isinstance(one, str) for one in audiences):
        raise errors.refused(errors.audience)
    party = claims.get("azp")
    if (party is not None or len(audiences) > 1) and party != client_id:
        raise errors.refused(errors.authorized_party)


def moment_of(claims: Mapping[str, Any], name: str) -> float | None:
    """A time in seconds since 1970; None where the claim is no such number."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e11:
        return None
    return float(value)


def _key(jwks: Mapping[str, Any], kid: Any, algorithm: str, errors: TokenErrors) -> RSAKey | ECKey:
    """The key of this name. Without a name it must be the only one that fits."""
    listed = jwks.get("keys")
    known = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if kid is not None and not isinstance(kid, str):
        raise errors.refused(errors.key_id)
    found = [one for one in known if one.get("kid") == kid] if kid is not None else known
    found = [one for one in found if _fits(one, algorithm)]
    if len(found) != 1:
        raise errors.unknown_key
    kind = "EC" if algorithm in CURVES else "RSA"
    try:
        public = {name: found[0][name] for name in _PUBLIC[kind]}
        # before it is read, as joserfc only warns
        if kind == "RSA" and 8 * len(_decoded(public["n"])) < LEAST_BITS:
            raise errors.refused(errors.key_too_short(least=LEAST_BITS))
        key = ECKey.import_key(public) if kind == "EC" else RSAKey.import_key(public)
        bits = key.public_key.key_size
    except (JoseError, ValueError, TypeError, KeyError):
        raise errors.refused(errors.key_unreadable) from None
    if kind == "RSA" and bits < LEAST_BITS:
        raise errors.refused(errors.key_too_short(least=LEAST_BITS))
    return key


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a published key is for signatures of this algorithm."""
    curve = CURVES.get(algorithm)
    kind = (key.get("kty"), key.get("crv")) == ("EC", curve) if curve else key.get("kty") == "RSA"
    return kind and key.get("use") in (None, "sig") and key.get("alg") in (None, algorithm)


def _parts(token: str, errors: TokenErrors) -> list[str]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > LARGEST or not token.isascii():
        raise errors.refused(errors.not_signed)
    return parts


def _decoded(part: str) -> bytes:
    """Raises ValueError."""
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _json(part: str, what: str, errors: TokenErrors) -> dict[str, Any]:
    try:
        value = json.loads(_decoded(part))
    except (ValueError, binascii.Error, RecursionError):
        raise errors.refused(errors.part_unreadable(what=what)) from None
    if not isinstance(value, dict):
        raise errors.refused(errors.part_unreadable(what=what))
    return value
