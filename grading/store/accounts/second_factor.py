"""The second factor of an account: a TOTP secret (RFC 6238) and recovery codes.

A secret is made of a salt in the database and the server's key, as those of learning systems are (decision
0025): a copy of the database alone holds none. Codes are accepted once, in all web processes together: the
time step that was accepted last is part of the row (decision 0073).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyotp
from pyotp.exceptions import OTPVerificationError
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, Forbidden, NotFound
from grading.domain.messages import define_message
from grading.domain.shared_messages import ACCOUNT_DISABLED
from grading.store.accounts import sessions, sign_in_attempts
from grading.store.accounts.sign_in_attempts import Backoff, Caller
from grading.store.audit import write_audit
from grading.store.database import Store, now
from grading.store.tables import Audit, RecoveryCode, SecondFactor, User

WINDOW = 1
"""Time steps of 30 s before and after the present one whose codes are accepted."""
RECOVERY_CODES = 10
ENROLMENT = timedelta(minutes=15)
"""How long a new secret is shown and waits for its first code."""
PACES = (Backoff(free=4, longest_s=900), Backoff(free=10, longest_s=900))
"""For wrong codes of one source, and of many. Slower than for passwords: six digits are soon guessed, and
only those who know the password may try."""
ISSUER = "Grader"
BREAK_GLASS_ACTION = "sign_in.break_glass"
SHOWN_FOR = timedelta(days=7)
"""How long operators are shown a sign-in of a break-glass account."""

ALREADY_SET_UP = define_message(
    "second_factor.already_set_up", "This account already has a second factor. Turn it off first."
)
NO_ENROLMENT = define_message(
    "second_factor.no_enrolment", "The setup has expired. Start it again on the page My account."
)
NEEDED_BY_BREAK_GLASS = define_message(
    "second_factor.needed_by_break_glass",
    "This is a break-glass account, which needs a second factor. An operator can end that with "
    "`grader user break-glass NAME --off`.",
)


class WrongCode(Forbidden):
    """The code is wrong, was already used, or has expired. Enter the next one that your app shows."""

    code = "wrong_code"
    default_message = define_message(
        "error.wrong_code",
        "The code is wrong, was already used, or has expired. Enter the next code that your app shows.",
    )


@dataclass(frozen=True)
class SecondFactorState:
    """What there is of a user's second factor."""

    since: datetime | None
    """When it was confirmed; None: there is none."""
    recovery_codes: int
    """Recovery codes that are left."""
    key_changed: bool
    """The server's secret key is another one than at the setup, so that the app's codes are wrong."""

    @property
    def on(self) -> bool:
        """Whether signing in asks for it."""
        return self.since is not None


@dataclass(frozen=True)
class Enrolment:
    """A secret that waits for its first code."""

    secret: str
    """In base32, as apps take it."""
    uri: str
    """`otpauth://…`, for a QR code."""


def load_state(session: Session, user_id: int, secret_key: str) -> SecondFactorState:
    """The state of a user's second factor."""
    row = session.get(SecondFactor, user_id)
    if row is None or row.confirmed_at is None:
        return SecondFactorState(None, 0, False)
    left = _count_recovery_codes(session, user_id)
    return SecondFactorState(row.confirmed_at, left, row.key_mark != _mark(secret_key))


def has_second_factor(session: Session, user_id: int) -> bool:
    """Whether signing in asks for a second factor."""
    confirmed = select(SecondFactor.user_id).where(
        SecondFactor.user_id == user_id, SecondFactor.confirmed_at.is_not(None)
    )
    return session.scalar(confirmed) is not None


def begin_enrolment(session: Session, user_id: int, secret_key: str) -> None:
    """Make a secret, which counts once a code confirms it. Raises Conflict if there is one that counts."""
    if has_second_factor(session, user_id):
        raise Conflict(ALREADY_SET_UP)
    session.execute(delete(SecondFactor).where(SecondFactor.user_id == user_id))
    session.add(
        SecondFactor(
            user_id=user_id,
            salt=secrets.token_hex(32),
            key_mark=_mark(secret_key),
            last_step=0,
            created_at=now(session),
        )
    )
    session.flush()


def load_enrolment(session: Session, user_id: int, name: str, secret_key: str) -> Enrolment | None:
    """The secret that waits for its first code, with the sign-in name for the app; None without one."""
    row = session.get(SecondFactor, user_id)
    if row is None or row.confirmed_at is not None or row.created_at < now(session) - ENROLMENT:
        return None
    secret = _secret(row, secret_key)
    return Enrolment(secret, pyotp.TOTP(secret).provisioning_uri(name=name, issuer_name=ISSUER))


