"""Scores in Canvas: leases for sending, outcomes, comparison with ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from grading.integrations.canvas import values
from grading.integrations.canvas.values import There, Wanted
from grading.store.database import insert_into, now
from grading.store.grades.final_score import released_scores
from grading.store.integrations.canvas import links, platform
from grading.store.integrations.canvas.links import Link
from grading.store.integrations.canvas.tables import CanvasScore, CanvasScoreAttempt
from grading.store.tables import Identity, Outbox
from grading.store.views import submission as submission_view

MAX_ERROR = 500
KEPT = timedelta(days=365)
"""Age at which attempts are deleted."""


@dataclass(frozen=True)
class ScoreLease:
    """A lease for sending the score of one student to Canvas."""

    link: Link
    user_id: int
    number: int
    canvas_user: str
    wanted: Wanted


def list_people(session: Session, link: Link) -> dict[int, str]:
    """User id -> id in Canvas, of users with an identity of this Canvas."""
    query = select(Identity.user_id, Identity.subject).where(Identity.provider == link.provider)
    found = {row.user_id: row.subject for row in session.execute(query.order_by(Identity.id.desc()))}
    return {user: subject for user, subject in found.items() if values.NUMBER.fullmatch(subject)}


def _person(session: Session, link: Link, user_id: int) -> str | None:
    mine = (Identity.provider == link.provider, Identity.user_id == user_id)
    subject = session.scalar(select(Identity.subject).where(*mine).order_by(Identity.id).limit(1))
    return subject if subject is not None and values.NUMBER.fullmatch(subject) else None


def lease_score(
    session: Session, link_id: int, user_id: int, seconds: float, base: str, *, feedback: bool
) -> ScoreLease | str:
    """Lease the score of a student, or return why there is nothing to do: `same`, `busy`, `nobody`."""
    found = next(iter(links.list_live_links(session, link_id)), None)
    person = _person(session, found, user_id) if found is not None else None
    if found is None or person is None:
        return "nobody"
    row = _row(session, link_id, user_id)
    moment = now(session)
    if row.leased_until is not None and row.leased_until > moment:
        return "busy"
    standing = released_scores(session, found.assignment_id, [user_id]).get(user_id)
    if standing is None or (row.sent_at is None and standing[0] is None):
        row.error, row.dead = "", False
        return "same"
    wanted = _wanted(session, found, standing, base, feedback=feedback)
    if row.sent_digest == wanted.digest:
        row.error, row.dead = "", False
        return "same"
    row.lease, row.leased_until = row.lease + 1, moment + timedelta(seconds=seconds)
    session.flush()
    return ScoreLease(found, user_id, row.lease, person, wanted)


def _row(session: Session, link_id: int, user_id: int) -> CanvasScore:
    """The row, locked; inserted if there is none."""
    new = {"link_id": link_id, "user_id": user_id, "sent_digest": "", "lease": 0, "error": "", "dead": False}
    session.execute(insert_into(session, CanvasScore).values(new).on_conflict_do_nothing())
    key = (link_id, user_id)
    return session.get_one(CanvasScore, key, with_for_update=True, populate_existing=True)


def _wanted(session: Session, link: Link, standing: tuple[Any, ...], base: str, *, feedback: bool) -> Wanted:
    """Points and comment of a released grade; neither after its withdrawal."""
    points, of, submission = standing
    if points is None:
        return Wanted(None, "")
    there, address = values.share(points, of, link.points_possible), f"{base}/submissions/{submission}"
    grade = submission_view.load_view(session, submission).grade if feedback else None
    text = values.words(grade.report, points, of, address) if grade is not None else address
    return Wanted(there, text)


def record_sent(session: Session, lease: ScoreLease, *, posted: bool) -> bool:
    """Record that Canvas accepted the score. False when another process leased it since."""
    fields: dict[str, Any] = {"sent_digest": lease.wanted.digest, "points": lease.wanted.points}
    fields |= {"sent_at": now(session), "leased_until": None, "error": "", "dead": False}
    fields |= {"theirs": None, "differs_at": None}
    _note(session, lease, posted, "")
    return _write(session, lease, fields)


def record_failure(session: Session, lease: ScoreLease, error: str, *, dead: bool) -> bool:
    """Record a failure. False when another process leased it since."""
    error = "".join(c if c.isprintable() else " " for c in error)[:MAX_ERROR] or "failed"
    _note(session, lease, False, error)
    return _write(session, lease, {"leased_until": None, "error": error, "dead": dead})


def _write(session: Session, lease: ScoreLease, fields: Mapping[str, Any]) -> bool:
    mine = (CanvasScore.link_id == lease.link.id, CanvasScore.user_id == lease.user_id)
    statement = update(CanvasScore).where(*mine, CanvasScore.lease == lease.number).values(**fields)
    return session.execute(statement.returning(CanvasScore.lease)).first() is not None


def _note(session: Session, lease: ScoreLease, posted: bool, error: str) -> None:
    session.add(
        CanvasScoreAttempt(
            link_id=lease.link.id, user_id=lease.user_id, at=now(session), points=lease.wanted.points,
            posted=posted, error=error,
        )
    )  # fmt: skip


def delete_old_attempts(session: Session) -> None:
    """Delete attempts older than KEPT."""
    session.execute(delete(CanvasScoreAttempt).where(CanvasScoreAttempt.at < now(session) - KEPT))


def resend_scores(session: Session, link_id: int, only: int | None = None) -> int:
    """Send scores again, of one student or of all that failed or differ; returns how many."""
    mine = [CanvasScore.link_id == link_id]
    if only is None:
        mine.append((CanvasScore.error != "") | CanvasScore.differs_at.is_not(None))
    else:
        mine.append(CanvasScore.user_id == only)
    fresh = {"sent_digest": "", "error": "", "dead": False}
    users = session.scalars(update(CanvasScore).where(*mine).values(fresh).returning(CanvasScore.user_id))
    return sum(platform.add_score(session, link_id, user) for user in users.all())


def add_missing_scores(session: Session, link: Link) -> int:
    """Add outbox rows for scores that Canvas lacks; returns how many."""
    query = select(Outbox.payload).where(Outbox.kind == platform.KIND, Outbox.done_at.is_(None))
    waiting = {(one.get("link"), one.get("user")) for one in session.scalars(query)}
    rows = session.scalars(select(CanvasScore).where(CanvasScore.link_id == link.id))
    known = {row.user_id: row for row in rows}
    count = 0
    for user, (points, of, _) in released_scores(
        session, link.assignment_id, list(list_people(session, link))
    ).items():
        row = known.get(user) or CanvasScore(sent_at=None, points=None, dead=False)
        wanted = values.share(points, of, link.points_possible)
        unsent = row.sent_at is None and points is not None
        if (unsent or row.points != wanted) and not row.dead and (link.id, user) not in waiting:
            count += platform.add_score(session, link.id, user)
    return count


def store_differences(session: Session, link: Link, theirs: Mapping[str, There]) -> int:
    """Store where Canvas has other points than were released; returns how many. Nothing is overwritten."""
    known = list_people(session, link)
    here = released_scores(session, link.assignment_id, list(known))
    session.execute(
        update(CanvasScore).where(CanvasScore.link_id == link.id).values(theirs=None, differs_at=None)
    )
    count = 0
    for user, (points, of, _) in here.items():
        ours = values.share(points, of, link.points_possible)
        has = theirs.get(known[user])
        found = has.points if has is not None else None
        if values.same_points(ours, found, link.points_possible):
            continue
        row = _row(session, link.id, user)
        if row.leased_until is None:  # else somebody tells it at this moment
            row.theirs, row.differs_at = found, now(session)
            count += 1
    session.flush()
    return count
