"""What operators look at: health, readiness, metrics and the machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, Response, abort, flash, jsonify, redirect, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from werkzeug.wrappers import Response as BaseResponse

from app.operations import dashboard
from app.operations.machines import an_hour, duration, look, machine_notes, machine_word, span
from app.operations.machines import gateway_requests as gateway_words
from app.operations.readiness import readiness
from app.web import auth
from app.web.auth import SCOPE_TEXTS
from app.web.i18n import gettext as _
from app.web.i18n import languages, ngettext
from app.web.services import services
from app.web.template_helpers import title_of
from app.web.toasts import flash_undo
from grading.domain import model_digests
from grading.domain.errors import NotFound
from grading.domain.permissions import may
from grading.store import schema
from grading.store.reporting import metrics, operations
from grading.store.trust import parity

pages = Blueprint("operations", __name__)
SECURITY_TXT_VALID = timedelta(days=90)
"""Counted from the day on which it is read, so that it never ends while somebody runs this."""


@pages.record
def _add_words(state: BlueprintSetupState) -> None:
    schema.revisions()  # before an update puts others there
    state.app.jinja_env.globals.update(
        machine_word=machine_word,
        machine_notes=machine_notes,
        gateway_words=gateway_words,
        parity_reasons=parity.reasons,
    )


@pages.get("/healthz")
def health() -> Response:
    """The process answers."""
    return jsonify(status="ok")


@pages.get("/readyz")
def ready() -> tuple[Response, int]:
    """200 when uploads can be accepted: the database is there, with tables that suit. Redis may be away.

    503 also while the process drains, and where the clock of this host is wrong.
    """
    found = readiness()
    return jsonify(found.as_dict()), 200 if found.ready else 503


@pages.get("/.well-known/security.txt")
def security_txt() -> Response:
    """Who is told of vulnerabilities, as RFC 9116 has it; 404 where nobody is named."""
    server = services().config.server
    if not server.security_contact:
        abort(404)
    expires = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + SECURITY_TXT_VALID
    lines = {
        "Contact": server.security_contact,
        "Expires": expires.isoformat(),
        "Preferred-Languages": ", ".join(languages()),
        "Canonical": f"{server.public_url.rstrip('/')}/.well-known/security.txt",
    }
    return Response("".join(f"{name}: {value}\n" for name, value in lines.items()), mimetype="text/plain")


@pages.get("/operations")
def overview() -> str:
    """How the whole system is, for staff."""
    actor = auth.actor()
    auth.require(actor, "machines.see")
    figures = dashboard.overview(actor)
    return render_template(
        "operations/overview.html", overview=figures, actor=actor, span=span, kind_title=dashboard.kind_title
    )


@pages.get("/machines")
def machines() -> str:
    """The machines and the queues, for staff."""
    actor = auth.actor()
    auth.require(actor, "machines.see")
    words: dict[str, Any] = {
        "an_hour": an_hour,
        "duration": duration,
        "span": span,
        "short": model_digests.short,
    }
    words["operates"] = may(actor, "administer")
    return render_template("operations/machines.html", cluster=look(), **words)


@pages.post("/machines/<machine>/service")
def service(machine: str) -> BaseResponse:
    """Take a machine out, which finishes what it has, or give it work again."""
    actor = auth.actor()
    auth.require(actor, "administer")
    app_services, out = services(), request.form.get("out") == "1"
    if machine not in {one.name for one in app_services.config.machines}:
        raise NotFound(_("This machine is not in the configuration."))
    with app_services.store.write() as session:
        why = " ".join(request.form.get("why", "")[:200].split())
        gone = operations.set_drained(session, machine, actor.name, out=out, why=why)
    heard = app_services.dispatch.tell_out(gone)
    if heard and not out:
        app_services.dispatch.release()
    message = (
        _("Draining %(name)s: it finishes its running work and receives no new work.", name=machine)
        if out
        else _("%(name)s accepts work again.", name=machine)
    )
    late = _("Redis is not reachable. The change reaches %(name)s when Redis is back.", name=machine)
    undo = {"out": 0 if out else 1}
    flash_undo(message if heard else late, "operations.service", undo, machine=machine)
    return redirect(url_for("operations.machines", _anchor=f"machine-{machine}"), 303)


@pages.post("/machines/<machine>/stages/<stage>/service")
def stage_service(machine: str, stage: str) -> BaseResponse:
    """Resume a stage that was drained on a machine, or drain it."""
    actor = auth.actor()
    auth.require(actor, "administer")
    app_services, out = services(), request.form.get("out") == "1"
    # what a machine left behind that is gone from the configuration can still be ended
    if out and machine not in {one.name for one in app_services.config.machines}:
        raise NotFound(_("This machine is not in the configuration."))
    with app_services.store.write() as session:
        gone = operations.set_stage_drained(session, machine, stage[:40], actor.name, out=out)
    heard = app_services.dispatch.tell_out(gone)
    if heard and not out:
        app_services.dispatch.release()
    flash(
        _("%(stage)s on %(name)s is drained.", stage=title_of(stage), name=machine)
        if out
        else _("%(stage)s on %(name)s is resumed.", stage=title_of(stage), name=machine)
    )
    return redirect(url_for("operations.machines"), 303)


@pages.get("/operations/messages")
def messages() -> str:
    """What waits to be sent, and what failed, for administrators."""
    auth.require(auth.actor(), "administer")
    with services().store.read_autocommit() as session:
        waiting, counts = metrics.count_outbox(session), operations.count_dead_messages(session)
        dead = operations.list_dead_messages(session, counts)
    return render_template(
        "operations/messages.html", waiting=waiting, dead=dead, counts=counts, span=span,
        kind_title=dashboard.kind_title,
    )  # fmt: skip


@pages.post("/operations/messages")
def send_again() -> BaseResponse:
    """Send the chosen messages again, or all of a kind."""
    actor = auth.actor()
    auth.require(actor, "administer")
    chosen = [text for text in request.form.getlist("message") if text.isdecimal() and len(text) < 16]
    kind = request.form.get("kind", "")[:40]
    with services().store.write() as session:
        count = operations.retry_messages(session, actor.name, kind, tuple(map(int, chosen)))
    message = ngettext("Resending one message.", "Resending %(count)s messages.", count)
    flash(message if count else _("Choose at least one message first."), "success" if count else "warning")
    return redirect(url_for("operations.messages"), 303)


@pages.get("/operations/tokens")
def tokens() -> str:
    """All tokens in use, for administrators."""
    auth.require(auth.actor(), "administer")
    page = request.args.get("page", "")
    with services().store.read_autocommit() as session:
        found = operations.list_tokens(session, int(page) if page.isdecimal() and len(page) < 7 else 1)
    return render_template("operations/tokens.html", tokens=found, may=SCOPE_TEXTS)


@pages.post("/operations/tokens/<int(max=2147483647):token_id>/end")
def end_token(token_id: int) -> BaseResponse:
    """End somebody's token."""
    actor = auth.actor()
    auth.require(actor, "administer")
    with services().store.write() as session:
        name = operations.revoke_token(session, token_id, actor.name)
    flash(_("Token “%(name)s” revoked. Requests with it are refused.", name=name), "success")
    return redirect(url_for("operations.tokens"), 303)
