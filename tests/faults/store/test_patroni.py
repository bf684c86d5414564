"""Patroni with etcd, by deploy/postgresql/patroni.yml: the primary's host dies, and nobody does anything."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from cli.dev.embedded_redis import free_port
from tests.faults.harness.cluster import cluster
from tests.faults.harness.postgres_pair import as_postgres, postgres_folder
from tests.faults.store.test_failover import MACHINES, told, under_way
from tests.support.services import find_postgres
from tests.support.system import until

NAMES = ("db1", "db2")
PATIENCE_S = 120.0
COMPLETE = (
    "SELECT NOT pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync')"
)


class Host:
    """A host with Patroni and the PostgreSQL that it starts."""

    def __init__(self, name: str, folder: Path, root: Path, etcd: list[str], password: str) -> None:
        self.name, self.folder, self.port = name, folder, free_port()
        self.data = folder / name
        text = (root / "deploy/postgresql/patroni.yml").read_text()
        content: dict[str, Any] = yaml.safe_load(
            text.replace("PASSWORD", password).replace("10.0.0.0/24", "127.0.0.1/32")
        )
        rest = f"127.0.0.1:{free_port()}"
        content |= {"name": name, "etcd3": {"hosts": etcd}}
        content["restapi"] = {"listen": rest, "connect_address": rest}
        here = f"127.0.0.1:{self.port}"
        content["postgresql"] |= {
            "listen": here, "connect_address": here, "data_dir": str(self.data),
            "bin_dir": str(find_postgres()), "pgpass": str(folder / f"{name}.pgpass"),
            "parameters": {"unix_socket_directories": str(folder), "fsync": "off", "shared_buffers": "64MB"},
        }  # fmt: skip
        self.file = folder / f"{name}.yml"
        self.file.write_text(yaml.safe_dump(content))
        self.file.chmod(0o644)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = start(self.folder, self.name, shutil.which("patroni") or "patroni", str(self.file))

    def kill(self) -> None:
        """kill -9 of Patroni and PostgreSQL: the end of the host."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        for link in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if link.resolve() == self.data:
                    os.kill(int(link.parent.name), signal.SIGKILL)


def start(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)}, **as_postgres(),
        )  # fmt: skip


@contextmanager
def running_etcd(folder: Path) -> Iterator[list[str]]:
    """Three of them; their addresses for clients."""
    ports = [(f"etcd{number}", free_port(), free_port()) for number in range(3)]
    members = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, peer, _ in ports)
    processes = []
    try:
        for name, peer, client in ports:
            urls = {"peer": f"http://127.0.0.1:{peer}", "client": f"http://127.0.0.1:{client}"}
            words = [f"--name={name}", f"--data-dir={folder / name}", f"--initial-cluster={members}"]
            words += [f"--listen-{kind}-urls={url}" for kind, url in urls.items()]
            words += [
                f"--advertise-client-urls={urls['client']}",
                f"--initial-advertise-peer-urls={urls['peer']}",
            ]
            processes.append(start(folder, name, "etcd", *words, "--unsafe-no-fsync"))
        yield [f"127.0.0.1:{client}" for _, _, client in ports]
    finally:
        for process in processes:
            process.kill()
            process.wait(60)


def primary_of(hosts: list[Host], password: str) -> Host | None:
    """The host that takes writes, if its replica has all."""
    for host in hosts:
        with suppress(psycopg.OperationalError):
            url = f"postgresql://postgres:{password}@127.0.0.1:{host.port}/postgres"
            with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
                if connection.execute(COMPLETE).fetchone() == (True, 1):
                    return host
    return None


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_patroni_promotes_by_itself_and_nothing_is_lost(tmp_path: Path, root: Path) -> None:
    password = secrets.token_hex(12)
    with postgres_folder() as folder, running_etcd(folder) as etcd:
        hosts = [Host(name, folder, root, etcd, password) for name in NAMES]
        try:
            for host in hosts:
                host.start()
            primary = until(lambda: primary_of(hosts, password), PATIENCE_S, f"a pair; {tail(folder)}")
            address = f"postgresql://postgres:{password}@127.0.0.1:{primary.port}/postgres"
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("CREATE DATABASE grader")
            both = ",".join(f"127.0.0.1:{host.port}" for host in hosts)
            _play(tmp_path, hosts, password, f"postgresql://postgres:{password}@{both}/grader")
        finally:
            for host in hosts:
                if host.process is not None:
                    host.kill()


def _play(folder: Path, hosts: list[Host], password: str, url: str) -> None:
    times = []
    with cluster(folder, MACHINES, url) as running:
        with under_way(running) as hand_ins:
            for _ in range(3):
                primary = until(lambda: primary_of(hosts, password), PATIENCE_S, "a pair")
                hand_ins.until_more(15)
                fault = time.monotonic()
                primary.kill()
                # what was accepted a moment ago was committed before the fault
                times.append(1 + hand_ins.first_after(fault + 1))
                primary.start()
            hand_ins.until_more(15)
        found = running.until_all_end(180)
        print(f"\nPatroni: {found.row()}; accepted again after {', '.join(f'{one:.0f}' for one in times)} s")
        assert found.clean
        assert not running.deaths
        assert not told(running)


def tail(folder: Path) -> str:
    """The end of each log."""
    return "\n".join(f"{log.name}: {log.read_text()[-800:]}" for log in sorted(folder.glob("*.log")))
