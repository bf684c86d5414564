"""What waiting pages cost the web process: many simulated pages that ask as often as it tells them to.

The web app is the product's own; machines are played: they take hand-ins, count tokens and
finish. Measured is the processor time of the web process as a share of one core.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flask import Flask
from flask.sessions import SecureCookieSessionInterface
from redis import Redis
from sqlalchemy import select, update

from bench.pages.school import School, report
from grading.broker import leases
from grading.broker.heartbeats import Beat, Lease
from grading.store import Store, tables
from grading.store.accounts import sessions
from grading.store.accounts import users as accounts
from grading.store.database import now

STAGES = {"analysis": "dgx-spark-1", "feedback": "mac-studio-1"}
AT_WORK = 32
"""Hand-ins in the hands of machines at any time."""
FINISHED_A_SECOND = 0.5
WARM_S = 12.0


@dataclass(frozen=True)
class Waiting:
    """Figures of a run."""

    pages: int
    seconds: float
    core_share: float
    """Of one core, in percent."""
    requests_per_s: float
    not_modified: float
    """Part of the answers that were 304."""
    p95_ms: float
    pauses: dict[int, int]
    """Told pause in seconds -> answers with a body that told it."""
    errors: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Seen:
    """What the pages met; `on` while it is measured."""

    on: bool = False
    statuses: Counter[int] = field(default_factory=Counter)
    pauses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    errors: int = 0


def measure(
    store: Store, school: School, url: str, redis_url: str, web: int, key: str, seconds: float
) -> Waiting:
    """Let a page wait for each hand-in of the school; `web` is the process id of the web app."""
    cookies = _cookies(store, school, key)
    with store.read() as session:
        query = select(tables.Submission.id, tables.Submission.student_id).order_by(tables.Submission.id)
        pages = [(row.id, cookies[row.student_id]) for row in session.execute(query)]
    machines = Machines(store, leases.connect(redis_url))
    seen = Seen()
    with machines:
        spent, lasted = asyncio.run(_wait(url, pages, web, seen, seconds))
    answered = sum(seen.statuses.values())
    times = sorted(seen.times) or [0.0]
    return Waiting(
        pages=len(pages),
        seconds=round(lasted, 1),
        core_share=round(100 * spent / lasted, 1),
        requests_per_s=round(answered / lasted, 1),
        not_modified=round(seen.statuses[304] / max(1, answered), 2),
        p95_ms=round(1000 * times[int(0.95 * (len(times) - 1))], 1),
        pauses=dict(sorted(seen.pauses.items())),
        errors=seen.errors,
    )


def _cookies(store: Store, school: School, key: str) -> dict[int, str]:
    """A session of each student, signed as the app does it."""
    app = Flask("bench")
    app.secret_key = key
    signer = SecureCookieSessionInterface().get_signing_serializer(app)
    assert signer is not None
    with store.write() as session:
        users = session.scalars(select(tables.User).where(tables.User.id.in_(school.students))).all()
        begun = {user.id: sessions.begin(session, user.id) for user in users}
        stamps = {user.id: f"{accounts.session_stamp(user)}:{begun[user.id]}" for user in users}
    made = {
        one: signer.dumps({"_user_id": f"{one}:{stamp}", "_fresh": True}) for one, stamp in stamps.items()
    }
    return {one: str(cookie) for one, cookie in made.items()}


async def _wait(
    url: str, pages: Sequence[tuple[str, str]], web: int, seen: Seen, seconds: float
) -> tuple[float, float]:
    """Processor seconds of the web process, and how long was measured."""
    host, _, port = url.removeprefix("http://").partition(":")
    draw = random.Random(1)
    waiting = [
        asyncio.create_task(_page(host, int(port), name, cookie, draw, seen)) for name, cookie in pages
    ]
    await asyncio.sleep(WARM_S)
    seen.on = True
    before, began = cpu_s(web), time.monotonic()
    await asyncio.sleep(seconds)
    spent, lasted = cpu_s(web) - before, time.monotonic() - began
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return spent, lasted


async def _page(host: str, port: int, name: str, cookie: str, draw: random.Random, seen: Seen) -> None:
    """What status.js does."""
    etag, pause = "", 2.0
    await asyncio.sleep(draw.uniform(0, 5))
    while True:
        began = time.monotonic()
        try:
            status, tag, body = await _ask(host, port, name, cookie, etag)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            seen.errors += seen.on
            await asyncio.sleep(2 * draw.uniform(0.85, 1.15))
            continue
        if seen.on:
            seen.statuses[status] += 1
            seen.times.append(time.monotonic() - began)
            seen.errors += status not in (200, 304)
        if status == 200:
            told = json.loads(body)
            etag, pause = tag, float(told["next_s"])
            seen.pauses[told["next_s"]] += seen.on
            if not pause:
                return
        await asyncio.sleep(pause * draw.uniform(0.85, 1.15))


async def _ask(host: str, port: int, name: str, cookie: str, etag: str) -> tuple[int, str, bytes]:
    """One request on a connection of its own, as when a browser's last one was closed."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        known = f"If-None-Match: {etag}\r\n" if etag else ""
        head = f"GET /submissions/{name}/status.json HTTP/1.1\r\nHost: {host}:{port}\r\n"
        head += f"Cookie: grader={cookie}\r\n"
        agent = (
            "Accept: */*\r\nAccept-Language: en-GB,en;q=0.9\r\nUser-Agent: page\r\nConnection: close\r\n\r\n"
        )
        writer.write(f"{head}{known}{agent}".encode())
        await writer.drain()
        answer = await reader.read()
    finally:
        writer.close()
    headers, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = headers.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in rest if ": " in line)
    return int(first.split()[1]), fields.get("etag", ""), body


