"""Files of tests: their language, and the tests that are written in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from grading.execution.values import CodeLanguage, TestFile
from grading.shared import python_syntax

_R_TEST = re.compile(r"^[ \t]*(?:testthat::)?test_that\s*\(", re.MULTILINE)


def test_names(file: TestFile) -> tuple[str, ...]:
    """The names of the tests that are written in a file; for R only their number is known."""
    if language_of_file(file.path) == "r":
        return tuple(f"test {n}" for n, _ in enumerate(_R_TEST.findall(file.source), start=1))
    try:
        tree = python_syntax.parse(file.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_written(tree.body)) if isinstance(tree, ast.Module) else ()


def _written(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
            yield statement.name
        elif isinstance(statement, ast.ClassDef):
            yield from (f"{statement.name}.{name}" for name in _written(statement.body))


def language_of_file(path: str) -> CodeLanguage | None:
    """The language of a file by its ending."""
    ending = path.lower().rpartition(".")[2]
    languages: dict[str, CodeLanguage] = {"py": "python", "r": "r"}
    return languages.get(ending)


def file_name(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]
