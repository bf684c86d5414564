"""A result as data for the template of its PDF: strings, numbers and lists, bounded, no markup."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markdown_it.token import Token

from app.reports import executions, flags, score_breakdown
from app.reports.annotated_submission import CUT, Comment, Room, ShownCell, ShownDocument, render_submission
from app.reports.images import Picture
from app.reports.result import further_stages
from app.results.formulas import formula
from app.web import maths
from app.web.i18n import current, fixed, number, render_message
from app.web.i18n import gettext as _
from app.web.markdown import beyond_fonts, one_line, readable, reader, visible
from app.web.template_helpers import title_of
from grading.domain.document import Document
from grading.domain.evidence import CheckOutcome
from grading.domain.report import Corrected, CriterionGrade, Report
from grading.execution.display import ShownExecution
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import SubmissionView

LINES, CHARS, PICTURES = 1_500, 120_000, 24
"""Of a submission that a PDF shows."""
PIXELS = 12_000_000
"""Of all its pictures."""
COLUMNS = 96
"""Characters of a printed line; a longer one goes on in the next."""
LINES_OF_ONE = 200
"""Lines that one line of a submission may become."""
WIDTH_PT = 440.0
Block = dict[str, Any]
"""`kind` is text, head, item (with `mark` and `depth`), code or formula; it has `runs` of (words, how),
`text` or `formula`.
"""
_HOW = {"strong_open": "b", "em_open": "i", "strong_close": "", "em_close": ""}


@dataclass(frozen=True)
class Printed:
    """All that is printed of one submission. `report` is what the reader of the PDF may see."""

    view: SubmissionView
    report: Report
    documents: tuple[Document, ...]
    terms: ScoreTerms
    execution: ShownExecution | None
    pictures: Mapping[tuple[str, int], Mapping[int, Picture]]
    """(document, cell) -> its pictures by number."""
    staff: bool = False
    instead: int | None = None
    """The number of the submission that counts instead."""


def _heading(printed: Printed) -> dict[str, str]:
    view = printed.view
    about = [one_line(view.student), _("Submission %(number)s", number=view.number), _time(view.created_at)]
    about += [_("superseded by submission %(number)s", number=printed.instead)] if printed.instead else []
    return {
        "lang": current()[:2],
        "course": one_line(view.course_title),
        "title": one_line(view.assignment_title),
        "about": " · ".join(about),
        "foot": f"{one_line(view.assignment_title, 60)} · {one_line(view.student, 60)}",
    }


def data(printed: Printed) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the template needs, and the files of its pictures."""
    view, report = printed.view, printed.report
    assert view.grade is not None  # there is a report
    numbers = {place: list(found) for place, found in printed.pictures.items()}
    rendered = render_submission(
        printed.documents, report, view.grade.original, execution=printed.execution, staff=printed.staff,
        pictures=numbers, room=room(),
    )  # fmt: skip
    files = Files(printed.pictures)
    documents = [document_data(one, files) for one in rendered.documents]
    summed = score_breakdown.points_sum(view.grade, printed.terms)
    made: dict[str, Any] = {
        **_heading(printed),
        "points": summed.total or summed.so_far,
        "of": _("of %(most)s points", most=summed.most)
        if summed.total
        else _("points so far, total pending"),
        "sums": [
            line for line in (summed.steps, summed.late, visible(render_message(report.coded_notice))) if line
        ],
        "first": [*_feedback(report), *_further(report)],
        "notes": [*_failures(report), *_flags(report, printed.staff)],
        "criteria": [_criterion(one, printed) for one in report.criteria],
        "adjustments": [
            _adjusted(one, printed.staff)
            for one in score_breakdown.adjustment_lines(report, everything=False)
        ],
        "added_up": score_breakdown.adjustments_sum(report),
        "then": _review(report),
        "loose": [comment(one) for one in rendered.loose],
        "documents": documents,
        "origins": list(_origins(report)),
        "words": _headings(),
    }
    if beyond_fonts(" ".join(_all_text(made))):
        made["notes"].append(_("Some characters cannot be printed here. The result page shows them."))
    return made, files.kept


def _headings() -> dict[str, str]:
    return {
        "notes": _("Flags"),
        "criteria": _("Points by criterion"),
        "adjustments": _("Deductions and bonus"),
        "documents": _("Submitted work"),
        "origins": _("How this result was produced"),
    }


