"""Jupyter notebooks (nbformat 4) of any kernel."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from grading.documents.files import shown
from grading.documents.limits import Limits
from grading.documents.outputs import joined, read_outputs
from grading.documents.text import clean, decode
from grading.domain.document import Cell, Document
from grading.domain.errors import DocumentError, EmptyUpload
from grading.domain.messages import define_message

NO_NOTEBOOK = define_message(
    "notebook.no_notebook",
    "%(name)s is not a Jupyter notebook; open your work in Jupyter, save it and upload that.",
)
TOO_MANY_CELLS = define_message(
    "notebook.too_many_cells", "%(name)s has more than %(most)s cells; submit a shorter notebook."
)
NO_CELLS = define_message(
    "notebook.no_cells", "All cells of %(name)s are empty; save the notebook and upload it again."
)
TOO_MUCH_DATA = define_message(
    "notebook.too_much_data", "%(name)s contains too much data; clear its large outputs and upload it again."
)
OLD_FORMAT = define_message(
    "notebook.old_format",
    "%(name)s is saved in the old notebook format %(number)s; open it in Jupyter and save it again.",
)
CELL_TOO_LONG = define_message(
    "notebook.cell_too_long",
    "Cell %(number)s of %(name)s is longer than %(most)s characters; load data from a "
    "file instead of pasting it.",
)
DAMAGED = define_message(
    "notebook.damaged",
    "%(name)s is damaged or not a notebook; open it in Jupyter, save it again and upload the new file.",
)
NEWER_FORMAT = define_message(
    "notebook.newer_format", "%(name)s is saved in a newer notebook format; save it in format 4."
)

_LANGUAGES = dict(
    pair.split("=")
    for pair in (
        "ir=r rlang=r xr=r python3=python python2=python ipython=python xpython=python c++=cpp js=javascript "
        "node=javascript ts=typescript deno=typescript sqlite=sql mysql=sql postgresql=sql tsql=sql sh=bash "
        "shell=bash"
    ).split()
)
_MAGIC = re.compile(r"\s*%%(?P<name>[A-Za-z]\w*)")
_MAGICS = {name: name for name in ("r", "sql", "bash", "javascript", "html", "latex", "markdown")}
_MAGICS |= {"sh": "bash", "js": "javascript", "writefile": "text", "sqlite": "sql"}
_EMBEDDED = re.compile(r"data:(image/[\w.+-]{1,40});base64,[A-Za-z0-9+/=]{80,}")
_KINDS: dict[Any, Literal["code", "markdown", "raw"]] = {"code": "code", "markdown": "markdown", "raw": "raw"}


_TITLES = {"r": "R", "cpp": "C++", "sql": "SQL", "javascript": "JavaScript", "typescript": "TypeScript"}
_SETTLED = ("r", "python", "java", "c", "cpp", "javascript", "typescript")
"""Languages of whole notebooks. SQL is none: a notebook that queries a database is in another one."""
_LINE_MAGIC = re.compile(r"^%{1,2}[A-Za-z]\w*(?:\s|$)", re.MULTILINE)
"""Only IPython has such lines; `%in%` and other operators of R end with a sign of per cent."""


def in_language(documents: Iterable[Document], language: str) -> tuple[Document, ...]:
    """The documents of an assignment in `language`, each notebook's cells in the language that they are in.

    What a cell says of itself comes first, then the language of the assignment, then what the notebook says:
    editors write the kernel of the last computer into it, whatever the cells hold. A notebook that says
    another language than its cells gets a note.
    """
    return tuple(_settled(d, language) if d.kind == "notebook" else d for d in documents)


def _settled(book: Document, language: str) -> Document:
    code = [cell for cell in book.cells if cell.kind == "code"]
    if any(_LINE_MAGIC.search(cell.source) for cell in code):
        return book  # it needs IPython, whatever its cells hand on to R or a database
    cells = book.cells
    if language in _SETTLED:
        silent = [cell for cell in code if cell.language == book.language]
        renamed = {cell.number: cell.model_copy(update={"language": language}) for cell in silent}
        cells = tuple(renamed.get(cell.number, cell) for cell in cells)
    spoken = _most(cells) or book.language
    if spoken == book.language:
        return book.model_copy(update={"cells": cells})
    title = _title(spoken)
    note = (
        f"{shown(book.path)} says that it is in {_title(book.language)}; its cells are read as {title}. "
        f"Choose the {title} kernel before you save it; then it also runs elsewhere."
    )
    changes = {"language": spoken, "cells": cells, "notes": (*book.notes, note)}
    return book.model_copy(update=changes)


def _most(cells: Iterable[Cell]) -> str:
    """The language that most code cells are in."""
    spoken = Counter(cell.language for cell in cells if cell.kind == "code" and cell.source.strip())
    return next((name for name, _ in spoken.most_common() if name in _SETTLED), "")


def _title(language: str) -> str:
    return _TITLES.get(language, language.capitalize())


def read_notebook(name: str, data: bytes, limits: Limits) -> Document:
    """A notebook as cells. Raises DocumentError when it is damaged or too old, EmptyUpload if blank."""
    text, repaired = decode(name, data)
    book = _parse(name, text, limits)
    raw_cells = _cells(name, book)
    if len(raw_cells) > limits.max_cells:
        raise DocumentError(TOO_MANY_CELLS(name=shown(name), most=limits.max_cells))
    language = _language(book)
    notes = [repaired] if repaired else []
    cells = [
        _cell(name, raw, number, language, limits, notes) for number, raw in enumerate(raw_cells, start=1)
    ]
    if not any(cell.source.strip() for cell in cells):
        raise EmptyUpload(NO_CELLS(name=shown(name)))
    return Document(path=name, kind="notebook", language=language, cells=tuple(cells), notes=tuple(notes))


def _parse(name: str, text: str, limits: Limits) -> dict[str, Any]:
    if text.count("[") + text.count("{") + text.count(",") > limits.max_json_values:
        raise DocumentError(TOO_MUCH_DATA(name=shown(name)))
    try:
        book = json.loads(text)
    except (ValueError, RecursionError):
        raise DocumentError(DAMAGED(name=shown(name))) from None
    if not isinstance(book, dict):
        raise _not_a_notebook(name)
    return book


def _not_a_notebook(name: str) -> DocumentError:
    return DocumentError(NO_NOTEBOOK(name=shown(name)))


def _cells(name: str, book: dict[str, Any]) -> list[dict[str, Any]]:
    version = book.get("nbformat")
    if isinstance(version, bool):
        raise _not_a_notebook(name)
    if version in (1, 2, 3) or (version is None and "worksheets" in book):
        number = 3 if version is None else version
        raise DocumentError(OLD_FORMAT(name=shown(name), number=number))
    cells = book.get("cells")
    if not isinstance(cells, list) or not (version is None or version == 4):
        if isinstance(version, int) and version > 4:
            raise DocumentError(NEWER_FORMAT(name=shown(name)))
        raise _not_a_notebook(name)
    if not all(isinstance(cell, dict) and "cell_type" in cell for cell in cells):
        raise _not_a_notebook(name)
    return cells


def _language(book: dict[str, Any]) -> str:
    about = book.get("metadata")
    about = about if isinstance(about, dict) else {}
    for group, key in (("kernelspec", "language"), ("language_info", "name"), ("kernelspec", "name")):
        part = about.get(group)
        found = part.get(key) if isinstance(part, dict) else None
        if isinstance(found, str) and found.strip():
            return _plain(found)
    return "python"


def _plain(language: str) -> str:
    name = re.sub(r"[^\w+#.-]", "", clean(language).strip().lower())[:40]
    return _LANGUAGES.get(name, name) or "text"


def _cell(
    name: str, raw: dict[str, Any], number: int, language: str, limits: Limits, notes: list[str]
) -> Cell:
    source = clean(joined(raw.get("source")))
    source, pictures = _EMBEDDED.subn(r"data:\1;base64,…", source)
    if pictures:
        notes.append(f"Pictures inside the text of cell {number} of {shown(name)} were left out.")
    if len(source) > limits.max_cell_chars:
        raise DocumentError(CELL_TOO_LONG(number=number, name=shown(name), most=limits.max_cell_chars))
    kind = _KINDS.get(raw.get("cell_type") if isinstance(raw.get("cell_type"), str) else None, "raw")
    if kind != "code":
        return Cell(
            number=number, kind=kind, source=source, language="markdown" if kind == "markdown" else "text"
        )
    outputs, cut = read_outputs(raw.get("outputs"), limits.max_output_chars)
    if cut:
        notes.append(f"The outputs of cell {number} of {shown(name)} were shortened by {cut} characters.")
    return Cell(
        number=number,
        kind="code",
        source=source,
        language=_cell_language(raw, source, language),
        execution_count=_count(raw.get("execution_count")),
        outputs=outputs,
    )


def _cell_language(raw: dict[str, Any], source: str, language: str) -> str:
    """The language of a cell where a magic or the editor says another one than the kernel's."""
    magic = _MAGIC.match(source)
    if magic is not None:
        return _MAGICS.get(magic["name"].lower(), language)
    about = raw.get("metadata")
    editor = about.get("vscode") if isinstance(about, dict) else None
    chosen = editor.get("languageId") if isinstance(editor, dict) else None
    return _plain(chosen) if isinstance(chosen, str) and chosen.strip() else language


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None
