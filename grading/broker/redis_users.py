"""Users of a Redis with a successor, and of its sentinels, brought to each: Redis replicates no users.

A user that is missing on the replica is found out when it becomes the primary, on the evening of a deadline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from redis import Redis
from redis.exceptions import RedisError

from grading.broker import redis_acl
from grading.broker.sentinels import Place, connected_to, sentinels_of
from grading.broker.signing import MACHINE, SERVER, Keyring, machine_user
from grading.config import redis_url
from grading.config.redis_url import Address
from grading.config.settings import Config
from grading.domain.errors import GraderError

REPLICA, SENTINEL, CLIENTS = "replica", "sentinel", "clients"
OF_REPLICA = "resetchannels -@all +ping +psync +replconf"
OF_SENTINEL = (
    "allchannels -@all +ping +info +role +multi +exec +slaveof +config|rewrite +client|kill +client|setname "
    "+script|kill +publish +subscribe"
)
AMONG_SENTINELS = (
    "allchannels -@all +auth +hello +ping +info +client|setname +publish +subscribe "
    "+sentinel|is-master-down-by-addr"
)
OF_CLIENTS = (
    "resetchannels -@all +auth +hello +ping +client|setname +client|id +sentinel|master +sentinel|replicas "
    "+sentinel|slaves +sentinel|sentinels"
)
HASH = re.compile(r"#([0-9a-f]{64})")


class UsersNotInstalled(GraderError):
    """A Redis or a sentinel did not take the users."""

    code = "redis_users_not_installed"

    def __init__(self, message: str, new: Mapping[str, str] | None = None) -> None:
        """`new`: new passwords, by user, which some of them took; nobody can find them out later."""
        super().__init__(message)
        self.new = new or {}


def passwords(keys: Keyring) -> dict[str, str]:
    """Of the users beside server and machines, by who uses them; made of the server's, always the same."""
    names = {"replica": REPLICA, "sentinel": SENTINEL, "among sentinels": SENTINEL, "clients": CLIENTS}
    return {who: keys.password_of(who) for who in names}


def lines(keys: Keyring) -> list[str]:
    """The users of each Redis of a set that are neither the server nor machines."""
    made = passwords(keys)
    return [
        _line(REPLICA, made["replica"], OF_REPLICA),
        _line(SENTINEL, made["sentinel"], OF_SENTINEL),
    ]


def sentinel_lines(keys: Keyring) -> list[str]:
    """The users of each sentinel: users.acl there."""
    made = passwords(keys)
    return [
        redis_acl.NOBODY,
        _line(SENTINEL, made["among sentinels"], AMONG_SENTINELS),
        _line(CLIENTS, made["clients"], OF_CLIENTS),
    ]


def _line(user: str, password: str, rules: str) -> str:
    return f"user {user} on #{redis_acl.hashed(password)} resetkeys {rules}"


def settings_lines(config: Config, keys: Keyring) -> list[str]:
    """What redis.conf and sentinel.conf say with the passwords of these users."""
    made, name = passwords(keys), redis_url.parse(config.redis.url).name
    return [
        "redis.conf of each Redis:",
        f"  masteruser {REPLICA}",
        f"  masterauth {made['replica']}",
        "sentinel.conf of each sentinel:",
        f"  sentinel auth-user {name} {SENTINEL}",
        f"  sentinel auth-pass {name} {made['sentinel']}",
        f"  sentinel sentinel-user {SENTINEL}",
        f"  sentinel sentinel-pass {made['among sentinels']}",
    ]


def with_clients(url: str, keys: Keyring) -> str:
    """The address with the user and the password that clients have at sentinels."""
    return redis_url.with_query(url, sentinel_username=CLIENTS, sentinel_password=passwords(keys)["clients"])


def places(address: Address) -> list[Place]:
    """Every Redis of the set, the primary first. Raises redis errors."""
    sentinels = sentinels_of(address)
    primary = sentinels.discover_master(address.name)
    return [primary, *(place for place in sentinels.replicas() if place != primary)]


