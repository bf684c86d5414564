"""Changes of documents that variants are made of: lines put in, own places found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from grading.checks.parsing.parser import grammar_of, parse
from grading.domain.document import Cell, Output
from grading.stress_tests.variant import Documents

if TYPE_CHECKING:
    from tree_sitter import Node

SIGNS = {"sql": "--", "java": "//", "c": "//", "cpp": "//", "javascript": "//", "typescript": "//"}
"""What begins a comment; a # elsewhere."""


class Place(NamedTuple):
    """A cell, by the positions of its document and in it."""

    document: int
    cell: int


def own_places(documents: Documents, kind: str) -> list[Place]:
    """Cells of this kind with lines of the student's own."""
    return [
        Place(at, number)
        for at, document in enumerate(documents)
        for number, cell in enumerate(document.cells)
        if cell.kind == kind and cell.added
    ]


def cell_at(documents: Documents, place: Place) -> Cell:
    """The cell at a place."""
    return documents[place.document].cells[place.cell]


def language_at(documents: Documents, place: Place) -> str:
    """The programming language of a cell."""
    cell = cell_at(documents, place)
    return cell.language if grammar_of(cell.language) else documents[place.document].language


def with_cells(documents: Documents, at: int, cells: Sequence[Cell]) -> Documents:
    """The documents with other cells in one of them; cells that follow each other in a file move along."""
    document = documents[at]
    moved, by = [], 0
    for old, new in zip(document.cells, cells, strict=True):
        shifted = new.first_line if document.kind == "notebook" else old.first_line + by
        moved.append(new.model_copy(update={"first_line": shifted}))
        by += len(new.lines) - len(old.lines)
    changed = document.model_copy(update={"cells": tuple(moved)})
    return (*documents[:at], changed, *documents[at + 1 :])


def with_source(documents: Documents, place: Place, source: str) -> Documents:
    """The documents with another source in one cell."""
    cells = list(documents[place.document].cells)
    cells[place.cell] = cells[place.cell].model_copy(update={"source": source})
    return with_cells(documents, place.document, cells)


def with_output(documents: Documents, place: Place, text: str) -> Documents:
    """The documents with one more output of a cell."""
    cells = list(documents[place.document].cells)
    cell = cells[place.cell]
    outputs = (*cell.outputs, Output(kind="stream", text=text))
    update = {"outputs": outputs, "execution_count": cell.execution_count or 1}
    cells[place.cell] = cell.model_copy(update=update)
    return with_cells(documents, place.document, cells)


def nodes(root: Node) -> Iterator[Node]:
    """All nodes of a tree in order, without recursion."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def statements(source: str, language: str) -> list[Node]:
    """The statements outside of all functions, in order; none of languages without a parser."""
    found = parse(source, language)
    if found is None:
        return []
    return [one for one in found.tree.root_node.named_children if "comment" not in one.type]


def commented(text: str, language: str) -> str:
    """A text as comment lines; lines that are comments stay."""
    sign = SIGNS.get(grammar_of(language) or "", "#")
    lines = (line if line.lstrip().startswith(sign) else f"{sign} {line}" for line in text.split("\n"))
    return "\n".join(lines)


def before_statement(documents: Documents, place: Place, text: str, rng: Random) -> Documents:
    """The documents with lines before a statement of a code cell; at its end where none can be told."""
    cell = cell_at(documents, place)
    lines = cell.lines
    rows = [
        one.start_point[0]
        for one in statements(cell.source, language_at(documents, place))
        if not (one.text or b"").startswith(b"from __future__")
    ]
    at = rng.choice(rows) if rows else len(lines)
    at = min(at, len(lines))
    return with_source(documents, place, "\n".join([*lines[:at], *text.split("\n"), *lines[at:]]))


def add_comment(documents: Documents, text: str, rng: Random) -> Documents | None:
    """The documents with a comment in code of the student's own."""
    found = own_places(documents, "code")
    if not found:
        return None
    place = rng.choice(found)
    return before_statement(documents, place, commented(text, language_at(documents, place)), rng)


def add_code(documents: Documents, line: Callable[[str], str], rng: Random) -> Documents | None:
    """The documents with a line of code, made for the language; of Python and R."""
    found = [
        place
        for place in own_places(documents, "code")
        if grammar_of(language_at(documents, place)) in ("python", "r")
    ]
    if not found:
        return None
    place = rng.choice(found)
    return before_statement(documents, place, line(grammar_of(language_at(documents, place)) or ""), rng)


def add_prose(documents: Documents, text: str, rng: Random) -> Documents | None:
    """The documents with a paragraph in prose of the student's own; in a comment where there is none."""
    found = own_places(documents, "markdown")
    if not found:
        return add_comment(documents, text, rng)
    place = rng.choice(found)
    return with_source(documents, place, cell_at(documents, place).source + "\n\n" + text)
