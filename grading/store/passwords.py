"""What people do with their own password and sessions."""

from __future__ import annotations

from sqlalchemy.orm import Session

from grading.errors import Forbidden
from grading.store import accounts, tables, tokens
from grading.store.audit import note
from grading.store.database import Store


class WrongPassword(Forbidden):
    """Your present password is not right, or the account rests after too many wrong ones; nothing changed."""

    code = "wrong_password"


def change(store: Store, user_id: int, old: str, new: str, *, tokens_end: bool = False) -> None:
    """Set a new password for who knows the old one; wrong ones count as at sign-in. Raises WrongPassword.

    All sessions end; the user's API tokens where that is wanted.
    """
    with store.read() as session:
        name = accounts.sign_in_name(session, user_id)
    hashed = accounts.hash_password(new)
    if accounts.check_password(store, name, old, "password.check") != user_id:
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
