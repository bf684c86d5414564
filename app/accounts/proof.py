"""Proof that who is signed in is whose account it is, asked for where sign-ins are linked or unlinked.

Password and second factor where the password works here; else a sign-in, made just now, at a provider that
already opens the account. That somebody holds a session is not enough: it may be a stolen one.
"""

from __future__ import annotations

from dataclasses import dataclass

from flask import request, session

from app.accounts import sign_in
from app.accounts.single_sign_on import PROVED, mark_of
from app.web import auth
from app.web.i18n import gettext as _
from app.web.services import services
from grading.store.accounts import credentials, second_factor, single_sign_on, users
from grading.store.accounts.second_factor import WrongCode
from grading.store.accounts.sign_in_attempts import Caller
from grading.store.database import now

LASTS_S = 600
"""How long a sign-in counts that was made again."""


@dataclass(frozen=True)
class Proof:
    """What is asked for."""

    password: bool
    code: bool
    """A code of the second factor, with the password."""
    providers: tuple[str, ...] = ()
    """Without a password: the providers of identities, one of which must be shown anew."""
    shown: bool = False
    """One of them was."""


def asked(reader: auth.SignedIn) -> Proof:
    """What this reader is asked for."""
    user_id = reader.actor.user_id
    with services().store.read_autocommit() as store:
        works = credentials.may_have_password(store, [user_id], local_accounts=sign_in.passwords_on())
        if works and users.has_password(store, user_id):
            return Proof(True, second_factor.has_second_factor(store, user_id))
        linked = single_sign_on.list_sign_ons(store, user_id)
        shown = _shown(reader, now(store).timestamp())
    return Proof(False, False, tuple(one.provider for one in linked if not one.locked), shown)


def problem(reader: auth.SignedIn) -> str:
    """What is wrong with the proof in the form that was sent; empty where nothing is.

    Raises WrongCode, TriedTooOften.
    """
    proof = asked(reader)
    if not proof.password:
        return "" if proof.shown else _("First sign in again, to show that this is your account.")
    given = request.form.get("old", "")[:1000]
    if not given:
        return _("Enter your current password.")
    caller = sign_in.caller_of(reader)
    with services().store.read_autocommit() as store:
        name = users.sign_in_name(store, reader.actor.user_id)
    found = credentials.verify_password(services().store, name, given, caller, "password.check")
    if found != reader.actor.user_id:
        return _("The current password is wrong. Nothing was changed.")
    if proof.code:
        _check_code(reader.actor.user_id, caller)
    return ""


def _check_code(user_id: int, caller: Caller) -> None:
    code, key = request.form.get("one_time_code", "")[:100], services().secret_key
    if second_factor.verify_code(services().store, user_id, code, caller, key, known=True) is None:
        raise WrongCode


def _shown(reader: auth.SignedIn, moment: float) -> bool:
    """Whether this browser's session was shown to be its owner's a moment ago, by the database's clock."""
    found = session.get(PROVED)
    if not isinstance(found, list) or len(found) != 2 or found[0] != mark_of(reader):
        return False
    return bool(-5 <= moment - found[1] < LASTS_S)
