"""Redis: reachable, closed to strangers, durable, with room, trusted for long enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from limits import RateLimitItemPerMinute
from limits.storage import RedisStorage
from limits.strategies import MovingWindowRateLimiter
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from cli.doctor import successor
from cli.doctor.finding import Bounds, Finding, Installation, certificate, failure, ok, size, warning
from cli.servers.certificates import redis_certificate_ends
from grading.broker import redis_key_types
from grading.broker.connections import connect
from grading.broker.dispatch import AWAY
from grading.broker.rate_counts import RATE_COUNTS, open_rate_counts
from grading.broker.redis_acl import open_to_strangers, reason_sentence, untrusted
from grading.config.redis_url import here, on_loopback, parse, place, watched

OLDEST = (6, 2)
PASSWORD = "set requirepass or users (`grader redis acl`) there, and GRADER_REDIS_URL here"  # noqa: S105
DURABLE = "set `appendonly yes` and `appendfsync everysec` in redis.conf"
ROOM = "raise maxmemory in redis.conf, or find what else uses this Redis"


def diagnose(installation: Installation) -> Iterator[Finding]:
    """All of it; the first finding is a failure when Redis cannot be used, and then the only one."""
    url = installation.config.redis.url
    client = connect(url)
    client.set_retry(Retry(NoBackoff(), 1))
    try:
        client.ping()
    except AWAY as error:
        yield _unusable(url, error)
        return
    try:
        yield ok("redis", f"running at {place(url)}")
        yield from _closed(url)
        yield from _tls(url, installation.bounds)
        yield _writes(client)
        yield _keys(client, installation)
        yield _rate_limits(url)
        yield from _state(client, installation.bounds)
        if watched(url):
            yield from successor.diagnose(parse(url), client, installation.bounds)
    except AWAY as error:
        yield failure(
            "redis_went_away", "redis", f"the connection was lost during the check: {error}", "see its log"
        )
    finally:
        client.close()


def _unusable(url: str, error: BaseException) -> Finding:
    reason = untrusted(error)
    if reason is not None:
        name = "redis certificate"
        message, _, remedy = reason_sentence(url, reason).partition(". ")
        return failure("redis_untrusted", name, message, remedy)
    if isinstance(error, AuthenticationError | NoPermissionError):
        return failure(
            "redis_password_refused",
            "redis password",
            f"Redis at {place(url)} refuses this user and password ({error})",
            "correct them in GRADER_REDIS_URL",
        )
    return failure(
        "redis_away",
        "redis",
        f"Redis does not answer at {place(url)} ({error})",
        "start it, check firewalls, or correct GRADER_REDIS_URL",
    )


def _closed(url: str) -> Iterator[Finding]:
    name = "redis password"
    found = open_to_strangers(url)
    if not found:
        yield ok(name, "required")
    elif all(here(host) for host in found):
        yield warning(
            "redis_open_here", name, "not required: every program on this computer has access", PASSWORD
        )
    else:
        yield failure(
            "redis_open",
            name,
            "not required: whoever reaches it can read and forge work",
            PASSWORD,
        )


def _tls(url: str, bounds: Bounds) -> Iterator[Finding]:
    address = parse(url)
    if address.tls is None:
        if not on_loopback(url):
            message = "the connection is not encrypted, and it carries students' work"
            yield warning("redis_plain", "redis tls", message, "use rediss:// or a private network")
        return
    yield certificate("redis certificate", min(redis_certificate_ends(address)), bounds)


def _writes(client: Redis) -> Finding:
    name = "redis memory"
    try:
        client.set("grader:doctor", "1", ex=60)
    except OutOfMemoryError:
        return failure("redis_full", name, "full, so no work can be queued", ROOM)
    except NoPermissionError:
        return warning(
            "redis_read_only_user",
            "redis",
            "this user is not the server's and cannot write",
            "use the server's GRADER_REDIS_URL",
        )
    except ResponseError as error:
        return failure(
            "redis_no_writes",
            "redis",
            f"refuses writes: {error}",
            "check its log and its disk",
        )
    return ok("redis", "accepts writes")


def _rate_limits(url: str) -> Finding:
    """Count once, as a web app with this address does for each request that has a limit."""
    name = "rate limits"
    pool = open_rate_counts(url)
    counts = RedisStorage("redis://", connection_pool=pool, key_prefix=RATE_COUNTS)
    try:
        MovingWindowRateLimiter(counts).hit(RateLimitItemPerMinute(60), "doctor")
    except RedisError as error:
        message = f"each web app counts requests separately, because Redis refuses: {error}"
        return warning("rate_limits_alone", name, message, "create users.acl again with `grader redis acl`")
    finally:
        pool.disconnect()
    return ok(name, "counted in Redis for all web apps")


def _keys(client: Redis, installation: Installation) -> Finding:
    """The sweeper sets wrong ones aside within seconds; one is found without it, or if a program insists."""
    name = "redis keys"
    try:
        wrong = redis_key_types.of_another_type(client, redis_key_types.expected(installation.config))
    except NoPermissionError:
        return ok(name, "not checked, because this user has no permission")
    if wrong:
        found = ", ".join(f"{key!r} is a {kind}" for key, kind in wrong.items())
        return failure(
            "redis_keys_of_another_type",
            name,
            f"wrong type: {found}",
            "start the sweeper, and find the program that writes them",
        )
    return ok(name, "have the expected types")


def _state(client: Redis, bounds: Bounds) -> Iterator[Finding]:
    try:
        info: dict[str, Any] = client.info()
    except NoPermissionError:
        message = "this user cannot read INFO, so persistence and memory were not checked"
        yield warning("redis_info_refused", "redis", message, "allow `+info`, as `grader redis acl` does")
        return
    except RedisError as error:
        yield failure("redis_info_failed", "redis", f"INFO failed: {error}", "see its log")
        return
    yield _version(str(info["redis_version"]))
    yield from _durable(info)
    yield from _room(info, bounds)


def _version(number: str) -> Finding:
    parts = tuple(int(part) for part in number.split(".")[:2])
    if parts < OLDEST:
        return failure("redis_too_old", "redis version", f"{number} is too old", "install 7.0 or newer")
    if parts < (7, 0):
        return warning(
            "redis_old",
            "redis version",
            f"{number} has no separate read and write permissions",
            "install 7.0 or newer",
        )
    return ok("redis version", number)


def _durable(info: Mapping[str, Any]) -> Iterator[Finding]:
    name = "redis persistence"
    if info["role"] != "master":
        yield failure(
            "redis_replica",
            name,
            "this is a replica, which refuses writes",
            "use the primary in GRADER_REDIS_URL",
        )
    if not info["aof_enabled"]:
        message = "data is lost at a restart (appendonly no), and running work is repeated"
        yield failure("redis_not_durable", name, message, DURABLE)
    elif info["aof_last_write_status"] != "ok" or info["aof_last_bgrewrite_status"] != "ok":
        yield failure(
            "redis_write_failed", name, "the last write to disk failed", "check its log and its disk"
        )
    else:
        yield ok(name, "append-only file, written to disk")


def _room(info: Mapping[str, Any], bounds: Bounds) -> Iterator[Finding]:
    policy, used, most = str(info["maxmemory_policy"]), int(info["used_memory"]), int(info["maxmemory"])
    if policy != "noeviction":
        yield failure(
            "redis_evicts",
            "redis eviction",
            f"when memory is full, work is lost (maxmemory-policy {policy})",
            "set `maxmemory-policy noeviction` in redis.conf",
        )
    else:
        yield ok("redis eviction", "off (noeviction)")
    share = used / most if most else 0.0
    message = f"{size(used)} of {size(most)} in use" if most else f"{size(used)} in use, no limit"
    if share > bounds.memory_share:
        yield warning("redis_nearly_full", "redis memory", message, ROOM)
    else:
        yield ok("redis memory", message)
