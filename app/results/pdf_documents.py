"""What was handed in and the comments on it, as data for the template of a PDF."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from app.reports.comments import Comment
from app.reports.images import Picture
from app.reports.rendering import CUT, Room, ShownCell, ShownDocument
from app.results import pdf_markdown
from app.web.i18n import gettext as _
from app.web.markdown import one_line, seen
from grading.domain.outcome import Corrected

LINES, CHARS, PICTURES = 1_500, 120_000, 24
"""Of a hand-in that a PDF shows."""
PIXELS = 12_000_000
"""Of all its pictures."""
COLUMNS = 96
"""Characters of a printed line; a longer one goes on in the next."""
LINES_OF_ONE = 200
"""Lines that one line of a hand-in may become."""
WIDTH_PT = 440.0


def room() -> Room:
    """What a PDF takes of a hand-in; without colours."""
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
        alt = _("Picture in the output of cell %(number)s", number=cell)
        self._pixels -= found.width * found.height
        if self._pixels < 0:
            return {"kind": "note", "text": _("(%(what)s: not printed, there are too many)", what=alt)}
        name = f"{len(self.kept)}.{'jpg' if found.kind == 'jpeg' else 'png'}"
        self.kept[name] = found.data
        width = min(WIDTH_PT, found.width * 0.6, 600.0 * found.width / found.height)
        return {"kind": "picture", "file": name, "alt": alt, "width": width}


def document(shown: ShownDocument, files: Files) -> dict[str, Any]:
    """One document as the parts of which it is printed."""
    said = [_cut() if note == CUT else note for note in shown.notes]
    parts = [_note(note) for note in (*said, *shown.ran)]
    parts += [comment(one) for one in shown.comments]
    for cell in shown.cells:
        if shown.kind == "notebook":
            word = _("code") if cell.cell.kind == "code" else _("text")
            parts.append(
                {"kind": "head", "text": _("Cell %(number)s, %(kind)s", number=cell.cell.number, kind=word)}
            )
        parts += _code(cell)
        parts += [{"kind": "output", "text": wrapped(text)[0]} for text in cell.outputs]
        parts += [files.part(shown.path, cell.cell.number, number) for number in cell.pictures]
        if cell.ran:
            parts.append(_note(cell.ran.words))
            parts += [{"kind": "output", "text": wrapped(text)[0]} for text in cell.ran.outputs]
        parts += [comment(one) for one in cell.comments]
    return {"path": one_line(shown.path), "parts": parts}


def _cut() -> str:
    """What is said where a hand-in is too long."""
    return _("Only the beginning of a hand-in this long is printed. All of it was handed in.")


def _note(text: str) -> dict[str, Any]:
    return {"kind": "note", "text": seen(text)}


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
    for line in seen(text).expandtabs(4).split("\n"):
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
    said = _("Changed by a person.")
    return f"{said} {_('Before: %(text)s', text=before)}" if before else said


def comment(found: Comment) -> dict[str, Any]:
    """A comment as a part."""
    kinds = {
        "praise": _("Well done"),
        "note": _("Note"),
        "minor": _("Small issue"),
        "major": _("Important"),
        "suggestion": _("Suggestion"),
        "run": _("When we ran it"),
        "path": _("Path"),
        "person": _("Comment by a person"),
    }
    kind = kinds.get(found.kind, found.kind)
    title = one_line(found.title or found.by, 300)
    return {
        "kind": "comment",
        "tone": found.kind,
        "title": f"{kind}: {title}" if title else kind,
        "blocks": pdf_markdown.blocks(found.detail),
        "example": wrapped(found.example)[0] if found.example else "",
        "changed": changed(found.corrected),
    }
