"""What Python code calls and defines, and how notebook magics are taken out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import Collector, below, string_values, text

if TYPE_CHECKING:
    from tree_sitter import Node


KEYWORDS = {
    "for_statement": "for",
    "while_statement": "while",
    "if_statement": "if",
    "with_statement": "with",
    "try_statement": "try",
    "lambda": "lambda",
    "list_comprehension": "comprehension",
    "dictionary_comprehension": "comprehension",
    "set_comprehension": "comprehension",
    "generator_expression": "comprehension",
}
MAKERS = frozenset({"assign", "agg", "aggregate", "with_columns", "with_column"})
"""Methods whose named arguments make columns."""
HIGHER = frozenset({"map", "filter", "reduce", "apply", "applymap", "transform", "agg", "pipe"})
"""Functions and methods that call the functions they are given."""
LINE_MAGIC = re.compile(r"^(\s*)(?:%{1,2}[A-Za-z_]|!|\?)[^\n]*$|^(\s*)[\w.]+\?{1,2}\s*$")
VALUE_MAGIC = re.compile(r"^(\s*+[\w, .\[\]\"']+=\s*)(?:!|%[A-Za-z_])[^\n]*$")
TIMED = re.compile(r"^(\s*)%time(?:it)?\s+(?=[A-Za-z_])")
CELL_MAGIC = re.compile(r"^\s*%%(\w+)")
PYTHON_CELLS = frozenset({"time", "timeit", "capture", "prun", "python", "python3", "py"})
OTHER_CELLS = {"sql": "sql", "r": "r", "javascript": "javascript", "js": "javascript"}


def visit(node: Node, found: Collector) -> None:
    """Adds what this node calls, defines or comments out."""
    kind = node.type
    if kind == "comment":
        found.comment(node)
    elif kind == "string_content":
        found.string(_content(node), node)
    elif kind == "call":
        _call(node, found)
    elif kind == "decorator":
        _passed(node.named_children[0] if node.named_children else None, found)
    elif kind in ("assignment", "augmented_assignment"):
        target = node.child_by_field_name("left")
        # `x: int` alone only announces a name
        if target is not None and node.child_by_field_name("right") is not None:
            _target(target, node, found)
    elif kind in ("function_definition", "class_definition", "named_expression"):
        _named(node, "name", found)
    elif kind == "aliased_import":
        _named(node, "alias", found)
    elif kind == "as_pattern_target":
        _target(node.named_children[0] if node.named_children else None, node, found)
    if kind in KEYWORDS and node.is_named:
        found.call(KEYWORDS[kind], node, node.children[0] if node.children else None)
    if kind == "for_statement":
        _target(node.child_by_field_name("left"), node.child_by_field_name("left"), found)


def _content(node: Node) -> str:
    return (node.text or b"")[:2000].decode("utf-8", "replace")


def _named(node: Node, field: str, found: Collector) -> None:
    name = node.child_by_field_name(field)
    if name is not None:
        found.define(text(name), name, node)


def _target(target: Node | None, whole: Node | None, found: Collector) -> None:
    if target is None:
        return
    if target.type == "identifier":
        found.define(text(target), target, whole)
    elif target.type == "attribute":
        name = target.child_by_field_name("attribute")
        if name is not None:
            found.define(text(name), name, whole, text(target))
    elif target.type == "subscript":
        for part in target.children_by_field_name("subscript"):
            for content in string_values(part):
                found.define(_content(content), content, whole)
    else:
        for part in below(target):
            if part.type == "identifier":
                found.define(text(part), part, whole)


def _callee(node: Node | None) -> tuple[Node, str, str] | None:
    if node is not None and node.type == "identifier":
        return node, text(node), ""
    if node is not None and node.type == "attribute":
        name = node.child_by_field_name("attribute")
        if name is not None:
            return name, text(name), text(node)
    return None


def _passed(node: Node | None, found: Collector) -> None:
    called = _callee(node)
    if called is not None:
        found.call(called[1], called[0], None, called[2])


def _call(node: Node, found: Collector) -> None:
    called = _callee(node.child_by_field_name("function"))
    block = node.child_by_field_name("arguments")
    if called is None:
        return
    at, name, full = called
    found.call(name, at, node, full)
    for argument in block.named_children if block is not None else []:
        if argument.type == "keyword_argument":
            _keyword(name, argument, found)
        elif name in HIGHER:
            _passed(argument, found)
        elif name == "DataFrame" and argument.type == "dictionary":
            _keys(argument, "key", found)
        elif name == "alias":
            for content in string_values(argument):
                found.argument(_content(content), content)


def _keyword(name: str, argument: Node, found: Collector) -> None:
    key, value = argument.child_by_field_name("name"), argument.child_by_field_name("value")
    if key is None or value is None:
        return
    if name in MAKERS:
        found.argument(text(key), key, value)
    elif name == "rename" and text(key) == "columns" and value.type == "dictionary":
        _keys(value, "value", found)
    elif text(key) == "columns" or (name == "reset_index" and text(key) in ("name", "names")):
        for content in string_values(value):
            found.argument(_content(content), content)
    elif text(key) in ("key", "func"):
        _passed(value, found)


def _keys(dictionary: Node, field: str, found: Collector) -> None:
    for pair in dictionary.named_children:
        part = pair.child_by_field_name(field) if pair.type == "pair" else None
        if part is not None and part.type == "string":
            for content in string_values(part):
                found.argument(_content(content), content, pair)


def cell_language(source: str) -> str:
    """The language a cell magic such as `%%sql` switches to: `python` without one, `text` for others."""
    magic = CELL_MAGIC.match(source)
    if magic is None:
        return "python"
    name = magic.group(1).lower()
    return "python" if name in PYTHON_CELLS else OTHER_CELLS.get(name, "text")


def without_magics(source: str) -> str:
    """The code with `%magics`, `!commands` and `help?` replaced, line for line, by harmless statements."""
    lines = source.split("\n")
    for n, line in enumerate(lines):
        if TIMED.match(line):
            lines[n] = TIMED.sub(r"\1", line)
            continue
        hit = LINE_MAGIC.match(line)
        if hit:
            lines[n] = (hit.group(1) or hit.group(2) or "") + "pass"
            continue
        value = VALUE_MAGIC.match(line)
        if value and len(line) < 2000:
            lines[n] = value.group(1) + "None"
    return "\n".join(lines)
