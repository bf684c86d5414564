"""Charts as SVG, drawn on the server by pygal: columns, or bars that lie, each with a range if it has one.

A plot is drawn from a table, which is also its CSV and what a screen reader reads. On a page its colours are
the page's variables and its marks can be reached by keys; alone it brings its own colours, light and dark.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pygal
from markupsafe import Markup
from pygal.etree import etree
from pygal.style import Style

from app.web.i18n import number

CSS = Path(__file__).parents[1] / "static" / "web" / "plot.css"
COLOURS = """
svg { --accent: #0f6b62; --accent-strong: #0a4f48; --panel: #ffffff; --edge: #dfe4e0; --ink-soft: #56605b;
  --plot-ink: #1d2422; background: var(--panel); }
@media (prefers-color-scheme: dark) { svg { --accent: #5ac8b8; --accent-strong: #86dccf; --panel: #1d2324;
  --edge: #323a3b; --ink-soft: #a9b5b1; --plot-ink: #e6ecea; } }
"""
WIDE, NARROW = 960, 340
FONT_PX = 13
LABELS = {WIDE: 44, NARROW: 16}
"""Letters of a bar's label, by the width of the plot; the table has all of them."""
_NOTE_PX = 76
"""Room for notes at the right of bars."""
_LANE_PX, _COLUMNS_PX, _AXIS_PX = 40, 250, 20
_LEGEND_PX = 24
"""Of a row of the legend, where its names stand below each other."""
_LEGEND = 40
"""Letters of a name in the legend."""
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE = Style(
    label_font_size=FONT_PX, major_label_font_size=FONT_PX, value_font_size=FONT_PX,
    title_font_size=FONT_PX, legend_font_size=FONT_PX,
)  # fmt: skip
"""Of what pygal measures; the colours and sizes that are seen are those of plot.css."""
_DROPPED = ("defs", "desc", "title")
"""Of what pygal draws: styles and scripts, which no page admits, and texts for them."""
Cell = str | float | int | None


@dataclass(frozen=True)
class Mark:
    """A column or bar; without a value nothing is drawn. `tip` is what it says when pointed at or focused."""

    label: str
    tip: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """Stands at the right of a bar."""
    short: str = ""
    """The label where there is little room."""
    faint: bool = False
    """Rests on too little."""


@dataclass(frozen=True)
class Series:
    """Marks of one colour, as many as in the others of the plot."""

    name: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Plot:
    """What is drawn, and the numbers it is drawn from."""

    name: str
    title: str
    description: str
    """In a sentence what there is to see, for those who do not see it."""
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    series: tuple[Series, ...] = ()
    lying: bool = True
    """Bars from left to right, not columns."""
    start: float = 0.0
    end: float = 1.0
    """The scale of bars."""
    ticks: tuple[tuple[float, str], ...] = ()
    axis: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(mark.value is not None for one in self.series for mark in one.marks)


def inline(plot: Plot, width: int = WIDE) -> Markup:
    """The plot for a page; its colours and rules are the page's."""
    return Markup(etree.tostring(_drawn(plot, width), encoding="unicode"))  # noqa: S704 - escaped by ElementTree


def alone(plot: Plot) -> bytes:
    """The plot as a file of its own."""
    root = _drawn(plot, WIDE)
    style = etree.Element("style")
    style.text = COLOURS + _rules()
    root.insert(0, style)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{etree.tostring(root, encoding="unicode")}\n'.encode()


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


def _clean(text: str) -> str:
    """Without characters that no XML may hold."""
    return _NO_XML.sub("", text)


def _short(text: str, most: int) -> str:
    """A label of so many letters; never empty, for which pygal has other words."""
    text = _clean(text)
    return (text if len(text) <= most else f"{text[: most - 1]}…") or " "


def _drawn(plot: Plot, width: int) -> Any:
    chart = (_bars if plot.lying else _columns)(plot, width)
    for one in plot.series:
        chart.add(_short(one.name, _LEGEND), [_value(mark) for mark in _in_order(plot, one.marks)])
    root = chart.render_tree()
    _strip(root)
    if plot.lying and width == NARROW:
        _begin_at_edge(root)
    _mark_up(root, plot)
    root.attrib.pop("id", None)
    height = root.get("viewBox").rpartition(" ")[2]
    if plot.axis:
        place = {"x": f"{width / 2:g}", "y": f"{float(height) - 8:g}", "class": "title"}
        etree.SubElement(root, "text", place).text = _clean(plot.axis)
    named = {"class": "plot", "role": "group", "width": f"{width}", "height": height}
    root.attrib.update(named | {"aria-label": _clean(f"{plot.title}. {plot.description}")})
    return root


def _in_order(plot: Plot, marks: Sequence[Mark]) -> Sequence[Mark]:
    """As pygal draws them: bars from the bottom."""
    return marks[::-1] if plot.lying else marks


def _value(mark: Mark) -> dict[str, Any]:
    ranged = mark.value is not None and mark.low is not None and mark.high is not None
    return {"value": mark.value, **({"ci": {"low": mark.low, "high": mark.high}} if ranged else {})}


def _columns(plot: Plot, width: int) -> Any:
    chart = pygal.Bar(
        width=width, height=_COLUMNS_PX, show_y_labels=False, show_y_guides=False, print_values=True,
        print_values_position="top", print_zeroes=False, value_formatter=_whole, **_common(plot),
    )  # fmt: skip
    marks = plot.series[0].marks if plot.series else ()
    chart.x_labels = [_clean(one.label if width == WIDE else one.short or one.label) for one in marks]
    return chart


def _bars(plot: Plot, width: int) -> Any:
    marks = plot.series[0].marks if plot.series else ()
    lanes = len(marks) * max(1, len(plot.series))
    height = _LANE_PX * max(1, lanes if len(plot.series) == 1 else round(0.7 * lanes)) + 64
    in_rows = width == NARROW and len(plot.series) > 1
    chart = pygal.HorizontalBar(
        width=width, height=height + (_LEGEND_PX * (len(plot.series) - 1) if in_rows else 0), zero=0,
        range=(plot.start, plot.end), margin_right=_NOTE_PX, show_x_guides=True,
        legend_at_bottom_columns=1 if in_rows else None, **_common(plot),
    )  # fmt: skip
    # pygal gives labels all the room they ask for
    chart.x_labels = [_short(one.label, LABELS[width]) for one in marks[::-1]]
    if not plot.empty:
        ticks = plot.ticks if width == WIDE else plot.ticks[::2]
        chart.y_labels = [{"value": value, "label": _clean(label)} for value, label in ticks]
    return chart


def _common(plot: Plot) -> dict[str, Any]:
    return {
        "css": [], "js": [], "style": _STYLE, "no_prefix": True, "margin": 6, "truncate_label": -1,
        "margin_bottom": 10 + (_AXIS_PX if plot.axis else 0), "no_data_text": "",
        "show_legend": len(plot.series) > 1, "legend_at_bottom": True, "truncate_legend": -1,
    }  # fmt: skip


def _whole(value: float) -> str:
    return f"{value:g}"


def _strip(root: Any) -> None:
    """Remove what no page admits: scripts, styles, ids, what only pygal's own script uses."""
    for parent in [root, *root.iter()]:
        parent.attrib.pop("id", None)
        for child in list(parent):
            kind = child.get("class") or "" if isinstance(child.tag, str) else ""
            if not isinstance(child.tag, str) or child.tag in _DROPPED or "tooltip-overlay" in kind:
                parent.remove(child)


def _begin_at_edge(root: Any) -> None:
    """Move the legend to the left edge; pygal begins it where the bars begin, and names need the room."""
    for one in root.iter("g"):
        if (one.get("class") or "").startswith("legends"):
            one.set("transform", f"translate(6, {one.get('transform').rpartition(',')[2].strip(' )')})")


def _mark_up(root: Any, plot: Plot) -> None:
    """Give each mark its tip, a place to point at, and a way to it by keys: one stop, then the arrows."""
    area = next((one for one in root.iter("g") if one.get("class") == "plot"), None)
    if area is None:
        return
    room = area.find("rect")
    groups = [one for one in root.iter("g") if one.get("class") == "bars"]
    # pygal draws the last of the series of bars first
    for one, group in zip(plot.series[::-1] if plot.lying else plot.series, groups, strict=False):
        drawn = [mark for mark in _in_order(plot, one.marks) if mark.value is not None]
        for mark, bar in zip(drawn, list(group), strict=False):
            _mark(bar, mark, plot, room)
        if plot.lying:
            group[:] = list(group)[::-1]
    for at, bar in enumerate(bar for group in (groups[::-1] if plot.lying else groups) for bar in group):
        bar.set("tabindex", "-1" if at else "0")


def _mark(bar: Any, mark: Mark, plot: Plot, room: Any) -> None:
    tip, rect = _clean(mark.tip), bar.find("rect")
    rect.set("rx", "2")
    faint = " plot-faint" if mark.faint else ""
    bar.attrib.update({"class": f"bar{faint}", "data-tip": tip, "role": "img", "aria-label": tip})
    title = etree.SubElement(bar, "title")
    title.text = tip
    across, down = (room, rect) if plot.lying else (rect, room)
    place = {name: across.get(name) for name in ("x", "width")} | {
        name: down.get(name) for name in ("y", "height")
    }
    bar.insert(0, etree.Element("rect", {**place, "class": "plot-hit"}))
    if plot.lying and mark.note:
        middle = float(rect.get("y")) + float(rect.get("height")) / 2 + FONT_PX / 3
        at = {"x": f"{float(room.get('width')) + 6:.1f}", "y": f"{middle:.1f}", "class": "plot-note"}
        etree.SubElement(bar, "text", at).text = _clean(mark.note)


def cell_text(cell: Cell) -> str:
    """A cell of the table that stands beside a plot."""
    if isinstance(cell, float):
        return number(cell) if math.isfinite(cell) else "–"
    return "–" if cell is None else str(cell)


DRAWING: Mapping[str, Any] = {
    "drawn": inline,
    "cell_text": cell_text,
    "widths": (("wide", WIDE), ("narrow", NARROW)),
}
"""What statistics/_plot.html needs."""
