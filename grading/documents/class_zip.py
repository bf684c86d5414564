"""A zip of a whole class, as learning systems export it: which file belongs to whom, told by its name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from grading.documents.archive import unpack
from grading.documents.files import UploadedFile
from grading.documents.limits import Limits
from grading.documents.zip_format import Budget

_MOODLE = re.compile(
    r"^(?P<name>[^/]+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?/(?P<file>.+)$", re.IGNORECASE
)
_CANVAS = re.compile(r"^(?P<name>[^/_]+)(?P<late>_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)$")
_BLACKBOARD = re.compile(
    r"^(?:.*/)?[^/]+_(?P<id>[^/_]+)_attempt_\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d(?:_(?P<file>.+))?(?:\.txt)?$"
)


@dataclass(frozen=True)
class Owner:
    """Whose file it is, as far as the name tells. `key` groups; `id` and `name` find the student."""

    key: str
    id: str | None
    name: str | None
    late: bool = False


@dataclass(frozen=True)
class StudentFiles:
    """What one student submitted. `key` is unique in the zip."""

    key: str
    id: str | None
    name: str | None
    late: bool
    files: tuple[UploadedFile, ...]

    @property
    def label(self) -> str:
        """The student in the zip's own words."""
        return " · ".join(dict.fromkeys(filter(None, (self.name, self.id)))) or self.key


def open_class(upload: UploadedFile, limits: Limits) -> tuple[StudentFiles, ...]:
    """The files of a class zip by student, in the order of their keys. Raises ArchiveRefused, EmptyUpload."""
    budget = Budget(limits.max_entries, limits.max_upload_bytes, limits.max_files)
    return by_student(unpack(upload, limits, budget).files)


def by_student(files: Sequence[UploadedFile]) -> tuple[StudentFiles, ...]:
    """Group files by the student their names point to."""
    files = _without_root(files)
    groups: dict[str, tuple[Owner, list[UploadedFile]]] = {}
    for file in files:
        owner, name = parse(file.name)
        if name is None:  # Blackboard's receipt
            continue
        groups.setdefault(owner.key, (owner, []))[1].append(UploadedFile(name, file.data))
    return tuple(
        StudentFiles(key, owner.id, owner.name, owner.late, _apart(mine))
        for key, (owner, mine) in sorted(groups.items())
    )


def parse(path: str) -> tuple[Owner, str | None]:
    """The owner and the file's own name; no name for a file that is only a receipt.

    Moodle's number is one of its own making for each assignment, so there only the name identifies.
    """
    if match := _MOODLE.match(path):
        return Owner(f"moodle:{match['id']}", None, match["name"]), match["file"]
    if match := _BLACKBOARD.match(path):
        return Owner(f"blackboard:{match['id']}", match["id"], None), match["file"]
    if match := _CANVAS.match(path):
        late = match["late"] is not None
        return Owner(f"canvas:{match['id']}", match["id"], match["name"], late), match["file"]
    folder, _, rest = path.partition("/")
    if rest:
        return Owner(f"folder:{folder}", *_id_and_name(folder)), rest
    first, _, rest = path.partition("_")
    if first.strip() and rest:
        return Owner(f"id:{first}", first, None), rest
    stem = path.rpartition(".")[0] or path
    return Owner(f"id:{stem}", stem, None), path


def name_key(name: str) -> str:
    """A key that is equal for `Müller, Anna`, `Anna Muller` and Canvas' `mulleranna`."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(sorted(c for c in plain if c.isalnum()))


def _id_and_name(folder: str) -> tuple[str, str | None]:
    first, _, rest = folder.partition("_")
    return (first, rest.replace("_", " ")) if rest and any(c.isdigit() for c in first) else (folder, folder)


def _without_root(files: Sequence[UploadedFile]) -> Sequence[UploadedFile]:
    """Without a folder that is around everything, unless it is the folder of the only student."""
    roots = {file.name.partition("/")[0] for file in files}
    if len(roots) != 1 or any("/" not in file.name for file in files):
        return files
    if all(_MOODLE.match(file.name) for file in files):
        return files
    inner = [UploadedFile(file.name.partition("/")[2], file.data) for file in files]
    if len({parse(file.name)[0].key for file in inner}) > 1 or any("/" in file.name for file in inner):
        return inner
    return files


def _apart(files: Sequence[UploadedFile]) -> tuple[UploadedFile, ...]:
    """Files with names that differ, as one student may submit the same name twice."""
    taken: set[str] = set()
    result = []
    for file in files:
        name, n = file.name, 2
        while name.casefold() in taken:
            name, n = f"{n}-{file.name}", n + 1
        taken.add(name.casefold())
        result.append(UploadedFile(name, file.data))
    return tuple(result)
