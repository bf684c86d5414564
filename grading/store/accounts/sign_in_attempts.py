"""Throttling of wrong passwords by account and source: when the next attempt is permitted.

Nobody is locked out; attempts after failures are delayed (decision 0045). Counters are stored under the
digest of a sign-in name, so that a name that does not exist counts as one that does.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select, tuple_, update
from sqlalchemy.orm import Session

from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.store.database import insert_into, now
from grading.store.tables import Identity, SignInAttempt

RESET_AFTER = timedelta(hours=12)
"""Time without a wrong password after which a counter is reset."""
FEW = 3
"""Wrong passwords from which an address shares a counter with other failing addresses.

It no longer shares one with addresses that are new to the account: an attacker from one address uses up no
attempts of new ones.
"""
NEW, FAILED = "new addresses", "failed addresses"
EVER = datetime(2000, 1, 1, tzinfo=UTC)
_KEY = (SignInAttempt.account, SignInAttempt.source)
_KEYS = select(*_KEY)


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff of attempts after wrong passwords: from 1 s, doubling up to `longest_s`."""

    free: int
    """Wrong passwords without a delay."""
    longest_s: int

    def delay_s(self, failures: int) -> int:
        """The delay in seconds after so many failures."""
        beyond = failures - self.free
        return 0 if beyond <= 0 else min(self.longest_s, 2 ** min(beyond - 1, 20))


ONE_SOURCE = Backoff(free=4, longest_s=120)
"""For one address, and for one browser that the account knows."""
OTHER_SOURCES = Backoff(free=20, longest_s=60)
"""For all addresses that are new to the account together, and for all failing ones together.

Shorter than that of one source, so that one address alone never uses up the attempts of all.
"""


@dataclass(frozen=True)
class KnownBrowser:
    """A browser in which a user signed in before, or is signed in."""

    user_id: int
    stamp: str
    """The session stamp at that time; it must still be the account's."""
    id: str


@dataclass(frozen=True)
class Caller:
    """The source of a password: address and browser."""

    address: str
    browser: KnownBrowser | None = None


class TriedTooOften(GraderError):
    """Too many wrong passwords for this account. Wait a few seconds, then try again."""

    code = "tried_too_often"
    status = 429
    default_message = define_message(
        "error.tried_too_often",
        "Too many wrong passwords for this account. Wait a few seconds, then try again.",
    )

    def __init__(self, wait: timedelta) -> None:
        super().__init__()
        self.retry_after_s = max(1, math.ceil(wait.total_seconds()))


@dataclass(frozen=True)
class Attempt:
    """A permitted attempt, counted as a failure until it is known to be a success."""

    account: str
    own: str
    others: str


def count_attempt(
    session: Session,
    sign_in_name: str,
    caller: Caller,
    *,
    known: bool,
    paces: tuple[Backoff, Backoff] = (ONE_SOURCE, OTHER_SOURCES),
) -> Attempt:
    """Count an attempt before its password is compared, so that parallel ones cannot exceed the limit.

    `known`: the account knows the browser; `paces`: of one source, and of many. Raises TriedTooOften; the
    caller must roll back then.
    """
    account = _digest(sign_in_name)
    own = _counter(session, account, _own(account, caller, known=known))
    counters = [(own, paces[0])]
    if not known:
        others = FAILED if own.failures >= FEW else NEW
        counters.append((_counter(session, account, others), paces[1]))
    moment = now(session)
    next_at = max(one.next_at for one, _ in counters)
    if next_at > moment:
        raise TriedTooOften(next_at - moment)
    for one, pace in counters:
        one.failures += 1
        one.last_at = moment
        delay_s = pace.delay_s(one.failures)
        # not `moment` where nothing waits: a try beside this one, which waited for the row, began before
        one.next_at = moment + timedelta(seconds=delay_s) if delay_s else EVER
    return Attempt(account, own.source, "" if known else others)


def record_success(session: Session, tried: Attempt) -> None:
    """Uncount a successful attempt.

    The counter of its address or browser is reset; shared ones keep other failures.
    """
    at = SignInAttempt.account == tried.account
    session.execute(delete(SignInAttempt).where(at, SignInAttempt.source == tried.own))
    counted = (at, SignInAttempt.source == tried.others, SignInAttempt.failures > 0)
    taken_back = {"failures": SignInAttempt.failures - 1, "next_at": EVER}
    session.execute(update(SignInAttempt).where(*counted).values(taken_back))


def reset_account(session: Session, user_id: int) -> None:
    """Reset all counters of an account, such as after a new password."""
    named = select(Identity.subject).where(Identity.user_id == user_id, Identity.provider == "local")
    _reset(session, [_digest(name) for name in session.scalars(named)])


def reset_name(session: Session, name: str) -> None:
    """Reset all counters that `count_attempt` has under this name."""
    _reset(session, [_digest(name)])


def _reset(session: Session, accounts: list[str]) -> None:
    theirs = SignInAttempt.account.in_(accounts)
    # in the order in which a try takes them, or both could wait for each other
    session.execute(_KEYS.where(theirs).order_by(*_KEY).with_for_update())
    session.execute(delete(SignInAttempt).where(theirs))


def delete_expired(session: Session) -> None:
    """Delete counters that are due to be reset."""
    old = _KEYS.where(SignInAttempt.last_at < now(session) - RESET_AFTER)
    session.execute(delete(SignInAttempt).where(tuple_(*_KEY).in_(old.with_for_update(skip_locked=True))))


def network(address: str) -> str:
    """The network of an address that counts as one source: a /64 of IPv6, as every customer has one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # such as that of a Unix socket
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def _own(account: str, caller: Caller, *, known: bool) -> str:
    if known and caller.browser is not None:
        return f"browser {caller.browser.id}"[:64]
    return f"address {_digest(account + network(caller.address))[:32]}"


def _counter(session: Session, account: str, source: str) -> SignInAttempt:
    """One counter, locked. Locks are taken in one order: the single source's first, then the shared one."""
    new = {"account": account, "source": source, "failures": 0, "next_at": EVER, "last_at": now(session)}
    session.execute(insert_into(session, SignInAttempt).values(new).on_conflict_do_nothing())
    return session.get_one(SignInAttempt, (account, source), with_for_update=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
