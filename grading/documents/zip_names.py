"""Names for what is put into a zip, safe wherever it is unpacked. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

LONGEST = 80
"""Characters of one part of a path."""
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that are devices on Windows."""
FORBIDDEN = frozenset('<>:"/\\|?*')


def part(text: str, otherwise: str = "file") -> str:
    """One part of a path: no separator, no control or direction sign, nothing a system reserves."""
    kept = "".join("_" if c in FORBIDDEN else c for c in text if c.isprintable())
    # a name may not begin like an option, a hidden file or a home folder, nor end in a dot or a blank
    kept = kept.strip(" .").lstrip("~-.")
    stem, dot, ending = kept.rpartition(".")
    if len(kept) > LONGEST and dot and len(ending) <= 10:
        kept = f"{stem[: LONGEST - len(ending) - 1].rstrip(' .')}.{ending}"
    kept = kept[:LONGEST].rstrip(" .")
    return f"_{kept}" if RESERVED.fullmatch(kept) else kept or otherwise


def path(text: str) -> str:
    """A path that stays in its folder."""
    parts = [one for one in PurePosixPath(text.replace("\\", "/")).parts if one not in ("/", "..", ".")]
    return "/".join(part(one) for one in parts[-8:]) or "file"


class Names:
    """Gives each thing a name that nothing else has, whatever a system thinks of capitals."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, wanted: str) -> str:
        """The name, with a number behind it where it is taken."""
        found, number = wanted, 1
        folder, slash, last = wanted.rpartition("/")
        stem, dot, ending = last.rpartition(".")
        while found.casefold() in self._taken:
            number += 1
            last_ = f"{stem}-{number}.{ending}" if dot and stem else f"{last}-{number}"
            found = f"{folder}{slash}{last_}"
        self._taken.add(found.casefold())
        return found
