"""Copying files to a machine: what is there already stays, what broke off goes on, every hash is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackagePath, distribution
from pathlib import Path
from typing import Any

from cli.deploy.ssh import MachineError, Remote

DEPLOY_SCRIPT = Path(__file__).parent / "remote" / "deploy.py"
CHUNK = 1 << 20
HASH_BYTES_A_S = 50e6
"""How slowly a machine may read and hash its files before the wait for it ends."""
LONGEST_S = 6 * 3600.0
SPARE = 10**9
"""Bytes that stay free on every disk that is copied to."""
SHIPPED = ("grading", "workers", "cli", "grader_client", "bench")
"""The packages that a machine runs."""
BESIDE = ("pyproject.toml", "LICENSE")
ANNOUNCING = ("METADATA", "entry_points.txt")

Progress = Callable[[int, int], None]
"""Told the bytes that were sent and all that there are to send."""


@dataclass(frozen=True)
class File:
    """A file to copy: its path over there, and size in bytes and SHA-256 of its content."""

    path: str
    source: Path
    size: int
    sha256: str

    @property
    def row(self) -> dict[str, Any]:
        """As a manifest has it."""
        return {"path": self.path, "size": self.size, "sha256": self.sha256}


def file(path: str, source: Path) -> File:
    """Measure a file."""
    with source.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return File(path, source, source.stat().st_size, digest)


def files_of(folder: Path) -> list[File]:
    """All files of a folder, but for hidden ones; links count as what they point to."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [(path.relative_to(folder), path) for path in found]
    return [file(n.as_posix(), p) for n, p in names if not any(part.startswith(".") for part in n.parts)]


def manifest(files: Iterable[File]) -> bytes:
    """Paths, sizes and hashes as JSON, the same for the same files."""
    rows = [one.row for one in sorted(files, key=lambda one: one.path)]
    return (json.dumps(rows, indent=0) + "\n").encode()


def program() -> tuple[str, list[File]]:
    """This version of Grader: a short name made of its content, and its files."""
    root = Path(__file__).resolve().parents[2]
    files = [file(name, root / name) for name in BESIDE if (root / name).is_file()]
    files += [file(one.as_posix(), Path(one.locate())) for one in _metadata()]
    for package in SHIPPED:
        paths = (path for path in sorted((root / package).rglob("*")) if path.is_file())
        files += [
            file(path.relative_to(root).as_posix(), path) for path in paths if "__pycache__" not in path.parts
        ]
    return hashlib.sha256(manifest(files)).hexdigest()[:12], files


def _metadata() -> list[PackagePath]:
    """Over there nothing is installed: these files beside the program announce its engines."""
    installed = distribution("grader").files or []
    return sorted(one for one in installed if one.parent.suffix == ".dist-info" and one.name in ANNOUNCING)


def copy(
    remote: Remote,
    files: Sequence[File],
    where: str,
    progress: Progress,
    *,
    public: bool = False,
    quick: bool = False,
) -> int:
    """Bring files to a folder over there, in this order; returns the bytes that had to be sent.

    MachineError when there is no room, or when files arrive damaged twice.
    """
    sent = 0
    for _ in range(2):
        missing = _missing(remote, files, where, quick)
        if not missing:
            return sent
        total = sum(one.size - offset for one, offset in missing)
        sent += total
        if not _send(remote, missing, where, public, partial(_report, progress, total)):
            return sent
    if _missing(remote, files, where, quick):
        raise MachineError(f"{remote.machine}: files for {where} arrived damaged twice. Check its disk.")
    return sent


def _report(progress: Progress, total: int, done: int) -> None:
    progress(done, total)


def _missing(remote: Remote, files: Sequence[File], where: str, quick: bool) -> list[tuple[File, int]]:
    """The files that are not there whole, each with how much of it is."""
    rows = json.dumps([one.row for one in files]).encode()
    limit_s = min(60 + sum(one.size for one in files) / HASH_BYTES_A_S, LONGEST_S)
    words = ("have", where, *(["quick"] if quick else []))
    answer = remote.call(DEPLOY_SCRIPT, *words, stdin=rows, timeout_s=limit_s)
    offsets = answer["have"]
    missing = [(one, min(offsets.get(one.path, 0), one.size)) for one in files]
    missing = [(one, offset) for one, offset in missing if offset >= 0]
    needed = sum(one.size - offset for one, offset in missing)
    if missing and needed + SPARE > answer["free"]:
        raise full(remote.machine, where, needed, answer["free"])
    return missing


def full(machine: str, where: str, needed: int, free: int) -> MachineError:
    """There is too little room for what is to be copied."""
    what = f"{where} needs {size(needed)}, and its disk" if needed else f"the disk of {where}"
    return MachineError(
        f"{machine}: {what} has {size(free)} free, of which {size(SPARE)} must stay free. Remove files "
        "there, or set folder or models in [machines.ssh] to a larger disk."
    )


def needed(remote: Remote, files: Sequence[File], where: str) -> Room:
    """What files still need over there, judged by their sizes."""
    rows = json.dumps([one.row for one in files]).encode()
    answer = remote.call(DEPLOY_SCRIPT, "have", where, "quick", stdin=rows)
    offsets = {path: offset for path, offset in answer["have"].items() if offset >= 0}
    count = sum(one.size - offsets[one.path] for one in files if one.path in offsets)
    return Room(where, answer["device"], count, answer["free"])


@dataclass(frozen=True)
class Room:
    """What is to be copied to a folder, and what is free on its disk."""

    where: str
    device: int
    needed: int
    free: int


def _send(
    remote: Remote,
    missing: Sequence[tuple[File, int]],
    where: str,
    public: bool,
    progress: Callable[[int], None],
) -> list[str]:
    """Send files, each from where it broke off; the ones that arrived damaged."""

    def write(send: Callable[[bytes], None]) -> None:
        done = 0
        for one, offset in missing:
            send(json.dumps({**one.row, "offset": offset}).encode() + b"\n")
            left = one.size - offset
            with one.source.open("rb") as content:
                content.seek(offset)
                while left:
                    data = content.read(min(CHUNK, left))
                    if not data:
                        raise MachineError(f"{one.source} changed while it was copied.")
                    send(data)
                    left -= len(data)
                    done += len(data)
                    progress(done)

    answer = remote.stream(DEPLOY_SCRIPT, "receive", where, *(["public"] if public else []), write=write)
    return list(answer["damaged"])


def size(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
