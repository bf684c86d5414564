"""What Grader costs beside a bare Celery chord, both measured in turn within one run.

Latency: from the accepted POST to the stored grade with an engine that takes no time, against from sending a
chord to the end of its body. Drain: grades a second while 1,000 waiting submissions are worked off, against
bodies a second of 1,000 waiting chords, the mean of a run before and one after.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from sqlalchemy import func, select

from bench.celery_chord import BareChord, workers
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import System
from cli.settings import Settings
from grader_client import Client
from grading.checks.kinds.code import Uses
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.tables import Round

POLL_S = 0.00025
PATIENCE_S = 300.0
SCRIPT = "sales <- read.csv('sales.csv')\nmean(sales$amount)\n"
IS_GRADED = {
    "sqlite": "select count(*) from rounds where submission_id = ? and current and state = 'graded'",
    "postgresql": "select count(*) from rounds where submission_id = %s and current and state = 'graded'",
}
Submit = Callable[[str], str]
"""Submits for a student; returns the submission's id as soon as the server accepted."""


@dataclass(frozen=True)
class Overhead:
    """Milliseconds and things a second, Grader beside the bare chord."""

    database: str
    samples: int
    bare_p50_ms: float
    bare_p95_ms: float
    grader_p50_ms: float
    grader_p95_ms: float
    latency_ratio: float
    queued: int
    bare_per_s: float
    grader_per_s: float
    drain_ratio: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def latency(store: Store, redis_url: str, submit: Submit, samples: int) -> tuple[list[float], list[float]]:
    """Seconds of bare chords and of submissions, one after the other in turn."""
    bare: list[float] = []
    grader: list[float] = []
    with workers(redis_url):
        chords = BareChord(redis_url)
        for number in range(samples + 5):
            bare.append(chords.seconds(str(number)))
            submission = submit(f"latency-{number}")
            started = time.perf_counter()
            _until_graded(store, submission)
            grader.append(time.perf_counter() - started)
    return bare[5:], grader[5:]


def _until_graded(store: Store, submission: str) -> None:
    """Ask by the driver itself: the bench must not compute on the cores that it measures."""
    deadline = time.perf_counter() + PATIENCE_S
    query = IS_GRADED[store.engine.dialect.name]
    # without a transaction one way to the server is enough
    with (
        closing(store.autocommit_engine.raw_connection()) as connection,
        closing(connection.cursor()) as cursor,
    ):
        while time.perf_counter() < deadline:
            found = cursor.execute(query, (submission,)).fetchone()
            if found == (1,):
                return
            time.sleep(POLL_S)
    raise TimeoutError(f"submission {submission} was not graded")


def drain_bare(redis_url: str, count: int) -> float:
    """Bodies a second while `count` waiting chords are worked off."""
    chords = BareChord(redis_url)
    for number in range(count):
        chords.send(str(number))
    with workers(redis_url):
        ended = [chords.wait() for _ in range(count)]
    return (count - 1) / (max(ended) - min(ended))


