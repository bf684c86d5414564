"""The rights of Redis' users (`users.acl`); a Redis that strangers may use is refused.

One user for the server and one a machine, each with the least it needs, found by watching what Celery, kombu
and our own scripts send. Needs Redis 7, whose users can have permissions by direction (`%R~`, `%W~`) and
selectors. `tests/integration/broker/test_redis_rights.py` plays every command.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit, urlunsplit

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from grading.broker import celery_app
from grading.broker.canaries import ANSWERS, CANARIES, EXAMINATIONS, examination_key
from grading.broker.gateway_requests import KEYS as GATEWAY_REQUESTS
from grading.broker.gateway_requests import gateway_queues
from grading.broker.heartbeats import BACKLOG
from grading.broker.kept_digests import KEPT_DIGESTS
from grading.broker.leases import (
    CURRENT,
    DELIVERIES,
    DRAINED,
    HANDED,
    HEARTBEATS,
    LEASES,
    OVER,
    PLACES,
    RESULTS,
    SPEED_PROFILES,
)
from grading.broker.sentinels import Place, connected_to, sentinels_of
from grading.broker.signing import SERVER, machine_user
from grading.config import redis_url
from grading.config.redis_url import Address, here, place
from grading.config.settings import Config, Machine
from grading.domain.errors import GraderError

NOBODY = "user default off resetkeys resetchannels -@all"
"""Without a name and a password nothing is allowed."""
CONNECTION = (
    *("ping", "hello", "auth", "select", "client|setname", "client|id", "time"),
    *("multi", "exec", "discard", "unwatch"),
)
"""Commands without keys."""


@dataclass(frozen=True)
class Right:
    """Commands that a machine's user may call, and the keys with which: patterns of Redis."""

    commands: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    @property
    def selector(self) -> str:
        """As Redis writes it: a command is allowed if one selector allows it with all its keys."""
        both = [f"%RW~{key}" for key in self.read if key in self.write]
        read = [f"%R~{key}" for key in self.read if key not in self.write]
        write = [f"%W~{key}" for key in self.write if key not in self.read]
        words = " ".join(f"+{command}" for command in self.commands.split())
        return f"({' '.join([words, *both, *read, *write])})"


def _own(commands: str, *keys: str) -> Right:
    return Right(commands, keys, keys)


def lines(config: Config, passwords: dict[str, str]) -> list[str]:
    """A line of users.acl for each user in `passwords`, after the one that shuts everybody else out."""
    return lines_of(config, {user: hashed(password) for user, password in passwords.items()})


def hashed(password: str) -> str:
    """As Redis keeps a password."""
    return hashlib.sha256(password.encode()).hexdigest()


def lines_of(config: Config, hashes: Mapping[str, str]) -> list[str]:
    """The same with the hash of each user's password."""
    made = [NOBODY]
    for user, secret in hashes.items():
        rules = (
            _server(config)
            if user == SERVER
            else _machine(config, config.machine(user.removeprefix(machine_user(""))))
        )
        made.append(
            " ".join(["user", user, "on", f"#{secret}", "resetkeys", "resetchannels", "-@all", *rules])
        )
    return made


def url_of(config: Config, user: str, password: str) -> str:
    """The configured address for another user: what GRADER_REDIS_URL is there."""
    parts = urlsplit(config.redis.url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))


def _server(config: Config) -> list[str]:
    keys = (
        *_with_priorities([*_all_queues(config)]),
        *(
            "machine.*",
            f"{celery_app.INBOX}*",
            "chat.*",
            "unacked*",
            "_kombu.*",
            "celery-*",
            "grader:*",
            "*.celery.pidbox*",
        ),
    )
    allowed = ("read", "write", "pubsub", "connection", "transaction", "scripting")
    return [
        *(f"~{key}" for key in keys),
        "allchannels",
        *(f"+@{category}" for category in allowed),
        "-@admin",
        "-@dangerous",
        "+time",
        "+acl|list",  # counts as dangerous; the doctor finds out whether a replica has the same users
        "+info",  # counts as dangerous; the doctor and the sweeper read from it how Redis is
        "+bgrewriteaof",  # counts as dangerous; erasing a student has their data leave the append-only file
    ]


def _answers(me: str) -> list[Right]:
    """What a machine tells the server, and nobody else may tell in its place."""
    families = (*(f"{family}{me}:*" for family in (RESULTS, OVER, HANDED, EXAMINATIONS)),)
    return [
        Right("lpush", write=(celery_app.inbox(me),)),
        Right("set", write=(*families, f"{ANSWERS}{celery_app.own_queue(me)}")),
        _own("get del", examination_key(me, "block-*")),
    ]


