"""Redis users for `users.acl`: one for the server and one a machine, each with the least it needs.

Found by watching what Celery, kombu and our own scripts send; needs Redis 7, whose users can have permissions
by direction (`%R~`, `%W~`) and selectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from urllib.parse import quote, urlsplit, urlunsplit

from grading import queue
from grading.backlog import BACKLOG
from grading.canaries import CANARIES, EXAMINATIONS
from grading.config import Config, Machine
from grading.guests import KEYS as GUESTS
from grading.guests import guest_queues
from grading.leases import DRAINED, LEASES, MACHINES, PACES

SERVER = "server"
NOBODY = "user default off resetkeys resetchannels -@all"
"""Without a name and a password nothing is allowed."""
COMMANDS = (
    # connection, transactions, our scripts and Celery's
    *("ping", "hello", "auth", "select", "client|setname", "client|id", "multi", "exec"),
    *("discard", "watch", "unwatch", "evalsha", "eval", "script|load", "script|exists", "time", "publish"),
    # queues, what was handed out, counts of chords, results, leases
    *("brpop", "rpop", "lpush", "rpush", "llen", "lindex", "hset", "hsetnx", "hget", "hdel", "hgetall"),
    *("hvals", "hkeys", "hexists", "hlen", "zadd", "zrem", "zrange", "zrangebyscore", "zrevrangebyscore"),
    *("zcard", "zcount", "zscore", "set", "setex", "psetex", "get", "mget", "del", "exists", "expire"),
    *("pexpire", "pttl", "incr", "decr", "sadd", "srem", "smembers", "sismember", "scard"),
)
LISTEN = ("subscribe", "psubscribe", "unsubscribe", "punsubscribe")
SHARED = (
    *("unacked", "unacked_index", "unacked_mutex", "_kombu.*", "celery-task-meta-*", "celery-taskset-meta-*"),
    *("grader:current:*", "grader:deliveries:*", "grader:places:*", "grader:handed:*"),
    *(LEASES, MACHINES, CANARIES, f"{EXAMINATIONS}*", f"{GUESTS}*"),
)
"""What every machine reads and writes: kombu and Celery keep one of each for all workers."""


def machine_user(machine: str) -> str:
    """The name of a machine's user."""
    return f"machine.{machine}"


def lines(config: Config, passwords: dict[str, str]) -> list[str]:
    """A line of users.acl for each user in `passwords`, after the one that shuts everybody else out."""
    made = [NOBODY]
    for user, password in passwords.items():
        secret = "#" + hashlib.sha256(password.encode()).hexdigest()
        rules = (
            _server(config)
            if user == SERVER
            else _machine(config, config.machine(user.removeprefix(machine_user(""))))
        )
        made.append(" ".join(["user", user, "on", secret, "resetkeys", "resetchannels", "-@all", *rules]))
    return made


def url_of(config: Config, user: str, password: str) -> str:
    """The configured address for another user: what GRADER_REDIS_URL is there."""
    parts = urlsplit(config.redis.url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))


def _server(config: Config) -> list[str]:
    keys = (
        *_with_priorities([*_all_queues(config)]),
        *("machine.*", "chat.*", "unacked*", "_kombu.*", "celery-*", "grader:*", "*.celery.pidbox*"),
    )
    allowed = ("read", "write", "pubsub", "connection", "transaction", "scripting")
    return [
        *(f"~{key}" for key in keys),
        "allchannels",
        *(f"+@{category}" for category in allowed),
        "-@admin",
        "-@dangerous",
        "+time",
        "+info",  # counts as dangerous; the doctor and the sweeper read from it how Redis is
    ]


def _machine(config: Config, machine: Machine) -> list[str]:
    own = [*queue.machine_queues(machine.name, list(machine.stages)), *guest_queues(machine.stages)]
    database = urlsplit(config.redis.url).path.strip("/") or "0"
    pidbox = f"/{database}.celery.pidbox"
    return [
        *(f"%RW~{key}" for key in (*SHARED, *_with_priorities(own), f"{machine.name}@*.celery.pidbox*")),
        f"%RW~{PACES}{machine.name}",
        f"%R~{DRAINED}",
        f"%R~{BACKLOG}",
        # results, runs handed on, messages that a worker kept too long, answers to operators
        *(f"%W~{key}" for key in (*_with_priorities(_all_queues(config)), "machine.*")),
        "%W~*.reply.celery.pidbox",
        "&celery-task-meta-*",
        f"&/{database}.celeryev*",
        *(f"+{command}" for command in COMMANDS),
        # a script's keys count as written; what it does with them is held to the rules above
        "(+evalsha ~grader:*)",
        # what operators ask all workers is heard; only the server can ask
        f"(&{pidbox} {' '.join(f'+{command}' for command in LISTEN)})",
    ]


def _all_queues(config: Config) -> list[str]:
    return [*queue.stage_queues(list(config.stages)), queue.STORE, *queue.CHECKS_QUEUES]


def _with_priorities(names: Iterable[str]) -> list[str]:
    """Queues as kombu names them in Redis: one list a priority, with two control characters between."""
    return [key for name in names for key in (name, f"{name}??[369]")]
