"""Two submissions side by side: their lines, those of shared regions with the region's number."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.web.markdown import COLOURING_S, highlighted
from grading.domain.document import Cell, Document
from grading.similarity.works import Lines
from grading.store.views.similar_pairs import PairView, Side

MOST_LINES = 2_000
"""Of one submission that a page shows."""
COLOURS = 6
"""Colours of regions; then they begin anew, and the number tells them apart."""


@dataclass(frozen=True)
class Row:
    """One line; `region` is the number of the shared region it is in, 0 for none."""

    number: int
    html: Markup
    given: bool
    region: int
    begins: bool
    """It is the first line of its region."""

    @property
    def colour(self) -> int:
        """Of its region, from 1."""
        return (self.region - 1) % COLOURS + 1


@dataclass(frozen=True)
class Part:
    """A cell or a script with its lines."""

    document: str
    cell: int | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Column:
    """One submission."""

    name: str
    """`one` or `other`, in anchors."""
    side: Side
    parts: tuple[Part, ...]
    cut: bool
    """Only its beginning is shown."""


def columns(view: PairView) -> tuple[Column, Column]:
    """Both submissions with the regions numbered by their length."""
    until = time.monotonic() + COLOURING_S
    mine = [region.one for region in view.regions]
    theirs = [region.other for region in view.regions]
    return (
        _column("one", view.line.one, view.one, mine, until),
        _column("other", view.line.other, view.other, theirs, until),
    )


def _column(
    name: str, side: Side, documents: Iterable[Document], regions: Sequence[Lines], until: float
) -> Column:
    parts, left, cut = [], MOST_LINES, False
    for document in documents:
        for cell in document.cells:
            lines = cell.lines[:left]
            cut = cut or len(lines) < len(cell.lines)
            left -= len(lines)
            if cell.kind == "code" and lines:
                number = cell.number if document.kind == "notebook" else None
                here = [
                    (at, one)
                    for at, one in enumerate(regions, start=1)
                    if (one.document, one.cell) == (document.path, number)
                ]
                parts.append(Part(document.path, number, tuple(_rows(cell, lines, here, until))))
    return Column(name, side, tuple(parts), cut)


def _rows(
    cell: Cell, lines: Sequence[str], regions: Sequence[tuple[int, Lines]], until: float
) -> Iterable[Row]:
    own = frozenset(cell.added)
    begun: set[int] = set()
    for at, html in enumerate(highlighted(cell, lines, until), start=1):
        number = cell.first_line + at - 1
        region = next((n for n, one in regions if one.first <= number <= one.last), 0)
        begins = region > 0 and region not in begun
        begun.add(region)
        yield Row(number, html, at not in own, region, begins)
