"""Tables of people: courses, users, identities, memberships, credentials."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from grading.store.tables.base import Base


class Course(Base):
    """A course, such as business-analytics."""

    __tablename__ = "courses"
    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(String(64), unique=True)
    title: Mapped[str] = mapped_column(String(200))
    served_interactive: Mapped[int] = mapped_column(Integer, default=0)
    """Sequence number of its last dispatched round among those of all courses: the lowest is served next."""
    served_batch: Mapped[int] = mapped_column(Integer, default=0)
    drop_lowest: Mapped[int] = mapped_column(Integer, default=0)
    """Number of a student's lowest grades that do not count in the course."""
    archived: Mapped[bool] = mapped_column(Boolean, default=False)
    """Read-only: nothing can be submitted any more."""


class User(Base):
    """A user, who signs in with a password or through an identity of another provider."""

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    email: Mapped[str] = mapped_column(String(200), default="")
    password_hash: Mapped[str | None] = mapped_column(String(200))
    administrator: Mapped[bool] = mapped_column(Boolean, default=False)
    disabled: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime]
    language: Mapped[str] = mapped_column(String(10), default="")
    """Language of pages, such as `de`; empty: the browser's."""
    mail_when_ready: Mapped[bool] = mapped_column(Boolean, default=False)
    sessions: Mapped[int] = mapped_column(Integer, default=0)
    """Counter of "end all sessions"; part of the session stamp."""
    break_glass: Mapped[bool] = mapped_column(Boolean, default=False)
    """Its password works also where `sign_on.local_accounts` is false; it has a second factor."""
    identities: Mapped[list[Identity]] = relationship(back_populates="user")


class Identity(Base):
    """A user's subject at a provider: `local` (sign-in name, student id), or an LMS connection."""

    __tablename__ = "identities"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    provider: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(255))
    told_name: Mapped[str] = mapped_column(String(200), default="")
    """The name that the provider gave last; the user's follows it until somebody changes that here."""
    granted: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """What rules of single sign-on gave: `administrator`, and in `courses` the role by course id."""
    linked_at: Mapped[datetime | None]
    """When whoever was signed in linked it; None: the account was made by it, or a rule linked it."""
    locked: Mapped[bool] = mapped_column(Boolean, default=False)
    """It opens the account only after it was linked again: the password was reset since then."""
    user: Mapped[User] = relationship(back_populates="identities")
    __table_args__ = (UniqueConstraint("provider", "subject"),)


class Membership(Base):
    """A user's role in a course."""

    __tablename__ = "memberships"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"), primary_key=True)
    role: Mapped[str] = mapped_column(String(20))
    __table_args__ = (
        CheckConstraint("role in ('student', 'grader', 'instructor')", name="role"),
        Index("memberships_of_course", "course_id", "role"),
    )


class Token(Base):
    """An API token; only its SHA-256 is stored."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    daily_tokens: Mapped[int | None] = mapped_column(BigInteger)
    """Tokens of models a day, by the gateway; 0: any number, None: as config.toml says."""


class GatewayUse(Base):
    """What an API token used of a model by the gateway on a day in UTC. Numbers only."""

    __tablename__ = "gateway_use"
    token_id: Mapped[int] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(String(300), primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    output_tokens: Mapped[int] = mapped_column(BigInteger)
    __table_args__ = (Index("gateway_use_by_day", "day"),)


class ResetLink(Base):
    """A link that sets a password once; only its SHA-256 is stored."""

    __tablename__ = "reset_links"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class SecondFactor(Base):
    """A TOTP secret: the salt from which the server's key derives it, and the last accepted time step."""

    __tablename__ = "second_factors"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    salt: Mapped[str] = mapped_column(String(64))
    key_mark: Mapped[str] = mapped_column(String(8))
    """A keyed digest that says which server's key it was made with."""
    last_step: Mapped[int] = mapped_column(BigInteger)
    """Time step (30 s since 1970) of the last accepted code; codes up to it are refused."""
    created_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]
    """When its first code was accepted; until then it does not count."""


class RecoveryCode(Base):
    """A code that takes the place of a second factor once; only its SHA-256 is stored."""

    __tablename__ = "recovery_codes"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    used_at: Mapped[datetime | None]


class SignInAttempt(Base):
    """A counter of wrong passwords for a sign-in name, whether the name exists or not."""

    __tablename__ = "sign_in_attempts"
    account: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of the sign-in name."""
    source: Mapped[str] = mapped_column(String(64), primary_key=True)
    """What is counted: wrong passwords of one address, of one browser, or of many addresses."""
    failures: Mapped[int] = mapped_column(Integer, default=0)
    next_at: Mapped[datetime]
    """When the next attempt is permitted."""
    last_at: Mapped[datetime]
    """Time of the last attempt; the sweeper deletes old rows."""
    __table_args__ = (Index("sign_in_attempts_by_time", "last_at"),)


class OpenSession(Base):
    """An open session of a browser, here or in the frame of a learning platform."""

    __tablename__ = "open_sessions"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    begun_at: Mapped[datetime]
    identity_id: Mapped[int | None]
    """The identity of single sign-on that it was begun with. No foreign key: it ends before the identity."""
    provider_session: Mapped[str] = mapped_column(String(255), default="")
    """The provider's name of its own session (`sid`)."""
    id_token: Mapped[str] = mapped_column(Text, default="")
    """What the provider is shown when its user signs out there, too."""
    __table_args__ = (
        Index("open_sessions_of_user", "user_id", "begun_at"),
        Index("open_sessions_by_time", "begun_at"),
        Index("open_sessions_of_identity", "identity_id"),
    )


class UsedSignOnToken(Base):
    """A nonce of an ID token, or the id of a logout token, that counts no second time."""

    __tablename__ = "used_sign_on_tokens"
    provider: Mapped[str] = mapped_column(String(64), primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of it."""
    until: Mapped[datetime]
    __table_args__ = (Index("used_sign_on_tokens_by_time", "until"),)
