"""Tables of LTI: keys, platforms, contexts, links, launches, sent scores."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id, new_id


class LtiKey(Base):
    """A key pair of this tool. The newest signs; a replaced one is published until `shown_until`."""

    __tablename__ = "lti_keys"
    kid: Mapped[str] = mapped_column(String(64), primary_key=True)
    private: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    shown_until: Mapped[datetime | None]


class LtiPlatform(Base):
    """A learning platform that may launch this tool."""

    __tablename__ = "lti_platforms"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    issuer: Mapped[str] = mapped_column(String(255))
    client_id: Mapped[str] = mapped_column(String(255))
    authorize_url: Mapped[str] = mapped_column(String(1000))
    token_url: Mapped[str] = mapped_column(String(1000))
    jwks_url: Mapped[str] = mapped_column(String(1000))
    audience: Mapped[str] = mapped_column(String(1000), default="")
    origins: Mapped[list[Any]]
    """Origins that may show our pages in a frame."""
    jwks: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Its keys as last fetched."""
    jwks_at: Mapped[datetime | None]
    family: Mapped[str] = mapped_column(String(40), default="")
    """The product as its launches name it: `canvas`, `moodle`."""
    enabled: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(100))
    __table_args__ = (UniqueConstraint("issuer", "client_id"),)


class LtiDeployment(Base):
    """A deployment of this tool in a platform; its launches count once it is accepted."""

    __tablename__ = "lti_deployments"
    platform_id: Mapped[int] = mapped_column(ForeignKey("lti_platforms.id"), primary_key=True)
    deployment: Mapped[str] = mapped_column(String(255), primary_key=True)
    accepted: Mapped[bool] = mapped_column(Boolean, default=False)
    seen_at: Mapped[datetime]


class LtiTicket(Base):
    """A one-time secret to register a platform or to link a course; only its SHA-256 is stored."""

    __tablename__ = "lti_tickets"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    course_id: Mapped[int | None] = mapped_column(ForeignKey("courses.id"))
    """The course to be linked; None: to register a platform."""
    created_by: Mapped[str] = mapped_column(String(100))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class LtiNonce(Base):
    """A used nonce, until its launch has expired."""

    __tablename__ = "lti_nonces"
    platform_id: Mapped[int] = mapped_column(ForeignKey("lti_platforms.id"), primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    until: Mapped[datetime]
    __table_args__ = (Index("lti_nonces_until", "until"),)


class LtiContext(Base):
    """A platform's course, and ours if it is linked."""

    __tablename__ = "lti_contexts"
    id: Mapped[int] = mapped_column(primary_key=True)
    platform_id: Mapped[int] = mapped_column(ForeignKey("lti_platforms.id"))
    deployment: Mapped[str] = mapped_column(String(255))
    context: Mapped[str] = mapped_column(String(255))
    course_id: Mapped[int | None] = mapped_column(ForeignKey("courses.id"), index=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    roster_url: Mapped[str] = mapped_column(String(1000), default="")
    line_items_url: Mapped[str] = mapped_column(String(1000), default="")
    scopes: Mapped[list[Any]]
    roster_at: Mapped[datetime | None]
    """When its roster was last updated."""
    roster_error: Mapped[str] = mapped_column(String(500), default="")
    __table_args__ = (UniqueConstraint("platform_id", "deployment", "context"),)


class LtiMember(Base):
    """A user in a platform's course, by their subject there."""

    __tablename__ = "lti_members"
    context_id: Mapped[int] = mapped_column(ForeignKey("lti_contexts.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    subject: Mapped[str] = mapped_column(String(255))
    role: Mapped[str] = mapped_column(String(20))
    learner: Mapped[bool] = mapped_column(Boolean, default=True)
    """Whether one of their roles there is a learner's, beside whatever others."""
    active: Mapped[bool] = mapped_column(Boolean, default=True)
    __table_args__ = (Index("lti_members_of_user", "user_id"),)


class LtiLink(Base):
    """A resource link, its assignment, and its line item in the platform's gradebook."""

    __tablename__ = "lti_links"
    id: Mapped[int] = mapped_column(primary_key=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("lti_contexts.id"))
    link: Mapped[str] = mapped_column(String(255))
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    line_item: Mapped[str] = mapped_column(String(1000), default="")
    line_item_ours: Mapped[bool] = mapped_column(Boolean, default=False)
    """We created it, so it is created again when it is gone."""
    page: Mapped[str] = mapped_column(String(1000), default="")
    """Its page in the platform, or that of the course, for people."""
    compared_at: Mapped[datetime | None]
    compare_error: Mapped[str] = mapped_column(String(500), default="")
    __table_args__ = (UniqueConstraint("context_id", "link"),)


class LtiLaunch(Base):
    """A launch that waits for an instructor's choice."""

    __tablename__ = "lti_launches"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("lti_contexts.id"))
    link: Mapped[str] = mapped_column(String(255), default="")
    """The resource link without an assignment; empty for deep linking."""
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class LtiScore(Base):
    """The score of a student on a platform: what was sent last, and the present lease."""

    __tablename__ = "lti_scores"
    link_id: Mapped[int] = mapped_column(ForeignKey("lti_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    stamp: Mapped[datetime | None]
    """Timestamp of the last attempt; the next one is later."""
    points: Mapped[float | None] = mapped_column(Float)
    """Points that it accepted last; None: no score."""
    max_points: Mapped[float] = mapped_column(Float, default=0.0)
    submission_id: Mapped[str] = mapped_column(Id, default="")
    """The submission whose points it accepted last."""
    comment: Mapped[str] = mapped_column(String(1000), default="")
    """The comment that it accepted last."""
    sent_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    lease: Mapped[int] = mapped_column(Integer, default=0)
    """Number of the lease, which tells one sender from the next."""
    error: Mapped[str] = mapped_column(String(500), default="")
    """Why the last attempt failed."""
    dead: Mapped[bool] = mapped_column(Boolean, default=False)
    __table_args__ = (Index("lti_scores_of_user", "user_id"),)


class LtiScoreAttempt(Base):
    """An attempt to send a score to a platform."""

    __tablename__ = "lti_score_attempts"
    id: Mapped[int] = mapped_column(primary_key=True)
    link_id: Mapped[int] = mapped_column(ForeignKey("lti_links.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    at: Mapped[datetime]
    stamp: Mapped[datetime | None]
    points: Mapped[float | None] = mapped_column(Float)
    status: Mapped[int | None]
    error: Mapped[str] = mapped_column(String(500), default="")
    __table_args__ = (Index("lti_score_attempts_of_link", "link_id", "id"),)


class LtiDifference(Base):
    """A difference between a platform's score and ours, from the last comparison."""

    __tablename__ = "lti_differences"
    link_id: Mapped[int] = mapped_column(ForeignKey("lti_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    ours: Mapped[float | None] = mapped_column(Float)
    theirs: Mapped[float | None] = mapped_column(Float)
    max_points: Mapped[float] = mapped_column(Float)
    found_at: Mapped[datetime]
    __table_args__ = (Index("lti_differences_of_user", "user_id"),)
