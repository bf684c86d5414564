"""The statistics of an assignment, put together from the submissions that count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grading.domain.round_states import IN_PROGRESS
from grading.statistics.agreement import Agreement, Between, agreement, between_people
from grading.statistics.distribution import Bin, Spread, bins, spread
from grading.statistics.finding_groups import Group, grouped
from grading.statistics.items import Item, item
from grading.statistics.submission_data import BLIND, Judged, PersonLevel, StageRun, Tested, Work, Works

MOST_GROUPS = 40
MOST_TESTED = 40
MET = 1 - 1e-9


@dataclass(frozen=True)
class Scores:
    """Final points of all submissions with a total."""

    spread: Spread | None
    bins: tuple[Bin, ...]
    highest: float
    shares: bool
    """Per cent instead of points, as not all submissions have the same highest points."""


@dataclass(frozen=True)
class CriterionFacts:
    """A criterion over all submissions, and how people judged it beside the grader."""

    id: str
    title: str
    stage: str
    max_points: float
    highest: int
    item: Item
    ungraded: int
    by_model: int
    """Submissions where a language model had a part in its level."""
    people: Agreement
    """(grader, person) of all levels that people gave or left as they were."""
    accepted: int
    """Of these: left as they were in a review."""
    changed: int
    blind: Agreement
    """The same of those only who had not seen the grader's level."""
    between: Between


@dataclass(frozen=True)
class TestedFacts:
    """A check or test over all submissions it was applied to."""

    criterion: str
    label: str
    test: bool
    hidden: bool
    n: int
    failed: int
    """Earned less than all."""
    nothing: int
    """Earned nothing."""
    mean: float

    @property
    def part(self) -> float:
        """The part of submissions that did not earn all."""
        return self.failed / self.n


@dataclass(frozen=True)
class Times:
    """How long gradings took, in seconds."""

    preparing: Spread | None
    waiting: Spread | None
    running: Spread | None
    total: Spread | None


@dataclass(frozen=True)
class MachineTimes:
    """Runs of one stage on one machine with one model."""

    stage: str
    machine: str
    model: str
    seconds: Spread | None
    tokens: Spread | None
    runs: int


@dataclass(frozen=True)
class Overview:
    """All that the page shows."""

    students: int
    submitted: int
    graded: int
    """With a total."""
    partial: int
    under_way: int
    failed: int
    held: int
    to_review: int
    reviewed: int
    scores: Scores
    criteria: tuple[CriterionFacts, ...]
    tested: tuple[TestedFacts, ...]
    more_tested: int
    findings: tuple[Group, ...]
    more_findings: int
    times: Times
    machines: tuple[MachineTimes, ...]
    titles: dict[str, tuple[str, int]]
    """Work -> student's name and number of the submission, for links."""


def overview(known: Works) -> Overview:
    """The statistics of these submissions."""
    works = known.works
    totals = [work for work in works if work.final_points is not None]
    tested = _tested(works)
    groups = grouped(remark for work in works for remark in work.remarks)
    return Overview(
        students=known.students,
        submitted=len(works),
        graded=len(totals),
        partial=sum(work.state == "partial" for work in works),
        under_way=sum(work.state in IN_PROGRESS for work in works),
        failed=sum(work.state == "failed" for work in works),
        held=sum(work.held for work in works),
        to_review=sum(work.to_review for work in works),
        reviewed=sum(work.reviewed for work in works),
        scores=_scores(totals),
        criteria=_criteria(works, known.levels),
        tested=tuple(tested[:MOST_TESTED]),
        more_tested=max(0, len(tested) - MOST_TESTED),
        findings=groups[:MOST_GROUPS],
        more_findings=max(0, len(groups) - MOST_GROUPS),
        times=_times(works),
        machines=_machines(known.runs),
        titles={work.id: (work.student, work.number) for work in works},
    )


