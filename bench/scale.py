"""`grader bench scale`: what a submission, a request and a machine cost, as counts and processor seconds.

Counts do not depend on how busy the computer is, and seconds of a processor hardly do. What happens without
work in the same time is measured before and taken away.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import redis
import requests
from sqlalchemy import func, select, text

from bench.overhead import BenchSystem, bench_system
from cli.dev.supervisor import processes
from cli.tables import show, table
from grading.domain.round_states import RoundState
from grading.scheduling.term import Rush
from grading.store.tables import Round

TICKS_S = 1.0 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
SETTLED_S = 2.5
"""PostgreSQL tells its counters at most once a second, and idle connections later."""
PATIENCE_S, REQUEST_S = 500.0, 60.0
DATABASE_SQL = text(
    "SELECT xact_commit, tup_inserted, tup_updated, tup_deleted, tup_fetched, pg_database_size(datname), "
    "pg_current_wal_lsn() - '0/0' FROM pg_stat_database WHERE datname = current_database()"
)
DATABASE_COUNTERS = (
    "transactions",
    "rows inserted",
    "rows updated",
    "rows deleted",
    "rows fetched",
    "bytes on disk",
    "bytes of WAL",
)
SCHOOL_SUBMISSIONS, SCHOOL_MACHINES = 200, 4
"""Of one deadline of this school, and its machines."""
FACTORS = (1, 100, 1000)
LAST_H = 1 / 6
Counters = Mapping[str, float]


def cpu_s(pid: int) -> float:
    """Processor seconds of a process and of its children that ended; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) * TICKS_S


def children(pid: int) -> list[int]:
    """Pids whose parent it is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.parent.name))
    return found


@dataclass(frozen=True)
class Probe:
    """Reads all counters of a running system."""

    system: BenchSystem

    def read(self) -> dict[str, float]:
        """Name -> its value by now."""
        return {**self._parts(), **self._redis(), **self._database(), "seconds": time.monotonic()}

    def _parts(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, pid in processes(self.system.folder).items():
            part = re.sub(r"-.*", "", name)
            found[f"{part} cpu"] = found.get(f"{part} cpu", 0.0) + cpu_s(pid)
        return found

    def _redis(self) -> dict[str, float]:
        info: dict[str, Any] = redis.Redis.from_url(self.system.redis_url).info("all")
        return {
            "redis cpu": info["used_cpu_user"] + info["used_cpu_sys"],
            "redis commands": info["total_commands_processed"],
            "redis bytes in": info["total_net_input_bytes"],
            "redis bytes out": info["total_net_output_bytes"],
        }

    def _database(self) -> dict[str, float]:
        store = self.system.store
        if store.engine.dialect.name == "sqlite":
            folder = Path(str(store.engine.url.database)).parent
            return {"bytes on disk": float(sum(one.stat().st_size for one in folder.glob("bench.db*")))}
        with store.read() as session:
            row = session.execute(DATABASE_SQL).one()
            backend = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        counters = dict(zip(DATABASE_COUNTERS, map(float, row), strict=True))
        return {**counters, "postgres cpu": _tree_cpu_s(backend)}


def _tree_cpu_s(backend: int) -> float:
    """Of the server whose process this is, if it runs on this computer."""
    try:
        fields = Path(f"/proc/{backend}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    server = int(fields[1])
    return cpu_s(server) + sum(map(cpu_s, children(server)))


def difference(before: Counters, after: Counters) -> dict[str, float]:
    """What was added."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def without(used: Counters, idle: Counters, count: int) -> dict[str, float]:
    """Of one of `count`, less what as much idle time costs."""
    share = used["seconds"] / idle["seconds"] if idle["seconds"] else 0.0
    return {
        name: max(0.0, value - share * idle.get(name, 0.0)) / count
        for name, value in used.items()
        if name != "seconds"
    }


