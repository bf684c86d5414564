"""Signing secrets of learning systems that send to Grader, for administrators: made, shown once, ended."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor
from grading.store.integrations import webhooks
from grading.store.integrations.webhooks import NewSecret

pages = Blueprint("lms_secrets", __name__, url_prefix="/operations/webhook-secrets")


@pages.get("")
def listing() -> str:
    """All connections of config.toml with their secrets, without the secrets themselves."""
    _administrator()
    return _page()


@pages.post("")
def add() -> str:
    """A second live secret for a connection, or its first; shown in this answer only."""
    actor, connection = _administrator(), request.form.get("connection", "")
    if connection not in services().config.server.lms_connections:
        raise NotFound(_("There is no such connection in server.lms_connections of config.toml."))
    with services().store.write() as store:
        made = webhooks.create_secret(store, connection, services().secret_key, actor.name)
    return _page(made, connection)


@pages.post("/<int(max=2147483647):secret_id>/end")
def end(secret_id: int) -> Response:
    """Let a secret verify nothing more, at once."""
    actor = _administrator()
    with services().store.write() as store:
        connection = webhooks.revoke_secret(store, secret_id, actor.name)
    flash(
        _("Secret %(number)s of %(name)s verifies nothing more.", number=secret_id, name=connection),
        "success",
    )
    return redirect(url_for("lms_secrets.listing"), 303)


def _administrator() -> Actor:
    actor = auth.actor()
    auth.require(actor, "administer")
    return actor


def _page(made: NewSecret | None = None, connection: str = "") -> str:
    with services().store.read() as store:
        found = webhooks.list_secrets(store)
    given = services()
    names = [*given.config.server.lms_connections]
    names += [name for name in dict.fromkeys(one.connection for one in found) if name not in names]
    return render_template(
        "operations/webhook_secrets.html",
        names=names, known=given.config.server.lms_connections, found=found, made=made, connection=connection,
        outside={name: len(secrets) for name, secrets in given.lms_secrets.items()},
        most=webhooks.MAX_LIVE, base=given.config.server.public_url.rstrip("/"),
    )  # fmt: skip
