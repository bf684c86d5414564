"""Registrations of LTI platforms: their deployments, tickets, our keys."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.ssrf import read
from grading.integrations.lti.keys import ToolKey, new_key, public_jwk
from grading.integrations.lti.values import Platform, PlatformRefused
from grading.store.audit import write_audit
from grading.store.database import Store, now
from grading.store.integrations.lti.tables import (
    LtiContext,
    LtiDeployment,
    LtiDifference,
    LtiKey,
    LtiLaunch,
    LtiLink,
    LtiMember,
    LtiNonce,
    LtiPlatform,
    LtiScore,
    LtiScoreAttempt,
    LtiTicket,
)

REGISTERED_ALREADY = define_message(
    "lti_platforms.registered_already", "A platform with this issuer and client ID is already registered."
)
OTHER_JWKS_ADDRESS = define_message(
    "lti_platforms.other_jwks_address",
    "This issuer is already registered with another public keyset URL. Enter the same URL.",
)
DEPLOYMENT_FORM = define_message(
    "lti_platforms.deployment_form", "deployment: enter at most 255 printable characters."
)
NO_SUCH_PLATFORM = define_message("lti_platforms.no_such_platform", "This platform does not exist.")
TEXT_FORM = define_message("lti_platforms.text_form", "%(name)s: enter 1 to %(most)s printable characters.")
ADDRESS_FORM = define_message(
    "lti_platforms.address_form", "%(name)s: enter a complete address, such as https://lms.school.edu/…."
)
ORIGINS_FORM = define_message(
    "lti_platforms.origins_form", "origins: enter addresses such as https://lms.school.edu."
)

TICKET_FOR = timedelta(days=2)
CODE_FOR = timedelta(hours=24)
MAX_UNKNOWN = 50
"""Unknown deployments of a platform that may wait for acceptance."""


class TicketGone(GraderError):
    """This link or code was already used, has expired or is wrong. Ask for a new one."""

    code = "ticket_gone"
    status = 404
    default_message = define_message(
        "error.ticket_gone",
        "This link or code was already used, has expired or is wrong. Ask for a new one.",
    )


@dataclass(frozen=True)
class NewPlatform:
    """Fields of a registration."""

    name: str
    issuer: str
    client_id: str
    authorize_url: str
    token_url: str
    jwks_url: str
    audience: str = ""
    origins: tuple[str, ...] = ()
    deployments: tuple[str, ...] = ()
    family: str = ""
    """The product, where it said so."""


@dataclass(frozen=True)
class Deployment:
    """A deployment of the tool in a platform."""

    name: str
    accepted: bool


@dataclass(frozen=True)
class Course:
    """A platform's course, with ours if it is linked."""

    id: int
    title: str
    context: str
    course_id: int | None


@dataclass(frozen=True)
class PlatformEntry:
    """A platform in the administrators' list."""

    platform: Platform
    enabled: bool
    created_at: datetime
    deployments: tuple[Deployment, ...]
    courses: tuple[Course, ...]


def register_platform(session: Session, new: NewPlatform, by: str) -> int:
    """Register a platform; returns its id. Raises PlatformRefused, and Conflict when it is registered."""
    new = validate_platform(new)
    if find_platform(session, new.issuer, new.client_id) is not None:
        raise Conflict(REGISTERED_ALREADY)
    others = select(LtiPlatform.jwks_url).where(LtiPlatform.issuer == new.issuer)
    if any(url != new.jwks_url for url in session.scalars(others)):
        # people are known by issuer: who has other keys could be anybody there
        raise PlatformRefused(OTHER_JWKS_ADDRESS)
    fields = {name: getattr(new, name) for name in _FIELDS}
    row = LtiPlatform(
        **fields, origins=list(origins_of(new)), jwks={}, family=new.family, created_at=now(session),
        created_by=by[:100],
    )  # fmt: skip
    session.add(row)
    session.flush()
    for name in new.deployments:
        accept_deployment(session, row.id, name, by)
    write_audit(session, by, "lti.platform", f"platform:{row.id}", {"issuer": row.issuer})
    return row.id


_FIELDS = ("name", "issuer", "client_id", "authorize_url", "token_url", "jwks_url", "audience")


def validate_platform(new: NewPlatform) -> NewPlatform:
    """The fields, stripped and checked. Raises PlatformRefused."""
    fields = {name: getattr(new, name).strip() for name in _FIELDS}
    fields["name"] = fields["name"] or urlsplit(fields["issuer"]).hostname or fields["issuer"]
    for name, longest in (("name", 100), ("issuer", 255), ("client_id", 255), ("audience", 1000)):
        if (
            len(fields[name]) > longest
            or not fields[name].isprintable()
            or (not fields[name] and name != "audience")
        ):
            raise PlatformRefused(TEXT_FORM(name=name, most=longest))
    for name in ("authorize_url", "token_url", "jwks_url"):
        _address(name, fields[name])
    origins = tuple(_origin(one) for one in new.origins if one.strip())
    deployments = tuple(one.strip() for one in new.deployments if one.strip())
    if any(len(one) > 255 or not one.isprintable() for one in deployments):
        raise PlatformRefused(DEPLOYMENT_FORM)
    return NewPlatform(**fields, origins=origins, deployments=deployments, family=new.family)


