"""The life of a round on both databases: nothing twice, nothing lost, in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from grading import scoring
from grading.domain.evidence import Evidence
from grading.domain.messages import verbatim
from grading.domain.round_states import PRIORITIES, RoundState, StageState
from grading.store import Store, change_tracking, schema
from grading.store.completion import finish_round
from grading.store.idempotency_keys import KeyUsed
from grading.store.rounds import lifecycle, locking, preparing, queue
from grading.store.rounds.lifecycle import RunOrder
from grading.store.submissions.intake import Idempotency
from grading.store.tables import Assignment, Blob, Grade, Outbox, Round, RoundStage, Run, Submission
from tests.support.factories import (
    RUBRIC,
    add_assignment,
    begin_round,
    begin_stage,
    document,
    result,
    submit,
)

PREPARED = {
    "documents": [document().model_dump(mode="json")],
    "evidence": Evidence(added_lines=1).model_dump(mode="json"),
}


@pytest.fixture
def store(fresh_database: Callable[..., str]) -> Iterator[Store]:
    made = Store(fresh_database(schema.upgrade))
    yield made
    made.close()


@pytest.fixture
def assignment(store: Store) -> int:
    return add_assignment(store)


def begin(store: Store, round_id: str) -> dict[str, RunOrder]:
    """Prepare and dispatch a round; its orders by stage."""
    with store.write() as session:
        assert preparing.save_prepared(session, round_id, PREPARED)
    with store.write() as session:
        return {order.stage: order for order in begin_round(session, round_id)}


def record(store: Store, order: RunOrder, **other: object) -> lifecycle.Recorded:
    with store.write() as session:
        return lifecycle.record_results(
            session, [result(order.run_id, order.round_id, order.stage, **other)]
        )[0]  # type: ignore[arg-type]


def stage(store: Store, round_id: str, name: str) -> RoundStage:
    with store.read() as session:
        return session.get_one(RoundStage, (round_id, name))


def combine(store: Store, round_id: str) -> bool:
    with store.write() as session:
        current = finish_round.lock_complete(session, round_id)
        if current is None:
            return False
        results = {r.stage: r for r in finish_round.accepted_results(session, round_id)}
        dead = {s.stage: s.message for s in current.stages.values() if s.state == StageState.DEAD}
        made = scoring.combine(RUBRIC, Evidence(added_lines=1), results, dead)
        finish_round.finish_round(
            session, current, made, finish_round.load_round_end(session, current.id), release=False
        )
        return True


def test_a_submission_is_stored_whole_or_not_at_all(store: Store, assignment: int) -> None:
    first = submit(store, assignment)
    again = submit(store, assignment)
    with store.read() as session:
        numbers = session.scalars(select(Submission.number).order_by(Submission.number)).all()
        assert list(numbers) == [1, 2]
        assert session.scalar(select(func.count()).select_from(Blob)) == 1  # equal files are stored once
        told = {f"received:{one.submission_id}" for one in (first, again)}
        assert set(session.scalars(select(Outbox.key))) == {first.round_id, again.round_id} | told
        current = session.get_one(Round, first.round_id)
        assert current.state == RoundState.RECEIVED
        assert [s.stage for s in current.stages] == ["analysis", "feedback"]


def test_the_same_key_submits_once_and_another_body_is_refused(store: Store, assignment: int) -> None:
    key = Idempotency("user:1", "k", "hash")
    first = submit(store, assignment, idempotency=key)
    second = submit(store, assignment, idempotency=key)
    assert (second.submission_id, second.repeated) == (first.submission_id, True)
    with pytest.raises(KeyUsed):
        submit(store, assignment, idempotency=Idempotency("user:1", "k", "other"))


def test_the_last_of_both_stages_makes_a_round_complete(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    orders = begin(store, accepted.round_id)
    assert record(store, orders["feedback"]) == lifecycle.Recorded("accepted")
    assert not combine(store, accepted.round_id)
    last = record(store, orders["analysis"])
    assert last.outcome == "accepted"
    with store.write() as session:
        assert last.complete == locking.lock_round(session, accepted.round_id)
    assert combine(store, accepted.round_id)
    assert not combine(store, accepted.round_id)
    with store.read() as session:
        assert session.scalars(select(Grade.points)).all() == [50.0]
        assert session.get_one(Round, accepted.round_id).state == RoundState.GRADED


def test_results_of_one_round_in_one_transaction_make_it_complete_once(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    orders = begin(store, accepted.round_id)
    results = [result(one.run_id, accepted.round_id, one.stage) for one in orders.values()]
    unknown = result("0" * 32, accepted.round_id, "analysis")
    with store.write() as session:
        made = lifecycle.record_results(session, [*results, results[0], unknown])
    assert [one.outcome for one in made] == ["accepted", "accepted", "duplicate", "unknown"]
    assert [one.complete is not None for one in made] == [False, True, False, False]
    assert combine(store, accepted.round_id)


def test_a_failure_and_its_repair_in_one_transaction_count_in_their_order(
    store: Store, assignment: int
) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    failed = result(order.run_id, accepted.round_id, "analysis", ok=False, retry="elsewhere", message="m")
    with store.write() as session:
        made = lifecycle.record_results(
            session, [failed, result(order.run_id, accepted.round_id, "analysis")]
        )
    assert [one.outcome for one in made] == ["failed", "duplicate"]
    assert stage(store, accepted.round_id, "analysis").state == StageState.FAILED


def test_a_grade_that_comes_in_is_seen_by_pages_about_the_class(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    orders = begin(store, accepted.round_id)
    for order in orders.values():
        record(store, order)
    with store.read() as session:
        course = session.get_one(Assignment, assignment).course_id
        before = change_tracking.stamp(session, course, assignment)
    assert combine(store, accepted.round_id)
    with store.read() as session:
        assert change_tracking.stamp(session, course, assignment) != before


def test_preparing_and_beginning_twice_changes_nothing(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    begin(store, accepted.round_id)
    with store.write() as session:
        assert not preparing.save_prepared(session, accepted.round_id, PREPARED)
        assert begin_round(session, accepted.round_id) == []
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 2


def test_the_first_valid_result_wins(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    with store.write() as session:
        lifecycle.mark_lost(session, order.run_id, verbatim("machine died"), loss="alone")
    with store.write() as session:
        second = begin_stage(session, accepted.round_id, "analysis")
    assert second is not None
    assert second.attempt == 2
    assert record(store, second).outcome == "accepted"
    assert record(store, second).outcome == "duplicate"
    assert record(store, order).outcome == "duplicate"  # the machine was only slow
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(Run).where(Run.accepted)) == 1


def test_a_late_result_of_a_lost_run_still_counts_when_it_is_first(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    with store.write() as session:
        lifecycle.mark_lost(session, order.run_id, verbatim("machine died"), loss="alone")
    assert record(store, order).outcome == "accepted"
    with store.write() as session:
        assert begin_stage(session, accepted.round_id, "analysis") is None


def test_a_stage_that_a_late_result_ended_stays_done_when_the_run_in_its_place_fails(
    store: Store, assignment: int
) -> None:
    accepted = submit(store, assignment)
    first = begin(store, accepted.round_id)["analysis"]
    with store.write() as session:
        lifecycle.mark_lost(session, first.run_id, verbatim("machine died"), loss="alone")
    with store.write() as session:
        second = begin_stage(session, accepted.round_id, "analysis")
    assert second is not None
    assert record(store, first).outcome == "accepted"
    assert record(store, second, ok=False).outcome == "failed"
    assert stage(store, accepted.round_id, "analysis").state == StageState.DONE


def test_two_accepted_runs_of_a_stage_cannot_exist(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    record(store, order)
    with pytest.raises(IntegrityError), store.write() as session:
        first = session.get_one(Run, order.run_id)
        session.add(
            Run(
                round_id=first.round_id,
                stage=first.stage,
                attempt=9,
                state="done",
                accepted=True,
                dispatched_at=first.dispatched_at,
            )
        )


def test_two_current_rounds_of_a_submission_cannot_exist(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    with pytest.raises(IntegrityError), store.write() as session:
        first = session.get_one(Round, accepted.round_id)
        session.add(
            Round(
                submission_id=first.submission_id,
                number=2,
                reason="regrade",
                rubric_version_id=first.rubric_version_id,
                state="received",
                course_id=first.course_id,
                student_id=first.student_id,
                created_at=first.created_at,
            )
        )


def test_a_result_nobody_asked_for_is_ignored(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    with store.write() as session:
        assert (
            lifecycle.record_results(session, [result("f" * 32, accepted.round_id, "analysis")])[0].outcome
            == "unknown"
        )
        assert (
            lifecycle.record_results(session, [result(order.run_id, "f" * 32, "analysis")])[0].outcome
            == "unknown"
        )
        assert (
            lifecycle.record_results(session, [result(order.run_id, order.round_id, "feedback")])[0].outcome
            == "unknown"
        )
    assert stage(store, accepted.round_id, "analysis").state == StageState.DISPATCHED


def test_three_failures_make_a_stage_dead_and_the_round_partial(
    store: Store, assignment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "BACKOFF_S", dict.fromkeys(lifecycle.BACKOFF_S, (60.0, 60.0)))
    accepted = submit(store, assignment)
    orders = begin(store, accepted.round_id)
    record(store, orders["feedback"])
    record(store, orders["analysis"], ok=False, message="no answer")
    assert not combine(store, accepted.round_id)
    for _ in range(2):
        assert stage(store, accepted.round_id, "analysis").state == StageState.FAILED
        with store.read() as session:
            assert queue.list_due_retries(session, {("analysis", "interactive"): 5}) == []  # it waits first
        with store.write() as session:
            again = begin_stage(session, accepted.round_id, "analysis")
        assert again is not None
        last = record(store, again, ok=False, message="no answer")
    assert last.complete
    assert combine(store, accepted.round_id)
    with store.read() as session:
        current = session.get_one(Round, accepted.round_id)
        assert (current.state, current.failure) == (RoundState.PARTIAL, verbatim("no answer"))
        assert session.scalars(select(Grade.points)).all() == [None]


def test_an_error_that_no_try_can_mend_is_final_at_once(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    record(store, order, ok=False, retry="never")
    assert stage(store, accepted.round_id, "analysis").state == StageState.DEAD


def test_a_run_no_machine_began_costs_no_try(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    order = begin(store, accepted.round_id)["analysis"]
    for _ in range(5):
        with store.write() as session:
            assert (
                lifecycle.mark_lost(session, order.run_id, verbatim("message vanished"), loss="unbegun")
                is None
            )
            again = begin_stage(session, accepted.round_id, "analysis")
        assert again is not None
        order = again
    assert stage(store, accepted.round_id, "analysis").tries == 1


def test_a_complete_round_whose_body_was_lost_is_found(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    for order in begin(store, accepted.round_id).values():
        record(store, order)
    with store.read() as session:
        assert queue.list_stuck_rounds(session, 10) == [accepted.round_id]
    assert combine(store, accepted.round_id)
    with store.read() as session:
        assert queue.list_stuck_rounds(session, 10) == []


def test_waiting_rounds_are_fair_and_interactive_ones_first(store: Store, assignment: int) -> None:
    many = [submit(store, assignment, "greedy").round_id for _ in range(3)]
    late = submit(store, assignment, "late").round_id
    batch = submit(store, assignment, "class", priority="batch").round_id
    with store.write() as session:
        for round_id in [*many, late, batch]:
            preparing.save_prepared(session, round_id, PREPARED)
    with store.read() as session:
        order = [one.round_id for p in PRIORITIES for one in queue.next_queued(session, p, 10)]
    assert order == [many[0], late, many[1], many[2], batch]


def test_parallel_results_make_one_grade(store: Store, assignment: int) -> None:
    accepted = submit(store, assignment)
    orders = begin(store, accepted.round_id)
    assert not combine(store, accepted.round_id)
    made: list[bool] = []
    together = threading.Barrier(6)

    def deliver(order: RunOrder) -> None:
        together.wait()
        if record(store, order).complete:
            made.append(combine(store, accepted.round_id))

    threads = [threading.Thread(target=deliver, args=(o,)) for o in list(orders.values()) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [True]
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(Grade)) == 1
