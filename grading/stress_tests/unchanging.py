"""Variants by what a student may choose freely: names, language of comments, layout, identifiers, order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from grading.checks.parsing.parser import grammar_of, parse
from grading.similarity.code_tokens import tokens_of
from grading.similarity.name_roles import COLUMN
from grading.stress_tests.editing import (
    Place,
    add_prose,
    cell_at,
    language_at,
    nodes,
    own_places,
    statements,
    with_cells,
    with_source,
)
from grading.stress_tests.glossary import translated
from grading.stress_tests.variant import Documents, Setting, Variant

if TYPE_CHECKING:
    from tree_sitter import Node

NAMES = (
    "Anna Schneider", "Mehmet Yilmaz", "Fatima Al-Sayed", "Jack Williams", "Nguyen Thi Lan",
    "Oluwaseun Adeyemi", "Kowalska Zofia", "Priya Raghunathan", "Maximilian von Arnim", "Chantal Krause",
    "Li Wei", "Sofía Hernández",
)  # fmt: skip
WORD = re.compile(r"[^\W\d]\w*")
IMPURE = re.compile(r"\b(?:seed|sample\w*|rand\w*|rnorm|runif|open|input|next|pop|read\w*|write\w*|set\w*)\b")
"""Words of code whose place may matter."""
DEFINES = frozenset({"function_definition", "class_definition"})


def variants() -> tuple[Variant, ...]:
    """All of them."""
    return (
        Variant("names.1", "names", partial(_named, which=0), "same"),
        Variant("names.2", "names", partial(_named, which=1), "same"),
        Variant("comments.language", "comment language", _comments_translated, "same"),
        Variant("layout.loose", "layout", _loose, "same"),
        Variant("layout.tight", "layout", _tight, "same"),
        Variant("identifiers.renamed", "identifiers", _renamed, "same"),
        Variant("order.cells", "order", _reordered, "same"),
    )


def _named(documents: Documents, setting: Setting, rng: Random, which: int) -> Documents | None:
    """A name in the work; those that stand in the student's account are taken out before a model reads."""
    chosen = rng.sample(NAMES, 2)[which]
    return add_prose(documents, rng.choice(("Name: {}", "Author: {}", "Written by {}")).format(chosen), rng)


def _own_code(documents: Documents) -> list[Place]:
    return own_places(documents, "code")


def _comment_nodes(source: str, language: str) -> list[Node]:
    found = parse(source, language)
    return [] if found is None else [one for one in nodes(found.tree.root_node) if one.type == "comment"]


def _comments_translated(documents: Documents, setting: Setting, rng: Random) -> Documents | None:
    """The student's comments in another language, word by word."""
    changed = documents
    for place in _own_code(documents):
        cell = cell_at(documents, place)
        data = cell.source.encode()
        for node in reversed(_comment_nodes(cell.source, language_at(documents, place))):
            if node.start_point[0] + 1 in cell.added and b"\n" not in data[node.start_byte : node.end_byte]:
                said = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
                data = data[: node.start_byte] + translated(said).encode() + data[node.end_byte :]
        changed = with_source(changed, place, data.decode("utf-8", "replace"))
    return changed if changed != documents else None


def _loose(documents: Documents, setting: Setting, rng: Random) -> Documents | None:
    """A blank line before each statement outside of functions."""
    changed = documents
    for place in _own_code(documents):
        cell = cell_at(documents, place)
        lines = cell.lines
        rows = {one.start_point[0] for one in statements(cell.source, language_at(documents, place))}
        for row in sorted(rows - {0}, reverse=True):
            # a comment belongs to the statement below it
            if lines[row - 1].strip() and not lines[row - 1].lstrip().startswith("#"):
                lines.insert(row, "")
        changed = with_source(changed, place, "\n".join(lines))
    return changed if changed != documents else None


def _tight(documents: Documents, setting: Setting, rng: Random) -> Documents | None:
    """No blank lines between the statements outside of functions."""
    changed = documents
    for place in _own_code(documents):
        cell = cell_at(documents, place)
        inside = {
            row
            for one in statements(cell.source, language_at(documents, place))
            for row in range(one.start_point[0], one.end_point[0] + 1)
        }
        if inside:
            kept = [line for row, line in enumerate(cell.lines) if line.strip() or row in inside]
            changed = with_source(changed, place, "\n".join(kept))
    return changed if changed != documents else None


def _renamed(documents: Documents, setting: Setting, rng: Random) -> Documents | None:
    """The student's own variables under other names that say the same."""
    names = _free_names(documents, setting)
    if not names:
        return None
    pattern = re.compile(r"(?<![\w.$@]){}(?![\w.])".format("(" + "|".join(map(re.escape, names)) + ")"))
    changed = documents
    for place in own_places(documents, "code"):
        source = cell_at(documents, place).source
        changed = with_source(changed, place, pattern.sub(lambda hit: f"my_{hit.group()}", source))
    return changed


