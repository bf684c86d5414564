"""How points add up, in one plain sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, number
from grading.domain.lateness import Lateness
from grading.domain.outcome import CriterionGrade
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


@dataclass(frozen=True)
class Sum:
    """What counts, and how it came to that."""

    total: str
    """Empty while there is no total."""
    so_far: str
    most: str
    steps: str
    """Empty where nothing was added or taken off."""
    late: str
    """A sentence for a late hand-in; empty in time."""


def summed(grade: GradeView, terms: ScoreTerms) -> Sum:
    """The points of a grade in words, such as `27 of 30, 10 % off for one day late: 24.3`."""
    return Sum(
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
        steps.append(_("%(points)s added by a person", points=number(grade.adjustment)))
    elif grade.adjustment < 0:
        steps.append(_("%(points)s taken off by a person", points=number(-grade.adjustment)))
    if grade.credit != 1:
        steps.append(_off(number(100 * (1 - grade.credit)), late.days))
    return f"{', '.join(steps)}: {number(grade.final_points)}"


def _off(percent: str, days: int) -> str:
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
    said = (
        _("Handed in one day late.")
        if days == 1
        else ngettext("Handed in %(count)s day late.", "Handed in %(count)s days late.", days)
    )
    costs = grade.credit != 1 or grade.final_points is None
    return said if costs else f"{said} {_('That takes no points off.')}"


def level_words(found: CriterionGrade, levels: Sequence[str]) -> str:
    """What the level of a criterion means; between two of them, both. Empty where nobody knows."""
    if found.level is None or len(levels) != found.highest + 1:
        return ""
    below = min(int(found.level), found.highest)
    if found.level - below < 0.05 or below == found.highest:
        return level_said(levels[below])
    if found.level - below > 0.95:
        return level_said(levels[below + 1])
    lower, upper = level_said(levels[below]), level_said(levels[below + 1])
    return _("between “%(lower)s” and “%(upper)s”", lower=lower, upper=upper)


def level_said(words: str) -> str:
    """A level in the reader's language where nobody gave it words of their own."""
    return _(words) if words in LEVELS else words
