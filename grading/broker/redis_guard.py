"""At the start of a process: a Redis that strangers may use is refused, and a bad certificate explained."""

from __future__ import annotations

import logging
import ssl

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry

from grading.config.redis_url import on_loopback, place, without_credentials
from grading.domain.errors import GraderError

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


def open_to_strangers(url: str) -> bool:
    """Whether Redis answers a client that names no password. Raises redis errors when it does not answer."""
    client = Redis.from_url(
        without_credentials(url),
        socket_connect_timeout=PATIENCE_S,
        socket_timeout=PATIENCE_S,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        return bool(client.ping())
    except (AuthenticationError, ResponseError):
        return False  # it asked for a password, or lets strangers do nothing
    finally:
        client.close()


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
        said = reason_sentence(url, reason) if reason else f"Redis at {place(url)} is away."
        log.warning("%s Going on, that may change.", said)
        return
    if is_open and not on_loopback(url):
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
