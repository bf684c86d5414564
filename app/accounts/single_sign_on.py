"""Single sign-on: to a provider and back, signing out there, and providers that sign somebody out here."""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass
from typing import Any, cast

from flask import (
    Blueprint,
    Flask,
    Response,
    current_app,
    flash,
    jsonify,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from flask.blueprints import BlueprintSetupState
from flask_login import current_user, login_user
from werkzeug.wrappers import Response as BaseResponse

from app.accounts.single_sign_on_client import STATE_UNKNOWN, SignOnClient
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import render_error, render_message
from app.web.rate_limits import limited
from app.web.request_ids import request_id
from app.web.security import safe_next, without_token
from app.web.services import services
from grading.config.sign_on import Provider
from grading.domain.errors import GraderError, NotFound
from grading.domain.messages import define_message
from grading.integrations.oidc import claims, client, tokens
from grading.integrations.oidc.discovery import Directory
from grading.integrations.oidc.values import Metadata, Person, SignOnRefused, provider_of
from grading.integrations.told_texts import text_of
from grading.store.accounts import sessions, single_sign_on
from grading.store.accounts.sessions import SignOnOrigin
from grading.store.database import now

NO_SUCH_PROVIDER = define_message("sign_on.no_such_provider", "This provider does not exist.")
NO_SECRET = define_message(
    "sign_on.no_secret", "Grader has no secret for this provider. Tell an administrator of Grader."
)
CANCELLED = define_message(
    "sign_on.cancelled", "The provider did not sign you in: you cancelled, or it does not let you use Grader."
)
PROVIDER_ERROR = define_message("sign_on.provider_error", "The provider answered with an error: %(error)s.")
TWICE = define_message("sign_on.twice", "The provider's answer has '%(name)s' more than once.")
NO_CODE = define_message("sign_on.no_code", "The provider's answer has no code.")
TOO_LONG = define_message("sign_on.too_long", "The provider's answer is too long.")
MIXED_UP = define_message(
    "sign_on.mixed_up",
    "The answer is from another provider than the one you chose. Sign in again from Grader's own page.",
)
NOT_THE_SAME = define_message(
    "sign_on.not_the_same",
    "You signed out, or another person signed in, meanwhile. Nothing was linked.",
)
NO_LOGOUT_TOKEN = define_message("sign_on.no_logout_token", "The request has no logout token.")

SIGN_ONS = "300 per minute"
"""For one address; a whole class may sit behind it."""
LOGOUTS = "600 per minute"
PROVED = "proved"
"""Key of the cookie's session: which session's owner signed in at a provider again, and when."""
ANSWER = ("state", "iss", "error", "error_description", "code")
LONGEST = 4000
pages = Blueprint("sign_on", __name__, url_prefix="/sign-on")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """A provider of config.toml."""

    name: str
    provider: Provider

    @property
    def title(self) -> str:
        """What people call it."""
        return self.provider.title

    @property
    def identity_provider(self) -> str:
        """How its identities are called."""
        return provider_of(self.provider.issuer)

    def metadata(self) -> Metadata:
        """What it publishes. Raises ProviderFailed."""
        return directory().metadata(self.provider.issuer)

    def client(self) -> SignOnClient:
        """Authlib's client of it. Raises ProviderFailed."""
        secret = services().sign_on_secrets.get(self.name, "")
        if not secret:
            raise SignOnRefused(NO_SECRET)
        return SignOnClient.of(
            self.name, self.provider, secret, self.metadata(), services().config.server.allowed
        )

    def claims(self, token: str) -> dict[str, Any]:
        """The claims of a token that it signed. Raises SignOnRefused."""
        return directory().claims(self.provider.issuer, token)

    def address(self, endpoint: str) -> str:
        """Of one of our pages for it, by the configured address, never by what a request says."""
        base = services().config.server.public_url.rstrip("/")
        return f"{base}{url_for(endpoint, name=self.name)}"


def directory() -> Directory:
    """What providers publish, as this process knows it."""
    return cast(Directory, current_app.extensions["grader-sign-on"])


def known_providers() -> tuple[Known, ...]:
    """All of config.toml."""
    return tuple(Known(name, one) for name, one in services().config.sign_on.providers.items())


def find_known(name: str) -> Known:
    """The provider of this name. Raises NotFound."""
    found = services().config.sign_on.providers.get(name)
    if found is None:
        raise NotFound(NO_SUCH_PROVIDER)
    return Known(name, found)


@pages.get("/<name>")
@limited(SIGN_ONS)
def begin(name: str) -> BaseResponse:
    """Send the browser to the provider, with a state, a nonce and a code challenge."""
    known = find_known(name)
    target = safe_next(request.args.get("next", "")[:LONGEST])
    if "again" in request.args:
        return redirect(begin_again(known, "prove", auth.user(), next=target))
    return redirect(known.client().begin(known.address("sign_on.answer"), next=target))


def begin_again(known: Known, purpose: str, reader: auth.SignedIn, **kept: Any) -> str:
    """The way to a sign-in of who is signed in here, at a provider that is to ask for credentials anew.

    `purpose` is `link`, or `prove`: that it is their account. Raises SignOnRefused.
    """
    with services().store.read() as store:
        since = now(store).timestamp()
    tied = {purpose: mark_of(reader), "since": since, **kept}
    return known.client().begin(known.address("sign_on.answer"), again=True, **tied)


@pages.get("/<name>/callback")
@limited(SIGN_ONS)
def answer(name: str) -> BaseResponse:
    """Take the provider's answer: sign in, or link it with the account of who is signed in."""
    known = find_known(name)
    client_ = known.client()
    told = _told()
    begun = client_.take(told["state"])
    _require_answer(known, told)
    person, id_claims, id_token = _person(known, client_, told["code"], begun)
    with services().store.read() as store:
        moment = now(store).timestamp()
    if begun.get("link"):
        tokens.require_fresh(id_claims, _since(begun), told=False)
        return _link(known, person, begun, moment)
    if begun.get("prove"):
        tokens.require_fresh(id_claims, _since(begun), told=True)
        return _prove(person, begun, moment)
    arrived = single_sign_on.sign_in(services().store, person, str(begun["nonce"]), moment)
    origin = SignOnOrigin(arrived.identity_id, tokens.session_of(id_claims), id_token)
    found = auth.begin_session(arrived.user_id, origin)
    session.clear()
    session.permanent = True
    login_user(found)
    if arrived.reset:
        flash(
            _(
                "Your account is now opened by %(title)s only: its password and API tokens from before no "
                "longer work. Create new tokens if you need them.",
                title=known.title,
            ),
            "warning",
        )
    return redirect(safe_next(begun.get("next")) or url_for("home.home"), 303)


def _told() -> dict[str, str]:
    """The answer's parameters; empty where it has none. Raises SignOnRefused."""
    for name in ANSWER:
        if len(request.args.getlist(name)) > 1:
            raise SignOnRefused(TWICE(name=name))
        if len(request.args.get(name, "")) > LONGEST:
            raise SignOnRefused(TOO_LONG)
    return {name: request.args.get(name, "") for name in ANSWER}


def _require_answer(known: Known, told: dict[str, str]) -> None:
    """Go on with a code of the provider that was asked. Raises SignOnRefused."""
    issuer = told["iss"]
    if (issuer or known.metadata().names_itself) and issuer != known.provider.issuer:
        raise SignOnRefused(MIXED_UP)
    if told["error"] == "access_denied":
        raise SignOnRefused(CANCELLED)
    if told["error"]:
        said = ": ".join(filter(None, (text_of(told[one]) for one in ("error", "error_description"))))
        raise SignOnRefused(PROVIDER_ERROR(error=said.rstrip(".")))
    if not told["code"]:
        raise SignOnRefused(NO_CODE)


def _person(
    known: Known, client_: SignOnClient, code: str, begun: dict[str, Any]
) -> tuple[Person, dict[str, Any], str]:
    """Who the provider says signed in, with the claims and the text of its ID token. Raises SignOnRefused."""
    id_token, access_token = client_.redeem(code, begun)
    tokens.require_type(id_token, "jwt")
    found = known.claims(id_token)
    with services().store.read() as store:
        moment = now(store).timestamp()
    provider, endpoint = known.provider, known.metadata().userinfo_endpoint
    subject = tokens.check_id_token(
        found, provider.issuer, provider.client_id, str(begun["nonce"]), access_token, moment
    )
    user_info: dict[str, Any] = {}
    if endpoint:
        user_info = client.fetch_user_info(endpoint, access_token, services().config.server.allowed)
        tokens.check_user_info(user_info, subject)
    return claims.person_of(provider, subject, found, user_info), found, id_token


def mark_of(reader: auth.SignedIn) -> str:
    """Ties a sign-in that is to be linked to the session that began it."""
    return f"{reader.actor.user_id}:{reader.session_id}"


def _since(begun: dict[str, Any]) -> float:
    """When a sign-in of who is signed in here began. Raises SignOnRefused."""
    if "since" not in begun:  # by a web host of the version before, during a rolling update
        raise SignOnRefused(STATE_UNKNOWN)
    return float(begun["since"])


def _same_reader(mark: str) -> auth.SignedIn:
    """Who is signed in, if it is who began this. Raises SignOnRefused."""
    reader = auth.user()
    if not hmac.compare_digest(mark.encode(), mark_of(reader).encode()):
        raise SignOnRefused(NOT_THE_SAME)
    return reader


def _prove(person: Person, begun: dict[str, Any], moment: float) -> BaseResponse:
    """Remember in this browser, not in the session's row, who showed that the account is theirs.

    A copy of the cookie that was made before knows nothing of it.
    """
    reader = _same_reader(str(begun["prove"]))
    single_sign_on.confirm(services().store, reader.actor.user_id, person, str(begun["nonce"]), moment)
    session[PROVED] = [mark_of(reader), int(moment)]
    return redirect(safe_next(begun.get("next")) or url_for("profile.show"), 303)


def _link(known: Known, person: Person, begun: dict[str, Any], moment: float) -> BaseResponse:
    reader = _same_reader(str(begun["link"]))
    store, user_id, nonce = services().store, reader.actor.user_id, str(begun["nonce"])
    try:
        single_sign_on.link(store, user_id, reader.session_id, person, nonce, moment)
    except GraderError as error:
        flash(render_error(error), "danger")
    else:
        flash(_("Linked: %(title)s, as %(name)s.", title=known.title, name=person.name or person.subject))
    return redirect(url_for("profile.show"), 303)


@pages.post("/<name>/logout")
@limited(LOGOUTS)
def sign_out(name: str) -> Response | tuple[Response, int]:
    """A provider says that somebody signed out there: their sessions that began with it end."""
    known = find_known(name)
    try:
        token = request.form.get("logout_token", "")
        if not token:
            raise SignOnRefused(NO_LOGOUT_TOKEN)
        tokens.require_type(token, "jwt", "logout+jwt")
        found = known.claims(token)
        with services().store.write() as store:
            moment = now(store).timestamp()
            told = tokens.check_logout_token(found, known.provider.issuer, known.provider.client_id, moment)
            ended = single_sign_on.sign_out(store, known.identity_provider, told)
    except SignOnRefused as error:
        log.warning("a logout token of provider %s was refused: %s", name, error.message)
        response = jsonify(error="invalid_request", error_description=error.message)
        return response, 400
    log.info("provider %s ended %d sessions", name, ended)
    return jsonify(ended=ended)


@pages.get("/signed-out")
def signed_out() -> BaseResponse:
    """Where a provider sends who signed out there, too."""
    flash(_("You signed out."))
    return redirect(url_for("sign_in.form"), 303)


def origin_of_session() -> tuple[Known, str] | None:
    """The provider that this browser's session began with, and its ID token; None for other sessions."""
    session_id = auth.session_of(str(session.get("_user_id", ""))).id
    with services().store.read() as store:
        found = sessions.load_origin(store, session_id)
    known = (one for one in known_providers() if found and one.identity_provider == found[0])
    return next(((one, found[1]) for one in known if found), None)


def signed_out_page(known: Known, id_token: str) -> str | None:
    """For who signed out here: the way to sign out at the provider, too; None where it offers none."""
    try:
        client_ = known.client()
    except GraderError as error:
        log.info("signing out at provider %s is not offered: %s", known.name, error.message)
        return None
    if not client_.server_metadata.get("end_session_endpoint"):
        return None
    base = services().config.server.public_url.rstrip("/")
    way = client_.logout_url(f"{base}{url_for('sign_on.signed_out')}", id_token)
    return render_template("accounts/signed_out.html", known=known, way=way)


@pages.errorhandler(SignOnRefused)
def refused(error: SignOnRefused) -> tuple[str, int]:
    """A page of its own: why, and where to go on."""
    name = (request.view_args or {}).get("name", "")
    log.info("sign-in by provider %s refused: %s", name, error.message)
    provider = services().config.sign_on.providers.get(name)
    page = render_template(
        "accounts/sign_on_refused.html", message=render_message(error.coded), error=error,
        title=provider.title if provider else "", signed_in=current_user.is_authenticated,
        request_id=request_id(),
    )  # fmt: skip
    return page, error.status


without_token(pages, sign_out)  # a provider sends it; its signature is the proof


@pages.app_context_processor
def _providers() -> dict[str, object]:
    return {"sign_on_providers": known_providers}


@pages.record
def _install(state: BlueprintSetupState) -> None:
    app = cast(Flask, state.app)
    app.extensions["grader-sign-on"] = Directory(app.extensions["grader"].config.server.allowed)
