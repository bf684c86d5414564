"""Where a cell stands: its headings and its first comment, as text a criterion's `where` is searched in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grading.documents.line_comparison import FORM_FIELD
from grading.documents.markdown import FENCE, HEADING
from grading.domain.document import Cell

_LONGEST = 160
_MOST_LABELS = 40
_SECTION = re.compile(
    r"(?:task|part|question|exercise|problem|step|section|assignment|q|ex|aufgabe|frage|teil)[ _.-]*\d"
    r"|\d+(?:\.\d+)*[.):]\s*\S|.{2,}(?:-{4,}|={4,}|#{4,})$",
    re.IGNORECASE,
)
_NO_TITLE = re.compile(r"\W*(?:todo|fixme|hint|note|your (?:code|answer))\b", re.IGNORECASE)
_MARKS = {
    "sql": ("--", "/*"),
    **dict.fromkeys(("java", "c", "cpp", "javascript", "typescript"), ("//", "/*")),
}
_MARKUP = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)")


@dataclass(frozen=True)
class Place:
    """The headings over and in a cell, and the labels its comments give it."""

    headings: tuple[str, ...]
    labels: tuple[str, ...]
    section: bool
    """Whether a label names a task, so that unlabelled cells after this one belong to it too."""


def places(cells: Sequence[Cell]) -> list[Place]:
    """The place of every cell of a document, in order."""
    found_headings = [headings(cell.source) if cell.kind == "markdown" else [] for cell in cells]
    tops = sum(level == 1 for found in found_headings for level, _ in found)
    stack: list[tuple[int, str]] = []
    result = []
    for cell, found in zip(cells, found_headings, strict=True):
        paths = []
        for level, text in found:
            stack = [entry for entry in stack if entry[0] < level] + [(level, text)]
            paths.append(_path(stack, tops))
        labels = comment_labels(cell) if cell.kind == "code" else ()
        own = (cell.place, *labels) if cell.place else labels
        sections = any(_SECTION.match(label) for label in labels)
        result.append(Place(tuple(paths) or (_path(stack, tops),), own, sections))
    return result


def headings(source: str) -> list[tuple[int, str]]:
    """The headings of Markdown text as (level, text), those in code blocks left out."""
    found, fence, before = [], "", ""
    for line in source.split("\n"):
        match = FENCE.match(line)
        if match and (not fence or (match[1].startswith(fence) and not match[2].strip())):
            fence = "" if fence else match[1]
        elif not fence:
            heading = HEADING.match(line)
            title = _plain(heading[2]).rstrip("# ") if heading else ""
            if heading and title:
                found.append((len(heading[1]), title))
            elif before.strip() and re.fullmatch(r"={3,}\s*", line):
                found.append((1, _plain(before)))
        before = line
    return found


def comment_labels(cell: Cell) -> tuple[str, ...]:
    """The first comment line of a code cell, and all its comments that look like headings of tasks."""
    labels: list[str] = []
    leading = True
    for line in cell.lines:
        comment = _comment(line, cell.language)
        if comment is None:
            leading = leading and not line.strip()
            continue
        if FORM_FIELD.match(comment[:200]):
            continue
        if (leading and not labels and comment and not _NO_TITLE.match(comment)) or _SECTION.match(comment):
            labels.append(_plain(comment.rstrip("-=#*/ ")))
        if len(labels) >= _MOST_LABELS:
            break
    return tuple(filter(None, labels))


def comment_marks(language: str) -> tuple[str, ...]:
    """What starts a comment line in a language."""
    return _MARKS.get(language, ("#",))


def _comment(line: str, language: str) -> str | None:
    line = line.strip()[:400]
    for mark in comment_marks(language):
        if line.startswith(mark):
            return line[len(mark) :].lstrip("#!'*/- \t") if set(line) - set("#-*/= ") else ""
    return None


def _path(stack: list[tuple[int, str]], tops: int) -> str:
    """Headings from the outermost in; a single title over everything says nothing about where."""
    texts = [text for level, text in stack if not (level == 1 and tops == 1)] or [text for _, text in stack]
    return " > ".join(texts)


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub("", text[: _LONGEST * 2]).split())[:_LONGEST].replace(" | ", " / ")
