"""LTI launches: users, memberships, contexts and links in our tables; platform rosters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from grading.domain.errors import Forbidden, NotFound
from grading.domain.messages import define_message
from grading.domain.rubric import Rubric
from grading.domain.shared_messages import NO_SUCH_COURSE
from grading.integrations.lti.client import ROSTER, Talk
from grading.integrations.lti.launch_verification import LEEWAY_S
from grading.integrations.lti.messages import item
from grading.integrations.lti.values import (
    LONGEST_SUBJECT,
    SCOPE_ROSTER,
    Launch,
    LaunchRefused,
    Platform,
    PlatformFailed,
    address_of,
    learns,
    page_of,
    role_of,
)
from grading.integrations.told_texts import name_of, text_of
from grading.store import outbox
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.database import Store, insert_into, now
from grading.store.integrations.lti import platform, registrations
from grading.store.integrations.lti.tables import (
    LtiContext,
    LtiLaunch,
    LtiLink,
    LtiMember,
    LtiNonce,
    LtiPlatform,
)
from grading.store.tables import (
    Assignment,
    Course,
    Identity,
    Membership,
    Submission,
    SubmissionMember,
    User,
    new_id,
)

USED_BEFORE = define_message(
    "lti_launch.used_before",
    "This launch was already used. Open the assignment in the learning platform again.",
)
ACCOUNT_DISABLED_HERE = define_message(
    "lti_launch.account_disabled_here",
    "Your account in Grader is disabled. Ask an administrator of Grader to enable it.",
)
NO_SUCH_ASSIGNMENT_IN_COURSE = define_message(
    "lti_launch.no_such_assignment_in_course", "This assignment is not in this course."
)
CHOICE_OVER = define_message(
    "lti_launch.choice_over", "This choice has expired. Open the link in the learning platform again."
)
COURSE_BOUND_ELSEWHERE = define_message(
    "lti_launch.course_bound_elsewhere",
    "This course of the platform is already linked with another course in Grader.",
)
NO_ROSTER_SERVICE = define_message(
    "lti_launch.no_roster_service",
    "The platform does not offer Names and Roles for this course. Ask its administrator to turn this "
    "service on for the tool, then open a link there once.",
)
NO_BOUND_COURSE = define_message(
    "lti_launch.no_bound_course", "This course is not linked with a course in Grader."
)
ROSTER_UNREADABLE = define_message(
    "lti_launch.roster_unreadable", "The platform's list of people cannot be read."
)
ROSTER_TOO_LONG = define_message(
    "lti_launch.roster_too_long", "The platform's list has more than %(most)s people."
)

NO_ROLE = define_message(
    "error.no_role",
    "The learning platform gives you no role in this course that Grader can use. Students submit; "
    "teachers and their assistants review. Ask the person who runs the course to enrol you in one of "
    "these roles.",
)

RANKS = ("student", "grader", "instructor")
PENDING_FOR = timedelta(days=1)
"""How long a pending launch waits for an instructor's choice."""


class NoRole(LaunchRefused):
    """The learning platform gives this person no role in the course that can be used here."""

    code = "no_role"
    status = 403
    default_message = NO_ROLE
    again = False


@dataclass(frozen=True)
class LaunchResult:
    """The launched user and their target."""

    user_id: int
    role: str
    context_id: int
    course_id: int | None
    """None: the platform's course is not linked yet."""
    assignment_id: int | None
    """None: the resource link has no assignment yet."""


def use_nonce(session: Session, platform_id: int, launch: Launch) -> None:
    """Use up the nonce of a launch. Raises LaunchRefused when it was used before."""
    moment = now(session)
    session.execute(delete(LtiNonce).where(LtiNonce.until < moment))
    until = datetime.fromtimestamp(launch.expires, UTC) + timedelta(seconds=2 * LEEWAY_S)
    hashed = hashlib.sha256(launch.nonce.encode()).hexdigest()
    row = {"platform_id": platform_id, "hash": hashed, "until": until}
    statement = insert_into(session, LtiNonce).values(row).on_conflict_do_nothing().returning(LtiNonce.hash)
    if session.execute(statement).first() is None:
        raise LaunchRefused(USED_BEFORE)


