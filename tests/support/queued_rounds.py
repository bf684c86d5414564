"""Thousands of rounds that wait, and what a step of the store costs beside them: counted, never timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.orm import Session

from grading.store import Store
from tests.support.factories import document

STUDENTS = 50
PREPARED = {"documents": [document().model_dump(mode="json")], "evidence": {}, "hidden_evidence": {}}
# copies of one round: the same student's, further and further back in line; the newest last
ROUNDS = """
insert into rounds (id, submission_id, number, reason, rubric_version_id, state, current, priority, course_id,
                    student_id, prepared, failure, created_at, queue_turn)
with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)
select :mark || i, submission_id, :first + i, reason, rubric_version_id, :state, :no, :priority, course_id,
       student_id, prepared, failure, created_at, (i - 1) / :students
from n, rounds where rounds.id = :of
"""
STAGES = """
insert into round_stages (round_id, stage, state, priority, tries, runs, losses, alone, avoid, message,
                          not_before)
select rounds.id, round_stages.stage, :stage_state, rounds.priority, 0, 0, 0, :no, round_stages.avoid, '',
       rounds.created_at
from rounds, round_stages where round_stages.round_id = :of and rounds.id like :mark || '%'
"""


def fill(
    store: Store, of: str, count: int, *, state: str = "queued", priority: str = "interactive", after: int = 0
) -> None:
    """So many more rounds like the prepared one `of`, after so many that were made before.

    With state `running`, their stages are to be tried again.
    """
    kind = f"{state[0]}{priority[0]}"
    mark = f"{kind}{after}-"
    first = {"qi": 10_000, "qb": 30_000, "ri": 50_000, "rb": 70_000}[kind] + after
    values = {
        "of": of,
        "count": count,
        "mark": mark,
        "state": state,
        "priority": priority,
        "no": False,
        "students": STUDENTS,
        "first": first,
        "stage_state": "waiting" if state == "queued" else "failed",
    }
    with store.write() as session:
        for statement in (ROUNDS, STAGES):
            named = {k: v for k, v in values.items() if f":{k}" in statement}
            session.execute(text(statement), named)
    if store.engine.dialect.name == "postgresql":
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("analyze"))


def cost(store: Store, step: Callable[[Session], Any]) -> int:
    """What a step costs: steps of SQLite's machine, or rows that PostgreSQL touches. It is rolled back."""
    with store.engine.connect() as connection:
        begun = connection.begin()
        session = Session(connection, join_transaction_mode="create_savepoint")
        step(session)  # whatever is done only once
        with counted(store, connection) as found:
            step(session)
        session.close()
        begun.rollback()
    return found[0]


@contextmanager
def counted(store: Store, connection: Any) -> Iterator[list[int]]:
    """The count is there at the end."""
    found = [0]
    if store.engine.dialect.name == "sqlite":
        raw = connection.connection.driver_connection

        def tick() -> int:
            found[0] += 1
            return 0

        raw.set_progress_handler(tick, 1)
        yield found
        raw.set_progress_handler(None, 0)
        return
    said: list[tuple[str, Any]] = []

    def note(_connection: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        said.append((statement, values))

    event.listen(store.engine, "before_cursor_execute", note)
    yield found
    event.remove(store.engine, "before_cursor_execute", note)
    for statement, values in said:
        if statement.lower().startswith(("select", "with", "update")):
            explain = f"explain (analyze, format json) {statement}"
            plan = connection.exec_driver_sql(explain, values).scalar_one()
            plan = json.loads(plan) if isinstance(plan, str) else plan
            found[0] += _rows(plan[0]["Plan"])


@contextmanager
def all_steps(store: Store) -> Iterator[list[int]]:
    """Steps of SQLite's machine on any connection of the store; the count is there at the end."""
    found, used = [0], []

    def tick() -> int:
        found[0] += 1
        return 0

    def count(connection: Any) -> None:
        raw = connection.connection.driver_connection
        raw.set_progress_handler(tick, 1)
        used.append(raw)

    event.listen(store.engine, "begin", count)
    yield found
    event.remove(store.engine, "begin", count)
    for raw in used:
        raw.set_progress_handler(None, 0)


def _rows(plan: dict[str, Any]) -> int:
    removed = sum(plan.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck", "Join Filter"))
    mine = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return int(mine) + sum(_rows(part) for part in plan.get("Plans", ()))
