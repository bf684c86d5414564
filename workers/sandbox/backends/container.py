"""The container backend: Docker or Podman, one container a sandbox."""

from __future__ import annotations

import csv
import io
import math
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from grading.config.settings import Limits
from grading.domain.errors import SandboxUnavailable
from workers.sandbox.backends import filesystem_view
from workers.sandbox.backends.base import Mount, SandboxSpec, Session
from workers.sandbox.backends.json_lines import PipedSession, environment
from workers.sandbox.backends.watchdog import Watcher

_ANSWER_S = 30.0
_END_S = 10.0
_NOBODY = "65534:65534"
_FILES_OPEN = 512
_ORPHAN_S = 5
"""So much longer than it may, a container lives whose worker was killed."""


class Container:
    """Boxes by `docker` or `podman`; the image must be there (deploy/sandbox.Dockerfile)."""

    name = "container"

    def __init__(self, engine: str, image: str) -> None:
        self._engine = engine
        self._image = image
        self._watcher = Watcher()
        self._works = False

    def problem(self) -> str:
        """Why no sandbox can be opened; empty when one could. A success is remembered."""
        if self._works:
            return ""
        if not self._engine or not self._image:
            return 'The sandbox "container" needs sandbox.engine ("docker" or "podman") and sandbox.image.'
        if shutil.which(self._engine) is None:
            return f"sandbox.engine: the program {self._engine!r} is not found. Install Docker or Podman."
        probe = [
            self._engine,
            "run",
            *_options(SandboxSpec((), limits=Limits(disk_mb=1))),
            self._image,
            "true",
        ]
        try:
            done = subprocess.run(
                probe, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self._engine} cannot be used: {error}."
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-300:]
            return (
                f"{self._engine} cannot start a container from {self._image!r} ({said}). Is it running, may "
                f"this user use it, and is the image there? To make it: "
                f"{self._engine} build -f deploy/sandbox.Dockerfile -t {self._image} ."
            )
        self._works = True
        return ""

    def open(self, spec: SandboxSpec) -> Session:
        """Start the program of a sandbox. Raises SandboxUnavailable."""
        for mount in spec.mounts:
            filesystem_view.checked(mount, as_other_user=True)
        problem = self.problem()
        if problem:
            raise SandboxUnavailable(problem)
        try:
            program = _Contained(self._engine, self._image, spec)
        except OSError as error:
            raise SandboxUnavailable(f"{self._engine} could not be started: {error}.") from error
        return PipedSession(program, spec.limits, self._watcher)


class _Contained:
    """A container that runs, by the engine's client that is attached to it."""

    root_pid: int | None = None  # the engine itself limits memory and processes

    def __init__(self, engine: str, image: str, spec: SandboxSpec) -> None:
        self._engine = engine
        self._container_name = f"grader-{secrets.token_hex(12)}"
        self._folder = tempfile.TemporaryDirectory(prefix="grader-container-")
        self._made = Path(self._folder.name, "id")
        life = str(math.ceil(spec.limits.seconds) + _ORPHAN_S)
        options = [
            "--interactive",
            "--name",
            self._container_name,
            "--cidfile",
            str(self._made),
            *_options(spec),
        ]
        command = [engine, "run", *options, image, "timeout", "--signal=KILL", life, *spec.argv]
        self._killer: subprocess.Popen[bytes] | None = None
        try:
            self._client = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except OSError:
            self._folder.cleanup()
            raise
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self.stdin, self.stdout = self._client.stdin.fileno(), self._client.stdout.fileno()

    @property
    def entered_pid(self) -> int | None:
        """None: nothing enters from outside."""
        return None

    def kill(self) -> None:
        """Tell the engine to end it, without waiting."""
        if self._killer is None and self._client.poll() is None:
            with suppress(OSError):
                self._killer = subprocess.Popen(
                    [self._engine, "kill", self._container_name],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        try:
            self._client.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def release(self) -> int | None:
        """Close all; its exit code, None when the engine made no container."""
        for pipe in (self._client.stdin, self._client.stdout):  # the engine may be waiting to write
            if pipe is not None:
                pipe.close()
        if self._killer is not None:
            with suppress(subprocess.TimeoutExpired):
                self._killer.wait(_ANSWER_S)
            if self._killer.poll() is None:
                self._killer.kill()
                self._killer.wait()
        # a container that was only being made when it was to end is ended now
        if not self.wait(_END_S if self._killer is None or self._killer.returncode == 0 else 0):
            self._remove()
            if not self.wait(_END_S):
                self._client.kill()
                self._client.wait()
                self._remove()
        made = self._made.exists()
        self._folder.cleanup()
        return self._client.returncode if made else None

    def _remove(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            remove = [self._engine, "rm", "--force", self._container_name]
            subprocess.run(
                remove, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S
            )


def _options(spec: SandboxSpec) -> list[str]:
    """Options of `run`, the same for Docker and Podman."""
    limits = spec.limits
    memory, disk = f"{limits.memory_mb}m", f"{limits.disk_mb}m"
    options = [
        "--rm",
        "--pull",
        "never",
        "--log-driver",
        "none",
        "--hostname",
        "sandbox",
        "--workdir",
        "/box",
    ]
    options += ["--network", "none", "--ipc", "private", "--read-only", "--user", _NOBODY]
    options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
    options += [
        "--memory",
        memory,
        "--memory-swap",
        memory,
        "--pids-limit",
        str(limits.processes),
        "--cpus",
        "1",
    ]
    options += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={disk},mode=1777", "--shm-size", "64m"]  # noqa: S108
    options += ["--tmpfs", f"/box:rw,nosuid,nodev,size={disk},mode=0777"]
    for name, value in (("core", 0), ("fsize", limits.disk_mb << 20), ("nofile", _FILES_OPEN)):
        options += ["--ulimit", f"{name}={value}:{value}"]
    for name, text in environment(spec).items():
        options += ["--env", f"{name}={text}"]
    for mount in spec.mounts:
        options += ["--mount", _mount(mount)]
    return options


def _mount(mount: Mount) -> str:
    """A line of the form that engines read; names with commas and quotes survive."""
    return _csv(["type=bind", f"source={mount.source.resolve()}", f"target={mount.target}", "readonly"])


def _csv(fields: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
