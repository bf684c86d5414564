"""Files that lie beside the work in a box, kept on disk by their content while this process lives."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType

from workers.checks.sandbox.base import Mount

WORK = PurePosixPath("/work")
DATA = "data"


class Shelf:
    """A private folder of read-only files, one a content; a context manager removes it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="grader-checks-")
        self.path = Path(self._folder.name)
        self._lock = threading.Lock()

    def __enter__(self) -> Shelf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Which of these SHA-256 are not here yet."""
        return [name for name in dict.fromkeys(names) if not (self.path / name).exists()]

    def put(self, name: str, content: bytes) -> Path:
        """Keep a file; doing it twice at once does no harm."""
        place = self.path / name
        if not place.exists():
            with self._lock, tempfile.NamedTemporaryFile(dir=self.path, delete=False) as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o444)
            Path(file.name).replace(place)
        return place

    def mounts(self, files: Mapping[str, str]) -> list[Mount]:
        """Where the files of a request are seen: below `/work`, data also as `/data/x` and `/work/x`.

        The assignment's data win over a hand-in's file of the same name. All must be here.
        """
        places: dict[str, str] = {}
        for path, name in sorted(files.items(), key=lambda item: not _is_data(item[0])):
            for target in _targets(path):
                places.setdefault(target, name)
        return [Mount(self.path / name, target) for target, name in _without_clashes(places).items()]


def _is_data(path: str) -> bool:
    return path.startswith(f"{DATA}/")


def _targets(path: str) -> list[str]:
    inside = PurePosixPath(path)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts or "\0" in path:
        return []
    targets = [WORK / inside]
    if _is_data(path):
        rest = inside.relative_to(DATA)
        targets += [PurePosixPath("/", DATA) / rest, WORK / rest]
    return [target.as_posix() for target in targets]


def _without_clashes(places: Mapping[str, str]) -> dict[str, str]:
    """Without files that would have to be folders, too."""
    folders = {parent.as_posix() for target in places for parent in PurePosixPath(target).parents}
    return {target: name for target, name in places.items() if target not in folders}


def shelve(shelf: Shelf, names: Iterable[str], read: Callable[[list[str]], Mapping[str, bytes]]) -> None:
    """Bring what is missing onto the shelf; `read` gives the contents of SHA-256 names."""
    wanted = shelf.missing(names)
    for name, content in (read(wanted) if wanted else {}).items():
        shelf.put(name, content)
