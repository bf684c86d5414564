"""Copies of one submission, made by SQL: a school of any size in minutes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from bench.pages.school import School, Size
from grading.domain.document import Cell, Document
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.store import tables
from grading.store.database import now
from grading.store.privacy.deletion import delete_submissions

MESSAGES_KEPT = 30 * 24 * 60
"""Submissions of the newest 30 days, one a minute: of them, messages are kept."""
GROWING = (
    tables.Submission, tables.SubmissionFile, tables.Round, tables.RoundStage, tables.Run, tables.Grade,
    tables.Answer, tables.Audit, tables.Outbox,
)  # fmt: skip
FEW_FLAGS = "case when i % 7 = 0 then {} else {} end"
"""Of a school with years of data one grade in seven has a flag."""
NOTHING: Mapping[str, str] = {}
LEAN_DOCUMENTS = json.dumps(
    [
        Document(
            path="work.py",
            kind="script",
            language="python",
            cells=(Cell(number=1, kind="code", source="print(1)\n"),),
        ).model_dump(mode="json", exclude_defaults=True)
    ]
)
LEAN_REPORT = Report(
    status=RoundState.GRADED, points=48, points_so_far=48, max_points=60,
    criteria=tuple(
        CriterionGrade(
            criterion=f"c{n}", title=f"Criterion {n}", stage="analysis", points=8, max_points=10, level=3,
            highest=4, basis="model", reason="As asked.",
        )
        for n in range(1)
    ),
).model_dump_json(exclude_defaults=True)  # fmt: skip
"""Of submissions that are not full: valid, and short, so that millions fit on a disk."""


def copy_submissions(session: Session, school: School, first: str, size: Size) -> None:
    """Submission `i` is of student i % students, in turn for all their courses, then for all assignments.

    The one that is copied is taken away: its course counts what is there.
    """
    without_triggers(session, "replica")
    left_out = _drop_indexes(session)
    _copy_submissions(session, school, first, size)
    for definition in left_out:
        session.execute(text(definition))
    without_triggers(session, "origin")
    delete_submissions(session, [first])
    if session.get_bind().dialect.name == "postgresql":
        for table in ("grades", "audit", "outbox"):
            newest = f"(select coalesce(max(id), 0) + 1 from {table})"  # noqa: S608 - named here
            session.execute(text(f"select setval(pg_get_serial_sequence('{table}', 'id'), {newest})"))


def without_triggers(session: Session, role: str) -> None:
    """Where the user may, have PostgreSQL look up no foreign keys: it queues a check for each row."""
    if session.get_bind().dialect.name == "postgresql" and session.scalar(
        text("select rolsuper from pg_roles where rolname = current_user")
    ):
        session.execute(text(f"set local session_replication_role = {role}"))


def _drop_indexes(session: Session) -> list[str]:
    """Drop the indexes of tables that grow; how to make them at the end, which is quicker."""
    if session.get_bind().dialect.name != "postgresql":
        return []
    found = session.execute(
        text(
            "select indexname as name, indexdef as definition from pg_indexes where schemaname = 'public'"
            " and tablename = any(:tables) and indexname not in (select conname from pg_constraint)"
        ),
        {"tables": [one.__tablename__ for one in GROWING]},
    ).all()
    for row in found:
        session.execute(text(f'drop index "{row.name}"'))
    return [row.definition for row in found]


def _copy_submissions(session: Session, school: School, first: str, size: Size) -> None:
    rounds = tables.Round.__table__
    base = session.scalar(select(rounds.c.id).where(rounds.c.submission_id == first))
    order = Copies(session, size.submissions)
    member, apart = f"i % {size.students}", size.courses // size.each
    student = f"{school.students[0]} + {member}"
    place = f"((i / {size.students}) % {size.each}) * {apart} + ({member}) % {apart}"
    nth = f"({place}) * {size.assignments} + (i / {size.places}) % {size.assignments}"
    assignment, version = f"{school.assignments[0]} + {nth}", f"{school.version} + {nth}"
    hours = order.before("created_at", f"({size.submissions} - i)")
    mine, full = {"submission_id": order.id("a")}, _full(size)
    order.copy(
        tables.Submission.__table__, f"base.id = '{first}'",
        {
            **({"documents": f"case when {full} then base.documents else :lean end"} if full else {}),
            "id": order.id("a"), "student_id": student, "submitted_by": student, "created_at": hours,
            "assignment_id": assignment, "number": f"i / {size.places * size.assignments} + 1",
        },
        {"lean": LEAN_DOCUMENTS} if full else {},
    )  # fmt: skip
    order.copy(
        tables.SubmissionFile.__table__, f"base.submission_id = '{first}'", {"submission_id": order.id("a")}
    )
    order.copy(
        rounds, f"base.id = '{base}'",
        {
            **({"prepared": f"case when {full} then base.prepared end"} if full else {}),
            **mine, "id": order.id("b"), "student_id": student, "rubric_version_id": version,
            "course_id": f"{school.course} + {place}", "created_at": hours,
            "finished_at": hours if size.state == "graded" else "null",
        },
    )  # fmt: skip
    key = f"base.key || ({member}) % 40"
    _copy_stages(order, base, {**mine, "assignment_id": assignment, "key": key}, size)
    if size.audit:
        _copy_audit(session, school, size)
    if size.full is not None:
        _copy_messages(session, size)


def _copy_stages(order: Copies, base: str | None, answer: dict[str, str], size: Size) -> None:
    """And answers, of which those of one class have forty keys, and grades."""
    of_it, full = {"round_id": order.id("b")}, _full(size)
    both = f" and (base.stage = 'analysis' or {full})" if full else ""
    order.copy(tables.RoundStage.__table__, f"base.round_id = '{base}'{both}", of_it)
    some = f" and {full}" if full else ""
    order.copy(tables.Answer.__table__, f"base.round_id = '{base}'{some}", {**of_it, **answer})
    if size.state == "graded":
        _copy_grades(order, base, size)


def _full(size: Size) -> str:
    """SQL for whether a submission has all rows and texts, as those of the first course; empty: all have."""
    if size.full is None:
        return ""
    first = (
        f"(i / {size.students}) % {size.each} = 0 and (i % {size.students}) % {size.courses // size.each} = 0"
    )
    return f"(i >= {size.submissions - size.full} or {first})"


def _copy_grades(order: Copies, base: str | None, size: Size) -> None:
    """What a graded round has besides: runs, and a grade that is released, of the newest one in three."""
    of_it, mine = {"round_id": order.id("b")}, {"submission_id": order.id("a")}
    hours = order.before("created_at", f"({size.submissions} - i)")
    earlier = f"i < {size.submissions - size.newest}"
    kind, full = "(case when base.stage = 'analysis' then 'c' else 'd' end)", _full(size)
    both = f" and (base.stage = 'analysis' or {full})" if full else ""
    order.copy(
        tables.Run.__table__, f"base.round_id = '{base}'{both}",
        {
            **({"result": f"case when {full} then base.result end"} if full else {}),
            **of_it, "id": order.id(kind, text_=False),
            "finished_at": order.before("finished_at", f"({size.submissions} - i)"),
        },
    )  # fmt: skip
    order.copy(
        tables.Grade.__table__, f"base.round_id = '{base}'",
        {
            **({"report": f"case when {full} then base.report else :lean end"} if full else {}),
            **({"flag_text": FEW_FLAGS.format("base.flag_text", "''")} if full else {}),
            **({"flag_messages": FEW_FLAGS.format("base.flag_messages", "'[]'")} if full else {}),
            **of_it, **mine, "id": "i + 10", "final_points": "(i % 61) * 7919 % 61",
            "points": "(i % 61) * 7919 % 61", "held": "i % 50 = 0", "created_at": hours,
            "released_at": f"case when {earlier} or i % 3 = 0 then base.released_at end",
        },
        {"lean": LEAN_REPORT} if full else {},
    )  # fmt: skip


def _copy_audit(session: Session, school: School, size: Size) -> None:
    row = tables.Audit(
        at=now(session), actor=f"user:{school.staff['teacher']}", action="grade.view", object="submission:x",
        course_id=school.course, detail={"how": "page"},
    )  # fmt: skip
    session.add(row)
    session.flush()
    order = Copies(session, size.audit)
    about = f"'submission:' || {order.id('a', number=f'i % {size.submissions}')}"
    order.copy(
        tables.Audit.__table__, f"base.id = {row.id}",
        {
            "id": f"i + {row.id + 1}", "at": order.before("at", f"({size.audit} - i)"), "object": about,
            "course_id": f"{school.course} + i % {size.courses}",
        },
    )  # fmt: skip


def _copy_messages(session: Session, size: Size) -> None:
    """Of the newest rounds their announcement and an event: of the others retention removed them."""
    count, moment = min(size.submissions, MESSAGES_KEPT), now(session)
    times = {"created_at": moment, "not_before": moment, "done_at": moment}
    row = tables.Outbox(kind="prepare", key="x", payload={}, tries=1, **times)
    session.add(row)
    session.flush()
    order = Copies(session, count)
    round_id = order.id("b", number=f"{size.submissions - count} + i")
    at = dict.fromkeys(times, order.before("created_at", f"({count} - i)"))
    of_kinds = {"prepare": round_id, "event": f"'graded:' || {round_id}"}
    for place, (kind, key) in enumerate(of_kinds.items()):
        mine = {"id": f"i + {row.id + 1 + place * count}", "key": key, "kind": f"'{kind}'", **at}
        order.copy(tables.Outbox.__table__, f"base.id = {row.id}", mine)
    session.delete(row)
    session.flush()


class Copies:
    """Rows of a table made of one or several of it; `i` counts from 0."""

    def __init__(self, session: Session, count: int) -> None:
        self._session, self._count = session, count
        self._postgresql = session.get_bind().dialect.name == "postgresql"

    def id(self, mark: str, *, text_: bool = True, number: str = "i") -> str:
        """SQL for 32 letters and digits, the first of which is the mark."""
        first = f"'{mark}'" if text_ else mark
        if self._postgresql:
            return f"{first} || lpad(({number})::text, 31, '0')"
        return f"{first} || printf('%031d', {number})"

    def before(self, column: str, seconds: str) -> str:
        """SQL for so many minutes before a moment of the row."""
        if self._postgresql:
            return f"base.{column} - {seconds} * interval '1 minute'"
        return f"strftime('%Y-%m-%d %H:%M:%f', base.{column}, '-' || {seconds} || ' minutes') || '000'"

    def copy(
        self, table: Any, which: str, values: Mapping[str, str], bound: Mapping[str, str] = NOTHING
    ) -> None:
        """All columns as they are but these, which are SQL, with these texts for its `:names`."""
        names = [column.name for column in table.columns]
        wanted = ", ".join(values.get(name, f'base."{name}"') for name in names)
        listed = ", ".join(f'"{name}"' for name in names)
        if self._postgresql:
            numbers = f"with n(i) as (select generate_series(0, {self._count - 1})) "
        else:
            numbers = (
                "with recursive n(i) as (select 0 union all "  # noqa: S608 - a number
                f"select i + 1 from n where i < {self._count - 1}) "
            )
        statement = (
            f"insert into {table.name} ({listed}) {numbers}"  # noqa: S608 - made here, of nobody's input
            f"select {wanted} from n, {table.name} base where {which}"
        )
        self._session.execute(text(statement.replace("::text", "\\:\\:text")), bound)
