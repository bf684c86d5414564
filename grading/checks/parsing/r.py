"""What R code calls and defines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import Collector, string_values, text, words

if TYPE_CHECKING:
    from tree_sitter import Node


LEFTWARD = frozenset({"<-", "<<-", "=", ":="})
RIGHTWARD = frozenset({"->", "->>"})
KEYWORDS = {
    "for_statement": "for",
    "while_statement": "while",
    "repeat_statement": "repeat",
    "if_statement": "if",
    "function_definition": "function",
}
MAKERS = words(
    "mutate transmute summarise summarize reframe rename select transform add_column group_by count tibble"
    " tribble data.frame data.table cbind bind_cols add_row nest distinct"
)
"""Functions whose named arguments make columns."""
NAMING = frozenset({"names_to", "values_to", "into", "new_column_name", "output_column"})
"""Arguments whose string names a new column."""
SETTINGS = frozenset({"stringsAsFactors", "check.names", "row.names", "na.rm"})
COUNTS = frozenset({"count", "add_count", "tally", "add_tally"})
HIGHER = words(
    "lapply sapply vapply tapply mapply apply Map Filter Reduce do.call map map_chr map_dbl map_int map_lgl"
    " map_df map_dfr map2 pmap walk across if_any if_all mutate_at mutate_if mutate_all summarise_at"
    " summarise_if summarise_all summarize_at summarize_if summarize_all aggregate match.fun"
)
"""Functions that call the functions they are given."""
RENAMERS = frozenset({"names", "colnames"})


def visit(node: Node, found: Collector) -> None:
    """Adds what this node calls, defines or comments out."""
    kind = node.type
    if kind == "comment":
        found.comment(node)
    elif kind == "string_content":
        found.string(_content(node), node)
    elif kind == "call":
        _call(node, found)
    elif kind == "binary_operator":
        _operator(node, found)
    elif kind in KEYWORDS and node.is_named:
        found.call(KEYWORDS[kind], node, node.children[0] if node.children else None)
        if kind == "for_statement":
            variable = node.child_by_field_name("variable")
            if variable is not None:
                found.define(_bare(variable), variable)


def _content(node: Node) -> str:
    return (node.text or b"")[:2000].decode("utf-8", "replace")


def _bare(node: Node | None) -> str:
    return text(node).strip("`\"'")


def _name(node: Node | None) -> tuple[Node, str, str] | None:
    """The node, bare and full name of a called function."""
    if node is None:
        return None
    if node.type == "identifier":
        return node, _bare(node), ""
    if node.type in ("namespace_operator", "extract_operator"):
        right = node.child_by_field_name("rhs")
        if right is not None and right.type in ("identifier", "string"):
            return right, _bare(right), text(node).replace(":::", "::")
    return None


def _arguments(call: Node) -> list[Node]:
    block = call.child_by_field_name("arguments")
    return [] if block is None else [n for n in block.named_children if n.type == "argument"]


def _call(node: Node, found: Collector) -> None:
    called = _name(node.child_by_field_name("function"))
    if called is None:
        return
    at, name, full = called
    found.call(name, at, node, full)
    for argument in _arguments(node):
        key, value = argument.child_by_field_name("name"), argument.child_by_field_name("value")
        if value is None:
            continue
        if key is None:
            if name in HIGHER:
                _passed(value, found)
            continue
        label = _bare(key)
        if label in NAMING or (label == "name" and name in COUNTS):
            for content in string_values(value):
                found.argument(_content(content), content)
        elif name in COUNTS and label in ("sort", "wt"):
            continue
        elif name in MAKERS and label and not label.startswith(".") and label not in SETTINGS:
            found.argument(label, key, value)
        elif name in HIGHER:
            _passed(value, found)
    _named_by_string(name, node, found)


def _passed(value: Node, found: Collector) -> None:
    """A function given to another by name, as in `sapply(x, str_trim)`."""
    called = _name(value)
    if called is not None:
        found.call(called[1], called[0], None, called[2])


def _named_by_string(name: str, node: Node, found: Collector) -> None:
    if name not in ("assign", "unite"):
        return
    values = [a for a in _arguments(node) if a.child_by_field_name("name") is None]
    position = 0 if name == "assign" else 1
    # in a pipe the data is not among the arguments of unite()
    for argument in values[position : position + 1] or values[:1]:
        for content in string_values(argument)[:1]:
            found.define(_content(content), content, node)


def _operator(node: Node, found: Collector) -> None:
    operator = node.child_by_field_name("operator")
    sign = text(operator)
    left, right = node.child_by_field_name("lhs"), node.child_by_field_name("rhs")
    if operator is None or left is None or right is None:
        return
    if sign in LEFTWARD:
        _assign(left, node, right, found)
    elif sign in RIGHTWARD:
        _assign(right, node, left, found)
    else:
        found.call(sign, operator)


def _assign(target: Node, whole: Node, value: Node, found: Collector) -> None:
    if target.type in ("identifier", "string"):
        found.define(_bare(target), target, whole)
    elif target.type == "extract_operator":
        column = target.child_by_field_name("rhs")
        if column is not None:
            found.define(_bare(column), column, whole, text(target))
    elif target.type in ("subset", "subset2"):
        names = string_values(target.child_by_field_name("arguments") or target)
        for content in names:
            found.define(_content(content), content, whole)
        base = target.child_by_field_name("function")
        if not names and base is not None and base.type == "extract_operator":
            _assign(base, whole, value, found)
    elif target.type == "call" and text(target.child_by_field_name("function")) in RENAMERS:
        for content in string_values(value):
            found.define(_content(content), content, whole)
