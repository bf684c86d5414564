"""The page of an assignment: task, files, rubric and late rule, as its reader sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, bindparam, cast, exists, select
from sqlalchemy.orm import Session, aliased

from grading.assignments.code_editor import editable_script
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.errors import NotFound
from grading.domain.lateness import LateRule, own_due, steps
from grading.domain.messages import define_message
from grading.domain.rubric import Rubric
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.shared.cache import BoundedCache, mark
from grading.store import blobs, tables
from grading.store.courses import groups
from grading.store.courses.groups import Group
from grading.store.database import cache_now, clock_column
from grading.store.submissions.intake import PolicyTerms, SubmissionPolicy, count_submissions, evaluate_policy
from grading.store.views import submission_lists
from grading.store.views.submission_lists import SubmissionLine

NO_SUCH_FILE = define_message("assignment_files.no_such_file", "This file does not exist.")

OFFERED = ("starter/", "data/")
"""Folders whose files students may download; solutions, tests and instructions are never served."""

MOST_READ = 1024 * 1024
"""Characters of parsed rubrics in the cache."""


class OfferedFile(Value):
    """A file to download."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """Its path below the folder."""
        return self.path.partition("/")[2]


class ShownCriterion(Value):
    """A criterion as students see it, without its checks."""

    title: str
    points: float
    levels: tuple[str, ...]
    bonus: bool = False


class ShownAdjustment(Value):
    """A deduction or cap as students see it, without its checks."""

    title: str
    description: str
    criteria: tuple[str, ...]
    """Titles of its criteria; none: the total."""
    deduct: float | None
    cap: float | None
    each: bool
    partly: bool


class ShownRubric(Value):
    """The parts of a rubric that students see."""

    criteria: tuple[ShownCriterion, ...] = ()
    adjustments: tuple[ShownAdjustment, ...] = ()
    max_points: float = 0


class LateStep(Value):
    """The share of points that is kept until then."""

    until: datetime
    credit: float


class Overview(Value):
    """An assignment with its reader's state."""

    id: int
    course_id: int
    course: str
    course_title: str
    slug: str
    title: str
    due_at: datetime | None
    """The assignment's; the reader's own is `policy.due`."""
    visible: bool
    archived: bool
    counts: str
    group_size: int
    now: datetime
    ready: bool
    """It has a rubric, so that work can be submitted."""
    task: str = ""
    criteria: tuple[ShownCriterion, ...] = ()
    adjustments: tuple[ShownAdjustment, ...] = ()
    max_points: float = 0
    files: tuple[OfferedFile, ...] = ()
    steps: tuple[LateStep, ...] = ()
    policy: SubmissionPolicy
    group: Group | None = None
    code_editor: bool = False
    """It is one script, which students may write in the browser."""


_rubrics: BoundedCache[ShownRubric] = BoundedCache(MOST_READ)


@dataclass(frozen=True)
class AssignmentPage:
    """What the page of an assignment shows."""

    shown: Overview
    attempts: tuple[SubmissionLine, ...]
    """All submissions of the reader."""
    uploaded: bool
    """The reader has a pending upload."""


def load_page(
    session: Session,
    assignment_id: int,
    user_id: int,
    allow: Callable[[int, bool], None],
) -> AssignmentPage:
    """The page for this user, in few queries. Raises NotFound.

    `allow` gets the course and whether students see the assignment, before anything else is read; it may
    raise.
    """
    query = _head(session.get_bind().dialect.name)
    row = session.execute(query, {"assignment_id": assignment_id, "user_id": user_id}).first()
    if row is None:
        raise NotFound(NO_SUCH_ASSIGNMENT)
    allow(row.course_id, row.visible)
    moment, alone = cache_now(session, row.clock), row.group_size < 2
    attempts = submission_lists.list_attempts(session, user_id, assignment_id)
    if alone:
        used = len(attempts)
    else:
        people = groups.confirmed_members(session, assignment_id, user_id)
        used = max(
            (count for count, _ in count_submissions(session, assignment_id, people).values()), default=0
        )
    terms = PolicyTerms(row.due_at, row.late, row.max_submissions, row.archived)
    stand = evaluate_policy(terms, own_due(row.due_at, row.own), used, moment)
    group = None if alone else groups.group_of(session, assignment_id, user_id)
    return AssignmentPage(_shown(session, row, stand, group, moment), attempts, row.uploaded)


def load_overview(session: Session, assignment: tables.Assignment, user_id: int) -> Overview:
    """The overview for this user."""
    return load_page(session, assignment.id, user_id, lambda _course_id, _visible: None).shown


_OF_ASSIGNMENT = (
    tables.Assignment.id,
    tables.Assignment.course_id,
    tables.Assignment.slug,
    tables.Assignment.title,
    tables.Assignment.due_at,
    tables.Assignment.late,
    tables.Assignment.max_submissions,
    tables.Assignment.group_size,
    tables.Assignment.counts,
    tables.Assignment.visible,
    tables.Assignment.language,
    tables.Assignment.code_editor,
)


