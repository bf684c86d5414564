"""`grader bench years`: pages, lists and the sweeper on years of data, and the database's work for them."""

from __future__ import annotations

import json
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from bench.pages.command import CONFIG, PAGE_S
from bench.years import statements
from cli.dev.embedded_redis import start_redis

PER_COURSE, PER_PERSON, COURSES_EACH = 25_000, 125, 5
"""Submissions of a course, of a person; courses of a person: 200 courses and 40,000 people at 5 million."""

TURNS = 2
"""In which all pages are asked for: a walk with all roles takes minutes."""


@click.command("years")
@click.option("--database", required=True, help="URL of a PostgreSQL database, empty or filled by this.")
@click.option(
    "--submissions", default=500_000, show_default=True, help="Submissions to make where it is empty."
)
@click.option("--times", default=20, show_default=True, help="Requests per page; 0: no times.")
@click.option("--only", default="", help="Only pages with this text in their name.")
@click.option(
    "--waiting",
    default=1_000,
    show_default=True,
    help="Open rounds of a second look at the sweeper; 0: none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(database: str, submissions: int, times: int, only: str, waiting: int, as_json: bool) -> None:
    """Measure pages, the sweeper and sizes with years of data."""
    from grading.store import Store, schema

    schema.upgrade(database)
    with tempfile.TemporaryDirectory(prefix="grader-years-") as folder, closing(Store(database)) as store:
        figures = _figures(Path(folder), store, submissions, times, only, waiting)
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(_lines(figures)))


def _figures(
    folder: Path, store: Any, submissions: int, times: int, only: str, waiting: int
) -> dict[str, Any]:
    from app import Services, create_app
    from bench.pages import page_times
    from bench.years import sweeps
    from cli.servers.http import settle
    from grading.broker.dispatch import open_dispatch
    from grading.config.settings import parse

    made = _school(store, submissions)
    with start_redis(folder / "redis") as redis:
        config = parse({**tomllib.loads(CONFIG), "redis": {"url": redis.url}, "database": {"url": store.url}})
        services = Services(config, store, open_dispatch(config), secret_key="only for measuring")  # noqa: S106
        timer = page_times.PageTimer(create_app(services), store, made, page_times.EVERYBODY)
        timer.processor = statements.processor_clock(store)
        settle()  # as the web process does
        found = [one for one in timer.timed(times, PAGE_S, only, TURNS) if one.status == HTTPStatus.OK]
        pages = [{**asdict(one), **asdict(_page_work(store, timer, one))} for one in found]
        swept = [] if only else [asdict(one) for one in sweeps.measure(config, store)]
        if waiting:
            with sweeps.open_rounds(store, waiting):
                swept += [
                    {**asdict(one), "what": f"{one.what} with {waiting} open rounds"}
                    for one in sweeps.measure(config, store)
                ]
    with store.engine.connect() as connection:
        sizes = statements.sizes(connection)
    return {"submissions": submissions, "pages": pages, "sweeps": swept, "tables": sizes}


def _school(store: Any, submissions: int) -> Any:
    """The school that is there, or a new one."""
    from bench.pages import dataset
    from bench.pages.school import Size

    with store.read() as session:
        known = dataset.find(session)
    if known is not None:
        return known
    began = time.monotonic()
    size = Size(
        submissions=submissions, students=max(2 * COURSES_EACH, submissions // PER_PERSON),
        courses=max(1, submissions // PER_COURSE // COURSES_EACH) * COURSES_EACH, each=COURSES_EACH,
        audit=submissions // 2, full=min(submissions, 2_000),
    )  # fmt: skip
    made = dataset.make(store, size)
    dataset.add_activity(store, made, min(submissions // 50, 300))
    click.echo(f"Created {submissions} submissions in {time.monotonic() - began:.0f} s.", err=True)
    return made


def _page_work(store: Any, timer: Any, page: Any) -> statements.Work:
    """What the database does for a page that is asked for once more."""
    url = dict(timer.pages())[page.endpoint]
    with statements.sent(store) as asked:
        timer.ask(page.role, url)
    with store.autocommit_engine.connect() as connection:
        return sum(statements.work_of(connection, asked), start=statements.Work())


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    head = f"{'page':<36} {'role':<8} {'queries':>7} {'p50 ms':>8} {'p95 ms':>8}"
    yield head + f" {'processor':>9} {'buffers':>8} {'rows':>9}"
    for one in sorted(figures["pages"], key=lambda one: -one["p95_ms"]):
        times = f"{one['p50_ms']:>8.1f} {one['p95_ms']:>8.1f} {one['processor_p95_ms']:>9.1f}"
        yield (
            f"{one['endpoint']:<36} {one['role']:<8} {one['queries']:>7} {times}"
            f" {one['buffers']:>8} {one['rows']:>9}"
        )
    for one in figures["sweeps"]:
        work = f"{one['queries']} queries, {one['buffers']} buffers, {one['rows']} rows"
        times = f"{one['seconds']:>7.3f} s, processor {one['processor_s']:.3f} s"
        yield f"sweep: {one['what']:<52} {times}, {work}"
    yield f"{'table':<28} {'rows':>12} {'MiB':>9} {'of indexes':>10}"
    for name, rows, data, indexes in figures["tables"]:
        yield f"{name:<28} {rows:>12} {(data + indexes) / 2**20:>9.0f} {indexes / 2**20:>10.0f}"
