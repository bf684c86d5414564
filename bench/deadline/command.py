"""`grader bench deadline`: the evening of a deadline, with every process of the server for real."""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.deadline.people import Evening, Notes, everybody
from bench.deadline.server import LOST, School, opened

FILE = Path(__file__).parents[2] / "samples" / "submissions" / "sales-cleaning" / "good.ipynb"
FINISH_S = 1800.0


@dataclass(frozen=True)
class Plan:
    """What is played."""

    people: int
    minutes: float
    watch_s: float
    hosts: int
    proxy: str
    lose: bool
    database: str


@click.command("deadline")
@click.option("--people", default=300, show_default=True, help="People; each submits once.")
@click.option("--minutes", default=2.0, show_default=True, help="Time in which all submit.")
@click.option("--watch", default=60.0, show_default=True, help="Seconds after that in which all look on.")
@click.option("--hosts", default=1, show_default=True, type=click.IntRange(1, 2), help="Web hosts.")
@click.option(
    "--proxy",
    default="none",
    show_default=True,
    type=click.Choice(["none", "caddy", "nginx"]),
    help="What stands before them; with none, clients alternate.",
)
@click.option("--lose", is_flag=True, help="Kill a host, Redis and a store worker halfway.")
@click.option("--database", default="", help="URL of an empty database; a temporary SQLite by default.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool, watch: float, **options: Any) -> None:
    """Let many people submit shortly before a deadline."""
    plan = Plan(watch_s=watch, **options)
    with tempfile.TemporaryDirectory(prefix="grader-deadline-") as name, ExitStack() as stack:
        school = stack.enter_context(opened(Path(name), plan.people, plan.hosts, plan.proxy, plan.database))
        figures = _play(plan, school)
    click.echo(json.dumps(figures, indent=2) if as_json else "\n".join(_lines(figures)))


def _play(plan: Plan, school: School) -> dict[str, Any]:
    trust = None
    if school.certificate:
        trust = ssl.create_default_context(cafile=school.certificate)
    evening = Evening(
        school.urls, school.assignment, (FILE.name, FILE.read_bytes()), plan.minutes, plan.watch_s, trust
    )
    notes, begun = Notes(), time.monotonic()
    at_deadline = _at(begun + evening.seconds, school.cpu_s)
    lost_at = _at(begun + evening.seconds / 2, school.lose) if plan.lose else None
    asyncio.run(everybody(school.cookies, evening, begun, notes))
    watched, after = time.monotonic() - begun - evening.seconds, school.cpu_s()
    cpu = {name: (after[name] - at_deadline()[name]) / watched for name in after if name in at_deadline()}
    school.finish(FINISH_S)
    recovered = max((at for at in notes.failed_at), default=0.0)
    lost = {"after_s": round(max(0.0, recovered - lost_at()), 1), "what": LOST} if lost_at else None
    return {
        "people": plan.people,
        "hosts": plan.hosts,
        "proxy": plan.proxy,
        "database": school.store.engine.dialect.name,
        "accepted": len(notes.accepted),
        "refused": notes.refused[:5],
        **school.verdict(notes.accepted),
        "accept_s": _spread(notes.accept_s),
        "answer_s": _spread(notes.answer_s),
        "status_s": _spread(notes.status_s),
        "status_requests": notes.polls,
        "failed_requests": dict(notes.failed),
        "cores_of_a_host_while_all_watch": {name: round(cores, 2) for name, cores in cpu.items()},
        "killed": lost,
    }


def _at(moment: float, act: Callable[[], Any]) -> Callable[[], Any]:
    """Do something at a moment, beside everything else; what it gave, once it is over."""
    found: list[Any] = []

    def later() -> None:
        time.sleep(max(0.0, moment - time.monotonic()))
        found.append(act())

    thread = threading.Thread(target=later)
    thread.start()

    def result() -> Any:
        thread.join()
        return found[0]

    return result


def _spread(found: list[float]) -> dict[str, float]:
    ordered = sorted(found) or [0.0]
    last = len(ordered) - 1
    return {
        name: round(ordered[min(last, int(share * len(ordered)))], 3)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("worst", 1.0))
    }


def _lines(figures: dict[str, Any]) -> list[str]:
    width = max(map(len, figures))
    return [f"{name.replace('_', ' '):<{width}}  {value}" for name, value in figures.items()]
