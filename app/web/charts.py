"""Plots as SVG, drawn on the server: columns, and lanes with a bar, a range and a dot. Texts are escaped.

A plot is drawn from a table, which is also its CSV and what a screen reader reads. On a page its colours are
the page's variables; alone it brings its own, light and dark.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup

from app.web.i18n import number

CSS = Path(__file__).parents[1] / "static" / "web" / "plot.css"
COLOURS = """
svg { --accent: #0f6b62; --accent-strong: #0a4f48; --panel: #ffffff; --edge: #dfe4e0; --ink-soft: #56605b;
  --plot-ink: #1d2422; background: var(--panel); }
@media (prefers-color-scheme: dark) { svg { --accent: #5ac8b8; --accent-strong: #86dccf; --panel: #1d2324;
  --edge: #323a3b; --ink-soft: #a9b5b1; --plot-ink: #e6ecea; } }
"""
WIDE, NARROW = 720, 330
_LETTER = 7.2
"""About the width of a letter."""
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Cell = str | float | int | None


@dataclass(frozen=True)
class Column:
    """A column of a histogram; `tip` is what it says when it is pointed at."""

    label: str
    value: float
    tip: str


@dataclass(frozen=True)
class Lane:
    """A line of its own on a shared scale: a bar from the start, a range, a dot; each may be missing."""

    label: str
    tip: str
    bar: float | None = None
    low: float | None = None
    high: float | None = None
    dot: float | None = None
    note: str = ""
    """Stands at the right of the label."""
    faint: bool = False
    """Rests on too little."""


@dataclass(frozen=True)
class Plot:
    """What is drawn, and the numbers it is drawn from."""

    name: str
    title: str
    description: str
    """In a sentence what there is to see, for those who do not see it."""
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    columns: tuple[Column, ...] = ()
    lanes: tuple[Lane, ...] = ()
    start: float = 0.0
    end: float = 1.0
    """The scale of lanes."""
    ticks: tuple[tuple[float, str], ...] = ()
    axis: str = ""
    last: str = ""
    """The end of the scale of columns."""
    zero: float | None = None
    """Where a line says: no difference."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.columns and not self.lanes


def inline(plot: Plot, width: int = WIDE) -> Markup:
    """The plot for a page; its colours and rules are the page's."""
    return _svg(plot, width, Markup())


def alone(plot: Plot) -> bytes:
    """The plot as a file of its own."""
    style = Markup("<style>{}</style>").format(COLOURS + _rules())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_svg(plot, WIDE, style)}\n'.encode()


def as_csv(plot: Plot) -> bytes:
    """The numbers, for a spreadsheet: UTF-8 with its mark; no cell is taken for a formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(plot.head)
    writer.writerows([_plain(cell) for cell in row] for row in plot.rows)
    return text.getvalue().encode("utf-8-sig", "replace")


def _plain(cell: Cell) -> Cell:
    """A cell that spreadsheets take for what it is."""
    if isinstance(cell, float):
        return round(cell, 4)
    if isinstance(cell, str) and cell.lstrip()[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{cell}"
    return "" if cell is None else cell


@lru_cache(maxsize=1)
def _rules() -> str:
    return CSS.read_text("utf-8")


def _svg(plot: Plot, width: int, style: Markup) -> Markup:
    height, parts = _columns(plot, width) if plot.columns else _lanes(plot, width)
    opened = Markup(
        '<svg class="plot" role="img" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" width="{}" '
        'height="{}" aria-label="{}">'
    ).format(width, height, width, height, _clean(f"{plot.title}. {plot.description}"))
    return Markup("").join([opened, style, *parts, Markup("</svg>")])


def _clean(text: str) -> str:
    """Without characters that no XML may hold."""
    return _NO_XML.sub("", text)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Markup:
    """A text; `kind` is its class."""
    named = Markup(' class="{}"').format(kind) if kind else ""
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>').format(
        x, y, anchor, named, _clean(text)
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(
        x1, y1, x2, y2, kind
    )


def _rect(x: float, y: float, width: float, height: float, kind: str, round_: int = 2) -> Markup:
    return Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}" class="{}"/>').format(
        x, y, max(width, 0.0), max(height, 0.0), round_, kind
    )


def _hover(tip: str, parts: Sequence[Markup], faint: bool = False) -> Markup:
    """Parts that say something when they are pointed at: by <title>, and by the page's script."""
    text = _clean(tip)
    return Markup('<g data-tip="{}"{}><title>{}</title>{}</g>').format(
        text, Markup(' class="plot-faint"') if faint else "", text, Markup("").join(parts)
    )


def _columns(plot: Plot, width: int) -> tuple[int, list[Markup]]:
    top, bottom, height = 26.0, 210.0, 258
    left, right = 8.0, width - 8.0
    most = max((column.value for column in plot.columns), default=0.0) or 1.0
    step = (right - left) / len(plot.columns)
    # labels need room for about their letters
    widest = max(len(column.label) for column in plot.columns) * _LETTER + 8
    every = max(1, math.ceil(widest / step))
    last = len(plot.columns) - 1
    parts = [_line(left, bottom, right, bottom, "plot-grid")]
    for at, column in enumerate(plot.columns):
        x, tall = left + at * step, (bottom - top) * column.value / most
        inside = [
            _rect(x, top - 20, step, bottom - top + 20, "plot-hit", 0),
            _rect(x + step * 0.08, bottom - tall, step * 0.84, tall, "plot-bar"),
        ]
        if column.value:
            inside.append(_text(x + step / 2, bottom - tall - 6, f"{column.value:g}", anchor="middle"))
        parts.append(_hover(column.tip, inside))
        # the last label leaves room for the end of the scale
        if at % every == 0 and (at < last or not plot.last or step > 2 * widest):
            parts.append(_text(x + 1, bottom + 18, column.label, "plot-soft"))
    parts.append(_text(right, bottom + 18, plot.last, "plot-soft", "end"))
    parts.append(_text((left + right) / 2, height - 8, plot.axis, "plot-soft", "middle"))
    return height, parts


def _lanes(plot: Plot, width: int) -> tuple[int, list[Markup]]:
    left, right, each, top = 10.0, width - 10.0, 46.0, 8.0
    bottom = top + each * len(plot.lanes)
    height = int(bottom + (44 if plot.axis else 26))
    parts = list(_scale(plot, left, right, top, bottom))
    for at, lane in enumerate(plot.lanes):
        parts.append(_lane(plot, lane, left, right, top + at * each))
    if plot.axis:
        parts.append(_text((left + right) / 2, height - 8, plot.axis, "plot-soft", "middle"))
    return height, parts


def _at(plot: Plot, value: float, left: float, right: float) -> float:
    """Where a value stands; what is outside of the scale at its end."""
    part = (value - plot.start) / ((plot.end - plot.start) or 1.0)
    return left + min(max(part, 0.0), 1.0) * (right - left)


def _scale(plot: Plot, left: float, right: float, top: float, bottom: float) -> Iterator[Markup]:
    for value, label in plot.ticks:
        x = _at(plot, value, left, right)
        yield _line(x, top, x, bottom, "plot-grid")
        anchor = "start" if x < left + 14 else "end" if x > right - 14 else "middle"
        yield _text(x, bottom + 16, label, "plot-soft", anchor)
    if plot.zero is not None:
        x = _at(plot, plot.zero, left, right)
        yield _line(x, top, x, bottom, "plot-zero")


def _lane(plot: Plot, lane: Lane, left: float, right: float, y: float) -> Markup:
    room = int((right - left) / _LETTER) - len(lane.note) - 2
    label = lane.label if len(lane.label) <= room else f"{lane.label[: max(room - 1, 1)]}…"
    middle = y + 31
    parts = [
        _rect(left, y, right - left, 44, "plot-hit", 0),
        _text(left, y + 15, label),
        _text(right, y + 15, lane.note, "plot-soft", "end"),
    ]
    if lane.bar is not None:
        parts.append(_rect(left, middle - 6, right - left, 12, "plot-back"))
        parts.append(_rect(left, middle - 6, _at(plot, lane.bar, left, right) - left, 12, "plot-bar"))
    if lane.low is not None and lane.high is not None:
        kind = "plot-range" if lane.bar is None else "plot-thin"
        low, high = (_at(plot, value, left, right) for value in (lane.low, lane.high))
        parts.append(_line(low, middle, high, middle, kind))
    if lane.dot is not None:
        x = _at(plot, lane.dot, left, right)
        parts.append(Markup('<circle cx="{:.1f}" cy="{:.1f}" r="6" class="plot-dot"/>').format(x, middle))
    return _hover(lane.tip, parts, lane.faint)


def cell_text(cell: Cell) -> str:
    """A cell of the table that stands beside a plot."""
    if isinstance(cell, float):
        return number(cell) if math.isfinite(cell) else "–"
    return "–" if cell is None else str(cell)
