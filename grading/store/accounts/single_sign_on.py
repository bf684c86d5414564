"""Identities of single sign-on: accounts found, made and linked, and what a provider's rules give and take.

Issuer and subject are the identity. Nothing else that a provider says finds an account, least of all an
e-mail address, except the claim that the operator named (`sign_in_name_claim`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, NotFound, NotSignedIn
from grading.domain.messages import define_message
from grading.domain.permissions import STAFF
from grading.integrations.oidc.values import AccountRefused, Grants, Logout, Person, SignOnRefused
from grading.store.accounts import credentials, second_factor, sessions, users
from grading.store.audit import write_audit
from grading.store.database import Store, insert_into, now
from grading.store.tables import Course, Identity, Membership, UsedSignOnToken, User

USED_BEFORE = define_message("sign_on.used_before", "This sign-in was already used. Sign in again.")
LOGOUT_USED_BEFORE = define_message("sign_on.logout_used_before", "This logout token was already used.")
NOT_KNOWN = define_message(
    "sign_on.not_known",
    "You have no account in Grader, and the provider says nothing that gives you one. Ask your instructor or "
    "an administrator of Grader.",
)
DISABLED = define_message(
    "sign_on.disabled", "Your account in Grader is disabled. Ask an administrator of Grader to enable it."
)
OF_ITS_OWNER = define_message(
    "sign_on.of_its_owner",
    "The account with your sign-in name is an administrator's or has a second factor. Its owner must link "
    "it: sign in with the password, then link it on the page My account.",
)
LOCKED = define_message(
    "sign_on.locked",
    "The password of your account was reset after this sign-in was linked. Sign in with the password, then "
    "link it again on the page My account.",
)
NOT_THEIRS = define_message(
    "sign_on.not_theirs", "The account with which you signed in there does not open your account in Grader."
)
OTHER_SUBJECT_LINKED = define_message(
    "sign_on.other_subject_linked",
    "The account with your sign-in name is linked with another person at this provider. Ask an administrator "
    "of Grader.",
)
OTHER_PROVIDER_LINKED = define_message(
    "sign_on.other_provider_linked",
    "The account with your sign-in name is linked with another provider. Sign in with that one, then link "
    "this one on the page My account.",
)
LINKED_ELSEWHERE = define_message(
    "sign_on.linked_elsewhere", "This sign-in is already linked with another account in Grader."
)
ONE_EACH = define_message(
    "sign_on.one_each",
    "Your account is already linked with another sign-in at this provider. Unlink it first.",
)
OF_BREAK_GLASS = define_message(
    "sign_on.of_break_glass",
    "A break-glass account is for the time when the provider does not work. No sign-in is linked with it.",
)
NO_OTHER_WAY_IN = define_message(
    "sign_on.no_other_way_in",
    "This is the only way into your account. Set a password or link another sign-in first.",
)
ONLY_SIGN_IN = define_message(
    "sign_on.only_sign_in",
    "The account has no other sign-in. Disable the account instead, or have its owner link another one "
    "first.",
)
NO_SUCH_LINK = define_message("sign_on.no_such_link", "Your account has no such sign-in.")

PREFIX = "oidc:"
MARGIN_S = 120
"""For the clocks' leeway, in how long a used token is remembered."""


@dataclass(frozen=True)
class Arrival:
    """Whose account a sign-in reached."""

    user_id: int
    identity_id: int
    reset: bool = False
    """Its password or API tokens from before ended with this sign-in."""


@dataclass(frozen=True)
class LinkedSignOn:
    """An identity of single sign-on as its owner sees it."""

    id: int
    provider: str
    name: str
    """As the provider said it last."""
    linked_at: datetime | None = None
    """When whoever was signed in linked it; None: the account was made by it, or a rule linked it."""
    locked: bool = False
    """It must be linked again before it opens the account."""


def use_token(session: Session, provider: str, token_id: str, expires: float, what: str = "nonce") -> None:
    """Use up a nonce or a logout token's id. Raises SignOnRefused when it was used before."""
    session.execute(delete(UsedSignOnToken).where(UsedSignOnToken.until < now(session)))
    row = {
        "provider": provider,
        "hash": hashlib.sha256(f"{what}:{token_id}".encode()).hexdigest(),
        "until": datetime.fromtimestamp(expires, UTC) + timedelta(seconds=MARGIN_S),
    }
    statement = insert_into(session, UsedSignOnToken).values(row).on_conflict_do_nothing()
    if session.execute(statement.returning(UsedSignOnToken.hash)).first() is None:
        raise SignOnRefused(USED_BEFORE if what == "nonce" else LOGOUT_USED_BEFORE)


