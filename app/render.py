"""What students and models wrote, made safe to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from grading.model import Cell, Document, Finding, Location, Report, Suggestion

TAGS = {
    "p",
    "br",
    "em",
    "strong",
    "code",
    "pre",
    "ul",
    "ol",
    "li",
    "blockquote",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
}
SHOWN_OUTPUT = 4000
"""Characters of one output that a page shows."""


@dataclass(frozen=True)
class Comment:
    """A remark beside a line."""

    kind: str
    """praise, note, minor, major, suggestion or check"""
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


@dataclass(frozen=True)
class ShownDocument:
    """A document with its cells; comments that belong to no cell come first."""

    path: str
    kind: str
    cells: tuple[ShownCell, ...]
    notes: tuple[str, ...]
    comments: tuple[Comment, ...] = ()


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


def documents(shown: Iterable[Document], report: Report | None) -> tuple[ShownDocument, ...]:
    """Documents as numbered lines with the report's comments beside them."""
    comments = _Comments([*_comments(report)] if report else [])
    return tuple(_document(document, comments) for document in shown)


def _document(document: Document, comments: _Comments) -> ShownDocument:
    whole = comments.take(document.path, None, None)
    cells = tuple(_cell(document, cell, comments) for cell in document.cells)
    rest = comments.rest(document.path)
    return ShownDocument(document.path, document.kind, cells, document.notes, whole + rest)


def _cell(document: Document, cell: Cell, comments: _Comments) -> ShownCell:
    added = set(cell.added)
    lines = []
    for index, html in enumerate(_highlighted(cell), start=1):
        number = cell.first_line + index - 1
        here = comments.take(document.path, cell.number, number)
        if len(document.cells) == 1 or document.kind != "notebook":
            here += comments.take(document.path, None, number)
        lines.append(Line(number, html, index not in added, here))
    if len(lines) > 1 and not cell.lines[-1] and not lines[-1].comments:
        lines.pop()  # what follows the last line end
    outputs = tuple(_shortened(output.text) for output in cell.outputs if output.text.strip())
    images = sum(output.image for output in cell.outputs)
    return ShownCell(cell, tuple(lines), outputs, images, comments.rest(document.path, cell.number))


def _highlighted(cell: Cell) -> list[Markup]:
    try:
        lexer = get_lexer_by_name(
            "text" if cell.kind != "code" else cell.language, stripnl=False, ensurenl=False
        )
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False, ensurenl=False)
    html = highlight(cell.source, lexer, HtmlFormatter(nowrap=True))
    lines = html.split("\n")
    wanted = len(cell.lines)
    lines = (lines + [""] * wanted)[:wanted]
    return [Markup(line) for line in lines]  # noqa: S704 - Pygments escapes


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


def provenance_rows(report: Report) -> list[tuple[str, list[str]]]:
    """How each stage's result came about: a label and a cell a stage."""
    stages = list(report.stages.values())
    rows = [
        ("Machine", [p.machine for p in stages]),
        ("Engine", [p.engine for p in stages]),
        ("Model", [p.model if p.uses_model else f"{p.model} (no language model)" for p in stages]),
        ("Model digest", [p.digest or "–" for p in stages]),
        ("Prompt", [f"{p.prompt_version} {p.prompt_hash[:16]}".strip() or "–" for p in stages]),
        ("Tokens of the prompt", [f"{p.tokens.prompt}, {p.tokens.cached} from cache" for p in stages]),
        ("Tokens written", [str(p.tokens.output) for p in stages]),
        (
            "First token after",
            ["–" if p.first_token_s is None else f"{p.first_token_s:.2f} s" for p in stages],
        ),
        ("Took", [f"{p.seconds:.1f} s" for p in stages]),
        ("Sampling", [", ".join(f"{k} {v}" for k, v in p.sampling.items()) or "–" for p in stages]),
        ("Answer repaired", ["yes" if p.repaired else "no" for p in stages]),
    ]
    return rows


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
