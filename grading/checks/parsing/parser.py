"""Parses the code of a cell, bounded in time and memory, and says what it calls and defines.

Names come from parsed code only, never from comments or strings. Notebook magics are no errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from grading.checks.parsing import curly, python, r, sql
from grading.checks.parsing.code_facts import CodeFacts, Collector, Mention
from grading.checks.parsing.outline import DEEPEST, Outline

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree


MAX_BYTES = 1_000_000
"""Code beyond this is not looked at."""
MAX_NODES = 400_000
"""Nodes of the tree visited at most; about a second of work."""
MAX_ERRORS = 50


class FactReader:
    """Parses each piece of a submission's code once, and no more than `budget` bytes of it in all."""

    def __init__(self, budget: int = MAX_BYTES) -> None:
        self.cut = False
        """Whether some code was not looked at."""
        self._left = budget
        self._known: dict[tuple[str, str], CodeFacts] = {}

    def facts(self, source: str, language: str) -> CodeFacts:
        """What the code calls and defines; nothing once the budget is spent."""
        key = (source, language)
        if key not in self._known:
            size = len(source.encode("utf-8", "replace"))
            if size > self._left:
                self.cut = True
                return CodeFacts(language=language, cut=True)
            self._left -= size
            self._known[key] = code_facts(source, language)
            self.cut = self.cut or self._known[key].cut
        return self._known[key]


Visit = Callable[["Node", Collector], None]
_FAMILIES: dict[str, Visit] = {
    "r": r.visit,
    "python": python.visit,
    "sql": sql.visit,
    "java": curly.visit,
    "c": curly.visit,
    "cpp": curly.visit,
    "javascript": curly.visit,
    "typescript": curly.visit,
    "tsx": curly.visit,
}
_ALIASES = {
    "py": "python",
    "python3": "python",
    "ipython": "python",
    "ir": "r",
    "c++": "cpp",
    "c++17": "cpp",
    "cc": "cpp",
    "js": "javascript",
    "jsx": "javascript",
    "node": "javascript",
    "ts": "typescript",
}
LOOSE = frozenset({"sql"})
"""Languages with many dialects: where the grammar does not fit, the code may still be right."""


def grammar_of(language: str) -> str | None:
    """The name of the grammar for a language as documents name it, or None without a parser."""
    name = language.strip().lower()
    name = _ALIASES.get(name, name)
    return name if name in _FAMILIES else None


@lru_cache(maxsize=16)
def _language(name: str) -> Language:
    # 180 MB of grammars: loaded when the first code of a language comes
    from tree_sitter_language_pack import get_language

    return get_language(cast(Any, name))


@dataclass(frozen=True)
class ParsedCode:
    """A tree with the bytes it was made from; `cut` where the code was longer than is looked at."""

    tree: Tree
    data: bytes
    language: str
    cut: bool


def code_facts(source: str, language: str) -> CodeFacts:
    """What `source` calls and defines; languages without a parser give only the code itself."""
    name, code = _as_cell(source, language)
    found = _parsed(code, name)
    if found is None:
        return CodeFacts(language=name, code_without_comments=code[:MAX_BYTES])
    return _walk(found.tree, found.data, name, found.cut)


def parse(source: str, language: str) -> ParsedCode | None:
    """The tree of the code of a cell, without notebook magics; nothing for languages without a parser."""
    name, code = _as_cell(source, language)
    return _parsed(code, name)


def _as_cell(source: str, language: str) -> tuple[str, str]:
    """The language of a cell, which a magic may change, and its code without that magic's line."""
    name = grammar_of(language) or "text"
    if name == "python":
        name = python.cell_language(source)
    if name != "python" and python.CELL_MAGIC.match(source):
        source = "\n" + source.lstrip("\n").partition("\n")[2]  # the magic's line is not in that language
    return name, source


def _parsed(source: str, name: str) -> ParsedCode | None:
    if name == "text":
        return None
    data, cut = _bounded(source)
    tree = _parse(data, name)
    if name == "python" and tree.root_node.has_error:
        data, _ = _bounded(python.without_magics(data.decode("utf-8", "replace")))
        tree = _parse(data, name)
    return ParsedCode(tree, data, name, cut)


def _bounded(source: str) -> tuple[bytes, bool]:
    data = source.replace("\r\n", "\n").encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data, False
    end = data.rfind(b"\n", 0, MAX_BYTES)
    return data[: end if end > 0 else MAX_BYTES].decode("utf-8", "ignore").encode(), True


def _parse(data: bytes, name: str) -> Tree:
    from tree_sitter import Parser  # machines read rubrics without the parsers

    return Parser(_language(name)).parse(data)


def _walk(tree: Tree, data: bytes, name: str, cut: bool) -> CodeFacts:
    """Visits every node with a cursor, without recursion, so that deep nesting is harmless."""
    visit, found, outline = _FAMILIES[name], Collector(), Outline(name)
    errors: set[int] = set()
    cursor = tree.walk()
    visited = depth = 0
    while True:
        node = cursor.node
        visited += 1
        if node is None or visited > MAX_NODES:
            cut = True
            break
        if node.is_error or node.is_missing:
            if len(errors) < MAX_ERRORS:
                errors.add(node.start_point[0] + 1)
        else:
            visit(node, found)
            outline.enter(node, depth, cursor.field_name if depth < DEEPEST else None)
        if cursor.goto_first_child():
            depth += 1
            continue
        if cursor.goto_next_sibling():
            continue
        while cursor.goto_parent():
            depth -= 1
            if cursor.goto_next_sibling():
                break
        else:
            break
    facts = _facts(found, outline, data, name)
    return replace(facts, errors=tuple(sorted(errors)), cut=cut)


def _facts(found: Collector, outline: Outline, data: bytes, name: str) -> CodeFacts:
    comments, definitions = outline.finish(data, partial(_parse, name=name))
    return CodeFacts(
        language=name,
        calls=_kept(found.calls),
        defines=_kept(found.defines),
        arguments=_kept(found.arguments),
        strings=tuple(found.strings),
        comments=comments,
        definitions=definitions,
        code_without_comments=_blanked(data, found.comments),
        parsed=True,
    )


def _kept(mentions: list[Mention]) -> tuple[Mention, ...]:
    return tuple(m for m in mentions if m.name)


def _blanked(data: bytes, comments: list[tuple[int, int]]) -> str:
    """The code without comments; what they spanned keeps its line breaks."""
    parts: list[bytes] = []
    at = 0
    for start, end in comments:
        if start < at:
            continue
        parts.append(data[at:start])
        parts.append(b"\n" * data.count(b"\n", start, end))
        at = end
    parts.append(data[at:])
    return b"".join(parts).decode("utf-8", "replace")
