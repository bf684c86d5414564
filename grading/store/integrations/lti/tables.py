"""Learning platforms: who they are, what of theirs belongs to what of ours, and what they were told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id, new_id


class LtiKey(Base):
    """A key pair of this tool. The newest signs; one that was replaced is shown until `shown_until`."""

    __tablename__ = "lti_keys"
    kid: Mapped[str] = mapped_column(String(64), primary_key=True)
    private: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    shown_until: Mapped[datetime | None]


class LtiPlatform(Base):
    """A learning platform that may launch into this tool."""

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
    """Where its pages are: they may show ours in a frame."""
    jwks: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Its keys as they were last fetched."""
    jwks_at: Mapped[datetime | None]
    enabled: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(100))
    __table_args__ = (UniqueConstraint("issuer", "client_id"),)


class LtiDeployment(Base):
    """One installation of this tool in a platform; launches count once somebody accepted it."""

    __tablename__ = "lti_deployments"
    platform_id: Mapped[int] = mapped_column(ForeignKey("lti_platforms.id"), primary_key=True)
    deployment: Mapped[str] = mapped_column(String(255), primary_key=True)
    accepted: Mapped[bool] = mapped_column(Boolean, default=False)
    seen_at: Mapped[datetime]


class LtiTicket(Base):
    """A secret that works once: to register a platform, or to link a course. Only its SHA-256 is kept."""

    __tablename__ = "lti_tickets"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    course_id: Mapped[int | None] = mapped_column(ForeignKey("courses.id"))
    """The course to be linked; nothing: to register a platform."""
    created_by: Mapped[str] = mapped_column(String(100))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class LtiNonce(Base):
    """A nonce that was used, until its launch would be too old anyway."""

    __tablename__ = "lti_nonces"
    platform_id: Mapped[int] = mapped_column(ForeignKey("lti_platforms.id"), primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    until: Mapped[datetime]
    __table_args__ = (Index("lti_nonces_until", "until"),)


class LtiContext(Base):
    """A course of a platform, and the course here that it is."""

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
    """When its roster was last brought up to date."""
    roster_error: Mapped[str] = mapped_column(String(500), default="")
    __table_args__ = (UniqueConstraint("platform_id", "deployment", "context"),)


class LtiMember(Base):
    """Somebody in a course of a platform, by the name it has for them."""

    __tablename__ = "lti_members"
    context_id: Mapped[int] = mapped_column(ForeignKey("lti_contexts.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    subject: Mapped[str] = mapped_column(String(255))
    role: Mapped[str] = mapped_column(String(20))
    active: Mapped[bool] = mapped_column(Boolean, default=True)
    __table_args__ = (Index("lti_members_of_user", "user_id"),)


class LtiLink(Base):
    """A link in a course of a platform, the assignment it leads to, and its column in the gradebook."""

    __tablename__ = "lti_links"
    id: Mapped[int] = mapped_column(primary_key=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("lti_contexts.id"))
    link: Mapped[str] = mapped_column(String(255))
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    line_item: Mapped[str] = mapped_column(String(1000), default="")
    line_item_ours: Mapped[bool] = mapped_column(Boolean, default=False)
    """It was made by us, so it is made again when it is gone."""
    compared_at: Mapped[datetime | None]
    compare_error: Mapped[str] = mapped_column(String(500), default="")
    __table_args__ = (UniqueConstraint("context_id", "link"),)


class LtiLaunch(Base):
    """A launch that waits for an instructor to choose something."""

    __tablename__ = "lti_launches"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    context_id: Mapped[int] = mapped_column(ForeignKey("lti_contexts.id"))
    link: Mapped[str] = mapped_column(String(255), default="")
    """The resource link that leads nowhere yet; empty for deep linking."""
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class LtiScore(Base):
    """What a platform was last told of a student, and who is telling it now."""

    __tablename__ = "lti_scores"
    link_id: Mapped[int] = mapped_column(ForeignKey("lti_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    stamp: Mapped[datetime | None]
    """Of the last score that was tried: the next one is later."""
    points: Mapped[float | None] = mapped_column(Float)
    """What it took last; nothing: no points."""
    max_points: Mapped[float] = mapped_column(Float, default=0.0)
    sent_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    lease: Mapped[int] = mapped_column(Integer, default=0)
    """Tells one sender from the next."""
    error: Mapped[str] = mapped_column(String(500), default="")
    """Why the last try did not work."""
    given_up: Mapped[bool] = mapped_column(Boolean, default=False)
    __table_args__ = (Index("lti_scores_of_user", "user_id"),)


class LtiScoreAttempt(Base):
    """One try to tell a platform a score."""

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
    """Where a platform has another score than we have, as the last comparison found it."""

    __tablename__ = "lti_differences"
    link_id: Mapped[int] = mapped_column(ForeignKey("lti_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    ours: Mapped[float | None] = mapped_column(Float)
    theirs: Mapped[float | None] = mapped_column(Float)
    max_points: Mapped[float] = mapped_column(Float)
    found_at: Mapped[datetime]
    __table_args__ = (Index("lti_differences_of_user", "user_id"),)
