"""Which file of an assignment is written in the browser: the only script of its starter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grading.domain.document import Document
from grading.execution.plan import language_of
from grading.execution.values import CodeLanguage

NEW_FILES: dict[str, tuple[str, CodeLanguage]] = {"python": ("main.py", "python"), "r": ("main.R", "r")}
"""Language of an assignment without a starter -> the file to write."""


@dataclass(frozen=True)
class EditableScript:
    """A script to write, with the text that it begins with."""

    path: str
    language: CodeLanguage
    text: str


def editable_script(starter: Sequence[Document], language: str) -> EditableScript | None:
    """The script to write; nothing for notebooks, several files and other languages.

    A notebook's outputs and plots come from the program it is written in, so it is uploaded.
    """
    if not starter:
        path, spoken = NEW_FILES.get(language, ("", "python"))
        return EditableScript(path, spoken, "") if path else None
    only = starter[0]
    spoken_there = language_of(only)
    if len(starter) > 1 or only.kind != "script" or spoken_there is None:
        return None
    return EditableScript(only.path, spoken_there, "\n".join(cell.source for cell in only.cells))