def _address(name: str, url: str) -> None:
    try:
        if len(url) > 1000:
            raise ValueError
        read(url)
    except (GraderError, ValueError):
        raise PlatformRefused(ADDRESS_FORM(name=name)) from None


def origins_of(new: NewPlatform) -> tuple[str, ...]:
    """Origins of its pages: those given, its issuer if that is an address, its authorization endpoint."""
    found = [*new.origins]
    for url in (new.issuer, new.authorize_url):
        if url.startswith(("https://", "http://")):
            found.append(_origin(url))
    return tuple(dict.fromkeys(found))


def _origin(url: str) -> str:
    try:
        target = read(url.strip())
    except (GraderError, ValueError):
        raise PlatformRefused(ORIGINS_FORM) from None
    host = f"[{target.host}]" if ":" in target.host else target.host
    port = "" if target.port == (443 if target.secure else 80) else f":{target.port}"
    return f"{'https' if target.secure else 'http'}://{host}{port}"


def platform_of(row: LtiPlatform) -> Platform:
    """The row as a value."""
    return Platform(
        id=row.id, name=row.name, issuer=row.issuer, client_id=row.client_id,
        authorize_url=row.authorize_url, token_url=row.token_url, jwks_url=row.jwks_url,
        audience=row.audience, origins=tuple(row.origins), jwks=row.jwks, family=row.family,
    )  # fmt: skip


def load_platform(session: Session, platform_id: int) -> Platform:
    """An enabled platform. Raises NotFound."""
    row = session.get(LtiPlatform, platform_id)
    if row is None or not row.enabled:
        raise NotFound(NO_SUCH_PLATFORM)
    return platform_of(row)


def find_platform(session: Session, issuer: str, client_id: str = "") -> Platform | None:
    """The enabled platform of this issuer and client id; without client id the only one of the issuer."""
    query = select(LtiPlatform).where(LtiPlatform.issuer == issuer, LtiPlatform.enabled)
    if client_id:
        query = query.where(LtiPlatform.client_id == client_id)
    if not (issuer + client_id).isprintable():
        return None
    rows = session.scalars(query.limit(2)).all()
    return platform_of(rows[0]) if len(rows) == 1 else None


def origins(session: Session) -> tuple[str, ...]:
    """Origins that may show our pages in a frame."""
    rows = session.scalars(select(LtiPlatform.origins).where(LtiPlatform.enabled).order_by(LtiPlatform.id))
    return tuple(dict.fromkeys(str(one) for origins in rows for one in origins))


def cache_jwks(session: Session, platform_id: int, jwks: Mapping[str, Any]) -> None:
    """Cache the keys that a platform publishes."""
    values = {"jwks": dict(jwks), "jwks_at": now(session)}
    session.execute(update(LtiPlatform).where(LtiPlatform.id == platform_id).values(values))


def jwks_age(session: Session, platform_id: int) -> timedelta | None:
    """Seconds since its keys were fetched; None: never."""
    at = session.scalar(select(LtiPlatform.jwks_at).where(LtiPlatform.id == platform_id))
    return None if at is None else now(session) - at


def store_family(session: Session, platform_id: int, family: str) -> None:
    """Store which product a platform is, where it says so."""
    if family:
        other = (LtiPlatform.id == platform_id, LtiPlatform.family != family)
        session.execute(update(LtiPlatform).where(*other).values(family=family))


def set_enabled(session: Session, platform_id: int, enabled: bool, by: str) -> None:
    """Enable or disable a platform. Raises NotFound."""
    row = session.get(LtiPlatform, platform_id)
    if row is None:
        raise NotFound(NO_SUCH_PLATFORM)
    row.enabled = enabled
    write_audit(session, by, "lti.platform.enabled", f"platform:{platform_id}", {"enabled": enabled})


def deployment_accepted(session: Session, platform_id: int, name: str) -> bool:
    """Whether a deployment is accepted; an unknown one is stored for acceptance."""
    row = session.get(LtiDeployment, (platform_id, name))
    if row is not None:
        return row.accepted
    waiting = select(func.count()).where(LtiDeployment.platform_id == platform_id, ~LtiDeployment.accepted)
    if (session.scalar(waiting) or 0) < MAX_UNKNOWN:
        session.add(LtiDeployment(platform_id=platform_id, deployment=name, seen_at=now(session)))
    return False


