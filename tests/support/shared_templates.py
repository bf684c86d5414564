"""Templates of all apps are compiled once in a run of the tests, by whichever process needs one first.

Jinja keeps compiled templates by environment, so by app, and nearly every test module has an app of its own.
Nothing is kept for later runs: what is compiled depends on the environment's settings too.
"""

from __future__ import annotations

from pathlib import Path
from types import CodeType

from jinja2.bccache import Bucket, FileSystemBytecodeCache


class SharedTemplates(FileSystemBytecodeCache):
    """Compiled templates of this process, and those in a folder of all processes that test together."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(str(folder))
        self._known: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        key = bucket.key, bucket.checksum
        if key not in self._known:
            super().load_bytecode(bucket)
            if bucket.code is not None:
                self._known[key] = bucket.code
        bucket.code = self._known.get(key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._known[bucket.key, bucket.checksum] = bucket.code
        super().dump_bytecode(bucket)


_installed: list[SharedTemplates] = []


def install(folder: Path) -> None:
    """Let apps of tests that are made from now on share what is compiled in this folder."""
    _installed[:] = [SharedTemplates(folder)]


def installed() -> SharedTemplates | None:
    """None outside of a run of the tests."""
    return _installed[0] if _installed else None
