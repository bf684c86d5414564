"""A Redis with a successor: a primary, a replica and three sentinels on loopback, each with its users."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from cli.dev.embedded_redis import find_redis_server, free_port
from grading.broker import redis_acl, redis_users, signing
from grading.config import settings as configuration
from tests.support.redis_servers import Certificates
from tests.support.system import until

NAME = "grader"
HOST = "localhost"
ADMIN = ("admin", "of-all-servers")
ADMIN_LINE = f"user {ADMIN[0]} on >{ADMIN[1]} ~* &* +@all"
SERVER_PASSWORD = "/password of the server@"
DOWN_AFTER_MS = 3000


@dataclass
class Node:
    """A Redis, or a sentinel, on a port of its own."""

    folder: Path
    port: int
    settings: Sequence[str]
    users: Sequence[str]
    sentinel: bool = False
    tls: Certificates | None = None
    process: subprocess.Popen[bytes] | None = None

    def write(self) -> None:
        """Its configuration and its users, as an operator writes them."""
        self.folder.mkdir(parents=True)
        (self.folder / "users.acl").write_text("\n".join([*self.users, ADMIN_LINE]) + "\n")
        lines = ["bind 127.0.0.1", f"dir {self.folder}", f"logfile {self.folder}/log", *self._listening()]
        lines += [f"aclfile {self.folder}/users.acl", *self.settings]
        (self.folder / "server.conf").write_text("\n".join(lines) + "\n")

    def _listening(self) -> list[str]:
        if self.tls is None:
            return [f"port {self.port}"]
        named = f"{'sentinel' if self.sentinel else 'replica'} announce-ip {HOST}"
        names = ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"] if self.sentinel else []
        return [
            *("port 0", f"tls-port {self.port}", "tls-auth-clients no", "tls-replication yes"),
            *(f"tls-cert-file {self.tls.certificate}", f"tls-key-file {self.tls.key}"),
            *(f"tls-ca-cert-file {self.tls.ca}", *names, named.replace("replica ", "replica-")),
        ]

    def start(self) -> None:
        """Start it with what it wrote into its files meanwhile."""
        words = [find_redis_server(), str(self.folder / "server.conf"), *(["--sentinel"] * self.sentinel)]
        self.process = subprocess.Popen(words, start_new_session=True)
        until(self.answers, 30, f"{self.folder} answers")

    def answers(self) -> bool:
        """Whether it answers its administrator."""
        with suppress(RedisError), self.client() as admin:
            return bool(admin.ping())
        return False

    @contextmanager
    def client(self) -> Iterator[Redis]:
        """An administrator's."""
        user, password = ADMIN
        tls = {"ssl": True, "ssl_ca_certs": str(self.tls.ca)} if self.tls else {}
        with Redis(
            HOST,
            self.port,
            **tls,
            username=user,
            password=password,
            decode_responses=True,
            socket_timeout=5,
            retry=Retry(NoBackoff(), 0),
        ) as made:
            yield made

    def signal(self, which: signal.Signals) -> None:
        """SIGKILL, SIGSTOP or SIGCONT."""
        assert self.process is not None
        os.killpg(self.process.pid, which)
        if which == signal.SIGKILL:
            self.process.wait(60)

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGKILL)


@dataclass
class RedisSet:
    """What runs, and what can be done to it."""

    redis: list[Node]
    sentinels: list[Node]
    config: configuration.Config
    """As the server has it."""
    urls: dict[str, str] = field(default_factory=dict)
    """Of the machines, by name."""

    @property
    def url(self) -> str:
        """The server's address."""
        return self.config.redis.url

    def primary(self) -> Node:
        """Which one most sentinels say it is."""
        said = [port for one in self.sentinels if (port := _said(one)) is not None]
        port = max(said, key=said.count)
        return next(one for one in self.redis if one.port == port)

    def others(self, primary: Node) -> list[Node]:
        """The replicas."""
        return [one for one in self.redis if one is not primary]

    def whole(self) -> bool:
        """Whether all sentinels agree on a primary, whose replica keeps up and is known to them."""
        said = {_said(one) for one in self.sentinels}
        if len(said) != 1 or None in said:
            return False
        with suppress(RedisError, IndexError), self.primary().client() as admin:
            info = admin.info("replication")
            if info["role"] != "master" or info.get("slave0", {}).get("state") != "online":
                return False
            return all(_sees(one) for one in self.sentinels)
        return False

    def until_whole(self) -> None:
        """Wait for that."""
        until(self.whole, 60, "the set is whole")


