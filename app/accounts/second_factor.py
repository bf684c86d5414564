"""The second factor: the second step of signing in, and how people set it up, renew it and turn it off."""

from __future__ import annotations

import time
from dataclasses import dataclass

import segno
from flask import Blueprint, flash, make_response, redirect, render_template, request, session, url_for
from werkzeug.wrappers import Response

from app.accounts import sign_in
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.rate_limits import limited, per_person
from app.web.security import safe_next
from app.web.services import services
from grading.domain.errors import GraderError
from grading.store.accounts import credentials, second_factor, users
from grading.store.accounts.second_factor import WrongCode
from grading.store.accounts.sign_in_attempts import Caller, TriedTooOften

STEP_S = 600
"""How long after the password a code is accepted."""
ATTEMPTS = "20 per minute"
"""For one person who sets it up or changes it."""
pages = Blueprint("second_factor", __name__)


@dataclass(frozen=True)
class FirstStep:
    """Who gave the right password in this browser."""

    user_id: int
    known: bool
    """Whether the account knows this browser."""


@pages.get("/sign-in/code")
def form() -> str | Response:
    """The form for the code, such as after a change of the language."""
    if _first_step(sign_in.caller()) is None:
        return redirect(url_for("sign_in.form"), 303)
    return sign_in.code_form(safe_next(request.args.get("next")))


@pages.post("/sign-in/code")
@limited(sign_in.SIGN_INS)
def enter() -> str | tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Check the code of who gave the password a moment ago, and sign them in."""
    caller, target = sign_in.caller(), safe_next(request.form.get("next"))
    step = _first_step(caller)
    if step is None:
        session.pop(sign_in.AWAITS_CODE, None)
        flash(_("Too much time has passed since you entered the password. Sign in again."), "warning")
        return redirect(url_for("sign_in.form", next=target), 303)
    try:
        kind = second_factor.verify_code(
            services().store, step.user_id, _code(), caller, services().secret_key, known=step.known
        )
    except TriedTooOften as error:
        return sign_in.code_form(target, _waits(error)), 429, {"Retry-After": str(error.retry_after_s)}
    if kind is None:
        return sign_in.code_form(target, _wrong(step.user_id)), 401
    left = _record_sign_in(step.user_id)
    answer = sign_in.let_in(step.user_id, target)
    if kind == "recovery":
        flash(_used_recovery(left), "warning")
    return answer


def _first_step(caller: Caller) -> FirstStep | None:
    """What the cookie says; nothing when it is too old, or password or account changed since."""
    found = session.get(sign_in.AWAITS_CODE)
    if not isinstance(found, list) or len(found) != 3 or not 0 <= time.time() - found[2] + 5 <= STEP_S:
        return None
    with services().store.read_autocommit() as store:
        reader = users.load_reader(store, found[0])
    if reader is None or reader.stamp != found[1]:
        return None
    browser = caller.browser
    known = browser is not None and (browser.user_id, browser.stamp) == (found[0], reader.stamp)
    return FirstStep(found[0], known)


def _record_sign_in(user_id: int) -> int:
    """Write down that somebody signed in; returns how many recovery codes are left."""
    with services().store.write() as store:
        return second_factor.record_sign_in(store, user_id)


def _used_recovery(left: int) -> str:
    return ngettext(
        "You used a recovery code; %(count)s is left. If your device is lost, set up a new second factor.",
        "You used a recovery code; %(count)s are left. If your device is lost, set up a new second factor.",
        left,
    )


def _code() -> str:
    return request.form.get("one_time_code", "")[:100]


def _wrong(user_id: int) -> str:
    with services().store.read_autocommit() as store:
        state = second_factor.load_state(store, user_id, services().secret_key)
    if state.key_changed:
        return _(
            "The server's secret key has changed since you set up the second factor, so codes of your app "
            "no longer work. Use a recovery code, or ask an operator to reset your second factor."
        )
    return render_error(WrongCode())


def _waits(error: TriedTooOften) -> str:
    return ngettext(
        "Too many wrong codes. Try again in %(count)s second.",
        "Too many wrong codes. Try again in %(count)s seconds.",
        error.retry_after_s,
    )


@pages.get("/account/second-factor")
def show() -> str:
    """Whether there is a second factor, and the next step."""
    return _page()


@pages.post("/account/second-factor")
@limited(ATTEMPTS, per_person)
def begin() -> tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Make a secret for somebody who enters their password, to be confirmed by a code."""
    user_id = auth.actor().user_id
    try:
        _check_password()
        with services().store.write() as store:
            second_factor.begin_enrolment(store, user_id, services().secret_key)
    except GraderError as error:
        return _refused(error)
    return redirect(url_for("second_factor.show"), 303)


