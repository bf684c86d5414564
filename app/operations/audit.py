"""The audit log in plain sentences: of a course for its instructors, of everything for administrators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, render_template, request

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

ROLES: Mapping[str, str] = {
    "student": N_("student"),
    "grader": N_("grader"),
    "instructor": N_("instructor"),
}
DETAILS: Mapping[str, str] = {
    "made": N_("new accounts"),
    "joined": N_("added to the course"),
    "changed": N_("changed"),
    "unchanged": N_("unchanged"),
    "title": N_("title"),
    "archived": N_("course ended"),
    "drop_lowest": N_("lowest grades dropped"),
    "reason": N_("reason"),
    "changes": N_("changes"),
    "count": N_("number"),
    "credit": N_("credit for late work"),
    "dry_run": N_("dry run"),
    "submissions": N_("submissions"),
    "held": N_("held for review"),
    "final_points": N_("final points"),
    "how": N_("where"),
    "kept_better": N_("kept because the new grading failed or is held"),
    "kept_released": N_("kept because the old grade is released"),
    "not_graded": N_("grading failed"),
    "purpose": N_("purpose"),
    "replaced": N_("replaced"),
    "unfinished": N_("not finished"),
    "version": N_("version"),
    "released": N_("released"),
    "role": N_("role"),
    "scopes": N_("scopes"),
    "students": N_("students"),
    "administrator": N_("administrator"),
    "active": N_("in use"),
    "adjustment": N_("adjustment of the total"),
    "after": N_("after"),
    "before": N_("before"),
    "blind": N_("blind"),
    "criteria": N_("with points per criterion"),
    "criterion": N_("criterion"),
    "decision": N_("decision"),
    "deployment": N_("installation"),
    "due": N_("due"),
    "enabled": N_("turned on"),
    "engine": N_("engine"),
    "failures": N_("failed attempts"),
    "fields": N_("changed fields"),
    "file": N_("file"),
    "issuer": N_("issuer"),
    "kind": N_("type of change"),
    "marks": N_("marks"),
    "model": N_("model"),
    "name": N_("name"),
    "out": N_("stage drained"),
    "platform": N_("learning platform"),
    "points": N_("points"),
    "provider": N_("source"),
    "question": N_("question"),
    "sample": N_("sample"),
    "share": N_("share"),
    "slug": N_("short name"),
    "stage": N_("stage"),
    "state": N_("status"),
    "student": N_("student"),
    "target": N_("where"),
    "text": N_("text"),
    "thresholds": N_("thresholds"),
    "waiting": N_("waiting"),
    "which": N_("which submissions"),
    "why": N_("reason"),
    "within": N_("distance from a threshold"),
    "works": N_("marked works"),
}
"""What details are called; others by their names."""
WORDS: Mapping[str, str] = {
    **ROLES,
    "page": N_("result page"),
    "review": N_("review page"),
    "criterion": N_("review by criterion"),
    "example": N_("for an example"),
    "pdf": N_("as a PDF"),
    "zip": N_("as PDFs in a ZIP file"),
    "api": N_("through the API"),
    # what a person changed of a result
    "points": N_("points"),
    "confirm": N_("confirmed points"),
    "reason": N_("the reason"),
    "item": N_("an applied rubric item"),
    "remove_item": N_("a removed rubric item"),
    "remark": N_("an edited comment"),
    "hide": N_("a hidden comment"),
    "add": N_("an added comment"),
    "text": N_("a text"),
    "adjust": N_("the total"),
    "waive": N_("a waived deduction"),
    "apply": N_("an applied deduction"),
    "total": N_("the total"),
    # what a dry run is for
    "try": N_("test run"),
    "rubric": N_("a rubric change"),
    "rerun": N_("regrading"),
    # how a request for a regrade ended
    "open": N_("open"),
    "accepted": N_("accepted"),
    "declined": N_("declined"),
    "withdrawn": N_("withdrawn"),
    # what came of a trial of a model
    "switched": N_("switched"),
    "refused": N_("refused"),
    "stopped": N_("stopped"),
}
"""Values of details that have words of their own."""
NOUNS: Mapping[str, str] = {
    "assignment": N_("assignment"),
    "course": N_("course"),
    "delivery": N_("delivery"),
    "machine": N_("machine"),
    "receiver": N_("receiver"),
    "submission": N_("submission"),
    "webhook_secret": N_("secret"),
}
"""What things without a name are called before their ids; of others the sentence says what they are."""
HIDDEN = frozenset(
    {
        "bulk",
        "group",
        "change",
        "context",
        "digest",
        "example",
        "request",
        "round",
        "stress_test",
        "trial",
        "undo",
    }
)
"""Numbers that say nothing to people."""
SENTENCES: Mapping[str, str] = {
    "grade.view": N_("%(who)s viewed the grade of %(what)s."),
    "grade.change": N_("%(who)s changed the grade of %(what)s."),
    "grade.undo": N_("%(who)s undid a change to the grade of %(what)s."),
    "grade.late": N_("%(who)s changed a due date or the late penalty, which changed the grade of %(what)s."),
    "grade.replace": N_("%(who)s replaced the grade of %(what)s with a regrade."),
    "grade.replace_undo": N_("%(who)s restored the grade of %(what)s from before a regrade."),
    "grades.export": N_("%(who)s exported the grades of %(what)s."),
    "grades.import": N_("%(who)s imported grades of %(what)s from a CSV file."),
    "grade.accept_undo": N_("%(who)s marked the grade of %(what)s as not reviewed."),
    "grade.accept": N_("%(who)s reviewed %(what)s and accepted its grade."),
    "grade.release": N_("%(who)s released the grade of %(what)s."),
    "grade.release_all": N_("%(who)s released grades of %(what)s."),
    "grade.withdraw": N_("%(who)s withdrew the grade of %(what)s."),
    "grade.adjust_all": N_("%(who)s applied a curve to the grades of %(what)s."),
    "grade.adjust_undo": N_("%(who)s undid a curve of %(what)s."),
    "answer.separate": N_("%(who)s took an answer of %(what)s out of its group."),
    "answer.rejoin": N_("%(who)s put an answer of %(what)s back into its group."),
    "guarantee.draw": N_("%(who)s drew a random sample of %(what)s to be marked blind."),
    "guarantee.release": N_("%(who)s released grades of %(what)s unread, as a sample proves them."),
    "similarity.compare": N_("%(who)s had submissions of %(what)s compared."),
    "mark.give": N_("%(who)s did second marking of %(what)s."),
    "question.answer": N_("%(who)s answered a question about the rubric of %(what)s."),
    "question.dismiss": N_("%(who)s dismissed a question about the rubric of %(what)s."),
    "question.reopen": N_("%(who)s reopened a question about the rubric of %(what)s."),
    "regrade.ask": N_("%(who)s requested a regrade of %(what)s."),
    "regrade.answer": N_("%(who)s answered the regrade request for %(what)s."),
    "regrade.reopen": N_("%(who)s sent the withdrawn regrade request for %(what)s again."),
    "regrade.undo": N_("%(who)s undid the answer to the regrade request for %(what)s."),
    "regrade.withdraw": N_("%(who)s withdrew the regrade request for %(what)s."),
    "example.add": N_("%(who)s chose a correction as an example for %(what)s."),
    "example.edit": N_("%(who)s edited an example of %(what)s."),
    "example.on": N_("%(who)s turned on an example of %(what)s."),
    "example.off": N_("%(who)s turned off an example of %(what)s."),
    "example.restore": N_("%(who)s put a removed example of %(what)s back."),
    "example.remove": N_("%(who)s removed an example of %(what)s."),
    "round.replay": N_("%(who)s retried grading %(what)s after it failed."),
    "item.save": N_("%(who)s saved a rubric item of %(what)s."),
    "comment.save": N_("%(who)s saved a comment for %(what)s."),
    "comment.delete": N_("%(who)s deleted a saved comment of %(what)s."),
    "batch.upload": N_("%(who)s started the class upload %(what)s."),
    "batch.confirm": N_("%(who)s submitted the class upload %(what)s."),
    "group.arrange": N_("%(who)s changed the groups of %(what)s."),
    "group.invite": N_("%(who)s invited someone to their group for %(what)s."),
    "group.confirm": N_("%(who)s joined a group for %(what)s."),
    "group.leave": N_("%(who)s left a group for %(what)s."),
    "extension.give": N_("%(who)s added an extension for %(what)s."),
    "extension.revoke": N_("%(who)s removed an extension for %(what)s."),
    "student.export": N_("%(who)s exported all data of %(what)s."),
    "student.erase": N_("%(who)s deleted all data of %(what)s."),
    "assignment.create": N_("%(who)s created the assignment %(what)s."),
    "assignment.save": N_("%(who)s saved a draft of %(what)s."),
    "assignment.publish": N_("%(who)s published a version of %(what)s."),
    "assignment.unpublish": N_("%(who)s made a published version of %(what)s a draft again."),
    "assignment.settings": N_("%(who)s changed the settings of %(what)s."),
    "assignment.export": N_("%(who)s downloaded %(what)s as a ZIP file."),
    "dry_run.begin": N_("%(who)s started a dry run for %(what)s."),
    "dry_run.apply": N_("%(who)s applied the grades of a dry run to %(what)s."),
    "dry_run.restore": N_("%(who)s opened a discarded dry run for %(what)s again."),
    "dry_run.undo": N_("%(who)s restored the grades of %(what)s from before a dry run was applied."),
    "dry_run.discard": N_("%(who)s discarded a dry run for %(what)s."),
    "stress_test.begin": N_("%(who)s started a stress test for %(what)s."),
    "stress_test.cancel": N_("%(who)s cancelled a stress test for %(what)s."),
    "assignment.import": N_("%(who)s imported a version of %(what)s."),
    "assignment.release": N_("%(who)s changed how grades of %(what)s are released."),
    "assignment.second_opinion": N_("%(who)s changed which submissions of %(what)s get a second opinion."),
    "model_trial.start": N_("%(who)s started a trial of a model for %(what)s."),
    "model_trial.decide": N_("%(who)s decided about a trial of a model for %(what)s."),
    "golden.choose": N_("%(who)s chose the golden submissions of %(what)s."),
    "marks.import": N_("%(who)s imported marks for %(what)s."),
    "marks.remove": N_("%(who)s removed imported marks of %(what)s."),
    "course.create": N_("%(who)s created the course %(what)s."),
    "course.change": N_("%(who)s changed the settings of %(what)s."),
    "roster.import": N_("%(who)s changed the roster of %(what)s."),
    "roster.restore": N_("%(who)s put %(what)s back into the course."),
    "roster.remove": N_("%(who)s removed %(what)s from the course."),
    "role.change": N_("%(who)s changed the role of %(what)s."),
    "link.make": N_("%(who)s created a link for %(what)s to set a password."),
    "user.create": N_("%(who)s created the account of %(what)s."),
    "user.change": N_("%(who)s changed the name or email address of %(what)s."),
    "user.email": N_("%(who)s changed the email address of %(what)s."),
    "user.password": N_("%(who)s set the password of %(what)s."),
    "user.administrator": N_("%(who)s gave %(what)s the administrator role."),
    "user.not_administrator": N_("%(who)s removed the administrator role of %(what)s."),
    "user.disabled": N_("%(who)s disabled the account of %(what)s."),
    "user.not_disabled": N_("%(who)s enabled the account of %(what)s."),
    "sign_in": N_("%(who)s signed in."),
    "sign_in.break_glass": N_("%(who)s signed in with a break-glass account."),
    "password.first_step": N_("%(who)s entered the right password and was asked for the second factor."),
    "password.confirm": N_("%(who)s entered the current password to change the second factor."),
    "second_factor.on": N_("%(who)s turned on the second factor of %(what)s."),
    "second_factor.off": N_("%(who)s turned off the second factor of %(what)s."),
    "second_factor.codes": N_("%(who)s created new recovery codes for %(what)s."),
    "second_factor.wrong": N_("A wrong code of the second factor was entered for %(what)s."),
    "second_factor.reset": N_("%(who)s reset the second factor of %(what)s."),
    "user.break_glass": N_("%(who)s made the account of %(what)s a break-glass account."),
    "user.not_break_glass": N_("%(who)s made the account of %(what)s an ordinary account again."),
    "sign_on.link": N_("%(who)s linked a sign-in at a provider with the account of %(what)s."),
    "sign_on.link_by_rule": N_("The account of %(what)s was linked with a sign-in at a provider, by a rule."),
    "sign_on.unlink": N_("%(who)s unlinked a sign-in at a provider from the account of %(what)s."),
    "sign_on.lock": N_("Sign-ins at providers were locked for %(what)s until they are linked again."),
    "sign_on.reset": N_(
        "Password, sessions and API tokens of %(what)s ended: a sign-in at a provider was linked by a rule, "
        "or gave new rights."
    ),
    "sign_on.sign_out": N_("A provider signed %(what)s out."),
    "password.set": N_("A new password was set for %(what)s."),
    "password.check": N_("%(who)s entered the current password to change it."),
    "account.lock": N_("The account of %(what)s was locked for 15 minutes after too many wrong passwords."),
    "account.unlock": N_("%(who)s unlocked the account of %(what)s."),
    "session.end_all": N_("%(who)s signed %(what)s out of all sessions."),
    "token.create": N_("%(who)s created the API token %(what)s."),
    "token.revoke": N_("%(who)s revoked the API token %(what)s."),
    "delivery.replay": N_("%(who)s resent an event."),
    "delivery.test": N_("%(who)s sent a test message to an event receiver."),
    "receiver.pause": N_("Deliveries to an event receiver are paused: they failed for 2 days."),
    "receiver.resume": N_("%(who)s resumed deliveries to an event receiver."),
    "webhook_secret.create": N_("%(who)s created a webhook secret."),
    "webhook_secret.end": N_("%(who)s revoked a webhook secret."),
    "outbox.replay": N_("%(who)s resent failed messages."),
    "machine.drain": N_("%(who)s drained %(what)s."),
    "machine.undrain": N_("%(who)s resumed %(what)s."),
    "machine.drain_stage": N_("%(who)s drained a stage of %(what)s."),
    "machine.undrain_stage": N_("%(who)s resumed a stage of %(what)s."),
    "machine.parity": N_("%(who)s found that %(what)s rates golden submissions differently."),
    "database.backup": N_("%(who)s backed up the database."),
    "database.restore": N_("%(who)s restored the database from a backup."),
}
pages = Blueprint("audit", __name__)
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    # value in the address: (title, first words of actions)
    "grades": (
        N_("Grades"),
        (
            "grade",
            "grades",
            "answer",
            "item",
            "mark",
            "marks",
            "regrade",
            "round",
            "rerun",
            "comment",
            "example",
            "dry_run",
            "stress_test",
            "similarity",
            "guarantee",
            "model_trial",
            "golden",
        ),
    ),
    "work": (N_("Submissions"), ("submission", "batch", "group", "extension", "student")),
    "assignments": (N_("Assignments"), ("assignment", "rubric", "course", "question")),
    "people": (N_("People"), ("roster", "role", "user", "link")),
    "access": (
        N_("Sign-in"),
        ("sign_in", "password", "second_factor", "sign_on", "account", "session", "token"),
    ),
    "system": (
        N_("System"),
        ("machine", "database", "delivery", "receiver", "outbox", "webhook_secret"),
    ),
}
MOMENT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+\d\d:\d\d")
OF_COURSE = ("grades", "work", "assignments", "people")


def sentence_of(action: str) -> str | None:
    """Its sentence, to be translated; nothing where there is none."""
    of_platform = (pages.audit_sentences.get(action) for pages in platform_pages().values())
    return SENTENCES.get(action) or next((one for one in of_platform if one), None)


@dataclass(frozen=True)
class AuditRow:
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
        rows=[_row(line) for line in lines.lines],
        older=lines.older,
        kinds={key: KINDS[key][0] for key in offered},
        person=request.args.get("person", "")[:200],
        kind=request.args.get("kind", ""),
        first="before" not in request.args,
        **values,
    )


def _row(line: AuditEntry) -> AuditRow:
    sentence = sentence_of(line.action)
    names = {"who": _who(line.actor), "what": _what(line.object)}
    if sentence is None:
        words = line.action.replace(".", ": ").replace("_", " ")
        text = _("%(who)s: %(action)s, %(what)s", action=words, **names)
    else:
        text = _(sentence, **names)
    return AuditRow(line.at, text, _details(line), _url(line.object))


def _who(actor: NamedObject) -> str:
    if actor.kind == "token":
        return _(
            "%(name)s, using the token “%(token)s”",
            name=actor.of or _("someone"),
            token=actor.name or actor.id,
        )
    if actor.kind == "user":
        return actor.name or _("someone (number %(number)s)", number=actor.id)
    names = {
        "system": _("The system"),
        "cli": _("Command line"),
    }
    for pages_of in platform_pages().values():
        names |= {kind: _(title) for kind, title in pages_of.audit_actors.items()}
    return names.get(actor.kind, f"{actor.kind}:{actor.id}" if actor.id else actor.kind)


def _what(thing: NamedObject) -> str:
    if thing.kind == "submission" and thing.name:
        return _(
            "submission %(number)s of %(name)s for “%(title)s”",
            number=thing.number, name=thing.of or _("someone"), title=thing.name,
        )  # fmt: skip
    if thing.name:
        return thing.name if thing.kind == "user" else _("“%(title)s”", title=thing.name)
    if thing.kind == "user":
        return _("someone (number %(number)s)", number=thing.id)
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
    detail, parts = dict(line.detail), []
    for before, after in (("before", "after"), ("from", "to")):
        if before in detail and after in detail:
            parts += _moves(detail.pop(before), detail.pop(after))
    for key, value in sorted(detail.items()):
        text = _scopes(value) if key == "scopes" and isinstance(value, list) else _flat(value)
        if text != "–" and key not in HIDDEN and value != 0:
            parts.append((_(DETAILS[key]) if key in DETAILS else key.replace("_", " "), text))
    return tuple((name, text if len(text) <= 300 else text[:299] + "…") for name, text in parts)


def _moves(before: object, after: object) -> list[tuple[str, str]]:
    """From what to what."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        found = [(name, _flat(before.get(name)), _flat(after.get(name))) for name in names]
        return [(_(DETAILS[name]) if name in DETAILS else name, f"{a} → {b}") for name, a, b in found]
    return [("", f"{_flat(before)} → {_flat(after)}")]


def _scopes(scopes: list[object]) -> str:
    """What a token may, as its own page says it."""
    return "; ".join(
        _(SCOPE_TEXTS[one]) if isinstance(one, str) and one in SCOPE_TEXTS else str(one) for one in scopes
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
