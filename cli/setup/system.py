"""The system below: what kind it is, its packages, and the services that it starts."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.setup import redis
from cli.setup.host import Host, SetupError

OLDEST = {"debian": (12,), "ubuntu": (24, 4)}
"""With Redis 7, whose users can have rights by direction, and Python 3.11."""
PACKAGES = (
    *("bubblewrap", "libseccomp2", "openssl", "openssh-client"),
    "util-linux",
)
STORES, STORE_CLIENTS = ("redis-server", "postgresql"), ("postgresql-client",)
"""Of the server that has them; `grader backup` of others needs the clients."""
R_PACKAGES = (
    *("r-base-core", "r-cran-irkernel", "r-cran-testthat", "r-cran-dplyr", "r-cran-tidyr", "r-cran-readr"),
    *(
        "r-cran-stringr",
        "r-cran-ggplot2",
        "r-cran-lubridate",
        "r-cran-forcats",
        "r-cran-purrr",
        "r-cran-tibble",
    ),
)
NEEDED_ELSEWHERE = ("redis-server", "psql", "bwrap", "openssl", "ssh", "runuser", "useradd", "systemctl")
RUN_IN = "sandbox backend:"
"""What the sandbox worker says when it starts."""
OLD_VARIABLES = "/etc/grader.env"
NOT_ROOT = "Run setup as root (sudo)."
PROFILE = "/etc/apparmor.d/bwrap-userns-restrict"
FREE_GB = 3.0
STOP_S = 30.0
LOCK_S, LONG_S = 300.0, 1800.0


@dataclass(frozen=True)
class Facts:
    """What is known of the system."""

    name: str
    systemd: bool
    free_gb: float

    def __str__(self) -> str:
        manager = "systemd" if self.systemd else "no systemd"
        version = ".".join(map(str, sys.version_info[:3]))
        return f"{self.name}, {manager}, Python {version}, {self.free_gb:.0f} GB free"


def look(host: Host, checkout: Path) -> Facts:
    """What the system is. Raises SetupError with all that keeps setup from working."""
    free_gb = shutil.disk_usage(checkout).free / 1e9
    problems = [*wrong_system(host), *_unreadable(checkout), *_changeable(checkout), *_made_by_hand(host)]
    if os.geteuid() != 0:
        problems.append(NOT_ROOT)
    if free_gb < FREE_GB:
        problems.append(f"{checkout} has {free_gb:.1f} GB free. Setup needs {FREE_GB:.0f} GB.")
    if problems:
        raise SetupError("\n".join(problems))
    return Facts(
        _release(host).get("PRETTY_NAME", "Linux"), host.path("/run/systemd/system").is_dir(), free_gb
    )


def _release(host: Host) -> dict[str, str]:
    lines = (host.read("/etc/os-release") or "").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: value.strip('"') for name, value in found.items()}


def wrong_system(host: Host) -> list[str]:
    """Why this is no system that setup knows, with what is missing of a server."""
    release = _release(host)
    kind = release.get("ID", "another system")
    version = tuple(map(int, re.findall(r"\d+", release.get("VERSION_ID", ""))))
    if kind in OLDEST and version >= OLDEST[kind]:
        return []
    missing = [one for one in NEEDED_ELSEWHERE if not host.has(one)]
    named = f" Missing here: {', '.join(missing)}." if missing else ""
    return [
        "Setup supports Debian 12, Ubuntu 24.04 and newer; "
        f"this is {release.get('PRETTY_NAME', kind)}.{named} "
        "docs/how-to/administrators/server.md lists what a server needs."
    ]


def _unreadable(checkout: Path) -> list[str]:
    """The users of the services must reach the program, and the Python that its environment was made from."""
    python = Path(sys.executable).resolve()
    program = checkout / "cli" / "main.py"
    if not program.stat().st_mode & 0o004:
        return [f"The services cannot read {program}: chmod -R go+rX {checkout}"]
    for place, help_ in (
        (checkout, f"move the checkout: mv {checkout} /srv/grader"),
        (python, "create the environment with the system's Python: PYTHON=/usr/bin/python3, without .venv"),
    ):
        shut = [one for one in (place, *place.parents) if not one.stat().st_mode & 0o001]
        if shut:
            return [f"The services cannot read {place}, as {shut[-1]} is closed to others: {help_}."]
    return []


def _changeable(checkout: Path) -> list[str]:
    """Root runs the program, so nobody else may change it."""
    for place in (checkout, checkout / ".git", checkout / ".venv"):
        if not place.exists():
            continue
        found = place.stat()
        by_group = found.st_mode & 0o020 and found.st_gid != 0
        if found.st_uid != 0 or by_group or found.st_mode & 0o002:
            words = [f"sudo chown -R root:root {checkout}", f"sudo chmod -R go-w {checkout}"]
            if (checkout / "var").exists():
                words.append(f"sudo chown -R grader: {checkout}/var")
            return [f"Users other than root can change {place}, which root runs: {' && '.join(words)}"]
    return []


def _made_by_hand(host: Host) -> list[str]:
    """Setup keeps variables in a folder; a file of older instructions would silently be worth nothing."""
    if not host.path(OLD_VARIABLES).exists():
        return []
    return [
        f"{OLD_VARIABLES} is from a manual installation and is not used. Move its lines to "
        "/etc/grader/grader.env (except GRADER_REDIS_URL, as setup creates a Redis), then remove it."
    ]


def packages(r: bool, *, stores: bool = True) -> tuple[str, ...]:
    """The system packages of a server, with Redis and PostgreSQL or for one that uses another server's."""
    return (*(STORES if stores else STORE_CLIENTS), *PACKAGES, *(R_PACKAGES if r else ()))