@dataclass(frozen=True)
class Measured:
    """What was found; bytes, counts, seconds of a processor."""

    database: str
    cores: int
    submissions: int
    submission: Counters
    """Of one, from the request to the grade."""
    requests: Mapping[str, Counters]
    """Of one request: by the API, of a page, and of what a page asks for while it waits."""
    idle: Mapping[int, Counters]
    """Machines -> of one second without any work."""


def measure(database: str | None, submissions: int, count: int, idle_s: float, pairs: int) -> Measured:
    """Start a system with two machines and measure all of it; then the idle time of two with more."""
    with bench_system(database, machines=True) as system:
        probe = Probe(system)
        _submit(system, 20, "warm")  # connections, caches, templates
        idle = _over(probe, partial(time.sleep, idle_s))
        used = _over(probe, partial(_submit, system, submissions, "student"))
        looks = _looks(system)
        asked = {
            name: without(_over(probe, partial(_repeat, look, count)), idle, count)
            for name, look in looks.items()
        }
        dialect = system.store.engine.dialect.name
    more = {2 * n: _idle(n, idle_s) for n in (pairs, 2 * pairs)}
    return Measured(
        dialect,
        os.cpu_count() or 1,
        submissions,
        without(used, idle, submissions),
        asked,
        {2: a_second(idle), **more},
    )


def _idle(pairs: int, idle_s: float) -> dict[str, float]:
    with bench_system(None, machines=True, pairs=pairs) as system:
        return a_second(_over(Probe(system), partial(time.sleep, idle_s)))


def _repeat(look: Callable[[], object], count: int) -> None:
    for _ in range(count):
        look()


def _looks(system: BenchSystem) -> dict[str, Callable[[], object]]:
    """Requests of one graded submission: by a token, and as the administrator who signed in."""
    identifier = system.submit("looks")
    browser, site = requests.Session(), system.system.url
    form = browser.get(f"{site}/sign-in", timeout=REQUEST_S).text
    token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', form)
    assert token is not None
    browser.post(
        f"{site}/sign-in",
        data={"csrf_token": token[1], "name": "admin", "password": system.system.first_password},
        timeout=REQUEST_S,
    ).raise_for_status()

    def get(path: str) -> None:
        headers = {"If-None-Match": '"0"'} if path.endswith(".json") else {}
        address = f"{site}/submissions/{identifier}{path}"
        answer = browser.get(address, headers=headers, timeout=REQUEST_S, allow_redirects=False)
        if answer.status_code != 200:
            raise click.ClickException(f"{address} answered {answer.status_code}.")

    return {
        "API": lambda: system.client.submission(identifier),
        "page": lambda: get(""),
        "live": lambda: get("/status.json"),
    }


def a_second(used: Counters) -> dict[str, float]:
    """Of each second."""
    return {name: value / used["seconds"] for name, value in used.items() if name != "seconds"}


def _over(probe: Probe, work: Callable[[], None]) -> dict[str, float]:
    time.sleep(SETTLED_S)
    before = probe.read()
    work()
    time.sleep(SETTLED_S)
    return difference(before, probe.read())


def _submit(system: BenchSystem, count: int, name: str) -> None:
    """Submit from eight clients, and wait until all are graded."""
    graded = _graded(system)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(system.submit, (f"{name}-{number}" for number in range(count))))
    deadline = time.monotonic() + PATIENCE_S
    while _graded(system) < graded + count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} submissions were not graded within {PATIENCE_S:g} s")
        time.sleep(0.5)


def _graded(system: BenchSystem) -> int:
    with system.store.read() as session:
        return session.execute(select(func.count()).where(Round.state == RoundState.GRADED)).scalar_one()


def machines_cost(idle: Mapping[int, Counters], name: str, machines: int) -> float:
    """A second, of so many idle machines: the parabola through three numbers of them.

    What each machine tells grows with their number, what each reads of all others with its square.
    """
    found = 0.0
    for here, counters in idle.items():
        factor = counters.get(name, 0.0)
        for other in idle:
            if other != here:
                factor *= (machines - other) / (here - other)
        found += factor
    return max(0.0, found)


