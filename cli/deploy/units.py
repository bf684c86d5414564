"""Units of services: how systemd, launchd or nobody keeps a part of Grader running."""

from __future__ import annotations

import json
import plistlib
import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from grading.domain.errors import ConfigError

Kind = Literal["systemd", "launchd", "supervised"]
MARGIN_S = 20
"""More than a part itself takes to end, so that what it hands back still goes out."""
# $1 is the file of secrets, readable by its owner only; the rest is the command. After `exec` the part
# has the shell's process id, so that signals reach it.
WRAPPER = 'set -a; . "$1"; set +a; shift; exec "$@"'
Work = Literal["server", "sandbox", "models"]
"""What a part does, and so what it needs of the system: nothing, sandboxes of its own, or accelerators."""

ANY_MANAGER = """NoNewPrivileges=true
LockPersonality=true
RestrictRealtime=true
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
"""
# The others need rights that the service manager of a user does not have.
SYSTEM_MANAGER = """ProtectSystem=strict
PrivateTmp=true
PrivateMounts=true
ProtectKernelModules=true
ProtectControlGroups=true
ProtectClock=true
ProtectProc=invisible
CapabilityBoundingSet=
AmbientCapabilities=
RemoveIPC=true
"""
# What hides a part of /proc or keeps the host's name would keep bubblewrap from mounting and naming its own.
WITHOUT_SANDBOXES = """ProtectKernelTunables=true
ProtectKernelLogs=true
ProtectHostname=true
"""
NO_NAMESPACES = "RestrictNamespaces=true\nRestrictSUIDSGID=true\n"
NETWORK = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"
FOR_WORK: dict[Work, str] = {
    "server": f"""{NO_NAMESPACES}{NETWORK}
MemoryDenyWriteExecute=true
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
""",
    # bubblewrap makes namespaces and mounts, brings up their loopback and gives up what it may do in them;
    # newer ones call openat2, which RestrictSUIDSGID refuses, as it cannot see that call's flags
    "sandbox": f"""RestrictNamespaces=user mnt pid net ipc uts cgroup
{NETWORK} AF_NETLINK
SystemCallFilter=@system-service @mount sethostname
""",
    "models": f"""{NO_NAMESPACES}{NETWORK} AF_NETLINK
SystemCallFilter=@system-service
""",
}
DEVICES: dict[Work, str] = {
    "server": "PrivateDevices=true\n",
    "sandbox": "PrivateDevices=true\n",
    "models": "DevicePolicy=closed\nDeviceAllow=char-nvidia* rw\nDeviceAllow=char-drm rw\n",
}


@dataclass(frozen=True)
class Account:
    """A user of the system that runs parts, and the file with what they are told; its group reads that."""

    name: str
    env_file: str


SERVER_ACCOUNT = Account("grader", "/etc/grader/grader.env")
SANDBOX_ACCOUNT = Account("grader-sandbox", "/etc/grader/sandbox.env")
"""Runs what students submit, and so is told nothing but where Redis and the database are."""
STORES = "postgresql.service redis-server@grader.service"
"""At shutdown a part still writes down what it has before these end; where there are none, nothing waits."""
HOMES = ("/home", "/root", "/run/user")


@dataclass(frozen=True)
class Service:
    """A part of Grader as something that is kept running. `grace_s` is how long it may take to end."""

    name: str
    command: tuple[str, ...]
    folder: PurePosixPath
    env_file: PurePosixPath
    grace_s: float
    log: PurePosixPath
    environment: dict[str, str] = field(default_factory=dict)
    system: bool = False
    user: str | None = None
    work: Work = "models"
    writes: tuple[PurePosixPath, ...] = ()
    """Folders that it may write to; the service manager of the system makes all others read-only."""

    @property
    def stop_s(self) -> int:
        """Seconds after which what still runs is killed."""
        return int(self.grace_s) + MARGIN_S

    def rendered(self, kind: Kind) -> str:
        """The unit, the property list or the description, as its file has it."""
        return {"systemd": systemd, "launchd": launchd, "supervised": supervised}[kind](self)

    @property
    def _wrapped(self) -> list[str]:
        return ["/bin/sh", "-c", WRAPPER, "grader", str(self.env_file), *self.command]