def handle_launch(session: Session, platform: Platform, launch: Launch) -> LaunchResult:
    """Find or create the user, the context and the link. Raises Forbidden for a disabled account."""
    # launches of a platform one after the other: two of the same person at once make one account
    session.execute(select(LtiPlatform.id).where(LtiPlatform.id == platform.id).with_for_update())
    registrations.store_family(session, platform.id, launch.platform_family)
    context = _context(session, platform, launch)
    role = launch.role or _role_given_here(session, platform, context, launch)
    user = find_or_create_user(session, platform, launch.subject, launch.name, launch.email)
    if launch.role is not None:
        enrol_member(session, context, user, launch.subject, launch.role, learner=learns(launch.roles))
    link = _link(session, platform, context, launch)
    write_audit(
        session, f"user:{user.id}", "lti.launch", f"context:{context.id}",
        {"platform": platform.id, "role": role}, context.course_id,
    )  # fmt: skip
    return LaunchResult(
        user.id, role, context.id, context.course_id, None if link is None else link.assignment_id
    )


def _role_given_here(session: Session, platform: Platform, context: LtiContext, launch: Launch) -> str:
    """The role that staff gave somebody in our course. Raises NoRole, before anything is stored of them."""
    user = users.find_user(session, platform.provider, launch.subject)
    mine = session.get(Membership, (user.id, context.course_id)) if user and context.course_id else None
    known = session.get(LtiMember, (context.id, user.id)) if user else None
    if mine is None or (known is not None and known.role == mine.role):
        raise NoRole  # what the platform gave, it took away
    return mine.role


def find_or_create_user(session: Session, platform: Platform, subject: str, name: str, email: str) -> User:
    """The user with this issuer and subject; e-mail addresses identify nobody. Raises Forbidden.

    Their name follows the platform's until somebody changes it here.
    """
    user, unnamed = users.find_user(session, platform.provider, subject), f"{platform.name}: {subject}"[:200]
    if user is None:
        user = User(name=name or unnamed, email=email, created_at=now(session))
        user.identities.append(Identity(provider=platform.provider, subject=subject, told_name=user.name))
        session.add(user)
        session.flush()
        write_audit(session, "lti", "user.create", f"user:{user.id}", {"provider": platform.name})
    if user.disabled:
        raise Forbidden(ACCOUNT_DISABLED_HERE)
    identity = next(
        one for one in user.identities if (one.provider, one.subject) == (platform.provider, subject)
    )
    if name and user.name in ("", unnamed, identity.told_name):
        user.name = identity.told_name = name
    user.email = user.email or email
    return user


def enrol_member(
    session: Session, context: LtiContext, user: User, subject: str, role: str, *,
    learner: bool = True, lower: bool = True,
) -> None:  # fmt: skip
    """Add the user to the platform's context and to our course; a role that staff gave here stays.

    Without `lower` it lowers no role: Moodle's roster calls teachers without editing rights learners, its
    launches call them instructors.
    """
    known = session.get(LtiMember, (context.id, user.id))
    if known is not None and not lower:
        role = max(role, known.role, key=RANKS.index)
    if context.course_id is not None:
        mine = session.get(Membership, (user.id, context.course_id))
        if mine is None or (known is not None and mine.role == known.role != role):
            before = "" if mine is None else mine.role
            users.enrol(session, user.id, context.course_id, role)
            detail = {"before": before, "after": role}
            write_audit(session, "lti", "role.change", f"user:{user.id}", detail, context.course_id)
    if known is None:
        known = LtiMember(
            context_id=context.id, user_id=user.id, subject=subject, role=role, learner=learner, active=True
        )
        session.add(known)
        _tell_earlier(session, context.id, user.id)
    if (known.role, known.learner, known.subject, known.active) != (role, learner, subject, True):
        known.role, known.learner, known.subject, known.active = role, learner, subject, True
    session.flush()


def _tell_earlier(session: Session, context_id: int, user_id: int) -> None:
    """Send scores of earlier submissions, made before the platform knew the user."""
    session.flush()
    shared = select(SubmissionMember.submission_id).where(SubmissionMember.user_id == user_id)
    linked = select(LtiLink.assignment_id).where(LtiLink.context_id == context_id)
    theirs = select(Submission.id).where(Submission.assignment_id.in_(linked), Submission.number > 0)
    platform.add_scores(
        session,
        session.scalars(theirs.where((Submission.student_id == user_id) | Submission.id.in_(shared))),
    )


