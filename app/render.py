"""What students and models wrote, made safe to show."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Text, _TokenType

from app.trials import RanCell, ran_cell, ran_document
from grading.jobs import Finding, Suggestion
from grading.model import Cell, Document, Location
from grading.outcome import Report
from grading.trials.shown import ShownDocument as Ran
from grading.trials.shown import ShownTrial

TAGS = set("p br em strong code pre ul ol li blockquote h3 h4 h5 h6 hr".split())
SHOWN_OUTPUT = 4000
"""Characters of one output that a page shows."""
SHOWN_LINES = 5000
"""Lines of a whole hand-in that a page shows."""
SHOWN_CHARS = 400_000
"""Characters of a whole hand-in that a page shows."""
CUT = "This page shows only the beginning of a hand-in this long. All of it was handed in."
COLOURED = frozenset("python r sql java c cpp javascript typescript bash html latex markdown julia".split())
"""Languages that get colours. A notebook may name any; some lexers take very long on hostile text."""
COLOURED_CHARS = 50_000
"""Longest cell that gets colours."""
COLOURED_LINE = 1000
"""Longest line in it."""
COLOURING_S = 1.0
"""Seconds for the colours of a whole hand-in; what is left then stays plain."""


@dataclass(frozen=True)
class Comment:
    """A remark beside a line."""

    kind: str
    """praise, note, minor, major, suggestion, run or path"""
    title: str
    detail: str = ""
    example: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a cell; `given` when it came with the task."""

    number: int
    html: Markup
    given: bool
    comments: tuple[Comment, ...] = ()


@dataclass(frozen=True)
class ShownCell:
    """A cell with its lines and text outputs."""

    cell: Cell
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    images: int
    comments: tuple[Comment, ...] = ()
    ran: RanCell | None = None
    """What became of it when it was run here."""


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


@dataclass
class _Comments:
    """Comments by place."""

    placed: list[tuple[Location, Comment]] = field(default_factory=list)

    def take(self, document: str, cell: int | None, line: int | None) -> tuple[Comment, ...]:
        """The comments of exactly this place, each given once."""
        here = Location(document=document, cell=cell, line=line)
        return self._out([pair for pair in self.placed if pair[0] == here])

    def rest(self, document: str, cell: int | None = None) -> tuple[Comment, ...]:
        """What is left for a cell (or the document), such as lines that do not exist."""
        left = [p for p in self.placed if p[0].document == document and (cell is None or p[0].cell == cell)]
        return self._out(left)

    def _out(self, pairs: list[tuple[Location, Comment]]) -> tuple[Comment, ...]:
        for pair in pairs:
            self.placed.remove(pair)
        return tuple(comment for _, comment in pairs)


def markdown(text: str) -> Markup:
    """A model's Markdown as clean HTML: no pictures, links, HTML or scripts."""
    html = MarkdownIt("commonmark", {"html": False}).disable(["image", "link", "autolink"]).render(text)
    return Markup(nh3.clean(html, tags=TAGS, attributes={}, link_rel=None))  # noqa: S704 - cleaned


@dataclass
class _Room:
    """What a page still takes of a hand-in, and until when it may be coloured."""

    lines: int = SHOWN_LINES
    chars: int = SHOWN_CHARS
    until: float = field(default_factory=lambda: time.monotonic() + COLOURING_S)

    def take(self, lines: Sequence[str]) -> tuple[str, ...]:
        """The first of these lines that still have room."""
        kept = 0
        for line in lines:
            if self.lines < 1 or self.chars < len(line):
                self.lines = 0
                break
            self.lines, self.chars, kept = self.lines - 1, self.chars - len(line), kept + 1
        return tuple(lines[:kept])

    def outputs(self, texts: Iterable[str]) -> tuple[str, ...]:
        """These outputs, but for those there is no room for one sentence."""
        kept: list[str] = []
        for text in texts:
            self.chars -= len(text)
            if self.chars < 0:
                return (*kept, "… (the rest is not shown)")
            kept.append(text)
        return tuple(kept)


def documents(
    shown: Iterable[Document], report: Report | None, trial: ShownTrial | None = None, staff: bool = False
) -> tuple[ShownDocument, ...]:
    """Documents as numbered lines with comments beside them, and what running them showed.

    Of very long ones the beginning. Why nothing was run is for staff.
    """
    comments = _Comments([*_comments(report)] if report else [])
    ran = trial.documents if trial else {}
    comments.placed += [pair for one in ran.values() for pair in _run_comments(one)]
    page = _Page(comments, _Room(), staff)
    return tuple(page.document(document, ran.get(document.path)) for document in shown)


