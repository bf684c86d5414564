"""How points come about, in words: sums, levels, late penalties, deductions, people's changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, number
from app.web.markdown import one_line
from grading.domain.evidence import CheckOutcome
from grading.domain.lateness import Lateness
from grading.domain.report import Adjusted, Corrected, CriterionGrade, Report
from grading.domain.report_changes import ITEM, split_item_target
from grading.domain.rubric import Adjustment
from grading.store.grades.change_history import MadeChange
from grading.store.views.assignment import ShownAdjustment
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import GradeView

LEVELS = (
    N_("nothing usable"),
    N_("a beginning"),
    N_("partly there"),
    N_("good"),
    N_("complete and convincing"),
)
"""`DEFAULT_LEVELS` of rubrics, for translators."""
MOST_LOST = 3
"""Criteria that are named first because most points are missing there."""
LONGEST = 300
"""Characters of words that were changed, in the list."""


@dataclass(frozen=True)
class PointsSum:
    """What counts, and how it came to that."""

    total: str
    """Empty while there is no total."""
    so_far: str
    most: str
    steps: str
    """Empty where nothing was added or taken off."""
    late: str
    """A sentence for a late submission; empty in time."""


def points_sum(grade: GradeView, terms: ScoreTerms) -> PointsSum:
    """The points of a grade in words, such as `27 of 30, 10 % off for one day late: 24.3`."""
    return PointsSum(
        total="" if grade.final_points is None else number(grade.final_points),
        so_far=number(grade.points_so_far),
        most=number(grade.max_points),
        steps=_steps(grade, terms.lateness),
        late=_late(grade, terms),
    )


def _steps(grade: GradeView, late: Lateness) -> str:
    if grade.points is None or grade.final_points is None or (not grade.adjustment and grade.credit == 1):
        return ""
    steps = [_("%(points)s of %(most)s", points=number(grade.points), most=number(grade.max_points))]
    if grade.adjustment > 0:
        steps.append(_("%(points)s added manually", points=number(grade.adjustment)))
    elif grade.adjustment < 0:
        steps.append(_("%(points)s deducted manually", points=number(-grade.adjustment)))
    if grade.credit != 1:
        steps.append(_late_penalty(number(100 * (1 - grade.credit)), late.days))
    return f"{', '.join(steps)}: {number(grade.final_points)}"


def _late_penalty(percent: str, days: int) -> str:
    if days == 1:
        return _("%(percent)s %% off for one day late", percent=percent)
    return ngettext(
        "%(percent)s %% off for %(count)s day late",
        "%(percent)s %% off for %(count)s days late",
        days,
        percent=percent,
    )


def _late(grade: GradeView, terms: ScoreTerms) -> str:
    days = terms.lateness.days
    if not days:
        return ""
    sentence = (
        _("Submitted one day late.")
        if days == 1
        else ngettext("Submitted %(count)s day late.", "Submitted %(count)s days late.", days)
    )
    costs = grade.credit != 1 or grade.final_points is None
    return sentence if costs else f"{sentence} {_('That takes no points off.')}"


@dataclass(frozen=True)
class LostPoints:
    """A criterion whose points are not all there; `number` is its place in the report, from 1."""

    number: int
    title: str
    missing: float
    most: float


def most_lost(report: Report) -> tuple[LostPoints, ...]:
    """The criteria that lack most points, at most MOST_LOST; without bonus and what is not rated."""
    judged = enumerate(report.criteria, start=1)
    lost = [
        LostPoints(number, one.title, round(one.max_points - one.points, 2), one.max_points)
        for number, one in judged
        if one.points is not None and not one.bonus and one.points < one.max_points
    ]
    return tuple(sorted(lost, key=lambda one: (-one.missing, one.number))[:MOST_LOST])


def in_full(found: CriterionGrade) -> bool:
    """Whether a criterion earned all its points: its part of the page is closed then."""
    return found.points is not None and found.points >= found.max_points


def level_words(found: CriterionGrade, levels: Sequence[str]) -> str:
    """What the level of a criterion means; between two of them, both. Empty where nobody knows."""
    if found.level is None or len(levels) != found.highest + 1:
        return ""
    below = min(int(found.level), found.highest)
    if found.level - below < 0.05 or below == found.highest:
        return level_text(levels[below])
    if found.level - below > 0.95:
        return level_text(levels[below + 1])
    lower, upper = level_text(levels[below]), level_text(levels[below + 1])
    return _("between “%(lower)s” and “%(upper)s”", lower=lower, upper=upper)


def level_text(words: str) -> str:
    """A level in the reader's language where nobody gave it words of their own."""
    return _(words) if words in LEVELS else words


