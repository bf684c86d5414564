"""Where platforms send browsers: the OIDC login, the launch, the tool's keys, and frames."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from flask import (
    Blueprint,
    Flask,
    Response,
    current_app,
    jsonify,
    redirect,
    render_template,
    request,
    session,
)
from flask.blueprints import BlueprintSetupState
from flask_login import login_user
from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.web import auth, frames
from app.web.rate_limits import limited
from app.web.security import without_token
from app.web.services import services
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.integrations.lti import client, launch_verification
from grading.integrations.lti.values import DEEP_LINKING, Launch, LaunchRefused, Platform
from grading.store.database import now
from grading.store.integrations.lti import launch as lti_launch
from grading.store.integrations.lti import registrations
from grading.store.integrations.lti.launch import LaunchResult

PLATFORM_UNKNOWN = define_message(
    "lti_launch.platform_unknown",
    "This learning platform is not registered here, or says too little about itself.",
)
PLATFORM_ANSWERED_ERROR = define_message(
    "lti_launch.platform_answered_error", "The learning platform answered with an error: %(error)s."
)
REQUEST_TOO_LONG = define_message(
    "lti_launch.request_too_long", "The learning platform's request is too long."
)
OTHER_REQUEST = define_message("lti_launch.other_request", "The launch answers another request.")
NOT_BEGUN_HERE = define_message(
    "lti_launch.not_begun_here",
    "This launch did not begin here, or took too long. Open it in the learning platform again.",
)

log = logging.getLogger(__name__)
LAUNCHES = "1200 per minute"
"""For one address; several classes may sit behind it."""
pages = Blueprint("lti", __name__, url_prefix="/lti")
STATE_COOKIE = "__Secure-grader-lti"
STATE_S = 600
FRESH = timedelta(seconds=60)
"""Keys are not fetched again so soon after they were, whatever key a launch names."""
OLD = timedelta(hours=12)
"""Then they are fetched again, so that a key that was withdrawn does not count for ever."""
LONGEST = 8000


class DeploymentUnknown(LaunchRefused):
    """This installation of the tool is not accepted yet. Ask whoever runs this server to accept it."""

    status = 403
    default_message = define_message(
        "error.deployment_unknown",
        "This installation of the tool is not accepted yet. Ask whoever runs this server to accept it.",
    )


@pages.get("/jwks")
def jwks() -> Response:
    """The tool's public keys."""
    registrations.signing_key(services().store)
    with services().store.read() as store:
        answer = jsonify(registrations.public_jwks(store))
    answer.headers["Cache-Control"] = "public, max-age=300"
    answer.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    return answer


@pages.route("/login", methods=["GET", "POST"])
@limited(LAUNCHES)
def login() -> BaseResponse:
    """The first step: send the browser to its platform, with a state and a nonce."""
    parameters = {name: _parameter(name) for name in ("iss", "login_hint", "target_link_uri", "client_id")}
    with services().store.read_autocommit() as store:
        platform = registrations.find_platform(store, parameters["iss"], parameters["client_id"])
    if platform is None or not parameters["login_hint"]:
        raise LaunchRefused(PLATFORM_UNKNOWN)
    browser = request.cookies.get(STATE_COOKIE, "")
    if len(browser) != 43 or not browser.isascii():
        browser = secrets.token_urlsafe(32)
    nonce = secrets.token_urlsafe(24)
    hint = _parameter("lti_message_hint")
    again = {"iss": platform.issuer, "client_id": platform.client_id, "lti_message_hint": hint}
    again |= {name: parameters[name] for name in ("login_hint", "target_link_uri")}
    state = _signer().dumps({"p": platform.id, "n": nonce, "b": _mark(browser), "again": again})
    query = {
        "response_type": "id_token", "response_mode": "form_post", "scope": "openid", "prompt": "none",
        "client_id": platform.client_id, "redirect_uri": launch_url(), "login_hint": parameters["login_hint"],
        "state": state, "nonce": nonce,
    }  # fmt: skip
    if hint:
        query["lti_message_hint"] = hint
    mark = "&" if urlsplit(platform.authorize_url).query else "?"
    answer = redirect(f"{platform.authorize_url}{mark}{urlencode(query)}", 302)
    return _with_state(answer, browser)


@pages.post("/launch")
@limited(LAUNCHES)
def launch() -> tuple[str, int] | BaseResponse:
    """The second step: check what the platform signed, sign its reader in, lead them on."""
    state = _state()
    with services().store.read_autocommit() as store:
        platform = registrations.load_platform(store, int(state["p"]))
    if not hmac.compare_digest(_mark(request.cookies.get(STATE_COOKIE, "")), str(state["b"])):
        return _without_cookies(platform, state["again"])
    if "error" in request.form:
        raise LaunchRefused(PLATFORM_ANSWERED_ERROR(error=request.form["error"][:100]))
    found = _checked(platform, str(state["n"]))
    arrived = _arrive(platform, found)
    _sign_in(platform, arrived)
    return redirect(frames.PREFIX + _way(arrived, found), 303)


