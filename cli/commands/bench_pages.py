"""`grader bench pages`: what pages cost the web process, of a large school and of many people who wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from cli.dev.embedded_redis import free_port, start_redis
from cli.dev.local_stack import accepts_uploads
from cli.dev.supervisor import part_argv
from cli.settings import secret_key
from grading.domain.errors import GraderError

PAGE_S = 2.0
"""A page that is slow is asked for so long, and not as often as others."""
CONFIG = """
[[machines]]
name = "dgx-spark-1"
slots = 32
[machines.stages]
analysis = { engine = "instant", model = "qwen3-coder:30b" }
[[machines]]
name = "mac-studio-1"
slots = 32
[machines.stages]
feedback = { engine = "instant", model = "gemma3:27b" }
"""


@dataclass(frozen=True)
class Web:
    """A web app of its own, as `grader web` runs it."""

    url: str
    redis_url: str
    key: str
    process: int


@click.command("pages")
@click.option("--waiting", type=click.IntRange(1, 5000), help="Instead: what so many waiting pages cost.")
@click.option("--seconds", default=40.0, show_default=True, help="How long waiting pages are measured.")
@click.option("--submissions", default=100_000, show_default=True, help="Hand-ins of 300 students.")
@click.option("--times", default=100, show_default=True, help="How often each page is asked for.")
@click.option("--only", default="", help="Only pages whose name has this in it.")
@click.option("--database", help="Another database than SQLite in a temporary folder; must be empty.")
@click.option("--json", "as_json", is_flag=True)
def bench_pages(
    waiting: int | None,
    seconds: float,
    submissions: int,
    times: int,
    only: str,
    database: str | None,
    as_json: bool,
) -> None:
    """What pages cost the server, and waiting ones the web process."""
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as name:
        folder = Path(name)
        url = database or f"sqlite:///{folder / 'bench.db'}"
        if waiting:
            figures = _waiting(folder, url, waiting, seconds)
            shown = [f"{key:<16} {value}" for key, value in figures.items()]
        else:
            figures, shown = _walk(folder, url, submissions, times, only)
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(shown))


def _walk(
    folder: Path, database: str, submissions: int, times: int, only: str
) -> tuple[dict[str, object], list[str]]:
    from app import Services, create_app
    from bench.pages import school, things, walk
    from cli.servers.web import settle
    from grading.broker.dispatch import open_dispatch
    from grading.config.settings import parse
    from grading.store import Store, schema

    schema.upgrade(database)
    store = Store(database)
    began = time.monotonic()
    made = school.make(store, school.Size(submissions=submissions, audit=submissions))
    things.more(store, made, min(submissions // 50, 300))
    click.echo(f"made {submissions} hand-ins in {time.monotonic() - began:.0f} s", err=True)
    with start_redis(folder / "redis") as redis:
        config = parse({**tomllib.loads(CONFIG), "redis": {"url": redis.url}})
        services = Services(config, store, open_dispatch(config), secret_key="only for measuring")  # noqa: S106
        walker = walk.Walker(create_app(services), store, made)
        settle()  # as the web process does
        found = list(walker.timed(times, PAGE_S, only))
    store.close()
    shown = [*walk.lines(found), f"not asked for: {', '.join(sorted(walker.left_out)) or 'none'}"]
    figures = {"database": store.engine.dialect.name, "submissions": submissions}
    return {**figures, "pages": [one.as_dict() for one in found]}, shown


def _waiting(folder: Path, database: str, pages: int, seconds: float) -> dict[str, object]:
    from bench.pages import waiting
    from bench.pages.school import Size, make
    from grading.store import Store, schema

    schema.upgrade(database)
    store = Store(database)
    school = make(store, Size(students=pages, assignments=1, submissions=pages, state="queued"))
    try:
        with _web(folder, database) as web:
            found = waiting.measure(store, school, web.url, web.redis_url, web.process, web.key, seconds)
    finally:
        store.close()
    return {"database": store.engine.dialect.name, **found.as_dict()}


@contextmanager
def _web(folder: Path, database: str) -> Iterator[Web]:
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    port, key = free_port(), secret_key(folder)
    with start_redis(folder / "redis") as redis:
        environ = {**os.environ, "GRADER_DATABASE_URL": database, "GRADER_REDIS_URL": redis.url}
        environ["GRADER_SECRET_KEY"] = key
        command = part_argv(
            sys.executable, folder / "config.toml", ("web", "--port", str(port), "--var", str(folder))
        )
        process = subprocess.Popen(command, env=environ, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            _until_it_answers(process, url)
            yield Web(url, redis.url, key, process.pid)
        finally:
            process.terminate()
            process.wait(30)


def _until_it_answers(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 60
    while not accepts_uploads(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise GraderError("The web app did not start; see what it wrote above.")
        time.sleep(0.2)
