"""A report as plain text: points, criteria, deductions, feedback, comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grading.domain.report import Report
from grading.domain.stages import written


def as_text(report: Report, title: str, *, released: bool, final_points: float | None = None) -> str:
    """Markdown. `final_points` are what counts, where that differs from the report's own points."""
    shown = "released" if released else "not released"
    points = "no total" if report.points is None else f"{report.points:g}"
    lines = [f"# {title}", "", f"{points} of {report.max_points:g} points, {shown}", ""]
    if final_points is not None and final_points != report.points:
        lines += [f"What counts: {final_points:g} points", ""]
    lines += [report.notice, ""]
    for one in report.criteria:
        got = "not rated" if one.points is None else f"{one.points:g}"
        bonus = ", bonus" if one.bonus else ""
        lines += [f"- {one.title}: {got} of {one.max_points:g}{bonus}. {one.reason}".rstrip()]
        lines += [f"  - {item.text}: {item.points:+g}" for item in one.items]
    lines += [
        f"- {one.title}: -{one.points:g}. {one.description}".rstrip()
        for one in report.adjustments
        if one.points
    ]
    lines += [f"- bonus above its limit: -{report.bonus_lost:g}"] if report.bonus_lost else []
    for name, output in (("Analysis", report.analysis), ("Feedback", report.feedback)):
        if output is not None:
            lines += ["", f"## {name}", "", *_texts(output.model_dump(exclude={"judgements"}))]
    for more in written(report.outputs):
        lines += ["", f"## {more.title.text}", "", *_texts(list(more.parts.values()), more.stage)]
    lines += ["", *(f"- {one.text} ({one.by})" for one in report.comments)]
    lines += ["", *(f"- {sentence}" for sentence in report.failures.values())]
    return "\n".join(lines) + "\n"


def _texts(value: Any, name: str = "") -> Iterator[str]:
    """All texts of nested values, each with the name it stands under."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, key)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, name)
    elif value not in (None, ""):
        yield f"- {name.replace('_', ' ')}: {value}"
