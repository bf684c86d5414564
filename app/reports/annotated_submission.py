"""A submission as numbered lines and outputs with the report's comments beside them, bounded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from markupsafe import Markup

from app.reports.executions import RanCell, ran_cell, ran_document
from app.reports.flags import place_words
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.markdown import COLOURING_S, highlighted, visible
from grading.domain.document import Cell, Document, Location
from grading.domain.jobs import Finding, Suggestion
from grading.domain.report import Corrected, PersonComment, Report
from grading.execution.display import ShownDocument as Ran
from grading.execution.display import ShownExecution

Remark = TypeVar("Remark", Finding, Suggestion)
SHOWN_OUTPUT = 4000
"""Characters of one output that a page shows."""
SHOWN_LINES = 5000
"""Lines of a whole submission that a page shows."""
SHOWN_CHARS = 400_000
"""Characters of a whole submission that a page shows."""
SHOWN_PICTURES = 60
"""Pictures of a whole submission that a page shows."""
CUT = N_("This page shows only the beginning of a submission this long. All of it was submitted.")
Pictures = Mapping[tuple[str, int], Sequence[int]]
"""(document, cell) -> numbers of its pictures that can be shown."""


@dataclass(frozen=True)
class Comment:
    """A remark beside a line."""

    kind: str
    """praise, note, minor, major, suggestion, person, run or path"""
    title: str
    detail: str = ""
    example: str = ""
    anchor: str = ""
    """Where the page has it."""
    by: str = ""
    """The person who wrote it."""
    corrected: Corrected | None = None
    """Where a person changed its words, what stood there before."""
    target: str = ""
    """By which a review changes it: `finding:0`, `suggestion:0`, or `change:1` of a person's comment."""


@dataclass(frozen=True)
class Listed:
    """A comment in the list by which one jumps, with its place in words."""

    comment: Comment
    place: str


Placed = tuple[Location | None, Comment]


def finding(value: Finding, corrected: Corrected | None = None, target: str = "") -> Comment:
    """A finding as a comment."""
    return Comment(value.severity, value.title, value.detail, corrected=corrected, target=target)


def suggestion(value: Suggestion, corrected: Corrected | None = None, target: str = "") -> Comment:
    """A suggestion as a comment."""
    words = "\n\n".join((value.why, value.how))
    return Comment("suggestion", value.what, words, value.example, corrected=corrected, target=target)


def said_by(value: PersonComment) -> Comment:
    """A person's comment."""
    return Comment("person", "", value.text, by=value.by, target=f"change:{value.change}")


def remarks(report: Report, original: Report | None = None) -> Iterator[Placed]:
    """All comments of a report, people's first. `original` is the report before people changed it."""
    for added in report.comments:
        yield added.location, said_by(added)
    if report.analysis is None:
        return
    before = original.analysis if original is not None else None
    found = before.findings if before else report.analysis.findings
    for number, remark in numbered("finding", report.analysis.findings, found, report.corrected):
        target = f"finding:{number}"
        yield remark.location, finding(remark, report.corrected.get(target), target)
    advised = before.suggestions if before else report.analysis.suggestions
    for number, advice in numbered("suggestion", report.analysis.suggestions, advised, report.corrected):
        target = f"suggestion:{number}"
        yield advice.location, suggestion(advice, report.corrected.get(target), target)


def numbered(
    kind: str, now: Sequence[Remark], before: Sequence[Remark], corrected: Mapping[str, Corrected]
) -> Iterator[tuple[int, Remark]]:
    """What is shown with its number among all: people may have hidden some, and changes name the number."""
    left = list(now)
    for number, was in enumerate(before):
        if left and (left[0] == was or f"{kind}:{number}" in corrected):
            yield number, left.pop(0)


def of_the_run(ran: Iterable[Ran]) -> Iterator[Placed]:
    """Paths that were replaced for the run."""
    for repair in chain.from_iterable(one.repairs for one in ran):
        now = _("the working folder") if repair.now == "." else f"“{repair.now}”"
        words = _("“%(was)s” was replaced by %(now)s when we ran your work", was=repair.was, now=now)
        yield repair.location, Comment("path", words)


class Waiting:
    """Comments that wait for their place; taking one gives it the next anchor of the page."""

    def __init__(self, placed: Iterable[Placed]) -> None:
        self._of: dict[str, list[tuple[Location, Comment]]] = {}
        self._taken = 0
        for place, comment in placed:
            if place is not None:
                self._of.setdefault(place.document, []).append((place, comment))

    def take(self, document: str, cell: int | None, line: int | None) -> tuple[Comment, ...]:
        """The comments of exactly this place, each given once."""
        if document not in self._of:
            return ()
        here = Location(document=document, cell=cell, line=line)
        return self._out(document, [pair for pair in self._of[document] if pair[0] == here])

    def rest(self, document: str, cell: int | None = None) -> tuple[Comment, ...]:
        """What is left for a cell (or the document), such as lines that do not exist."""
        left = self._of.get(document, [])
        return self._out(document, [pair for pair in left if cell is None or pair[0].cell == cell])

    def anchored(self, comment: Comment) -> Comment:
        """The comment with the next anchor."""
        self._taken += 1
        return replace(comment, anchor=f"comment-{self._taken}")

    def _out(self, document: str, pairs: list[tuple[Location, Comment]]) -> tuple[Comment, ...]:
        for pair in pairs:
            self._of[document].remove(pair)
        return tuple(self.anchored(comment) for _, comment in pairs)


