"""What a provider publishes (OpenID Connect Discovery): read strictly, kept for a while by this process."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.domain.ssrf import Allowed, read
from grading.integrations.oidc.client import fetch_object
from grading.integrations.oidc.tokens import ALGORITHMS, UnknownKey, verified
from grading.integrations.oidc.values import Metadata, ProviderFailed

OTHER_ISSUER = define_message(
    "sign_on.discovery_other_issuer",
    "The provider's configuration is for another issuer than the one in config.toml.",
)
NO_ENDPOINT = define_message(
    "sign_on.no_endpoint", "The provider's configuration has no valid address '%(name)s'."
)
NOT_HTTPS = define_message(
    "sign_on.not_https", "The provider's configuration has an address '%(name)s' without https."
)
NO_CODE_FLOW = define_message(
    "sign_on.no_code_flow", "The provider does not offer the authorization code flow, which Grader needs."
)
NO_PKCE = define_message(
    "sign_on.no_pkce", "The provider does not support PKCE with S256, which Grader needs."
)
NO_ALGORITHM = define_message(
    "sign_on.no_algorithm", "The provider signs its ID tokens with none of %(known)s."
)
NO_AUTH_METHOD = define_message(
    "sign_on.no_auth_method",
    "The provider accepts no client secret: it supports neither client_secret_basic nor client_secret_post.",
)
BUSY = define_message("sign_on.busy", "The provider has not answered yet. Try again in a few seconds.")
NO_KEYS = define_message("sign_on.no_keys", "The provider publishes no keys.")

WELL_KNOWN = "/.well-known/openid-configuration"
KEPT_S = 3600.0
"""Then it is fetched again, so that a key that was withdrawn does not count for ever."""
WAIT_S, AWAY_S = 2.0, 10.0
SEARCH_S = 10.0
"""How soon keys are fetched again for one that is not known: anybody can name one that does not exist."""
MOST_KEYS = 50
AUTH_METHODS = ("client_secret_basic", "client_secret_post")


@dataclass
class _Kept:
    metadata: Metadata
    jwks: Mapping[str, Any]
    until: float


@dataclass(frozen=True)
class Directory:
    """Metadata and keys of providers; one request at a time for each of them.

    A provider that does not answer takes no more than one thread: others wait for WAIT_S, and nobody asks
    again for AWAY_S after a failure.
    """

    allow: Allowed
    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, _Kept] = field(default_factory=dict, repr=False)
    _failed: dict[str, tuple[GraderError, float]] = field(default_factory=dict, repr=False)
    _searched: dict[str, float] = field(default_factory=dict, repr=False)
    _locks: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock), repr=False
    )

    def metadata(self, issuer: str) -> Metadata:
        """What the provider publishes. Raises ProviderFailed, Refused."""
        return self._fresh(issuer).metadata

    def claims(self, issuer: str, token: str) -> dict[str, Any]:
        """The claims of a token that this provider signed; keys are fetched anew for one that is not known.

        Each process counts for itself how often, as each has keys of its own. Raises SignOnRefused.
        """
        kept = self._fresh(issuer)
        try:
            return verified(token, kept.jwks, kept.metadata.algorithms)
        except UnknownKey:
            with self._turn(issuer):
                now = self._kept[issuer]
                if now is kept and self._searched.get(issuer, -SEARCH_S) + SEARCH_S > self.clock():
                    raise
                if now is kept:  # else another thread fetched them meanwhile
                    self._searched[issuer] = self.clock()
                    now = self._fetch(issuer)
            return verified(token, now.jwks, now.metadata.algorithms)

    def _fresh(self, issuer: str) -> _Kept:
        kept = self._kept.get(issuer)
        if kept is not None and kept.until > self.clock():
            return kept
        with self._turn(issuer):
            kept = self._kept.get(issuer)
            return kept if kept is not None and kept.until > self.clock() else self._fetch(issuer)

    @contextmanager
    def _turn(self, issuer: str) -> Iterator[None]:
        if not self._locks[issuer].acquire(timeout=WAIT_S):
            raise ProviderFailed(BUSY)
        try:
            yield
        finally:
            self._locks[issuer].release()

    def _fetch(self, issuer: str) -> _Kept:
        """Anew; raises what it raised the last time if that was a moment ago."""
        error, until = self._failed.get(issuer, (None, 0.0))
        if error is not None and until > self.clock():
            raise error
        try:
            metadata = fetch_metadata(issuer, self.allow)
            keys = fetch_jwks(metadata, self.allow)
        except GraderError as failed:
            self._failed[issuer] = failed, self.clock() + AWAY_S
            raise
        self._failed.pop(issuer, None)
        made = self._kept[issuer] = _Kept(metadata, keys, self.clock() + KEPT_S)
        return made


def fetch_metadata(issuer: str, allow: Allowed) -> Metadata:
    """The provider's discovery document, checked. Raises ProviderFailed, Refused."""
    return read_metadata(fetch_object(issuer.removesuffix("/") + WELL_KNOWN, allow), issuer)


