"""What people changed in a grading, in words for staff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.web.i18n import gettext as _
from app.web.i18n import number
from app.web.markdown import one_line
from grading.domain.outcome import Report
from grading.store.grades.change_history import MadeChange

LONGEST = 300
"""Characters of words that were changed, in the list."""


@dataclass(frozen=True)
class Told:
    """One change as the page tells it."""

    at: datetime
    by: str
    words: str
    reason: str
    grading: int
    undone: str
    undone_at: datetime | None


def told(changes: Sequence[MadeChange], titles: Mapping[str, str]) -> tuple[Told, ...]:
    """The changes in words. `titles` are those that `titles` gives."""
    return tuple(
        Told(one.at, one.by, _words(one, titles), one.reason, one.grading, _undone(one), one.undone_at)
        for one in changes
    )


def titles(report: Report | None) -> dict[str, str]:
    """What changes of a report name: titles of criteria by id, of adjustments as `adjustment:…`."""
    if report is None:
        return {}
    adjusted = {f"adjustment:{one.adjustment}": one.title for one in report.adjustments}
    return {one.criterion: one.title for one in report.criteria} | adjusted


def _undone(one: MadeChange) -> str:
    if one.undone_at is None:
        return ""
    by = one_line(one.undone_by) or _("somebody")
    return _("Taken back by %(name)s,", name=by)


def _words(one: MadeChange, titles: Mapping[str, str]) -> str:
    title = one_line(titles.get(one.target, one.target), 100)
    if one.kind == "points":
        was = _points(one.before.get("points"))
        return _(
            "“%(title)s”: %(was)s → %(now)s points",
            title=title,
            was=was,
            now=_points(one.value.get("points")),
        )
    if one.kind == "adjust":
        said = _("the total: %(points)s points", points=_signed(one.value.get("points")))
        return f"{said} ({_('for many at once')})" if one.bulk else said
    if one.kind in ("waive", "apply"):
        title = one_line(titles.get(f"adjustment:{one.target}", one.target), 100)
        if one.kind == "waive":
            return _("“%(title)s” is waived", title=title)
        return _("“%(title)s” is applied in full", title=title)
    text = one_line(str(one.value.get("text") or ""), LONGEST)
    return {
        "reason": _("the reason of “%(title)s”: %(text)s", title=title, text=text),
        "remark": _("a remark: %(text)s", text=text),
        "hide": _("a remark is not shown"),
        "add": _("a comment: %(text)s", text=text),
        "text": _("the text: %(text)s", text=text),
    }.get(one.kind, one_line(one.kind))


def _points(value: object) -> str:
    return number(float(value)) if isinstance(value, int | float) else _("not judged")


def _signed(value: object) -> str:
    return (
        f"{'+' if value >= 0 else '−'}{number(abs(float(value)))}" if isinstance(value, int | float) else "0"
    )