def _time(moment: datetime) -> str:
    return f"{moment:%d %b %Y, %H:%M} UTC"


# --- words --------------------------------------------------------------------------------------------


def _piece(title: str, text: str, corrected: Corrected | None = None) -> dict[str, Any]:
    return {"title": title, "blocks": blocks(text), "changed": changed(corrected)}


def _listed(title: str, texts: Sequence[str]) -> dict[str, Any]:
    made = []
    for text in texts:
        first, *rest = blocks(text) or [{"kind": "text", "runs": [["", ""]]}]
        item = {**first, "kind": "item", "mark": "•", "depth": 0} if "runs" in first else first
        made += [item, *rest]
    return {"title": title, "blocks": made, "changed": ""}


def _origin(report: Report, stage: str) -> str:
    how = report.stages.get(stage)
    if how is None:
        return ""
    if not how.uses_model:
        return _("Generated by the rules engine, without a language model.")
    return _("Written by a language model: %(model)s.", model=one_line(how.model))


def _feedback(report: Report) -> list[dict[str, Any]]:
    feedback, fixed = report.feedback, report.corrected
    if feedback is None:
        return []
    pieces = [
        _piece("", feedback.achieved, fixed.get("feedback.achieved")),
        _listed(_("What works well"), feedback.strengths),
        _piece(_("Your thinking"), feedback.reflection, fixed.get("feedback.reflection")),
        _listed(_("What to improve"), feedback.develop),
        _piece(_("In practice"), feedback.practice, fixed.get("feedback.practice")),
        _piece(_("Your next step"), feedback.next_step, fixed.get("feedback.next_step")),
    ]
    filled = [one for one in pieces if one["blocks"]]
    return [{"title": _("Feedback for you"), "pieces": filled, "origin": _origin(report, "feedback")}]


def _review(report: Report) -> list[dict[str, Any]]:
    if report.analysis is None:
        return []
    pieces = [
        _piece("", report.analysis.summary, report.corrected.get("analysis.summary")),
        _listed(_("Strengths"), report.analysis.strengths),
    ]
    filled = [one for one in pieces if one["blocks"]]
    return [{"title": _("Technical review"), "pieces": filled, "origin": _origin(report, "analysis")}]


def _further(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "title": one_line(title),
            "pieces": [
                _listed("", part)
                if isinstance(part, tuple)
                else _piece("", part, report.corrected.get(f"{more.stage}.{name}"))
                for name, part in more.parts.items()
            ],
            "origin": _origin(report, more.stage),
        }
        for title, more in further_stages(report)
    ]


def _failures(report: Report) -> Iterator[str]:
    for stage, sentence in report.failed.items():
        did_not = _("%(stage)s failed.", stage=title_of(stage))
        yield f"{did_not} {visible(render_message(sentence))} {_('Its points are open, not zero.')}"


def _flags(report: Report, staff: bool) -> Iterator[str]:
    for note in executions.run_notes(report, staff):
        yield visible(f"{note.title}. {note.words} {note.detail}".strip())
    for flag in flags.flag_notes(report, staff):
        yield " ".join([flag.words, *(part.words for part in flag.parts)])


def _adjusted(found: score_breakdown.AdjustmentLine, staff: bool) -> dict[str, Any]:
    return {
        "title": found.title,
        "points": found.taken,
        "rule": f"{found.rule[:1].upper()}{found.rule[1:]}; {found.state}.",
        "blocks": blocks(found.description),
        "checks": [_check(one, staff) for one in found.evidence],
        "changed": changed(found.corrected),
    }


def _criterion(found: CriterionGrade, printed: Printed) -> dict[str, Any]:
    most = number(found.max_points)
    level = score_breakdown.level_words(found, printed.terms.levels.get(found.criterion, ()))
    changed_words = changed(found.corrected)
    if found.corrected and found.basis == "person" and found.corrected.points is not None:
        was = _("Before: %(was)s points", was=number(found.corrected.points))
        changed_words = f"{changed_words} {was}"
    return {
        "title": one_line(found.title) + (f" ({_('bonus')})" if found.bonus else ""),
        "points": _("not rated")
        if found.points is None
        else _("%(points)s of %(most)s", points=number(found.points), most=most),
        "level": _("Level: %(level)s", level=one_line(level)) if level else "",
        "blocks": blocks(found.reason),
        "items": [
            f"{score_breakdown.item_points(one.points)} {one_line(one.text, 2_000)}".strip()
            for one in found.items
        ],
        "checks": [_check(one, printed.staff) for one in found.evidence],
        "quotes": [
            {
                "text": wrapped(quote.text)[0],
                "place": flags.place_words(quote.location) if quote.location else "",
            }
            for quote in found.quotes
        ],
        "basis": title_of(found.stage),
        "changed": changed_words,
    }


