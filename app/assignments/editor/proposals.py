"""A first rubric: drafted by a model on the machines, behind all grading, or made from the solution."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from flask import Blueprint, current_app, flash, jsonify, redirect, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from redis.exceptions import RedisError
from werkzeug.wrappers import Response

from app.assignments.editor import forms
from app.gateway_requests.asking import AnswerCut, ModelQuestion, ask_model, available_model
from app.gateway_requests.errors import Refused
from app.gateway_requests.response_events import ClientGone
from app.gateway_requests.slots import GatewayServices
from app.web import assignment_pages, auth
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import render_error, render_message
from app.web.services import services
from grading.assignments.editor import rubric_from_model
from grading.broker.away import why_away
from grading.broker.gateway_requests import Event
from grading.domain.document import Document
from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.rubric import Rubric
from grading.store import tables
from grading.store.assignments import versions
from grading.store.assignments.versions import NothingChanged

ANSWER_TOO_LONG = define_message(
    "proposal.answer_too_long", "The model's answer was too long. Try again, or start from the template."
)
log = logging.getLogger(__name__)
pages = Blueprint("editor_proposals", __name__)
LIMIT_S = 240.0
"""For all of it, waiting for a machine included."""
KEEP_S = 3600.0
MOST = 4
"""Drafts under way at the same time."""


@dataclass
class Draft:
    """One rubric that is drafted; its thread writes, pages read."""

    id: str
    user_id: int
    assignment_id: int
    shortened: bool
    began: float
    state: str = "waiting"
    """waiting, writing, done, failed"""
    machine: str = ""
    model: str = ""
    chars: int = 0
    seconds: float = 0.0
    why: str = ""
    rubric: Rubric | None = None
    cancelled: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in ("done", "failed")


@dataclass
class Drafts:
    """Those of this process, for an hour; nothing of them is kept anywhere else."""

    known: dict[str, Draft] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, draft: Draft) -> None:
        """Take it in. Raises Conflict while there are too many."""
        with self.lock:
            limit = time.monotonic() - KEEP_S
            self.known = {key: one for key, one in self.known.items() if one.began > limit or not one.over}
            if sum(not one.over for one in self.known.values()) >= MOST:
                raise Conflict(_("Other rubrics are being generated. Try again in a few minutes."))
            self.known[draft.id] = draft

    def find(self, draft_id: str, user_id: int, assignment_id: int) -> Draft:
        """Somebody's own. Raises NotFound."""
        found = self.known.get(draft_id)
        if found is None or (found.user_id, found.assignment_id) != (user_id, assignment_id):
            raise NotFound(_("This draft no longer exists. Start another one."))
        return found


@pages.record
def _remember(state: BlueprintSetupState) -> None:
    """Give the app its drafts."""
    state.app.extensions["grader-drafts"] = Drafts()


def _drafts() -> Drafts:
    return cast(Drafts, current_app.extensions["grader-drafts"])


@pages.get(f"/assignments/{ANY}/rubric/draft")
def form(assignment_id: int) -> str:
    """What can be had: a model's draft where there is a model, and one made from the solution."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        now = versions.load_newest(session, found)
        top, row = assignment_pages.head(session, found, now), now.version
        made = forms.first_rubric(_documents(row.solution))
        has = {"task": bool(row.task.strip()), "solution": bool(row.solution)}
    return render_template(
        "assignments/editor/proposal_form.html",
        head=top,
        made=made,
        has=has,
        model=available_model(services().gateway),
    )


@pages.post(f"/assignments/{ANY}/rubric/draft")
def request_draft(assignment_id: int) -> Response:
    """Ask a model; the page that follows shows how far it is."""
    actor, gateway = auth.actor(), services().gateway
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        row = versions.load_newest(session, found).version
        question = _question(row)
    if gateway is None or not available_model(gateway):
        flash(_("No machine with a model is available now. Start from the template or try again later."))
        return redirect(url_for("editor_proposals.form", assignment_id=assignment_id), 303)
    draft = Draft(secrets.token_hex(16), actor.user_id, assignment_id, question.shortened, time.monotonic())
    _drafts().begin(draft)
    thread = threading.Thread(target=_write, args=(gateway, draft, question, forms.stages()), daemon=True)
    thread.start()
    where = url_for("editor_proposals.show", assignment_id=assignment_id, draft_id=draft.id)
    return redirect(where, 303)


@pages.get(f"/assignments/{ANY}/rubric/draft/<draft_id>")
def show(assignment_id: int, draft_id: str) -> str:
    """How far a draft is, and the rubric in the end."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        top = assignment_pages.head(session, assignment_pages.changeable(session, actor, assignment_id))
    draft = _drafts().find(draft_id, actor.user_id, assignment_id)
    return render_template(
        "assignments/editor/proposal.html", head=top, draft=draft, said=_progress(draft), limit=LIMIT_S
    )


