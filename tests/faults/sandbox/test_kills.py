"""The pool that runs students' work is killed in the middle of it, and told to end in the middle of it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select

from cli.dev.embedded_redis import start_redis
from grading.checks.kinds.tests import Case, PassesTests
from grading.domain.evidence import Evidence
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.tables import Outbox, Round
from tests.support.factories import COURSE, submit
from tests.support.system import Site, assert_graded_once, site, until

TOML = """
[sandbox]
slots = 2
memory_mb = 256
seconds = 30

[[machines]]
name = "one"
slots = 2
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""
COUNT = 4
WORK = "import time\n\n\ndef slow(x):\n    time.sleep(1.5)\n    return {} * x\n"
LONG = "import time\n\ntime.sleep(20)\n\n\ndef slow(x):\n    return 2 * x  # {}\n"
"""Longer than a pool that is to end lets it finish."""
RUBRIC = Rubric(
    criteria=(
        Criterion(
            id="code",
            title="Code",
            points=60,
            checks=(PassesTests(cases=(Case(expression="slow(2)", expected="4"),)),),
        ),
        Criterion(id="reflection", title="Reflection", points=40, stage="feedback"),
    )
)
DRIVERS = {b"/grader/drivers/python_submission.py", b"/grader/drivers/python_forkserver.py"}


@dataclass(frozen=True)
class Outcome:
    """What was running when the pool was killed, what of it was left, and what came of the submissions."""

    sandboxes: int
    boxes_left: int
    taken_over_s: float
    shares: list[float | None]
    open_rows: int
    told: Told


@dataclass(frozen=True)
class Told:
    """How it ended when it was told to, in the middle of work."""

    status: int | None
    seconds: float
    boxes_left: int
    tries: list[int]
    """Of the rounds that it gave back."""
    due: bool


def play(folder: Path, database_url: str) -> Outcome:
    """Kill it while two are run and two wait, and start it again; then tell it to end while two are run."""
    with start_redis(folder / "redis") as redis, site(folder, TOML, database_url, redis.url) as made:
        made.parts.environ.pop("GRADER_SECRET_KEY")  # its unit has none, either
        for part in (["store"], ["sweep"], ["sandbox"], ["worker", "one"]):
            made.parts.start(part[-1], *part)
        assignment = add_python(made.store)
        begin(made, assignment, [WORK.format(2 + number % 2) + f"# {number}\n" for number in range(COUNT)])
        pool = made.parts.running["sandbox"].pid
        until(lambda: drivers_of(pool), 60, "work is run")
        os.killpg(pool, signal.SIGSTOP)  # so that it begins nothing in the last moment
        sandboxes = drivers_of(pool)
        made.parts.kill("sandbox")
        began = time.monotonic()
        left = left_of(sandboxes)
        made.parts.start("sandbox", "sandbox")
        made.until_final(COUNT, 90)
        taken_over_s = time.monotonic() - began
        begin(made, assignment, [LONG.format(number) for number in range(2)])
        pool = made.parts.running["sandbox"].pid
        told = tell(made, until(lambda: two_or_none(drivers_of(pool)), 60, "long work is run"))
        made.parts.start("sandbox", "sandbox")
        made.until_final(COUNT + 2, 90)
        return Outcome(len(sandboxes), len(left), taken_over_s, shares(made), open_rows(made), told)


def begin(made: Site, assignment: int, sources: list[str]) -> None:
    """Submit these, each by a student of its own."""
    for source in sources:
        done = submit(made.store, assignment, f"s-{hash(source)}", source_text=source, path="slow.py")
        made.dispatch.announce(done.round_id)


def two_or_none(drivers: set[int]) -> set[int]:
    return drivers if len(drivers) >= 2 else set()


def tell(made: Site, sandboxes: set[int]) -> Told:
    """SIGTERM, and what is found of its sandboxes when it has ended."""
    process = made.parts.running.pop("sandbox")
    began = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    status = process.wait(60)
    took = time.monotonic() - began
    with made.store.read() as session:
        query = select(Outbox).where(Outbox.kind == "execute", Outbox.done_at.is_(None))
        rows = session.scalars(query).all()
        due = all(row.not_before <= now(session) for row in rows)
    return Told(status, took, len(sandboxes & running_drivers()), [row.tries for row in rows], due)


def add_python(store: Store) -> int:
    new = NewVersion("slow", "Slow", "python", "at_once", "1", rubric=RUBRIC)
    with store.write() as session:
        return versions.import_version(session, COURSE, new)[0].id


def running_drivers() -> set[int]:
    """Processes of drivers in sandboxes, on this computer; other tests run some, too."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                sandboxed = (folder / "ns" / "pid").readlink() != Path("/proc/self/ns/pid").readlink()
            except OSError:
                continue  # it ended in between
            if sandboxed and DRIVERS & set(words) and b"bwrap" not in words[0]:
                found.add(int(folder.name))
    return found


def drivers_of(pool: int) -> set[int]:
    """Those of one pool."""
    return {pid for pid in running_drivers() if pool in ancestors(pid)}


def ancestors(pid: int) -> list[int]:
    """The parent of a process, the parent's parent and so on, as far as they still live."""
    found: list[int] = []
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            break
        pid = int(status.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def left_of(sandboxes: set[int]) -> set[int]:
    """What is still there of these after half a minute."""
    with suppress(AssertionError):
        until(lambda: not sandboxes & running_drivers(), 30, "boxes end with their pool")
    return sandboxes & running_drivers()


def shares(made: Site) -> list[float | None]:
    assert_graded_once(made.store, COUNT + 2)
    with made.store.read() as session:
        prepared = session.scalars(select(Round.prepared).order_by(Round.created_at, Round.id)).all()
    found = [Evidence.model_validate(one["evidence"]).of("code") for one in prepared if one]
    return sorted(one.share or 0.0 for one in found if one)


def open_rows(made: Site) -> int:
    with made.store.read() as session:
        rows = session.scalars(select(Outbox).where(Outbox.kind == "execute")).all()
        assert all(row.not_before - row.created_at < timedelta(minutes=5) for row in rows)
        return sum(row.done_at is None for row in rows)


def test_nothing_is_lost_when_the_pool_is_killed(outcome: Outcome) -> None:
    assert outcome.sandboxes >= 1
    assert outcome.boxes_left == 0
    assert outcome.shares == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert outcome.open_rows == 0
    assert outcome.taken_over_s < 60


def test_a_pool_that_is_told_to_end_gives_back_what_it_runs(outcome: Outcome) -> None:
    told = outcome.told
    assert told.status == 0
    assert told.seconds < 25  # the works may take 30 s; that it did not wait for them, their tries say
    assert told.boxes_left == 0
    assert told.tries == [0, 0]
    assert told.due