def installed(host: Host, package: str) -> bool:
    """Whether a system package is there."""
    words = ("dpkg-query", "--show", "--showformat=${db:Status-Status}", package)
    return host.attempt(*words).stdout == "installed"


def install(host: Host, packages: Sequence[str]) -> None:
    """Install system packages, also after an installation that broke off, and when another one has ended."""
    end = time.monotonic() + LOCK_S
    while True:
        try:
            _install(host, packages)
            return
        except SetupError as error:
            locked = "get lock" in error.message or "locked by another" in error.message
            if not locked or time.monotonic() > end:
                raise
        time.sleep(1)


def _install(host: Host, packages: Sequence[str]) -> None:
    how: dict[str, Any] = {"environ": {"DEBIAN_FRONTEND": "noninteractive"}, "timeout_s": LONG_S}
    host.run("apt-get", "update", "-q", **how)
    if host.attempt("dpkg", "--configure", "-a", **how).returncode:
        host.run("apt-get", "--fix-broken", "install", "-q", "-y", **how)
    host.run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages, **how)


def allow_sandboxes(host: Host) -> bool:
    """Let bubblewrap make namespaces where AppArmor keeps users from it (Ubuntu); False if it may."""
    restricted = (host.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") or "").strip() == "1"
    if not restricted or host.path(PROFILE).exists():
        return False
    install(host, ["apparmor-profiles"])
    host.journal.add("file", PROFILE)
    host.run("ln", "-s", f"/usr/share/apparmor/extra-profiles/{Path(PROFILE).name}", PROFILE)
    host.run("apparmor_parser", "-r", PROFILE)
    return True


# --- services -------------------------------------------------------------------------------------


def start(host: Host, unit: str, files: Sequence[str]) -> bool:
    """Enable a unit and start it, again if one of its files is newer; False when it ran with these."""
    host.journal.add("unit", unit)
    host.run("systemctl", "enable", unit)
    shown = host.run(
        "systemctl", "show", "--timestamp=unix", "--property=ActiveState,ActiveEnterTimestamp", unit
    )
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    since = float(found.get("ActiveEnterTimestamp", "").lstrip("@") or 0)
    newest = max((host.path(one).stat().st_mtime for one in files if host.path(one).exists()), default=0.0)
    if found.get("ActiveState") == "active" and int(newest) <= since:
        return False
    host.run("systemctl", "restart", unit)
    return True


def drop(host: Host, unit: str) -> None:
    """Stop a unit that setup started, and keep it from starting. Raises SetupError if it goes on."""
    host.attempt("systemctl", "disable", "--now", unit, timeout_s=300)
    if host.attempt("systemctl", "is-active", "--quiet", unit).returncode == 0:
        raise SetupError(f"{unit} still runs; see `systemctl status {unit}`.")


def not_run(host: Host) -> str:
    """Why the sandbox worker, in its unit, runs no work; empty if it does."""
    words = ("journalctl", "--unit=grader-sandbox.service", "--output=cat", "--no-pager", "--lines=1000")
    said = [line for line in host.run(*words).splitlines() if f"{RUN_IN} " in line]
    return said[-1].partition(f"{RUN_IN} none ")[2] if said else ""


def verify(host: Host, units: Sequence[str]) -> None:
    """Have systemd read units. Raises SetupError with what it does not understand."""
    said = host.attempt("systemd-analyze", "verify", *units).stderr
    faults = [line for line in said.splitlines() if "grader-" in line]
    if faults:
        raise SetupError("systemd refuses a unit: " + " ".join(faults))


def start_postgresql(host: Host, systemd: bool) -> None:
    """Start the system's server of PostgreSQL."""
    if systemd:
        host.run("systemctl", "enable", "--now", "postgresql.service")
    else:
        version, cluster = host.run("pg_lsclusters", "--no-header").split()[:2]
        host.run("pg_ctlcluster", version, cluster, "start")
    end = time.monotonic() + STOP_S
    while host.attempt("pg_isready", "--quiet").returncode:
        if time.monotonic() > end:
            raise SetupError("PostgreSQL was started but does not answer. See /var/log/postgresql.")
        time.sleep(0.2)


def start_redis(host: Host, changed: bool) -> bool:
    """Start Redis where no systemd does, again if its files changed."""
    if _redis_process(host):
        if not changed:
            return False
        stop_redis(host)
    host.journal.add("process", redis.PID)
    host.run("redis-server", redis.CONFIG, "--daemonize", "yes", user="redis")
    return True


def stop_redis(host: Host) -> None:
    """End the Redis that `start_redis` started. Raises SetupError if it goes on."""
    pid = _redis_process(host)
    if pid:
        # as the user whose file names it, who cannot have another user's process ended
        host.run("sh", "-c", 'kill "$1"', "sh", str(pid), user="redis")
    end = time.monotonic() + STOP_S
    while pid and Path(f"/proc/{pid}").exists():
        if time.monotonic() > end:
            raise SetupError(f"Redis (process {pid}) does not stop. Stop it with `kill {pid}`.")
        time.sleep(0.05)
    host.remove(redis.PID)


def _redis_process(host: Host) -> int:
    """Its number; 0 if it does not run."""
    pid = int(host.read(redis.PID) or 0)
    return pid if pid and Path(f"/proc/{pid}").exists() else 0
