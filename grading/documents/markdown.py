"""Markdown, R Markdown and Quarto: text in parts that begin at headings, and chunks of code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from grading.documents.files import shown
from grading.domain.document import Cell, Document

HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*)$")
FENCE = re.compile(r"^[ \t]{0,12}(`{3,}|~{3,})(.*)$")
_CHUNK = re.compile(r"^\{\s*([A-Za-z][\w+#-]*)\s*,?\s*([^}]*)\}\s*$")
_LONGEST_FENCE = 1000  # bounds the time the pattern takes
_LABEL = re.compile(r"^([\w.-]+(?: [\w.-]+)*)\s*(?:,|$)")


@dataclass
class _Part:
    kind: Literal["code", "markdown", "raw"]
    first_line: int
    language: str = "markdown"
    label: str = ""
    lines: list[str] = field(default_factory=list)
    closed: bool = True


def read_chunks(path: str, text: str) -> Document:
    """An R Markdown or Quarto file: chunks as code cells, the text between them as markdown cells."""
    return _document(path, text, chunks=True)


def read_markdown(path: str, text: str) -> Document:
    """A Markdown file, a cell for each heading with what follows it."""
    return _document(path, text, chunks=False)


def _document(path: str, text: str, chunks: bool) -> Document:
    parts = [part for part in _parts(text.split("\n"), chunks) if any(line.strip() for line in part.lines)]
    still_open = bool(parts) and not parts[-1].closed
    cells = tuple(
        Cell(
            number=number,
            kind=part.kind,
            source="\n".join(part.lines).rstrip("\n"),
            language=part.language,
            first_line=part.first_line,
            place=part.label,
        )
        for number, part in enumerate(parts, start=1)
    )
    languages = Counter(cell.language for cell in cells if cell.kind == "code")
    language = languages.most_common(1)[0][0] if languages else ("r" if chunks else "markdown")
    notes = (
        (f"A chunk of {shown(path)} is not closed; all that follows was read as code.",) if still_open else ()
    )
    return Document(
        path=path, kind="script" if chunks else "prose", language=language, cells=cells, notes=notes
    )


def _parts(lines: list[str], chunks: bool) -> Iterator[_Part]:
    start = _header_end(lines)
    if start:
        yield _Part("raw", 1, "yaml", lines=lines[:start])
    part, fence, in_chunk = _Part("markdown", start + 1), "", False
    for number, line in enumerate(lines[start:], start=start + 1):
        match = FENCE.match(line)
        if fence:
            closes = match and match[1].startswith(fence) and not match[2].strip()
            fence = "" if closes else fence
            if in_chunk and closes:
                part.closed = True
                yield part
                part, in_chunk = _Part("markdown", number + 1), False
                continue
        elif match:
            fence = match[1]
            chunk = _CHUNK.match(match[2].strip()) if chunks and len(line) <= _LONGEST_FENCE else None
            if chunk is not None:
                yield part
                part, in_chunk = (
                    _Part("code", number + 1, _engine(chunk[1]), _label(chunk[2]), closed=False),
                    True,
                )
                continue
        elif HEADING.match(line) and any(part.lines):
            yield part
            part = _Part("markdown", number)
        part.lines.append(line)
    yield part


def _header_end(lines: list[str]) -> int:
    """How many lines the YAML header takes."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    ends = (n for n, line in enumerate(lines[1:500], start=2) if line.rstrip() in ("---", "..."))
    return next(ends, 0)


def _engine(name: str) -> str:
    return {"js": "javascript", "rcpp": "cpp", "sh": "bash"}.get(name.lower(), name.lower())


def _label(options: str) -> str:
    match = _LABEL.match(options.strip())
    return match[1] if match else ""