def sign_in(store: Store, person: Person, nonce: str, moment: float) -> Arrival:
    """Use up the sign-in and find or make the account. Raises SignOnRefused, AccountRefused."""
    with store.write() as session:
        # kept as long as the browser may hold a state with it
        use_token(session, person.provider, nonce, moment + 3600)
    try:
        with store.write() as session:
            return _arrive(session, person)
    except IntegrityError:  # the same person in two browsers at once: the other one was made
        with store.write() as session:
            return _arrive(session, person)


def _arrive(session: Session, person: Person) -> Arrival:
    known = _known(session, person)
    linked = None if known else _linked_by_rule(session, person)
    identity = known or linked or _made(session, person)
    user = session.get_one(User, identity.user_id, with_for_update=True)
    if user.disabled:
        raise AccountRefused(DISABLED)
    if identity.locked:
        raise AccountRefused(LOCKED)
    _follow(user, identity, person)
    before = _rights(session, user)
    _apply(session, user, identity, person.grants)
    risen = any(after > had for after, had in zip(_rights(session, user), before, strict=True))
    reset = bool(linked or risen) and not user.break_glass and _end_other_ways_in(session, user, identity)
    detail = {"provider": identity.provider}
    write_audit(session, f"user:{user.id}", "sign_in", f"user:{user.id}", detail)
    if user.break_glass:  # linked before it became one
        write_audit(session, f"user:{user.id}", second_factor.BREAK_GLASS_ACTION, f"user:{user.id}")
    session.flush()
    return Arrival(user.id, identity.id, reset)


def _rights(session: Session, user: User) -> tuple[bool, bool]:
    """Whether they are an administrator, and staff anywhere."""
    return user.administrator, bool(STAFF & set(users.roles(session, user.id).values()))


def _end_other_ways_in(session: Session, user: User, identity: Identity) -> bool:
    """Leave this identity as the only way into an account; returns whether it had a password or API tokens.

    Up to now an instructor could make a link for this student's password, use it before the person came, and
    with it make tokens, set up a second factor or link a sign-in of their own. None of that may open what the
    account has from now on.
    """
    password = user.password_hash is not None
    user.password_hash = None
    user.sessions += 1
    sessions.end_sessions(session, user.id)
    tokens = credentials.revoke_tokens(session, user.id, "system")
    users.expire_reset_links(session, [user.id])
    second_factor.delete_all(session, user.id)
    others = (Identity.user_id == user.id, Identity.id != identity.id, Identity.provider.startswith(PREFIX))
    unlinked = session.scalars(delete(Identity).where(*others).returning(Identity.provider)).all()
    if password or tokens or unlinked:
        detail = {"provider": identity.provider, "tokens": tokens, "unlinked": len(unlinked)}
        write_audit(session, "system", "sign_on.reset", f"user:{user.id}", detail)
    return password or tokens > 0


def _identity(session: Session, person: Person) -> Identity | None:
    return session.scalar(
        select(Identity).where(Identity.provider == person.provider, Identity.subject == person.subject)
    )


def _known(session: Session, person: Person) -> Identity | None:
    """The identity, read under the account's lock: a reset may be locking it, or its owner unlinking it."""
    found = _identity(session, person)
    if found is None:
        return None
    session.get(User, found.user_id, with_for_update=True)
    session.expire(found)
    return _identity(session, person)


def require_open(session: Session, user_id: int, identity_id: int) -> None:
    """Go on if an identity still opens the account. Raises AccountRefused, NotSignedIn.

    It waits for a reset that is under way, and keeps another from beginning before this transaction ends.
    """
    session.get(User, user_id, with_for_update=True)
    theirs = select(Identity.locked).where(Identity.id == identity_id, Identity.user_id == user_id)
    locked = session.scalar(theirs)
    if locked is None:
        raise NotSignedIn
    if locked:
        raise AccountRefused(LOCKED)


def _linked_by_rule(session: Session, person: Person) -> Identity | None:
    """The account whose sign-in name the provider vouches for, by the operator's rule."""
    found = users.find_user(session, "local", person.sign_in_name) if person.sign_in_name else None
    if found is None:
        return None
    # two people who claim the same name at once: one after the other
    user = session.get_one(User, found.id, with_for_update=True)
    if user.disabled:
        raise AccountRefused(DISABLED)
    if user.administrator or user.break_glass or second_factor.has_second_factor(session, user.id):
        raise AccountRefused(OF_ITS_OWNER)
    if _linked_at(session, user.id, person.provider):
        raise AccountRefused(OTHER_SUBJECT_LINKED)
    if list_sign_ons(session, user.id):  # a provider gets no say over people of another
        raise AccountRefused(OTHER_PROVIDER_LINKED)
    return _add(session, user, person, "sign_on.link_by_rule", "system")


