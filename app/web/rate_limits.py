"""How often one person or address may do something; each view says its limit, `limit_views` applies them.

Counts are in Redis, so that all web processes count together. While Redis is away each process counts by
itself (decision 0059).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Flask, current_app, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from redis.exceptions import RedisError

from app.web import auth
from app.web.services import Services
from grading.broker.rate_counts import RATE_COUNTS

View = TypeVar("View", bound=Callable[..., Any])
UPLOADS = "uploads"
"""The limit that `server.uploads_per_minute` sets."""


@dataclass(frozen=True)
class Limit:
    """How often, and who is counted."""

    amount: str
    """As Flask-Limiter writes it, such as `20 per minute`, or UPLOADS."""
    key: Callable[[], str]


def per_person() -> str:
    """Counts each signed-in person by themselves."""
    return f"user:{auth.actor().user_id}"


def limited(amount: str, key: Callable[[], str] = get_remote_address) -> Callable[[View], View]:
    """Let a view be asked so often, by address unless `key` says otherwise. Stands below the route."""

    def mark(view: View) -> View:
        view.__dict__["rate_limit"] = Limit(amount, key)
        return view

    return mark


def within(amount: str, *what: str) -> bool:
    """Count something that a request does besides being asked; whether it is within the amount."""
    (limiter,) = current_app.extensions["limiter"]
    limit = parse(amount)
    try:
        return bool(limiter.limiter.hit(limit, *what))
    except (RedisError, OSError):
        alone: MovingWindowRateLimiter = current_app.extensions["grader-limits-alone"]
        return alone.hit(limit, *what)


def limit_views(app: Flask, services: Services) -> Limiter:
    """Apply the limits of all views that are registered."""
    limiter = Limiter(
        get_remote_address,
        app=app,
        strategy="moving-window",
        in_memory_fallback_enabled=True,
        **_storage(services),
    )
    app.extensions["grader-limits-alone"] = MovingWindowRateLimiter(MemoryStorage())
    uploads = f"{services.config.server.uploads_per_minute} per minute"
    found: dict[str, Limit] = {
        endpoint: view.__dict__["rate_limit"]
        for endpoint, view in app.view_functions.items()
        if "rate_limit" in getattr(view, "__dict__", ())
    }
    for endpoint, limit in found.items():
        amount = uploads if limit.amount == UPLOADS else limit.amount
        view: Any = limiter.limit(amount, key_func=limit.key)(app.view_functions[endpoint])
        app.view_functions[endpoint] = view
    # which would look for limits of everything else at each request
    limiter.request_filter(lambda: request.endpoint not in found and request.blueprint != "api")
    return limiter


def _storage(services: Services) -> dict[str, Any]:
    if services.rate_counts is None:
        return {"storage_uri": "memory://"}
    options = {"connection_pool": services.rate_counts, "key_prefix": RATE_COUNTS}
    return {"storage_uri": "redis://", "storage_options": options}
