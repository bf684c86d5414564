"""The hosts that the address of a database names: one, or as libpq has them several with commas between."""

from __future__ import annotations

from urllib.parse import urlsplit

PORT = 5432
SEVERAL = "write postgresql://user@one:5432,two:5432/name, and in a password / as %2F, @ as %40, , as %2C"


def split_hosts(address: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """An address without its hosts, and host and port of each. Without a comma, the address as it is.

    Raises ValueError, with what to write.
    """
    netloc = urlsplit(address).netloc
    user, at, hosts = netloc.rpartition("@")
    if not address.startswith("postgresql") or "," not in hosts:
        return address, ()
    named = tuple(_host_and_port(one) for one in hosts.split(","))
    return address.replace(netloc, f"{user}{at}", 1), named


def _host_and_port(text: str) -> tuple[str, int]:
    found = urlsplit(f"//{text}")
    try:
        port = found.port
    except ValueError:
        port = 0
    if not found.hostname or port == 0 or found.path or found.query:
        raise ValueError(f"a host is missing, or a port is no number; {SEVERAL}")
    return found.hostname, port or PORT
