"""A zip that is sent while it is made, so that it takes no more memory than its largest file."""

from __future__ import annotations

import io
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator

from app.web.i18n import render_error
from app.web.markdown import PLAIN
from grading.domain.errors import GraderError

LONGEST = 60
"""Characters of one part of a file's name."""
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)


class ZipBuffer(io.RawIOBase):
    """What a zip is written to, and taken from piece by piece. It cannot seek."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: object, /) -> int:
        """Keep some bytes."""
        piece = bytes(data)  # type: ignore[call-overload]  # a buffer
        self._pieces.append(piece)
        return len(piece)

    def pop_bytes(self) -> bytes:
        """What was written since the last time."""
        made = b"".join(self._pieces)
        self._pieces.clear()
        return made


def stream(members: Iterable[tuple[str, Callable[[], bytes]]]) -> Iterator[bytes]:
    """The bytes of a zip of these files. One that cannot be made becomes a text that says why."""
    sink, problems = ZipBuffer(), list[str]()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as packed:
        for name, make in members:
            try:
                packed.writestr(name, make())
            except GraderError as error:
                problems.append(f"{name}: {render_error(error)}")
            yield sink.pop_bytes()
        if problems:
            packed.writestr("not-printed.txt", "\n".join(problems) + "\n")
    yield sink.pop_bytes()


def file_name(*parts: str) -> str:
    """A name that any file system takes, of letters, digits and dashes."""
    return "-".join(filter(None, map(_part, parts))) or "result"


def _part(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.translate(dict.fromkeys(PLAIN)))
    name = re.sub(r"[^\w]+", "-", plain).strip("-_")[:LONGEST].strip("-_")
    return f"{name}-" if _RESERVED.fullmatch(name) else name