def _check(found: CheckOutcome, staff: bool) -> str:
    sign = _("met") if found.earned >= 1 else _("partly met") if found.earned > 0 else _("not met")
    sign = sign if found.weight else _("not counted")
    sentence = executions.outcome_text(found) or (executions.counted(found.tests) if found.tests else "")
    failed = [one_line(t.name, 80) for t in found.tests if not t.passed and (staff or not t.hidden)][:20]
    words = [f"{sign}: {one_line(found.label or found.check)}", one_line(sentence, 400)]
    if failed:
        words.append(_("Failed: %(names)s", names=", ".join(failed)))
    return ". ".join(word for word in words if word)


def _origins(report: Report) -> Iterator[str]:
    for stage, how in report.stages.items():
        words = [title_of(stage), one_line(how.model), one_line(how.machine), one_line(how.engine)]
        words.append(_("%(seconds)s s", seconds=fixed(how.seconds, 1)))
        if how.uses_model:
            words.append(_("%(count)s output tokens", count=how.tokens.output))
        yield " · ".join(word for word in words if word)


def _all_text(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _all_text(one)


def room() -> Room:
    """What a PDF takes of a submission; without colours."""
    return Room(LINES, CHARS, PICTURES, until=0.0)


class Files:
    """The pictures that go into a PDF, by the names that the template knows them by."""

    def __init__(self, pictures: Mapping[tuple[str, int], Mapping[int, Picture]]) -> None:
        self._pictures = pictures
        self._pixels = PIXELS
        self.kept: dict[str, bytes] = {}

    def part(self, document: str, cell: int, number: int) -> dict[str, Any]:
        """A picture, or that there is no room for it."""
        found = self._pictures[document, cell][number]
        alt = _("Image in the output of cell %(number)s", number=cell)
        self._pixels -= found.width * found.height
        if self._pixels < 0:
            return {"kind": "note", "text": _("(%(what)s: not printed, too many)", what=alt)}
        name = f"{len(self.kept)}.{'jpg' if found.kind == 'jpeg' else 'png'}"
        self.kept[name] = found.data
        width = min(WIDTH_PT, found.width * 0.6, 600.0 * found.width / found.height)
        return {"kind": "picture", "file": name, "alt": alt, "width": width}


def document_data(rendered: ShownDocument, files: Files) -> dict[str, Any]:
    """One document as the parts of which it is printed."""
    notes = [_cut() if note == _(CUT) else note for note in rendered.notes]
    parts = [_note(note) for note in (*notes, *rendered.ran)]
    parts += [comment(one) for one in rendered.comments]
    for cell in rendered.cells:
        if rendered.kind == "notebook":
            word = _("code") if cell.cell.kind == "code" else _("text")
            parts.append(
                {"kind": "head", "text": _("Cell %(number)s, %(kind)s", number=cell.cell.number, kind=word)}
            )
        parts += _code(cell)
        parts += [{"kind": "output", "text": wrapped(text)[0]} for text in cell.outputs]
        parts += [files.part(rendered.path, cell.cell.number, number) for number in cell.pictures]
        if cell.ran:
            parts.append(_note(cell.ran.words))
            parts += [{"kind": "output", "text": wrapped(text)[0]} for text in cell.ran.outputs]
        parts += [comment(one) for one in cell.comments]
    return {"path": one_line(rendered.path), "parts": parts}


def _cut() -> str:
    """What is said where a submission is too long."""
    return _("This submission is too long to print completely. Only the beginning is shown.")


def _note(text: str) -> dict[str, Any]:
    return {"kind": "note", "text": visible(text)}


def _code(cell: ShownCell) -> Iterator[dict[str, Any]]:
    """The lines of a cell, broken off where a comment stands."""
    source, lines, numbers = cell.cell.lines, list[str](), list[str]()
    for line in cell.lines:
        made, count = wrapped(source[line.number - cell.cell.first_line])
        lines.append(made)
        numbers += [str(line.number), *[""] * (count - 1)]
        if line.comments:
            yield {"kind": "code", "text": "\n".join(lines), "numbers": numbers}
            yield from map(comment, line.comments)
            lines, numbers = [], []
    if lines:
        yield {"kind": "code", "text": "\n".join(lines), "numbers": numbers}


def wrapped(text: str) -> tuple[str, int]:
    """The text with no line longer than COLUMNS, and how many lines it has."""
    made: list[str] = []
    for line in visible(text).expandtabs(4).split("\n"):
        made += _pieces(line)
    return "\n".join(made), len(made)


def _pieces(line: str) -> list[str]:
    if line.isascii():
        found = [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)] or [""]
    else:
        found, wide = [""], 0
        for char in line:
            wide += 2 if unicodedata.east_asian_width(char) in "WF" else 1
            if wide > COLUMNS:
                found.append("")
                wide = 1
            found[-1] += char
    return found if len(found) <= LINES_OF_ONE else [*found[:LINES_OF_ONE], "…"]