@pages.post("/account/second-factor/confirm")
@limited(ATTEMPTS, per_person)
def confirm() -> tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Turn it on by its first code; other sessions end, and the recovery codes are shown once."""
    reader, key = auth.user(), services().secret_key
    user_id, stamp = reader.actor.user_id, reader.stamp
    try:
        with services().store.write() as store:
            codes = second_factor.confirm_enrolment(store, user_id, _code(), key, keep=reader.session_id)
    except GraderError as error:
        return _refused(error)
    auth.go_on(reader)
    return sign_in.stay_known(make_response(_page(codes=codes)), user_id, stamp)


@pages.post("/account/second-factor/recovery-codes")
@limited(ATTEMPTS, per_person)
def renew() -> str | tuple[str, int] | tuple[str, int, dict[str, str]]:
    """New recovery codes in the place of the old ones, for who shows both factors."""
    user_id = auth.actor().user_id
    try:
        _check_both()
        with services().store.write() as store:
            codes = second_factor.renew_recovery_codes(store, user_id)
    except GraderError as error:
        return _refused(error)
    return _page(codes=codes)


@pages.post("/account/second-factor/remove")
@limited(ATTEMPTS, per_person)
def remove() -> tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Turn it off, for who shows both factors."""
    user_id = auth.actor().user_id
    try:
        _check_both()
        with services().store.write() as store:
            second_factor.remove(store, user_id, f"user:{user_id}")
    except GraderError as error:
        return _refused(error)
    flash(_("Second factor turned off."))
    return redirect(url_for("second_factor.show"), 303)


def _check_password() -> None:
    """Raises WrongPassword and TriedTooOften."""
    user = auth.user()
    caller, password = sign_in.caller_of(user), request.form.get("password", "")[:1000]
    credentials.confirm_password(services().store, user.actor.user_id, password, caller, "password.confirm")


def _check_both() -> None:
    """Raises WrongPassword, WrongCode and TriedTooOften."""
    _check_password()
    user = auth.user()
    caller, key = sign_in.caller_of(user), services().secret_key
    kind = second_factor.verify_code(services().store, user.actor.user_id, _code(), caller, key, known=True)
    if kind is None:
        raise WrongCode


def _refused(error: GraderError) -> tuple[str, int] | tuple[str, int, dict[str, str]]:
    if isinstance(error, TriedTooOften):
        return (
            _page(_("Too many wrong attempts. Wait a moment, then try again.")),
            error.status,
            {"Retry-After": str(error.retry_after_s)},
        )
    return _page(render_error(error)), error.status


def _page(problem: str = "", codes: tuple[str, ...] = ()) -> str:
    user_id, key = auth.actor().user_id, services().secret_key
    with services().store.read_autocommit() as store:
        state = second_factor.load_state(store, user_id, key)
        name = users.sign_in_name(store, user_id)
        enrolment = second_factor.load_enrolment(store, user_id, name, key)
        has_password = users.has_password(store, user_id)
    return render_template(
        "accounts/second_factor.html", state=state, enrolment=enrolment, name=name, codes=codes,
        qr=_qr_code(enrolment.uri) if enrolment else "", has_password=has_password, problem=problem,
    )  # fmt: skip


def _qr_code(text: str) -> str:
    """An SVG as the address of an image, black on white in dark pages, too."""
    return segno.make(text, error="m", micro=False).svg_data_uri(omitsize=True, dark="#000", light="#fff")
