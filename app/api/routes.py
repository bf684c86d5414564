"""The table of the API's routes: each says once what it takes, what it gives and who may ask.

Views are functions of a `Call`, of what the guard found (`about`) and, where they name them, of the arguments
of the address, `query`, `body`, `form` and its files (`uploads`). The OpenAPI document is made from the same
table (`app/api/openapi.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.api.etags import MatchMissing, seen_by
from app.api.guards import Guard
from grading.domain.permissions import Actor

V = TypeVar("V", bound=Callable[..., Any])
PREFIX = "/api/v1"
COMMON = (401, 403, 429, 503)
"""Whatever is asked may be answered so."""


@dataclass
class Call:
    """One request while it is answered, in one transaction."""

    actor: Actor
    session: Session
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answer."""
    etag: str = ""
    """Of the answer, where it is not simply that of its body."""
    after: list[Callable[[], object]] = field(default_factory=list)
    """To be done once the transaction is committed."""

    def match(self, now: str) -> str:
        """The state that the caller saw: one of If-Match, `now` for `*`. Raises MatchMissing."""
        return seen_by(now)


LEAST_NOTICE = timedelta(days=365)


@dataclass(frozen=True)
class Deprecation:
    """Since when a route is deprecated, and when it ends; the changelog names what takes its place."""

    since: date
    sunset: date

    def __post_init__(self) -> None:
        if self.sunset - self.since < LEAST_NOTICE:
            raise ValueError(f"a deprecated route works for {LEAST_NOTICE.days} days at least")

    @property
    def headers(self) -> dict[str, str]:
        """Of every answer: RFC 9745 and RFC 8594."""
        since, sunset = (datetime.combine(day, time(), UTC) for day in (self.since, self.sunset))
        return {
            "Deprecation": f"@{int(since.timestamp())}",
            "Sunset": format_datetime(sunset, usegmt=True),
        }


@dataclass(frozen=True)
class Route:
    """A line of the table."""

    method: str
    rule: str
    tag: str
    """Of the OpenAPI document: the name of the resource's module."""
    guard: Guard
    view: Callable[..., Any]
    gives: type[BaseModel] | None
    query: type[BaseModel] | None
    body: type[BaseModel] | None
    names: frozenset[str]
    """What the view wants to be given."""
    status: int = 200
    file: str = ""
    """The media type of what is no JSON."""
    form: type[BaseModel] | None = None
    """Fields of a body that is a form."""
    matches: bool = False
    """It needs If-Match."""
    errors: tuple[int, ...] = ()
    by_hand: bool = False
    """The view opens its own transactions."""
    deprecated: Deprecation | None = None
    said_once: tuple[str, ...] = ()
    """Secret fields of the answer: `null` where it is given again under the same Idempotency-Key."""

    @property
    def name(self) -> str:
        """What the route is called; `api.` and this is the endpoint."""
        return self.view.__name__

    @property
    def writes(self) -> bool:
        """Whether something may be changed."""
        return self.method != "GET"

    @property
    def keyed(self) -> bool:
        """Whether it takes an Idempotency-Key."""
        return self.method == "POST"

    @property
    def statuses(self) -> tuple[int, ...]:
        """Every status that may be answered beside the one for success."""
        found = {*COMMON, *self.errors, 422 if self.query or self.body or self.form else 401}
        found |= {404} if "<" in self.rule else set()
        found |= {304} if not self.writes and not self.file else set()
        found |= {400, 409, 422, 507} if self.writes else set()
        found |= {413, 415} if self.body or self.form else set()
        found |= {412, MatchMissing.status} if self.matches else set()
        return tuple(sorted(found))


ROUTES: list[Route] = []


def route(method: str, rule: str, guard: Guard, **how: Any) -> Callable[[V], V]:
    """Put a view into the table; what it takes and gives is read from its annotations."""

    def add(view: V) -> V:
        hints = get_type_hints(view)
        gives = hints.get("return")
        if "status" not in how and gives is type(None):
            how["status"] = 204
        names = frozenset(inspect.signature(view).parameters)
        made = Route(
            method=method,
            rule=rule,
            tag=view.__module__.rpartition(".")[2],
            guard=guard,
            view=view,
            gives=gives if isinstance(gives, type) and issubclass(gives, BaseModel) else None,
            query=hints.get("query"),
            body=hints.get("body"),
            form=how.pop("form", hints.get("form")),
            names=names,
            **how,
        )
        ROUTES.append(made)
        return view

    return add


def get(rule: str, guard: Guard, **how: Any) -> Callable[[V], V]:
    """A route that reads."""
    return route("GET", rule, guard, **how)


def post(rule: str, guard: Guard, **how: Any) -> Callable[[V], V]:
    """A route that makes or does something, once for each Idempotency-Key."""
    return route("POST", rule, guard, **how)


def patch(rule: str, guard: Guard, **how: Any) -> Callable[[V], V]:
    """A route that changes some fields of a thing."""
    return route("PATCH", rule, guard, **how)


def put(rule: str, guard: Guard, **how: Any) -> Callable[[V], V]:
    """A route that puts a thing in place of another."""
    return route("PUT", rule, guard, **how)


def delete(rule: str, guard: Guard, **how: Any) -> Callable[[V], V]:
    """A route that takes a thing away."""
    return route("DELETE", rule, guard, **how)