@dataclass(frozen=True)
class AdjustmentLine:
    """One adjustment: what it says, whether it applies, and the points it takes."""

    adjustment: str
    title: str
    description: str
    rule: str
    """Such as: takes 20 % of the points of Cleaning."""
    state: str
    taken: str
    """Points with a minus; empty where it takes none."""
    evidence: tuple[CheckOutcome, ...]
    corrected: Corrected | None
    applies: bool
    undecided: bool


def adjustment_lines(report: Report, *, everything: bool) -> tuple[AdjustmentLine, ...]:
    """Those of a report; without `everything` those that apply, may apply or were decided by a person."""
    titles = {one.criterion: one.title for one in report.criteria}
    visible = (o for o in report.adjustments if everything or o.applies or o.undecided or o.corrected)
    return tuple(_line(one, titles) for one in visible)


def adjustments_sum(report: Report) -> str:
    """How the points of the criteria come to those of the whole; empty where nothing lies between them."""
    judged = round(sum(one.points or 0.0 for one in report.criteria), 2)
    total = round(sum(one.points for one in report.adjustments), 2)
    lost = report.bonus_lost
    if not total and not lost:
        return ""
    steps = [_("Criteria: %(points)s", points=number(judged))]
    steps += [_("deductions: %(points)s", points=number(total))] if total else []
    steps += [_("%(points)s bonus points exceed the limit", points=number(lost))] if lost else []
    return f"{', '.join(steps)}: {number(report.points_so_far)}"


def rule_words(one: Adjusted | Adjustment | ShownAdjustment, titles: Mapping[str, str]) -> str:
    """What an adjustment does when it applies."""
    names = [one_line(titles.get(name, name)) for name in one.criteria]
    about = _quoted(names) if names else ""
    if one.cap is not None:
        percent = number(100 * one.cap)
        if about:
            return _("caps %(criteria)s at %(percent)s %%", percent=percent, criteria=about)
        return _("caps the total at %(percent)s %%", percent=percent)
    percent = number(100 * (one.deduct or 0.0))
    if about:
        return _("deducts %(percent)s %% of the points of %(criteria)s", percent=percent, criteria=about)
    return _("deducts %(percent)s %% of all points", percent=percent)