def listed(client: Redis) -> dict[str, str]:
    """user -> its line, as this Redis has it. Raises redis errors."""
    rows = [str(row) for row in client.acl_list()]
    return {row.split(" ", 2)[1]: row for row in rows}


def alike(line: str, other: str) -> bool:
    """Whether these are the same user: every Redis lists the commands of one in an order of its own."""
    return sorted(re.split(r"[ ()]+", line)) == sorted(re.split(r"[ ()]+", other))


def of_this_system(users: Mapping[str, str]) -> dict[str, str]:
    """Those that `grader redis acl` makes."""
    ours = (SERVER, REPLICA, SENTINEL)
    return {name: line for name, line in users.items() if name in ours or name.startswith(MACHINE)}


def install(
    config: Config, keys: Keyring, admin: tuple[str, str], renew: Sequence[str] = ()
) -> dict[str, str]:
    """Give every Redis of the set and every sentinel its users; what `admin` (user, password) may.

    Machines keep the passwords that they have on the primary, but for those in `renew`. Returns the passwords
    that are new, by user. Raises UsersNotInstalled, which names the first that did not take them.
    """
    address = redis_url.parse(config.redis.url)
    address = replace(address, sentinel_user=admin[0], sentinel_password=admin[1])
    try:
        found = places(address)
    except RedisError as error:
        raise UsersNotInstalled(
            f"The sentinels do not say which Redis there are: {error}. Each needs an administrator "
            f"{admin[0]} with this password."
        ) from None
    with _as_admin(address, found[0], admin) as client:
        there = listed(client)
    kept = _kept(there, config, keys, renew)
    names = [machine_user(one.name) for one in config.machines]
    new = {user: keys.machine_password(user.removeprefix(MACHINE)) for user in names if user not in kept}
    secrets = {SERVER: redis_acl.hashed(keys.password), **kept}
    secrets |= {user: redis_acl.hashed(password) for user, password in new.items()}
    wanted = [*redis_acl.lines_of(config, secrets), *lines(keys)]
    for place in found:
        with _as_admin(address, place, admin, new) as client:
            _give(client, wanted)
    for place in address.hosts:
        with _as_admin(address, place, admin, new, database=0) as client:
            _give(client, sentinel_lines(keys))
    return new


def _kept(there: Mapping[str, str], config: Config, keys: Keyring, renew: Sequence[str]) -> dict[str, str]:
    """Hashes of the passwords of machines that stay: those made of the server's password of now."""
    server = HASH.findall(there.get(SERVER, ""))
    if server != [redis_acl.hashed(keys.password)]:
        return {}
    names = [machine_user(one.name) for one in config.machines if one.name not in renew]
    return {name: of[0] for name in names if (of := HASH.findall(there.get(name, "")))}


def _give(client: Redis, wanted: Sequence[str]) -> None:
    names = {line.split(" ", 2)[1] for line in wanted}
    for line in wanted:
        _, user, rules = line.split(" ", 2)
        client.execute_command("ACL SETUSER", user, "reset", *rules.split(" "))  # type: ignore[no-untyped-call]
    for user in listed(client):
        if user.startswith(MACHINE) and user not in names:
            client.acl_deluser(user)
    client.acl_save()


@contextmanager
def _as_admin(
    address: Address,
    place: Place,
    admin: tuple[str, str],
    new: Mapping[str, str] | None = None,
    database: int | None = None,
) -> Iterator[Redis]:
    user, password = admin
    by = replace(address, user=user, password=password)
    by = by if database is None else replace(by, database=database)
    try:
        with connected_to(by, place) as client:
            yield client
    except RedisError as error:
        raise UsersNotInstalled(
            f"{place[0]}:{place[1]} did not take the users: {error}. It needs `aclfile` in its configuration "
            f"and an administrator {user} with this password; then give the command again.",
            new,
        ) from None
