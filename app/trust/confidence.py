"""The page that shows how far the stated chances of right levels can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flask import Blueprint, render_template, request
from sqlalchemy.orm import Session

from app.trust.staff import for_staff
from app.web import auth, charts, page_cache
from app.web.assignment_pages import ANY
from app.web.charts import Mark, Plot, Series
from app.web.human_ceiling import load_ceiling
from app.web.i18n import gettext as _
from app.web.i18n import number
from app.web.services import services
from grading.statistics.agreement import FEWEST
from grading.statistics.confidence import Tried, cross_fitted
from grading.statistics.reliability import Bin, Evaluation, Reliability, evaluate
from grading.store.trust import confidence
from grading.store.trust.release_samples import SHARES
from grading.store.views import submission_lists

pages = Blueprint("confidence", __name__)
SOURCE = (
    "Vasquez Ferrer et al. 2026, When Can We Trust LLM Graders?, arXiv 2603.29559",
    "https://arxiv.org/abs/2603.29559",
)
PERCENTS = tuple((part / 4, f"{part * 25} %") for part in range(5))


@dataclass(frozen=True)
class CachedEvaluations:
    """What is known of a course as a whole, and of its assignments that people marked."""

    course: Evaluation
    assignments: dict[int, Evaluation]

    def of(self, assignment_id: int) -> Evaluation:
        """Of one assignment."""
        return self.assignments.get(assignment_id, NOTHING)


NOTHING = evaluate(())


@pages.get(f"/assignments/{ANY}/trust/confidence")
def show(assignment_id: int) -> str:
    """How far the chances that levels are right can be believed, in this assignment or its whole course."""
    actor = auth.actor()
    whole = request.args.get("of") == "course"
    with services().store.read() as session:
        found = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(found, found.course)
        made = page_cache.of_course("confidence", session, found.course_id, _made)
        people = load_ceiling(session, found.course_id, found.id)
    shown = made.course if whole else made.of(assignment_id)
    right = shown.score.right / shown.score.n if shown.score.n else 1.0
    return render_template(
        "trust/confidence.html", assignment=line, whole=whole, found=shown, course=made.course, people=people,
        plot_of=diagram(shown.score), fewest=FEWEST, source=SOURCE, many_wrong=1 - right > max(SHARES),
        **charts.DRAWING,
    )  # fmt: skip


def _made(session: Session, course_id: int) -> CachedEvaluations:
    tried = cross_fitted(confidence.labels(session, course_id))
    by: dict[int, list[Tried]] = {}
    for one in tried:
        by.setdefault(confidence.assignment_of(one.label.features.criterion), []).append(one)
    return CachedEvaluations(evaluate(tried), {number: evaluate(some) for number, some in by.items()})


def diagram(found: Reliability) -> Plot:
    """The reliability diagram as two bars for each bin: what was stated, and what people found."""
    labelled = tuple(zip(_labels(found.bins), found.bins, strict=True))
    return Plot(
        name="confidence",
        title=_("Stated chances and what people found"),
        description=_("Two bars for each group of levels: the stated chance to be right, and the share "
                      "that people found right, with a line for its 95 percent interval."),
        head=(_("Stated chance"), _("Levels"), _("Stated, on average"), _("Right"), _("From"), _("To")),
        rows=tuple(
            (label, one.n, percent(one.stated), percent(one.right), *map(percent, one.interval))
            for label, one in labelled
        ),
        series=(
            Series(_("Stated"), tuple(_stated(label, one) for label, one in labelled)),
            Series(_("Right"), tuple(_right(label, one) for label, one in labelled)),
        ) if found.bins else (),
        ticks=PERCENTS,
    )  # fmt: skip


def _stated(label: str, one: Bin) -> Mark:
    tip = _("Stated: %(share)s right", share=percent(one.stated))
    return Mark(label, tip, one.stated, note=percent(one.stated), faint=one.n < FEWEST)


def _right(label: str, one: Bin) -> Mark:
    low, high = one.interval
    tip = _("People found %(share)s right, of %(n)s levels; 95 %% confidence interval %(low)s to %(high)s",
            share=percent(one.right), n=one.n, low=percent(low), high=percent(high))  # fmt: skip
    return Mark(
        label, tip, one.right, low=low, high=high, note=percent(one.right), faint=one.n < FEWEST
    )  # fmt: skip


def _labels(bins: Sequence[Bin]) -> list[str]:
    """The stated chances of each group, as exact as tells one group from the other."""
    whole = [_range(percent(one.low), percent(one.high)) for one in bins]
    if len(set(whole)) == len(whole):
        return whole
    return [_range(_exact(one.low), _exact(one.high)) for one in bins]


def _range(low: str, high: str) -> str:
    return low if low == high else _("%(start)s to %(end)s", start=low, end=high)


def _exact(share: float) -> str:
    return f"{number(round(100 * share, 1))} %"


def percent(share: float) -> str:
    """A share, rounded."""
    return f"{share * 100:.0f} %"
