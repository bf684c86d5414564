"""What to tell operators when bubblewrap cannot work, or not as well as it could."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

NO_SECCOMP = (
    "libseccomp is missing, so boxes may make every system call. Install it (Debian, Ubuntu: "
    "apt-get install libseccomp2)."
)
_APPARMOR = (
    "Ubuntu keeps ordinary users from making namespaces. As root: apt-get install apparmor-profiles; "
    "ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/; "
    "apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
)
_PACKAGES = {"bwrap": "bubblewrap", "setpriv": "util-linux", "prlimit": "util-linux"}


def missing(programs: Sequence[str]) -> str:
    """The sentence about programs that are not installed."""
    packages = " ".join(dict.fromkeys(_PACKAGES[name] for name in programs))
    return (
        f"The sandbox needs {', '.join(programs)} and does not find it. Install it "
        f"(Debian, Ubuntu: apt-get install {packages})."
    )


def refused(said: str) -> str:
    """The sentence about a bubblewrap that is there but cannot open a box; `said` is what it printed."""
    remedy = "It must be 0.7 or newer." if "nknown option" in said else _remedy()
    return f"bubblewrap cannot open a sandbox here ({said[:300]}). {remedy}"


def _remedy() -> str:
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return _APPARMOR
    if _setting("kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return "As root: sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("user/max_user_namespaces") == "0" and os.geteuid() != 0:
        return "As root: sysctl -w user.max_user_namespaces=15000"
    return (
        "In a container it needs --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "--security-opt systempaths=unconfined and, as root, --cap-add SYS_ADMIN --cap-add NET_ADMIN; or set "
        'checks.sandbox to "container".'
    )


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
