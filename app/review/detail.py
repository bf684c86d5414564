"""A grade as its reviewer works on it: what can be changed, what was, all of it as cached HTML."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from flask import current_app, render_template, request
from flask.sansio.app import App
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.reports import annotated_submission, score_breakdown
from app.reports.flags import place_words
from app.review.submitted_work import Work
from app.web.i18n import current
from app.web.i18n import gettext as _
from app.web.template_helpers import form_token
from grading.domain.document import Document, Location
from grading.domain.evidence import CheckOutcome
from grading.domain.jobs import Finding, Quote, Suggestion
from grading.domain.report import AppliedItem, CriterionGrade, Report
from grading.domain.report_changes import item_target
from grading.domain.rubric import Rubric
from grading.domain.second_opinions import CriterionOpinion
from grading.domain.stages import editable_fields
from grading.scoring.changes import at_level
from grading.shared.cache import BoundedCache, mark
from grading.store.grades import change_history
from grading.store.grades.change_history import Made
from grading.store.review import rubric_items
from grading.store.review.rubric_items import RubricItem
from grading.store.trust import second_opinions
from grading.store.views.submission import SubmissionView, SubmittedWork, WholeSubmission

Places = Mapping[Location, str]
"""Where the page has what evidence points to."""
MOST_KEPT = 32 * 1024 * 1024
"""Characters of all parts together."""


@dataclass(frozen=True)
class Level:
    """A level of a criterion and the points it gives."""

    number: int
    words: str
    points: float


def standing(levels: Sequence[Level], now: CriterionGrade) -> int | None:
    """The level a criterion stands at without its rubric items, where it stands at one."""
    points = now.level_points
    if points is None:
        return None
    return next((one.number for one in levels if abs(one.points - points) < 0.005), None)


@dataclass(frozen=True)
class ItemLine:
    """A rubric item as a page offers it."""

    target: str
    """Of the change that applies or removes it."""
    text: str
    points: float
    applied: bool


def item_lines(items: Iterable[RubricItem], now: CriterionGrade) -> tuple[ItemLine, ...]:
    """The items of a criterion, and those that apply to a submission though they were deleted."""
    applied = {one.item: one for one in now.items}
    offered: dict[str, RubricItem | AppliedItem] = {
        one.item: one for one in items if one.criterion == now.criterion
    }
    return tuple(
        ItemLine(item_target(now.criterion, item), one.text, one.points, item in applied)
        for item, one in {**offered, **applied}.items()
    )


@dataclass(frozen=True)
class GivenOpinion:
    """A second opinion on a criterion, and the model that gave it."""

    model: str
    levels: CriterionOpinion


@dataclass(frozen=True)
class Criterion:
    """A criterion: as it counts, as it was combined, and the levels there are."""

    number: int
    now: CriterionGrade
    was: CriterionGrade
    levels: tuple[Level, ...]
    points_change: Made | None
    reason_change: Made | None
    lines: str
    """Where its evidence is in the work: for each place its name in the page and the number of lines."""
    items: tuple[ItemLine, ...]
    opinion: GivenOpinion | None = None

    @property
    def level(self) -> int | None:
        """The level it stands at, where it stands at one."""
        return standing(self.levels, self.now)


@dataclass(frozen=True)
class Adjustment:
    """A deduction or cap in words, and what a person decided about it."""

    number: int
    line: score_breakdown.AdjustmentLine
    change: Made | None
    lines: str
    """As those of a criterion."""


@dataclass(frozen=True)
class Remark:
    """A finding or suggestion of the report, also a hidden one."""

    target: str
    title: str
    kind: str
    text: str
    was: str
    place: Location | None
    words_change: Made | None
    hidden: Made | None


@dataclass(frozen=True)
class Words:
    """A part of the feedback that can be put in other words."""

    target: str
    title: str
    text: str
    was: str
    change: Made | None


@dataclass(frozen=True)
class Place:
    """A file or cell that a comment can stand at, as the form names it."""

    value: str
    title: str


@dataclass(frozen=True)
class Entry:
    """A change in the history: in words, and whether it still counts."""

    made: Made
    words: str

    @property
    def place(self) -> Location | None:
        """Where a comment stands."""
        value = self.made.value
        if not value.get("document"):
            return None
        return Location(document=value["document"], cell=value.get("cell"), line=value.get("line"))


@dataclass(frozen=True)
class Pane:
    """All that stands beside the work."""

    view: SubmissionView
    stamp: str
    report: Report | None
    criteria: tuple[Criterion, ...]
    adjustments: tuple[Adjustment, ...]
    remarks: tuple[Remark, ...]
    words: tuple[Words, ...]
    comments: tuple[Entry, ...]
    history: tuple[Entry, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class PaneData:
    """All that a pane is made of."""

    view: SubmissionView
    submitted: SubmittedWork
    made: tuple[Made, ...]
    """People's changes, the newest first."""
    stamp: str
    rubric: Rubric
    """What its round is graded by."""
    items: tuple[RubricItem, ...]
    opinions: Mapping[str, GivenOpinion]
    """Second opinions by criterion."""


