"""`grader bench pages`: the time of every page of a large school."""

from __future__ import annotations

import json
import tempfile
import time
import tomllib
from pathlib import Path

import click

from cli.dev.embedded_redis import start_redis

PAGE_S = 2.0
"""A page that is slow is asked for so long, and not as often as others."""
CONFIG = """
[server]
api_per_minute = 100000000
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


@click.command("pages")
@click.option("--submissions", default=100_000, show_default=True, help="Submissions, of 300 students.")
@click.option("--times", default=100, show_default=True, help="Requests per page.")
@click.option("--only", default="", help="Only pages with this text in their name.")
@click.option("--database", help="URL of an empty database; a temporary SQLite by default.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(submissions: int, times: int, only: str, database: str | None, as_json: bool) -> None:
    """Measure the response times of pages."""
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as name:
        folder = Path(name)
        url = database or f"sqlite:///{folder / 'bench.db'}"
        figures, shown = _walk(folder, url, submissions, times, only)
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(shown))


def _walk(
    folder: Path, database: str, submissions: int, times: int, only: str
) -> tuple[dict[str, object], list[str]]:
    from app import Services, create_app
    from bench.pages import dataset, page_times
    from bench.pages.school import Size
    from cli.servers.http import settle
    from grading.broker.dispatch import open_dispatch
    from grading.config.settings import parse
    from grading.store import Store, schema

    schema.upgrade(database)
    store = Store(database)
    began = time.monotonic()
    made = dataset.make(store, Size(submissions=submissions, audit=submissions))
    dataset.add_activity(store, made, min(submissions // 50, 300))
    click.echo(f"Created {submissions} submissions in {time.monotonic() - began:.0f} s.", err=True)
    with start_redis(folder / "redis") as redis:
        config = parse({**tomllib.loads(CONFIG), "redis": {"url": redis.url}})
        services = Services(config, store, open_dispatch(config), secret_key="only for measuring")  # noqa: S106
        timer = page_times.PageTimer(create_app(services), store, made)
        settle()  # as the web process does
        found = list(timer.timed(times, PAGE_S, only))
    store.close()
    slow = [f"{one.endpoint} as {one.role}" for one in found if one.p95_ms > page_times.LIMIT_MS]
    shown = [
        *page_times.lines(found),
        f"not requested: {', '.join(sorted(timer.left_out)) or 'none'}",
        f"p95 above {page_times.LIMIT_MS:g} ms: {', '.join(slow) or 'none'}",
    ]
    figures = {"database": store.engine.dialect.name, "submissions": submissions, "above_limit": slow}
    return {**figures, "pages": [one.as_dict() for one in found]}, shown
