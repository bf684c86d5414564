"""What a sandbox of bubblewrap sees of this machine: programs and libraries, nothing about people."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from grading.domain.errors import SandboxUnavailable
from workers.sandbox.backends.base import Mount, SandboxSpec

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = ("ld.so.cache", "alternatives", "R", "fonts")
_DEVICES = ("null", "urandom")  # never zero: shared pages of it belong to no process
_COVERED = ("/usr/local/etc",)
# of what everybody could read there; the kernel keeps the rest for root, who is nobody in a sandbox
_PROC = ("sys", "cmdline", "interrupts", "keys", "modules")
_LINKS = {
    "random": "urandom",
    "shm": "/tmp",  # noqa: S108 - the sandbox's own; semaphores lie there
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_TAKEN = ("/dev", "/etc", "/proc", "/sys", "/tmp", "/usr", *(f"/{name}" for name in _SYSTEM))  # noqa: S108
_WORK = PurePosixPath("/box")


@functools.cache
def system() -> tuple[str, ...]:
    """The arguments that bind the system read-only and cover what is nobody's business."""
    found = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        place = Path("/", name)
        if place.is_symlink():
            found += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            found += ["--ro-bind", str(place), str(place)]
    found += ["--perms", "0755", "--dir", "/etc"]
    for name in _ETC:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for folder in (*_COVERED, *_ourselves()):
        if Path(folder).is_dir():
            found += _empty(folder)
    return tuple(found)


def _ourselves() -> Iterable[str]:
    """This project's own folder, where it lies in what a sandbox sees."""
    root = Path(__file__).resolve().parents[3]
    installed = root.name == "site-packages"
    return [str(root)] if root.is_relative_to("/usr") and not installed else []


def _empty(folder: str) -> list[str]:
    # where we are root, it is root's and thereby read-only to a sandbox
    return ["--size", "4096", "--tmpfs", folder, *([] if os.geteuid() == 0 else ["--remount-ro", folder])]


@functools.cache
def kernel() -> tuple[str, ...]:
    """The arguments for /proc, without what tells about the machine, and the few devices."""
    found = ["--proc", "/proc"]
    for name in _PROC:
        place = Path("/proc", name)
        if place.is_dir():
            found += _empty(str(place))
        elif place.exists():
            found += ["--ro-bind", "/dev/null", str(place)]
    return (*found, *devices())


def devices() -> list[str]:
    """The arguments for the few devices."""
    found = ["--perms", "0755", "--dir", "/dev"]
    for name in _DEVICES:
        found += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in _LINKS.items():
        found += ["--symlink", target, f"/dev/{name}"]
    return found


def writable(disk_mb: int) -> list[str]:
    """The arguments for the folders in which a sandbox may write; each holds `disk_mb` MiB at most."""
    found: list[str] = []
    for folder, mode in (("/tmp", "1777"), ("/box", "0777")):  # noqa: S108 - the sandbox's own
        found += ["--perms", mode, "--size", str(disk_mb << 20), "--tmpfs", folder]
    return found


def mounts(wanted: Iterable[Mount], *, as_other_user: bool) -> list[str]:
    """The arguments for its own files. Raises SandboxUnavailable for what cannot be placed or read."""
    found: list[str] = []
    made = {PurePosixPath("/"), _WORK}
    covered: set[PurePosixPath] = set()
    for mount in sorted(wanted, key=lambda item: PurePosixPath(item.target).parts):
        target = checked(mount, as_other_user=as_other_user)
        for folder in reversed(target.parents):
            if folder not in made and not any(folder.is_relative_to(other) for other in covered):
                made.add(folder)
                mode = "0777" if folder.is_relative_to(_WORK) else "0755"
                found += ["--perms", mode, "--dir", str(folder)]
        covered.add(target)
        found += ["--ro-bind", str(mount.source), str(target)]
    return found


def checked(mount: Mount, *, as_other_user: bool) -> PurePosixPath:
    """Where it goes. Raises SandboxUnavailable when it cannot go there, is not there, or is a link."""
    target = PurePosixPath(mount.target)
    odd = not target.is_absolute() or ".." in target.parts or "\0" in mount.target
    if odd or target in (_WORK, PurePosixPath("/")) or any(target.is_relative_to(root) for root in _TAKEN):
        raise SandboxUnavailable(f"Nothing can be placed at {mount.target!r} in a sandbox.")
    try:
        state = mount.source.lstat()
    except (OSError, ValueError) as error:
        raise SandboxUnavailable(f"{mount.source} should be seen in a sandbox, but is not there.") from error
    if mount.source.is_symlink():
        raise SandboxUnavailable(f"{mount.source} is a link; the sandbox takes files and folders only.")
    if as_other_user and not state.st_mode & 0o004:
        raise SandboxUnavailable(
            f"Programs in a sandbox cannot read {mount.source}. Let others read it (chmod -R o+rX)."
        )
    return target


def check_program(spec: SandboxSpec) -> None:
    """Raises SandboxUnavailable when the program lies neither in the system nor in the mounts."""
    program = PurePosixPath(spec.argv[0])
    if not program.is_absolute():
        return
    places = [Path(program)] if program.is_relative_to("/usr") or program.parts[1] in _SYSTEM else []
    for mount in spec.mounts:
        if program.is_relative_to(mount.target):
            places.append(mount.source / program.relative_to(mount.target))
    if not any(os.path.lexists(place) for place in places):
        raise SandboxUnavailable(f"The program {program} is not there, so nothing can be run with it.")


def people(uid: int) -> dict[str, bytes]:
    """Files of /etc that name the one user of a sandbox."""
    return {
        "/etc/passwd": f"grader:x:{uid}:{uid}:student:/box:/bin/sh\n".encode(),
        "/etc/group": f"grader:x:{uid}:\n".encode(),
    }