def systemd(service: Service) -> str:
    """A unit; `systemctl stop` asks the main process to finish before anything is killed."""
    environment = "".join(f"Environment={_word(f'{k}={v}')}\n" for k, v in service.environment.items())
    after = f"network-online.target {STORES}" if service.work != "models" else "network-online.target"
    user = f"User={service.user}\n" if service.system and service.user else ""
    return f"""[Unit]
Description=Grader {service.name}
After={after}
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
{user}WorkingDirectory={_path(service.folder)}
EnvironmentFile={_path(service.env_file)}
{environment}ExecStart={" ".join(_word(word.replace("$", "$$")) for word in service.command)}
Restart=always
RestartSec=2
KillMode=mixed
TimeoutStopSec={service.stop_s}
UMask=0077
{confinement(service)}
[Install]
WantedBy={"multi-user.target" if service.system else "default.target"}
"""


def confinement(service: Service) -> str:
    """What a unit may not do, as far as its service manager and its work allow."""
    lines = ANY_MANAGER + FOR_WORK[service.work]
    if not service.system:
        return lines
    lines += SYSTEM_MANAGER + DEVICES[service.work]
    if service.work != "sandbox":
        lines += WITHOUT_SANDBOXES
    lines += f"ProtectHome={'read-only' if _below_home(service) else 'true'}\n"
    return lines + "".join(f"ReadWritePaths={_listed(f'-{folder}')}\n" for folder in service.writes)


def _below_home(service: Service) -> bool:
    """Whether something that the part reads lies where homes are; root's models do."""
    folders = (str(folder) for folder in (service.folder, *service.writes))
    named = (*service.command, *service.environment.values(), *folders)
    return service.user in (None, "root") or any(
        PurePosixPath(one).is_relative_to(home) for one in named for home in HOMES
    )


def _word(word: str) -> str:
    """A word as a unit has it: quoted, with what systemd would fill in written twice.

    Variables are filled in only where commands stand, whose `$` is written twice before.
    """
    escaped = _refuse_lines(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if set(escaped) - _SAFE else escaped


_SAFE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_-=:+@,")


def _path(path: PurePosixPath) -> str:
    # not quoted: these settings take the rest of the line
    return _refuse_lines(str(path)).replace("%", "%%")


def _listed(path: str) -> str:
    # one of several in a line, where quotes work as in a shell and backslashes are as they are
    return shlex.quote(_refuse_lines(path).replace("%", "%%"))


def _refuse_lines(text: str) -> str:
    if not text.isprintable():
        raise ConfigError(f"{text!r} cannot stand in a service: it has characters that are not printable.")
    return text


def launchd(service: Service) -> str:
    """A property list without secrets: a shell reads their file and becomes the part."""
    content = {
        "Label": f"grader.{service.name}",
        "ProgramArguments": service._wrapped,
        "WorkingDirectory": str(service.folder),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 5,
        "ExitTimeOut": service.stop_s,
        "ProcessType": "Interactive",  # else macOS slows it down
        "StandardOutPath": str(service.log),
        "StandardErrorPath": str(service.log),
        "Umask": 0o077,
        "HardResourceLimits": {"Core": 0},  # a dump would hold secrets and students' work
        **({"UserName": service.user, "InitGroups": True} if service.system and service.user else {}),
    }
    return plistlib.dumps(content, sort_keys=False).decode("utf-8")


def supervised(service: Service) -> str:
    """What a machine without a service manager starts."""
    content = {
        "command": service._wrapped,
        "folder": str(service.folder),
        "environment": service.environment,
    }
    return json.dumps(content, indent=1) + "\n"


def env_line(name: str, value: str) -> str:
    """A variable as both a shell and systemd read it; refuses what they would read differently."""
    if not value.isprintable() or "'" in value or "\\" in value:
        raise ConfigError(f"{name} has a quote, backslash or unprintable character; write it as %27, %5C, …")
    return f"{name}='{value}'\n"