def drain(store: Store, submit: Submit, start_machines: Callable[[], None], count: int) -> float:
    """Grades a second while `count` submissions that wait in SQL are worked off."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(submit, (f"drain-{number}" for number in range(count))))
    _until(store, RoundState.QUEUED, count)
    start_machines()
    _until(store, RoundState.GRADED, count)
    with store.read() as session:
        ended = [moment for moment in session.scalars(select(Round.finished_at)) if moment is not None]
    return (count - 1) / (max(ended) - min(ended)).total_seconds()


def _until(store: Store, state: RoundState, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    reached = 0
    while time.monotonic() < deadline:
        with store.read() as session:
            reached = session.execute(select(func.count()).where(Round.state == state)).scalar_one()
        if reached >= count:
            return
        time.sleep(0.25)
    raise TimeoutError(f"{reached} of {count} submissions became {state}")


def summary(
    database: str, times: tuple[Sequence[float], Sequence[float]], rates: tuple[float, float], queued: int
) -> Overhead:
    """The figures of one run."""
    bare, grader = times
    return Overhead(
        database=database,
        samples=len(bare),
        bare_p50_ms=_ms(bare, 50),
        bare_p95_ms=_ms(bare, 95),
        grader_p50_ms=_ms(grader, 50),
        grader_p95_ms=_ms(grader, 95),
        latency_ratio=round(statistics.median(grader) / statistics.median(bare), 2),
        queued=queued,
        bare_per_s=round(rates[0], 1),
        grader_per_s=round(rates[1], 1),
        drain_ratio=round(rates[1] / rates[0], 3),
    )


def _ms(seconds: Sequence[float], percentile: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[percentile - 1] * 1000, 2)


CONFIG = """
[server]
uploads_per_minute = 1000000
api_per_minute = 100000000
"""
MACHINE = """
[[machines]]
name = "{stage}-machine{number}"
slots = 8
[machines.stages]
{stage} = {{ engine = "instant", model = "instant" }}
"""
RUBRIC = Rubric(
    criteria=(
        Criterion(id="code", title="Code", points=60, checks=(Uses(all_of=("mean",)),)),
        Criterion(id="reflection", title="Reflection", points=40, stage="feedback"),
    )
)


@dataclass(frozen=True)
class BenchSystem:
    """A system for one benchmark; `folder` is where its processes stand."""

    system: System
    store: Store
    redis_url: str
    client: Client
    assignment: str
    folder: Path

    def submit(self, student: str) -> str:
        """Submit a small script over HTTP; the id of what was accepted."""
        content = {"work.R": SCRIPT.encode()}
        accepted = self.client.submit(content, self.assignment, student)
        return str(accepted["id"])


@contextmanager
def bench_system(database: str | None, *, machines: bool, pairs: int = 1) -> Iterator[BenchSystem]:
    """A system with so many machines of each stage, in a folder of its own; it ends with the context."""
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as name:
        folder = Path(name)
        described = [
            MACHINE.format(stage=stage, number=f"-{number}" if number else "")
            for stage in ("analysis", "feedback")
            for number in range(pairs)
        ]
        (folder / "config.toml").write_text(CONFIG + "".join(described), encoding="utf-8")
        os.environ["GRADER_DATABASE_URL"] = database or f"sqlite:///{folder / 'bench.db'}"
        settings = Settings(folder / "config.toml")
        with System(
            settings, folder=folder / "var", port=free_port(), own_redis=True, machines=machines
        ) as system:
            store = Store(settings.config.database.url)
            assignment, token = _furnish(store)
            system.until_ready(60)
            client = Client(system.url, token)
            yield BenchSystem(system, store, system.redis_url, client, assignment, folder / "var")
            store.close()


def _furnish(store: Store) -> tuple[str, str]:
    with store.write() as session:
        new = NewVersion("bench", "Benchmark", "r", "at_once", digest="bench", rubric=RUBRIC)
        versions.import_version(session, "bench", new)
        administrator = users.find_user(session, "local", "admin")
        assert administrator is not None
        token = users.create_token(session, administrator.id, "bench", ["submit", "read"], timedelta(hours=6))
    return "bench/bench", token.secret


@click.command("overhead")
@click.option("--samples", default=100, show_default=True, help="Submissions measured one at a time.")
@click.option("--queued", default=1000, show_default=True, help="Submissions of the backlog.")
@click.option("--database", help="URL of an empty database; a temporary SQLite by default.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(samples: int, queued: int, database: str | None, as_json: bool) -> None:
    """Measure the overhead per submission against Celery alone."""
    with bench_system(database, machines=False) as here:
        before = drain_bare(here.redis_url, queued)
        rate = drain(here.store, here.submit, here.system.start_machines, queued)
        bare = (before + drain_bare(here.redis_url, queued)) / 2
        times = latency(here.store, here.redis_url, here.submit, samples)
        kind = here.store.engine.dialect.name
    figures = summary(kind, times, (bare, rate), queued)
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2))
        return
    for name, value in figures.as_dict().items():
        click.echo(f"{name:<16} {value}")
