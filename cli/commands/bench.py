"""`grader bench`: benchmarks, as ratios within one run."""

from __future__ import annotations

import ctypes.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import click

from bench import checks, overhead
from bench.bare_box import BareBox
from cli.commands.bench_pages import bench_pages
from cli.commands.bench_router import bench_router
from cli.commands.submit import Client
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import System
from cli.settings import Settings
from grading.checks.kinds.code import Uses
from grading.config.sandbox import Checks
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from workers.sandbox.backends import open_sandbox
from workers.sandbox.runtimes import find_toolbox

CONFIG = """
[server]
uploads_per_minute = 1000000
api_per_minute = 100000000
[[machines]]
name = "analysis-machine"
slots = 8
[machines.stages]
analysis = { engine = "instant", model = "instant" }
[[machines]]
name = "feedback-machine"
slots = 8
[machines.stages]
feedback = { engine = "instant", model = "instant" }
"""
RUBRIC = Rubric(
    criteria=(
        Criterion(id="code", title="Code", points=60, checks=(Uses(all_of=("mean",)),)),
        Criterion(id="reflection", title="Reflection", points=40, stage="feedback"),
    )
)


@click.group()
def bench() -> None:
    """Benchmarks."""


bench.add_command(bench_router)
bench.add_command(bench_pages)


@bench.command("overhead")
@click.option("--samples", default=100, show_default=True, help="Submissions timed one by one.")
@click.option("--queued", default=1000, show_default=True, help="Submissions worked off.")
@click.option("--database", help="Another database than SQLite in a temporary folder; must be empty.")
@click.option("--json", "as_json", is_flag=True)
def bench_overhead(samples: int, queued: int, database: str | None, as_json: bool) -> None:
    """From the accepted POST to the stored grade, beside a bare Celery chord."""
    with _bench_system(database, machines=False) as here:
        before = overhead.drain_bare(here.redis_url, queued)
        rate = overhead.drain(here.store, here.hand_in, here.system.start_machines, queued)
        bare = (before + overhead.drain_bare(here.redis_url, queued)) / 2
        times = overhead.latency(here.store, here.redis_url, here.hand_in, samples)
        kind = here.store.engine.dialect.name
    figures = overhead.summary(kind, times, (bare, rate), queued)
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2))
        return
    for name, value in figures.as_dict().items():
        click.echo(f"{name:<16} {value}")


@bench.command("checks")
@click.option("--runs", default=200, show_default=True, help="Programs that are run.")
@click.option(
    "--programs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of programs with tests, instead of some made on the spot.",
)
@click.option("--at-once", default=0, help="Programs that run at the same time; one a core if not given.")
@click.option("--json", "as_json", is_flag=True)
def bench_checks(runs: int, programs: Path | None, at_once: int, as_json: bool) -> None:
    """Students' programs in the sandbox, beside bare processes in the same limits."""
    requests = checks.from_folder(programs, runs) if programs else checks.made(runs)
    if not requests:
        raise click.ClickException("there is nothing to run: --programs has no correct/*.py or wrong/*.py")
    settings = Checks()
    sandbox = open_sandbox(settings.sandbox)
    toolbox = find_toolbox("python", settings)
    problem = sandbox.problem() or toolbox.problem
    if problem:
        raise click.ClickException(problem)
    figures = checks.measure(sandbox, BareBox(), lambda _language: toolbox, requests, at_once)
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2))
        return
    for name, value in figures.as_dict().items():
        click.echo(f"{name:<16} {value}")


@bench.command("engines")
@click.option("--models", default="tiny,24m", show_default=True, help="Which of these two.")
@click.option("--quick", is_flag=True, help="Less of everything: a minute instead of nine.")
@click.option(
    "--blas",
    type=click.Choice(["openblas", "as-is"]),
    default="openblas",
    show_default=True,
    help="On a Linux CPU: OpenBLAS where it is installed, which is far faster, or what mlx brings along.",
)
@click.option("--json", "as_json", is_flag=True)
def bench_engines(models: str, quick: bool, blas: str, as_json: bool) -> None:
    """The mlx engine beside a real mlx_lm.server: batches, prefix cache, schemas, same tokens."""
    if blas == "openblas":
        _begin_with_openblas()
    from bench import engines, engines_sides, engines_table

    plan = replace(engines.QUICK if quick else engines.FULL, models=tuple(models.split(",")))
    if unknown := set(plan.models) - set(engines.FULL.models):
        raise click.BadParameter(f"{min(unknown)!r} is none of {', '.join(engines.FULL.models)}.")
    try:
        with _leaving_in_order():
            figures = engines.measure(plan, lambda line: click.echo(line, err=True))
    except ModuleNotFoundError as exc:
        raise click.ClickException(f"{exc.name} is not installed: install Grader's mlx extra.") from exc
    except engines_sides.BenchmarkBroken as exc:
        raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2))
    else:
        click.echo("\n".join(engines_table.lines(figures)))
    if figures.broken:
        raise SystemExit(1)


@contextmanager
def _leaving_in_order() -> Iterator[None]:
    """SIGTERM leaves the block as an exception does, so that what was started in it is ended."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _begin_with_openblas() -> None:
    """Begin this process again with OpenBLAS before all other libraries, where it is there and not yet so."""
    loaded = os.environ.get("LD_PRELOAD", "")
    library = ctypes.util.find_library("openblas") if sys.platform == "linux" else None
    if library is None or "openblas" in loaded:
        return
    os.environ["LD_PRELOAD"] = f"{library}:{loaded}".rstrip(":")
    os.execv(sys.executable, [sys.executable, "-m", "cli", *sys.argv[1:]])  # noqa: S606 - the same program


@dataclass(frozen=True)
class _Here:
    """A system for one benchmark."""

    system: System
    store: Store
    redis_url: str
    client: Client
    assignment: str

    def hand_in(self, student: str) -> str:
        """Hand in a small script over HTTP; the id of what was accepted."""
        content = {"work.R": overhead.SCRIPT.encode()}
        accepted = self.client.submit_bytes(content, self.assignment, student)
        return str(accepted["id"])


@contextmanager
def _bench_system(database: str | None, *, machines: bool) -> Iterator[_Here]:
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as name:
        folder = Path(name)
        (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
        os.environ["GRADER_DATABASE_URL"] = database or f"sqlite:///{folder / 'bench.db'}"
        settings = Settings(folder / "config.toml")
        with System(
            settings, folder=folder / "var", port=free_port(), own_redis=True, machines=machines
        ) as system:
            store = Store(settings.config.database.url)
            assignment, token = _furnish(store)
            system.until_ready(60)
            yield _Here(system, store, system.redis_url, Client(system.url, token), assignment)
            store.close()


def _furnish(store: Store) -> tuple[str, str]:
    with store.write() as session:
        new = NewVersion("bench", "Benchmark", "r", "at_once", digest="bench", rubric=RUBRIC)
        versions.import_version(session, "bench", new)
        administrator = users.find_user(session, "local", "admin")
        assert administrator is not None
        token = users.create_token(session, administrator.id, "bench", ["submit", "read"], timedelta(hours=6))
    return "bench/bench", token.secret
