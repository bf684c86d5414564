"""Where platforms send browsers: the OIDC login, the launch, the tool's keys, and frames."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
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
    url_for,
)
from flask.blueprints import BlueprintSetupState
from flask_login import current_user, login_user
from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.web import auth, frames
from app.web.i18n import render_message
from app.web.rate_limits import limited, within
from app.web.request_ids import request_id
from app.web.security import without_token
from app.web.services import services
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.integrations.lti import client, launch_verification
from grading.integrations.lti.values import DEEP_LINKING, Launch, LaunchRefused, Platform
from grading.integrations.told_texts import text_of
from grading.store.database import now
from grading.store.integrations.lti import launch as lti_launch
from grading.store.integrations.lti import registrations
from grading.store.integrations.lti.launch import LaunchResult
from grading.store.views.submission import load_view

PLATFORM_UNKNOWN = define_message(
    "lti_launch.platform_unknown",
    "This learning platform is not registered in Grader, or its request names no issuer or client "
    "ID. Ask an administrator of Grader to register it.",
)
PLATFORM_ANSWERED_ERROR = define_message(
    "lti_launch.platform_answered_error", "The learning platform answered with an error: %(error)s."
)
REQUEST_TOO_LONG = define_message(
    "lti_launch.request_too_long",
    "The learning platform's request is longer than Grader accepts. "
    "Report this to the platform's administrator.",
)
OTHER_REQUEST = define_message(
    "lti_launch.other_request",
    "The launch belongs to another login request. Open the assignment in the learning platform again.",
)
NOT_BEGUN_HERE = define_message(
    "lti_launch.not_begun_here",
    "This launch has expired or was started in another browser. Open the assignment in the learning "
    "platform again.",
)

log = logging.getLogger(__name__)
LAUNCHES = "1200 per minute"
"""For one address; several classes may sit behind it."""
pages = Blueprint("lti", __name__, url_prefix="/lti")
STATE_COOKIE = "__Secure-grader-lti"
STATE_S = 600
LOGIN = ("iss", "login_hint", "target_link_uri", "lti_message_hint", "client_id", "lti_deployment_id")
"""What a platform says when it asks for a launch; LTI 1.3 and OpenID Connect's third-party login."""
TESTED = "cookie"
"""The parameter of the second request, by a browser that was given a cookie."""
FETCHES_OF_KEY, FETCHES = "1 per minute", "10 per minute"
"""How often keys are fetched for one that is not known, and for all of a platform together."""
OLD = timedelta(hours=12)
"""Then they are fetched again, so that a key that was withdrawn does not count for ever."""
LONGEST = 8000


