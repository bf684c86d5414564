"""What a Redis URL may be: with a password beyond this computer, and with TLS that verifies."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

TLS_KEYS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
VERIFIED = {"ssl_cert_reqs": ("required", "CERT_REQUIRED"), "ssl_check_hostname": ("true", "True", "1")}


def on_loopback(url: str) -> bool:
    """Whether the URL names this computer itself, without asking a name server."""
    host = urlsplit(url).hostname or ""
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
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:  # asking for the port raises ValueError when it is none
        raise ValueError(
            "names no host; write redis://:PASSWORD@HOST:6379/0, "
            "and in the password / as %2F, # as %23 and ? as %3F"
        )
    if not parts.password and not on_loopback(url):
        raise ValueError(
            f"Redis on {parts.hostname} needs a password, as everybody who reaches it could read and forge "
            "work; set requirepass (or an ACL user) there, and GRADER_REDIS_URL=redis://:PASSWORD@HOST:6379/0"
        )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    given = [key for key in query if key.startswith("ssl_")]
    if parts.scheme != "rediss":
        if given:
            raise ValueError(f"{given[0]} needs TLS; write rediss:// instead of redis://")
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


def without_credentials(url: str) -> str:
    """The same address, as a stranger knows it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def place(url: str) -> str:
    """Host and port, for sentences; never the password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}"
