"""When runs are told to Redis, by a clock of the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from grading.broker.heartbeats import MOST_DRAFT, Lease
from grading.broker.leases import Leases
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material
from tests.support.factories import RUBRIC, document
from workers.machine.active_run import RunInHand
from workers.machine.progress import FIRST_S, ProgressReports
from workers.machine.stages.prompt_leaks import canary


def job(run_id: str, **other: Any) -> Job:
    return Job(
        run_id=run_id,
        round_id=f"round of {run_id}",
        stage="feedback",
        material=Material(title="Sales"),
        rubric=RUBRIC,
        documents=(document(),),
        evidence=Evidence(added_lines=1),
        nonce="ab",
        budget_s=30,
        max_output_tokens=800,
        **other,
    )


@dataclass
class Book:
    """Takes what is told instead of Redis, and what becomes of it."""

    now: float = 100.0
    told: list[tuple[float, list[Lease]]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    during: Callable[[], None] = lambda: None

    def tell(self, leases: Sequence[Lease]) -> list[bool]:
        self.during()
        if leases:
            self.told.append((self.now, list(leases)))
        return [one.run_id not in self.taken for one in leases]


@dataclass
class Desk:
    book: Book = field(default_factory=Book)
    runs: list[RunInHand] = field(default_factory=list)

    def __post_init__(self) -> None:
        leases = cast(Leases, self.book)
        self.telling = ProgressReports(leases, lambda: self.runs, _lease, lambda: self.book.now)

    def begin(self, run_id: str, **other: Any) -> RunInHand:
        self.runs.append(RunInHand(job(run_id, **other), None, begun=-FIRST_S, changed=self.telling.changed))
        return self.runs[-1]

    def last(self) -> list[Lease]:
        return self.book.told[-1][1]


def _lease(working: RunInHand) -> Lease:
    return Lease(working.job.run_id, "one", "p", working.job.stage, round_id=working.job.round_id)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_run_that_grows_is_told_twice_a_second_at_most(desk: Desk) -> None:
    run = desk.begin("a")
    for step in range(1000):  # ten seconds of a hundred tokens each
        run.moved(step)
        desk.telling.tell()
        desk.telling.confirm()
        desk.book.now = 100.0 + (step + 1) / 100
    written = _written(desk, "a")
    assert 18 <= len(written) <= 21
    assert all(later - first >= 1.0 for first, later in zip(written, written[2:], strict=False))
    assert desk.last()[0].tokens >= 940


def _written(desk: Desk, run_id: str) -> list[float]:
    """When something new was told of a run."""
    known: Lease | None = None
    found = []
    for moment, leases in desk.book.told:
        for lease in leases:
            if lease.run_id == run_id and lease != known:
                found.append(moment)
                known = lease
    return found


def test_a_change_of_phase_is_told_at_once_within_the_bound(desk: Desk) -> None:
    run = desk.begin("a")
    run.moved(0, "loading")
    assert desk.telling.tell() is None
    desk.book.now += 0.01
    run.moved(0, "reading")
    assert desk.telling.tell() is None
    assert [lease.phase for _, (lease,) in desk.book.told] == ["loading", "reading"]
    desk.book.now += 0.01
    run.moved(1, "generating")  # a third within the second has to wait
    wait = desk.telling.tell()
    assert wait == pytest.approx(0.98)
    assert desk.last()[0].phase == "reading"
    desk.book.now += wait
    assert desk.telling.tell() is None
    assert desk.last()[0].phase == "generating"


def test_a_slow_redis_does_not_bring_writes_closer(desk: Desk) -> None:
    run = desk.begin("a")

    def slow() -> None:
        desk.book.now += 0.4

    for step in range(100):
        run.moved(step)
        desk.book.during = slow if step % 3 == 0 else lambda: None
        desk.telling.tell()
        desk.book.now += 0.05
    written = _written(desk, "a")
    assert all(later - first >= 1.0 for first, later in zip(written, written[2:], strict=False))


def test_all_runs_are_told_together(desk: Desk) -> None:
    runs = []
    for name in ("a", "b", "c"):
        runs.append(desk.begin(name))
        runs[-1].moved(0, "reading")
        desk.telling.tell()
        desk.book.now += 0.03
    began = len(desk.book.told)
    for step in range(300):
        for run in runs:
            run.moved(step, "reading")
        desk.telling.tell()
        desk.book.now += 0.01
    later = desk.book.told[began:]
    told = sum(len(leases) for _, leases in later)
    assert 12 <= told <= 18
    assert len(later) <= told / 2  # one that began later is told apart once


def test_nothing_is_told_when_nothing_changed(desk: Desk) -> None:
    run = desk.begin("a")
    run.moved(5)
    assert desk.telling.tell() is None
    for _ in range(5):
        desk.book.now += 3
        run.moved(5)
        assert desk.telling.tell() is None
    assert len(desk.book.told) == 1
    desk.telling.confirm()  # the heartbeat asks whether it still has the run, with the same words
    assert desk.last() == desk.book.told[0][1]


def test_an_engine_wakes_the_teller_once_for_more_of_the_same(desk: Desk) -> None:
    calls = []
    run = desk.begin("a")
    run.changed = lambda: calls.append(run.tokens)
    run.moved(1, "reading")
    desk.telling.tell()
    for tokens in range(2, 50):
        run.moved(tokens, "reading")
    assert calls == [1, 2]
    run.moved(50, "generating")
    assert calls == [1, 2, 50]


def test_an_engine_never_waits_while_redis_does_not_answer(desk: Desk) -> None:
    asked, answer, stop = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        assert answer.wait(60)

    desk.book.during = hang
    thread = threading.Thread(target=desk.telling.until_stopped, args=(stop,))
    thread.start()
    try:
        run = desk.begin("a")
        run.moved(1)
        assert asked.wait(60)
        for tokens in range(2, 100):
            run.moved(tokens)  # would hang here, on this thread
        desk.telling.confirm()  # nor does the heartbeat wait for the one who hangs
        assert desk.book.told == []
    finally:
        answer.set()
        stop.set()
        desk.telling.changed()
        thread.join(60)
    assert not thread.is_alive()
    assert desk.last()[0].tokens == 1


def test_a_run_that_was_taken_away_is_cancelled_once(desk: Desk) -> None:
    run, other = desk.begin("a"), desk.begin("b")
    heard: list[str] = []
    desk.book.taken = {"a"}
    with run.cancel.on_cancel(lambda: heard.append("a")), other.cancel.on_cancel(lambda: heard.append("b")):
        run.moved(1)
        desk.telling.tell()
        desk.telling.confirm()
    assert heard == ["a"]
    assert (run.taken_away, other.taken_away) == (True, False)


def test_a_run_that_redis_never_knew_is_not_cancelled(desk: Desk) -> None:
    """Redis was away at its claim; its result counts all the same if it is the first."""
    run = desk.begin("a")
    run.leased = False
    desk.book.taken = {"a"}
    desk.telling.confirm()
    assert not run.cancel.cancelled
    desk.book.taken = set()  # a Redis that forgot everything has learned of it
    desk.telling.confirm()
    desk.book.taken = {"a"}
    desk.telling.confirm()
    assert run.cancel.cancelled


DRAFT = (
    '{"judgements": [{"criterion": "plot", "level": 3, "reason": "SECRET", "quotes": []}], '
    '"achieved": "You read the data.", "reflection": "And you say wh'
)


def test_a_draft_is_told_where_the_job_asks_for_it_without_what_a_student_may_not_see(desk: Desk) -> None:
    asked, not_asked = desk.begin("a", draft=True), desk.begin("b")
    for run in (asked, not_asked):
        run.moved(40, "generating", DRAFT)
    desk.telling.tell()
    first, second = desk.last()
    assert second.draft == ""
    assert "You read the data." in first.draft
    assert "And you say wh" in first.draft
    assert not [word for word in ("SECRET", "level", "3", "plot", "{") if word in first.draft]


def test_a_draft_is_bounded_and_has_no_half_characters(desk: Desk) -> None:
    run = desk.begin("a", draft=True)
    run.moved(40, "generating", '{"achieved": "' + "\\ud83d long words é " * 800)
    desk.telling.tell()
    draft = desk.last()[0].draft
    assert 3000 < len(draft) <= MOST_DRAFT
    draft.encode("utf-8")


def test_a_draft_that_repeats_its_prompt_is_not_shown(desk: Desk) -> None:
    """The answer will be held for a person."""
    run = desk.begin("a", draft=True)
    run.job = run.job.model_copy(update={"nonce": "0123456789abcdef"})
    for word in (run.job.nonce, canary(run.job)):
        assert len(word) >= 8
        run.moved(9, "generating", f'{{"achieved": "As you asked: {word}')
        desk.book.now += 10
        desk.telling.tell()
        (told,) = desk.last()
        assert (told.tokens, told.draft) == (9, "")
