"""Checking passwords, and what people do with their own password and sessions."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

from grading.errors import Forbidden
from grading.store import accounts, tables, tokens
from grading.store.audit import note
from grading.store.database import Store, now

MAX_FAILURES = 10
LOCKED_FOR = timedelta(minutes=15)


class WrongPassword(Forbidden):
    """Your present password is not right, or the account rests after too many wrong ones; nothing changed."""

    code = "wrong_password"


def check(store: Store, sign_in_name: str, password: str, action: str = "sign_in") -> int | None:
    """The user's id, or nothing when name or password is wrong or the account is locked.

    A try is counted before the slow comparison, so that parallel guesses cannot pass the limit: at most 10
    failures in 15 minutes. Unknown names cost the same time as known ones.
    """
    with store.write() as session:
        user = accounts.find_user(session, "local", sign_in_name.strip())
        allowed = user is not None and not user.disabled and _count_try(session, user)
        stored = user.password_hash if user is not None and allowed else None
    if not accounts.matches(stored, password) or user is None:
        return None
    with store.write() as session:
        found = session.get_one(tables.User, user.id)
        found.failed_logins, found.locked_until = 0, None
        note(session, f"user:{user.id}", action, f"user:{user.id}")
    return user.id


def _count_try(session: Session, user: tables.User) -> bool:
    session.refresh(user, with_for_update=True)  # or parallel tries would count as one
    moment = now(session)
    if user.locked_until is not None and user.locked_until > moment:
        return False
    user.failed_logins += 1
    user.locked_until = None
    if user.failed_logins >= MAX_FAILURES:
        user.failed_logins, user.locked_until = 0, moment + LOCKED_FOR
        note(session, "system", "account.lock", f"user:{user.id}")
    return True


def change(store: Store, user_id: int, old: str, new: str, *, tokens_end: bool = False) -> None:
    """Set a new password for who knows the old one; wrong ones count as at sign-in. Raises WrongPassword.

    All sessions end; the user's API tokens where that is wanted.
    """
    with store.read() as session:
        name = accounts.sign_in_name(session, user_id)
    hashed = accounts.hash_password(new)
    if check(store, name, old, "password.check") != user_id:
        raise WrongPassword
    with store.write() as session:
        accounts.set_password(session, session.get_one(tables.User, user_id), new, hashed)
        if tokens_end:
            tokens.revoke_tokens(session, user_id, f"user:{user_id}")


def end_sessions(session: Session, user_id: int) -> None:
    """End all sessions of a user, on all their devices; tokens stay."""
    user = session.get_one(tables.User, user_id, with_for_update=True)
    user.sessions += 1
    note(session, f"user:{user_id}", "session.end_all", f"user:{user_id}")
