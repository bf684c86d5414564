"""What a Redis URL may be: with a password beyond this computer, and with TLS that verifies.

`redis://` and `rediss://` name a Redis; `redis+sentinel://` and `rediss+sentinel://` name sentinels, which
know the Redis that is the primary now, by the name of its set.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

SENTINELS = "+sentinel"
"""The end of a scheme whose hosts are sentinels."""
FORM = "redis+sentinel://USER:PASSWORD@HOST1:26379,HOST2:26379,HOST3:26379/NAME/0?sentinel_password=PASSWORD"
HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\[\]:,@/\s]+)(?::(\d{1,5}))?")
SET = re.compile(r"[A-Za-z0-9._-]+")
SENTINEL_KEYS = ("sentinel_username", "sentinel_password")
TLS_KEYS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
VERIFIED = {"ssl_cert_reqs": ("required", "CERT_REQUIRED"), "ssl_check_hostname": ("true", "True", "1")}


@dataclass(frozen=True)
class Address:
    """A Redis URL taken apart. `hosts` are those of Redis or, where `name` is that of a set, of sentinels."""

    hosts: tuple[tuple[str, int], ...]
    name: str = ""
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: tuple[tuple[str, str], ...] | None = None
    """Options of TLS by the names of redis-py; nothing without TLS."""


def parse(url: str) -> Address:
    """The parts of a URL. Raises ValueError, with what to write, when it has not the form of one."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    name, _, database = parts.path.strip("/").rpartition("/")
    if watched(url) and not (SET.fullmatch(name) and database.isdecimal()):
        raise ValueError(f"names no set of the sentinels and its database; write {FORM}")
    return Address(
        hosts=_hosts(parts),
        name=name if watched(url) else "",
        database=int(database) if database.isdecimal() else 0,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        sentinel_user=query.get("sentinel_username", ""),
        sentinel_password=query.get("sentinel_password", ""),
        tls=tuple((key, query[key]) for key in TLS_KEYS if key in query)
        if parts.scheme.startswith("rediss")
        else None,
    )


def watched(url: str) -> bool:
    """Whether the URL names sentinels."""
    return urlsplit(url).scheme.endswith(SENTINELS)


def _hosts(parts: SplitResult) -> tuple[tuple[str, int], ...]:
    if not parts.scheme.endswith(SENTINELS):
        if not parts.hostname or parts.port == 0:  # asking for the port raises ValueError when it is none
            raise ValueError(
                "names no host; write redis://:PASSWORD@HOST:6379/0, "
                "and in the password / as %2F, # as %23 and ? as %3F"
            )
        return ((parts.hostname, parts.port or 6379),)
    found = [HOST.fullmatch(one) for one in parts.netloc.rpartition("@")[2].split(",")]
    hosts = tuple((one[1].strip("[]").lower(), int(one[2] or 26379)) for one in found if one)
    if len(hosts) < len(found) or not all(0 < port < 65536 for _, port in hosts):
        raise ValueError(
            f"does not name hosts of sentinels; write {FORM}, and in a password / as %2F, # as %23, ? as %3F"
        )
    return hosts


def on_loopback(url: str) -> bool:
    """Whether the URL names only this computer itself, without asking a name server."""
    try:
        return all(here(host) for host, _ in parse(url).hosts)
    except ValueError:
        return False


def here(host: str) -> bool:
    """Whether a host is this computer itself."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def checked(url: str, ca_file: str | None) -> str:
    """The URL as every client takes it; raises ValueError with what to do about it.

    The clients' own defaults differ: one of them would not verify a certificate unless the URL says so.
    """
    parts, address = urlsplit(url), parse(url)
    where = place(url)
    if not address.password and not on_loopback(url):
        form = FORM if address.name else "redis://:PASSWORD@HOST:6379/0"
        raise ValueError(
            f"Redis on {where.removesuffix(':6379')} needs a password, as everybody who reaches it could "
            f"read and forge work; set requirepass (or an ACL user) there, and GRADER_REDIS_URL={form}"
        )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check_sentinels(url, address, query)
    given = [key for key in query if key.startswith("ssl_")]
    if address.tls is None:
        if given:
            with_tls = parts.scheme.replace("redis", "rediss")
            raise ValueError(f"{given[0]} needs TLS; write {with_tls}:// instead of {parts.scheme}://")
        return url
    _check_tls(query, given)
    ca = query.get("ssl_ca_certs") or ca_file
    if ca:
        path = Path(ca).resolve()
        if not path.is_file():
            raise ValueError(
                f"the certificate authority's file {path} is not there; copy it to this computer"
            )
        query["ssl_ca_certs"] = str(path)
    query["ssl_cert_reqs"] = "required"
    query.pop("ssl_check_hostname", None)  # it is checked unless somebody says no
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote, safe="/")))


def _check_sentinels(url: str, address: Address, query: Mapping[str, str]) -> None:
    given = [key for key in query if key.startswith("sentinel_")]
    if not address.name:
        if given:
            raise ValueError(f"{given[0]} needs sentinels; write {FORM}")
        return
    for key in query:
        if key not in (*SENTINEL_KEYS, *TLS_KEYS) and not key.startswith("ssl_"):
            raise ValueError(f"{key} is not allowed in the URL; write {FORM}")
    if not address.sentinel_password and not on_loopback(url):
        raise ValueError(
            "the sentinels need a password, as everybody who reaches one could send all clients to another "
            "Redis; make users for them by `grader redis acl`, and write theirs as sentinel_password"
        )


def _check_tls(query: dict[str, str], given: list[str]) -> None:
    for key in given:
        if key not in TLS_KEYS:
            raise ValueError(f"{key} is not allowed in the URL; allowed: {', '.join(TLS_KEYS[:3])}")
        allowed = VERIFIED.get(key)
        if allowed and query[key] not in allowed:
            raise ValueError(
                f"{key}={query[key]} would trust anybody who answers; leave it out and name the "
                "certificate authority in redis.ca_file"
            )


def with_query(url: str, **values: str) -> str:
    """The URL with these values in its query."""
    parts = urlsplit(url)
    query = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **values}
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote, safe="/")))


def place(url: str) -> str:
    """Hosts and ports, for sentences; never a password."""
    found = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in parse(url).hosts)
    return ", ".join(found)