class DeploymentUnknown(LaunchRefused):
    """This deployment of the tool is not accepted yet."""

    status = 403
    default_message = define_message(
        "error.deployment_unknown",
        "This deployment of the tool is not accepted yet. Ask an administrator of Grader to accept "
        "it on the page Learning platforms.",
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
def login() -> BaseResponse | str:
    """The first step: send the browser to its platform, with a state and a nonce, once it keeps a cookie."""
    asked = {name: value for name in LOGIN if (value := _parameter(name))}
    with services().store.read_autocommit() as store:
        platform = registrations.find_platform(store, asked.get("iss", ""), asked.get("client_id", ""))
    if platform is None or "login_hint" not in asked:
        raise LaunchRefused(PLATFORM_UNKNOWN)
    browser = request.cookies.get(STATE_COOKIE, "")
    if len(browser) == 43 and browser.isascii():
        return _to_platform(platform, asked, browser)
    again = f"/lti/login?{urlencode(asked)}"
    if TESTED in request.args:
        log.info("the browser blocks the cookie of the LTI launch of platform %d", platform.id)
        alone = request.headers.get("Sec-Fetch-Dest") == "document"
        return render_template("lti/open_window.html", way=again, alone=alone)
    return _with_state(redirect(f"{again}&{TESTED}=1", 303), secrets.token_urlsafe(32))


@pages.post("/launch")
@limited(LAUNCHES)
def launch() -> BaseResponse:
    """The second step: check what the platform signed, sign its reader in, lead them on."""
    state = _state()
    with services().store.read_autocommit() as store:
        platform = registrations.load_platform(store, int(state["p"]))
    if not hmac.compare_digest(_mark(request.cookies.get(STATE_COOKIE, "")), str(state["b"])):
        raise LaunchRefused(NOT_BEGUN_HERE)
    if "error" in request.form:
        said = (text_of(request.form.get(name), 200) for name in ("error", "error_description"))
        raise LaunchRefused(PLATFORM_ANSWERED_ERROR(error=": ".join(filter(None, said)).rstrip(".")))
    found = _checked(platform, str(state["n"]))
    arrived = _arrive(platform, found)
    _sign_in(platform, arrived)
    return redirect(frames.PREFIX + _way(arrived, found), 303)


@pages.get("/results/<submission_id>")
@limited(LAUNCHES)
def result(submission_id: str) -> BaseResponse | str:
    """Where comments in gradebooks lead: to the result, and who is not signed in through the platform."""
    with services().store.read_autocommit() as store:
        links = lti_launch.links_of(store, submission_id[:32])
        if links and not current_user.is_authenticated:
            page = url_for("submissions.submission", submission_id=submission_id)
            return render_template("lti/open_there.html", links=links, page=page)
        auth.require_seen(auth.actor(), load_view(store, submission_id[:32]))
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


@pages.errorhandler(LaunchRefused)
def refused(error: LaunchRefused) -> tuple[str, int]:
    """A page of its own: why, and where to go on."""
    log.info("LTI launch refused: %s", error.message)
    page = render_template(
        "lti/refused.html", message=render_message(error.coded), error=error, request_id=request_id()
    )
    return page, error.status


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


def _to_platform(platform: Platform, asked: Mapping[str, str], browser: str) -> BaseResponse:
    nonce = secrets.token_urlsafe(24)
    query = {
        "response_type": "id_token", "response_mode": "form_post", "scope": "openid", "prompt": "none",
        "client_id": platform.client_id, "redirect_uri": launch_url(), "login_hint": asked["login_hint"],
        "state": _signer().dumps({"p": platform.id, "n": nonce, "b": _mark(browser)}), "nonce": nonce,
    }  # fmt: skip
    if "lti_message_hint" in asked:
        query["lti_message_hint"] = asked["lti_message_hint"]
    mark = "&" if urlsplit(platform.authorize_url).query else "?"
    return _with_state(redirect(f"{platform.authorize_url}{mark}{urlencode(query)}", 302), browser)


def _with_state(answer: BaseResponse, browser: str) -> BaseResponse:
    """The cookie that ties a state to a browser; one for all its launches, so that several may be open."""
    answer.set_cookie(
        STATE_COOKIE, browser, max_age=STATE_S, path="/lti", secure=True, httponly=True, samesite="None",
        partitioned=True,
    )  # fmt: skip
    return answer


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
    """The platform's keys; fetched when they are old, or the one that is named is not among them."""
    if _fresh(platform) and _has_key(platform, token):
        return dict(platform.jwks)
    with _one_fetch():  # others wait, and find what it brought
        with services().store.read_autocommit() as session_:
            platform = registrations.load_platform(session_, platform.id)
        if _fresh(platform) and (_has_key(platform, token) or not _may_fetch(platform, token)):
            return dict(platform.jwks)
        return _fetched(platform)


def _fresh(platform: Platform) -> bool:
    with services().store.read_autocommit() as session_:
        age = registrations.jwks_age(session_, platform.id)
    return age is not None and age < OLD


def _one_fetch() -> threading.Lock:
    return cast(threading.Lock, current_app.extensions["grader-lti-keys"])


def _fetched(platform: Platform) -> dict[str, Any]:
    store = services().store
    try:
        found = client.fetch_jwks(platform, services().config.server.allowed)
    except GraderError as error:
        log.warning("the keys (JWKS) of platform %d could not be read: %s", platform.id, error.message)
        if platform.jwks:
            return dict(platform.jwks)
        raise
    with store.write() as session_:
        registrations.cache_jwks(session_, platform.id, found)
    return found


def _has_key(platform: Platform, token: str) -> bool:
    try:
        launch_verification.verified(token, platform.jwks)
    except launch_verification.UnknownKey:
        return False
    return True


def _may_fetch(platform: Platform, token: str) -> bool:
    """Whether keys may be fetched for this token: anybody can name a key that does not exist."""
    kid = str(launch_verification.header_of(token).get("kid"))[:200]
    number = str(platform.id)
    return within(FETCHES_OF_KEY, "lti-key", number, kid) and within(FETCHES, "lti-keys", number)


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
    state.app.extensions["grader-lti-keys"] = threading.Lock()
    frames.install(cast(Flask, state.app), LtiFrameHost())
