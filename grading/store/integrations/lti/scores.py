"""Scores on LTI platforms: leases for sending, outcomes, comparison with ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from grading.integrations.lti.client import RESULTS
from grading.integrations.lti.messages import Standing, rising
from grading.integrations.lti.values import Platform
from grading.store.database import insert_into, now
from grading.store.grades import final_score
from grading.store.grades.final_score import released_scores
from grading.store.integrations.lti import platform, registrations
from grading.store.integrations.lti.tables import (
    LtiContext,
    LtiDifference,
    LtiLink,
    LtiMember,
    LtiPlatform,
    LtiScore,
    LtiScoreAttempt,
)
from grading.store.tables import Assignment, Outbox, Submission

MAX_ERROR = 500
KEPT = timedelta(days=365)
"""Age at which attempts are deleted."""


@dataclass(frozen=True)
class Column:
    """A link with its line item on the platform."""

    link_id: int
    link: str
    line_item: str
    line_item_ours: bool
    line_items_url: str
    scopes: tuple[str, ...]
    assignment_id: int
    title: str
    course_id: int
    context_id: int
    platform: Platform


@dataclass(frozen=True)
class ScoreLease:
    """A lease for sending the score of one student to a platform."""

    link_id: int
    user_id: int
    number: int
    subject: str
    stamp: datetime
    """Timestamp of this score; later than all before it."""
    standing: Standing


def load_column(session: Session, link_id: int) -> Column | None:
    """The column of a link; None where its platform is disabled."""
    query = (
        select(LtiLink, LtiContext, LtiPlatform, Assignment)
        .join(LtiContext, LtiContext.id == LtiLink.context_id)
        .join(LtiPlatform, LtiPlatform.id == LtiContext.platform_id)
        .join(Assignment, Assignment.id == LtiLink.assignment_id)
        .where(LtiLink.id == link_id, LtiPlatform.enabled)
    )
    row = session.execute(query).first()
    if row is None:
        return None
    link, context, platform, assignment = row
    return Column(
        link.id, link.link, link.line_item, link.line_item_ours, context.line_items_url,
        tuple(context.scopes), assignment.id, assignment.title, assignment.course_id, context.id,
        registrations.platform_of(platform),
    )  # fmt: skip


def list_links(session: Session) -> list[int]:
    """All links of enabled platforms."""
    query = select(LtiLink.id).join(LtiContext, LtiContext.id == LtiLink.context_id)
    query = query.join(LtiPlatform, LtiPlatform.id == LtiContext.platform_id).where(LtiPlatform.enabled)
    return list(session.scalars(query.order_by(LtiLink.id)))


def lease_score(
    session: Session, column: Column, user_id: int, seconds: float, base: str
) -> ScoreLease | str:
    """Lease the score of a student, or return why there is nothing to do: `same`, `busy`, `nobody`."""
    member = session.get(LtiMember, (column.context_id, user_id))
    known = session.get(LtiScore, (column.link_id, user_id))
    if member is None or not _has_place(member.learner, known):
        return "nobody"
    new = {"link_id": column.link_id, "user_id": user_id, "max_points": 0.0, "lease": 0, "error": ""}
    new |= {"dead": False}
    session.execute(insert_into(session, LtiScore).values(new).on_conflict_do_nothing())
    row = session.get_one(LtiScore, (column.link_id, user_id), with_for_update=True, populate_existing=True)
    moment = now(session)
    if row.leased_until is not None and row.leased_until > moment:
        return "busy"
    found = released_scores(session, column.assignment_id, [user_id]).get(user_id)
    if found is None or _same(row, found):
        row.error, row.dead = "", False
        return "same"
    row.stamp, row.lease = rising(row.stamp, moment), row.lease + 1
    row.leased_until = moment + timedelta(seconds=seconds)
    session.flush()
    standing = _standing(session, row, found, base)
    return ScoreLease(column.link_id, user_id, row.lease, member.subject, row.stamp, standing)


def _has_place(learner: bool, known: LtiScore | None) -> bool:
    """Whether the gradebook has a place for them: who learns, or had a score; not staff who try it."""
    return learner or (known is not None and known.stamp is not None)


def _standing(session: Session, row: LtiScore, found: tuple[Any, ...], base: str) -> Standing:
    """What counts, beside what the platform accepted last."""
    points, of, submission = found
    link = f"{base}/lti/results/{submission}"
    submitted_at = session.get_one(Submission, submission).created_at
    resubmitted, commented = row.submission_id != submission, row.comment == link
    if row.sent_at is not None and not row.submission_id:  # by a version that did not keep which submission
        resubmitted = submitted_at > row.sent_at
        commented = not resubmitted
    return Standing(points, of, submission, link, submitted_at, resubmitted, commented)


def _same(row: LtiScore, found: tuple[Any, ...]) -> bool:
    """Whether the platform accepted this score last; no score at all needs no message."""
    if row.sent_at is None:
        return found[0] is None
    return row.points == found[0] and (found[0] is None or row.max_points == found[1])


def record_sent(session: Session, lease: ScoreLease, status: int) -> bool:
    """Record that the platform accepted the score. False when another process leased it since."""
    standing = lease.standing
    values: dict[str, Any] = {"points": standing.points, "max_points": standing.max_points}
    if standing.points is not None:  # else neither was sent
        values |= {"submission_id": standing.submission, "comment": standing.link}
    values |= {"sent_at": now(session), "leased_until": None, "error": "", "dead": False}
    _note(session, lease, status, "")
    return _write(session, lease, values)


def record_failure(
    session: Session, lease: ScoreLease, status: int | None, error: str, *, dead: bool
) -> bool:
    """Record a failure. False when another process leased it since."""
    error = _sentence(error)
    _note(session, lease, status, error)
    return _write(session, lease, {"leased_until": None, "error": error, "dead": dead})


def _write(session: Session, lease: ScoreLease, values: Mapping[str, Any]) -> bool:
    mine = (
        LtiScore.link_id == lease.link_id,
        LtiScore.user_id == lease.user_id,
        LtiScore.lease == lease.number,
    )
    statement = update(LtiScore).where(*mine).values(**values).returning(LtiScore.lease)
    return session.execute(statement).first() is not None


def _note(session: Session, lease: ScoreLease, status: int | None, error: str) -> None:
    session.add(
        LtiScoreAttempt(
            link_id=lease.link_id, user_id=lease.user_id, at=now(session), stamp=lease.stamp,
            points=lease.standing.points, status=status, error=error,
        )
    )  # fmt: skip


def _sentence(error: str) -> str:
    return "".join(c if c.isprintable() else " " for c in error)[:MAX_ERROR] or "failed"


def delete_old_attempts(session: Session) -> None:
    """Delete attempts older than KEPT."""
    session.execute(delete(LtiScoreAttempt).where(LtiScoreAttempt.at < now(session) - KEPT))


def store_line_item(session: Session, link_id: int, url: str, *, ours: bool) -> str:
    """Store a link's line item; the first one stays."""
    row = session.get_one(LtiLink, link_id, with_for_update=True, populate_existing=True)
    if not row.line_item and 0 < len(url) <= 1000:
        row.line_item, row.line_item_ours = url, ours
    return row.line_item