def _scores(totals: Sequence[Work]) -> Scores:
    highest = {work.max_points or 0.0 for work in totals}
    shares = len(highest) > 1
    top = 100.0 if shares else max(highest, default=0.0)
    points = [
        (work.final_points or 0.0) / (work.max_points or 1.0) * 100 if shares else work.final_points or 0.0
        for work in totals
    ]
    return Scores(spread(points), bins(points, top), top, shares)


def _criteria(works: Sequence[Work], levels: Iterable[PersonLevel]) -> tuple[CriterionFacts, ...]:
    """In the order of the submission graded last: the newest rubric's, then those only older ones have."""
    judged: dict[str, list[tuple[Judged, Work]]] = defaultdict(list)
    for work in works:
        for one in work.criteria:
            judged[one.criterion].append((one, work))
    by_people: dict[str, list[PersonLevel]] = defaultdict(list)
    for level in levels:
        by_people[level.criterion].append(level)
    return tuple(_criterion(found, by_people[name]) for name, found in judged.items())


def _criterion(found: Sequence[tuple[Judged, Work]], levels: Sequence[PersonLevel]) -> CriterionFacts:
    newest = found[0][0]
    known = [(one, work, one.share) for one, work in found]
    return CriterionFacts(
        id=newest.criterion,
        title=newest.title,
        stage=newest.stage,
        max_points=newest.max_points,
        highest=newest.highest,
        item=item(
            [share for _, _, share in known if share is not None],
            [_rest(one, work) for one, work, share in known if share is not None],
        ),
        ungraded=sum(share is None for _, _, share in known),
        by_model=sum(one.by_model for one, _ in found),
        people=agreement(_pairs(levels)),
        accepted=sum(one.how == "accepted" for one in levels),
        changed=sum(one.how == "changed" for one in levels),
        blind=agreement(_pairs(one for one in levels if one.how in BLIND)),
        between=between_people(
            (one.work, one.person, one.level) for one in levels if one.how in (*BLIND, "seen")
        ),
    )


def _rest(one: Judged, work: Work) -> float | None:
    """The share of all other criteria together; nothing where one of them has no points."""
    others = [other for other in work.criteria if other.criterion != one.criterion]
    most = sum(other.max_points for other in others)
    if most <= 0 or any(other.points is None for other in others):
        return None
    return sum(other.points or 0.0 for other in others) / most


def _pairs(levels: Iterable[PersonLevel]) -> list[tuple[float, float]]:
    return [(one.grader, one.level) for one in levels if one.grader is not None]


def _tested(works: Sequence[Work]) -> list[TestedFacts]:
    """Checks and tests, those that most submissions failed first; those that nobody failed are left out."""
    found: dict[tuple[str, str, bool], list[Tested]] = defaultdict(list)
    for work in works:
        for one in work.tested:
            found[one.criterion, one.label, one.test].append(one)
    rows = [
        TestedFacts(
            criterion=criterion,
            label=label,
            test=test,
            hidden=any(one.hidden for one in outcomes),
            n=len(outcomes),
            failed=sum(one.earned < MET for one in outcomes),
            nothing=sum(one.earned <= 0 for one in outcomes),
            mean=sum(one.earned for one in outcomes) / len(outcomes),
        )
        for (criterion, label, test), outcomes in found.items()
    ]
    failed = [row for row in rows if row.failed]
    return sorted(failed, key=lambda row: (-row.part, row.mean, row.criterion, row.label, row.test))


def _times(works: Sequence[Work]) -> Times:
    def of(name: str) -> Spread | None:
        return spread([value for work in works if (value := getattr(work.took, name)) is not None])

    return Times(of("preparing"), of("waiting"), of("running"), of("total"))


def _machines(runs: Sequence[StageRun]) -> tuple[MachineTimes, ...]:
    by: dict[tuple[str, str, str], list[StageRun]] = defaultdict(list)
    for run in runs:
        by[run.stage, run.machine, run.model].append(run)
    return tuple(
        MachineTimes(
            *key,
            seconds=spread([run.seconds for run in found if run.seconds is not None]),
            tokens=spread([float(run.output_tokens) for run in found if run.output_tokens is not None]),
            runs=len(found),
        )
        for key, found in sorted(by.items())
    )
