"""The import graph: no module imports itself by way of others, and no capability another in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("grading", "workers", "app", "cli", "grader_client", "bench")
SENTENCE = re.compile(r"(?:[^.;\n]|[.;](?=\S))+\.")


@pytest.fixture(scope="module")
def graph() -> Mapping[str, frozenset[str]]:
    """Module -> modules that it imports."""
    built = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {name: frozenset(built.find_modules_directly_imported_by(name)) for name in built.modules}


def circles(links: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of names that reach each other; Tarjan's strongly connected components, without single ones."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in links.get(name, ()):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in links:
        if name not in number:
            visit(name)
    return found


def together(
    graph: Mapping[str, frozenset[str]], room: Callable[[str], str | None]
) -> Mapping[str, frozenset[str]]:
    """The graph of rooms; `room` names that of a module, or None where it is in none."""
    links: dict[str, set[str]] = {}
    for name, imported in graph.items():
        here = room(name)
        if here is not None:
            there = {other for other in map(room, imported) if other is not None and other != here}
            links.setdefault(here, set()).update(there)
    return {name: frozenset(others) for name, others in links.items()}


def below(package: str) -> Callable[[str], str | None]:
    """The part of a package that a module is in."""
    start = f"{package}."

    def room(name: str) -> str | None:
        return start + name.removeprefix(start).split(".")[0] if name.startswith(start) else None

    return room


def test_a_circle_would_be_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == [["a", "b", "c"]]
    assert circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_no_modules_import_each_other(graph: Mapping[str, frozenset[str]]) -> None:
    assert len(graph) > 500
    assert circles(graph) == []


@pytest.mark.parametrize("package", ["grading", "grading.store", "workers", "workers.machine", "app"])
def test_no_packages_import_each_other(graph: Mapping[str, frozenset[str]], package: str) -> None:
    rooms = together(graph, below(package))
    assert len(rooms) > 2
    assert circles(rooms) == []


@pytest.mark.parametrize("package", ["grading", "grading.store"])
def test_packages_say_what_belongs_elsewhere(package: str) -> None:
    folder = ROOT.joinpath(*package.split("."))
    files = [folder / "__init__.py", *sorted(folder.glob("*/__init__.py"))]
    assert len(files) > 10
    first = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in files}
    assert [str(path.relative_to(ROOT)) for path, text in first.items() if text.count("\n\n") != 1] == []


def test_packages_say_in_one_sentence_what_belongs_in_them() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("__init__.py"))]
    assert len(files) > 80
    docstrings = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in files}
    first = {str(path.relative_to(ROOT)): text.partition("\n\n")[0] for path, text in docstrings.items()}
    assert {path: text for path, text in first.items() if not SENTENCE.fullmatch(text)} == {}
