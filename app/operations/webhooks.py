"""Pages of webhooks for administrators: receivers and their deliveries, secrets of learning systems."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor
from grading.integrations.events import EVENTS, NO_SUCH_EVENT, NO_SUCH_RECEIVER, SUBMISSION
from grading.store.database import now
from grading.store.integrations import webhooks
from grading.store.integrations.webhooks import NewSecret

DELIVERY_STATES = ("taken", "failed")
LATE_S = 20
"""After so long a test message that was not sent needs attention."""

receivers = Blueprint("event_receivers", __name__, url_prefix="/operations/webhooks")


@receivers.get("")
def list_receivers() -> str:
    """Receivers of events with their state and a test message each, the events, the connections' secrets."""
    _administrator()
    server = services().config.server
    urls = {one.name: _without_query(one.url) for one in server.event_receivers}
    with services().store.read_autocommit() as session:
        known = {one.name for one in webhooks.list_receivers(session)}
        found = webhooks.list_receivers(session, [*urls, *sorted(known - urls.keys())])
        newest = webhooks.newest_deliveries(session, [one.name for one in found])
        live = Counter(one.connection for one in webhooks.list_secrets(session) if one.ended_at is None)
    return render_template(
        "operations/webhooks.html", found=found, urls=urls, newest=newest, events=EVENTS,
        connections={name: live[name] for name in server.lms_connections},
        outside={name: len(secrets) for name, secrets in services().lms_secrets.items()},
    )  # fmt: skip


@receivers.post("/<receiver>/test")
def send_test(receiver: str) -> Response:
    """Send an event that did not happen to a receiver."""
    actor, kind = _administrator(), request.form.get("type", "")
    if receiver not in {one.name for one in services().config.server.event_receivers}:
        raise NotFound(NO_SUCH_RECEIVER)
    if kind not in EVENTS:
        raise NotFound(NO_SUCH_EVENT)
    with services().store.write() as session:
        key = webhooks.send_test(session, receiver, kind, SUBMISSION, actor.name)
    return redirect(url_for("event_receivers.show_test", receiver=receiver, key=key), 303)


@receivers.get("/<receiver>/tests/<key>")
def show_test(receiver: str, key: str) -> str:
    """A test message: waiting to be sent, or what was sent and what came back."""
    _administrator()
    with services().store.read() as session:
        found = webhooks.load_test(session, receiver[:40], key[:100])
        waited_s = (now(session) - found.created_at).total_seconds()
    return render_template("operations/webhook_test.html", test=found, late=waited_s > LATE_S)


def _without_query(url: str) -> str:
    """An address as pages show it: its query may hold a key."""
    return urlsplit(url)._replace(query="").geturl()


deliveries = Blueprint("deliveries", __name__, url_prefix="/operations/deliveries")


@deliveries.get("")
def list_deliveries() -> str:
    """All tries, of one receiver or state, and how the receivers do; for administrators."""
    auth.require(auth.actor(), "administer")
    args = request.args
    receiver, state, page = args.get("receiver", "")[:40], args.get("state", ""), args.get("page", "")
    number = int(page) if page.isdecimal() and len(page) < 7 else 1
    configured = [one.name for one in services().config.server.event_receivers]
    with services().store.read_autocommit() as session:
        found = webhooks.list_deliveries(session, receiver, state if state in DELIVERY_STATES else "", number)
        standings = webhooks.list_receivers(session)
    names = sorted({*configured, *(one.name for one in standings)})
    return render_template(
        "operations/deliveries.html",
        found=found, standings=standings, names=names, receiver=receiver, state=state,
    )  # fmt: skip


@deliveries.get("/<int(max=2147483647):delivery_id>")
def delivery(delivery_id: int) -> str:
    """A try: what was sent, and what came back."""
    auth.require(auth.actor(), "administer")
    with services().store.read() as session:
        found = webhooks.load_delivery(session, delivery_id)
    return render_template("operations/delivery.html", one=found)


@deliveries.post("/<int(max=2147483647):delivery_id>/replay")
def replay_delivery(delivery_id: int) -> Response:
    """Send the message of a try again."""
    actor = auth.actor()
    auth.require(actor, "administer")
    with services().store.write() as session:
        sent = webhooks.replay_delivery(session, delivery_id, actor.name)
    flash(_("Resending the message to %(name)s with the same ID.", name=sent.receiver), "success")
    return redirect(url_for("deliveries.list_deliveries", receiver=sent.receiver), 303)


@deliveries.post("/receivers/<receiver>/resume")
def resume_receiver(receiver: str) -> Response:
    """Send to a paused receiver again."""
    actor = auth.actor()
    auth.require(actor, "administer")
    with services().store.write() as session:
        count = webhooks.resume_receiver(session, receiver[:40], actor.name)
    message = ngettext(
        "Sending one message to %(name)s.", "Sending %(count)s messages to %(name)s.", count,
        name=receiver,
    )  # fmt: skip
    nothing = _("Deliveries to %(name)s resumed. No messages are queued.", name=receiver)
    flash(message if count else nothing, "success")
    return redirect(url_for("event_receivers.list_receivers"), 303)


secrets = Blueprint("webhook_secrets", __name__, url_prefix="/operations/webhook-secrets")


@secrets.get("")
def list_secrets() -> str:
    """All connections of config.toml with their secrets, without the secrets themselves."""
    _administrator()
    return _secrets_page()


@secrets.post("")
def add_secret() -> str:
    """A second live secret for a connection, or its first; shown in this answer only."""
    actor, connection = _administrator(), request.form.get("connection", "")
    if connection not in services().config.server.lms_connections:
        raise NotFound(_("This connection is not in server.lms_connections of config.toml."))
    with services().store.write() as store:
        made = webhooks.create_secret(store, connection, services().secret_key, actor.name)
    return _secrets_page(made, connection)


@secrets.post("/<int(max=2147483647):secret_id>/end")
def end_secret(secret_id: int) -> Response:
    """Let a secret verify nothing more, at once."""
    actor = _administrator()
    with services().store.write() as store:
        connection = webhooks.revoke_secret(store, secret_id, actor.name)
    flash(
        _("Secret %(number)s of %(name)s revoked.", number=secret_id, name=connection),
        "success",
    )
    return redirect(url_for("webhook_secrets.list_secrets"), 303)


def _administrator() -> Actor:
    actor = auth.actor()
    auth.require(actor, "administer")
    return actor


def _secrets_page(made: NewSecret | None = None, connection: str = "") -> str:
    with services().store.read() as store:
        found = webhooks.list_secrets(store)
    app_services = services()
    names = [*app_services.config.server.lms_connections]
    names += [name for name in dict.fromkeys(one.connection for one in found) if name not in names]
    return render_template(
        "operations/webhook_secrets.html",
        names=names, known=app_services.config.server.lms_connections, found=found, made=made,
        connection=connection,
        outside={name: len(secrets) for name, secrets in app_services.lms_secrets.items()},
        most=webhooks.MAX_LIVE, base=app_services.config.server.public_url.rstrip("/"),
    )  # fmt: skip
