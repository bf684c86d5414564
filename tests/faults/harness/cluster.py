"""A whole system of real processes for fault tests, with everything that can be done to it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import accepts_uploads
from grading.broker.heartbeats import Lease
from grading.store import Store
from tests.faults.harness.broker import Broker, running_broker
from tests.faults.harness.ledger import Ledger, Verdict, verdict
from tests.faults.harness.machines import MachineSpec, config_of
from tests.faults.harness.netns import Link
from tests.faults.harness.proxy import Proxy, running_proxy
from tests.support.fork_server import Process
from tests.support.redis_sets import RedisSet, redis_set
from tests.support.system import Site, count_final, furnish, site, until

SERVER = ("web", "store", "sweep")
STOP_S = 60.0
UPLOADS_AT_ONCE = 4


@dataclass
class Cluster:
    """A running system. What dies by itself is started again; what a test killed stays dead."""

    site: Site
    machines: dict[str, MachineSpec]
    only_redis: Broker | None
    ledger: Ledger
    uploads: ThreadPoolExecutor
    proxies: dict[str, Proxy] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)
    """machine -> the link between it and Redis"""
    redis_set: RedisSet | None = None
    """Instead of a Redis without a successor"""
    deaths: list[tuple[str, int]] = field(default_factory=list)
    """Parts that died by themselves, and their exit status."""
    _ends: threading.Event = field(default_factory=threading.Event)

    @property
    def store(self) -> Store:
        """The database."""
        return self.site.store

    @property
    def broker(self) -> Broker:
        """The Redis, where it has no successor."""
        assert self.only_redis is not None
        return self.only_redis

    # --- parts ----------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a part."""
        parts, machine = self.site.parts, self.machines.get(name)
        if machine is None:
            parts.start(name, name, *(("--var", str(self.site.folder)) if name == "web" else ()))
            return
        prefix = machine.prefix
        if self.redis_set is not None:
            address = {"GRADER_REDIS_URL": self.redis_set.urls[name]}
            parts.start(name, "worker", name, prefix=prefix, environ=address)
            return
        redis, port = self.broker.url, self.broker.process.port
        if name in self.proxies:
            redis = redis.replace(f":{port}/", f":{self.proxies[name].port}/")
        if name in self.links:
            redis = redis.replace(f"@127.0.0.1:{port}/", f"@{self.links[name].address}:{port}/")
            prefix = (*self.links[name].prefix, *prefix)
        parts.start(name, "worker", name, prefix=prefix, environ={"GRADER_REDIS_URL": redis})

    def kill(self, name: str) -> None:
        """kill -9 of its process group; it stays dead."""
        self.site.parts.kill(name)

    def stop(self, name: str) -> subprocess.Popen[bytes] | Process:
        """SIGTERM; the process, which may take a while."""
        process = self.site.parts.running.pop(name)
        process.terminate()
        return process

    def restart(self, name: str) -> None:
        """As a deploy does it: SIGTERM, wait for the end, start."""
        self.stop(name).wait(STOP_S)
        self.start(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP: alive, and does nothing."""
        os.killpg(self.site.parts.running[name].pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        os.killpg(self.site.parts.running[name].pid, signal.SIGCONT)

    def keep_running(self) -> None:
        """Start again what died by itself; the body of a thread."""
        while not self._ends.wait(0.2):
            for name, process in list(self.site.parts.running.items()):
                if process.poll() is not None and self.site.parts.running.get(name) is process:
                    self.deaths.append((name, process.returncode))
                    self.start(name)

    def grader(self, *words: str) -> str:
        """The output of a command."""
        return self.site.parts.output(*words)

    def end(self) -> None:
        """Start nothing again any more."""
        self._ends.set()

    # --- work -----------------------------------------------------------------------------------------

    def submit(self, students: Sequence[str], text: str = "mean(sales)") -> list[Future[str]]:
        """Begin to submit for these students, four at a time."""
        return [self.uploads.submit(self.ledger.submit, student, text) for student in students]

    def submitted(self, students: Sequence[str], text: str = "mean(sales)") -> list[str]:
        """Submit for these students; their submissions once all are accepted."""
        return [one.result() for one in self.submit(students, text)]

    def held_by(self, machine: str) -> list[Lease]:
        """The runs that a machine works on."""
        return [lease for lease in self.site.dispatch.registry.held() if lease.machine == machine]

    def until_busy(self, machine: str, runs: int, timeout_s: float = 90.0) -> set[str]:
        """Wait until a machine works on so many runs; their ids."""
        return self.until_all_busy({machine: runs}, timeout_s)[machine]

    def until_all_busy(self, runs: Mapping[str, int], timeout_s: float = 90.0) -> dict[str, set[str]]:
        """Wait until each machine works on so many runs, all at the same moment; their ids."""

        def held() -> dict[str, set[str]]:
            leases = self.site.dispatch.registry.held()
            by_machine = {name: {one.run_id for one in leases if one.machine == name} for name in runs}
            return by_machine if all(len(by_machine[name]) >= runs[name] for name in runs) else {}

        found: dict[str, set[str]] = until(
            held, timeout_s, f"{runs} are worked on; logs in {self.site.folder}"
        )
        return found

    def until_idle(self, machine: str, timeout_s: float = 90.0) -> None:
        """Wait until a machine sends heartbeats and has nothing in hand."""

        def idle() -> bool:
            heartbeats = [
                b for b in self.site.dispatch.registry.heartbeats() if b.machine == machine and b.alive
            ]
            return bool(heartbeats) and not any(heartbeat.busy for heartbeat in heartbeats)

        until(idle, timeout_s, f"{machine} is idle; logs in {self.site.folder}")

    def until_all_end(self, timeout_s: float) -> Verdict:
        """Wait until everything accepted is graded, partial or failed; the log against SQL."""
        count = len(self.ledger.accepted)
        until(
            lambda: count_final(self.store) >= count,
            timeout_s,
            f"{count} rounds end; logs in {self.site.folder}",
        )
        return verdict(self.store, self.ledger)


@contextmanager
def cluster(
    folder: Path,
    machines: Sequence[MachineSpec],
    database_url: str,
    more: str = "",
    links: Mapping[str, Link] = MappingProxyType({}),
    successor: bool = False,
) -> Iterator[Cluster]:
    """Start a Redis, the server's parts and a worker for each machine; ready for work.

    `more` are sections of config.toml; a machine in `links` is at the far end of its link. With a
    `successor`, Redis is a set with sentinels.
    """
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        broker, successors, config = None, None, config_of(machines, port, more)
        if not successor:
            broker = stack.enter_context(running_broker(folder / "redis"))
        else:
            successors = stack.enter_context(redis_set(folder / "redis", config))
        redis_url = broker.url if broker else successors.url if successors else ""
        made = stack.enter_context(site(folder, config, database_url, redis_url))
        url = f"http://127.0.0.1:{port}"
        ledger = Ledger(url, furnish(made.store, url).token)
        uploads = stack.enter_context(ThreadPoolExecutor(UPLOADS_AT_ONCE))
        running = Cluster(
            made, {machine.name: machine for machine in machines}, broker, ledger, uploads, links=links
        )
        running.redis_set = successors
        for link in links.values():
            running.broker.also = link.address
            running.broker.listen()
        for machine in machines:
            if machine.behind_proxy:
                running.proxies[machine.name] = stack.enter_context(
                    running_proxy(running.broker.process.port)
                )
        for name in (*SERVER, *running.machines):
            running.start(name)
        made.until_alive(*running.machines)
        until(lambda: accepts_uploads(url), 90, f"the web app answers; logs in {folder}")
        keeper = threading.Thread(target=running.keep_running, name="keeper", daemon=True)
        keeper.start()
        try:
            yield running
        finally:
            running.end()
            keeper.join(60)