def accept_deployment(session: Session, platform_id: int, name: str, by: str) -> None:
    """Accept a deployment."""
    row = session.get(LtiDeployment, (platform_id, name))
    if row is None:
        row = LtiDeployment(platform_id=platform_id, deployment=name, seen_at=now(session))
        session.add(row)
    row.accepted = True
    session.flush()
    write_audit(session, by, "lti.deployment", f"platform:{platform_id}", {"deployment": name})


def list_platforms(session: Session) -> tuple[PlatformEntry, ...]:
    """All platforms."""
    deployments: dict[int, list[Deployment]] = {}
    for one in session.scalars(select(LtiDeployment).order_by(LtiDeployment.deployment)):
        deployments.setdefault(one.platform_id, []).append(Deployment(one.deployment, one.accepted))
    courses: dict[int, list[Course]] = {}
    for row in session.scalars(select(LtiContext).order_by(LtiContext.title, LtiContext.id)):
        known = Course(row.id, row.title, row.context, row.course_id)
        courses.setdefault(row.platform_id, []).append(known)
    return tuple(
        PlatformEntry(
            platform_of(row), row.enabled, row.created_at,
            tuple(deployments.get(row.id, ())), tuple(courses.get(row.id, ())),
        )
        for row in session.scalars(select(LtiPlatform).order_by(LtiPlatform.name, LtiPlatform.id))
    )  # fmt: skip


def make_ticket(session: Session, by: str, course_id: int | None = None) -> str:
    """Create a one-time secret, to register a platform or to link a course."""
    secret, moment = secrets.token_urlsafe(24), now(session)
    valid = TICKET_FOR if course_id is None else CODE_FOR
    row = LtiTicket(hash=_hash(secret), course_id=course_id, created_by=by[:100], expires_at=moment + valid)
    session.add(row)
    object_ = "platform:new" if course_id is None else f"course:{course_id}"
    write_audit(session, by, "lti.ticket", object_)
    return secret


def use_ticket(session: Session, secret: str, *, course: bool) -> LtiTicket:
    """Use a ticket up. Raises TicketGone."""
    kind = LtiTicket.course_id.is_not(None) if course else LtiTicket.course_id.is_(None)
    moment = now(session)
    still = (
        LtiTicket.hash == _hash(secret),
        LtiTicket.used_at.is_(None),
        LtiTicket.expires_at > moment,
        kind,
    )
    found = session.execute(update(LtiTicket).where(*still).values(used_at=moment).returning(LtiTicket.hash))
    known = found.scalar()
    if known is None:
        raise TicketGone
    return session.get_one(LtiTicket, known)


def ticket_is_open(session: Session, secret: str) -> bool:
    """Whether a registration ticket is valid."""
    row = session.get(LtiTicket, _hash(secret))
    return row is not None and row.course_id is None and row.used_at is None and row.expires_at > now(session)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def platform_names(found: Iterable[PlatformEntry]) -> dict[int, str]:
    """Id -> name."""
    return {one.platform.id: one.platform.name for one in found}


@dataclass(frozen=True)
class RemovalEffects:
    """What a platform's removal would delete."""

    name: str
    courses: int
    links: int
    people: int
    waiting: int
    """Scores that are not sent yet."""


def load_registration(session: Session, platform_id: int) -> NewPlatform:
    """The registration of a platform, enabled or not. Raises NotFound."""
    row = _row(session, platform_id)
    return NewPlatform(
        row.name, row.issuer, row.client_id, row.authorize_url, row.token_url, row.jwks_url, row.audience,
        tuple(row.origins),
    )  # fmt: skip


def change_platform(session: Session, platform_id: int, new: NewPlatform, by: str) -> tuple[str, ...]:
    """Change a registration; returns the changed fields. The issuer stays, as it identifies users.

    Raises NotFound, PlatformRefused, and Conflict where the client id is another registration's.
    """
    row = _row(session, platform_id, lock=True)
    new = validate_platform(replace(new, issuer=row.issuer))
    same = (LtiPlatform.issuer == row.issuer, LtiPlatform.client_id == new.client_id)
    if session.scalar(select(LtiPlatform.id).where(*same, LtiPlatform.id != row.id)) is not None:
        raise Conflict(REGISTERED_ALREADY)
    fields = ("name", "client_id", "authorize_url", "token_url", "jwks_url", "audience")
    changed = [name for name in fields if getattr(row, name) != getattr(new, name)]
    for name in changed:
        setattr(row, name, getattr(new, name))
    origins = list(origins_of(new))
    if origins != row.origins:
        row.origins = origins
        changed.append("origins")
    if "jwks_url" in changed:
        # an issuer has one: people are known by it, whichever of its registrations they come by
        keys: dict[str, Any] = {"jwks_url": new.jwks_url, "jwks": {}, "jwks_at": None}
        session.execute(update(LtiPlatform).where(LtiPlatform.issuer == row.issuer).values(keys))
    session.flush()
    if changed:
        write_audit(session, by, "lti.platform.change", f"platform:{platform_id}", {"fields": changed})
    return tuple(changed)


