"""When the certificate of a server ends."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

PATIENCE_S = 5.0


def certificate_end(host: str, port: int, ca_file: str | None = None) -> float:
    """When the certificate there ends, in seconds since 1970. Raises OSError, also if it is not trusted."""
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection((host, port), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        certificate: Mapping[str, Any] = secure.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))
