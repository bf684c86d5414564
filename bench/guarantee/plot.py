"""The curves of released share against marks, as SVG for the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pygal
from pygal.style import Style

from bench.guarantee.simulation import Simulated

COLOURS = ("#0f6b62", "#b3541e", "#3b5ba5", "#8a4f9e", "#b08900", "#c0392b", "#4d7c0f", "#56605b")
WIDE, HIGH = 900, 460


def curves(found: Mapping[int, Sequence[Simulated]], names: Sequence[str]) -> str:
    """Of the graders with these names: what is released as a share of what the oracle could release."""
    style = Style(
        background="#ffffff", plot_background="#ffffff", foreground="#1d2422", foreground_strong="#1d2422",
        foreground_subtle="#8a948f", colors=COLOURS, font_family="sans-serif", label_font_size=13,
        major_label_font_size=13, legend_font_size=13, title_font_size=15,
    )  # fmt: skip
    chart = pygal.XY(
        style=style, js=(), width=WIDE, height=HIGH, dots_size=3, pretty_print=True, no_prefix=True,
        truncate_legend=40,
        title="Released, as a share of what an oracle could release", x_title="marks", range=(0, 100),
        xrange=(0, max(found)), x_labels=[0, *found], y_labels=range(0, 101, 20),
        disable_xml_declaration=True,
        value_formatter=lambda value: f"{value:.0f} %", x_value_formatter=lambda value: f"{value:.0f}",
    )  # fmt: skip
    for name in names:
        rows = {marks: row for marks, all_rows in found.items() for row in all_rows if row.grader == name}
        chart.add(name, [(marks, 100 * (row.of_oracle or 0.0)) for marks, row in rows.items()])
    # what pygal brings for pointers needs its script, which is not there
    return re.sub(r"<(desc|title)[^>]*>.*?</\1>", "", chart.render(is_unicode=True), flags=re.DOTALL)
