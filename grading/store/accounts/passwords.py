"""Checking passwords, and what people do with their own password and sessions."""

from __future__ import annotations

from sqlalchemy.orm import Session

from grading.domain.errors import Forbidden
from grading.store import tables
from grading.store.accounts import sessions, sign_in_attempts, tokens, users
from grading.store.accounts.sign_in_attempts import Caller, KnownBrowser
from grading.store.audit import note
from grading.store.database import Store


class WrongPassword(Forbidden):
    """Your present password is not right; nothing changed."""

    code = "wrong_password"


def check(
    store: Store, sign_in_name: str, password: str, caller: Caller, action: str = "sign_in"
) -> int | None:
    """The user's id, or nothing when name or password is wrong. Raises TriedTooOften.

    Until it is right, all cost the same, so that nobody learns which names exist: unknown names, accounts
    that are disabled or have no password, and others take the same statements and one computation of a hash.
    """
    name = sign_in_name.strip()
    with store.write() as session:
        user = users.find_user(session, "local", name)
        tried = sign_in_attempts.count(session, name, caller, known=_knows(user, caller.browser))
    stored = user.password_hash if user is not None and not user.disabled else None
    if not users.matches(stored, password) or user is None:
        return None
    with store.write() as session:
        sign_in_attempts.was_right(session, tried)
        note(session, f"user:{user.id}", action, f"user:{user.id}")
    return user.id


def _knows(user: tables.User | None, browser: KnownBrowser | None) -> bool:
    if user is None or browser is None:
        return False
    return (user.id, users.session_stamp(user)) == (browser.user_id, browser.stamp)


def change(
    store: Store, user_id: int, old: str, new: str, caller: Caller, *, tokens_end: bool = False
) -> None:
    """Set a new password for who knows the old one; wrong ones count as at sign-in.

    Raises WrongPassword and TriedTooOften. All sessions end; the user's API tokens where that is wanted.
    """
    with store.read() as session:
        name = users.sign_in_name(session, user_id)
    hashed = users.hash_password(new)
    if check(store, name, old, caller, "password.check") != user_id:
        raise WrongPassword
    with store.write() as session:
        users.set_password(session, session.get_one(tables.User, user_id), new, hashed)
        if tokens_end:
            tokens.revoke_tokens(session, user_id, f"user:{user_id}")


def end_sessions(session: Session, user_id: int) -> None:
    """End all sessions of a user, on all their devices; tokens stay."""
    user = session.get_one(tables.User, user_id, with_for_update=True)
    user.sessions += 1
    sessions.end_all(session, user_id)
    note(session, f"user:{user_id}", "session.end_all", f"user:{user_id}")
