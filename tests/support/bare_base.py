"""A bare Debian in a folder, made once by debootstrap and kept beside other caches of the user.

Where packages come from is read from this machine's own configuration of apt and pip when a host is made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.services import ServiceMissing

SUITE = "bookworm"
PACKAGES = (
    "systemd-sysv dbus dbus-user-session libpam-systemd openssh-server sudo ca-certificates"
    " python3 make git iproute2 procps less"
).split()
"""What an installed server has besides Debian's smallest system."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "grader-tests"
DEBOOTSTRAP_S = 1200.0
APT, CERTIFICATES = Path("/etc/apt"), Path("/etc/ssl/certs/ca-certificates.crt")
APT_PARTS = ("sources.list", "sources.list.d", "apt.conf.d", "auth.conf.d", "trusted.gpg", "trusted.gpg.d")


def bare_base() -> Path:
    """The folder with the bare system; nobody writes into it."""
    key = hashlib.sha256(" ".join([SUITE, *PACKAGES]).encode()).hexdigest()[:12]
    CACHE.mkdir(parents=True, exist_ok=True)
    base = CACHE / f"{SUITE}-{key}"
    with (CACHE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not base.is_dir():
            _make(base)
    return base


def _make(base: Path) -> None:
    if shutil.which("debootstrap") is None:
        raise ServiceMissing("debootstrap is missing. Run scripts/bootstrap soak.")
    unfinished = CACHE / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(unfinished)]
    done = subprocess.run(
        [*command, _mirror()], capture_output=True, text=True, timeout=DEBOOTSTRAP_S, check=False
    )
    if done.returncode:
        raise ServiceMissing(f"debootstrap made no {SUITE}: {(done.stdout + done.stderr)[-800:]}")
    # each host makes its own
    for key in (unfinished / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    shutil.rmtree(unfinished / "var/cache/apt/archives")
    # each host gets those of this machine
    (unfinished / "etc/apt/sources.list").unlink()
    unfinished.rename(base)


def _mirror() -> str:
    """Where this machine's apt has the suite from."""
    asked = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    found = [line.split()[1] for line in listed.splitlines() if line.startswith(f"{SUITE} ")]
    if not found:
        raise ServiceMissing(
            f"apt on this machine knows no {SUITE}: a bare host can be made on Debian 12 only."
        )
    return found[0]


def configure_packages(top: Path) -> list[Path]:
    """Have apt and pip below `top` fetch as those of this machine do; folders that have to be seen there."""
    (top / "etc/apt").mkdir(parents=True)
    for name in APT_PARTS:
        source = APT / name
        if source.is_dir():
            shutil.copytree(source, top / "etc/apt" / name)
        elif source.exists():
            shutil.copy2(source, top / "etc/apt" / name)
    (top / CERTIFICATES.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(CERTIFICATES, top / CERTIFICATES.relative_to("/"))
    return _configure_pip(top)


def _configure_pip(top: Path) -> list[Path]:
    asked = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    values = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    # the variables of this process win, as they do here
    words = {name.split(".", 1)[1]: value.strip("'") for name, value in sorted(values.items(), key=_wins)}
    (top / "etc").mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = " + value.replace("\\n", "\n    ") for name, value in words.items()]
    (top / "etc/pip.conf").write_text("\n".join(["[global]", *lines]) + "\n")
    paths = {Path(word.removeprefix("file://")) for value in words.values() for word in value.split()}
    return sorted(
        _top_below(path) for path in paths if path.is_absolute() and path.exists() and path != CERTIFICATES
    )


def _wins(item: tuple[str, str]) -> bool:
    return item[0].startswith(":env:")


def _top_below(path: Path) -> Path:
    """An index `…/simple` names files beside it."""
    return path.parent if path.name == "simple" else path
