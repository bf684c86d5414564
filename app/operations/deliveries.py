"""What was sent to receivers of events, try by try: looked at, sent again, and receivers that are paused."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from app.web.services import services
from grading.store.integrations import webhooks

pages = Blueprint("deliveries", __name__, url_prefix="/operations/deliveries")
STATES = ("taken", "failed")


@pages.get("")
def listing() -> str:
    """All tries, of one receiver or state, and how the receivers do; for administrators."""
    auth.require(auth.actor(), "administer")
    asked = request.args
    receiver, state, page = asked.get("receiver", "")[:40], asked.get("state", ""), asked.get("page", "")
    number = int(page) if page.isdecimal() and len(page) < 7 else 1
    configured = [one.name for one in services().config.server.event_receivers]
    with services().store.read_autocommit() as session:
        found = webhooks.list_deliveries(session, receiver, state if state in STATES else "", number)
        standings = webhooks.list_receivers(session)
    names = sorted({*configured, *(one.name for one in standings)})
    return render_template(
        "operations/deliveries.html",
        found=found, standings=standings, names=names, receiver=receiver, state=state,
    )  # fmt: skip


@pages.get("/<int(max=2147483647):delivery_id>")
def one(delivery_id: int) -> str:
    """A try: what was sent, and what came back."""
    auth.require(auth.actor(), "administer")
    with services().store.read() as session:
        found = webhooks.load_delivery(session, delivery_id)
    return render_template("operations/delivery.html", one=found)


@pages.post("/<int(max=2147483647):delivery_id>/replay")
def replay(delivery_id: int) -> Response:
    """Send the message of a try again."""
    actor = auth.actor()
    auth.require(actor, "administer")
    with services().store.write() as session:
        sent = webhooks.replay_delivery(session, delivery_id, actor.name)
    flash(_("The message will be sent to %(name)s again, under the same id.", name=sent.receiver), "success")
    return redirect(url_for("deliveries.listing", receiver=sent.receiver), 303)


@pages.post("/receivers/<receiver>/resume")
def resume(receiver: str) -> Response:
    """Send to a paused receiver again."""
    actor = auth.actor()
    auth.require(actor, "administer")
    with services().store.write() as session:
        count = webhooks.resume_receiver(session, receiver[:40], actor.name)
    told = ngettext(
        "One message goes out to %(name)s now.", "%(count)s messages go out to %(name)s now.", count,
        name=receiver,
    )  # fmt: skip
    nothing = _("%(name)s hears of events again; nothing waits for it now.", name=receiver)
    flash(told if count else nothing, "success")
    return redirect(url_for("deliveries.listing", receiver=receiver), 303)
