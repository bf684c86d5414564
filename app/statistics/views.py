"""The pages about a class and a course: points, criteria, comparisons, findings, time; plots as files."""

from __future__ import annotations

from dataclasses import dataclass, field

from flask import Blueprint, Response, current_app, render_template, request
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.statistics import plots
from app.statistics.plots import PLOTS, duration
from app.web import auth, charts, page_cache
from app.web.i18n import current
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT, NO_SUCH_COURSE
from grading.statistics import FEWEST
from grading.statistics.comparison import AssignmentPoints, compare
from grading.statistics.overview import Overview, overview
from grading.store import tables
from grading.store.courses import courses
from grading.store.reporting import class_statistics, course_points
from grading.store.reporting.course_points import SharesCache
from grading.store.views import review_worklist, submission_lists

pages = Blueprint("statistics", __name__)
NAMES = "any(scores,criteria,people,tested,times)"
MOST_OTHERS, MOST_COMPARED = 20, 3
"""Courses that are offered for a comparison, and that are compared at the same time."""
LINKS = 12
"""Links to submissions that stand with a finding before the rest is folded."""


@dataclass(frozen=True)
class CachedStatistics:
    """Statistics, and the page made of them by language."""

    figures: Overview
    pages: dict[str, Markup] = field(default_factory=dict)


def _cached(session: Session, line: tables.Assignment) -> CachedStatistics:
    return page_cache.of_assignment("class", session, line.course_id, line.id, _made)


def _made(session: Session, assignment_id: int) -> CachedStatistics:
    return CachedStatistics(overview(class_statistics.load_submissions(session, assignment_id)))


@pages.get("/assignments/<int(max=2147483647):assignment_id>/statistics")
def assignment(assignment_id: int) -> str:
    """How the class did: scores, criteria, people beside the grader, findings, time."""
    with services().store.read_autocommit() as session:
        line = _assignment(session, auth.actor(), assignment_id)
        cached = _cached(session, line)
    body = cached.pages.get(current())
    if body is None:
        body = cached.pages[current()] = _body(line, cached.figures)
    view = submission_lists.assignment_line(line, line.course)
    return render_template("statistics/assignment.html", assignment=view, body=body)


@pages.get("/courses/<int(max=2147483647):course_id>/statistics")
def course(course_id: int) -> str:
    """The assignments of a course beside each other, and beside those of the courses in `with`."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = courses.load_course(session, course_id)
        if not may(actor, "course.see", Subject(course_id)):
            raise NotFound(NO_SUCH_COURSE)
        auth.require(actor, "class.see", Subject(course_id))
        others = course_points.list_other_courses(session, course_id, actor.staff_courses, MOST_OTHERS)
        chosen = [one for one in others if f"{one.id}" in request.args.getlist("with")][:MOST_COMPARED]
        points = [_points(session, one) for one in (course_id, *(one.id for one in chosen))]
    rows = compare(points[0], points[1:])
    titles = [found.title, *(one.title for one in chosen)]
    return render_template(
        "statistics/course.html", course=found, others=others, chosen=[one.id for one in chosen],
        plot_of=plots.assignments(rows, titles), most=MOST_COMPARED, **charts.DRAWING,
    )  # fmt: skip


def _points(session: Session, course_id: int) -> tuple[AssignmentPoints, ...]:
    cached = current_app.extensions.setdefault("grader-shares", SharesCache())
    return course_points.load_points(session, course_id, cached)


def _body(line: tables.Assignment, figures: Overview) -> Markup:
    made = render_template(
        "statistics/_statistics.html",
        assignment=line,
        figures=figures,
        plots={name: make(figures) for name, make in PLOTS.items()},
        duration=duration,
        difficulty=plots.difficulty_sentence,
        discrimination=plots.discrimination_sentence,
        **charts.DRAWING,
        fewest=FEWEST,
        links=LINKS,
    )
    return Markup(made)  # noqa: S704 - a rendered template


@pages.get(f"/assignments/<int(max=2147483647):assignment_id>/statistics/<{NAMES}:plot>.svg")
def picture(assignment_id: int, plot: str) -> Response:
    """A plot as a file of its own."""
    with services().store.read_autocommit() as session:
        line = _assignment(session, auth.actor(), assignment_id)
        figures = _cached(session, line).figures
    return _file(charts.alone(PLOTS[plot](figures)), f"{line.slug}-{plot}.svg", "image/svg+xml")


@pages.get(f"/assignments/<int(max=2147483647):assignment_id>/statistics/<{NAMES}:plot>.csv")
def numbers(assignment_id: int, plot: str) -> Response:
    """The numbers of a plot."""
    with services().store.read_autocommit() as session:
        line = _assignment(session, auth.actor(), assignment_id)
        figures = _cached(session, line).figures
    return _file(charts.as_csv(PLOTS[plot](figures)), f"{line.slug}-{plot}.csv", "text/csv; charset=utf-8")


def _file(content: bytes, name: str, kind: str) -> Response:
    answer = Response(content, content_type=kind)
    answer.headers.set("Content-Disposition", "attachment", filename=name)
    return answer


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    """The assignment, for its staff. Raises NotFound for who is not in the course, and Forbidden."""
    found = review_worklist.find_assignment(session, assignment_id)
    if not may(actor, "assignment.see", Subject(found.course_id)):
        raise NotFound(NO_SUCH_ASSIGNMENT)
    auth.require(actor, "class.see", Subject(found.course_id))
    return found