def confirm_enrolment(
    session: Session, user_id: int, code: str, secret_key: str, keep: str = ""
) -> tuple[str, ...]:
    """Turn the second factor on by a code of its secret; returns the recovery codes.

    All sessions but `keep` end, as they began without it. Raises WrongCode and NotFound.
    """
    row = session.get(SecondFactor, user_id, with_for_update=True)
    if row is None or row.confirmed_at is not None or row.created_at < now(session) - ENROLMENT:
        raise NotFound(NO_ENROLMENT)
    if not _accept_code(session, row, code, secret_key):
        raise WrongCode
    row.confirmed_at = now(session)
    user = session.get_one(User, user_id, with_for_update=True)
    user.sessions += 1
    sessions.end_sessions(session, user_id, keep)
    write_audit(session, f"user:{user_id}", "second_factor.on", f"user:{user_id}")
    return _new_recovery_codes(session, user_id)


def renew_recovery_codes(session: Session, user_id: int) -> tuple[str, ...]:
    """New recovery codes in the place of the old ones; for who has just shown the second factor."""
    write_audit(session, f"user:{user_id}", "second_factor.codes", f"user:{user_id}")
    return _new_recovery_codes(session, user_id)


def verify_code(
    store: Store, user_id: int, code: str, caller: Caller, secret_key: str, *, known: bool
) -> str | None:
    """The kind of the accepted code, `app` or `recovery`, or None when it is wrong.

    Wrong codes slow their source down, apart from wrong passwords: a right password resets nothing here.
    `known`: the account knows the browser. Raises TriedTooOften.
    """
    with store.write() as session:
        tried = sign_in_attempts.count_attempt(
            session, _attempts_of(user_id), caller, known=known, paces=PACES
        )
        row = session.get(SecondFactor, user_id, with_for_update=True)
        kind = None
        if row is not None and row.confirmed_at is not None:
            kind = _accept(session, row, code, secret_key)
        if kind is None:
            write_audit(session, f"user:{user_id}", "second_factor.wrong", f"user:{user_id}")
            return None
        sign_in_attempts.record_success(session, tried)
        return kind


def record_sign_in(session: Session, user_id: int) -> int:
    """Write down that somebody signed in with both factors; returns how many recovery codes are left.

    A sign-in of a break-glass account is written down as such, too; pages for operators show it.
    """
    who = f"user:{user_id}"
    write_audit(session, who, "sign_in", who)
    if session.get_one(User, user_id).break_glass:
        write_audit(session, who, BREAK_GLASS_ACTION, who)
    return _count_recovery_codes(session, user_id)


def remove(session: Session, user_id: int, by: str) -> None:
    """Remove a second factor. Raises Conflict for that of a break-glass account."""
    if session.get_one(User, user_id).break_glass:
        raise Conflict(NEEDED_BY_BREAK_GLASS)
    delete_all(session, user_id)
    write_audit(session, by, "second_factor.off", f"user:{user_id}")


def reset(session: Session, user_id: int, by: str) -> bool:
    """Remove the second factor of who lost it: sessions end. Returns whether there was one.

    A break-glass account is none any more.
    """
    user = session.get_one(User, user_id, with_for_update=True)
    existed = has_second_factor(session, user_id)
    delete_all(session, user_id)
    user.sessions += 1
    sessions.end_sessions(session, user_id)
    if user.break_glass:
        user.break_glass = False
        write_audit(session, by, "user.not_break_glass", f"user:{user_id}")
    write_audit(session, by, "second_factor.reset", f"user:{user_id}")
    return existed


def set_break_glass(session: Session, user: User, value: bool, by: str) -> None:
    """Make an account a break-glass account, or an ordinary one. Raises Conflict without a second factor."""
    if value and not (user.password_hash and has_second_factor(session, user.id)):
        raise Conflict(
            "A break-glass account needs a password and a second factor. Sign in with this account and set "
            "one up on the page My account first."
        )
    if user.disabled and value:
        raise Conflict(ACCOUNT_DISABLED)
    if user.break_glass == value:
        return
    user.break_glass = value
    write_audit(session, by, f"user.{'break_glass' if value else 'not_break_glass'}", f"user:{user.id}")