def _said(sentinel: Node) -> int | None:
    with suppress(RedisError, IndexError), sentinel.client() as admin:
        return int(admin.sentinel_master(NAME)["port"])
    return None


def _sees(sentinel: Node) -> bool:
    with sentinel.client() as admin:
        master, slaves = admin.sentinel_master(NAME), admin.sentinel_slaves(NAME)
    up = [one for one in slaves if not one["is_sdown"] and one["master-link-status"] == "ok"]
    down = master["is_sdown"] or master["is_odown"]
    return master["num-other-sentinels"] == 2 and len(up) == 1 and not down


def cut(node: Node) -> None:
    """Cut a Redis off from its sentinels and its replica, while clients reach it still."""
    with node.client() as admin:
        for user in (redis_users.SENTINEL, redis_users.REPLICA):
            admin.execute_command("ACL SETUSER", user, "off")
            admin.execute_command("CLIENT KILL", "USER", user)


def heal(node: Node) -> None:
    """Undo that."""
    with node.client() as admin:
        for user in (redis_users.SENTINEL, redis_users.REPLICA):
            admin.execute_command("ACL SETUSER", user, "on")
        # sentinels keep connections that were refused
        admin.execute_command("CLIENT KILL", "USER", "default")


@contextmanager
def redis_set(folder: Path, config: str, tls: Certificates | None = None) -> Iterator[RedisSet]:
    """Run one for the machines of this config.toml, whole when given; with `tls` all speak TLS, by names."""
    made = _planned(folder, config, [free_port() for _ in range(5)], tls)
    with ExitStack() as stack:
        for node in (*made.redis, *made.sentinels):
            node.tls = tls
            node.write()
            stack.callback(node.end)
            node.start()
        made.until_whole()
        yield made


def _planned(folder: Path, config: str, ports: Sequence[int], tls: Certificates | None) -> RedisSet:
    path = folder / "set.toml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(config)
    keys = signing.Keyring(SERVER_PASSWORD, users=True)
    hosts = ",".join(f"{HOST}:{port}" for port in ports[2:])
    bare = f"redis+sentinel://server:x@{hosts}/{NAME}/0"
    if tls:
        bare = f"rediss{bare.removeprefix('redis')}?ssl_ca_certs={tls.ca}"
    first = HOST if tls else "127.0.0.1"
    read = configuration.load(path, {"GRADER_REDIS_URL": bare})
    machines = [signing.machine_user(one.name) for one in read.machines]
    secrets = {signing.SERVER: keys.password}
    secrets |= {user: keys.machine_password(user.removeprefix(signing.MACHINE)) for user in machines}
    urls = {
        user: redis_users.with_clients(redis_acl.url_of(read, user, secret), keys)
        for user, secret in secrets.items()
    }
    with_users = configuration.load(path, {"GRADER_REDIS_URL": urls[signing.SERVER]})
    made = redis_users.passwords(keys)
    settings = [
        *("appendonly yes", "appendfsync everysec", 'save ""', "maxmemory-policy noeviction"),
        *(f"masteruser {redis_users.REPLICA}", f"masterauth {made['replica']}"),
        *("repl-diskless-sync-delay 0", "repl-timeout 10", "repl-ping-replica-period 2"),
    ]
    watching = [
        f"sentinel monitor {NAME} {first} {ports[0]} 2",
        f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {NAME} 10000",
        *(line.strip() for line in redis_users.settings_lines(with_users, keys) if "  sentinel" in line),
    ]
    users = [*redis_acl.lines(read, secrets), *redis_users.lines(keys)]
    return RedisSet(
        redis=[
            Node(folder / "primary", ports[0], settings, users),
            Node(
                folder / "replica",
                ports[1],
                [*settings, f"replicaof {first} {ports[0]}"],
                users,
            ),
        ],
        sentinels=[
            Node(folder / f"sentinel-{port}", port, watching, redis_users.sentinel_lines(keys), sentinel=True)
            for port in ports[2:]
        ],
        config=with_users,
        urls={user.removeprefix(signing.MACHINE): urls[user] for user in machines},
    )
