"""The one way out: a request to somebody else's server, to no address that the rules forbid, in bounded time.

Not `requests`: that looks a host up again when it connects, follows redirects and proxies of the
environment, and a server that sends a byte now and then holds it for ever.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

from grading.domain.errors import GraderError
from grading.domain.messages import Message, define_message, verbatim
from grading.domain.ssrf import Address, Allowed, Refused, Target, read, require

__all__ = ["Allowed", "Answer", "OutsideFailed", "Refused", "TooMuch", "ask"]

AT_MOST = 8
"""Addresses of one host that are tried."""
_PIECE = 65_536
_NOTHING: Mapping[str, str] = MappingProxyType({})


TOO_LATE = define_message("outside.too_late", "no complete response within %(seconds)s\N{NO-BREAK SPACE}s")
UNWRITABLE = define_message(
    "outside.unwritable",
    "the request cannot be sent: a header or the path has characters that are not allowed",
)
LOOKUP_TOO_LATE = define_message("outside.lookup_too_late", "the DNS lookup of %(host)s timed out")
NO_SUCH_HOST = define_message("outside.no_such_host", "the host %(host)s does not exist")
BROKEN_HEAD = define_message("outside.broken_head", "the response has no valid HTTP header")
ANSWER_TOO_LARGE = define_message("outside.answer_too_large", "the response is larger than %(most)s bytes")
ENDED_TOO_EARLY = define_message("outside.ended_too_early", "the response ended early")
INVALID_CERTIFICATE = define_message(
    "outside.invalid_certificate", "its certificate is not valid for this address: %(problem)s"
)


class OutsideFailed(GraderError):
    """The other server did not send a complete response."""

    code = "outside_failed"
    status = 502
    default_message = define_message(
        "error.outside_failed", "The other server did not send a complete response."
    )


class TooMuch(OutsideFailed):
    """The other server's response is too large."""

    code = "outside_too_much"
    default_message = define_message("error.too_much", "The other server's response is too large.")


@dataclass(frozen=True)
class Answer:
    """What the other server said; redirects are answers like others and are never followed."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes

    @property
    def retry_after_s(self) -> float:
        """Seconds that it asks to be left alone (Retry-After of RFC 9110); 0 where it does not."""
        said = self.headers.get("retry-after", "").strip()
        if said.isascii() and said.isdecimal():
            return float(said[:9])
        try:
            until = parsedate_to_datetime(said)
        except (ValueError, OverflowError):
            return 0.0
        return max(0.0, (until - datetime.now(UTC)).total_seconds()) if until.tzinfo else 0.0


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] = _NOTHING,
    body: bytes = b"",
    timeout_s: float = 15,
    most_bytes: int = 1_000_000,
    allow: Allowed,
    cut: bool = False,
) -> Answer:
    """One request. Its host is looked up once, and what was checked is what is connected to.

    `cut` keeps the first `most_bytes` of a longer body. Raises Refused for an address that the rules
    forbid, and OutsideFailed for no answer, one too late, or one too large.
    """
    target, until = read(url), time.monotonic() + timeout_s
    addresses = _checked(target, until, allow)
    try:
        with _connected(target, addresses, until) as (connected, late):
            try:
                return _exchange(connected, target, method, headers, body, most_bytes, cut)
            finally:
                if late.is_set():  # a part of the answer may have come before
                    raise OutsideFailed(TOO_LATE(seconds=f"{timeout_s:g}"))
    except TimeoutError:
        raise OutsideFailed(TOO_LATE(seconds=f"{timeout_s:g}")) from None
    except (OSError, HTTPException) as error:
        raise OutsideFailed(_reason(error)) from None
    except ValueError:
        raise OutsideFailed(UNWRITABLE) from None


def _checked(target: Target, until: float, allow: Allowed) -> list[Address]:
    """All addresses of the host, every one of which is allowed. Raises Refused, OutsideFailed."""
    literal = target.literal
    addresses = [literal] if literal is not None else _look_up(target, until)
    for address in addresses:
        require(target, address, allow)
    return addresses[:AT_MOST]


def _look_up(target: Target, until: float) -> list[Address]:
    """Asked in a thread of its own: a look-up has no time limit."""
    told: queue.SimpleQueue[list[Address] | Exception] = queue.SimpleQueue()

    def look() -> None:
        try:
            told.put(resolve(target.host, target.port))
        except (OSError, ValueError) as error:
            told.put(error)

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        found = told.get(timeout=max(0.0, until - time.monotonic()))
    except queue.Empty:
        raise OutsideFailed(LOOKUP_TOO_LATE(host=target.host)) from None
    if isinstance(found, Exception) or not found:
        raise OutsideFailed(NO_SUCH_HOST(host=target.host))
    return found


def resolve(host: str, port: int) -> list[Address]:
    """What the system's name service says. Raises OSError, or ValueError for no IP address."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(_address(entry[4]) for entry in found))


