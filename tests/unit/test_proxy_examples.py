"""The examples for proxies agree with the settings they stand before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grading.config import Server

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
EXAMPLES = {
    "nginx.conf": {
        "upload": r"client_max_body_size (\d+)m;",
        "waits": r"proxy_read_timeout\s+(\d+)s;",
        "to": r"proxy_pass http://([\d.]+:\d+);",
        "hides": r"location \^~ (/metrics) \{\s+return 404;",
    },
    "Caddyfile": {
        "upload": r"max_size (\d+)MB",
        "waits": r"response_header_timeout (\d+)s",
        "to": r"reverse_proxy ([\d.]+:\d+) ",
        "hides": r"@operators path (/metrics) /metrics/\*\s+respond @operators 404",
    },
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fits_the_settings(name: str, root: Path) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    found = {key: re.search(pattern, text) for key, pattern in EXAMPLES[name].items()}
    said = {key: match[1] for key, match in found.items() if match}
    server = Server()
    # what is allowed beyond the upload is the form around it
    assert server.max_upload_mb < int(said["upload"]) <= 2 * server.max_upload_mb
    settings = (root / "cli" / "gunicorn_server.py").read_text(encoding="utf-8")
    timeout = re.search(r'"timeout": (\d+)', settings)
    assert timeout is not None
    assert int(said["waits"]) > int(timeout[1])
    assert said["to"] == f"{server.host}:{server.port}"
    assert said["hides"] == "/metrics"


def test_nginx_sets_every_header_that_is_trusted(root: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    trusted = re.findall(r"x_(\w+)=1", (root / "app" / "security.py").read_text(encoding="utf-8"))
    assert trusted
    for header in trusted:
        assert re.search(rf"proxy_set_header X-Forwarded-{header}\s+\$\w+;", text, re.IGNORECASE), header
