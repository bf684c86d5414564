"""Uploaded files, the kinds that can be graded, and names that are safe to keep."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from grading.domain.document import Document
from grading.domain.messages import define_message

Kind = Literal["notebook", "script", "prose"]

KINDS: dict[str, tuple[Kind, str]] = {
    ".ipynb": ("notebook", "python"),
    ".r": ("script", "r"),
    ".rmd": ("script", "r"),
    ".qmd": ("script", "r"),
    ".py": ("script", "python"),
    ".sql": ("script", "sql"),
    ".java": ("script", "java"),
    ".c": ("script", "c"),
    ".h": ("script", "c"),
    ".cpp": ("script", "cpp"),
    ".hpp": ("script", "cpp"),
    ".js": ("script", "javascript"),
    ".ts": ("script", "typescript"),
    ".md": ("prose", "markdown"),
    ".txt": ("prose", "text"),
}
"""Kind and language by extension, in lower case."""

DATA = (".csv", ".tsv", ".xlsx", ".xls", ".json", ".parquet", ".rds")
"""What may lie beside the work when it is run. Nobody reads it but the work, and it is not graded."""

ALLOWED_FILES = ".ipynb, .R, .Rmd, .qmd, .py, .sql, .java, .c, .cpp, .h, .hpp, .js, .ts, .md, .txt"
ALLOWED = define_message("upload.allowed", "%(files)s or a .zip of these")(files=ALLOWED_FILES)
"""In a sentence of an error."""


@dataclass(frozen=True)
class UploadedFile:
    """A file as it was uploaded or unpacked: its name (with folders, `/` between them) and its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class SubmittedFiles:
    """The files of a submission as they are stored (unpacked, with safe names), documents and notes."""

    files: tuple[UploadedFile, ...]
    documents: tuple[Document, ...]
    notes: tuple[str, ...] = ()


def extension(name: str) -> str:
    """The extension in lower case with its dot, or an empty string."""
    base = name.rsplit("/", 1)[-1]
    stem, dot, ending = base.rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def without_extension(name: str) -> str:
    """The name without folders and extension."""
    base = name.rsplit("/", 1)[-1]
    return base.rpartition(".")[0] or base


def safe_part(part: str) -> str:
    """One part of a path in NFC, without invisible, control and reserved characters."""
    part = unicodedata.normalize("NFC", part)
    kept = "".join(c for c in part if not unicodedata.category(c).startswith("C"))
    return re.sub(r'[<>:"|?*\\/]', "_", re.sub(r"\s+", " ", kept)).strip()


def upload_name(name: str) -> str:
    """The name of an uploaded file without the folders a browser may send along; may be empty."""
    base = safe_part(re.split(r"[/\\]", name)[-1])
    return "" if base in (".", "..") else base


def same_name(name: str) -> str:
    """A key that is equal for names some file systems hold to be the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def shown(name: str) -> str:
    """A name for messages: printable and at most 80 characters."""
    text = "".join(c if c.isprintable() else "?" for c in name) or "The file"
    return text if len(text) <= 80 else f"{text[:40]}…{text[-39:]}"


def megabytes(count: int) -> str:
    """Bytes in MB for messages, such as `10 MB` or `0.4 MB`."""
    value = count / (1024 * 1024)
    return f"{value:.0f} MB" if value >= 10 else f"{value:.1f} MB".replace(".0 MB", " MB")


def listed(names: list[str], at_most: int = 8) -> str:
    """Names in a sentence: `a, b and c`, or `a, b … and 5 more`."""
    names = [shown(name) for name in names]
    if len(names) > at_most:
        return f"{', '.join(names[:at_most])} and {len(names) - at_most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""