def _linked_at(session: Session, user_id: int, provider: str) -> bool:
    """Whether an account has an identity at a provider."""
    theirs = select(Identity.id).where(Identity.user_id == user_id, Identity.provider == provider)
    return session.scalar(theirs.limit(1)) is not None


def _made(session: Session, person: Person) -> Identity:
    """A new account, if a rule fits."""
    if not person.grants.fits:
        raise AccountRefused(NOT_KNOWN)
    name = person.name or person.sign_in_name or person.subject
    user = User(name=name[:200], email=person.email, created_at=now(session))
    if person.sign_in_name:  # so that rosters find it by its name
        user.identities.append(Identity(provider="local", subject=person.sign_in_name))
    session.add(user)
    session.flush()
    write_audit(session, "system", "user.create", f"user:{user.id}", {"provider": person.provider})
    return _add(session, user, person)


def _add(
    session: Session,
    user: User,
    person: Person,
    action: str = "",
    by: str = "",
    linked_at: datetime | None = None,
) -> Identity:
    made = Identity(
        user_id=user.id, provider=person.provider, subject=person.subject, told_name=person.name, granted={},
        linked_at=linked_at,
    )  # fmt: skip
    session.add(made)
    session.flush()
    if action:
        write_audit(session, by, action, f"user:{user.id}", {"provider": person.provider})
    return made


def _follow(user: User, identity: Identity, person: Person) -> None:
    """Let name and an empty address follow the provider until somebody changes them here."""
    if person.name and user.name in ("", identity.told_name):
        user.name = person.name
    identity.told_name = person.name or identity.told_name
    user.email = user.email or person.email


def _apply(session: Session, user: User, identity: Identity, grants: Grants) -> None:
    """Give what the rules give, and take staff's rights that they gave and give no more.

    A role that staff gave stays; a student whom no rule names any more stays a student, with their work.
    """
    before: Mapping[str, Any] = identity.granted or {}
    had = {int(course): str(role) for course, role in before.get("courses", {}).items()}
    known = select(Course.id, Course.slug).where(Course.slug.in_(grants.courses))
    wanted = {row.id: grants.courses[row.slug] for row in session.execute(known)}
    given = {course: role for course, role in wanted.items() if _give(session, user, course, role, had)}
    for course, role in had.items():
        if course not in wanted and role in STAFF:
            _take(session, user, course, role)
    administrator = _administer(session, user, grants.administrator, bool(before.get("administrator")))
    courses = {str(course): role for course, role in given.items()}
    granted = {"administrator": administrator, "courses": courses}
    if granted != before:
        identity.granted = granted


def _give(session: Session, user: User, course_id: int, role: str, had: Mapping[int, str]) -> bool:
    """Whether the rule's role is theirs now because the rule gave it."""
    mine = session.get(Membership, (user.id, course_id))
    if mine is not None and mine.role != had.get(course_id):
        return False
    if mine is None or mine.role != role:
        detail = {"before": "" if mine is None else mine.role, "after": role}
        users.enrol(session, user.id, course_id, role)
        write_audit(session, "system", "role.change", f"user:{user.id}", detail, course_id)
    return True


def _take(session: Session, user: User, course_id: int, role: str) -> None:
    mine = session.get(Membership, (user.id, course_id))
    if mine is not None and mine.role == role:
        session.delete(mine)
        session.flush()
        write_audit(session, "system", "roster.remove", f"user:{user.id}", {"role": role}, course_id)


def _administer(session: Session, user: User, wanted: bool, gave: bool) -> bool:
    """Whether they are an administrator by a rule now."""
    if user.administrator == wanted or not (wanted or gave):
        return gave and wanted
    user.administrator = wanted
    users.expire_reset_links(session, [user.id])
    action = "user.administrator" if wanted else "user.not_administrator"
    write_audit(session, "system", action, f"user:{user.id}")
    return wanted


def require_linkable(session: Session, user_id: int) -> None:
    """Go on if sign-ins may be linked with an account. Raises Conflict."""
    if session.get_one(User, user_id).break_glass:
        raise Conflict(OF_BREAK_GLASS)