def cpu_s(process: int) -> float:
    """Processor seconds of a process and of its children that live. Linux only."""
    return sum(_spent(one) for one in (process, *_children(process)))


def _spent(process: int) -> float:
    parts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> list[int]:
    told = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(one) for one in told.split()]


class Machines:
    """Two machines that take hand-ins, write tokens twice a second, and finish some."""

    def __init__(self, store: Store, redis: Redis) -> None:
        self._store, self._leases = store, leases.Leases(redis)
        self._told: dict[str, Lease] = {}
        self._done = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="machines")

    def __enter__(self) -> Machines:
        self._begin(AT_WORK)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(0.5):
            for stage, machine in STAGES.items():
                pace = {"alone_s": 16.0, "full_s": 60.0, "full": AT_WORK, "tokens": 900.0, "seen": 30.0}
                placed = {stage: {"engine": "ollama", "model": "qwen3-coder:30b"}}
                self._leases.beat(
                    Beat(
                        f"{machine}:1", machine, AT_WORK, AT_WORK, placed, paces={stage: pace}, takes=(stage,)
                    )
                )
            self._told = {run: replace(one, tokens=one.tokens + 11) for run, one in self._told.items()}
            for machine in STAGES.values():
                self._leases.tell([one for one in self._told.values() if one.machine == machine])
            self._done += FINISHED_A_SECOND / 2
            if self._done >= 1:
                self._finish()
                self._begin(1)
                self._done -= 1

    def _begin(self, count: int) -> None:
        with self._store.write() as session:
            query = select(tables.Round).where(tables.Round.state == "queued").order_by(tables.Round.line)
            for round_ in session.scalars(query.limit(count)):
                round_.state, round_.dispatched_at = "running", now(session)
                for stage in round_.stages:
                    run = tables.Run(
                        round_id=round_.id, stage=stage.stage, attempt=1, state="dispatched",
                        dispatched_at=now(session),
                    )  # fmt: skip
                    session.add(run)
                    session.flush()
                    stage.state, stage.run_id = "dispatched", run.id
                    self._claim(run, STAGES[stage.stage])

    def _claim(self, run: tables.Run, machine: str) -> None:
        self._leases.make_current({(run.round_id, run.stage): run.id})
        lease = Lease(
            run.id,
            machine,
            f"{machine}:1",
            run.stage,
            "generating",
            round_id=run.round_id,
            prompt_tokens=3000,
        )
        self._leases.claim(lease, run.round_id)
        self._told[run.id] = lease

    def _finish(self) -> None:
        """The hand-in that was begun first gets its grade, released."""
        first = next(iter(self._told.values())).round_id
        mine = [one for one in self._told.values() if one.round_id == first]
        whole = report()
        with self._store.write() as session:
            round_ = session.get_one(tables.Round, first)
            round_.state, round_.finished_at = "graded", now(session)
            for stage in round_.stages:
                stage.state = "done"
            for run in session.scalars(select(tables.Run).where(tables.Run.round_id == first)):
                run.state, run.accepted, run.finished_at, run.machine = (
                    "done",
                    True,
                    now(session),
                    "dgx-spark-1",
                )
            grade = tables.Grade(
                round_id=first, submission_id=round_.submission_id, points=whole.points, max_points=60,
                points_so_far=whole.points_so_far, final_points=whole.points, created_at=now(session),
                report=whole.model_dump(mode="json"), released_at=now(session),
            )  # fmt: skip
            session.add(grade)
            session.execute(update(tables.Round).where(tables.Round.id == first).values(line=0))
        for one in mine:
            self._leases.finish(self._told.pop(one.run_id))
