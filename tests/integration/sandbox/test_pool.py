"""What the pool that runs work does when something is away, done twice, stopped or full."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session as SqlSession

from app.submissions.status_texts import Progress, live
from app.web.eta import Outlook
from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.broker.erasure import withdraw
from grading.config.settings import Limits, Retention, SandboxSettings
from grading.domain.errors import FilesUnavailable, SandboxUnavailable
from grading.domain.messages import verbatim
from grading.domain.round_states import RoundState
from grading.store import Store, outbox, schema
from grading.store.privacy import backup, erasure, retention
from grading.store.privacy.erasure import find_student
from grading.store.rounds import preparing, retry
from grading.store.rounds.queue import load_positions
from grading.store.tables import CachedExecution, Round
from grading.store.views.status import load_speed
from grading.store.views.submission import load_view
from tests.integration.sandbox.test_sandbox_runs import RIGHT, School, made, share
from tests.support.aging import redis_rows
from tests.support.services import SqliteDatabases
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.base import SandboxSpec, Session
from workers.sandbox.backends.selection import ENDS, ClosableBackend
from workers.sandbox.plan_runner import PREFIX, Runner, Shelf
from workers.sandbox.worker import (
    HOLD_S,
    MOST_FAULTS,
    PUT_OFF_S,
    TURN_S,
    ClaimedRounds,
    look_again,
    register,
    run_round,
)
from workers.server.context import Server
from workers.server.prepare import prepare
from workers.server.sweeper import Sweeper

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def school(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[School]:
    yield from made(fresh_database(schema.upgrade), redis_url, root, open_backend("bubblewrap"))


@pytest.fixture
def lite(sqlite_databases: SqliteDatabases, redis_url: str, root: Path) -> Iterator[School]:
    yield from made(sqlite_databases.fresh(schema.upgrade), redis_url, root, open_backend("bubblewrap"))


def handed_on(school: School, student: str = "ada", source: str = RIGHT) -> str:
    round_id = school.received(student, source)
    assert not prepare(school.server, round_id)
    return round_id


def tried(school: School, round_id: str) -> float | None:
    return run_round(school.server, school.runner, school.holding, round_id)


# --- messages twice, in any order ---------------------------------------------------------------------


def test_a_page_says_that_the_work_is_run(lite: School) -> None:
    round_id = lite.received("ada")
    with lite.server.store.read() as session:
        submission_id = session.scalars(select(Round.submission_id).where(Round.id == round_id)).one()

    def outlook(session: SqlSession) -> Outlook:
        return Outlook(load_positions(session), load_speed(session))

    def said() -> str:
        with lite.server.store.read() as session:
            view = load_view(session, submission_id)
            waits = Progress(queue=outlook(session).queue(view, 0.0), stages={})
        return live(view, waits, sees_score=False).detail

    assert said().startswith("Reading your files.")
    prepare(lite.server, round_id)
    assert said().startswith("Running your work.")
    tried(lite, round_id)
    assert said().startswith("Position 1.")


def test_a_second_announcement_does_not_take_the_work_from_who_runs_it(school: School) -> None:
    round_id = handed_on(school)
    held = school.holding.take(round_id)
    assert held is not None
    announced = school.waiting()
    assert not prepare(school.server, round_id)
    assert school.waiting() == announced
    assert ClaimedRounds(school.server).take(round_id) is None
    school.holding.give_back(held)
    assert tried(school, round_id) is None
    with school.server.store.write() as session:
        assert not preparing.hand_on(session, round_id)  # by one who looked before
    assert school.rows(round_id)["execute"].done_at is not None


def test_who_stood_still_takes_nothing_from_who_took_over(school: School) -> None:
    round_id = handed_on(school)
    stopped, other = school.holding, ClaimedRounds(school.server)
    first = stopped.take(round_id)
    assert first is not None
    assert other.take(round_id) is None
    school.later(round_id)  # SIGSTOP for longer than a hold
    second = other.take(round_id)
    assert second is not None
    stopped.sign()
    stopped.give_back(first)
    stopped.put_off(first, "no room")
    row = school.rows(round_id)["execute"]
    assert (row.tries, row.error) == (2, "")
    assert ClaimedRounds(school.server).take(round_id) is None  # it is still held
    other.give_back(second)
    assert ClaimedRounds(school.server).take(round_id) is not None


def test_only_the_first_who_is_done_counts(school: School) -> None:
    round_id = handed_on(school)
    late = threading.Event()
    reached = threading.Event()
    inner = school.sandbox.inner

    class Late:
        name = inner.name
        problem = staticmethod(inner.problem)

        def open(self, spec: SandboxSpec) -> Session:
            reached.set()
            late.wait(60)
            return inner.open(spec)

    school.sandbox.inner = Late()
    thread = threading.Thread(target=tried, args=(school, round_id))
    thread.start()
    assert reached.wait(60)
    school.later(round_id)
    school.sandbox.inner = inner
    runner = Runner(school.server.store, school.runner.executor, school.runner.shelf)  # of another process
    assert run_round(school.server, runner, ClaimedRounds(school.server), round_id) is None
    before = school.row(round_id)
    assert before.state == RoundState.QUEUED
    late.set()
    thread.join(30)
    after = school.row(round_id)
    assert (after.prepared, after.prepared_at) == (before.prepared, before.prepared_at)
    assert school.rows(round_id)["execute"].done_at is not None


def test_who_comes_while_it_is_run_looks_again_until_it_is_done(lite: School) -> None:
    round_id = handed_on(lite)
    held = lite.holding.take(round_id)
    assert held is not None
    assert run_round(lite.server, lite.runner, ClaimedRounds(lite.server), round_id) == HOLD_S
    before = lite.waiting()["sandbox"]
    look_again(lite.server, round_id, HOLD_S)
    assert lite.waiting()["sandbox"] == before + 1
    lite.holding.give_back(held)
    assert tried(lite, round_id) is None
    look_again(lite.server, round_id, HOLD_S)
    assert lite.waiting()["sandbox"] == before + 1


def test_one_students_endless_loops_leave_others_a_slot(lite: School) -> None:
    loops = [handed_on(lite, "ada", f"while True:\n    pass  # {n}\n") for n in range(2)]
    others = handed_on(lite, "ben")
    with lite.holding.turn(loops[0]) as first:
        assert first
        assert tried(lite, loops[1]) == TURN_S
        assert tried(lite, others) is None
        assert ClaimedRounds(lite.server).take(loops[0]) is not None  # on another computer
        assert tried(lite, loops[0]) == HOLD_S
        assert tried(lite, loops[1]) == TURN_S
    with lite.holding.turn(loops[1]) as second:
        assert second


def test_the_pool_also_prepares_what_an_older_web_app_announces(lite: School) -> None:
    app = lite.server.dispatch.celery
    register(app, lite.server, lite.runner, lite.holding)
    app.tasks[celery_app.PRECHECK]("replaced meanwhile")
    round_id = lite.received("ada")
    app.tasks[celery_app.PREPARE](round_id)
    assert lite.waiting()["sandbox"] == 1
    app.tasks[celery_app.EXECUTE](round_id)
    assert share(lite.evidence(round_id)) == 1.0


# --- what is away ---------------------------------------------------------------------------------------


class Failing:
    """A backend that worked and cannot open sandboxes now."""

    name = "bubblewrap"

    def problem(self) -> str:
        return ""

    def open(self, spec: SandboxSpec) -> Session:
        raise SandboxUnavailable("The sandbox could not be started this time.")


def test_a_fault_of_the_server_is_no_evidence_and_tried_again(lite: School) -> None:
    round_id = handed_on(lite)
    works = lite.sandbox.inner
    lite.sandbox.inner = Failing()
    waits = tried(lite, round_id)
    assert waits == PUT_OFF_S[0]
    assert lite.row(round_id).state == RoundState.RECEIVED
    assert lite.kept() == 0
    assert tried(lite, round_id) == HOLD_S  # not due yet
    lite.sandbox.inner = works
    lite.later(round_id)
    assert tried(lite, round_id) is None
    assert share(lite.evidence(round_id)) == 1.0
    assert lite.rows(round_id)["execute"].error == ""  # with one, it would count as dead


def test_what_can_never_be_run_here_is_held_for_a_person_at_last(lite: School) -> None:
    round_id = handed_on(lite)
    lite.sandbox.inner = Failing()
    waits = []
    for _ in range(MOST_FAULTS):
        waits.append(tried(lite, round_id) or 0.0)
        lite.later(round_id)
    assert waits == sorted(waits)
    assert tried(lite, round_id) is None
    evidence = lite.evidence(round_id)
    assert share(evidence) is None
    (flag,) = [flag for flag in evidence.flags if flag.hold]
    assert "could not be started this time" in flag.message


def test_a_sandbox_that_breaks_after_it_worked_is_a_fault(lite: School, monkeypatch: Any) -> None:
    assert share(lite.tried("ada")) == 1.0
    round_id = handed_on(lite, "ben", RIGHT + "# ben\n")
    monkeypatch.setattr(type(lite.sandbox), "problem", lambda _: "Resource temporarily unavailable.")
    assert tried(lite, round_id) == PUT_OFF_S[0]
    assert lite.row(round_id).state == RoundState.RECEIVED


def test_out_of_descriptors_is_a_fault(lite: School, monkeypatch: pytest.MonkeyPatch) -> None:
    round_id = handed_on(lite)

    def none_left(_self: object, _spec: SandboxSpec) -> Session:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(type(lite.sandbox), "open", none_left)
    assert tried(lite, round_id) == PUT_OFF_S[0]
    assert "Too many open files" in lite.rows(round_id)["execute"].error


def test_a_full_disk_is_a_fault(lite: School, monkeypatch: pytest.MonkeyPatch) -> None:
    round_id = handed_on(lite)

    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(Shelf, "holding", full)
    assert tried(lite, round_id) == PUT_OFF_S[0]
    assert "No space left" in lite.rows(round_id)["execute"].error
    assert lite.row(round_id).state == RoundState.RECEIVED


def test_the_database_goes_away_in_the_middle(lite: School, monkeypatch: pytest.MonkeyPatch) -> None:
    round_id = handed_on(lite)
    away = OperationalError("select", None, Exception("the server closed the connection"))

    def gone(*_: object) -> None:
        raise away

    for owner, name in (
        (type(lite.runner), "_known"),
        (type(lite.runner), "_keep"),
        (preparing, "save_prepared"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, gone)
            with pytest.raises(OperationalError):
                tried(lite, round_id)
        assert lite.row(round_id).state == RoundState.RECEIVED
        assert lite.rows(round_id)["execute"].tries == 0
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "release_hold", gone)
        patch.setattr(preparing, "save_prepared", gone)
        with pytest.raises(OperationalError):
            tried(lite, round_id)
    assert tried(lite, round_id) == HOLD_S  # nobody could give it back
    lite.later(round_id)
    assert tried(lite, round_id) is None


def test_the_sweeper_gives_nothing_up_while_redis_takes_no_messages(lite: School) -> None:
    round_id = handed_on(lite)
    redis: Any = lite.server.dispatch.registry.redis
    redis.delete(*celery_app.SANDBOX_QUEUES)
    Canaries(redis).heartbeat("sandbox", "here:1", "v")
    sweeper = Sweeper(lite.server)
    for _ in range(12):
        redis.delete(*celery_app.SANDBOX_QUEUES)
        lite.later(round_id)
        sweeper.step()
    assert lite.row(round_id).state == RoundState.RECEIVED
    assert lite.rows(round_id)["execute"].tries == 0


def test_what_a_killed_pool_had_is_sent_again_although_others_wait(school: School) -> None:
    had, others = handed_on(school), handed_on(school, "ben")
    redis: Any = school.server.dispatch.registry.redis
    redis.rpop("sandbox")  # taken, and not acknowledged
    assert school.holding.take(had) is not None
    school.later(had)
    school.later(others)
    Canaries(redis).heartbeat("sandbox", "here:1", "v")
    sweeper = Sweeper(school.server)
    for _ in range(3):
        sweeper.step()
        school.later(had)
        # one for who waits anyway, one for what was taken, and the canary
        assert len(redis.lrange("sandbox", 0, -1)) == 3
    assert school.rows(had)["execute"].tries == 1


def test_a_round_that_was_handed_on_while_the_sweeper_had_no_files_is_not_handed_on_again(
    lite: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = lite.received("ada")

    def by_another(server: Server, of: str) -> bool:
        prepare(server, of)
        raise FilesUnavailable

    monkeypatch.setattr("workers.server.sweeper.prepare", by_another)
    lite.later(round_id)
    Sweeper(lite.server).step()
    assert lite.holding.take(round_id) is not None
    assert not prepare(lite.server, round_id)
    assert lite.rows(round_id)["prepare"].done_at is not None
    assert lite.rows(round_id)["execute"].tries == 1  # held, so nobody else holds it by the same number


def test_what_waits_is_prepared_when_nothing_shall_be_run_any_more(lite: School) -> None:
    round_id = handed_on(lite)
    none = lite.server.config.model_copy(update={"sandbox": SandboxSettings(backend="none")})
    lite.later(round_id)
    Sweeper(dataclasses.replace(lite.server, config=none)).step()
    assert [flag.code for flag in lite.evidence(round_id).flags] == ["not_run"]
    assert lite.rows(round_id)["execute"].done_at is not None


def test_a_row_that_nothing_waits_for_is_closed(lite: School) -> None:
    round_id = handed_on(lite)
    assert tried(lite, round_id) is None
    with lite.server.store.write() as session:
        outbox.reopen(session, "execute", round_id)
    lite.later(round_id)
    Canaries(lite.server.dispatch.registry.redis).heartbeat("sandbox", "here:1", "v")
    lite.server.dispatch.registry.redis.delete(*celery_app.SANDBOX_QUEUES)
    Sweeper(lite.server).step()
    assert lite.rows(round_id)["execute"].done_at is not None


# --- ending -----------------------------------------------------------------------------------------------


def test_a_pool_that_ends_ends_its_boxes_and_gives_their_rounds_back(lite: School) -> None:
    closing = ClosableBackend(lite.sandbox.inner)
    lite.sandbox.inner = closing
    round_id = handed_on(lite, "ada", "import time\ntime.sleep(55)\n" + RIGHT)
    found: list[float | None] = []
    thread = threading.Thread(target=lambda: found.append(tried(lite, round_id)))
    thread.start()
    deadline = time.monotonic() + 60
    while not len(closing._open):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    lite.holding.ending.set()
    began = time.monotonic()
    closing.close()
    thread.join(60)
    assert time.monotonic() - began < 30  # the work takes longer
    assert found == [0.0]
    row = lite.rows(round_id)["execute"]
    assert (row.done_at, row.tries, row.error) == (None, 0, "")
    assert ClaimedRounds(lite.server).take(round_id) is not None
    with pytest.raises(SandboxUnavailable, match=ENDS[:20]):
        closing.open(SandboxSpec(("/usr/bin/env", "true"), limits=Limits()))


# --- erasing, keeping, bringing back ------------------------------------------------------------------


def erased(school: School, who: str) -> Counter[str]:
    """Erase a student, in SQL and in Redis."""
    with school.server.store.write() as session:
        gone = erasure.erase_student(session, find_student(session, who), "test")
    withdraw(school.server.dispatch.registry.redis, (*gone.student.submissions, *gone.student.rounds))
    return gone.counts


def test_what_running_an_erased_students_work_showed_goes_with_them(school: School) -> None:
    mine = "print('zqkanari')\n" + RIGHT
    assert share(school.tried("ada", mine)) == share(school.tried("ben", mine)) == 1.0
    assert school.kept() == 2  # the work of both, and the expected values
    sandboxes = school.sandbox.opened
    assert erased(school, "ada")["cached_executions"] == 1
    assert school.kept() == 1
    assert share(school.tried("cem", mine)) == 1.0  # ben's same work is still there, and is run again
    assert school.sandbox.opened == sandboxes + 1


def test_nothing_runs_for_an_erased_student(lite: School) -> None:
    round_id = handed_on(lite, "ada")
    redis: Any = lite.server.dispatch.registry.redis
    assert lite.waiting()["sandbox"] == 1
    assert erased(lite, "ada")["outbox"] == 3  # prepare, execute, and the event that it was received
    assert lite.waiting()["sandbox"] == 0
    assert tried(lite, round_id) is None  # a pool that had taken the message
    look_again(lite.server, round_id, HOLD_S)
    assert lite.waiting()["sandbox"] == 0
    assert lite.sandbox.opened == 0
    assert round_id not in "".join(redis_rows(redis))


def test_a_student_is_erased_while_their_work_is_run(lite: School) -> None:
    round_id = handed_on(lite, "ada")
    inner = lite.sandbox.inner

    class Erasing:
        name = inner.name
        problem = staticmethod(inner.problem)

        def open(self, spec: SandboxSpec) -> Session:
            if lite.sandbox.opened == 1:
                erased(lite, "ada")
            return inner.open(spec)

    lite.sandbox.inner = Erasing()
    assert tried(lite, round_id) is None
    assert lite.rows(round_id) == {}
    with lite.server.store.read() as session:
        owners = session.scalars(select(CachedExecution.submission_id)).all()
    assert owners == [None] * len(owners)


def test_old_executions_go_and_what_waits_for_the_pool_stays(lite: School) -> None:
    lite.tried("ada")
    waits = handed_on(lite, "ben", RIGHT + "# ben\n")
    lite.server.store.clock_offset_s += 400 * 86_400
    kept = Retention(submissions_days=30, executions_days=30, messages_days=4)
    with lite.server.store.write() as session:
        while retention.delete_chunk(session, kept):
            pass
    assert lite.kept() == 0
    assert lite.rows(waits)["execute"].done_at is None
    assert tried(lite, waits) is None
    assert share(lite.evidence(waits)) == 1.0


def test_a_round_that_could_not_be_prepared_goes_the_same_way_when_it_is_replayed(lite: School) -> None:
    round_id = handed_on(lite)
    with lite.server.store.write() as session:
        preparing.reject_round(session, round_id, verbatim("The checks failed."))
    assert tried(lite, round_id) is None
    with lite.server.store.write() as session:
        assert retry.retry_round(session, round_id, "test")
    assert not prepare(lite.server, round_id)
    assert tried(lite, round_id) is None
    assert share(lite.evidence(round_id)) == 1.0


def test_what_waits_and_what_is_kept_survive_a_restore(lite: School, tmp_path: Path) -> None:
    lite.tried("ada")
    held = handed_on(lite, "ben", RIGHT + "# ben\n")
    assert lite.holding.take(held) is not None  # the back-up is made in the middle of it
    archive = tmp_path / "grader.zip"
    backup.write_backup(lite.server.store, archive)
    url = f"sqlite:///{tmp_path}/again.db"
    backup.restore_backup(url, archive, replace=False, safety=tmp_path / "before.zip")
    again = Store(url, clock_offset_s=60.0)
    try:
        server = dataclasses.replace(lite.server, store=again)
        runner = Runner(again, lite.runner.executor, lite.runner.shelf)
        sandboxes = lite.sandbox.opened
        assert run_round(server, runner, ClaimedRounds(server), held) is None
        assert lite.sandbox.opened == sandboxes + 1  # the expected values were kept
    finally:
        again.close()


# --- the shelf --------------------------------------------------------------------------------------------


def laid(shelf: Shelf, name: str, content: bytes) -> None:
    with shelf.holding({"data/x": name}, lambda names: dict.fromkeys(names, content)) as mounts:
        assert all(mount.source.read_bytes() == content for mount in mounts)


def on(shelf: Shelf) -> list[str]:
    return sorted(path.name for path in shelf.path.iterdir())


def test_a_shelf_holds_only_so_much_and_drops_what_was_not_used_for_longest() -> None:
    with Shelf(most=250) as shelf:
        for name in ("a", "b", "a", "c"):
            laid(shelf, name, b"x" * 100)
        assert on(shelf) == ["a", "c"]
        with shelf.holding({"x": "a", "y": "c"}, lambda _: {}):
            laid(shelf, "d", b"x" * 100)
            laid(shelf, "e", b"x" * 100)
            assert {"a", "c"} <= set(on(shelf))  # a sandbox is made of them just now
        assert len(on(shelf)) == 2


def test_a_full_disk_leaves_no_half_file_and_drops_what_is_not_needed(monkeypatch: Any) -> None:
    with Shelf() as shelf:
        laid(shelf, "a", b"old")
        write = Path.write_bytes

        def half(path: Path, content: bytes) -> int:
            if (shelf.path / "a").exists() or content == b"never":
                write(path, content[:1])
                raise FULL
            return write(path, content)

        monkeypatch.setattr(Path, "write_bytes", half)
        laid(shelf, "b", b"new")
        assert on(shelf) == ["b"]
        with pytest.raises(OSError, match="No space"):
            laid(shelf, "c", b"never")
        assert on(shelf) == []


def test_a_shelf_that_somebody_cleared_away_is_made_again() -> None:
    with Shelf() as shelf:
        laid(shelf, "a", b"one")
        (shelf.path / "a").unlink()
        shelf.path.rmdir()
        laid(shelf, "a", b"one")


def test_the_shelf_of_a_process_that_was_killed_goes_and_no_other() -> None:
    program = (
        "import signal, sys\nfrom workers.sandbox.plan_runner import Shelf\ns = Shelf()\ns.put('a', b'1')\n"
    )
    program += "print(s.path, flush=True)\nsignal.pause()\n"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    assert left.name.startswith(PREFIX)
    with Shelf() as mine:
        assert left.exists()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with Shelf():
            assert not left.exists()
            assert mine.path.exists()
    assert left.parent == Path(tempfile.gettempdir())


def test_names_that_no_file_system_takes_are_left_out() -> None:
    with Shelf() as shelf:
        assert shelf.mounts({"x" * 300 + ".csv": "a", "é" * 200: "b"}) == []