def link(store: Store, user_id: int, session_id: str, person: Person, nonce: str, moment: float) -> None:
    """Link a sign-in with the account of an open session, for the first time or after it was locked.

    Raises SignOnRefused, Conflict, and NotSignedIn where the session ended meanwhile.
    """
    with store.write() as session:
        use_token(session, person.provider, nonce, moment + 3600)
    with store.write() as session:
        user = session.get_one(User, user_id, with_for_update=True)
        # after the lock: a reset that came while the provider was asked has ended the session
        if not sessions.is_open(session, session_id, user_id):
            raise NotSignedIn
        require_linkable(session, user_id)
        known = _identity(session, person)
        if known is not None and known.user_id != user_id:
            raise Conflict(LINKED_ELSEWHERE)
        if known is None and _linked_at(session, user_id, person.provider):
            raise Conflict(ONE_EACH)
        if known is None:
            _add(session, user, person, "sign_on.link", f"user:{user_id}", now(session))
        elif known.locked:
            known.locked, known.linked_at = False, now(session)
            detail = {"provider": person.provider}
            write_audit(session, f"user:{user_id}", "sign_on.link", f"user:{user_id}", detail)


def confirm(store: Store, user_id: int, person: Person, nonce: str, moment: float) -> None:
    """Go on if who signed in again just now is who the account belongs to. Raises SignOnRefused."""
    with store.write() as session:
        use_token(session, person.provider, nonce, moment + 3600)
    with store.read() as session:
        known = _identity(session, person)
        if known is None or known.user_id != user_id or known.locked:
            raise SignOnRefused(NOT_THEIRS)


def find_sign_on(session: Session, user_id: int, identity_id: int) -> LinkedSignOn:
    """One of a user's sign-ins at providers. Raises NotFound."""
    found = next((one for one in list_sign_ons(session, user_id) if one.id == identity_id), None)
    if found is None:
        raise NotFound(NO_SUCH_LINK)
    return found


def unlink_own(session: Session, user_id: int, identity_id: int, *, local_accounts: bool) -> None:
    """Unlink one of one's own sign-ins. Raises NotFound, and Conflict for the only way in."""
    user = session.get_one(User, user_id, with_for_update=True)
    find_sign_on(session, user_id, identity_id)
    others = select(func.count()).where(
        Identity.user_id == user_id, Identity.id != identity_id, Identity.provider.startswith(PREFIX),
        ~Identity.locked,
    )  # fmt: skip
    password = user.password_hash is not None and credentials.may_have_password(
        session, [user_id], local_accounts=local_accounts
    )
    if not password and not session.scalar(others):
        raise Conflict(NO_OTHER_WAY_IN)
    unlink(session, user_id, identity_id, f"user:{user_id}")


def unlink(session: Session, user_id: int, identity_id: int, by: str) -> None:
    """Unlink a sign-in; its sessions end, and what its rules gave. Raises NotFound, Conflict."""
    user = session.get_one(User, user_id, with_for_update=True)
    provider = find_sign_on(session, user_id, identity_id).provider
    others = select(Identity.id).where(Identity.user_id == user_id, Identity.id != identity_id)
    if session.scalar(others.limit(1)) is None:
        raise Conflict(ONLY_SIGN_IN)
    found = session.get_one(Identity, identity_id)
    sessions.end_sessions_of_identity(session, identity_id)
    _apply(session, user, found, Grants())
    session.delete(found)
    write_audit(session, by, "sign_on.unlink", f"user:{user_id}", {"provider": provider})


def list_sign_ons(session: Session, user_id: int) -> tuple[LinkedSignOn, ...]:
    """A user's identities of single sign-on."""
    query = select(Identity).where(Identity.user_id == user_id, Identity.provider.startswith(PREFIX))
    return tuple(
        LinkedSignOn(one.id, one.provider, one.told_name, one.linked_at, one.locked)
        for one in session.scalars(query.order_by(Identity.id))
    )


def sign_out(session: Session, provider: str, told: Logout) -> int:
    """End the sessions that a provider's logout token is about; returns how many. Raises SignOnRefused."""
    use_token(session, provider, told.token_id, told.expires, "logout")
    ended = 0
    for identity in session.scalars(_identities_of(provider, told)).all():
        count = sessions.end_sessions_of_identity(session, identity.id, told.session)
        ended += count
        if count:
            detail = {"provider": provider, "count": count}
            write_audit(session, "system", "sign_on.sign_out", f"user:{identity.user_id}", detail)
    return ended


def _identities_of(provider: str, told: Logout) -> Any:
    query = select(Identity).where(Identity.provider == provider)
    if told.subject:
        return query.where(Identity.subject == told.subject)
    return query.where(Identity.id.in_(sessions.identities_of_provider_session(told.session)))
