"""What SQL calls and defines. Key words count as calls, clauses by their words (`GROUP BY`, `LEFT JOIN`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import Collector, text

if TYPE_CHECKING:
    from tree_sitter import Node


CLAUSES = frozenset({"group_by", "order_by", "partition_by", "join", "cross_join", "lateral_join"})
CREATED = frozenset(
    {
        "create_table",
        "create_view",
        "create_materialized_view",
        "create_function",
        "create_index",
        "create_schema",
        "create_type",
    }
)


def visit(node: Node, found: Collector) -> None:
    """Adds what this node calls, defines or comments out."""
    kind = node.type
    if kind in ("comment", "marginalia"):
        found.comment(node)
    elif kind == "literal" and text(node)[:1] in ("'", '"'):
        found.string(text(node)[1:-1], node)
    elif kind.startswith("keyword_") and node.is_named:
        found.call(text(node).upper(), node)
    elif kind == "invocation":
        _named(node, node, found, call=True)
    elif kind in CREATED:
        _named(node, node, found, call=False)
    elif kind in CLAUSES:
        words = [text(n).upper() for n in node.children[:3] if n.type.startswith("keyword_")]
        words = [w for w in words if w not in ("ON", "USING")]
        found.call(" ".join(words), node)
    else:
        _defined(node, kind, found)


def _defined(node: Node, kind: str, found: Collector) -> None:
    name = None
    if kind in ("term", "relation"):
        name = node.child_by_field_name("alias")
    elif kind == "cte":
        name = node.named_children[0] if node.named_children else None
    elif kind == "column_definition":
        name = node.child_by_field_name("name")
    if name is not None:
        found.define(_plain(name), name, node)


def _plain(node: Node) -> str:
    return text(node).strip('`"[]')


def _named(node: Node, whole: Node, found: Collector, *, call: bool) -> None:
    reference = next((n for n in node.named_children if n.type in ("object_reference", "identifier")), None)
    if reference is None:
        return
    name = reference.child_by_field_name("name") or reference
    add = found.call if call else found.define
    add(_plain(name), name, whole, text(reference))
