"""The examples for proxies agree with the settings they stand before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.http_connections import Bounds
from grading.config import Server

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
EXAMPLES = {
    "nginx.conf": {
        "upload": r"client_max_body_size (\d+)m;",
        "waits": r"proxy_read_timeout\s+(\d+)s;",
        "head": r"client_header_timeout\s+(\d+)s;",
        "idle": r"keepalive_timeout\s+(\d+)s;",
        "to": r"proxy_pass http://([\d.]+:\d+);",
        "hides": r"location \^~ (/metrics) \{\s+return 404;",
    },
    "Caddyfile": {
        "upload": r"max_size (\d+)MB",
        "waits": r"response_header_timeout (\d+)s",
        "head": r"read_header (\d+)s",
        "idle": r"keepalive (\d+)s",
        "to": r"reverse_proxy ([\d.]+:\d+) ",
        "hides": r"@operators path (/metrics) /metrics/\*\s+respond @operators 404",
    },
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fits_the_settings(name: str, root: Path) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    found = {key: re.search(pattern, text) for key, pattern in EXAMPLES[name].items()}
    said = {key: match[1] for key, match in found.items() if match}
    server, bounds = Server(), Bounds(body_bytes=0)
    # what is allowed beyond the upload is the form around it
    assert server.max_upload_mb < int(said["upload"]) <= 2 * server.max_upload_mb
    # the proxy gives a request up no later than the server, and lets go of idle connections first
    assert int(said["waits"]) >= 120
    assert float(said["head"]) <= bounds.head_s
    assert float(said["idle"]) < bounds.idle_s
    assert said["to"] == f"{server.host}:{server.port}"
    assert said["hides"] == "/metrics"


def test_nginx_sets_every_header_that_is_trusted(root: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    trusted = re.findall(r"x_(\w+)=1", (root / "app" / "security.py").read_text(encoding="utf-8"))
    assert trusted
    for header in trusted:
        assert re.search(rf"proxy_set_header X-Forwarded-{header}\s+\$\w+;", text, re.IGNORECASE), header
