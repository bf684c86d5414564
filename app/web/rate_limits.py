"""How often one person or address may do something; each view says its limit, `limit_views` applies them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Flask, current_app, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address
from limits import parse

from app.web import auth
from app.web.services import Services

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
    return bool(limiter.limiter.hit(parse(amount), *what))


def limit_views(app: Flask, services: Services) -> Limiter:
    """Apply the limits of all views that are registered."""
    limiter = Limiter(get_remote_address, app=app, storage_uri="memory://", strategy="moving-window")
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
