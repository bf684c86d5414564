"""Deductions, caps and bonus of a report in plain words, for pages and print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from app.web.i18n import gettext as _
from app.web.i18n import number
from app.web.markdown import one_line
from grading.domain.model import CheckOutcome
from grading.domain.outcome import Adjusted, Corrected, Report
from grading.domain.rubric import Adjustment
from grading.store.views.assignment import ShownAdjustment


@dataclass(frozen=True)
class Line:
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


def lines(report: Report, *, everything: bool) -> tuple[Line, ...]:
    """Those of a report; without `everything` those that apply, may apply or were decided by a person."""
    titles = {one.criterion: one.title for one in report.criteria}
    shown = (o for o in report.adjustments if everything or o.applies or o.undecided or o.corrected)
    return tuple(_line(one, titles) for one in shown)


def summed(report: Report) -> str:
    """How the points of the criteria come to those of the whole; empty where nothing lies between them."""
    judged = round(sum(one.points or 0.0 for one in report.criteria), 2)
    taken = round(sum(one.points for one in report.adjustments), 2)
    lost = report.bonus_lost
    if not taken and not lost:
        return ""
    steps = [_("The criteria give %(points)s", points=number(judged))]
    steps += [_("deductions take %(points)s", points=number(taken))] if taken else []
    steps += [_("%(points)s of the bonus are above its limit", points=number(lost))] if lost else []
    return f"{', '.join(steps)}: {number(report.points_so_far)}"


def rule_words(one: Adjusted | Adjustment | ShownAdjustment, titles: Mapping[str, str]) -> str:
    """What an adjustment does when it applies."""
    names = [one_line(titles.get(name, name)) for name in one.criteria]
    about = _listed(names) if names else ""
    if one.cap is not None:
        percent = number(100 * one.cap)
        if about:
            return _(
                "leaves at most %(percent)s %% of the points of %(criteria)s", percent=percent, criteria=about
            )
        return _("leaves at most %(percent)s %% of all points", percent=percent)
    percent = number(100 * (one.deduct or 0.0))
    if about:
        return _("takes %(percent)s %% of the points of %(criteria)s", percent=percent, criteria=about)
    return _("takes %(percent)s %% of all points", percent=percent)


def offered_words(one: Adjustment | ShownAdjustment, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """The same before anything is handed in."""
    said = rule_words(one, titles)
    said += _(", for each thing that is missing") if one.each else ""
    return said + (_(", in proportion to what is missing") if one.partly else "")


def _listed(names: Sequence[str]) -> str:
    quoted = [_("“%(title)s”", title=name) for name in names]
    if len(quoted) == 1:
        return quoted[0]
    return _("%(some)s and %(last)s", some=", ".join(quoted[:-1]), last=quoted[-1])


def _line(one: Adjusted, titles: Mapping[str, str]) -> Line:
    full = one if one.applies else one.model_copy(update={"deduct": one.at_worst})
    return Line(
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
        return _("applied by a person") if one.applies else _("waived by a person")
    if one.undecided:
        return _("not decided: a check could not be run")
    if not one.applies:
        return _("does not apply")
    return _("applies") if one.points else _("applies, but nothing is left to take")