def count_break_glass(session: Session) -> int:
    """Break-glass accounts that can sign in: with a password and a second factor, and not disabled."""
    usable = (User.break_glass, ~User.disabled, User.password_hash.is_not(None))
    query = select(func.count()).select_from(User).join(SecondFactor, SecondFactor.user_id == User.id)
    return session.scalar(query.where(*usable, SecondFactor.confirmed_at.is_not(None))) or 0


@dataclass(frozen=True)
class BreakGlassSignIn:
    """A sign-in of a break-glass account."""

    name: str
    at: datetime


def recent_break_glass(session: Session) -> tuple[BreakGlassSignIn, ...]:
    """The sign-ins of break-glass accounts in the last SHOWN_FOR, the newest first; 5 at most."""
    query = select(Audit.actor, Audit.at).where(Audit.action == BREAK_GLASS_ACTION)
    rows = session.execute(query.order_by(Audit.id.desc()).limit(5)).all()
    since = now(session) - SHOWN_FOR
    ids = {row.actor: int(row.actor.partition(":")[2]) for row in rows}
    found = session.execute(select(User.id, User.name).where(User.id.in_(ids.values())))
    names = {row.id: row.name for row in found}
    return tuple(
        BreakGlassSignIn(names.get(ids[row.actor], row.actor), row.at) for row in rows if row.at > since
    )


def delete_all(session: Session, user_id: int) -> None:
    """Delete secret, recovery codes and the counters of wrong codes."""
    session.execute(delete(SecondFactor).where(SecondFactor.user_id == user_id))
    session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))
    sign_in_attempts.reset_name(session, _attempts_of(user_id))


def _accept(session: Session, row: SecondFactor, code: str, secret_key: str) -> str | None:
    if _accept_code(session, row, code, secret_key):
        return "app"
    return "recovery" if _accept_recovery(session, row.user_id, code) else None


def _accept_code(session: Session, row: SecondFactor, code: str, secret_key: str) -> bool:
    """Whether a code is of a time step of the window that was not accepted yet; it is from now on."""
    digits = "".join(code.split())
    if not (digits.isascii() and digits.isdecimal() and len(digits) == 6):
        return False
    try:
        step = pyotp.TOTP(_secret(row, secret_key)).verify_and_get_timecode(
            digits, for_time=now(session), valid_window=WINDOW
        )
    except OTPVerificationError:
        return False
    found = session.execute(
        update(SecondFactor)
        .where(SecondFactor.user_id == row.user_id, SecondFactor.last_step < step)
        .values(last_step=step)
        .returning(SecondFactor.user_id)
    )
    return found.first() is not None


def _accept_recovery(session: Session, user_id: int, code: str) -> bool:
    text = "".join(one for one in code.upper() if one.isalnum())
    if len(text) != 16:
        return False
    found = session.execute(
        update(RecoveryCode)
        .where(
            RecoveryCode.user_id == user_id,
            RecoveryCode.hash == _hash(user_id, text),
            RecoveryCode.used_at.is_(None),
        )
        .values(used_at=now(session))
        .returning(RecoveryCode.id)
    )
    return found.first() is not None


def _count_recovery_codes(session: Session, user_id: int) -> int:
    unused = (RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None))
    return session.scalar(select(func.count()).where(*unused)) or 0


def _new_recovery_codes(session: Session, user_id: int) -> tuple[str, ...]:
    """Codes of 80 bits, as four groups of four letters and digits."""
    session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))
    made = [base64.b32encode(secrets.token_bytes(10)).decode() for _ in range(RECOVERY_CODES)]
    session.add_all(RecoveryCode(user_id=user_id, hash=_hash(user_id, one)) for one in made)
    session.flush()
    return tuple("-".join(one[at : at + 4] for at in range(0, 16, 4)) for one in made)


def _hash(user_id: int, code: str) -> str:
    """SHA-256 is enough: 80 random bits cannot be guessed."""
    return hashlib.sha256(f"{user_id}:{code}".encode()).hexdigest()


def _secret(row: SecondFactor, secret_key: str) -> str:
    """160 bits in base32, as RFC 4226 recommends."""
    text = f"second factor\n{row.user_id}\n{row.salt}".encode()
    return base64.b32encode(hmac.new(secret_key.encode(), text, hashlib.sha256).digest()[:20]).decode()


def _mark(secret_key: str) -> str:
    """Tells one secret key from another, and nothing of either."""
    return hmac.new(secret_key.encode(), b"second factor: which key", hashlib.sha256).hexdigest()[:8]


def _attempts_of(user_id: int) -> str:
    """The name under which wrong codes are counted; no sign-in name has such characters."""
    return f"second factor\n{user_id}"