def _free_names(documents: Documents, setting: Setting) -> list[str]:
    """Names defined in the work that nothing outside of it may look up, and that mean nothing else in it."""
    defined, used, foreign = set[str](), Counter[str](), _kept_words(documents, setting)
    everywhere = Counter[str]()
    for at, document in enumerate(documents):
        for number, cell in enumerate(document.cells):
            place = Place(at, number)
            language = language_at(documents, place)
            if cell.kind != "code" or grammar_of(language) not in ("python", "r"):
                foreign.update(WORD.findall(cell.source) if cell.kind == "code" else ())
                continue
            code = _without_comments(cell.source, language)
            everywhere.update(WORD.findall(code))
            foreign |= _arguments(cell.source, language)
            # a comment may speak of a name, or mean the word
            foreign |= _words_of_comments(cell.source, language)
            for token in tokens_of(cell.source, language).tokens:
                if token.scope == COLUMN:
                    foreign.add(token.text)
                elif token.scope >= 0:
                    used[token.text] += 1
                    if token.defined is not None and cell.added:
                        defined.add(token.text)
                    elif token.defined is not None:
                        foreign.add(token.text)
    # a name that stands in a string, too, has more occurrences than tokens
    return sorted(
        name
        for name in defined - foreign
        if name.isidentifier() and len(name) > 1 and used[name] == everywhere[name]
    )


def _kept_words(documents: Documents, setting: Setting) -> set[str]:
    """Words by which the rubric, its tests, the starter and the solution find what a student made."""
    texts = [setting.rubric.model_dump_json(), *setting.tests]
    texts += [cell.source for one in (*setting.starter, *setting.solution) for cell in one.cells]
    return {word for text in texts for word in WORD.findall(text)}


def _without_comments(source: str, language: str) -> str:
    data = source.encode()
    for node in reversed(_comment_nodes(source, language)):
        data = data[: node.start_byte] + b" " + data[node.end_byte :]
    return data.decode("utf-8", "replace")


def _words_of_comments(source: str, language: str) -> set[str]:
    texts = ((node.text or b"").decode("utf-8", "replace") for node in _comment_nodes(source, language))
    return {word for text in texts for word in WORD.findall(text)}


def _arguments(source: str, language: str) -> set[str]:
    """Names in arguments of calls in R, which may be columns, and parameters, which callers may name."""
    found = parse(source, language)
    if found is None:
        return set()
    kinds = {"parameter", "parameters", "default_parameter", "lambda_parameters", "keyword_argument"}
    if found.language == "r":
        kinds |= {"argument", "arguments", "parameter"}
    return {
        word
        for node in nodes(found.tree.root_node)
        if node.type in kinds
        for word in WORD.findall((node.text or b"").decode("utf-8", "replace"))
    }


def _reordered(documents: Documents, setting: Setting, rng: Random) -> Documents | None:
    """Two neighbouring cells, or functions of a script, in the other order, where neither needs the other."""
    swaps = [*_cell_swaps(documents), *_function_swaps(documents)]
    return rng.choice(swaps) if swaps else None


def _cell_swaps(documents: Documents) -> Iterator[Documents]:
    for at, document in enumerate(documents):
        for number in range(len(document.cells) - 1):
            first, second = document.cells[number : number + 2]
            if document.kind == "notebook" and _independent(
                documents, Place(at, number), Place(at, number + 1)
            ):
                cells = list(document.cells)
                cells[number] = second.model_copy(update={"number": first.number})
                cells[number + 1] = first.model_copy(update={"number": second.number})
                yield with_cells(documents, at, cells)


def _independent(documents: Documents, one: Place, other: Place) -> bool:
    """Whether two cells of code only define names, show nothing, and use nothing of each other."""
    cells = [cell_at(documents, place) for place in (one, other)]
    if any(
        cell.kind != "code" or not cell.added or cell.outputs or IMPURE.search(cell.source) for cell in cells
    ):
        return False
    names = []
    for place, cell in zip((one, other), cells, strict=True):
        tokens = tokens_of(cell.source, language_at(documents, place)).tokens
        defined = {token.text for token in tokens if token.defined is not None and token.scope == 0}
        names.append((defined, {token.text for token in tokens if token.scope >= 0}))
    (makes, needs), (makes_too, needs_too) = names
    return bool(makes and makes_too) and not makes & needs_too and not makes_too & needs


def _function_swaps(documents: Documents) -> Iterator[Documents]:
    for place in own_places(documents, "code"):
        cell, lines = cell_at(documents, place), cell_at(documents, place).lines
        found = statements(cell.source, language_at(documents, place))
        for first, second in pairwise(found):
            (a, b), (c, d) = (_rows(first), _rows(second))
            if _is_function(first) and _is_function(second) and b < c:
                between = lines[b + 1 : c]
                if any(line.strip() for line in between):
                    continue  # a comment between them belongs to one of them
                swapped = [*lines[:a], *lines[c : d + 1], *between, *lines[a : b + 1], *lines[d + 1 :]]
                yield with_source(documents, place, "\n".join(swapped))


def _rows(node: Node) -> tuple[int, int]:
    return node.start_point[0], node.end_point[0]


def _is_function(node: Node) -> bool:
    """Whether a statement defines a function: its order among others does not matter."""
    if node.type in DEFINES:
        return True
    right = node.child_by_field_name("rhs") if node.type == "binary_operator" else None
    return right is not None and right.type == "function_definition"