@dataclass(frozen=True)
class Line:
    """One line of a cell; `given` when it came with the task."""

    number: int
    html: Markup
    given: bool
    comments: tuple[Comment, ...] = ()
    anchor: str = ""
    """Where something points to this line, its name in the page."""


@dataclass(frozen=True)
class ShownCell:
    """A cell with its lines and outputs."""

    cell: Cell
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    images: int
    """Pictures that are not shown."""
    comments: tuple[Comment, ...] = ()
    ran: RanCell | None = None
    """What became of it when it was run here."""
    pictures: tuple[int, ...] = ()
    """The numbers of those that are shown."""
    anchor: str = ""


@dataclass(frozen=True)
class ShownDocument:
    """A document with its cells; comments that belong to no cell come first."""

    path: str
    kind: str
    cells: tuple[ShownCell, ...]
    notes: tuple[str, ...]
    comments: tuple[Comment, ...] = ()
    ran: tuple[str, ...] = ()
    """How running it went, in sentences."""
    number: int = 0
    """Among those of the submission, from 0."""
    anchor: str = ""


@dataclass(frozen=True)
class RenderedSubmission:
    """A submission with all that stands beside it."""

    documents: tuple[ShownDocument, ...]
    loose: tuple[Comment, ...]
    """Comments without a place."""
    places: Mapping[Location, str]
    """Where the page has what quotes and checks point to."""

    @property
    def listed(self) -> tuple[Listed, ...]:
        """All comments in the order of the page; not what running the work showed."""
        found = [Listed(comment, "") for comment in self.loose]
        for document in self.documents:
            found += [Listed(comment, document.path) for comment in document.comments]
            for cell in document.cells:
                number = cell.cell.number if document.kind == "notebook" else None
                for line in cell.lines:
                    place = place_words(Location(document=document.path, cell=number, line=line.number))
                    found += [Listed(comment, place) for comment in line.comments]
                inside = place_words(Location(document=document.path, cell=number))
                found += [Listed(comment, inside) for comment in cell.comments]
        return tuple(one for one in found if one.comment.anchor)


@dataclass
class Room:
    """What a page or PDF still takes of a submission, and until when it may be coloured."""

    lines: int = SHOWN_LINES
    chars: int = SHOWN_CHARS
    pictures: int = SHOWN_PICTURES
    until: float = field(default_factory=lambda: time.monotonic() + COLOURING_S)

    def take(self, lines: Sequence[str]) -> tuple[str, ...]:
        """The first of these lines that still have room."""
        count = 0
        for line in lines:
            if self.lines < 1 or self.chars < len(line):
                self.lines = 0
                break
            self.lines, self.chars, count = self.lines - 1, self.chars - len(line), count + 1
        return tuple(lines[:count])

    def outputs(self, texts: Iterable[str]) -> tuple[str, ...]:
        """These outputs, but for those there is no room for one sentence."""
        fitting: list[str] = []
        for text in texts:
            self.chars -= len(text)
            if self.chars < 0:
                return (*fitting, "… (the rest is not shown)")
            fitting.append(text)
        return tuple(fitting)

    def coloured(self) -> bool:
        """Whether there was time for all colours."""
        return time.monotonic() < self.until

    def some(self, pictures: Sequence[int]) -> tuple[int, ...]:
        """As many of these pictures as there is room for."""
        some = tuple(pictures[: self.pictures])
        self.pictures -= len(some)
        return some


def documents(
    submitted: Iterable[Document],
    report: Report | None,
    execution: ShownExecution | None = None,
    staff: bool = False,
) -> tuple[ShownDocument, ...]:
    """Documents as numbered lines with comments beside them, and what running them showed.

    Of very long ones the beginning. Why nothing was run is for staff.
    """
    return render_submission(submitted, report, execution=execution, staff=staff).documents


def render_submission(
    submitted: Iterable[Document],
    report: Report | None,
    original: Report | None = None,
    *,
    execution: ShownExecution | None = None,
    staff: bool = False,
    pictures: Pictures | None = None,
    room: Room | None = None,
    every_line: bool = False,
) -> RenderedSubmission:
    """A submission with its comments. `original` is the report before people changed it.

    Places that the report points to have names in the page, with `every_line` all lines, by `line_name`.
    """
    ran = execution.documents if execution else {}
    notes = [*remarks(report, original)] if report else []
    waiting = Waiting([*notes, *of_the_run(ran.values())])
    loose = tuple(waiting.anchored(comment) for place, comment in notes if place is None)
    page = _Page(waiting, room or Room(), staff, _pointed_at(report), pictures or {}, every_line)
    made = tuple(page.document(n, one, ran.get(one.path)) for n, one in enumerate(submitted))
    return RenderedSubmission(made, loose, page.places)


