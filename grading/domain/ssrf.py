"""Which addresses this system may speak to on its own: pure rules about URLs, host names and IP addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from grading.domain.errors import GraderError
from grading.domain.messages import define_message

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)
LONGEST = 2000

_NOT_PUBLIC_4 = tuple(
    IPv4Network(one)
    for one in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # the inner service of a large cloud, at an address that looks public
    )
)  # fmt: skip
"""The registry of special addresses. Written here, because Python's own list differs between its versions."""
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(one) for one in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)  # Teredo and others, documentation, 6to4, documentation
_NEVER = tuple(
    ip_network(one)
    for one in (
        "0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "224.0.0.0/4", "240.0.0.0/4",
        "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32",
    )
)  # fmt: skip
"""What a host's name alone does not open: nobody's, a cloud's inner services, everybody's. A network does."""
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_LOW_PORTS = (80, 443)


FORBIDDEN_CHARACTERS = define_message(
    "outside.forbidden_characters", "The address is too long or has characters that must be percent-encoded."
)
UNREADABLE = define_message("outside.unreadable", "The address is not valid.")
OTHER_SCHEME = define_message("outside.other_scheme", "The address must begin with https:// or http://.")
USER_OR_FRAGMENT = define_message(
    "outside.user_or_fragment", "The address must not contain a user name, a password or a #."
)
NO_PORT = define_message("outside.no_port", "The port of the address is not valid.")
NO_HOST = define_message(
    "outside.no_host",
    "The host of the address is neither a name nor a plain IP address. Write names with other letters in "
    "their xn-- form, and IPv4 addresses as four decimal numbers.",
)
NOT_PUBLIC = define_message(
    "outside.not_public",
    "%(host)s has the address %(address)s, which is not public. To allow it, add the host or its "
    "network to server.outside_allowed in config.toml.",
)
HTTPS_ONLY = define_message(
    "outside.https_only",
    "Use https:// for %(host)s, or add the host to server.outside_allowed in config.toml.",
)
OTHER_PORT = define_message(
    "outside.other_port",
    "Port %(port)s of %(host)s is not a usual port of web servers. To allow it, add the host to "
    "server.outside_allowed in config.toml.",
)


class Refused(GraderError):
    """Grader is not allowed to connect to this address."""

    code = "outside_refused"
    status = 422
    default_message = define_message("error.refused", "Grader is not allowed to connect to this address.")


@dataclass(frozen=True)
class Allowed:
    """What config.toml opens beside the public internet: hosts by name, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Allowed:
        """From host names, addresses and networks as text. Raises ValueError with a sentence."""
        hosts, networks = set[str](), list[Network]()
        for entry in entries:
            network = _network(entry)
            if network is not None:
                networks.append(network)
            elif HOST.fullmatch(entry.lower().removesuffix(".")) and not _numeric(entry):
                hosts.add(entry.lower().removesuffix("."))
            else:
                raise ValueError(
                    f"'{entry[:80]}' is neither a host name such as lms.school.local nor a network such as "
                    "10.0.0.0/8"
                )
        return cls(frozenset(hosts), tuple(networks))

    def opens(self, host: str, address: Address) -> bool:
        """Whether this host, which has this address, stands in it."""
        if any(address in network for network in self.networks if network.version == address.version):
            return True
        return host in self.hosts and not any(address in network for network in _never(address))


@dataclass(frozen=True)
class Target:
    """A URL that was read strictly: what to connect to, and what to ask there for."""

    secure: bool
    host: str
    """A name or an address, in small letters, without brackets and final dot."""
    port: int
    path: str
    """With the query."""

    @property
    def literal(self) -> Address | None:
        """The address, where the URL has one instead of a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def header(self) -> str:
        """What the header `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def read(url: str) -> Target:
    """Take a URL apart. Raises Refused for whatever two programs could read in two ways."""
    if len(url) > LONGEST or re.search(r"[^!-~]|[\\<>\"^`{|}]", url):
        raise Refused(FORBIDDEN_CHARACTERS)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused(UNREADABLE) from None
    if parts.scheme not in ("http", "https"):
        raise Refused(OTHER_SCHEME)
    if "@" in parts.netloc or "#" in url:
        raise Refused(USER_OR_FRAGMENT)
    if port == 0 or parts.netloc.endswith(":"):
        raise Refused(NO_PORT)
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, _host(parts.netloc), port or (443 if secure else 80), path)


def require(target: Target, address: Address, allowed: Allowed) -> None:
    """Go on if this system may speak to `address`, which a target's host has. Raises Refused."""
    real = plain(address)
    if allowed.opens(target.host, real):
        return
    if not public(real):
        raise Refused(NOT_PUBLIC(host=target.host, address=address))
    if not target.secure:
        raise Refused(HTTPS_ONLY(host=target.host))
    if target.port < 1024 and target.port not in _LOW_PORTS:
        raise Refused(OTHER_PORT(port=target.port, host=target.host))


def public(address: Address) -> bool:
    """Whether an address is a single one of the public internet, whatever is packed in it."""
    real = plain(address)
    if isinstance(real, IPv4Address):
        return not any(real in network for network in _NOT_PUBLIC_4)
    if real not in _PUBLIC_6 or any(real in network for network in _NOT_PUBLIC_6) or real.scope_id:
        return False
    number = int(real)
    if (number >> 32) & 0xFDFF_FFFF == 0x0000_5EFE:  # ISATAP: the address of a machine behind it
        return public(IPv4Address(number & 0xFFFF_FFFF))
    return True


def plain(address: Address) -> Address:
    """The IPv4 address in an IPv6 one that only carries it: mapped, compatible, or of NAT64."""
    if isinstance(address, IPv6Address) and not address.scope_id:
        carries = address.ipv4_mapped is not None or address in _NAT64
        if carries or (address in _COMPATIBLE and int(address) > 1):
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _host(netloc: str) -> str:
    """The host in one way of writing it. Raises Refused for numbers in disguise, zones and empty labels."""
    if netloc.startswith("["):
        inside, _, after = netloc[1:].partition("]")
        try:
            return str(IPv6Address(inside)) if "%" not in inside and after[:1] in ("", ":") else _no_host()
        except ValueError:
            return _no_host()
    host = netloc.partition(":")[0].lower().removesuffix(".")
    if not HOST.fullmatch(host):
        return _no_host()
    if _numeric(host):
        try:
            return str(IPv4Address(host))  # four decimal numbers and nothing else
        except ValueError:
            return _no_host()
    return host


def _no_host() -> str:
    raise Refused(NO_HOST)


def _numeric(host: str) -> bool:
    """Whether some programs would read it as an IPv4 address: its last label is a number."""
    return NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry)
    except ValueError:
        return None


def _never(address: Address) -> list[Network]:
    return [network for network in _NEVER if network.version == address.version]
