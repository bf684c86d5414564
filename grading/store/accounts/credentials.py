"""Credentials of users: passwords, sessions and API tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import Forbidden, NotFound
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.accounts import second_factor, sessions, sign_in_attempts, users
from grading.store.accounts.sign_in_attempts import Caller, KnownBrowser
from grading.store.audit import write_audit
from grading.store.database import Store, now

NO_SUCH_TOKEN_OF_YOURS = define_message("tokens.no_such_token_of_yours", "You have no such token.")


class WrongPassword(Forbidden):
    """The current password is wrong. Nothing was changed."""

    code = "wrong_password"
    default_message = define_message(
        "error.wrong_password", "The current password is wrong. Nothing was changed."
    )


class LocalAccountsOff(Forbidden):
    """Passwords of Grader are turned off on this server. Sign in through your school."""

    code = "local_accounts_off"
    default_message = define_message(
        "error.local_accounts_off",
        "Passwords of Grader are turned off on this server. Sign in through your school.",
    )


SIGN_IN = "sign_in"


def verify_password(
    store: Store,
    sign_in_name: str,
    password: str,
    caller: Caller,
    action: str = SIGN_IN,
    *,
    break_glass_only: bool = False,
) -> int | None:
    """The user's id, or None when name or password is wrong. Raises TriedTooOften.

    All failures cost the same, so that nobody learns which names exist: unknown names and accounts that are
    disabled or have no password run the same statements and one computation of a hash. With
    `break_glass_only` the same goes for all accounts that are no break-glass accounts. An account with a
    second factor is not signed in yet.
    """
    name = sign_in_name.strip()
    with store.write() as session:
        user = users.find_user(session, "local", name)
        tried = sign_in_attempts.count_attempt(
            session, name, caller, known=_is_known_browser(user, caller.browser)
        )
        allowed = user is not None and not user.disabled and (user.break_glass or not break_glass_only)
    stored = user.password_hash if user is not None and allowed else None
    if not users.password_matches(stored, password) or user is None:
        return None
    with store.write() as session:
        sign_in_attempts.record_success(session, tried)
        if action == SIGN_IN and second_factor.has_second_factor(session, user.id):
            action = "password.first_step"
        write_audit(session, f"user:{user.id}", action, f"user:{user.id}")
    return user.id


def require_local(session: Session, user_ids: Sequence[int], *, local_accounts: bool) -> None:
    """Go on if passwords of these users work. Raises LocalAccountsOff."""
    if not may_have_password(session, user_ids, local_accounts=local_accounts):
        raise LocalAccountsOff


def may_have_password(session: Session, user_ids: Sequence[int], *, local_accounts: bool) -> bool:
    """Whether passwords of all of these users work: of break-glass accounts always, else if they are on."""
    if local_accounts:
        return True
    exempt = select(func.count()).where(tables.User.id.in_(user_ids), tables.User.break_glass)
    return session.scalar(exempt) == len(set(user_ids))


def _is_known_browser(user: tables.User | None, browser: KnownBrowser | None) -> bool:
    if user is None or browser is None:
        return False
    return (user.id, users.session_stamp(user)) == (browser.user_id, browser.stamp)


def confirm_password(store: Store, user_id: int, password: str, caller: Caller, action: str) -> None:
    """Check the password of somebody who is signed in; failures count as at sign-in.

    Raises WrongPassword and TriedTooOften.
    """
    with store.read() as session:
        name = users.sign_in_name(session, user_id)
    if verify_password(store, name, password, caller, action) != user_id:
        raise WrongPassword


def change_password(
    store: Store,
    user_id: int,
    old: str,
    new: str,
    caller: Caller,
    *,
    others_end: bool = False,
    keep: str = "",
) -> None:
    """Set a new password after checking the old one; failures count as at sign-in.

    Raises WrongPassword and TriedTooOften. All sessions but `keep` end. With `others_end`, API tokens end,
    too, and sign-ins that were linked are locked.
    """
    hashed = users.hash_password(new)
    confirm_password(store, user_id, old, caller, "password.check")
    with store.write() as session:
        users.set_password(session, session.get_one(tables.User, user_id), new, hashed, keep=keep)
        if others_end:
            end_what_was_added(session, user_id, f"user:{user_id}")


def end_sessions(session: Session, user_id: int, keep: str = "") -> None:
    """End all sessions of a user on all devices, but one if `keep` names it; tokens stay valid."""
    user = session.get_one(tables.User, user_id, with_for_update=True)
    user.sessions += 1
    sessions.end_sessions(session, user_id, keep)
    write_audit(session, f"user:{user_id}", "session.end_all", f"user:{user_id}")


TOKENS_PER_PAGE = 25
"""Tokens on a page."""


@dataclass(frozen=True)
class TokenView:
    """A token as its owner sees it."""

    id: int
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    active: bool


def revoke_token(session: Session, user_id: int, token_id: int) -> None:
    """Revoke one's own token. Raises NotFound for tokens of others."""
    row = session.get(tables.Token, token_id)
    if row is None or row.user_id != user_id:
        raise NotFound(NO_SUCH_TOKEN_OF_YOURS)
    row.revoked_at = row.revoked_at or now(session)
    write_audit(session, f"user:{user_id}", "token.revoke", f"token:{token_id}")


def revoke_tokens(session: Session, user_id: int, by: str) -> int:
    """Revoke all tokens of a user whose password may be compromised; returns how many."""
    query = select(tables.Token).where(tables.Token.user_id == user_id, tables.Token.revoked_at.is_(None))
    rows, moment = session.scalars(query.order_by(tables.Token.id)).all(), now(session)
    for row in rows:
        row.revoked_at = moment
        write_audit(session, by, "token.revoke", f"token:{row.id}")
    return len(rows)


def end_what_was_added(session: Session, user_id: int, by: str) -> None:
    """Revoke the tokens and lock the linked sign-ins of an account whose password is set anew.

    Whoever knew the password before may have made and linked them, and nobody knows that they did not. A
    sign-in by which the account was made, or that a rule linked, was not added by anybody: it stays.
    """
    revoke_tokens(session, user_id, by)
    theirs = (tables.Identity.user_id == user_id, tables.Identity.linked_at.is_not(None))
    locking = update(tables.Identity).where(*theirs, ~tables.Identity.locked).values(locked=True)
    count = len(session.scalars(locking.returning(tables.Identity.id)).all())
    if count:
        write_audit(session, by, "sign_on.lock", f"user:{user_id}", {"count": count})


def list_tokens(session: Session, user_id: int, before: int | None = None) -> tuple[TokenView, ...]:
    """A user's tokens below id `before`, the newest first: a page and one more."""
    moment = now(session)
    token = tables.Token
    columns = (token.id, token.name, token.scopes, token.created_at, token.expires_at, token.revoked_at)
    query = select(*columns).where(token.user_id == user_id).order_by(token.id.desc())
    if before is not None:
        query = query.where(token.id < before)
    return tuple(
        TokenView(
            row.id,
            row.name,
            tuple(row.scopes),
            row.created_at,
            row.expires_at,
            row.revoked_at is None and row.expires_at > moment,
        )
        for row in session.execute(query.limit(TOKENS_PER_PAGE + 1))
    )
