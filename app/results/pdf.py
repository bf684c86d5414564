"""A result as data for the template of its PDF: strings, numbers and lists, bounded, no markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.reports import adjustments, executions, flags, points
from app.reports.images import Picture
from app.reports.rendering import hand_in
from app.reports.template_helpers import further_stages
from app.results import pdf_documents, pdf_markdown
from app.web.check_messages import said as in_words
from app.web.i18n import current, fixed, number
from app.web.i18n import gettext as _
from app.web.markdown import beyond_fonts, one_line, seen
from app.web.stage_titles import title_of
from grading.domain.model import CheckOutcome, Document
from grading.domain.outcome import Corrected, CriterionGrade, Report
from grading.execution.display import ShownTrial
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import SubmissionView


@dataclass(frozen=True)
class Printed:
    """All that is printed of one hand-in. `report` is what the reader of the PDF may see."""

    view: SubmissionView
    report: Report
    documents: tuple[Document, ...]
    terms: ScoreTerms
    trial: ShownTrial | None
    pictures: Mapping[tuple[str, int], Mapping[int, Picture]]
    """(document, cell) -> its pictures by number."""
    staff: bool = False


def data(given: Printed) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the template needs, and the files of its pictures."""
    view, report = given.view, given.report
    assert view.grade is not None  # there is a report
    numbers = {place: list(found) for place, found in given.pictures.items()}
    shown = hand_in(
        given.documents, report, view.grade.original, trial=given.trial, staff=given.staff,
        pictures=numbers, room=pdf_documents.room(),
    )  # fmt: skip
    files = pdf_documents.Files(given.pictures)
    documents = [pdf_documents.document(one, files) for one in shown.documents]
    summed = points.summed(view.grade, given.terms)
    made: dict[str, Any] = {
        "lang": current()[:2],
        "course": one_line(view.course_title),
        "title": one_line(view.assignment_title),
        "about": " · ".join(
            [one_line(view.student), _("Hand-in %(number)s", number=view.number), _time(view.created_at)]
        ),
        "foot": f"{one_line(view.assignment_title, 60)} · {one_line(view.student, 60)}",
        "points": summed.total or summed.so_far,
        "of": _("of %(most)s points", most=summed.most) if summed.total else _("points so far, no total yet"),
        "sums": [line for line in (summed.steps, summed.late, seen(in_words(report.notice))) if line],
        "first": [*_feedback(report), *_further(report)],
        "notes": [*_failures(report), *_flags(report, given.staff)],
        "criteria": [_criterion(one, given) for one in report.criteria],
        "adjustments": [_adjusted(one, given.staff) for one in adjustments.lines(report, everything=False)],
        "added_up": adjustments.summed(report),
        "then": _review(report),
        "loose": [pdf_documents.comment(one) for one in shown.loose],
        "documents": documents,
        "origins": list(_origins(report)),
        "words": {
            "notes": _("Worth a look"),
            "criteria": _("Points by criterion"),
            "adjustments": _("Deductions and bonus"),
            "documents": _("What was handed in"),
            "origins": _("How this came about"),
        },
    }
    if beyond_fonts(" ".join(_all_text(made))):
        made["notes"].append(_("Some signs cannot be printed here; the page of the result shows them."))
    return made, files.kept


def _time(moment: datetime) -> str:
    return f"{moment:%d %b %Y, %H:%M} UTC"


# --- words --------------------------------------------------------------------------------------------


def _piece(title: str, text: str, changed: Corrected | None = None) -> dict[str, Any]:
    return {"title": title, "blocks": pdf_markdown.blocks(text), "changed": pdf_documents.changed(changed)}


def _listed(title: str, texts: Sequence[str]) -> dict[str, Any]:
    blocks = []
    for text in texts:
        first, *rest = pdf_markdown.blocks(text) or [{"kind": "text", "runs": [["", ""]]}]
        item = {**first, "kind": "item", "mark": "•", "depth": 0} if "runs" in first else first
        blocks += [item, *rest]
    return {"title": title, "blocks": blocks, "changed": ""}


def _origin(report: Report, stage: str) -> str:
    how = report.stages.get(stage)
    if how is None:
        return ""
    if not how.uses_model:
        return _("Made by fixed rules, without a language model.")
    return _("Written by a language model: %(model)s.", model=one_line(how.model))