def line_name(document: int, cell: int, line: int) -> str:
    """The name in a page of a line; documents count from 0, lines as they are shown."""
    return f"line-{document}-{cell}-{line}"


def _pointed_at(report: Report | None) -> frozenset[Location]:
    """All places that the report links to."""
    if report is None:
        return frozenset()
    quotes = [quote.location for grade in report.criteria for quote in grade.quotes]
    checks = [outcome.location for grade in report.criteria for outcome in grade.evidence]
    checks += [outcome.location for one in report.adjustments for outcome in one.evidence]
    flags = [flag.location for flag in report.flags]
    said = [place for place, _ in remarks(report)]
    return frozenset(place for place in (*quotes, *checks, *flags, *said) if place is not None)


@dataclass
class _Page:
    """What the documents of a page share."""

    waiting: Waiting
    room: Room
    staff: bool
    wanted: frozenset[Location]
    pictures: Pictures
    every_line: bool
    places: dict[Location, str] = field(default_factory=dict)

    def document(self, number: int, document: Document, ran: Ran | None) -> ShownDocument:
        """One document, as far as there is room."""
        whole = self.waiting.take(document.path, None, None)
        cells, notes = [], document.notes
        for cell in document.cells:
            lines = self.room.take(cell.lines)
            if lines or not cell.lines:
                cells.append(self.cell(number, document, cell, lines, ran))
            if len(lines) < len(cell.lines):
                notes = (*notes, _(CUT))
                break
        comments = whole + self.waiting.rest(document.path)
        ran_text = ran_document(ran, self.staff)
        anchor = self.anchor(f"file-{number}", Location(document=document.path))
        return ShownDocument(
            document.path, document.kind, tuple(cells), notes, comments, ran_text, number, anchor
        )

    def cell(
        self, place: int, document: Document, cell: Cell, kept: tuple[str, ...], ran: Ran | None
    ) -> ShownCell:
        """One cell with these of its lines; `place` is the number of its document."""
        lines, stopped = self.lines(place, document, cell, kept, ran)
        if len(lines) > 1 and not kept[-1] and not lines[-1].comments:
            lines.pop()  # what follows the last line end
        outputs = self._outputs(output.text for output in cell.outputs if output.text.strip())
        pictures = self.room.some(self.pictures.get((document.path, cell.number), ()))
        images = sum(output.image for output in cell.outputs) - len(pictures)
        rest = self.waiting.rest(document.path, cell.number)
        played = ran.cell(cell.number) if ran else None
        at_line = any(line.number == stopped for line in lines)
        if (found := ran_cell(cell, played, at_line, bool(ran and cell.number in ran.excused))) is not None:
            found = replace(found, outputs=self._outputs(found.outputs))
        anchor = self.anchor(
            f"cell-{place}-{cell.number}", Location(document=document.path, cell=cell.number)
        )
        return ShownCell(cell, tuple(lines), outputs, images, rest, found, pictures, anchor)

    def lines(
        self, place: int, document: Document, cell: Cell, texts: tuple[str, ...], ran: Ran | None
    ) -> tuple[list[Line], int | None]:
        """The lines, and the number of the one at which a run stopped."""
        added, lines = set(cell.added), []
        alone = len(document.cells) == 1 or document.kind != "notebook"
        played = ran.cell(cell.number) if ran else None
        stopped = played.line + cell.first_line - 1 if played and played.line else None
        for index, html in enumerate(highlighted(cell, texts, self.room.until), start=1):
            number = cell.first_line + index - 1
            here = self.waiting.take(document.path, cell.number, number)
            here += self.waiting.take(document.path, None, number) if alone else ()
            if played and number == stopped:
                here += (Comment("run", "it stopped at this line", example=played.error),)
            name = line_name(place, cell.number, number)
            anchor = self.line_anchor(name, document, cell, number) or (name if self.every_line else "")
            lines.append(Line(number, html, index not in added, here, anchor))
        return lines, stopped

    def line_anchor(self, name: str, document: Document, cell: Cell, number: int) -> str:
        """The name, where something points to the line: by file alone unless in a notebook."""
        if not self.wanted:
            return ""
        found = self.anchor(name, Location(document=document.path, cell=cell.number, line=number))
        if document.kind != "notebook" or len(document.cells) == 1:
            found = self.anchor(name, Location(document=document.path, line=number)) or found
        return found

    def anchor(self, name: str, place: Location) -> str:
        """The name, where something points to this place."""
        if place not in self.wanted:
            return ""
        self.places[place] = name
        return name

    def _outputs(self, texts: Iterable[str]) -> tuple[str, ...]:
        return self.room.outputs(visible(_shortened(text)) for text in texts)


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_OUTPUT else f"{text[:SHOWN_OUTPUT]}\n… (the rest is not shown)"
