"""The certificates that the web app looks at for /metrics: its own, as people see it, and that of Redis."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from grading.broker.sentinels import sentinels_of
from grading.config.redis_url import Address, parse
from grading.config.settings import Config
from grading.shared.certificates import certificate_end


def certificate_ends(config: Config) -> dict[str, float]:
    """When each ends, in seconds since 1970; 0 where it is not trusted, nothing where it cannot be seen."""
    found = {}
    web, address = urlsplit(config.server.public_url), parse(config.redis.url)
    looks: dict[str, Callable[[], float]] = {}
    if web.scheme == "https":
        looks["web"] = lambda: certificate_end(web.hostname or "", web.port or 443)
    if address.tls is not None:
        looks["redis"] = lambda: min(redis_certificate_ends(address))
    for name, look in looks.items():
        try:
            found[name] = look()
        except ssl.SSLCertVerificationError:
            found[name] = 0.0
        except OSError:
            continue
    return found


def redis_certificate_ends(address: Address) -> list[float]:
    """Of Redis, or of every Redis of a set and its sentinels, in seconds since 1970.

    Raises OSError for one that cannot be seen; of ssl where it is not trusted.
    """
    places = list(address.hosts)
    if address.name:
        places += [one.primary for one in sentinels_of(address).ask() if one.usable][:1]
        with suppress(RedisError):
            places += sentinels_of(address).replicas()
    ca_file = dict(address.tls or ()).get("ssl_ca_certs")
    return [certificate_end(host, port, ca_file) for host, port in places]