def changed(found: Corrected | None) -> str:
    """That a person changed it, and the words that stood there before."""
    if found is None:
        return ""
    before = one_line(found.text, 1_000)
    words = _("Changed manually.")
    return f"{words} {_('Before: %(text)s', text=before)}" if before else words


def comment(found: Comment) -> dict[str, Any]:
    """A comment as a part."""
    kinds = {
        "praise": _("Well done"),
        "note": _("Note"),
        "minor": _("Small issue"),
        "major": _("Important"),
        "suggestion": _("Suggestion"),
        "run": _("When we ran your work"),
        "path": _("Path"),
        "person": _("Comment by the course staff"),
    }
    kind = kinds.get(found.kind, found.kind)
    title = one_line(found.title or found.by, 300)
    return {
        "kind": "comment",
        "tone": found.kind,
        "title": f"{kind}: {title}" if title else kind,
        "blocks": blocks(found.detail),
        "example": wrapped(found.example)[0] if found.example else "",
        "changed": changed(found.corrected),
    }


def blocks(text: str) -> list[Block]:
    """What the text says, block by block."""
    text = visible(text.strip())
    if not text:
        return []
    if not readable(text):
        return [{"kind": "text", "runs": [[text, ""]]}]
    return list(_blocks(reader().parse(text)))


def plain(text: str) -> list[Block]:
    """Text as it is."""
    return [{"kind": "text", "runs": [[visible(text), ""]]}] if text.strip() else []


def _blocks(tokens: Sequence[Token]) -> Iterator[Block]:
    depth, marks, mark, head = 0, [], "", False
    for token in tokens:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            depth += 1
            marks.append(int(token.attrGet("start") or 1) if token.type.startswith("ordered") else None)
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            depth -= 1
            marks.pop()
        elif token.type == "list_item_open":
            mark = "•" if marks[-1] is None else f"{marks[-1]}."
            marks[-1] = None if marks[-1] is None else marks[-1] + 1
        elif token.type in ("heading_open", "heading_close"):
            head = token.type == "heading_open"
        elif token.type in ("fence", "code_block"):
            yield {"kind": "code", "text": token.content.rstrip("\n")}
        elif token.type == "math_block":
            found = formula(token.content, display=True)
            yield {"kind": "formula", "formula": found} if found else {"kind": "code", "text": token.content}
        elif token.type == "inline":
            runs = _runs(token.children or [])
            kind = "item" if depth else "head" if head else "text"
            yield {"kind": kind, "runs": runs, "depth": max(0, min(depth, 6) - 1), "mark": mark}
            mark = ""


def _runs(children: Sequence[Token]) -> list[list[Any]]:
    runs: list[list[Any]] = []
    how = ""
    for child in children:
        if child.type in _HOW:
            how = _HOW[child.type]
        elif child.type == "code_inline":
            runs.append([child.content, "c"])
        elif child.type == "math_inline":
            found = formula(child.content, display=child.markup == "$$")
            runs.append([found, "m"] if found else [maths.source(child), "c"])
        elif child.type in ("softbreak", "hardbreak"):
            runs.append([" " if child.type == "softbreak" else "\n", how])
        elif child.content:
            runs.append([child.content, how])
    return runs
