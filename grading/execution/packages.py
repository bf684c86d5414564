"""Which packages an assignment knows: those are the server's to install; any other is the work's own idea."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from grading.domain.model import Document

_PYTHON = re.compile(
    r"(?:^|;)[ \t]*(?:from[ \t]+(?P<from>\w+)[\w. \t]*import\b|import[ \t]+(?P<names>\w[^#\n;]*))"
    r"|import_module\(\s*['\"](?P<late>\w+)",
    re.MULTILINE,
)
_R = re.compile(
    r"\b(?:library|require|requireNamespace|loadNamespace|attachNamespace)\s*\(\s*(?:package\s*=\s*)?"
    r"['\"]?(?P<loaded>[A-Za-z][\w.]*)|\b(?P<namespace>[A-Za-z][\w.]*):::?(?=[A-Za-z.`])"
    r"|\bp_load\s*\((?P<several>[^)]*)\)"
)
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"[A-Za-z][\w.]*")
# not the name of an argument, and not what is called
_LISTED = re.compile(r"\b(?!(?:TRUE|FALSE|NULL)\b)[A-Za-z][\w.]*(?![\w.]|\s*[=(])")
READERS = {
    "xlsx": ("openpyxl", "readxl", "openxlsx", "writexl"),
    "xls": ("xlrd", "readxl"),
    "parquet": ("pyarrow", "fastparquet", "arrow"),
    "feather": ("pyarrow", "arrow"),
    "json": ("jsonlite",),
    "dta": ("haven", "pyreadstat"),
    "sav": ("haven", "pyreadstat"),
}
"""Ending of a file of data -> packages that read it."""
PARTS = {
    "tidyverse": ("ggplot2", "tibble", "tidyr", "readr", "purrr", "dplyr", "stringr", "forcats", "lubridate")
}
"""Packages that bring others."""


def known_packages(
    documents: Iterable[Document], tests: Iterable[str], data: Iterable[str], named: Sequence[str]
) -> frozenset[str]:
    """What starter and solution, tests and data ask for, and what `checks.packages` names."""
    found = set(named)
    for document in documents:
        for cell in document.cells:
            if cell.kind == "code":
                found.update(imported(cell.source))
    for text in tests:
        found.update(imported(text))
    for path in data:
        stem, _, ending = path.rpartition("/")[2].rpartition(".")
        found.update(READERS.get(ending.lower(), ()), (stem,) if ending.lower() in ("py", "r") else ())
    return frozenset(found.union(*(PARTS.get(name, ()) for name in found)))


def imported(source: str) -> Iterator[str]:
    """Packages that code in Python or R asks for, without their submodules."""
    for hit in _PYTHON.finditer(_COMMENT.sub("", source)):
        for name in (hit["from"], hit["late"], *(hit["names"] or "").split(",")):
            first = _NAME.match((name or "").strip())
            if first:
                yield first[0].partition(".")[0]
    for hit in _R.finditer(source):
        yield from filter(None, (hit["loaded"], hit["namespace"]))
        yield from _LISTED.findall(hit["several"] or "")
