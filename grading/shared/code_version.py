"""Which software runs here, told by its content: what all computers of a cluster must agree on."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SHARED = ("grading", "workers/machine", "workers/celery_worker.py")
"""What runs on machines; the rest of the server may differ for an hour."""


@cache
def software() -> str:
    """Version and fingerprint of the code that server and machines share, such as `0.1.0+3fa9c2d1`."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{_number()}+{digest.hexdigest()[:8]}"


def code_folder() -> str:
    """Where this code lies: which of several checkouts or installations a process runs."""
    return str(Path(__file__).resolve().parents[2])


def fingerprint(said: str) -> str:
    """What tells software from other software; a checkout that was never installed has no version."""
    return said.rpartition("+")[2]


def _files(root: Path) -> list[Path]:
    found: list[Path] = []
    for name in SHARED:
        path = root / name
        found += [path] if path.is_file() else path.rglob("*.py")
    return found


def _number() -> str:
    try:
        return version("grader")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0"