def _context(session: Session, platform: Platform, launch: Launch) -> LtiContext:
    here = (LtiContext.platform_id == platform.id, LtiContext.deployment == launch.deployment)
    row = session.scalar(select(LtiContext).where(*here, LtiContext.context == launch.context))
    if row is None:
        row = LtiContext(
            platform_id=platform.id, deployment=launch.deployment, context=launch.context, scopes=[]
        )
        session.add(row)
    row.title = launch.context_title or launch.context_label or row.title or ""
    row.roster_url = address_of(launch.roster_url) or row.roster_url or ""
    row.line_items_url = address_of(launch.endpoint.get("lineitems")) or row.line_items_url or ""
    scopes = launch.endpoint.get("scope")
    if isinstance(scopes, list):
        row.scopes = [one for one in scopes[:20] if isinstance(one, str) and len(one) <= 200]
    session.flush()
    return row


def _link(session: Session, platform: Platform, context: LtiContext, launch: Launch) -> LtiLink | None:
    """The link's row; created if it was made for an assignment of this course."""
    if not launch.link or context.course_id is None:
        return None
    row = session.scalar(select(LtiLink).where(LtiLink.context_id == context.id, LtiLink.link == launch.link))
    if row is None and launch.assignment is not None:
        meant = session.get(Assignment, launch.assignment)
        if meant is not None and meant.course_id == context.course_id:
            row = add_link(session, context.id, launch.link, meant.id, "lti")
    if row is not None:
        row.page = page_of(platform, launch) or row.page
        line_item = address_of(launch.endpoint.get("lineitem"))
        if line_item and line_item != row.line_item:
            row.line_item, row.line_item_ours = line_item, False
    return row


def add_link(session: Session, context_id: int, link: str, assignment_id: int, by: str) -> LtiLink:
    """Link a resource link to an assignment of the context's course. Raises NotFound."""
    context = session.get_one(LtiContext, context_id)
    meant = session.get(Assignment, assignment_id)
    if meant is None or meant.course_id != context.course_id:
        raise NotFound(NO_SUCH_ASSIGNMENT_IN_COURSE)
    known = (LtiLink.context_id == context_id, LtiLink.link == link)
    row = session.scalar(select(LtiLink).where(*known))
    if row is not None:
        return row
    row = LtiLink(context_id=context_id, link=link, assignment_id=assignment_id)
    session.add(row)
    session.flush()
    platform.mark_linked(session)
    write_audit(session, by, "lti.link", f"assignment:{assignment_id}", {"context": context_id})
    theirs = select(Submission.id).where(Submission.assignment_id == assignment_id, Submission.number > 0)
    platform.add_scores(session, session.scalars(theirs))
    return row


def save_pending_launch(session: Session, user_id: int, context_id: int, launch: Launch) -> str:
    """Store a launch that waits for a choice; returns its id."""
    session.execute(delete(LtiLaunch).where(LtiLaunch.created_at < now(session) - PENDING_FOR))
    payload: dict[str, Any] = {"title": launch.link_title, "deployment": launch.deployment}
    payload |= {"deep": dict(launch.deep), "line_item": launch.endpoint.get("lineitem")}
    row = LtiLaunch(
        user_id=user_id, context_id=context_id, link=launch.link, payload=payload, created_at=now(session)
    )
    session.add(row)
    session.flush()
    return row.id


def load_pending_launch(session: Session, launch_id: str, user_id: int) -> LtiLaunch:
    """A pending launch of this user. Raises NotFound."""
    row = session.get(LtiLaunch, launch_id)
    if row is None or row.user_id != user_id or row.created_at < now(session) - PENDING_FOR:
        raise NotFound(CHOICE_OVER)
    return row


def set_link_target(session: Session, row: LtiLaunch, assignment_id: int, by: str) -> None:
    """Set the assignment of a pending launch's link."""
    link = add_link(session, row.context_id, row.link, assignment_id, by)
    link.line_item = link.line_item or address_of(row.payload.get("line_item"))
    session.delete(row)
    session.flush()


