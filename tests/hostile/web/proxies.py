"""A real Caddy and a real nginx, with the project's own files and only their places replaced."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.system import until

DEPLOY = Path(__file__).parents[3] / "deploy"
NAME = "grader.school.example"
STOP_S = 10.0

DEBIAN = """\
daemon off;
{user}
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 768; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u;
    scgi_temp_path {folder}/s;
    include {folder}/grader.conf;
}}
"""
"""What Debian's nginx.conf says, as far as it counts here, around the project's file."""


@dataclass(frozen=True)
class Places:
    """What is replaced in a file."""

    folder: Path
    port: int
    plain_port: int
    to: int
    """The web app's."""
    certificate: Path
    key: Path


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with each pattern replaced; each must be there."""
    for pattern, value in values.items():
        text, count = re.subn(pattern, lambda _, value=value: value, text)  # type: ignore[misc]
        assert count, f"the file has no {pattern}"
    return text


def caddy(places: Places, shorter: Mapping[str, str]) -> list[str]:
    """Write the Caddyfile; the command that runs it."""
    everywhere = f"{{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port {places.plain_port}\n"
    text = replaced(
        (DEPLOY / "Caddyfile").read_text(encoding="utf-8"),
        {
            r"(?m)^\{\n": everywhere,
            rf"(?m)^{re.escape(NAME)} \{{": (
                f"https://localhost:{places.port} {{\n\ttls {places.certificate} {places.key}"
            ),
            r"127\.0\.0\.1:8080 \{": f"127.0.0.1:{places.to} {{",
            **shorter,
        },
    )
    file = places.folder / "Caddyfile"
    file.write_text(text, encoding="utf-8")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


def nginx(places: Places, shorter: Mapping[str, str]) -> list[str]:
    """Write nginx.conf and what it includes; the command that runs it."""
    text = replaced(
        (DEPLOY / "nginx.conf").read_text(encoding="utf-8"),
        {
            r"listen \[::\]:(80|443 ssl);": "",
            r"listen 80;": f"listen 127.0.0.1:{places.plain_port};",
            r"listen 443 ssl;": f"listen 127.0.0.1:{places.port} ssl;",
            r"(ssl_certificate) .*;": f"ssl_certificate {places.certificate};",
            r"(ssl_certificate_key) .*;": f"ssl_certificate_key {places.key};",
            r"http://127\.0\.0\.1:8080;": f"http://127.0.0.1:{places.to};",
            **shorter,
        },
    )
    (places.folder / "grader.conf").write_text(text, encoding="utf-8")
    # the tests' folders are for their owner alone
    user = "user root root;" if os.getuid() == 0 else ""
    whole = places.folder / "nginx.conf"
    whole.write_text(DEBIAN.format(folder=places.folder, user=user), encoding="utf-8")
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    return [program, "-p", str(places.folder), "-c", str(whole), "-e", str(places.folder / "nginx.log")]


PROXIES: dict[str, Callable[[Places, Mapping[str, str]], list[str]]] = {"caddy": caddy, "nginx": nginx}


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, signed by itself, and its key."""
    certificate, key = folder / "localhost.pem", folder / "localhost.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return certificate, key


def environ_in(folder: Path) -> dict[str, str]:
    """Where Caddy keeps its own files."""
    return {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


@contextmanager
def running(name: str, places: Places, shorter: Mapping[str, str] | None = None) -> Iterator[str]:
    """The proxy's address while it runs; `shorter` are further patterns and what takes their place."""
    places.folder.mkdir(exist_ok=True)
    command = PROXIES[name](places, shorter or {})
    with (places.folder / "output.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environ_in(places.folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or _listens(places.port), 20, f"{name}; see {places.folder}")
        assert process.poll() is None, f"{name} ended; see {places.folder}"
        yield f"https://localhost:{places.port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:  # open connections keep a proxy that ends gracefully
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
