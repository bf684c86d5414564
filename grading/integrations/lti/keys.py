"""The tool's own keys: made, shown to platforms, used to sign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

BITS = 2048


@dataclass(frozen=True)
class ToolKey:
    """A key pair; `kid` is the thumbprint of its public half."""

    kid: str
    private: str = field(repr=False)
    """PEM"""


def new_key() -> ToolKey:
    """A new pair."""
    key = RSAKey.generate_key(BITS)
    return ToolKey(key.thumbprint(), key.as_pem(private=True).decode())


def public_jwk(key: ToolKey) -> dict[str, Any]:
    """What platforms are shown."""
    public = _loaded(key.private).as_dict(private=False)
    return {"kty": public["kty"], "n": public["n"], "e": public["e"]} | {
        "kid": key.kid,
        "alg": "RS256",
        "use": "sig",
    }


def signed(key: ToolKey, claims: Mapping[str, Any]) -> str:
    """A token with these claims."""
    header = {"alg": "RS256", "typ": "JWT", "kid": key.kid}
    return jwt.encode(header, dict(claims), _loaded(key.private), algorithms=["RS256"])


@lru_cache(maxsize=8)
def _loaded(private: str) -> RSAKey:
    """Reading a key checks its primes, which takes a while."""
    return RSAKey.import_key(private)