def link_course(session: Session, context_id: int, course_id: int, by: str) -> None:
    """Link a platform's course to ours; known users get their roles. Raises NotFound, Forbidden."""
    context = session.get(LtiContext, context_id, with_for_update=True)
    if context is None or session.get(Course, course_id) is None:
        raise NotFound(NO_SUCH_COURSE)
    if context.course_id is not None and context.course_id != course_id:
        raise Forbidden(COURSE_BOUND_ELSEWHERE)
    context.course_id = course_id
    session.flush()
    write_audit(session, by, "lti.course", f"course:{course_id}", {"context": context_id})
    for member in session.scalars(select(LtiMember).where(LtiMember.context_id == context_id)).all():
        if session.get(Membership, (member.user_id, course_id)) is None:
            users.enrol(session, member.user_id, course_id, member.role)
            detail = {"before": "", "after": member.role}
            write_audit(session, by, "role.change", f"user:{member.user_id}", detail, course_id)


def create_course(session: Session, context_id: int, by: str) -> int:
    """Create a course for a platform's course; returns its id."""
    context = session.get_one(LtiContext, context_id)
    title = (context.title or f"Course {context_id}")[:200]
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:50] or "course"
    if session.scalar(select(Course.id).where(Course.slug == slug)) is not None:
        slug = f"{slug}-{context_id}"
    row = Course(slug=slug, title=title)
    session.add(row)
    session.flush()
    write_audit(session, by, "course.create", f"course:{row.id}", {"slug": slug})
    link_course(session, context_id, row.id, by)
    return row.id


def links_of(session: Session, submission_id: str) -> tuple[tuple[str, str], ...]:
    """Name and page of every platform that knows the student and links the assignment; pages may be empty."""
    query = select(LtiPlatform.name, LtiLink.page).join(LtiContext, LtiContext.platform_id == LtiPlatform.id)
    query = query.join(LtiLink, LtiLink.context_id == LtiContext.id)
    query = query.join(LtiMember, LtiMember.context_id == LtiContext.id)
    shared = select(SubmissionMember.user_id).where(SubmissionMember.submission_id == submission_id)
    theirs = (LtiMember.user_id == Submission.student_id) | LtiMember.user_id.in_(shared)
    query = query.join(Submission, (Submission.assignment_id == LtiLink.assignment_id) & theirs)
    here = (Submission.id == submission_id, LtiPlatform.enabled)
    found = session.execute(query.where(*here).order_by(LtiLink.id))
    return tuple(dict.fromkeys((name, page) for name, page in found))


def courses_of(session: Session, platform_id: int) -> frozenset[int]:
    """Courses that are linked to this platform: only they are shown in its frame."""
    query = select(LtiContext.course_id).where(LtiContext.platform_id == platform_id)
    return frozenset(one for one in session.scalars(query) if one is not None)


def teaches(session: Session, context_id: int, user_id: int) -> bool:
    """Whether the platform, or staff of our course, made the user an instructor of this context."""
    member, context = session.get(LtiMember, (context_id, user_id)), session.get_one(LtiContext, context_id)
    if member is not None and member.active and member.role == "instructor":
        return True
    mine = session.get(Membership, (user_id, context.course_id)) if context.course_id else None
    return mine is not None and mine.role == "instructor"


def courses_taught(session: Session, user_id: int) -> frozenset[int]:
    """The courses that the user instructs."""
    query = select(Membership.course_id).where(Membership.user_id == user_id, Membership.role == "instructor")
    return frozenset(session.scalars(query))


def content_items(
    session: Session, row: LtiLaunch, assignment_ids: Sequence[int], launch_url: str
) -> list[dict[str, Any]]:
    """Content items of assignments of a launch's course. Raises NotFound for others."""
    context = session.get_one(LtiContext, row.context_id)
    several = bool(row.payload.get("deep", {}).get("accept_multiple"))
    found = []
    for number in assignment_ids if several else assignment_ids[:1]:
        meant = session.get(Assignment, number)
        if meant is None or meant.course_id != context.course_id:
            raise NotFound(NO_SUCH_ASSIGNMENT_IN_COURSE)
        rubric = Rubric.model_validate(versions.published_version(session, meant).rubric)
        found.append(item(launch_url, meant.id, meant.title, rubric.max_points))
    return found


