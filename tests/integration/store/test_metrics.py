"""What is measured, on both databases: counted once, by every process alike, and quickly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from app.operations.metrics import History
from grading.domain.jobs import Result, Tokens
from grading.domain.messages import verbatim
from grading.store import Store, schema
from grading.store.database import now
from grading.store.reporting import metrics
from grading.store.reporting.metrics import END_TO_END_S, FIRST_TOKEN_S, LATE_S, STAGE_S, Totals
from grading.store.rounds import lifecycle, preparing
from grading.store.tables import Drain, Outbox, Round, Run
from tests.support.factories import add_assignment, begin_round, result, submit
from tests.support.services import Prepare, SqliteDatabases


@pytest.fixture
def store(fresh_database: Callable[[Prepare | None], str]) -> Iterator[Store]:
    opened = Store(fresh_database(schema.upgrade))
    yield opened
    opened.close()


@pytest.fixture
def local(sqlite_databases: SqliteDatabases) -> Iterator[Store]:
    """For what the code does with the numbers, whatever database they come from."""
    url = sqlite_databases.fresh(schema.upgrade)
    opened = Store(url)
    yield opened
    opened.close()
    sqlite_databases.drop(url)


def later(store: Store, seconds: float) -> Store:
    """The same store, so many seconds after the start of the test."""
    store.clock_offset_s = seconds
    return store


def begun(store: Store, assignment: int, student: str) -> dict[str, Result]:
    """A round whose stages are dispatched; a good result for each."""
    round_id = submit(store, assignment, student).round_id
    with store.write() as session:
        preparing.save_prepared(session, round_id, {"documents": [], "evidence": {}})
        orders = begin_round(session, round_id)
    return {order.stage: measured(result(order.run_id, round_id, order.stage)) for order in orders}


def measured(one: Result, seconds: float = 8.0) -> Result:
    tokens = Tokens(prompt=1000, cached=750, output=200)
    known = {"tokens": tokens, "seconds": seconds, "first_token_s": 0.75, "model": "qwen"}
    return one.model_copy(update={"provenance": one.provenance.model_copy(update=known)})


def failed(one: Result, **other: object) -> Result:
    update = {"ok": False, "output": {}, "error": "engine_failed", "retry": "never", **other}
    return one.model_copy(update=update)


def record(store: Store, one: Result) -> None:
    with store.write() as session:
        lifecycle.record_results(session, [one])


def end(store: Store, round_id: str, state: str) -> None:
    with store.write() as session:
        session.execute(
            update(Round).where(Round.id == round_id).values(state=state, finished_at=now(session))
        )


def counted(totals: Totals) -> dict[tuple[str, str, str], int]:
    """(stage, state, error) -> runs."""
    return {(kind[0], kind[3], kind[4]): sums.runs for kind, sums in totals.runs.items()}


def test_runs_are_counted_with_their_tokens_and_seconds(store: Store) -> None:
    assignment = add_assignment(store)
    for student, seconds in (("s1", 8.0), ("s2", 45.0)):
        results = begun(store, assignment, student)
        record(store, measured(results["analysis"], seconds))
    record(store, failed(results["feedback"]))
    totals, now_open, *_ = History(store).read()
    assert counted(totals) == {("analysis", "done", ""): 2, ("feedback", "failed", "engine_failed"): 1}
    sums = totals.runs["analysis", "dgx-spark-1", "qwen", "done", ""]
    assert (sums.prompt_tokens, sums.cached_tokens, sums.output_tokens) == (2000, 1500, 400)
    assert sums.generation_seconds == pytest.approx(7.25 + 44.25)
    assert sums.seconds.total == pytest.approx(53)
    assert dict(zip(STAGE_S, sums.seconds.at_most, strict=True)) | {5.0: 0, 10.0: 1, 45.0: 2} == dict(
        zip(STAGE_S, sums.seconds.at_most, strict=True)
    )
    assert dict(zip(FIRST_TOKEN_S, sums.first_token_s.at_most, strict=True))[1.0] == 2
    assert now_open.stages["feedback", "dispatched"] == 1
    # those from before revision 0002 count, and measure nothing
    unknown = {"seconds": None, "first_token_s": None, "prompt_tokens": None, "model": None}
    with store.write() as session:
        session.execute(update(Run).values(unknown))
    totals, *_ = History(store).read()
    sums = totals.runs["analysis", "dgx-spark-1", "", "done", ""]
    assert (sums.runs, sums.prompt_tokens, sums.seconds.count) == (2, 0, 0)


def test_rounds_are_measured_from_submission_to_grade(store: Store) -> None:
    assignment = add_assignment(store)
    ids = [submit(store, assignment, student).round_id for student in ("s1", "s2", "s3")]
    for round_id, after, state in zip(ids, (6.0, 22.0, 22.0), ("graded", "graded", "failed"), strict=True):
        end(later(store, after), round_id, state)
    totals, now_open, *_ = History(store).read()
    spread = totals.rounds["graded", "interactive"]
    assert spread.count == 2
    assert 28 <= spread.total < 60
    at_most = dict(zip(END_TO_END_S, spread.at_most, strict=True))
    assert (at_most[5.0], at_most[10.0], at_most[30.0]) == (0, 1, 2)
    assert totals.rounds["failed", "interactive"].count == 1
    assert now_open.rounds["received", "interactive"].count == 0


def test_every_process_says_the_same_however_long_it_runs(local: Store) -> None:
    """One looks all the time, one starts at the end; in between everything settles."""
    assignment = add_assignment(local)
    history, clock = History(local), 0.0
    for student in ("s1", "s2", "s3", "s4"):
        later(local, clock)
        results = begun(local, assignment, student)
        record(local, results["analysis"])
        history.read()
        end(local, results["analysis"].round_id, "graded")
        seen, *_ = history.read()
        clock += LATE_S * 0.75
    fresh, *_ = History(local).read()
    assert counted(seen) == counted(fresh) == {("analysis", "done", ""): 4}
    (mine,), (its,) = seen.rounds.values(), fresh.rounds.values()
    assert (mine.count, mine.at_most) == (its.count, its.at_most)
    assert mine.count == 4
    assert mine.total == pytest.approx(its.total)


def test_a_row_that_was_committed_late_is_counted(local: Store) -> None:
    """Its time lies before what was already read."""
    assignment = add_assignment(local)
    first, second = begun(local, assignment, "s1"), begun(local, assignment, "s2")
    history = History(later(local, LATE_S / 2))
    record(local, first["analysis"])
    assert counted(history.read()[0]) == {("analysis", "done", ""): 1}
    record(later(local, 0), second["analysis"])
    later(local, LATE_S / 2)
    assert counted(history.read()[0]) == {("analysis", "done", ""): 2}
    later(local, 3 * LATE_S)
    assert counted(history.read()[0]) == {("analysis", "done", ""): 2}


def test_counts_of_runs_never_fall(local: Store) -> None:
    """A lost run that answers late is done afterwards."""
    results = begun(local, add_assignment(local), "s1")
    run = results["analysis"]
    with local.write() as session:
        lifecycle.mark_lost(session, run.run_id, verbatim("gone"), "alone")
    history = History(local)

    def runs() -> dict[tuple[str, ...], int]:
        return history.rising({(kind[0], kind[3]): s.runs for kind, s in history.read()[0].runs.items()})

    assert runs() == {("analysis", "lost"): 1}
    record(local, run)
    assert runs() == {("analysis", "lost"): 1, ("analysis", "done"): 1}


def test_dead_stages_are_counted_and_remembered(store: Store) -> None:
    results = begun(store, add_assignment(store), "s1")
    record(store, failed(results["analysis"], error="model_missing"))
    _, now_open, *_ = History(store).read()
    assert now_open.dead == {("analysis", "model_missing"): 1}
    end(store, results["analysis"].round_id, "partial")
    totals, *_ = History(store).read()
    assert totals.dead == {("analysis", "model_missing"): 1}


def test_what_waits_is_as_old_as_the_oldest(store: Store) -> None:
    assignment = add_assignment(store)
    submit(store, assignment, "s1")
    later(store, 100)
    submit(store, assignment, "s2")
    submit(store, assignment, "s3", priority="batch")
    with store.write() as session:
        session.add(Drain(machine="dgx-spark-1", by="ada", since=now(session)))
    with later(store, 130).read() as session:
        now_open = metrics.count_open(session)
    waiting = now_open.rounds["received", "interactive"]
    assert waiting.count == 2
    assert 130 <= waiting.oldest_s < 160
    assert 30 <= now_open.rounds["received", "batch"].oldest_s < 60
    assert now_open.rounds["queued", "batch"] == metrics.Waiting(0, 0.0)
    assert now_open.outbox["prepare"] == replace(
        waiting, count=3, oldest_s=now_open.outbox["prepare"].oldest_s
    )
    assert now_open.outbox["event"].count == 3  # that they were received
    assert now_open.drained == {"dgx-spark-1"}
    with store.write() as session:
        session.execute(update(Outbox).values(done_at=now(session)))
    with store.read() as session:
        assert metrics.count_open(session).outbox["prepare"].count == 0


def test_a_look_costs_little(local: Store) -> None:
    """What is settled is not read again."""
    results = begun(local, add_assignment(local), "s1")
    record(local, results["analysis"])
    history = History(later(local, 2 * LATE_S))
    history.read()
    with local.write() as session:
        session.execute(update(Run).values(finished_at=now(session) - timedelta(days=1)))
        session.execute(update(Run).values(state="lost"))
    assert counted(history.read()[0]) == {("analysis", "done", ""): 1}
