"""Dynamic registration: a platform registers itself by a link that an administrator made, once."""

from __future__ import annotations

import json
from typing import Any

from flask import Blueprint, Response, g, jsonify, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.web.rate_limits import limited
from app.web.services import services
from grading.domain.messages import define_message
from grading.domain.ssrf import read
from grading.integrations.http_client import OutsideFailed, ask
from grading.integrations.lti import client, messages
from grading.integrations.lti.values import PlatformRefused
from grading.integrations.told_texts import text_of
from grading.store.integrations.lti import registrations
from grading.store.integrations.lti.registrations import NewPlatform, TicketGone

NOT_DESCRIBED = define_message(
    "lti_registration.not_described",
    "This link is for the platform's dynamic registration, not for a browser. Enter it in the platform.",
)
NO_ISSUER_OR_REGISTRATION = define_message(
    "lti_registration.no_issuer_or_registration",
    "The platform's OpenID configuration has no issuer or no registration endpoint.",
)
OTHER_ISSUER = define_message(
    "lti_registration.other_issuer",
    "The platform's OpenID configuration is of another issuer than its address.",
)
NOT_REGISTERED = define_message(
    "lti_registration.not_registered",
    "The platform did not register the tool. Check the messages "
    "in the platform, then create a new registration link.",
)
TOKEN_UNUSABLE = define_message(
    "lti_registration.token_unusable", "The registration token is not valid. Create a new registration link."
)

REGISTRATIONS = "20 per minute"
"""For one address."""
pages = Blueprint("lti_registration", __name__, url_prefix="/lti")
LONGEST = 4000
SERVES_ISSUER = {
    f"sso.{cluster}canvaslms.com": f"canvas.{cluster}instructure.com" for cluster in ("", "beta.", "test.")
}
"""Hosts that say how another host's issuer is set up: those of Canvas at Instructure, for all schools."""
PLATFORM = "https://purl.imsglobal.org/spec/lti-platform-configuration"


@pages.get("/register/<ticket>")
@limited(REGISTRATIONS)
def register(ticket: str) -> BaseResponse:
    """Read how the platform is set up, register the tool there, and the platform here."""
    with services().store.read() as store:
        if not registrations.ticket_is_open(store, ticket[:100]):
            raise TicketGone
    url, token = (request.args.get(name, "") for name in ("openid_configuration", "registration_token"))
    if not url or len(url) > LONGEST or len(token) > LONGEST:
        raise PlatformRefused(NOT_DESCRIBED)
    configuration = client.fetch_json(url, services().config.server.allowed)
    _same_host(url, configuration)
    registrations.signing_key(services().store)
    answer = _ask(configuration, token)
    new = _platform(configuration, answer)
    with services().store.write() as store:
        by = registrations.use_ticket(store, ticket[:100], course=False).created_by
        registrations.register_platform(store, new, by)
    made = Response(render_template("lti/registered.html", name=new.name))
    # Canvas shows it in a frame, and its script asks for that to be closed
    made.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{g.nonce}'; base-uri 'none'; "
        f"frame-ancestors {' '.join(registrations.origins_of(new))}"
    )
    return made


@pages.get("/canvas.json")
def canvas() -> BaseResponse:
    """What a developer key of Canvas takes from an address: nothing secret, and not who may launch."""
    return jsonify(messages.canvas_key(services().config.server.public_url.rstrip("/")))


def _same_host(url: str, configuration: dict[str, Any]) -> None:
    """What says how an issuer is set up lies at the issuer, as OpenID discovery asks, or at SERVES_ISSUER."""
    issuer, endpoint = configuration.get("issuer"), configuration.get("registration_endpoint")
    if not isinstance(issuer, str) or not isinstance(endpoint, str):
        raise PlatformRefused(NO_ISSUER_OR_REGISTRATION)
    host = read(url).host
    if read(issuer).host != SERVES_ISSUER.get(host, host):
        raise PlatformRefused(OTHER_ISSUER)


def _ask(configuration: dict[str, Any], token: str) -> dict[str, Any]:
    """What the platform answers to the tool's registration. Raises PlatformRefused."""
    base = services().config.server.public_url.rstrip("/")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token:
        if not token.isascii() or not token.isprintable():
            raise PlatformRefused(TOKEN_UNUSABLE)
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps(messages.registration(base, _family(configuration))).encode()
    try:
        answer = ask(
            "POST", configuration["registration_endpoint"], headers=headers, body=body,
            allow=services().config.server.allowed,
        )  # fmt: skip
        found = json.loads(answer.body) if 200 <= answer.status < 300 else None
    except (OutsideFailed, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("client_id"), str):
        raise PlatformRefused(NOT_REGISTERED)
    return found


def _family(configuration: dict[str, Any]) -> str:
    """The product as it calls itself."""
    details = configuration.get(PLATFORM)
    return text_of(details.get("product_family_code"), 40).lower() if isinstance(details, dict) else ""


def _platform(configuration: dict[str, Any], answer: dict[str, Any]) -> NewPlatform:
    def text(name: str) -> str:
        value = configuration.get(name)
        return value if isinstance(value, str) else ""

    family, tool = _family(configuration), answer.get(messages.TOOL)
    deployment = tool.get("deployment_id") if isinstance(tool, dict) else None
    deployment = deployment or answer.get("deployment_id")
    return NewPlatform(
        name=family,
        issuer=text("issuer"),
        client_id=answer["client_id"],
        authorize_url=text("authorization_endpoint"),
        token_url=text("token_endpoint"),
        jwks_url=text("jwks_uri"),
        # Canvas takes its token URL; what it calls its authorization server is a host without a scheme
        audience="" if family == messages.CANVAS else text("authorization_server"),
        origins=_pages(configuration),
        deployments=(deployment,) if isinstance(deployment, str) else (),
        family=family,
    )


def _pages(configuration: dict[str, Any]) -> tuple[str, ...]:
    """Where a Canvas shows its pages: its schools have hosts of their own."""
    details = configuration.get(PLATFORM)
    domain = details.get(f"{messages.CANVAS_TOOL}account_domain") if isinstance(details, dict) else None
    return (f"https://{domain}",) if isinstance(domain, str) and domain else ()