def load_data(session: Session, whole: WholeSubmission, rubric: Rubric) -> PaneData:
    """What there is of a submission."""
    view = whole.view
    made = view.grade.made[: change_history.MOST] if view.grade is not None else ()
    stamp = change_history.stamp_of(session, view.round_id, made)
    items = rubric_items.list_items(session, view.assignment_id)
    return PaneData(view, whole.submitted, made, stamp, rubric, items, load_opinions(session, view))


def load_opinions(session: Session, view: SubmissionView) -> dict[str, GivenOpinion]:
    """The second opinions on a grade by criterion."""
    found = second_opinions.load_opinions(session, view.round_id) if view.grade is not None else {}
    return {criterion: GivenOpinion(*one) for criterion, one in found.items()}


def pane(source: PaneData, places: Places) -> Pane:
    """What a reviewer sees beside the work, which has these places."""
    view = source.view
    report = view.grade.report if view.grade else None
    original = view.grade.original if view.grade else None
    changes = entries(source.made, report)
    counts = [one for one in source.made if one.undone_at is None]
    return Pane(
        view=view,
        stamp=source.stamp,
        report=report,
        criteria=_criteria(source, report, original, counts, places) if report and original else (),
        adjustments=tuple(_adjustments(report, counts, places)) if report else (),
        remarks=_remarks(original, counts) if report and original else (),
        words=_words(report, original, counts) if report and original else (),
        comments=tuple(one for one in changes if one.made.kind == "add" and one.made.undone_at is None),
        history=changes,
        places=tuple(_places(source.submitted.documents)),
    )


def _places(documents: Sequence[Document]) -> Iterator[Place]:
    for number, document in enumerate(documents):
        yield Place(f"{number}:", document.path)
        if document.kind == "notebook":
            for cell in document.cells:
                title = _("%(path)s, cell %(number)s", path=document.path, number=cell.number)
                yield Place(f"{number}:{cell.number}", title)


def entries(made: Sequence[Made], report: Report | None) -> tuple[Entry, ...]:
    """Changes in words."""
    changes = score_breakdown.changes_in_words(made, score_breakdown.change_titles(report))
    return tuple(Entry(one, words.words) for one, words in zip(made, changes, strict=True))


def _criteria(
    source: PaneData, now: Report, was: Report, counts: Sequence[Made], places: Places
) -> tuple[Criterion, ...]:
    rubric = {one.id: one for one in source.rubric.criteria}
    made = []
    for number, (new, old) in enumerate(zip(now.criteria, was.criteria, strict=True), start=1):
        words = rubric[new.criterion].levels if new.criterion in rubric else ()
        levels = tuple(
            Level(level, words[level] if level < len(words) else "", at_level(new, level))
            for level in range(new.highest + 1)
        )
        points, reason = (_last(counts, kind, new.criterion) for kind in ("points", "reason"))
        lines = _lines(new.evidence, new.quotes, places)
        items = item_lines(source.items, new)
        opinion = source.opinions.get(new.criterion)
        made.append(Criterion(number, new, old, levels, points, reason, lines, items, opinion))
    return tuple(made)


def _lines(evidence: Sequence[CheckOutcome], quotes: Sequence[Quote], places: Places) -> str:
    """As `Criterion.lines`; a quote takes as many lines as it has."""
    found = {outcome.location: 1 for outcome in evidence if outcome.location in places}
    for quote in quotes:
        if quote.location in places:
            found[quote.location] = quote.text.strip().count("\n") + 1
    return " ".join(f"{places[place]}:{count}" for place, count in found.items() if place)


def _adjustments(now: Report, counts: Sequence[Made], places: Places) -> Iterator[Adjustment]:
    for number, line in enumerate(score_breakdown.adjustment_lines(now, everything=True), start=1):
        mine = (one for one in counts if one.kind in ("waive", "apply") and one.target == line.adjustment)
        yield Adjustment(number, line, next(mine, None), _lines(line.evidence, (), places))


def _last(counts: Sequence[Made], kind: str, target: str) -> Made | None:
    return next((one for one in counts if one.kind == kind and one.target == target), None)


