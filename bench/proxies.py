"""A real Caddy and a real nginx, with the project's own files and only their places replaced."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grading.domain.errors import ConfigError

DEPLOY = Path(__file__).parents[1] / "deploy"
NAME = "grader.school.example"
HOSTS = ("10.0.0.5:8080", "10.0.0.6:8080")
"""What the files for several hosts call the web apps."""
START_S = 60.0
LOOK_S = 0.05
STOP_S = 10.0

DEBIAN = """\
daemon off;
{user}
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections {connections}; }}
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
    to: tuple[str, ...]
    """Hosts and ports of the web apps; of several the files are those of deploy/web-hosts."""
    certificate: Path
    key: Path
    connections: int = 768
    """Of each process of nginx; Debian's by default."""


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with each pattern replaced; each must be there."""
    for pattern, value in values.items():
        text, count = re.subn(pattern, lambda _, value=value: value, text)  # type: ignore[misc]
        assert count, f"the file has no {pattern}"
    return text


def _file(places: Places, name: str) -> str:
    folder = DEPLOY / "web-hosts" if len(places.to) > 1 else DEPLOY
    return (folder / name).read_text(encoding="utf-8")


def _web_apps(places: Places) -> dict[str, str]:
    named = HOSTS if len(places.to) > 1 else ("127.0.0.1:8080",)
    return {re.escape(host): address for host, address in zip(named, places.to, strict=True)}


def caddy(places: Places, shorter: Mapping[str, str]) -> list[str]:
    """Write the Caddyfile; the command that runs it."""
    everywhere = f"{{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port {places.plain_port}\n"
    text = replaced(
        _file(places, "Caddyfile"),
        {
            r"(?m)^\{\n": everywhere,
            rf"(?m)^{re.escape(NAME)} \{{": (
                f"https://localhost:{places.port} {{\n\ttls {places.certificate} {places.key}"
            ),
            **_web_apps(places),
            **shorter,
        },
    )
    file = places.folder / "Caddyfile"
    file.write_text(text, encoding="utf-8")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


def nginx(places: Places, shorter: Mapping[str, str]) -> list[str]:
    """Write nginx.conf and what it includes; the command that runs it."""
    text = replaced(
        _file(places, "nginx.conf"),
        {
            r"listen \[::\]:(80|443 ssl);": "",
            r"listen 80;": f"listen 127.0.0.1:{places.plain_port};",
            r"listen 443 ssl;": f"listen 127.0.0.1:{places.port} ssl;",
            r"(ssl_certificate) .*;": f"ssl_certificate {places.certificate};",
            r"(ssl_certificate_key) .*;": f"ssl_certificate_key {places.key};",
            **_web_apps(places),
            **shorter,
        },
    )
    (places.folder / "grader.conf").write_text(text, encoding="utf-8")
    # the tests' folders are for their owner alone
    user = "user root root;" if os.getuid() == 0 else ""
    whole = places.folder / "nginx.conf"
    text = DEBIAN.format(folder=places.folder, user=user, connections=places.connections)
    whole.write_text(text, encoding="utf-8")
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


@dataclass
class Proxy:
    """A Caddy or an nginx before the web apps; a context manager starts and ends it.

    `shorter` are further patterns of its file and what takes their place.
    """

    name: str
    places: Places
    shorter: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"https://localhost:{self.places.port}"

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it listens. Raises ConfigError."""
        folder = self.places.folder
        folder.mkdir(exist_ok=True)
        command = PROXIES[self.name](self.places, self.shorter)
        with (folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environ_in(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_S
        while not _listens(self.places.port):
            if self._process.poll() is not None or time.monotonic() > end:
                raise ConfigError(f"{self.name} did not start; see {folder}")
            time.sleep(LOOK_S)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)
        self._process = None

    def stop(self) -> None:
        """End it, by force where open connections keep one that ends gracefully."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def running(name: str, places: Places, shorter: Mapping[str, str] | None = None) -> Iterator[str]:
    """The proxy's address while it runs."""
    with Proxy(name, places, shorter or {}) as proxy:
        yield proxy.url


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