@pages.get(f"/assignments/{ANY}/rubric/draft/<draft_id>.json")
def progress(assignment_id: int, draft_id: str) -> Response:
    """What the page asks for while it waits."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        assignment_pages.changeable(session, actor, assignment_id)
    draft = _drafts().find(draft_id, actor.user_id, assignment_id)
    return jsonify(over=draft.over, said=_progress(draft))


@pages.post(f"/assignments/{ANY}/rubric/draft/<draft_id>/stop")
def stop(assignment_id: int, draft_id: str) -> Response:
    """Nobody wants it any more."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        assignment_pages.changeable(session, actor, assignment_id)
    _drafts().find(draft_id, actor.user_id, assignment_id).cancelled = True
    flash(_("Draft canceled."))
    return redirect(url_for("editor_proposals.form", assignment_id=assignment_id), 303)


@pages.post(f"/assignments/{ANY}/rubric/take")
def accept(assignment_id: int) -> Response:
    """Save the draft of a model, or the template, as a draft version: a person wants it."""
    actor, draft_id = auth.actor(), request.form.get("draft", "")
    with services().store.write() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        row = versions.load_newest(session, found).version
        if draft_id:
            draft = _drafts().find(draft_id, actor.user_id, assignment_id)
            rubric, note = draft.rubric, _("Generated by %(model)s", model=draft.model)
        else:
            rubric = forms.first_rubric(_documents(row.solution))
            note = _("Generated from the solution")
        if rubric is None:
            raise NotFound(_("This draft has no rubric."))
        content = versions.load_content(session, row)
        try:
            versions.save_draft(session, found, replace(content, rubric=rubric), row.number, actor, note)
            flash(_("Saved as a draft. Check every line before you publish it."))
        except NothingChanged as error:
            flash(render_error(error))
    return redirect(url_for("editor_rubric.edit", assignment_id=assignment_id), 303)


def _question(row: tables.RubricVersion) -> rubric_from_model.Question:
    starter, solution = (_text(_documents(docs)) for docs in (row.starter, row.solution))
    return rubric_from_model.question(row.task, starter, solution, forms.stages(), row.spoken_language)


def _documents(rows: Sequence[Any]) -> tuple[Document, ...]:
    return tuple(Document.model_validate(one) for one in rows)


def _text(documents: Sequence[Document]) -> str:
    return "\n\n".join(cell.source for document in documents for cell in document.cells)


# --- the thread -----------------------------------------------------------------------------------------


def _write(
    gateway: GatewayServices, draft: Draft, question: rubric_from_model.Question, stages: tuple[str, ...]
) -> None:
    """Have it written; ends with a rubric or with a sentence. The body of a thread."""
    wanted = ModelQuestion(question.system, question.user, question.schema, rubric_from_model.MAX_TOKENS)
    try:
        text = ask_model(gateway, wanted, LIMIT_S, lambda: draft.cancelled, partial(_heard, draft))
        draft.rubric = rubric_from_model.rubric_of(text, stages)
        draft.state = "done"
    except ClientGone:
        _failed(draft, N_("Canceled."))
    except AnswerCut:
        _failed(draft, render_message(ANSWER_TOO_LONG()))
    except (Refused, rubric_from_model.NoProposal) as error:
        _failed(draft, render_error(error))
    except RedisError as error:
        log.warning("%s, a draft was canceled: %s", why_away(error), type(error).__name__)
        _failed(draft, N_("The machines cannot be reached right now. Try again in a minute."))
    except Exception:
        log.exception("generating a draft of a rubric failed")
        _failed(draft, N_("Something went wrong on the server. Try again, or start from the template."))
    draft.seconds = time.monotonic() - draft.began


def _failed(draft: Draft, why: str) -> None:
    draft.why, draft.state = why, "failed"


def _heard(draft: Draft, event: Event) -> None:
    if event.kind == "begun":
        draft.state, draft.machine, draft.model, draft.chars = "writing", event.machine, event.model, 0
    draft.chars += len(event.text)


def _progress(draft: Draft) -> str:
    """How far it is, as a sentence."""
    seconds = int(time.monotonic() - draft.began)
    if draft.state == "waiting":
        return _("Waiting for a machine. Grading has priority (%(seconds)s s).", seconds=seconds)
    if draft.state == "writing":
        values = {"model": draft.model, "machine": draft.machine, "chars": draft.chars, "seconds": seconds}
        return _("%(model)s on %(machine)s is writing: %(chars)s characters, %(seconds)s s.", **values)
    if draft.state == "failed":
        return _("No rubric was generated: %(why)s", why=draft.why)
    return _("Generated by %(model)s on %(machine)s.", model=draft.model, machine=draft.machine)