KIND = "lti-roster"
AT_ONCE = 200
MOST = 20_000


@dataclass(frozen=True)
class Row:
    """A member in the platform's roster."""

    subject: str
    name: str
    email: str
    role: str
    learner: bool
    active: bool


def request_roster(session: Session, context_id: int, by: str) -> None:
    """Schedule an update of a context's roster."""
    outbox.add(session, KIND, f"{context_id}:{new_id()}", {"context": context_id, "by": by})


def update_roster(store: Store, talk: Talk, context_id: int, by: str) -> tuple[int, int]:
    """Read the platform's roster and apply it; returns the numbers of members and of departed ones.

    Departed members keep their membership and work here; staff remove them.
    """
    with store.read() as session:
        context = session.get(LtiContext, context_id)
        if context is None or context.course_id is None:
            raise NotFound(NO_BOUND_COURSE)
        platform, url = registrations.load_platform(session, context.platform_id), context.roster_url
    if not url:
        raise PlatformFailed(NO_ROSTER_SERVICE)
    rows = list(_rows(talk.pages(platform, [SCOPE_ROSTER], url, ROSTER)))
    for start in range(0, len(rows), AT_ONCE):
        with store.write() as session:
            _follow(session, context_id, rows[start : start + AT_ONCE])
    with store.write() as session:
        gone = _leave(session, context_id, {row.subject for row in rows if row.active})
        context = session.get_one(LtiContext, context_id)
        context.roster_at, context.roster_error = now(session), ""
        detail = {"count": len(rows), "gone": gone}
        write_audit(session, by, "lti.roster", f"course:{context.course_id}", detail)
    return len(rows), gone


def record_error(session: Session, context_id: int, error: str) -> None:
    """Store the error of a failed update."""
    context = session.get(LtiContext, context_id)
    if context is not None:
        context.roster_error = error[:500]


def _follow(session: Session, context_id: int, rows: Iterable[Row]) -> None:
    context = session.get_one(LtiContext, context_id)
    session.execute(select(LtiPlatform.id).where(LtiPlatform.id == context.platform_id).with_for_update())
    platform = registrations.load_platform(session, context.platform_id)
    for row in rows:
        if not row.active:
            continue
        try:
            user = find_or_create_user(session, platform, row.subject, row.name, row.email)
        except Forbidden:
            continue  # somebody here keeps them out
        lower = platform.family != "moodle"
        enrol_member(session, context, user, row.subject, row.role, learner=row.learner, lower=lower)


def _leave(session: Session, context_id: int, there: set[str]) -> int:
    """Mark departed members; returns how many are new."""
    members = session.scalars(select(LtiMember).where(LtiMember.context_id == context_id, LtiMember.active))
    gone = [one for one in members if one.subject not in there]
    for one in gone:
        one.active = False
    return len(gone)


def _rows(pages: Iterable[Any]) -> Iterator[Row]:
    count = 0
    for page in pages:
        listed = page.get("members") if isinstance(page, dict) else None
        if not isinstance(listed, list):
            raise PlatformFailed(ROSTER_UNREADABLE)
        for one in listed:
            row = _row(one) if isinstance(one, dict) else None
            if row is not None:
                count += 1
                yield row
            if count > MOST:
                raise PlatformFailed(ROSTER_TOO_LONG(most=MOST))


def _row(one: Mapping[str, Any]) -> Row | None:
    """A member from the platform's JSON; None without a role here or without a valid subject."""
    subject, roles = one.get("user_id"), one.get("roles")
    if not isinstance(subject, str) or not subject.isprintable() or subject != subject.strip():
        return None
    listed = [one for one in roles if isinstance(one, str)] if isinstance(roles, list) else []
    role = role_of(listed)
    if role is None or not 0 < len(subject) <= LONGEST_SUBJECT:
        return None
    # Moodle's roster writes & as in HTML, its launches do not
    said = {name: unescape(value) for name, value in one.items() if isinstance(value, str)}
    active = str(one.get("status") or "Active") == "Active"
    return Row(subject, name_of(said), text_of(said.get("email")), role, learns(listed), active)
