"""The certificates that the web app looks at for /metrics: its own, as people see it, and that of Redis."""

from __future__ import annotations

import ssl
from urllib.parse import parse_qsl, urlsplit

from grading.config.settings import Config
from grading.shared.certificates import certificate_end


def certificate_ends(config: Config) -> dict[str, float]:
    """When each ends, in seconds since 1970; 0 where it is not trusted, nothing where it cannot be seen."""
    found = {}
    for name, url, scheme, port in (
        ("web", config.server.public_url, "https", 443),
        ("redis", config.redis.url, "rediss", 6379),
    ):
        parts = urlsplit(url)
        if parts.scheme != scheme:
            continue
        ca_file = dict(parse_qsl(parts.query)).get("ssl_ca_certs")
        try:
            found[name] = certificate_end(parts.hostname or "", parts.port or port, ca_file)
        except ssl.SSLCertVerificationError:
            found[name] = 0.0
        except OSError:
            continue
    return found
