"""Small plots as SVG: bars, and curves of what is through by when."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDE, ROW, LEFT, PAD = 760, 26, 220, 16
COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8e6c88", "#d4a017", "#5c677d", "#2a9d8f", "#9d0208", "#6d597a")
OURS, OTHERS = COLOURS[0], "#a8b0b9"


def bars(title: str, rows: Sequence[tuple[str, float]], unit: str) -> str:
    """A bar a row, the first one ours."""
    most = max((value for _, value in rows), default=0.0) or 1.0
    room = WIDE - LEFT - 90
    parts = []
    for number, (label, value) in enumerate(rows):
        y = 44 + number * ROW
        long = max(1.0, room * value / most)
        colour = OURS if number == 0 else OTHERS
        parts.append(_text(LEFT - 8, y + 14, label, "end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{long:.1f}" height="{ROW - 8}" fill="{colour}"/>')
        parts.append(_text(LEFT + long + 6, y + 14, f"{value:.3g} {unit}"))
    return _picture(title, 44 + len(rows) * ROW + PAD, parts)


def curves(title: str, lines: Sequence[tuple[str, Sequence[float]]], unit: str) -> str:
    """For each line, how many of its moments have passed by then."""
    last = max((max(moments, default=0.0) for _, moments in lines), default=0.0) or 1.0
    most = max((len(moments) for _, moments in lines), default=0) or 1
    high, width, under = 260, WIDE - 2 * PAD - 220, 44
    parts = []
    for number, (label, moments) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{PAD + width * at / last:.1f},{under + high - high * (n + 1) / most:.1f}"
            for n, at in enumerate(sorted(moments))
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(PAD + width + 12, under + 14 + 20 * number, label, colour=colour))
    parts.append(f'<path d="M{PAD} {under}V{under + high}H{PAD + width}" fill="none" stroke="#333"/>')
    parts.append(_text(PAD, under + high + 18, "0"))
    parts.append(_text(PAD + width, under + high + 18, f"{last:.0f} {unit}", "end"))
    return _picture(title, max(under + high, under + 20 * len(lines)) + 30, parts)


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _picture(title: str, high: float, parts: Sequence[str]) -> str:
    inside = "\n".join([_text(PAD, 24, title), *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high:.0f}" '
        f'font-family="sans-serif" font-size="13">\n'
        f'<rect width="{WIDE}" height="{high:.0f}" fill="#fff"/>\n{inside}\n</svg>\n'
    )