def delete_line_item(session: Session, link_id: int, url: str) -> None:
    """Remove a link's line item that is gone."""
    row = session.get_one(LtiLink, link_id, with_for_update=True, populate_existing=True)
    if row.line_item == url:
        row.line_item, row.line_item_ours = "", False


def resend_score(session: Session, link_id: int, user_id: int) -> None:
    """Send a student's score again."""
    mine = (LtiScore.link_id == link_id, LtiScore.user_id == user_id)
    forgotten = {"sent_at": None, "error": "", "dead": False}
    session.execute(update(LtiScore).where(*mine).values(forgotten))
    platform.add_score(session, link_id, user_id)


def add_missing_scores(session: Session, link_id: int) -> int:
    """Add outbox rows for scores that a platform lacks; returns how many."""
    found = load_column(session, link_id)
    if found is None:
        return 0
    known = {row.user_id: row for row in session.scalars(select(LtiScore).where(LtiScore.link_id == link_id))}
    members = select(LtiMember).where(LtiMember.context_id == found.context_id).order_by(LtiMember.user_id)
    listed = session.scalars(members)
    users = [one.user_id for one in listed if _has_place(one.learner, known.get(one.user_id))]
    open_rows = select(Outbox.payload).where(Outbox.kind == platform.KIND, Outbox.done_at.is_(None))
    waiting = {(one.get("link"), one.get("user")) for one in session.scalars(open_rows)}
    count = 0
    for user, standing in released_scores(session, found.assignment_id, users).items():
        row = known.get(user) or LtiScore(sent_at=None, dead=False)
        if not _same(row, standing) and not row.dead and (link_id, user) not in waiting:
            count += platform.add_score(session, link_id, user)
    return count


