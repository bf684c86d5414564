"""The plots of the page about a class: what each shows and says, in the reader's language."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from app.web.charts import Mark, Plot, Series
from app.web.i18n import fixed, ngettext, number
from app.web.i18n import gettext as _
from grading.statistics import FEWEST, Item, Spread
from grading.statistics.comparison import ComparedAssignment, Comparison
from grading.statistics.overview import CriterionFacts, Overview

SHOWN_TESTED = 12
"""Checks and tests that are drawn; the table has more."""
ENDS = (1, 2, 4, 8, 20, 40, 80, 120, 240, 480, 1_200, 2_400, 4_800)
"""Seconds at which a scale of times may end; a quarter of each is easy to read. Longer ones end at hours."""
SPACE = "\N{NO-BREAK SPACE}"
"""Keeps a unit beside its number."""
HALF, MINUTES, HOURS = 0.5, 120.0, 2 * 3600.0
PERCENTS = tuple((part / 4, f"{part * 25} %") for part in range(5))
"""A scale of shares."""


def scores(figures: Overview) -> Plot:
    """How final points are spread."""
    of = figures.scores
    unit = "%" if of.shares else _("points")
    marks = []
    for one in of.bins:
        over, start = one.start >= of.highest, _number(one.start)
        span = _("above %(start)s", start=start) if over else _range(one.start, one.end)
        words = ngettext("%(count)s submission", "%(count)s submissions", one.count)
        label = f">{start}" if over else f"{start}–{_number(one.end)}"
        short = f">{start}" if over else start
        marks.append(Mark(label, f"{span} {unit}: {words}", one.count, short=short))
    middle = of.spread
    return Plot(
        name="scores",
        title=_("Final points"),
        description=_half(middle.median, of.highest, percent=of.shares) if middle else "",
        head=(_("From"), _("To"), _("Submissions")),
        rows=tuple((one.start, one.end, one.count) for one in of.bins),
        series=_series(marks) if middle else (),
        lying=False,
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


def _series(marks: Sequence[Mark]) -> tuple[Series, ...]:
    """Marks of one colour, where there are any."""
    return (Series("", tuple(marks)),) if marks else ()


def criteria(figures: Overview) -> Plot:
    """How difficult each criterion was."""
    marks = []
    for one in figures.criteria:
        found = one.item.shares
        if found is None:
            continue
        tip = _("%(title)s: mean score %(mean)s, interquartile range %(low)s to %(high)s; %(zero)s "
                "with zero points, %(full)s with full points, of %(n)s",
                title=one.title, mean=_percent(found.mean), low=_percent(found.lower),
                high=_percent(found.upper), zero=one.item.at_zero, full=one.item.at_full,
                n=found.n)  # fmt: skip
        marks.append(
            Mark(one.title, tip, found.mean, low=found.lower, high=found.upper,
                 note=_percent(found.mean), faint=found.n < FEWEST)
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
        series=_series(marks),
        ticks=PERCENTS,
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
        description=_("A bar for each criterion, with a line for its 95 percent interval. To the right of 0, "
                      "manual levels are higher."),
        head=(_("Criterion"), _("Levels by people"), _("Mean difference"), _("From"), _("To"),
              _("Mean difference"), _("Within half a level"), _("Weighted kappa"), _("Unchanged"),
              _("Changed"), _("Blind levels"), _("Kappa, blind levels"), _("From"), _("To"),
              _("Pairs of people"), _("Within half a level, people"), _("Kappa between people"), _("From"),
              _("To"), _("Alpha between people"), _("From"), _("To")),
        rows=tuple(
            (one.title, one.people.n, one.people.difference, *(one.people.interval or (None, None)),
             one.people.absolute, one.people.close, one.people.kappa, one.accepted, one.changed, one.blind.n,
             one.blind.kappa, *(one.blind.kappa_interval or (None, None)), one.between.pairs.n,
             one.between.pairs.close, one.between.pairs.kappa,
             *(one.between.pairs.kappa_interval or (None, None)), one.between.alpha,
             *(one.between.alpha_interval or (None, None)))
            for one in figures.criteria
        ),
        series=_series([_difference(one) for one in known_ones]),
        start=-reach,
        end=reach,
        ticks=tuple((tick, f"+{number(tick)}" if tick > 0 else number(tick)) for tick in ticks),
        axis=_("Levels: manual − automatic"),
    )  # fmt: skip


def _reach(one: CriterionFacts) -> float:
    """How far the scale must go for a criterion, in whole levels, or to its highest level at most."""
    ends = (one.people.difference or 0.0, *(one.people.interval or ()))
    return float(min(math.ceil(max(1.0, *(abs(end) for end in ends))), max(one.highest, 1)))


def _difference(one: CriterionFacts) -> Mark:
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
    return Mark(one.title, tip, found.difference, low=low, high=high, note=f"n = {found.n}", faint=found.few)


def tested(figures: Overview) -> Plot:
    """Checks and tests that most submissions failed."""
    titles = {one.id: one.title for one in figures.criteria}
    marks = [
        Mark(
            one.label,
            _("%(label)s, for “%(title)s”: %(failed)s of %(n)s below full points, %(nothing)s with "
              "zero points",
              label=one.label, title=titles.get(one.criterion, one.criterion), failed=one.failed, n=one.n,
              nothing=one.nothing),
            one.part,
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
        series=_series(marks),
        ticks=PERCENTS,
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
    marks = [
        Mark(
            label,
            _("%(label)s: median %(median)s, interquartile range %(low)s to %(high)s",
              label=label, median=duration(one.median), low=duration(one.lower), high=duration(one.upper)),
            one.median, low=one.lower, high=one.upper, note=duration(one.median), faint=one.n < FEWEST,
        )
        for label, one in found
    ]  # fmt: skip
    return Plot(
        name="times",
        title=_("Time to grade"),
        description=_("One bar per part for the median, with a line for the interquartile range."),
        head=(_("Part"), _("Submissions"), _("Mean, s"), _("Lower quartile, s"), _("Median, s"),
              _("Upper quartile, s"), _("Longest, s")),
        rows=tuple(
            (label, one.n, one.mean, one.lower, one.median, one.upper, one.most) for label, one in found
        ),
        series=_series(marks),
        end=most,
        ticks=tuple((most * part / 4, duration(most * part / 4)) for part in range(5)),
    )  # fmt: skip


def assignments(rows: Sequence[Comparison], courses: Sequence[str]) -> Plot:
    """The assignments of a course, beside those of other courses."""
    return Plot(
        name="assignments",
        title=_("Mean points by assignment"),
        description=_("One bar per assignment and course, with a line for the interquartile range."),
        head=(_("Assignment"), _("Course"), _("Submissions"), _("Mean"), _("Standard deviation"),
              _("Lower quartile"), _("Median"), _("Upper quartile")),
        rows=tuple(
            (row.title, course, *_shares(found.spread))
            for row in rows
            for course, found in zip(courses, row.courses, strict=True)
            if found is not None
        ),
        series=tuple(
            Series(course, tuple(_of_course(row.title, course, row.courses[at]) for row in rows))
            for at, course in enumerate(courses)
        ),
        ticks=PERCENTS,
    )  # fmt: skip


def _of_course(title: str, course: str, found: ComparedAssignment | None) -> Mark:
    of = found.spread if found is not None else None
    if of is None:
        return Mark(title, "", None)
    tip = _("%(title)s, %(course)s: mean %(mean)s, interquartile range %(low)s to %(high)s, of %(n)s",
            title=title, course=course, mean=_percent(of.mean), low=_percent(of.lower),
            high=_percent(of.upper), n=of.n)  # fmt: skip
    note, few = _percent(of.mean), of.n < FEWEST
    return Mark(title, tip, of.mean, low=of.lower, high=of.upper, note=note, faint=few)


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


def difficulty_sentence(item: Item) -> str:
    """What the difficulty of a criterion says."""
    if item.shares is None:
        return _("Nobody was rated yet.")
    mean = _percent(item.shares.mean)
    if item.difficulty == "hard":
        return _("Hard: students got %(mean)s of the points on average. Check whether the task was taught "
                 "or the criterion is too strict.", mean=mean)  # fmt: skip
    if item.difficulty == "easy":
        return _("Easy: students got %(mean)s of the points on average.", mean=mean)
    return _("Medium: students got %(mean)s of the points on average.", mean=mean)


def discrimination_sentence(item: Item) -> str:
    """What the discrimination of a criterion says."""
    texts = {
        "negative": _("Negative: students who were good at the rest of the work got fewer points here. "
                      "The criterion is probably unclear or wrong."),
        "weak": _("Weak: points here say little about the rest of the work."),
        "fair": _("Fair: students who were good at the rest of the work mostly got more points here."),
        "good": _("Good: the criterion tells strong work from weak work."),
    }  # fmt: skip
    unknown = _("Cannot be calculated: too few submissions, or all have the same points.")
    return unknown if item.tells_apart is None else texts[item.tells_apart]


def _number(value: float, digits: int = 2) -> str:
    return number(round(value, digits))


def _range(start: float, end: float) -> str:
    return _("%(start)s to %(end)s", start=_number(start), end=_number(end))


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
