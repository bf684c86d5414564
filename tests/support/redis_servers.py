"""Redis servers as operators may have set them up: with TLS and users, or wrongly."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from cli.dev.embedded_redis import find_redis_server, free_port
from tests.support.system import until

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
CA_CONFIG = """\
[ca]
default_ca = this
[this]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = names
x509_extensions = also
[names]
commonName = supplied
[also]
subjectAltName = DNS:localhost
"""


@dataclass(frozen=True)
class Certificates:
    """A throw-away certificate authority and a server's certificate from it, for localhost by name only."""

    ca: Path
    certificate: Path
    key: Path


def certificates(folder: Path, ends: str = "20991231000000Z") -> Certificates:
    """Make them; `ends` is when the server's certificate does, in UTC."""
    folder.mkdir(parents=True)
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key, request, config = folder / "ca.key", folder / "server.csr", folder / "ca.cnf"
    config.write_text(CA_CONFIG.format(folder=folder))
    (folder / "index.txt").touch()
    (folder / "serial").write_text("01")
    _openssl(
        "req", "-x509", *KEY, "-days", "2", "-subj", "/CN=throw-away", "-keyout", ca_key, "-out", made.ca
    )
    _openssl("req", *KEY, "-subj", "/CN=localhost", "-keyout", made.key, "-out", request)
    signing = ("-cert", made.ca, "-keyfile", ca_key, "-in", request, "-out", made.certificate)
    _openssl("ca", "-batch", "-config", config, *signing, "-startdate", "20200101000000Z", "-enddate", ends)
    return made


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


@contextmanager
def redis_server(folder: Path, *settings: str, tls: Certificates | None = None) -> Iterator[int]:
    """A redis-server on loopback with these lines of redis.conf and no others; gives its port."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = [
        "enable-debug-command yes",
        "bind 127.0.0.1",
        f"dir {folder}",
        'save ""',
        f"logfile {folder}/redis.log",
        *settings,
    ]
    if tls:
        lines += ["port 0", f"tls-port {port}", "tls-auth-clients no", f"tls-ca-cert-file {tls.ca}"]
        lines += [f"tls-cert-file {tls.certificate}", f"tls-key-file {tls.key}"]
    else:
        lines.append(f"port {port}")
    (folder / "redis.conf").write_text("\n".join(lines) + "\n")
    process = subprocess.Popen([find_redis_server(), folder / "redis.conf"], start_new_session=True)
    try:
        until(lambda: _listens(port) or process.poll() is not None, 30, "redis-server listens")
        assert process.poll() is None, (folder / "redis.log").read_text()
        yield port
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def acl_file(folder: Path, lines: Sequence[str]) -> str:
    """Write users.acl with these users and one for the test; gives the line for redis.conf."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "users.acl").write_text("\n".join([*lines, "user test on >test ~* &* +@all"]) + "\n")
    return f"aclfile {folder}/users.acl"


def password() -> str:
    """Long enough, and with characters that URLs must escape."""
    return f"p/{secrets.token_urlsafe(16)}@"


def client(url: str) -> redis.Redis:
    """A plain client; close it."""
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=30)
