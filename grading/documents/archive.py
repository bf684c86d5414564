"""What is taken out of a zip file, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from grading.documents.files import (
    DATA,
    KINDS,
    UploadedFile,
    extension,
    listed,
    same_name,
    shown,
    without_extension,
)
from grading.documents.limits import Limits
from grading.documents.zip_format import NESTED_TOO_DEEP, SAME_NAME_UNPACKED, Budget, Entry, ZipReader
from grading.domain.errors import EmptyUpload
from grading.domain.messages import define_message

NOTHING_TO_GRADE = define_message(
    "archive.nothing_to_grade",
    "%(where)s contains no file that can be graded; add your notebooks or scripts to it.",
)

__all__ = ["Budget", "Unpacked", "unpack"]

_JUNK_FOLDERS = {
    *("__macosx", ".ipynb_checkpoints", "__pycache__", ".git", ".rproj.user", ".vscode", ".idea"),
    *(".venv", "venv", "node_modules", "renv", ".pytest_cache", ".mypy_cache"),
}
_JUNK_FILES = {".ds_store", "thumbs.db", "desktop.ini", ".rhistory", ".rdata", ".rprofile", ".gitignore"}


@dataclass
class Unpacked:
    """The gradable members of a zip, and notes on what was left out."""

    files: list[UploadedFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def unpack(upload: UploadedFile, limits: Limits, budget: Budget, depth: int = 1) -> Unpacked:
    """Reads the gradable members of a zip, also of zips in it.

    Raises ArchiveRefused for anything unsafe or damaged, EmptyUpload when nothing can be graded.
    """
    reader = ZipReader(upload, limits, budget)
    result, junk, other = Unpacked(), 0, list[str]()
    for entry, path in reader.members():
        if _is_junk(path):
            junk += 1
        elif extension(path) == ".zip":
            _nested(reader, entry, path, result, depth)
        elif extension(path) not in KINDS and not (limits.max_data_bytes and extension(path) in DATA):
            other.append(path)
        elif entry.size == 0:
            result.notes.append(f"{shown(path)} is empty and was left out.")
        else:
            reader.take_file()
            result.files.append(UploadedFile(path, reader.unpack(entry)))
    where = shown(upload.name)
    if other:
        result.notes.append(f"Left out of {where}, as only text can be graded: {listed(other)}.")
    if junk:
        files = "one file" if junk == 1 else f"{junk} files"
        result.notes.append(f"Left out of {where}: {files} that the system or an editor made.")
    if not result.files and depth == 1:
        raise EmptyUpload(NOTHING_TO_GRADE(where=where))
    return result


def _nested(reader: ZipReader, entry: Entry, path: str, result: Unpacked, depth: int) -> None:
    if depth >= reader.limits.max_depth:
        raise reader.refused(NESTED_TOO_DEEP)
    inner = unpack(UploadedFile(path, reader.unpack(entry)), reader.limits, reader.budget, depth + 1)
    folder = path.rpartition("/")[0]
    prefix = f"{folder}/" if folder else ""
    result.files += [
        UploadedFile(f"{prefix}{without_extension(path)}/{file.name}", file.data) for file in inner.files
    ]
    result.notes += inner.notes
    keys = [same_name(file.name) for file in result.files]
    if len(set(keys)) < len(keys):
        raise reader.refused(SAME_NAME_UNPACKED)


def _is_junk(path: str) -> bool:
    parts = path.lower().split("/")
    return (
        parts[-1] in _JUNK_FILES or parts[-1].startswith("._") or any(p in _JUNK_FOLDERS for p in parts[:-1])
    )