def rights(config: Config, machine: Machine) -> list[Right]:
    """All that a machine's user may do with keys; each with commands of one type, so it keeps that."""
    me = machine.name
    taken, times = celery_app.handed_out(me)
    queues = _with_priorities(celery_app.machine_queues(me, list(machine.stages)))
    gateway_requests = _with_priorities(gateway_queues(machine.stages, machine.embedders))
    stages = _with_priorities(celery_app.stage_queues(list(config.stages)))
    return [
        # its work, and what it took of it
        _own("brpop", *queues, *gateway_requests),
        Right("lindex", read=tuple(queues)),
        Right("llen", read=(*queues, *gateway_requests, *stages, celery_app.own_queue("*"))),
        _own("hset hget hdel watch", taken),
        _own("zadd zrem", times),
        *_answers(me),
        # claims, leases and heartbeats: its own; of the others how many, where, and what they say of
        # themselves
        _own("hset hget hdel", LEASES + me),
        Right("hlen hexists", read=(f"{LEASES}*",)),
        Right("hset hdel", write=(HEARTBEATS + me,)),
        Right("hvals", read=(f"{HEARTBEATS}*",)),
        _own("incr decr expire", f"{DELIVERIES}{me}:*"),
        Right("get", read=(f"{DELIVERIES}*", f"{CURRENT}*")),
        Right("hset expire", write=(f"{PLACES}{me}:*",)),
        Right("hgetall", read=(f"{PLACES}*", BACKLOG)),
        Right("exists", read=(f"{OVER}*", f"{HANDED}*", f"{CURRENT}*")),
        Right("hkeys hexists", read=(DRAINED,)),
        Right("hmget", read=(CANARIES,)),
        Right("mget", read=(f"{ANSWERS}{celery_app.own_queue(me)}",)),
        _own("hset hgetall", SPEED_PROFILES + me),
        _own("hsetnx hget", KEPT_DIGESTS + me),  # not hset or hdel: what changed is for a person to accept
        # a script's keys count as read and written; what it does is held to the rules above
        _own("evalsha", "grader:*", celery_app.own_queue("*")),
        *(_gateway_requests() if gateway_requests else ()),
    ]


def _gateway_requests() -> list[Right]:
    """Their ids are known to who takes them off a queue."""
    ask, reader, held, said = (f"{GATEWAY_REQUESTS}*:{what}" for what in ("ask", "reader", "held", "said"))
    return [
        Right("get pttl", read=(ask,)),
        Right("exists", read=(reader,)),
        Right("set pexpire", write=(held,)),
        Right("rpush pexpire", write=(said,)),
        Right("llen", read=(said,)),
        Right("del", write=(held, said)),
    ]


def _machine(config: Config, machine: Machine) -> list[str]:
    database = redis_url.parse(config.redis.url).database
    events = [f"(+publish &/{database}.celeryev*)"] if config.redis.monitor else []
    selectors = [right.selector for right in rights(config, machine)]
    return [*(f"+{command}" for command in CONNECTION), *selectors, *events]


def _all_queues(config: Config) -> list[str]:
    return [*celery_app.stage_queues(list(config.stages)), celery_app.STORE, *celery_app.SANDBOX_QUEUES]


def _with_priorities(names: Iterable[str]) -> list[str]:
    """Queues as kombu names them in Redis: one list a priority, with two control characters between."""
    return [key for name in names for key in (name, f"{name}??[369]")]


log = logging.getLogger(__name__)
PATIENCE_S = 2.0


class RedisOpen(GraderError):
    """Redis lets everybody in, also from other computers."""

    code = "redis_open"
    status = 503


class RedisUntrusted(GraderError):
    """The certificate of Redis could not be verified."""

    code = "redis_untrusted"
    status = 503


def open_to_strangers(url: str) -> list[str]:
    """The host of Redis, or each of the set and its sentinels, that answers a client which names no password.

    Raises redis errors when Redis, or every sentinel, does not answer.
    """
    address = redis_url.parse(url)
    places = [*address.hosts]
    if address.name:
        sentinels = sentinels_of(address)
        places += [sentinels.discover_master(address.name), *sentinels.replicas()]
    stranger = replace(address, user="", password="", database=0)
    return [place[0] for place in places if _open(stranger, place, must_answer=not address.name)]


def _open(stranger: Address, place: Place, *, must_answer: bool) -> bool:
    try:
        with connected_to(
            stranger, place, socket_connect_timeout=PATIENCE_S, socket_timeout=PATIENCE_S
        ) as client:
            return bool(client.ping())
    except (AuthenticationError, ResponseError):
        return False  # it asked for a password, or lets strangers do nothing
    except RedisError as error:
        if must_answer or untrusted(error):
            raise
        return False


def refuse_open(url: str, *, needed: bool = True) -> None:
    """Raise RedisOpen or RedisUntrusted; a Redis that is away is no reason not to start.

    A process that does its work without Redis, too, starts with a bad certificate (`needed=False`).
    """
    try:
        is_open = open_to_strangers(url)
    except (RedisError, OSError) as error:
        reason = untrusted(error)
        if reason is not None and needed:
            raise RedisUntrusted(reason_sentence(url, reason)) from None
        said = reason_sentence(url, reason) if reason else f"Redis at {place(url)} is unavailable."
        log.warning("%s Continuing, the connection is retried.", said)
        return
    if not all(here(host) for host in is_open):
        raise RedisOpen(
            f"Redis at {place(url)} asks nobody for a password, so everybody who reaches it could read and "
            "forge work. Set requirepass (or `user default off` and ACL users) there and start again."
        )


def untrusted(error: BaseException | None) -> str | None:
    """Why the certificate was not trusted, if that is what went wrong."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None


def reason_sentence(url: str, reason: str) -> str:
    """What to do about a certificate that is not trusted."""
    return (
        f"The certificate of Redis at {place(url)} is not trusted: {reason}. Name its certificate authority "
        "in redis.ca_file, write the host as the certificate names it, and renew it if it has expired."
    )