@cache
def _head(dialect: str) -> Select[Any]:
    """An assignment with its course, published version, and the reader's state."""
    assignment, course, version, own = (
        tables.Assignment,
        tables.Course,
        tables.RubricVersion,
        tables.Extension,
    )
    other = aliased(version)
    counts = select(other.id).where(other.assignment_id == assignment.id, other.published_at.is_not(None))
    newest = counts.order_by(other.published_at.desc(), other.number.desc()).limit(1).scalar_subquery()
    user_id: ColumnElement[int] = bindparam("user_id")
    uploaded = (tables.Upload.user_id == user_id, tables.Upload.assignment_id == assignment.id)
    columns = (
        *_OF_ASSIGNMENT,
        course.slug.label("course"),
        course.title.label("course_title"),
        course.archived,
        own.due_at.label("own"),
        version.id.label("version"),
        version.task,
        cast(version.rubric, Text).label("rubric"),
        version.files,
        exists().where(*uploaded).label("uploaded"),
        clock_column(dialect),
    )
    query: Select[Any] = select(*columns).select_from(assignment)
    return (
        query.join(course, course.id == assignment.course_id)
        .outerjoin(version, version.id == newest)
        .outerjoin(own, and_(own.assignment_id == assignment.id, own.student_id == user_id))
        .where(assignment.id == bindparam("assignment_id"))
    )


def _shown(
    session: Session, row: Any, stand: SubmissionPolicy, group: Group | None, moment: datetime
) -> Overview:
    found = Overview(
        id=row.id,
        course_id=row.course_id,
        course=row.course,
        course_title=row.course_title,
        slug=row.slug,
        title=row.title,
        due_at=row.due_at,
        visible=row.visible,
        archived=row.archived,
        counts=row.counts,
        group_size=row.group_size,
        now=moment,
        ready=False,
        steps=_steps(stand.due, stand.rule),
        policy=stand,
        group=group,
    )
    if row.version is None:
        return found
    rubric = _rubrics.get(mark(row.rubric), len(row.rubric), lambda: student_rubric(row.rubric))
    shown = {
        "ready": True,
        "task": row.task,
        **{name: getattr(rubric, name) for name in type(rubric).model_fields},
    }
    more = {"files": _offered(session, row.files), "code_editor": _is_one_script(session, row)}
    return found.model_copy(update={**shown, **more})


def _is_one_script(session: Session, row: Any) -> bool:
    """Whether there is something to write in the browser; asked only where that is wanted."""
    if not row.code_editor:
        return False
    version = tables.RubricVersion
    starter = session.scalar(select(version.starter).where(version.id == row.version)) or ()
    return editable_script([Document.model_validate(one) for one in starter], row.language) is not None


def student_rubric(text: str) -> ShownRubric:
    """The parts of a rubric that students see, from its JSON."""
    rubric = Rubric.model_validate_json(text)
    titles = {one.id: one.title for one in rubric.criteria}
    shared = {"title", "description", "deduct", "cap", "each", "partly"}
    return ShownRubric(
        criteria=tuple(
            ShownCriterion(title=one.title, points=one.points, levels=one.levels, bonus=one.bonus)
            for one in rubric.criteria
        ),
        adjustments=tuple(
            ShownAdjustment(**one.model_dump(include=shared), criteria=tuple(titles[i] for i in one.criteria))
            for one in rubric.adjustments
        ),
        max_points=rubric.max_points,
    )


def load_offered_file(session: Session, assignment: tables.Assignment, path: str) -> bytes:
    """The content of a file that students may download. Raises NotFound for all others."""
    name = _files(session, assignment).get(path) if path.startswith(OFFERED) else None
    if name is None:
        raise NotFound(NO_SUCH_FILE)
    return blobs.load_blob(session, name)


def list_offered_files(session: Session, assignment: tables.Assignment) -> tuple[OfferedFile, ...]:
    """The files that students may download."""
    return _offered(session, _files(session, assignment))


def _files(session: Session, assignment: tables.Assignment) -> Mapping[str, str]:
    """The files of the published version."""
    version = tables.RubricVersion
    query = (
        select(version.files)
        .where(version.assignment_id == assignment.id, version.published_at.is_not(None))
        .order_by(version.published_at.desc(), version.number.desc())
    )
    found: Mapping[str, str] | None = session.scalar(query.limit(1))
    return found or {}


def _offered(session: Session, files: Mapping[str, str]) -> tuple[OfferedFile, ...]:
    names = {path: name for path, name in files.items() if path.startswith(OFFERED)}
    sizes = blobs.load_sizes(session, names.values())
    order = sorted(names, key=lambda path: (not path.startswith(OFFERED[0]), path.casefold()))
    return tuple(OfferedFile(path=path, size=sizes.get(names[path], 0)) for path in order)


def _steps(due: datetime | None, rule: LateRule) -> tuple[LateStep, ...]:
    if due is None:
        return ()
    return tuple(LateStep(until=until, credit=credit) for until, credit in steps(due, rule))