KIND = RESULTS
NEAR = 0.005
"""Rounding error of platforms, as a share of the highest points."""


@dataclass(frozen=True)
class Difference:
    """A difference of a student's score, in our points; None: no score."""

    user_id: int
    ours: float | None
    theirs: float | None
    max_points: float


def read_results(pages: Iterable[Any]) -> dict[str, float | None]:
    """Subject -> share of the highest points on the platform; None: no score."""
    found: dict[str, float | None] = {}
    for page in pages:
        for one in page if isinstance(page, list) else []:
            if isinstance(one, dict) and isinstance(one.get("userId"), str | int):
                found[str(one["userId"])] = _share(one)
    return found


def _share(one: Mapping[str, Any]) -> float | None:
    score, most = one.get("resultScore"), one.get("resultMaximum")
    if isinstance(score, bool) or not isinstance(score, int | float):
        return None
    whole = float(most) if isinstance(most, int | float) and most and most > 0 else 1.0
    return float(score) / whole


def store_differences(
    session: Session, column: Column, theirs: Mapping[str, float | None]
) -> list[Difference]:
    """Store the differences, replacing those found before."""
    session.execute(delete(LtiDifference).where(LtiDifference.link_id == column.link_id))
    known = {
        row.user_id: row
        for row in session.scalars(select(LtiScore).where(LtiScore.link_id == column.link_id))
    }
    listed = session.scalars(select(LtiMember).where(LtiMember.context_id == column.context_id))
    members = [one for one in listed if _has_place(one.learner, known.get(one.user_id))]
    ours = final_score.released_scores(session, column.assignment_id, [one.user_id for one in members])
    busy = set(session.scalars(select(LtiScore.user_id).where(LtiScore.link_id == column.link_id, _unsent())))
    found = [
        differing
        for one in members
        if one.user_id not in busy
        and (differing := difference(one.user_id, ours.get(one.user_id), theirs.get(one.subject)))
    ]
    moment = now(session)
    for one in found:
        fields = {"ours": one.ours, "theirs": one.theirs, "max_points": one.max_points, "found_at": moment}
        session.add(LtiDifference(link_id=column.link_id, user_id=one.user_id, **fields))
    link = session.get_one(LtiLink, column.link_id)
    link.compared_at, link.compare_error = moment, ""
    return found


def _unsent() -> Any:
    """Students whose score is being sent, which a comparison would miss."""
    return LtiScore.leased_until.is_not(None)


def difference(user_id: int, ours: tuple[Any, ...] | None, share: float | None) -> Difference | None:
    """The difference for a student: our points and highest points, and the platform's share."""
    points, most = (ours[0], float(ours[1])) if ours is not None else (None, 0.0)
    if ours is None:
        # nothing was ever sent; a score that a teacher gave there by hand is their own business
        return None
    theirs = None if share is None else round(share * most, 4)
    if points is None and theirs is None:
        return None
    # some platforms cut a total above the maximum, by bonus, to the maximum: that is theirs to decide
    wanted = (points, min(points, most)) if points is not None else ()
    if theirs is not None and any(abs(one - theirs) <= NEAR * max(most, 1.0) for one in wanted):
        return None
    return Difference(user_id, points, theirs, most)


def record_comparison_error(session: Session, link_id: int, error: str) -> None:
    """Store the error of a failed comparison."""
    link = session.get_one(LtiLink, link_id)
    link.compared_at, link.compare_error = now(session), error[:500]
