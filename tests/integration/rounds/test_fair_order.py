"""The order of what waits, on both databases: fair to courses and students, at a cost that does not grow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from grading.domain.round_states import PRIORITIES, RoundState, StageState
from grading.store import Store, schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.rounds import preparing, queue, retry
from grading.store.rounds.locking import lock_round, set_round
from grading.store.tables import Round, RoundStage
from tests.support.factories import RUBRIC, add_assignment, begin_round, submit
from tests.support.queued_rounds import PREPARED, cost, fill
from tests.support.services import Prepare

COURSES, STUDENTS = 3, 3


@pytest.fixture
def store(fresh_database: Callable[[Prepare | None], str]) -> Iterator[Store]:
    made = Store(fresh_database(schema.upgrade))
    yield made
    made.close()


@dataclass
class Line:
    """A few courses and students in one transaction; by hand, what they have had and what they wait for."""

    session: Session
    round_ids: list[str]
    """One round for each course, to copy."""
    students: list[int]
    submitted: int = 0
    waits: dict[tuple[str, int, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    """(priority, course, student) -> rounds, in the order of their coming."""
    had: dict[tuple[str, int, int], int] = field(default_factory=lambda: defaultdict(int))
    began: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = field(default_factory=dict)
    """(priority, course) or (priority, course, student) that waits -> what all had had when it began."""

    def submit(self, priority: str, course: int, student: int) -> None:
        self.submitted += 1
        round_id = f"round-{self.submitted:03}"  # of the same moment, the lower id comes first
        of = self.session.get_one(Round, self.round_ids[course])
        values = {column.name: getattr(of, column.name) for column in Round.__table__.columns}
        values |= {"id": round_id, "number": 100 + self.submitted, "current": False, "priority": priority}
        values |= {"student_id": self.students[student], "state": RoundState.RECEIVED, "prepared": None}
        self.session.execute(Round.__table__.insert().values(values))  # type: ignore[attr-defined]
        assert preparing.save_prepared(self.session, round_id, {})
        self._begins_to_wait(priority, course, student)
        self.waits[priority, course, student].append(round_id)

    def _begins_to_wait(self, *who: Any) -> None:
        for one in (who, who[:2]):
            if not self.waiting(one):
                self.began[one] = self.totals()

    def waiting(self, who: tuple[Any, ...]) -> bool:
        """Whether a course or student has something waiting."""
        return any(rows for key, rows in self.waits.items() if key[: len(who)] == who)

    def totals(self) -> dict[tuple[Any, ...], int]:
        """What each course and each student of a course had so far."""
        sums: dict[tuple[Any, ...], int] = defaultdict(int)
        for key, count in self.had.items():
            sums[key] += count
            sums[key[:2]] += count
        return sums

    def release(self, priority: str, limit: int) -> None:
        found = queue.next_queued(self.session, priority, limit)
        assert len(found) == min(limit, sum(len(w) for (p, *_), w in self.waits.items() if p == priority))
        queue.mark_served(self.session, found)
        for one in found:
            set_round(self.session, one.round_id, state=RoundState.RUNNING)
            key = next(key for key, rows in self.waits.items() if one.round_id in rows)
            assert key[0] == one.priority == priority
            # a student's own go out in the order of their coming
            assert self.waits[key].pop(0) == one.round_id
            self.had[key] += 1
            for who in (key, key[:2]):
                self._nobody_is_put_back(who)

    def _nobody_is_put_back(self, served: tuple[Any, ...]) -> None:
        """Since both waited, nobody else of the course had less by more than one; the same for courses."""
        totals = self.totals()
        for other in list(self.began):
            if len(other) == len(served) and other[:-1] == served[:-1] and other != served:
                # what all had had grows: the larger one is that of who came later
                since = max(self.began[other], self.began[served], key=lambda had: sum(had.values()))
                if self.waiting(other):
                    had, gave = (totals[who] - since.get(who, 0) for who in (served, other))
                    assert had <= gave + 1


def copies(store: Store) -> tuple[list[str], list[int]]:
    """A round in each of a few courses, and students."""
    found = []
    for number in range(COURSES):
        new = NewVersion("a", "A", "r", "at_once", digest=f"d{number}", rubric=RUBRIC)
        with store.write() as session:
            assignment, _, _ = versions.import_version(session, f"course-{number}", new)
            assignment_id = assignment.id
        found.append(submit(store, assignment_id, f"s{number}").round_id)
    with store.read() as session:
        students = session.scalars(select(Round.student_id).distinct()).all()
    return found, list(students)


KIND = st.sampled_from((*PRIORITIES, "interactive", "interactive"))
STEPS = st.lists(
    st.one_of(
        st.tuples(KIND, st.integers(0, COURSES - 1), st.integers(0, STUDENTS - 1), st.integers(1, 5)),
        st.tuples(KIND, st.sampled_from((1, 1, 1, 2, 5))),
    ),
    max_size=30,
)


def test_nobody_is_put_back_for_others(store: Store) -> None:
    """Whatever comes and goes: since somebody waits, nobody else of the kind had more than one more."""
    round_ids, students = copies(store)

    @hypothesis.settings(max_examples=max(25, hypothesis.settings.default.max_examples // 4))  # type: ignore[union-attr]
    @given(STEPS)
    def play(steps: list[Any]) -> None:
        with store.write() as session:
            line = Line(session, round_ids, students)
            for step in steps:
                if len(step) == 2:
                    line.release(*step)
                else:
                    for _ in range(step[3]):
                        line.submit(*step[:3])
            for priority in PRIORITIES:
                line.release(priority, 100)
            assert not any(line.waits.values())
            session.rollback()

    play()


def test_many_re_runs_of_a_course_do_not_delay_the_upload_of_another(store: Store) -> None:
    round_ids, students = copies(store)
    with store.write() as session:
        line = Line(session, round_ids, students)
        for number in range(30):
            line.submit("batch", 0, number % STUDENTS)
        ours, second, third = (session.get_one(Round, one).course_id for one in round_ids)
        assert [one.course_id for one in queue.next_queued(session, "batch", 4)] == [ours] * 4
        line.release("batch", 4)
        line.submit("batch", 1, 0)
        line.submit("batch", 2, 0)
        nexts = queue.next_queued(session, "batch", 4)
        assert [one.course_id for one in nexts] == [second, third, ours, ours]
        # one at a time comes to the same: whose turn it is is remembered
        one_by_one = []
        for _ in range(4):
            one_by_one += queue.next_queued(session, "batch", 1)
            line.release("batch", 1)
        assert one_by_one == nexts
        # batch work of a course takes no turn from its people
        line.submit("interactive", 0, 0)
        line.submit("interactive", 1, 0)
        people = queue.next_queued(session, "interactive", 9)
        assert [one.course_id for one in people] == [ours, second]
        session.rollback()


def test_the_cost_does_not_grow_with_what_waits(store: Store) -> None:
    """From 100 to 10,000 waiting rounds, and as many stages to be tried again."""
    assignment = add_assignment(store)
    first = submit(store, assignment, "s1").round_id
    with store.write() as session:
        preparing.save_prepared(session, first, PREPARED)
    joins = submit(store, assignment, "s2").round_id

    def look(session: Session) -> None:
        for priority in PRIORITIES:
            found = queue.next_queued(session, priority, 16)
            assert len(found) == 16
            queue.mark_served(session, found)
            for stage in ("analysis", "feedback"):
                assert len(queue.list_due_retries(session, {(stage, priority): 16})) == 16

    def join(session: Session) -> None:
        session.execute(update(Round).where(Round.id == joins).values(state=RoundState.RECEIVED))
        assert preparing.save_prepared(session, joins, PREPARED)

    def count(session: Session) -> None:
        found = queue.count_backlog(session, 50)
        assert found["analysis", "batch"] + found["feedback", "batch"] == 2 * 50 + 50

    costs = []
    for more in (100, 9_900):
        for state in ("queued", "running"):
            for priority in PRIORITIES:
                fill(store, first, more, state=state, priority=priority, after=100 if costs else 0)
        costs.append({step.__name__: cost(store, step) for step in (look, join, count)})
    few, many = costs
    for step, steps in many.items():
        assert steps <= few[step] * 1.1 + 20, (few, many)


def test_what_was_replayed_waits_as_batch_work(store: Store) -> None:
    round_id = submit(store, add_assignment(store)).round_id
    with store.write() as session:
        preparing.save_prepared(session, round_id, PREPARED)
        begin_round(session, round_id)
        session.execute(update(Round).values(state=RoundState.PARTIAL))
        session.execute(update(RoundStage).values(state=StageState.DEAD))
    with store.write() as session:
        assert retry.retry_round(session, round_id, "grader")
    with store.write() as session:
        assert queue.list_due_retries(session, {("feedback", "interactive"): 9}) == []
        assert [one.round_id for one in queue.list_due_retries(session, {("feedback", "batch"): 9})] == [
            round_id
        ]
        current = lock_round(session, round_id)
        assert current is not None
        assert current.priority == "batch"
