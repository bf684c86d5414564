"""The audit in plain sentences: of a course for its instructors, of everything for administrators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, render_template, request

from app.operations.audit_texts import DETAILS, HIDDEN, NOUNS, WORDS, sentence_of
from app.web import auth
from app.web.auth import SCOPE_TEXTS
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import number, when
from app.web.platform_pages import platform_pages
from app.web.services import services
from app.web.template_helpers import address
from grading.store.courses import courses
from grading.store.views import audit_log
from grading.store.views.audit_log import AuditEntry, AuditFilters, AuditPage, NamedObject

pages = Blueprint("audit", __name__)
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    # value in the address: (title, first words of actions)
    "grades": (N_("Grades"), ("grade", "mark", "regrade", "round", "rerun", "comment", "example", "dry_run")),
    "work": (N_("Hand-ins"), ("submission", "batch", "group", "extension", "student")),
    "assignments": (N_("Assignments"), ("assignment", "rubric", "course")),
    "people": (N_("People"), ("roster", "role", "user", "link")),
    "access": (N_("Signing in"), ("sign_in", "password", "account", "session", "token")),
    "system": (N_("System"), ("machine", "database")),
}
MOMENT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+\d\d:\d\d")
OF_COURSE = ("grades", "work", "assignments", "people")


@dataclass(frozen=True)
class Told:
    """A row for the page."""

    at: datetime
    sentence: str
    details: tuple[tuple[str, str], ...]
    url: str | None
    """Of what it is about."""


@pages.get("/courses/<int(max=2147483647):course_id>/audit")
def course(course_id: int) -> str:
    """Who did what in a course."""
    auth.in_course("course.audit", course_id)
    with services().store.read_autocommit() as session:
        found = courses.load_course_title(session, course_id)
        lines = audit_log.list_entries(session, _wanted(OF_COURSE, course_id))
    return _page(lines, OF_COURSE, course=found)


@pages.get("/audit")
def everything() -> str:
    """Who did what anywhere, for administrators."""
    auth.require(auth.actor(), "administer")
    with services().store.read_autocommit() as session:
        lines = audit_log.list_entries(session, _wanted(tuple(KINDS)))
    return _page(lines, tuple(KINDS), course=None)


def _wanted(offered: tuple[str, ...], course_id: int | None = None) -> AuditFilters:
    kind, before = request.args.get("kind", ""), request.args.get("before", "")
    return AuditFilters(
        course_id=course_id,
        person=request.args.get("person", "")[:200],
        kinds=KINDS[kind][1] if kind in offered else (),
        before=int(before) if before.isdecimal() and len(before) < 10 else None,
    )


def _page(lines: AuditPage, offered: tuple[str, ...], **values: Any) -> str:
    return render_template(
        "operations/audit.html",
        rows=[_told(line) for line in lines.lines],
        older=lines.older,
        kinds={key: KINDS[key][0] for key in offered},
        person=request.args.get("person", "")[:200],
        kind=request.args.get("kind", ""),
        first="before" not in request.args,
        **values,
    )


def _told(line: AuditEntry) -> Told:
    sentence = sentence_of(line.action)
    names = {"who": _who(line.actor), "what": _what(line.object)}
    if sentence is None:
        words = line.action.replace(".", ": ").replace("_", " ")
        text = _("%(who)s: %(action)s, %(what)s", action=words, **names)
    else:
        text = _(sentence, **names)
    return Told(line.at, text, _details(line), _url(line.object))


def _who(actor: NamedObject) -> str:
    if actor.kind == "token":
        return _(
            "%(name)s, by the token “%(token)s”", name=actor.of or _("somebody"), token=actor.name or actor.id
        )
    if actor.kind == "user":
        return actor.name or _("somebody (number %(number)s)", number=actor.id)
    known = {
        "system": _("The system"),
        "cli": _("Somebody at the command line"),
    }
    for pages_of in platform_pages().values():
        known |= {kind: _(title) for kind, title in pages_of.audit_actors.items()}
    return known.get(actor.kind, f"{actor.kind}:{actor.id}" if actor.id else actor.kind)


def _what(thing: NamedObject) -> str:
    if thing.kind == "submission" and thing.name:
        return _(
            "hand-in %(number)s of %(name)s for “%(title)s”",
            number=thing.number, name=thing.of or _("somebody"), title=thing.name,
        )  # fmt: skip
    if thing.name:
        return thing.name if thing.kind == "user" else _("“%(title)s”", title=thing.name)
    if thing.kind == "user":
        return _("somebody (number %(number)s)", number=thing.id)
    noun = NOUNS.get(thing.kind)
    return f"{_(noun) if noun else ''} {thing.id}".strip()


def _url(thing: NamedObject) -> str | None:
    if thing.kind == "submission" and thing.name:
        return address("submissions.submission", submission_id=thing.id)
    if thing.kind == "user" and thing.name and auth.actor().administrator:
        return address("users.person", user_id=int(thing.id))
    return None


def _details(line: AuditEntry) -> tuple[tuple[str, str], ...]:
    """What the row says beside the sentence, flat and short."""
    detail, shown = dict(line.detail), []
    for before, after in (("before", "after"), ("from", "to")):
        if before in detail and after in detail:
            shown += _moves(detail.pop(before), detail.pop(after))
    for key, value in sorted(detail.items()):
        text = _scopes(value) if key == "scopes" and isinstance(value, list) else _flat(value)
        if text != "–" and key not in HIDDEN and value != 0:
            shown.append((_(DETAILS[key]) if key in DETAILS else key.replace("_", " "), text))
    return tuple((name, text if len(text) <= 300 else text[:299] + "…") for name, text in shown)


def _moves(before: object, after: object) -> list[tuple[str, str]]:
    """From what to what."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        found = [(name, _flat(before.get(name)), _flat(after.get(name))) for name in names]
        return [(_(DETAILS[name]) if name in DETAILS else name, f"{a} → {b}") for name, a, b in found]
    return [("", f"{_flat(before)} → {_flat(after)}")]


def _scopes(given: list[object]) -> str:
    """What a token may, as its own page says it."""
    return "; ".join(
        _(SCOPE_TEXTS[one]) if isinstance(one, str) and one in SCOPE_TEXTS else str(one) for one in given
    )


def _flat(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"from", "to"}:
        return f"{_word(value['from'])} → {_word(value['to'])}"
    if isinstance(value, dict):
        return ", ".join(
            f"{str(name).replace('_', ' ')}: {_word(one)}" for name, one in sorted(value.items())
        )
    if isinstance(value, list):
        return ", ".join(_word(one) for one in value[:10])
    return _word(value)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if value is None or value == "":
        return "–"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, NamedObject):
        return _what(value)
    return _moment(value) or _(WORDS.get(value, "")) or value if isinstance(value, str) else str(value)


def _moment(text: str) -> str:
    """A moment as it is kept, such as 2026-11-25T21:59:00+00:00, as people write it; else nothing."""
    if not MOMENT.fullmatch(text):
        return ""
    return f"{when(datetime.fromisoformat(text).astimezone(UTC))} UTC"