def _feedback(report: Report) -> list[dict[str, Any]]:
    said, fixed = report.feedback, report.corrected
    if said is None:
        return []
    pieces = [
        _piece("", said.achieved, fixed.get("feedback.achieved")),
        _listed(_("What works well"), said.strengths),
        _piece(_("Your thinking"), said.reflection, fixed.get("feedback.reflection")),
        _listed(_("What to develop"), said.develop),
        _piece(_("In practice"), said.practice, fixed.get("feedback.practice")),
        _piece(_("Your next step"), said.next_step, fixed.get("feedback.next_step")),
    ]
    kept = [one for one in pieces if one["blocks"]]
    return [{"title": _("Feedback for you"), "pieces": kept, "origin": _origin(report, "feedback")}]


def _review(report: Report) -> list[dict[str, Any]]:
    if report.analysis is None:
        return []
    pieces = [
        _piece("", report.analysis.summary, report.corrected.get("analysis.summary")),
        _listed(_("Strengths"), report.analysis.strengths),
    ]
    kept = [one for one in pieces if one["blocks"]]
    return [{"title": _("Technical review"), "pieces": kept, "origin": _origin(report, "analysis")}]


def _further(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "title": one_line(title),
            "pieces": [
                _listed("", part) if isinstance(part, tuple) else _piece("", part) for part in more.parts
            ],
            "origin": _origin(report, more.stage),
        }
        for title, more in further_stages(report)
    ]


def _failures(report: Report) -> Iterator[str]:
    for stage, sentence in report.failures.items():
        did_not = _("%(stage)s did not work.", stage=title_of(stage))
        yield f"{did_not} {seen(sentence)} {_('Its points are open, not zero.')}"


def _flags(report: Report, staff: bool) -> Iterator[str]:
    for note in executions.run_notes(report, staff):
        yield seen(f"{note.title}. {note.words} {note.detail}".strip())
    for flag in flags.flag_notes(report, staff):
        yield " ".join([flag.words, *(part.words for part in flag.parts)])


def _adjusted(found: adjustments.Line, staff: bool) -> dict[str, Any]:
    return {
        "title": found.title,
        "points": found.taken,
        "rule": f"{found.rule[:1].upper()}{found.rule[1:]}; {found.state}.",
        "blocks": pdf_markdown.blocks(found.description),
        "checks": [_check(one, staff) for one in found.evidence],
        "changed": pdf_documents.changed(found.corrected),
    }


def _criterion(found: CriterionGrade, given: Printed) -> dict[str, Any]:
    most = number(found.max_points)
    level = points.level_words(found, given.terms.levels.get(found.criterion, ()))
    changed = pdf_documents.changed(found.corrected)
    if found.corrected and found.basis == "person" and found.corrected.points is not None:
        was = _("Before: %(was)s points", was=number(found.corrected.points))
        changed = f"{changed} {was}"
    return {
        "title": one_line(found.title) + (f" ({_('bonus')})" if found.bonus else ""),
        "points": _("not judged")
        if found.points is None
        else _("%(points)s of %(most)s", points=number(found.points), most=most),
        "level": _("Level: %(level)s", level=one_line(level)) if level else "",
        "blocks": pdf_markdown.blocks(found.reason),
        "checks": [_check(one, given.staff) for one in found.evidence],
        "quotes": [
            {
                "text": pdf_documents.wrapped(quote.text)[0],
                "place": flags.place_words(quote.location) if quote.location else "",
            }
            for quote in found.quotes
        ],
        "basis": title_of(found.stage),
        "changed": changed,
    }


def _check(found: CheckOutcome, staff: bool) -> str:
    sign = _("met") if found.earned >= 1 else _("met in part") if found.earned > 0 else _("not met")
    sign = sign if found.weight else _("not counted")
    said = executions.said(found) or (executions.counted(found.tests) if found.tests else "")
    failed = [one_line(t.name, 80) for t in found.tests if not t.passed and (staff or not t.hidden)][:20]
    words = [f"{sign}: {one_line(found.label or found.check)}", one_line(said, 400)]
    if failed:
        words.append(_("Failed: %(names)s", names=", ".join(failed)))
    return ". ".join(word for word in words if word)


def _origins(report: Report) -> Iterator[str]:
    for stage, how in report.stages.items():
        words = [title_of(stage), one_line(how.model), one_line(how.machine), one_line(how.engine)]
        words.append(_("%(seconds)s s", seconds=fixed(how.seconds, 1)))
        if how.uses_model:
            words.append(_("%(count)s tokens written", count=how.tokens.output))
        yield " · ".join(word for word in words if word)


def _all_text(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _all_text(one)