@dataclass
class _Page:
    """What the documents of a page share."""

    comments: _Comments
    room: _Room
    staff: bool

    def document(self, document: Document, ran: Ran | None) -> ShownDocument:
        """One document, as far as there is room."""
        whole = self.comments.take(document.path, None, None)
        cells, notes = [], document.notes
        for cell in document.cells:
            lines = self.room.take(cell.lines)
            if lines or not cell.lines:
                cells.append(self.cell(document, cell, lines, ran))
            if len(lines) < len(cell.lines):
                notes = (*notes, CUT)
                break
        rest = self.comments.rest(document.path)
        said = ran_document(ran, self.staff)
        return ShownDocument(document.path, document.kind, tuple(cells), notes, whole + rest, said)

    def cell(self, document: Document, cell: Cell, kept: tuple[str, ...], ran: Ran | None) -> ShownCell:
        """One cell with these of its lines."""
        added, lines = set(cell.added), []
        played = ran.cell(cell.number) if ran else None
        stopped = played.line + cell.first_line - 1 if played and played.line else None
        for index, html in enumerate(_highlighted(cell, kept, self.room), start=1):
            number = cell.first_line + index - 1
            here = self.comments.take(document.path, cell.number, number)
            if len(document.cells) == 1 or document.kind != "notebook":
                here += self.comments.take(document.path, None, number)
            if played and number == stopped:
                here += (Comment("run", "it stopped at this line", example=played.error),)
            lines.append(Line(number, html, index not in added, here))
        if len(lines) > 1 and not kept[-1] and not lines[-1].comments:
            lines.pop()  # what follows the last line end
        outputs = self._outputs(output.text for output in cell.outputs if output.text.strip())
        images = sum(output.image for output in cell.outputs)
        rest = self.comments.rest(document.path, cell.number)
        told = any(line.number == stopped for line in lines)
        if (seen := ran_cell(cell, played, told, bool(ran and cell.number in ran.excused))) is not None:
            seen = replace(seen, outputs=self._outputs(seen.outputs))
        return ShownCell(cell, tuple(lines), outputs, images, rest, seen)

    def _outputs(self, texts: Iterable[str]) -> tuple[str, ...]:
        return self.room.outputs(_shortened(text) for text in texts)


def _highlighted(cell: Cell, lines: tuple[str, ...], room: _Room) -> list[Markup]:
    """Each line as HTML: with colours where that is cheap, else only escaped."""
    source = "\n".join(lines)
    language = cell.language if cell.kind == "code" else "text"
    cheap = len(source) <= COLOURED_CHARS and max(map(len, lines), default=0) <= COLOURED_LINE
    if language not in COLOURED or not cheap:
        return [escape(line) for line in lines]
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    html = StringIO()
    HtmlFormatter(nowrap=True).format(_tokens(lexer, source, room.until), html)
    coloured = html.getvalue().split("\n")
    coloured = (coloured + [""] * len(lines))[: len(lines)]
    return [Markup(line) for line in coloured]  # noqa: S704 - Pygments escapes


def _tokens(lexer: Lexer, source: str, until: float) -> Iterator[tuple[_TokenType, str]]:
    """The tokens of a source; when the time is over, the rest as one."""
    at = 0
    for start, kind, text in lexer.get_tokens_unprocessed(source):
        if time.monotonic() > until:
            break
        at = start + len(text)
        yield kind, text
    if at < len(source):
        yield Text, source[at:]


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_OUTPUT else f"{text[:SHOWN_OUTPUT]}\n… (the rest is not shown)"


def finding(value: Finding) -> Comment:
    """A finding as a comment."""
    return Comment(value.severity, value.title, value.detail)


def suggestion(value: Suggestion) -> Comment:
    """A suggestion as a comment."""
    return Comment("suggestion", value.what, "\n\n".join((value.why, value.how)), value.example)


def _comments(report: Report) -> Iterator[tuple[Location, Comment]]:
    if report.analysis is None:
        return
    for remark in report.analysis.findings:
        if remark.location:
            yield remark.location, finding(remark)
    for advice in report.analysis.suggestions:
        if advice.location:
            yield advice.location, suggestion(advice)


def _run_comments(ran: Ran) -> Iterator[tuple[Location, Comment]]:
    """Paths that were replaced for the run."""
    for repair in ran.repairs:
        now = "its own folder" if repair.now == "." else f"“{repair.now}”"
        yield repair.location, Comment("path", f"“{repair.was}” was read as {now} when we ran it")
