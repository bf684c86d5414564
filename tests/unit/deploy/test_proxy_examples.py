"""The examples for proxies agree with the settings they stand before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.servers.connection_limits import MIB, Bounds
from cli.servers.waitress_server import DRAINED_BYTES
from grading.config.settings import Server

DEPLOY = Path(__file__).parents[3] / "deploy"
EXAMPLES = {
    "nginx.conf": {
        "waits": r"proxy_read_timeout\s+(\d+)s;",
        "head": r"client_header_timeout\s+(\d+)s;",
        "idle": r"keepalive_timeout\s+(\d+)s;",
        "to": r"proxy_pass http://([\d.]+:\d+);",
        "hides": r"location \^~ (/metrics) \{\s+return 404;",
    },
    "Caddyfile": {
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
    assert set(said) == set(EXAMPLES[name])
    # the proxy gives a request up no later than the server, and lets go of idle connections first
    assert int(said["waits"]) >= 120
    assert float(said["head"]) <= bounds.head_s
    assert float(said["idle"]) < bounds.idle_s
    assert said["to"] == f"{server.host}:{server.port}"
    assert said["hides"] == "/metrics"


def test_nginx_sets_every_header_that_is_trusted(root: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    trusted = re.findall(r"x_(\w+)=1", (root / "app" / "web" / "security.py").read_text(encoding="utf-8"))
    assert trusted
    for header in trusted:
        assert re.search(rf"proxy_set_header X-Forwarded-{header}\s+\$\w+;", text, re.IGNORECASE), header


def test_grader_refuses_uploads_before_a_proxy_does() -> None:
    nginx, caddy = ((DEPLOY / name).read_text(encoding="utf-8") for name in ("nginx.conf", "Caddyfile"))
    said = re.search(r"client_max_body_size (\d+)m;", nginx)
    assert said is not None
    assert int(said[1]) * MIB == DRAINED_BYTES
    assert not re.search(r"^\s*max_size", caddy, re.MULTILINE)


def test_slow_bodies_are_given_up_by_grader_before_a_proxy_does() -> None:
    nginx, caddy = ((DEPLOY / name).read_text(encoding="utf-8") for name in ("nginx.conf", "Caddyfile"))
    bounds = Bounds(body_bytes=0)
    silent, whole = (
        re.search(r"client_body_timeout\s+(\d+)s;", nginx),
        re.search(r"read_body (\d+)s", caddy),
    )
    assert silent is not None
    assert whole is not None
    assert int(silent[1]) > bounds.window_s
    assert int(whole[1]) > bounds.body_s + 2 * bounds.window_s
    assert re.search(r"proxy_request_buffering\s+off;", nginx)
    # the first is refused by Caddy 2.10, the second by 2.6.2, which Debian has
    assert "buffer_requests" not in caddy
    assert "request_buffers" not in caddy


def test_one_address_behind_nginx_leaves_connections_to_others() -> None:
    said = re.search(r"limit_conn\s+\w+ (\d+);", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    assert said is not None
    assert int(said[1]) < Bounds(body_bytes=0).connections * 9 // 10