def load_removal_effects(session: Session, platform_id: int) -> RemovalEffects:
    """What a platform's removal would delete. Raises NotFound."""
    row = _row(session, platform_id)
    contexts = select(LtiContext.id).where(LtiContext.platform_id == platform_id)
    links = select(LtiLink.id).where(LtiLink.context_id.in_(contexts))
    linked = select(func.count()).select_from(LtiContext)
    linked = linked.where(LtiContext.platform_id == platform_id, LtiContext.course_id.is_not(None))
    people = select(func.count(func.distinct(LtiMember.user_id))).where(LtiMember.context_id.in_(contexts))
    waiting = select(func.count()).select_from(LtiScore)
    waiting = waiting.where(LtiScore.link_id.in_(links), LtiScore.error != "")
    counts = (
        session.scalar(query) or 0
        for query in (linked, select(func.count()).select_from(links.subquery()), people, waiting)
    )
    return RemovalEffects(row.name, *counts)


def remove_platform(session: Session, platform_id: int, by: str) -> RemovalEffects:
    """Delete a platform with its contexts, links and scores; returns what was deleted. Raises NotFound.

    Accounts, memberships, submissions and grades stay; a new registration finds the users again.
    """
    found = load_removal_effects(session, platform_id)
    row = _row(session, platform_id, lock=True)
    issuer = row.issuer
    contexts = select(LtiContext.id).where(LtiContext.platform_id == platform_id)
    links = select(LtiLink.id).where(LtiLink.context_id.in_(contexts))
    # whoever tells a score or launches at this moment refers to these: they come to their end first
    session.execute(contexts.order_by(LtiContext.id).with_for_update())
    session.execute(links.order_by(LtiLink.id).with_for_update())
    for table in (LtiDifference, LtiScore, LtiScoreAttempt):
        session.execute(delete(table).where(table.link_id.in_(links)))
    for part in (LtiLink, LtiMember, LtiLaunch):
        session.execute(delete(part).where(part.context_id.in_(contexts)))
    for own in (LtiContext, LtiDeployment, LtiNonce):
        session.execute(delete(own).where(own.platform_id == platform_id))
    session.delete(row)
    session.flush()
    detail = {"issuer": issuer, "courses": found.courses, "links": found.links}
    write_audit(session, by, "lti.platform.remove", f"platform:{platform_id}", detail)
    return found


def _row(session: Session, platform_id: int, *, lock: bool = False) -> LtiPlatform:
    row = session.get(LtiPlatform, platform_id, with_for_update=lock or None)
    if row is None:
        raise NotFound(NO_SUCH_PLATFORM)
    return row


SHOWN_FOR = timedelta(days=7)
"""How long a replaced key stays published, as platforms cache keys."""


def signing_key(store: Store) -> ToolKey:
    """The signing key; the first one is created here."""
    with store.read() as session:
        found = _newest(session)
    if found is not None:
        return found
    made = new_key()  # takes a moment: not while others wait for the database
    with store.write() as session:
        known = _newest(session)
        return known if known is not None else _add(session, made, "system")


def rotate_key(session: Session, made: ToolKey, by: str) -> None:
    """Sign with this key from now on; replaced ones stay published for a week."""
    moment = now(session)
    for row in session.scalars(select(LtiKey).where(LtiKey.shown_until.is_(None)).with_for_update()):
        row.shown_until = moment + SHOWN_FOR
    _add(session, made, by)


def public_jwks(session: Session) -> dict[str, Any]:
    """The published keys."""
    valid = or_(LtiKey.shown_until.is_(None), LtiKey.shown_until > now(session))
    rows = session.scalars(select(LtiKey).where(valid).order_by(LtiKey.created_at.desc(), LtiKey.kid))
    return {"keys": [public_jwk(ToolKey(row.kid, row.private)) for row in rows]}


def _newest(session: Session) -> ToolKey | None:
    query = select(LtiKey).where(LtiKey.shown_until.is_(None)).order_by(LtiKey.created_at.desc(), LtiKey.kid)
    row = session.scalar(query.limit(1))
    return None if row is None else ToolKey(row.kid, row.private)


def _add(session: Session, made: ToolKey, by: str) -> ToolKey:
    session.add(LtiKey(kid=made.kid, private=made.private, created_at=now(session)))
    session.flush()
    write_audit(session, by, "lti.key", f"key:{made.kid}")
    return made
