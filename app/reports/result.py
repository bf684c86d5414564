"""The graded result as the pages of a submission show it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from flask import current_app, render_template
from flask.sansio.app import App
from sqlalchemy.orm import Session

from app.reports import changes, points
from app.reports import parts as result_parts
from app.reports.images import Numbers
from app.web import auth, viewing
from app.web.i18n import gettext as _
from grading.domain.model import Document
from grading.domain.outcome import Report
from grading.domain.permissions import Actor, Subject, may
from grading.store.grades.change_history import MadeChange
from grading.store.review import regrade_requests as regrades
from grading.store.views import (
    grade_history,
    regrade_requests,
    submission_lists,
)
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import SubmissionView, WholeSubmission
from grading.store.views.submission_lists import SubmissionLine


def rendered(
    session: Session, actor: Actor, whole: WholeSubmission, attempts: Sequence[SubmissionLine] | None = None
) -> str:
    """The part of a submission's page below the status, as this reader may see it.

    `attempts` are all hand-ins of the reader, or of the student; they are looked up unless given.
    """
    view, given, terms = whole.view, whole.handed_in, whole.terms
    report = auth.report_for(actor, view)
    staff = may(actor, "tests.see_all", Subject(view.course_id))
    if report is not None:
        viewing.viewed(actor, view.id)
    own = actor.user_id == view.student_id or actor.user_id in view.members
    if attempts is None:
        whose = actor.user_id if own else view.student_id
        attempts = submission_lists.list_attempts(session, whose, view.assignment_id)
    titles = {one.criterion: one.title for one in report.criteria} if report else {}
    found = _pictures(session, view.id, given.documents)
    written = {one.stage: one.written_at for one in view.stages if one.written_at} if report else {}
    sent = may(actor, "prompt.see", auth.subject_of(view))
    prompts = {s.stage: s.accepted_run for s in view.stages if s.accepted_run} if report and sent else {}
    parts = result_parts.parts(
        result_parts.Given(view, report, given, terms, written, prompts, found, staff=staff, own=own)
    )
    return render_template(
        "results/_result.html",
        view=view,
        report=report,
        parts=parts,
        actor=actor,
        staff=staff,
        own=own,
        sum=points.summed(view.grade, terms) if report and view.grade else None,
        counted=_counted(actor, view, terms, attempts),
        touched=touched(report),
        gradings=grade_history.list_gradings(session, view.id) if view.regraded else (),
        changes=changes.told(_changes(session, view), changes.titles(report))
        if staff and view.changed
        else (),
        **_regrades(session, actor, view, titles),
    )


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
        or any(one.corrected for one in report.criteria)
        or any(one.corrected for one in report.adjustments)
    )


def _counted(
    actor: Actor, view: SubmissionView, terms: ScoreTerms, attempts: Sequence[SubmissionLine]
) -> str:
    """Which hand-in counts, where there are several; by the points that this reader may see."""
    if len(attempts) < 2:
        return ""
    known = {one.id: _points_seen(actor, one) for one in attempts}
    latest = max(attempts, key=lambda one: (one.created_at, one.number))
    best = max(attempts, key=lambda one: (known[one.id], one.created_at))
    counts = best if terms.counts == "best" else latest
    rule = _("the best one counts") if terms.counts == "best" else _("the latest one counts")
    said = {"count": len(attempts), "rule": rule, "number": counts.number}
    if counts.id == view.id:
        return _("Of %(count)s hand-ins %(rule)s: this one.", **said)
    return _("Of %(count)s hand-ins %(rule)s: hand-in %(number)s.", **said)


def _points_seen(actor: Actor, line: SubmissionLine) -> float:
    subject = Subject(line.course_id, line.student_id, line.released, line.members)
    return line.points if line.points is not None and may(actor, "score.see", subject) else -1.0


def _regrades(
    session: Session, actor: Actor, view: SubmissionView, titles: dict[str, str]
) -> dict[str, object]:
    """Requests for this hand-in, and what may still be asked."""
    requests = regrade_requests.list_of_submission(session, view.id) if view.asked else ()
    taken = {one.criterion for one in requests if one.open}
    may_ask = bool(titles) and may(actor, "regrade.ask", auth.subject_of(view))
    whole = [("", _("The whole grade"))]
    askable = [pair for pair in [*titles.items(), *whole] if pair[0] not in taken] if may_ask else []
    return {
        "requests": requests,
        "may_ask": bool(askable),
        "askable": askable,
        "titles": titles,
        "longest": regrades.LONGEST,
    }


def remember(app: App) -> None:
    """Keep what is known of pictures with this app."""
    app.extensions["grader-pictures"] = Numbers()
    result_parts.remember(app)


def _pictures(
    session: Session, submission_id: str, documents: tuple[Document, ...]
) -> dict[tuple[str, int], list[int]]:
    """(document, cell) -> the numbers of its pictures that can be shown."""
    known = cast(Numbers, current_app.extensions["grader-pictures"])
    found: dict[tuple[str, int], list[int]] = {}
    for path, name in _notebooks(session, submission_id, documents):
        for cell, number in known.of(name, partial(grade_history.load_content, session, name)):
            found.setdefault((path, cell), []).append(number)
    return found


def _notebooks(
    session: Session, submission_id: str, documents: tuple[Document, ...]
) -> list[tuple[str, str]]:
    """(path, SHA-256) of the notebooks that have pictures."""
    some = [one.path for one in documents if any(o.image for c in one.cells for o in c.outputs)]
    names = grade_history.list_notebooks(session, submission_id) if some else {}
    return [(path, names[path]) for path in some if path in names]