def launch_url() -> str:
    """Where launches are sent, by the configured address."""
    return f"{services().config.server.public_url.rstrip('/')}/lti/launch"


def _parameter(name: str) -> str:
    value = request.values.get(name, "")
    if len(value) > LONGEST:
        raise LaunchRefused(REQUEST_TOO_LONG)
    return value


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(current_app.secret_key or "", salt="lti-state")


def _state() -> dict[str, Any]:
    try:
        found = _signer().loads(request.form.get("state", "")[:LONGEST], max_age=STATE_S)
    except BadData:
        raise LaunchRefused(NOT_BEGUN_HERE) from None
    return dict(found)


def _mark(browser: str) -> str:
    return hashlib.sha256(browser.encode()).hexdigest()


def _with_state(answer: BaseResponse, browser: str) -> BaseResponse:
    """The cookie that ties a state to a browser; one for all its launches, so that several may be open."""
    answer.set_cookie(
        STATE_COOKIE, browser, max_age=STATE_S, path="/lti", secure=True, httponly=True, samesite="None",
        partitioned=True,
    )  # fmt: skip
    return answer


def _without_cookies(platform: Platform, again: Mapping[str, str]) -> tuple[str, int]:
    """The browser keeps no cookies in frames: offer a window, where it does.

    Nothing of this launch is used: the platform is asked again, there.
    """
    log.info("launch of platform %d without the cookie of its login", platform.id)
    way = f"{frames.PREFIX}/lti/login?{urlencode(again)}"
    return render_template("lti/open_window.html", way=way), 200


def _checked(platform: Platform, nonce: str) -> Launch:
    """The launch, if all of it is right. Raises LaunchRefused."""
    token = request.form.get("id_token", "")
    verified = launch_verification.verified(token, _keys(platform, token))
    with services().store.read() as store:
        moment = now(store).timestamp()
    found = launch_verification.checked(verified, platform, moment)
    if not hmac.compare_digest(found.nonce.encode(), nonce.encode()):
        raise LaunchRefused(OTHER_REQUEST)
    return found


def _keys(platform: Platform, token: str) -> dict[str, Any]:
    """The platform's keys; fetched when the one that is named is not among them, or they are old."""
    store = services().store
    with store.read_autocommit() as session_:
        age = registrations.jwks_age(session_, platform.id)
    if age is not None and age < OLD:
        try:
            launch_verification.verified(token, platform.jwks)
        except launch_verification.UnknownKey:
            if age < FRESH:
                raise
        else:
            return dict(platform.jwks)
    try:
        found = client.fetch_jwks(platform, services().config.server.allowed)
    except GraderError as error:
        log.warning("keys of platform %d: %s", platform.id, error.message)
        if platform.jwks:
            return dict(platform.jwks)
        raise
    with store.write() as session_:
        registrations.cache_jwks(session_, platform.id, found)
    return found


def _arrive(platform: Platform, found: Launch) -> LaunchResult:
    store = services().store
    with store.write() as session_:
        lti_launch.use_nonce(session_, platform.id, found)
        accepted = registrations.deployment_accepted(session_, platform.id, found.deployment)
    if not accepted:
        raise DeploymentUnknown
    with store.write() as session_:
        return lti_launch.handle_launch(session_, platform, found)


def _sign_in(platform: Platform, arrived: LaunchResult) -> None:
    found = auth.begin_session(arrived.user_id)
    session.clear()
    session.permanent = True
    session["lti_platform"] = platform.id
    login_user(found)


def _way(arrived: LaunchResult, found: Launch) -> str:
    """Where a launch leads, as a path below the frames'."""
    teaches = arrived.role == "instructor"
    if found.message == DEEP_LINKING or arrived.course_id is None or arrived.assignment_id is None:
        if not teaches:
            return "/lti/not-ready"
        with services().store.write() as store:
            waiting = lti_launch.save_pending_launch(store, arrived.user_id, arrived.context_id, found)
        return f"/lti/choose/{waiting}"
    if arrived.role == "student":
        return f"/assignments/{arrived.assignment_id}/submit"
    return f"/assignments/{arrived.assignment_id}"


without_token(pages, login, launch)  # platforms send browsers there; both have a state of their own


class LtiFrameHost:
    """The platform that launched this session, and all that may."""

    entrances = ("/lti/login", "/lti/launch")

    def courses(self, store: Session) -> frozenset[int] | None:
        """Those that belong to the platform; nothing without a launch."""
        platform_id = session.get("lti_platform")
        return lti_launch.courses_of(store, platform_id) if isinstance(platform_id, int) else None

    def origins(self, store: Session) -> tuple[str, ...]:
        """Of all platforms that are in use."""
        return registrations.origins(store)


@pages.record
def _install(state: BlueprintSetupState) -> None:
    frames.install(cast(Flask, state.app), LtiFrameHost())
