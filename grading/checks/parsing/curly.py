"""What Java, C, C++, JavaScript and TypeScript code calls and defines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import Collector, below, text, words

if TYPE_CHECKING:
    from tree_sitter import Node


COMMENTS = frozenset({"comment", "line_comment", "block_comment", "html_comment"})
STRINGS = frozenset({"string_fragment", "string_content"})
CALLS = {
    "call_expression": "function",
    "method_invocation": "name",
    "object_creation_expression": "type",
    "new_expression": "",
}
NAMED = words(
    """class_declaration class interface_declaration enum_declaration record_declaration method_declaration
    constructor_declaration function_declaration generator_function_declaration method_definition
    public_field_definition field_definition type_alias_declaration abstract_class_declaration
    alias_declaration preproc_def preproc_function_def variable_declarator enhanced_for_statement"""
)
"""Nodes whose `name` (or `property`) is what they define."""
BODIED = frozenset({"struct_specifier", "class_specifier", "enum_specifier", "union_specifier"})
KEYWORDS = {
    "for_statement": "for",
    "for_in_statement": "for",
    "for_range_loop": "for",
    "enhanced_for_statement": "for",
    "while_statement": "while",
    "do_statement": "do",
    "if_statement": "if",
    "switch_statement": "switch",
    "switch_expression": "switch",
    "try_statement": "try",
    "lambda_expression": "lambda",
    "arrow_function": "=>",
}
LEAVES = words(
    """identifier field_identifier type_identifier property_identifier private_property_identifier
    shorthand_property_identifier_pattern namespace_identifier"""
)


def visit(node: Node, found: Collector) -> None:
    """Adds what this node calls, defines or comments out."""
    kind = node.type
    if kind in COMMENTS:
        found.comment(node)
    elif kind in STRINGS:
        found.string((node.text or b"")[:2000].decode("utf-8", "replace"), node)
    elif kind in CALLS:
        _call(node, CALLS[kind], found)
    elif kind == "assignment_expression":
        _target(node.child_by_field_name("left"), node, found)
    elif kind in NAMED:
        name = node.child_by_field_name("name") or node.child_by_field_name("property")
        _target(name, node, found)
    elif kind in BODIED and node.child_by_field_name("body") is not None:
        _target(node.child_by_field_name("name"), node, found)
    elif kind in ("function_definition", "init_declarator", "type_definition", "for_range_loop"):
        _declared(node.child_by_field_name("declarator"), node, found)
    elif kind in ("declaration", "field_declaration"):
        for declarator in node.children_by_field_name("declarator"):
            if declarator.type not in ("init_declarator", "function_declarator", "variable_declarator"):
                _declared(declarator, node, found)
    if kind in KEYWORDS and node.is_named:
        found.call(KEYWORDS[kind], node, node.children[0] if node.children else None)


def _call(node: Node, field: str, found: Collector) -> None:
    callee = node.child_by_field_name(field) if field else None
    if not field:  # `new X()`: C++ says type, JavaScript constructor
        callee = node.child_by_field_name("type") or node.child_by_field_name("constructor")
    if callee is None:
        return
    if node.type == "method_invocation":
        owner = text(node.child_by_field_name("object"))
        found.call(text(callee), callee, node, f"{owner}.{text(callee)}" if owner else "")
        return
    at = callee
    while True:
        step = (
            at.child_by_field_name("property")
            or at.child_by_field_name("field")
            or at.child_by_field_name("name")
        )
        if step is None:
            break
        at = step
    if at.type == "generic_type" and at.named_children:
        at = at.named_children[0]
    name = text(at)
    if name and at.type in LEAVES:
        found.call(name, at, node, text(callee).replace("?.", ".").replace("->", "."))


def _target(target: Node | None, whole: Node, found: Collector) -> None:
    if target is None:
        return
    if target.type in LEAVES:
        found.define(text(target), target, whole)
    elif target.type in ("member_expression", "field_access", "field_expression"):
        name = target.child_by_field_name("property") or target.child_by_field_name("field")
        if name is not None:
            found.define(text(name), name, whole, text(target))
    elif target.type in ("object_pattern", "array_pattern"):
        for part in below(target):
            if part.type in ("identifier", "shorthand_property_identifier_pattern"):
                found.define(text(part), part, whole)


def _declared(declarator: Node | None, whole: Node, found: Collector) -> None:
    """Follows C declarators (`*f(int)`, `a[3]`, `A::m`) down to the name."""
    for _ in range(50):
        if declarator is None or declarator.type in LEAVES:
            break
        deeper = declarator.child_by_field_name("declarator") or declarator.child_by_field_name("name")
        if deeper is None and declarator.type in ("reference_declarator", "parenthesized_declarator"):
            deeper = declarator.named_children[-1] if declarator.named_children else None
        declarator = deeper
    if declarator is not None:
        _target(declarator, whole, found)
