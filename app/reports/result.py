"""The graded result as the pages of a submission show it, its parts cached as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import cast

from flask import Blueprint, current_app, render_template, request
from flask.blueprints import BlueprintSetupState
from flask.sansio.app import App
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.reports import annotated_submission, executions, flags, provenance, score_breakdown
from app.reports.images import Numbers
from app.reports.score_breakdown import level_text
from app.web import auth, grade_view_audit
from app.web.i18n import current
from app.web.i18n import gettext as _
from app.web.template_helpers import title_of
from grading.domain.document import Document, Location
from grading.domain.errors import FileDamaged, FilesUnavailable
from grading.domain.permissions import Actor, Subject, may
from grading.domain.report import Report
from grading.domain.stages import Written, written
from grading.shared.cache import BoundedCache, mark
from grading.store.grades.change_history import MadeChange
from grading.store.review import regrade_requests as regrade_store
from grading.store.views import (
    grade_history,
    regrade_requests,
    submission_lists,
)
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import SubmissionView, SubmittedWork, WholeSubmission
from grading.store.views.submission_lists import SubmissionLine

MOST_KEPT = 32 * 1024 * 1024
"""Characters of all results together."""
AT_ONCE = 8
"""Pictures of a page that are fetched with it; of more, each when it comes into sight."""
Pictures = Mapping[tuple[str, int], Sequence[int]]
"""(document, cell) -> the numbers of its pictures that can be shown."""


def rendered(
    session: Session, actor: Actor, whole: WholeSubmission, attempts: Sequence[SubmissionLine] | None = None
) -> str:
    """The part of a submission's page below the status, as this reader may see it.

    `attempts` are all submissions of the reader, or of the student; they are looked up unless given.
    """
    view, submitted, terms = whole.view, whole.submitted, whole.terms
    report = auth.report_for(actor, view)
    staff = may(actor, "tests.see_all", Subject(view.course_id))
    if report is not None:
        grade_view_audit.viewed(actor, view.id)
    own = actor.user_id == view.student_id or actor.user_id in view.members
    if attempts is None:
        whose = actor.user_id if own else view.student_id
        attempts = submission_lists.list_attempts(session, whose, view.assignment_id)
    titles = {one.criterion: one.title for one in report.criteria} if report else {}
    found = image_numbers(session, view.id, submitted.documents)
    written = {one.stage: one.written_at for one in view.stages if one.written_at} if report else {}
    sent = may(actor, "prompt.see", auth.subject_of(view))
    prompts = {s.stage: s.accepted_run for s in view.stages if s.accepted_run} if report and sent else {}
    made = result_parts(
        ResultData(view, report, submitted, terms, written, prompts, found, staff=staff, own=own)
    )
    return render_template(
        "results/_result.html",
        view=view,
        report=report,
        parts=made,
        actor=actor,
        staff=staff,
        own=own,
        sum=score_breakdown.points_sum(view.grade, terms) if report and view.grade else None,
        counted=_counted(actor, view, terms, attempts),
        touched=touched(report),
        gradings=grade_history.list_gradings(session, view.id) if view.regraded else (),
        changes=_changes_in_words(session, view, report) if staff and view.changed else (),
        **_regrades(session, actor, view, titles),
    )


def _changes_in_words(
    session: Session, view: SubmissionView, report: Report | None
) -> Sequence[score_breakdown.ChangeInWords]:
    return score_breakdown.changes_in_words(_changes(session, view), score_breakdown.change_titles(report))


def _changes(session: Session, view: SubmissionView) -> Sequence[MadeChange]:
    """What people changed in all its gradings, the newest first; those of an only one are known."""
    if view.regraded or view.grade is None:
        return grade_history.list_changes(session, view.id)
    return view.grade.made[: grade_history.MOST]


def touched(report: Report | None) -> bool:
    """Whether a person changed something of it."""
    return report is not None and bool(
        report.corrected
        or report.comments
        or any(one.corrected or one.items for one in report.criteria)
        or any(one.corrected for one in report.adjustments)
    )


def _counted(
    actor: Actor, view: SubmissionView, terms: ScoreTerms, attempts: Sequence[SubmissionLine]
) -> str:
    """Which submission counts, where there are several; by the points that this reader may see."""
    if len(attempts) < 2:
        return ""
    points_by_id = {one.id: _points_seen(actor, one) for one in attempts}
    latest = max(attempts, key=lambda one: (one.created_at, one.number))
    best = max(attempts, key=lambda one: (points_by_id[one.id], one.created_at))
    counts = best if terms.counts == "best" else latest
    rule = _("the best one counts") if terms.counts == "best" else _("the latest one counts")
    values = {"count": len(attempts), "rule": rule, "number": counts.number}
    if counts.id == view.id:
        return _("Of %(count)s submissions, %(rule)s: this one.", **values)
    return _("Of %(count)s submissions, %(rule)s: submission %(number)s.", **values)


def _points_seen(actor: Actor, line: SubmissionLine) -> float:
    subject = Subject(line.course_id, line.student_id, line.released, line.members)
    return line.points if line.points is not None and may(actor, "score.see", subject) else -1.0


def _regrades(
    session: Session, actor: Actor, view: SubmissionView, titles: dict[str, str]
) -> dict[str, object]:
    """Requests for this submission, and what may still be asked."""
    requests = regrade_requests.list_of_submission(session, view.id) if view.asked else ()
    requested = {one.criterion for one in requests if one.open}
    may_ask = bool(titles) and may(actor, "regrade.ask", auth.subject_of(view))
    whole = [("", _("Entire grade"))]
    askable = [pair for pair in [*titles.items(), *whole] if pair[0] not in requested] if may_ask else []
    return {
        "requests": requests,
        "may_ask": bool(askable),
        "askable": askable,
        "titles": titles,
        "longest": regrade_store.LONGEST,
    }


def remember(app: App) -> None:
    """Keep what is known of pictures with this app."""
    app.extensions["grader-pictures"] = Numbers()
    _remember_parts(app)


def image_numbers(
    session: Session, submission_id: str, documents: tuple[Document, ...]
) -> dict[tuple[str, int], list[int]]:
    """(document, cell) -> the numbers of its pictures that can be shown."""
    numbers = cast(Numbers, current_app.extensions["grader-pictures"])
    found: dict[tuple[str, int], list[int]] = {}
    for path, name in notebooks_with_images(session, submission_id, documents):
        try:
            known = numbers.of(name, partial(grade_history.load_content, session, name))
        except (FilesUnavailable, FileDamaged):
            continue  # a result without its pictures is better than none
        for cell, number in known:
            found.setdefault((path, cell), []).append(number)
    return found


def notebooks_with_images(
    session: Session, submission_id: str, documents: tuple[Document, ...]
) -> list[tuple[str, str]]:
    """(path, SHA-256) of the notebooks that have pictures."""
    some = [one.path for one in documents if any(o.image for c in one.cells for o in c.outputs)]
    names = grade_history.list_notebooks(session, submission_id) if some else {}
    return [(path, names[path]) for path in some if path in names]


@dataclass(frozen=True)
class ResultData:
    """All that the parts are made of."""

    view: SubmissionView
    report: Report | None
    """As this reader may see it."""
    submitted: SubmittedWork
    terms: ScoreTerms
    written: Mapping[str, datetime]
    prompts: Mapping[str, str]
    """Stage -> the run whose prompt this reader may look at."""
    pictures: Pictures
    staff: bool
    own: bool

    @property
    def key(self) -> str:
        """Equal where all of it is, for readers of one language."""
        grade_mark = self.view.grade.mark if self.report is not None and self.view.grade is not None else ""
        return mark(
            current(),
            request.root_path,
            self.view.id,
            self.report is not None,
            grade_mark,
            self.submitted.mark,
            sorted(self.terms.levels.items()),
            sorted(self.written.items()),
            sorted(self.prompts.items()),
            sorted((place, list(some)) for place, some in self.pictures.items()),
            self.staff,
            self.own,
        )


@dataclass(frozen=True)
class Parts:
    """HTML, and where the page has what quotes and checks point to."""

    feedback: Markup
    criteria: Markup
    documents: Markup
    origin: Markup
    places: Mapping[Location, str]

    @property
    def size(self) -> int:
        """Characters of all of it."""
        return sum(map(len, (self.feedback, self.criteria, self.documents, self.origin)))


def _remember_parts(app: App) -> None:
    """Keep parts with this app."""
    cache: BoundedCache[Parts] = BoundedCache(MOST_KEPT)
    app.extensions["grader-result-parts"] = cache


def result_parts(source: ResultData) -> Parts:
    """Those of a result, made unless they are known."""
    cache = cast("BoundedCache[Parts]", current_app.extensions["grader-result-parts"])
    key = source.key
    found = cache.find(key)
    if found is None:
        room = annotated_submission.Room()
        found = _made(source, room)
        if room.coloured():  # else it may lack colours
            cache.put(key, found.size, found)
    return found


def _made(source: ResultData, room: annotated_submission.Room) -> Parts:
    view, report, submitted = source.view, source.report, source.submitted
    original = view.grade.original if view.grade is not None else None
    rendered = annotated_submission.render_submission(
        submitted.documents,
        report,
        original,
        execution=submitted.execution,
        staff=source.staff,
        pictures=source.pictures,
        room=room,
    )

    def part(name: str) -> Markup:
        html = render_template(
            "results/_part.html",
            part=f"results/_{name}.html",
            view=view,
            report=report,
            shown=rendered,
            notes=submitted.notes,
            staff=source.staff,
            own=source.own,
            terms=source.terms,
            many_pictures=sum(map(len, source.pictures.values())) > AT_ONCE,
            written=source.written,
            prompts=source.prompts,
            level_words=score_breakdown.level_words,
            place_words=flags.place_words,
        )
        return Markup(html)  # noqa: S704 - of templates that escape

    return Parts(
        feedback=part("feedback") if report else Markup(""),
        criteria=part("criteria") if report else Markup(""),
        documents=part("documents"),
        origin=part("origin") if report else Markup(""),
        places=rendered.places,
    )


helpers = Blueprint("reports", __name__)


@helpers.record
def _add(state: BlueprintSetupState) -> None:
    state.app.jinja_env.filters.update(
        finding=annotated_submission.finding, suggestion=annotated_submission.suggestion
    )
    state.app.jinja_env.tests.update(in_full=score_breakdown.in_full)
    state.app.jinja_env.globals.update(
        further_stages=further_stages,
        provenance_rows=provenance.report_rows,
        listed_tests=executions.listed_tests,
        outcome_text=executions.outcome_text,
        ran_document=executions.ran_document,
        run_notes=executions.run_notes,
        level_text=level_text,
        flag_notes=flags.flag_notes,
        adjusted_lines=score_breakdown.adjustment_lines,
        adjusted_sum=score_breakdown.adjustments_sum,
        adjusted_offer=score_breakdown.offered_words,
        most_lost=score_breakdown.most_lost,
        item_points=score_breakdown.item_points,
    )


def further_stages(report: Report) -> list[tuple[str, Written]]:
    """Title in the reader's language and texts of what stages wrote that the report has no field for."""
    return [(title_of(one.stage), one) for one in written(report.outputs)]