def _address(sockaddr: tuple[Any, ...]) -> Address:
    """With its zone, which stands apart from it."""
    text = str(sockaddr[0])
    zone = sockaddr[3] if len(sockaddr) == 4 and "%" not in text else 0
    return ip_address(f"{text}%{zone}" if zone else text)


def connect(address: Address, port: int, timeout_s: float) -> socket.socket:
    """A connection to this very address. Raises OSError."""
    made = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout_s)
        made.connect((str(address), port))
    except BaseException:
        made.close()
        raise
    return made


def _first(target: Target, addresses: list[Address], until: float) -> socket.socket:
    """Connected to the first address that answers. Raises OSError."""
    failed: OSError = TimeoutError()
    for number, address in enumerate(addresses):
        # an address that swallows everything leaves time for the others
        left = (until - time.monotonic()) / (len(addresses) - number)
        if left <= 0:
            break
        try:
            made = connect(address, target.port, left)
        except OSError as error:
            failed = error
            continue
        made.settimeout(max(0.01, until - time.monotonic()))
        return made
    raise failed


@contextmanager
def _connected(
    target: Target, addresses: list[Address], until: float
) -> Iterator[tuple[socket.socket, threading.Event]]:
    """A connection that ends at `until` whatever the other side does; the event says that it did."""
    made, late = _first(target, addresses, until), threading.Event()
    if target.secure:
        made = ssl.create_default_context().wrap_socket(
            made, server_hostname=target.host, do_handshake_on_connect=False
        )
    timer = threading.Timer(max(0.0, until - time.monotonic()), _end, (made, late))
    timer.daemon = True
    timer.start()
    try:
        try:
            if isinstance(made, ssl.SSLSocket):
                made.do_handshake()
        except OSError:
            if late.is_set():
                raise TimeoutError from None
            raise
        yield made, late
    finally:
        timer.cancel()
        made.close()


def _end(connected: socket.socket, late: threading.Event) -> None:
    """End the connection under whoever waits on it."""
    late.set()
    with suppress(OSError):
        # of the socket itself, also under TLS: the other thread is in the middle of using that
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _exchange(
    connected: socket.socket,
    target: Target,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    most_bytes: int,
    cut: bool,
) -> Answer:
    connection = HTTPConnection(target.host, target.port)
    connection.sock = connected
    mine = {"Host": target.header, "Connection": "close"}
    connection.request(method, target.path, body or (b"" if method != "GET" else None), {**headers, **mine})
    response = connection.getresponse()
    with response:
        if response.msg.defects:
            raise OutsideFailed(BROKEN_HEAD)
        told: dict[str, str] = {}
        for name, value in response.getheaders():
            name = name.lower()
            told[name] = f"{told[name]}, {value}" if name in told else value
        return Answer(response.status, told, _body(response, most_bytes, cut))


def _body(response: HTTPResponse, most_bytes: int, cut: bool) -> bytes:
    """At most so many bytes, unpacked by nobody. Raises OutsideFailed for more, unless it may be cut."""
    found = bytearray()
    while len(found) <= most_bytes and (piece := response.read(min(_PIECE, most_bytes + 1 - len(found)))):
        found += piece
    if len(found) > most_bytes and not cut:
        raise TooMuch(ANSWER_TOO_LARGE(most=most_bytes))
    if len(found) <= most_bytes and response.length:
        raise OutsideFailed(ENDED_TOO_EARLY)
    return bytes(found[:most_bytes])


def _reason(error: Exception) -> Message:
    """What went wrong, in a line without anything of what was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return INVALID_CERTIFICATE(problem=error.verify_message)
    text = str(error) or type(error).__name__
    return verbatim(" ".join("".join(c if c.isprintable() else " " for c in text).split())[:300])
