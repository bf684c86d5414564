"""Tests talk to this machine only: every other address is refused before a packet leaves."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

import pytest

_connect, _connect_ex, _sendto = socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto
_getaddrinfo = socket.getaddrinfo


class NetworkRefused(RuntimeError):
    """A test tried to reach something beyond loopback."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine, without asking a name server."""
    if host in ("localhost", "localhost.localdomain", ""):
        return True
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    # connecting to 0.0.0.0 or :: reaches this machine
    return (mapped or address).is_loopback or address.is_unspecified


def check(sock: socket.socket, address: Any) -> None:
    """Raise NetworkRefused unless `address` is on this machine."""
    if sock.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(str(address[0])):
        raise NetworkRefused(f"tests may only use loopback, not {address[0]}:{address[1]}")


def install(patch: pytest.MonkeyPatch) -> None:
    """Guard this process until `patch` is undone, and forget the machine's proxies."""

    def connect(self: socket.socket, address: Any) -> None:
        check(self, address)
        _connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        check(self, address)
        return _connect_ex(self, address)

    def sendto(self: socket.socket, *args: Any) -> int:
        check(self, args[-1])
        return _sendto(self, *args)

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and not is_loopback(name) and not _is_address(name):
            if name.endswith(".invalid"):  # the one top-level domain that is sure not to exist
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            raise NetworkRefused(f"tests may not ask a name server about {name}")
        return _getaddrinfo(host, *args, **kwargs)

    patch.setattr(socket.socket, "connect", connect)
    patch.setattr(socket.socket, "connect_ex", connect_ex)
    patch.setattr(socket.socket, "sendto", sendto)
    patch.setattr(socket, "getaddrinfo", getaddrinfo)
    for name in list(os.environ):
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            patch.delenv(name)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    return True