def _remarks(was: Report, counts: Sequence[Made]) -> tuple[Remark, ...]:
    if was.analysis is None:
        return ()
    found = []
    numbered: list[tuple[str, Finding | Suggestion]] = [
        *((f"finding:{number}", one) for number, one in enumerate(was.analysis.findings)),
        *((f"suggestion:{number}", one) for number, one in enumerate(was.analysis.suggestions)),
    ]
    for target, remark in numbered:
        if isinstance(remark, Finding):
            comment, text = annotated_submission.finding(remark), remark.detail
        else:
            comment, text = annotated_submission.suggestion(remark), remark.how
        remarks, hidden = _last(counts, "remark", target), _last(counts, "hide", target)
        new = str(remarks.value.get("text", "")) if remarks else text
        found.append(Remark(target, comment.title, comment.kind, new, text, remark.location, remarks, hidden))
    return tuple(found)


def _words(now: Report, was: Report, counts: Sequence[Made]) -> tuple[Words, ...]:
    found = []
    for target, title in editable_fields().items():
        stage, _dot, name = target.partition(".")
        before, text = (one.stage_output(stage).get(name) for one in (was, now))
        if before is not None and text is not None:
            found.append(Words(target, _(title.text), text, before, _last(counts, "text", target)))
    return tuple(found)


@dataclass(frozen=True)
class _Cache:
    parts: BoundedCache[Markup]
    token: Markup
    """Stands in kept parts where the token of a form comes; nobody can know it, so nobody can write it."""


def remember(app: App) -> None:
    """Keep parts with this app."""
    app.extensions["grader-review-parts"] = _Cache(
        BoundedCache(MOST_KEPT), Markup(f"<!--{secrets.token_hex(16)}-->")  # noqa: S704 - made here
    )  # fmt: skip


def _cache() -> _Cache:
    return cast("_Cache", current_app.extensions["grader-review-parts"])


def remembered(key: str, make: Callable[[], Markup]) -> Markup:
    """The part with this key, made unless it is known; without a key it is not kept."""
    found = _cache().parts.find(key) if key else None
    if found is None:
        found = make()
        if key:
            _cache().parts.put(key, len(found), found)
    return found


def body(
    source: PaneData, work: Work, here: Mapping[str, Any], saved: tuple[str, ...], texts: Mapping[str, Any]
) -> Markup:
    """What stands beside the work; with what could not be saved (`texts`) of this answer only, else kept."""
    context = {
        "view": source.view,
        "grade": source.view.grade,
        "here": here,
        "kept": saved,
        "staff": True,
        "place_words": place_words,
        "differing": differing(source.opinions),
    }
    if texts:
        return _body(source, work, {**context, **texts})
    key, token = _key(source, here, saved), _cache().token
    found = _cache().parts.find(key)
    if found is None:
        blank = {"stale": False, "draft": {}}
        found = _body(source, work, {**context, **blank, "form_token": lambda: token})
        _cache().parts.put(key, len(found), found)
    return Markup(str(found).replace(token, form_token()))  # noqa: S704 - a token in place of ours


def documents(view: SubmissionView, submitted: SubmittedWork) -> Markup:
    """What was submitted, without anything that was said about it."""
    room, cached = annotated_submission.Room(), _cache().parts
    key = mark("documents", current(), request.root_path, view.id, submitted.mark)
    found = cached.find(key)
    if found is None:
        rendered = annotated_submission.render_submission(submitted.documents, None, staff=True, room=room)
        context = {"view": view, "report": None, "shown": rendered, "staff": True, "notes": submitted.notes}
        html = render_template("results/_part.html", part="results/_documents.html", **context)
        found = Markup(html)  # noqa: S704 - of a template that escapes
        if room.coloured():
            cached.put(key, len(found), found)
    return found


def differing(opinions: Mapping[str, GivenOpinion]) -> tuple[str, ...]:
    """Titles of the criteria whose second opinion is apart."""
    return tuple(one.levels.title for one in opinions.values() if one.levels.apart)


def _body(source: PaneData, work: Work, context: dict[str, Any]) -> Markup:
    made = pane(source, work.places)
    html = render_template(
        "review/_body.html", pane=made, stamp=made.stamp, report=made.report, shown=work, **context
    )
    return Markup(html)  # noqa: S704 - of a template that escapes


def _key(source: PaneData, here: Mapping[str, Any], saved: tuple[str, ...]) -> str:
    view, grade = source.view, source.view.grade
    numbers: tuple[object, ...] = ()
    if grade is not None:
        numbers = (grade.points, grade.points_so_far, grade.max_points, grade.final_points)
        numbers += (grade.adjustment, grade.credit, grade.mark)
    return mark(
        "body",
        current(),
        request.root_path,
        (view.id, view.round_id, view.state, view.failure),
        numbers,
        source.submitted.mark,
        source.made,
        source.stamp,
        source.rubric,
        source.items,
        source.opinions,
        sorted(here.items()),
        saved,
    )
