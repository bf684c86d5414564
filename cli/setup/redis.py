"""A Redis of Grader's own beside any other: an authority, a certificate, users, a service of its own."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from redis import Redis
from redis.exceptions import RedisError

from cli.setup.host import Host, SetupError
from grading.broker import redis_acl, signing
from grading.config.settings import Config

PORT = 6380
"""Not that of a Redis that may be there already."""
SERVICE = "redis-server@grader.service"
"""Debian's own unit for further servers; it reads `redis-grader.conf`."""
CONFIG, FOLDER, DATA = "/etc/redis/redis-grader.conf", "/etc/redis/grader", "/var/lib/redis/grader"
AUTHORITY, AUTHORITY_KEY = "/etc/grader/ca.pem", "/etc/grader/ca.key"
PID = f"{DATA}/redis.pid"
CERTIFICATE, KEY, USERS = f"{FOLDER}/redis.pem", f"{FOLDER}/redis.key", f"{FOLDER}/users.acl"
AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 730
RENEW_S = 30 * 86_400
"""A certificate that ends sooner is made anew; `grader doctor` warns after that."""
ANSWER_S = 30.0
LOCAL = ("localhost", "127.0.0.1")


def url(user: str, password: str, host: str) -> str:
    """The address of a user as one computer writes it."""
    return f"rediss://{user}:{quote(password, safe='')}@{_bracketed(host)}:{PORT}/0"


def password_of(address: str) -> str:
    """The password in an address; empty without one."""
    return unquote(urlsplit(address).password or "")


def is_ours(address: str) -> bool:
    """Whether this is an address that setup writes for this computer, with whatever password."""
    found = urlsplit(address)
    return found.username == signing.SERVER and found.hostname in LOCAL and found.port == PORT


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def configuration(addresses: tuple[str, ...]) -> str:
    """The file of the server: TLS on these addresses only, users from a file, nothing thrown away."""
    return f"""# Made by `grader setup`, which overwrites it.
bind 127.0.0.1 {" ".join(one for one in addresses if one != "127.0.0.1")}
port 0
tls-port {PORT}
tls-cert-file {CERTIFICATE}
tls-key-file {KEY}
tls-ca-cert-file {AUTHORITY}
tls-auth-clients no
aclfile {USERS}
dir {DATA}
pidfile {PID}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
logfile ""
"""


def users(config: Config, server: str, machines: Mapping[str, str]) -> str:
    """The users and what they may do, with hashes of their passwords."""
    passwords = {signing.SERVER: server}
    passwords |= {signing.machine_user(name): password for name, password in machines.items()}
    return "".join(f"{line}\n" for line in redis_acl.lines(config, passwords))


def addresses_of(name: str) -> tuple[str, ...]:
    """The addresses of this computer under a name that machines know; what Redis listens on."""
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(name, PORT, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise SetupError(
            f"{name} cannot be resolved here ({error}). Use another one with --address."
        ) from None
    for one in sorted(found):
        if not _is_own(one):
            raise SetupError(f"{name} is {one}, which is not this computer. Use another one with --address.")
    by_name = name not in LOCAL and not _is_address(name)
    if by_name and all(ipaddress.ip_address(one).is_loopback for one in found):
        raise SetupError(
            f"{name} is {', '.join(sorted(found))} here, which machines cannot reach. "
            "Use another one with --address."
        )
    return tuple(sorted(found))


def _is_own(address: str) -> bool:
    """Whether a server of this computer can listen there."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def own_address() -> str:
    """The address of this computer towards other networks; that of itself where there are none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation's network: nothing is sent
        except OSError:
            return LOCAL[1]
        return str(probe.getsockname()[0])


# --- certificates ---------------------------------------------------------------------------------


def authority(host: Host) -> bool:
    """An authority of one's own, which signs nothing but this certificate; False when there is one."""
    if host.read(AUTHORITY) and host.read(AUTHORITY_KEY):
        return False
    key = host.run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    host.write(AUTHORITY_KEY, key, 0o600)
    words = ("-subj", "/CN=Grader", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    certificate = host.run(
        *("openssl", "req", "-x509", "-new", "-key", AUTHORITY_KEY, "-days", str(AUTHORITY_DAYS)), *words
    )
    host.write(AUTHORITY, certificate, 0o644)
    return True


def certificate(host: Host, name: str) -> bool:
    """A certificate for the name by which machines know the server; False when that there is lasts on."""
    if _lasts(host, name):
        return False
    key = host.run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    host.write(KEY, key, 0o640, group="redis")
    request = host.run("openssl", "req", "-new", "-key", KEY, "-subj", f"/CN={name[:64]}")
    names = ",".join(f"{'IP' if _is_address(one) else 'DNS'}:{one}" for one in dict.fromkeys((name, *LOCAL)))
    extensions = f"{FOLDER}/redis.ext"
    host.write(extensions, f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n", 0o640)
    signed = host.run(
        *("openssl", "x509", "-req", "-CA", AUTHORITY, "-CAkey", AUTHORITY_KEY),
        *("-set_serial", f"0x{secrets.token_hex(16)}", "-days", str(CERTIFICATE_DAYS)),
        *("-extfile", extensions),
        stdin=request,
    )
    host.write(CERTIFICATE, signed, 0o644)
    return True


def _lasts(host: Host, name: str) -> bool:
    """Whether there is a certificate of our authority for this name that does not end soon."""
    if host.read(CERTIFICATE) is None:
        return False
    checks = (
        ("openssl", "x509", "-in", CERTIFICATE, "-noout", "-checkend", str(RENEW_S)),
        ("openssl", "verify", "-CAfile", AUTHORITY, CERTIFICATE),
    )
    kind = "-checkip" if _is_address(name) else "-checkhost"
    matches = host.attempt("openssl", "x509", "-in", CERTIFICATE, "-noout", kind, name).stdout
    return all(host.attempt(*words).returncode == 0 for words in checks) and "does match" in matches


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# --- the server -----------------------------------------------------------------------------------


def until_answers(address: str) -> None:
    """Wait until Redis lets the server's user in. Raises SetupError."""
    end = time.monotonic() + ANSWER_S
    client = Redis.from_url(address, socket_connect_timeout=2, socket_timeout=2, ssl_ca_certs=AUTHORITY)
    try:
        while True:
            try:
                client.ping()
                return
            except RedisError as error:
                if time.monotonic() > end:
                    raise SetupError(
                        f"Redis does not answer on port {PORT} ({error}); see `journalctl -u {SERVICE}`."
                    ) from None
            time.sleep(0.2)
    finally:
        client.close()
