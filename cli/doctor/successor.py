"""Redis with a successor: sentinels that can decide, a replica that keeps up, users and clocks alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from cli.doctor.finding import Bounds, Finding, failure, ok, warning
from grading.broker.leases import Leases
from grading.broker.redis_users import alike, listed, of_this_system
from grading.broker.sentinels import Place, Told, connected_to, sentinels_of
from grading.config.redis_url import Address

NAME = "redis sentinels"
REPLICAS = "redis replicas"
USERS = "redis users"
INSTALL = "run `grader redis acl --install`"
MANUAL = "docs/how-to/administrators/redis.md has the files of all hosts"
LAG_S = 3


def diagnose(address: Address, primary: Redis, bounds: Bounds) -> Iterator[Finding]:
    """All of it; `primary` answers."""
    told = sentinels_of(address).ask()
    yield from of_sentinels(told)
    states = [one for one in told if one.usable]
    info: dict[str, Any] = primary.info("replication")
    yield from of_replicas(info)
    if states:
        place = states[0].primary
        yield ok("redis primary", f"{place[0]}:{place[1]}")
        for replica in sentinels_of(address).replicas():
            yield from of_replica(address, replica, primary, bounds)


def _at(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def of_sentinels(told: list[Told]) -> Iterator[Finding]:
    """Whether they answer, agree, and can decide when one host is gone."""
    for one in told:
        if one.error is not None:
            message = f"the one at {_at(one.sentinel)} does not know the set or does not answer ({one.error})"
            yield failure("sentinel_away", NAME, message, f"start it, check users and firewalls; {MANUAL}")
    there = [one for one in told if one.state]
    if len({one.primary for one in there}) > 1:
        said = ", ".join(f"{_at(one.sentinel)} says {_at(one.primary)}" for one in there)
        yield failure("sentinels_disagree", NAME, f"do not agree which Redis is the primary: {said}", MANUAL)
    for one in there[:1]:
        known, quorum = int(one.state["num-other-sentinels"]) + 1, int(one.state["quorum"])
        if len(told) < 3 or known < 3:
            message = f"{known} know each other: with fewer than three nobody decides when one host is gone"
            yield warning("sentinels_few", NAME, message, "run one on each of three hosts")
        elif known != len(told):
            message = f"{known} know each other, and redis.url names {len(told)}"
            yield warning("sentinels_others", NAME, message, "name all of them, and no other")
        elif not known // 2 < quorum <= known - 1:
            message = f"{quorum} of {known} decide that the primary is down"
            yield warning("sentinel_quorum", NAME, message, "use 2 of 3 in `sentinel monitor`")
        else:
            yield ok(NAME, f"{len(there)} of {known} answer, {quorum} decide")


def of_replicas(info: Mapping[str, Any]) -> Iterator[Finding]:
    """What the primary says of its replicas in INFO."""
    rows = [value for key, value in info.items() if key.startswith("slave") and isinstance(value, dict)]
    if not rows:
        message = "none: there is no successor, and what the primary's disk loses is lost"
        yield failure("redis_no_replica", REPLICAS, message, f"start one; {MANUAL}")
    for row in rows:
        said = f"{row['ip']}:{row['port']} is {row['state']}, {row['lag']} s behind"
        if row["state"] != "online" or int(row["lag"]) > LAG_S:
            yield warning("redis_replica_behind", REPLICAS, said, "check its log and the link to it")
        else:
            yield ok(REPLICAS, said)


def of_replica(address: Address, place: Place, primary: Redis, bounds: Bounds) -> Iterator[Finding]:
    """What would be found out only when this one is the primary."""
    try:
        with connected_to(address, place) as client:
            yield from _users(_at(place), primary, client)
            apart = abs(Leases(client).time() - Leases(primary).time())
            info: dict[str, Any] = client.info()
    except RedisError as error:
        message = f"the replica {_at(place)} does not answer this user ({error})"
        yield failure("redis_replica_refuses", REPLICAS, message, f"check it and its users; {INSTALL}")
        return
    if apart > bounds.clock_s:
        message = f"the clock of the replica {_at(place)} differs from the primary's by {apart:.0f} s"
        yield warning("redis_clocks_differ", "clocks", message, "synchronize both clocks by NTP")
    if not info["aof_enabled"] or str(info["maxmemory_policy"]) != "noeviction":
        message = f"the replica {_at(place)} has no append-only file, or evicts"
        remedy = "set `appendonly yes` and `maxmemory-policy noeviction` there, too"
        yield failure("redis_replica_other", REPLICAS, message, remedy)


def _users(where: str, primary: Redis, replica: Redis) -> Iterator[Finding]:
    wanted, there = of_this_system(listed(primary)), listed(replica)
    missing = [user for user in wanted if user not in there]
    others = [user for user, line in wanted.items() if user in there and not alike(line, there[user])]
    if missing:
        message = f"the replica {where} has no {', '.join(missing)}: cut off when it becomes the primary"
        yield failure("redis_users_missing", USERS, message, INSTALL)
    if others:
        message = f"{', '.join(others)}: another password or other rights on the replica {where}"
        yield failure("redis_users_differ", USERS, message, INSTALL)
    if not missing and not others:
        yield ok(USERS, f"{len(wanted)}, the same on the replica {where}")
