"""Authlib's client of a provider: it begins sign-ins with PKCE, state and nonce, and redeems codes.

Its requests go out by `grading.integrations.http_client`, and it is given checked metadata, never a
provider's document. What a provider signed is checked by `grading.integrations.oidc.tokens`.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.flask_client import FlaskIntegration, FlaskOAuth2App
from authlib.integrations.requests_client import OAuth2Session
from flask import session

from grading.config.sign_on import Provider
from grading.domain.messages import define_message
from grading.domain.ssrf import Allowed
from grading.integrations.oidc.client import TokenRequests
from grading.integrations.oidc.values import Metadata, SignOnRefused
from grading.integrations.requests_adapter import leave_only
from grading.integrations.told_texts import text_of

CODE_REFUSED = define_message(
    "sign_on.code_refused", "The provider refused to complete the sign-in: %(error)s."
)
NO_ID_TOKEN = define_message("sign_on.no_id_token", "The provider's answer has no ID token.")
NO_ACCESS_TOKEN = define_message(
    "sign_on.no_access_token", "The provider's answer has no access token of the type Bearer."
)
STATE_UNKNOWN = define_message(
    "sign_on.state_unknown",
    "This sign-in was started in another browser, was used already, or took longer than 10 minutes. Sign in "
    "again.",
)

STATE_S = 600
MOST_STATES = 4
"""Sign-ins of a browser under way at the same time; they stand in its cookie, which must stay small."""


class States(FlaskIntegration):
    """Sign-ins under way, in the browser's session: a few, for a few minutes, each for one answer."""

    expires_in = STATE_S

    def set_state_data(self, session: Any, state: str, data: Mapping[str, Any]) -> None:
        """Keep a sign-in that begins; the oldest go."""
        kept = sorted(
            (one for one in session if one.startswith("_state_")), key=lambda one: session[one]["exp"]
        )
        for one in kept[: max(0, len(kept) + 1 - MOST_STATES)]:
            session.pop(one)
        super().set_state_data(session, state, data)

    def take(self, state: str) -> dict[str, Any]:
        """What this browser began with this state; no second answer has it. Raises SignOnRefused."""
        key = f"_state_{self.name}_{state}"
        found = session.get(key) if state else None
        self.clear_state_data(session, state)
        if not isinstance(found, dict) or found.get("exp", 0) < time.time():
            raise SignOnRefused(STATE_UNKNOWN)
        return dict(found["data"])


class OutsideSession(OAuth2Session):
    """Authlib's session, with our only way out."""

    def __init__(self, *args: Any, allow: Allowed, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        leave_only(self, TokenRequests(allow))
        self.register_client_auth_method(("client_secret_basic", _basic))


class SignOnClient(FlaskOAuth2App):
    """One provider, for one request of a browser."""

    client_cls = OutsideSession
    framework: States

    @classmethod
    def of(
        cls, name: str, provider: Provider, secret: str, metadata: Metadata, allow: Allowed
    ) -> SignOnClient:
        """The client of a provider by what it publishes."""
        return cls(
            States(name),
            name,
            client_id=provider.client_id,
            client_secret=secret,
            authorize_url=metadata.authorization_endpoint,
            access_token_url=metadata.token_endpoint,
            client_kwargs={
                "scope": " ".join(provider.scopes),
                "code_challenge_method": "S256",
                "token_endpoint_auth_method": metadata.auth_method,
                "allow": allow,
            },
            user_agent="Grader",
            end_session_endpoint=metadata.end_session_endpoint,
        )

    def begin(self, redirect_uri: str, *, again: bool = False, **kept: Any) -> str:
        """The provider's address for a sign-in that begins; `kept` comes back with `take`.

        With `again`, also who is signed in there is to show who they are.
        """
        asked = {"prompt": "login", "max_age": 0} if again else {}
        begun = self.create_authorization_url(redirect_uri, **asked)
        self.save_authorize_data(
            redirect_uri=redirect_uri, state=begun["state"], nonce=begun["nonce"],
            code_verifier=begun["code_verifier"], **kept,
        )  # fmt: skip
        return str(begun["url"])

    def take(self, state: str) -> dict[str, Any]:
        """What this browser began with this state. Raises SignOnRefused."""
        return self.framework.take(state)

    def redeem(self, code: str, begun: Mapping[str, Any]) -> tuple[str, str]:
        """The ID token and the access token for a code. Raises SignOnRefused, ProviderFailed."""
        try:
            told = self.fetch_access_token(
                redirect_uri=begun["redirect_uri"], code=code, code_verifier=begun["code_verifier"],
                grant_type="authorization_code",
            )  # fmt: skip
        except AuthlibBaseError as error:
            said = ": ".join(filter(None, (text_of(error.error), text_of(error.description))))
            raise SignOnRefused(CODE_REFUSED(error=said.rstrip("."))) from None
        id_token, access_token = (str(told.get(name) or "") for name in ("id_token", "access_token"))
        if not id_token:
            raise SignOnRefused(NO_ID_TOKEN)
        bearer = str(told.get("token_type", "")).lower() == "bearer"
        if not bearer or not access_token.isascii() or not access_token.isprintable() or not access_token:
            raise SignOnRefused(NO_ACCESS_TOKEN)
        return id_token, access_token

    def logout_url(self, back: str, id_token: str) -> str:
        """The provider's address for signing out there, too (RP-Initiated Logout)."""
        made = self.create_logout_url(back, id_token or None, client_id=self.client_id)
        return str(made["url"])


def _basic(client: Any, _method: str, uri: str, headers: Any, body: Any) -> tuple[str, Any, Any]:
    """Basic authentication with both parts encoded as RFC 6749 says (2.3.1), which Authlib leaves out."""
    told = ":".join(quote_plus(one) for one in (client.client_id, client.client_secret))
    headers["Authorization"] = f"Basic {b64encode(told.encode()).decode()}"
    return uri, headers, body