def fetch_jwks(metadata: Metadata, allow: Allowed) -> dict[str, Any]:
    """The keys that a provider publishes. Raises ProviderFailed, Refused."""
    listed = fetch_object(metadata.jwks_uri, allow).get("keys")
    keys = [one for one in listed[:MOST_KEYS] if isinstance(one, dict)] if isinstance(listed, list) else []
    if not keys:
        raise ProviderFailed(NO_KEYS)
    return {"keys": keys}


def read_metadata(found: Mapping[str, Any], issuer: str) -> Metadata:
    """A discovery document of this issuer. Raises ProviderFailed."""
    if found.get("issuer") != issuer:
        raise ProviderFailed(OTHER_ISSUER)
    if "code" not in _texts(found, "response_types_supported", ("code",)):
        raise ProviderFailed(NO_CODE_FLOW)
    # providers that say nothing of PKCE (Entra ID) may know it; those that do not ignore it
    if "S256" not in _texts(found, "code_challenge_methods_supported", ("S256",)):
        raise ProviderFailed(NO_PKCE)
    said = _texts(found, "id_token_signing_alg_values_supported", ("RS256",))
    algorithms = tuple(one for one in ALGORITHMS if one in said)
    if not algorithms:
        raise ProviderFailed(NO_ALGORITHM(known=ALGORITHMS))
    methods = _texts(found, "token_endpoint_auth_methods_supported", AUTH_METHODS[:1])
    method = next((one for one in AUTH_METHODS if one in methods), None)
    if method is None:
        raise ProviderFailed(NO_AUTH_METHOD)
    return Metadata(
        issuer=issuer,
        authorization_endpoint=_address(found, "authorization_endpoint", issuer),
        token_endpoint=_address(found, "token_endpoint", issuer),
        jwks_uri=_address(found, "jwks_uri", issuer),
        auth_method=method,
        algorithms=algorithms,
        userinfo_endpoint=_address(found, "userinfo_endpoint", issuer, needed=False),
        end_session_endpoint=_address(found, "end_session_endpoint", issuer, needed=False),
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
        backchannel_logout=found.get("backchannel_logout_supported") is True,
        backchannel_logout_session=found.get("backchannel_logout_session_supported") is True,
    )


def _texts(found: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """A list of texts; the default where the document does not have it."""
    value = found.get(name)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else default


def _address(found: Mapping[str, Any], name: str, issuer: str, *, needed: bool = True) -> str:
    """An address that can be asked. Without https only where the issuer itself has none."""
    value = found.get(name)
    if value is None and not needed:
        return ""
    try:
        target = read(value if isinstance(value, str) else "")
    except GraderError:
        raise ProviderFailed(NO_ENDPOINT(name=name)) from None
    if not target.secure and not issuer.startswith("http://"):
        raise ProviderFailed(NOT_HTTPS(name=name))
    return str(value)
