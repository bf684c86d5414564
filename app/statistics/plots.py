"""The plots of the page about a class: what each shows, in the reader's language."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from app.web.charts import Column, Lane, Plot
from app.web.i18n import fixed, ngettext, number
from app.web.i18n import gettext as _
from grading.statistics import FEWEST, Spread
from grading.statistics.overview import CriterionFacts, Overview

SHOWN_TESTED = 12
"""Checks and tests that are drawn; the table has more."""
ENDS = (1, 2, 4, 8, 20, 40, 80, 120, 240, 480, 1_200, 2_400, 4_800)
"""Seconds at which a scale of times may end; a quarter of each is easy to read. Longer ones end at hours."""
SPACE = "\N{NO-BREAK SPACE}"
"""Keeps a unit beside its number."""
HALF, MINUTES, HOURS = 0.5, 120.0, 2 * 3600.0


def scores(figures: Overview) -> Plot:
    """How final points are spread."""
    of = figures.scores
    unit = "%" if of.shares else _("points")
    columns = []
    for one in of.bins:
        over = one.start >= of.highest
        span = _("above %(start)s", start=_number(one.start)) if over else _range(one.start, one.end)
        words = ngettext("%(count)s submission", "%(count)s submissions", one.count)
        label = f">{_number(one.start)}" if over else _number(one.start)
        columns.append(Column(label, one.count, f"{span} {unit}: {words}"))
    middle = of.spread
    return Plot(
        name="scores",
        title=_("Final points"),
        description=_half(middle.median, of.highest, percent=of.shares) if middle else "",
        head=(_("From"), _("To"), _("Submissions")),
        rows=tuple((one.start, one.end, one.count) for one in of.bins),
        columns=tuple(columns) if middle else (),
        last=_number(of.bins[-1].end) if of.bins else "",
        axis=_("Final points, in %") if of.shares else _("Final points"),
    )  # fmt: skip


def _half(median: float, most: float, *, percent: bool) -> str:
    """What half of the submissions have."""
    if percent:
        return _("Half of the submissions have at least %(median)s %%.", median=_number(median))
    return _(
        "Half of the submissions have at least %(median)s of %(most)s points.",
        median=_number(median),
        most=_number(most),
    )


def criteria(figures: Overview) -> Plot:
    """How difficult each criterion was."""
    lanes = []
    for one in figures.criteria:
        found = one.item.shares
        if found is None:
            continue
        tip = _("%(title)s: mean score %(mean)s, interquartile range %(low)s to %(high)s; %(zero)s "
                "with zero points, %(full)s with full points, of %(n)s",
                title=one.title, mean=_percent(found.mean), low=_percent(found.lower),
                high=_percent(found.upper), zero=one.item.at_zero, full=one.item.at_full,
                n=found.n)  # fmt: skip
        few = found.n < FEWEST
        lanes.append(
            Lane(one.title, tip, bar=found.mean, low=found.lower, high=found.upper,
                 note=_percent(found.mean), faint=few)
        )  # fmt: skip
    return Plot(
        name="criteria",
        title=_("Mean score by criterion"),
        description=_("One bar per criterion, with a line for the interquartile range."),
        head=(_("Criterion"), _("Points"), _("Submissions"), _("Mean score"), _("Standard deviation"),
              _("Lower quartile"), _("Median"), _("Upper quartile"), _("Zero points"), _("Full points"),
              _("Not rated"), _("Discrimination")),
        rows=tuple(
            (one.title, one.max_points, *_shares(one.item.shares), one.item.at_zero, one.item.at_full,
             one.ungraded, one.item.discrimination)
            for one in figures.criteria
        ),
        lanes=tuple(lanes),
        ticks=tuple((part / 4, _percent(part / 4)) for part in range(5)),
    )  # fmt: skip


def _shares(found: Spread | None) -> tuple[int | float | None, ...]:
    if found is None:
        return (0, None, None, None, None, None)
    return (found.n, found.mean, found.deviation, found.lower, found.median, found.upper)


def people(figures: Overview) -> Plot:
    """What people gave beside what grading gave, in levels."""
    known_ones = [one for one in figures.criteria if one.people.n]
    reach = max((_reach(one) for one in known_ones), default=1.0)
    step = HALF if reach <= 1 else 1.0
    ticks = [part * step for part in range(-round(reach / step), round(reach / step) + 1)]
    return Plot(
        name="people",
        title=_("Difference between manual and automatic levels"),
        description=_("A dot for each criterion, with its 95 % interval. To the right of 0, manual "
                      "levels are higher."),
        head=(_("Criterion"), _("Levels by people"), _("Mean difference"), _("From"), _("To"),
              _("Mean difference"), _("Within half a level"), _("Weighted kappa"), _("Unchanged"),
              _("Changed"), _("Blind levels"), _("Kappa, blind levels"), _("Pairs of people"),
              _("Within half a level, people"), _("Kappa between people")),
        rows=tuple(
            (one.title, one.people.n, one.people.difference, *(one.people.interval or (None, None)),
             one.people.absolute, one.people.close, one.people.kappa, one.accepted, one.changed, one.blind.n,
             one.blind.kappa, one.between.pairs.n, one.between.pairs.close, one.between.pairs.kappa)
            for one in figures.criteria
        ),
        lanes=tuple(_difference(one) for one in known_ones),
        start=-reach,
        end=reach,
        ticks=tuple((tick, f"{tick:+g}" if tick else "0") for tick in ticks),
        axis=_("Levels: manual − automatic"),
        zero=0.0,
    )  # fmt: skip


def _reach(one: CriterionFacts) -> float:
    """How far the scale must go for a criterion, in whole levels, or to its highest level at most."""
    ends = (one.people.difference or 0.0, *(one.people.interval or ()))
    return float(min(math.ceil(max(1.0, *(abs(end) for end in ends))), max(one.highest, 1)))


def _difference(one: CriterionFacts) -> Lane:
    found = one.people
    low, high = found.interval or (None, None)
    tip = _("%(title)s: %(difference)s levels on average, of %(n)s", title=one.title,
            difference=fixed(found.difference or 0.0, sign=True), n=found.n)  # fmt: skip
    if low is not None and high is not None:
        tip += _(
            "; 95 %% confidence interval %(low)s to %(high)s",
            low=fixed(low, sign=True),
            high=fixed(high, sign=True),
        )
    return Lane(
        one.title, tip, low=low, high=high, dot=found.difference, note=f"n = {found.n}", faint=found.few
    )


def tested(figures: Overview) -> Plot:
    """Checks and tests that most submissions failed."""
    titles = {one.id: one.title for one in figures.criteria}
    lanes = [
        Lane(
            one.label,
            _("%(label)s, for “%(title)s”: %(failed)s of %(n)s below full points, %(nothing)s with "
              "zero points",
              label=one.label, title=titles.get(one.criterion, one.criterion), failed=one.failed, n=one.n,
              nothing=one.nothing),
            bar=one.part,
            note=f"{one.failed}/{one.n}",
            faint=one.n < FEWEST,
        )
        for one in figures.tested[:SHOWN_TESTED]
    ]  # fmt: skip
    return Plot(
        name="tested",
        title=_("Checks and tests that fail most often"),
        description=_("One bar per check or test: the share of submissions below full points."),
        head=(_("Check or test"), _("Criterion"), _("Kind"), _("Hidden"), _("Submissions"),
              _("Below full points"), _("Zero points"), _("Mean")),
        rows=tuple(
            (one.label, titles.get(one.criterion, one.criterion), _("test") if one.test else _("check"),
             _("yes") if one.hidden else _("no"), one.n, one.failed, one.nothing, one.mean)
            for one in figures.tested
        ),
        lanes=tuple(lanes),
        ticks=tuple((part / 4, _percent(part / 4)) for part in range(5)),
    )  # fmt: skip


def times(figures: Overview) -> Plot:
    """How long gradings took, part by part."""
    parts = [
        (_("Reading and checks"), figures.times.preparing),
        (_("Queued"), figures.times.waiting),
        (_("On the machines"), figures.times.running),
        (_("From submission to grade"), figures.times.total),
    ]
    found = [(label, one) for label, one in parts if one is not None]
    most = scale_end(max((one.upper for _label, one in found), default=1.0))
    lanes = [
        Lane(
            label,
            _("%(label)s: median %(median)s, interquartile range %(low)s to %(high)s",
              label=label, median=duration(one.median), low=duration(one.lower), high=duration(one.upper)),
            low=one.lower, high=one.upper, dot=one.median, note=duration(one.median), faint=one.n < FEWEST,
        )
        for label, one in found
    ]  # fmt: skip
    return Plot(
        name="times",
        title=_("Time to grade"),
        description=_("One dot per part for the median, on a line for the interquartile range."),
        head=(_("Part"), _("Submissions"), _("Mean, s"), _("Lower quartile, s"), _("Median, s"),
              _("Upper quartile, s"), _("Longest, s")),
        rows=tuple(
            (label, one.n, one.mean, one.lower, one.median, one.upper, one.most) for label, one in found
        ),
        lanes=tuple(lanes),
        end=most,
        ticks=tuple((most * part / 4, duration(most * part / 4)) for part in range(5)),
    )  # fmt: skip


PLOTS: Mapping[str, Callable[[Overview], Plot]] = {
    "scores": scores,
    "criteria": criteria,
    "people": people,
    "tested": tested,
    "times": times,
}


def scale_end(seconds: float) -> float:
    """The end of a scale on which so many seconds fit, in four parts that are easy to read."""
    four_hours = 4 * 3600.0
    fitting = (float(end) for end in ENDS if end >= seconds)
    return next(fitting, math.ceil(seconds / four_hours) * four_hours)


def duration(seconds: float) -> str:
    """So many seconds, minutes or hours."""
    if seconds >= HOURS:
        return f"{_number(seconds / 3600, 1)}{SPACE}h"
    if seconds >= MINUTES:
        return f"{_number(seconds / 60, 1)}{SPACE}min"
    return f"{_number(seconds, 1 if seconds < 10 else 0)}{SPACE}s"


def _number(value: float, digits: int = 2) -> str:
    return number(round(value, digits))


def _range(start: float, end: float) -> str:
    return _("%(start)s to %(end)s", start=_number(start), end=_number(end))


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