@dataclass(frozen=True)
class Needed:
    """What a school so many times this one needs in the last ten minutes before a deadline."""

    factor: int
    a_second: float
    """Submissions."""
    machines: int
    cores: Mapping[str, float]
    """Part -> cores in use, of submissions and of machines that only report."""
    transactions: float
    redis_commands: float
    redis_mb: float
    """Bytes out of Redis a second, of machines that read each other, in MB."""
    disk_gb: float
    """Of all submissions of one deadline."""


PARTS = ("web", "store", "sweep", "postgres", "redis")


def needed(measured: Measured, factor: int) -> Needed:
    """Scaled: submissions by their rate, machines by their number."""
    submissions, machines = SCHOOL_SUBMISSIONS * factor, SCHOOL_MACHINES * factor
    rate = submissions * Rush().share(LAST_H) / (LAST_H * 3600)
    one = measured.submission

    def of(name: str) -> float:
        return rate * one.get(name, 0.0)

    cores = {part: of(f"{part} cpu") for part in PARTS}
    cores["redis"] += machines_cost(measured.idle, "redis cpu", machines)
    commands = of("redis commands") + machines_cost(measured.idle, "redis commands", machines)
    megabytes = (of("redis bytes out") + machines_cost(measured.idle, "redis bytes out", machines)) / 1e6
    disk_gb = submissions * one.get("bytes on disk", 0.0) / 1e9
    return Needed(factor, rate, machines, cores, of("transactions"), commands, megabytes, disk_gb)


@click.command("scale")
@click.option("--submissions", default=200, show_default=True, help="Submissions measured.")
@click.option("--requests", "count", default=200, show_default=True, help="Requests measured of each kind.")
@click.option("--idle", default=20.0, show_default=True, help="Seconds without work that are measured.")
@click.option("--pairs", default=4, show_default=True, help="Pairs of machines; then twice as many.")
@click.option("--database", help="URL of an empty database; a temporary SQLite by default.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    submissions: int, count: int, idle: float, pairs: int, database: str | None, as_json: bool
) -> None:
    """Count what a submission costs the server, and scale it."""
    measured = measure(database, submissions, count, idle, pairs)
    scaled = [needed(measured, factor) for factor in FACTORS]
    if as_json:
        click.echo(json.dumps({**asdict(measured), "needed": [asdict(one) for one in scaled]}, indent=2))
        return
    click.echo(f"{measured.database}, {measured.cores} cores, {measured.submissions} submissions")
    asked = (f"a request:\n{name}" for name in measured.requests)
    counts = table("", "a submission", *asked, *(f"a second:\n{n} machines" for n in measured.idle))
    for name in sorted(measured.submission):
        rows = (measured.submission, *measured.requests.values(), *measured.idle.values())
        counts.add_row(name, *(_figure(name, row.get(name, 0.0)) for row in rows))
    show(counts)
    click.echo()
    _show_needed(scaled)


def _figure(name: str, value: float) -> str:
    return f"{1000 * value:.2f} ms" if name.endswith(" cpu") else f"{value:,.1f}"


def _show_needed(scaled: Sequence[Needed]) -> None:
    columns = [f"{one.factor:,} times" for one in scaled]
    rows = table("in the last ten minutes", *columns)
    rows.add_row("submissions/s", *(f"{one.a_second:,.2f}" for one in scaled))
    rows.add_row("machines", *(f"{one.machines:,}" for one in scaled))
    for part in PARTS:
        rows.add_row(f"{part}, cores", *(f"{one.cores[part]:,.3f}" for one in scaled))
    rows.add_row("transactions/s", *(f"{one.transactions:,.1f}" for one in scaled))
    rows.add_row("Redis commands/s", *(f"{one.redis_commands:,.0f}" for one in scaled))
    rows.add_row("Redis out, MB/s", *(f"{one.redis_mb:,.2f}" for one in scaled))
    rows.add_row("on disk a deadline, GB", *(f"{one.disk_gb:,.3f}" for one in scaled))
    show(rows)