def offered_words(one: Adjustment | ShownAdjustment, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """The same before anything is submitted."""
    words = rule_words(one, titles)
    words += _(", for each missing item") if one.each else ""
    return words + (_(", in proportion to the missing items") if one.partly else "")


def _quoted(names: Sequence[str]) -> str:
    quoted = [_("“%(title)s”", title=name) for name in names]
    if len(quoted) == 1:
        return quoted[0]
    return _("%(some)s and %(last)s", some=", ".join(quoted[:-1]), last=quoted[-1])


def _line(one: Adjusted, titles: Mapping[str, str]) -> AdjustmentLine:
    full = one if one.applies else one.model_copy(update={"deduct": one.at_worst})
    return AdjustmentLine(
        adjustment=one.adjustment,
        title=one_line(one.title),
        description=one.description.strip(),
        rule=rule_words(full, titles),
        state=_state(one),
        taken=f"−{number(one.points)}" if one.points else "",
        evidence=one.evidence,
        corrected=one.corrected,
        applies=one.applies,
        undecided=one.undecided,
    )


def _state(one: Adjusted) -> str:
    if one.corrected is not None:
        return _("applied manually") if one.applies else _("waived manually")
    if one.undecided:
        return _("undecided: a check could not run")
    if not one.applies:
        return _("does not apply")
    return _("applies") if one.points else _("applies, but no points remain to deduct")


@dataclass(frozen=True)
class ChangeInWords:
    """One change as the page tells it."""

    at: datetime
    by: str
    words: str
    reason: str
    grading: int
    undone: str
    undone_at: datetime | None


def changes_in_words(changes: Sequence[MadeChange], titles: Mapping[str, str]) -> tuple[ChangeInWords, ...]:
    """The changes in words. `titles` are those that `change_titles` gives."""
    return tuple(
        ChangeInWords(
            one.at, one.by, _words(one, titles), one.reason, one.grading, _undone(one), one.undone_at
        )
        for one in changes
    )


def change_titles(report: Report | None) -> dict[str, str]:
    """What changes of a report name: titles of criteria by id, of adjustments as `adjustment:…`."""
    if report is None:
        return {}
    adjusted = {f"adjustment:{one.adjustment}": one.title for one in report.adjustments}
    return {one.criterion: one.title for one in report.criteria} | adjusted


def _undone(one: MadeChange) -> str:
    if one.undone_at is None:
        return ""
    by = one_line(one.undone_by) or _("someone")
    return _("Undone by %(name)s,", name=by)


def _words(one: MadeChange, titles: Mapping[str, str]) -> str:
    title = one_line(titles.get(one.target, one.target), 100)
    if one.kind == "points":
        was = _points_or_none(one.before.get("points"))
        return _(
            "“%(title)s”: %(was)s → %(now)s points",
            title=title,
            was=was,
            now=_points_or_none(one.value.get("points")),
        )
    if one.kind == "confirm":
        points = _points_or_none(one.before.get("points"))
        return _("“%(title)s”: %(points)s points confirmed", title=title, points=points)
    if one.kind in ITEM:
        return _item(one, titles)
    if one.kind == "adjust":
        words = _("the total: %(points)s points", points=_signed(one.value.get("points")))
        return f"{words} ({_('for many at once')})" if one.bulk else words
    if one.kind in ("waive", "apply"):
        title = one_line(titles.get(f"adjustment:{one.target}", one.target), 100)
        if one.kind == "waive":
            return _("“%(title)s” is waived", title=title)
        return _("“%(title)s” is applied in full", title=title)
    text = one_line(str(one.value.get("text") or ""), LONGEST)
    return {
        "reason": _("the reason of “%(title)s”: %(text)s", title=title, text=text),
        "remark": _("a comment: %(text)s", text=text),
        "hide": _("a comment is not shown"),
        "add": _("a comment: %(text)s", text=text),
        "text": _("the text: %(text)s", text=text),
    }.get(one.kind, one_line(one.kind))


def _item(one: MadeChange, titles: Mapping[str, str]) -> str:
    criterion, _item_id = split_item_target(one.target)
    title = one_line(titles.get(criterion, criterion), 100)
    if one.kind == "remove_item":
        return _("“%(title)s”: a rubric item was removed", title=title)
    text = one_line(str(one.value.get("text") or ""), LONGEST)
    points = _signed(one.value.get("points"))
    return _("“%(title)s”: %(points)s points for “%(text)s”", title=title, points=points, text=text)


def item_points(points: float) -> str:
    """The points of a rubric item with their sign, such as `−2`; empty for a comment without points."""
    return _signed(points) if points else ""


def _points_or_none(value: object) -> str:
    return number(float(value)) if isinstance(value, int | float) else _("not rated")


def _signed(value: object) -> str:
    return (
        f"{'+' if value >= 0 else '−'}{number(abs(float(value)))}" if isinstance(value, int | float) else "0"
    )
