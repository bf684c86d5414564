"""The functions, methods and classes of code, with what they stand in, extend and nest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import Comment, Definition, Kind, string_values, text, words
from grading.checks.parsing.comments import Parse, Raw, comments_of, ends_above

if TYPE_CHECKING:
    from tree_sitter import Node


_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "class_definition": "class",
        "class_declaration": "class",
        "abstract_class_declaration": "class",
        "class": "class",
        "enum_declaration": "class",
        "record_declaration": "class",
        "class_specifier": "class",
        "struct_specifier": "class",
        "union_specifier": "class",
        "enum_specifier": "class",
        "interface_declaration": "interface",
        "annotation_type_declaration": "interface",
        "function_definition": "function",
        "function_declaration": "function",
        "generator_function_declaration": "function",
        "method_declaration": "method",
        "method_definition": "method",
        "constructor_declaration": "constructor",
        "compact_constructor_declaration": "constructor",
        "create_table": "table",
        "create_view": "view",
        "create_materialized_view": "view",
        "create_function": "function",
    }
)
_FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "function_definition"})
_ASSIGNED = frozenset(
    {"variable_declarator", "binary_operator", "argument", "field_definition", "public_field_definition"}
)
_WRAPPERS = words(
    "decorated_definition export_statement template_declaration lexical_declaration variable_declaration"
    " variable_declarator binary_operator statement type_definition call arguments argument"
)
"""Nodes around a definition that begin before it, with its comment above them."""
_CONTROL = words(
    """if_statement for_statement for_in_statement for_range_loop enhanced_for_statement while_statement
    do_statement switch_statement switch_expression try_statement with_statement match_statement
    repeat_statement try_with_resources_statement synchronized_statement
    conditional_expression ternary_expression"""
)
_BASES = words(
    "superclass super_interfaces extends_interfaces class_heritage extends_type_clause base_class_clause"
    " superclasses argument_list"
)
_NAMES = words(
    "identifier type_identifier attribute scoped_type_identifier qualified_identifier member_expression"
)
_R_CLASSES = {"setClass": "contains", "setRefClass": "contains", "R6Class": "inherit"}
_ABOVE_IS_DOC = frozenset({"c", "cpp", "r", "sql"})
"""Languages in which any comment directly above a definition documents it."""
_BODIED = frozenset({"class_specifier", "struct_specifier", "union_specifier", "enum_specifier"})
_R_NAMES = frozenset({"identifier", "string", "extract_operator"})
LONGEST_PATH = 300
"""Characters of a `parent`."""
DEEPEST = 300
"""Of nodes deeper in the tree than this only comments count, so that nested code stays linear."""
_CONSTRUCTORS = frozenset({"__init__", "constructor"})


@dataclass
class _Open:
    depth: int
    definition: Definition
    start: int
    """Its first line with wrappers, below which its comment ends."""
    docstring: int = 0
    controls: list[int] = field(default_factory=list)
    """Depths of the control structures around the cursor."""
    path: str = field(init=False)
    """What its parts have as `parent`."""

    def __post_init__(self) -> None:
        whole = self.definition
        self.path = f"{whole.parent}.{whole.name}"[-LONGEST_PATH:] if whole.parent else whole.name


class Outline:
    """Gathers definitions and comments while a tree is walked, each node before those below it."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._open: list[_Open] = []
        self._done: list[_Open] = []
        self._above: list[tuple[str, int]] = []
        self._comments: list[Raw] = []
        self._docstrings: set[int] = set()

    def enter(self, node: Node, depth: int, field_name: str | None) -> None:
        """Looks at a node that is no error, at its depth and in its field of the node above."""
        if depth > DEEPEST:
            if "comment" in node.type:
                self._comments.append(Raw.of(node))
            return
        del self._above[depth:]
        self._above.extend([("", 0)] * (depth - len(self._above)))
        while self._open and self._open[-1].depth >= depth:
            self._open.pop()
        kind = node.type
        if "comment" in kind or kind == "marginalia":
            self._comments.append(Raw.of(node))
        elif kind == "string" and self._language == "python":
            self._string(node)
        elif kind == "module":
            self._docstring(node)
        elif kind in _CONTROL and self._open:
            self._control(kind, depth, field_name)
        elif node.is_named and (found := self._definition(node)) is not None:
            self._begin(node, depth, found)
        self._above.append((kind, node.start_point[0] + 1))

    def finish(self, data: bytes, parse: Parse) -> tuple[tuple[Comment, ...], tuple[Definition, ...]]:
        """All comments, and the definitions with theirs."""
        comments = comments_of(self._comments, data, self._language, parse)
        find = ends_above(comments)
        lines = data.decode("utf-8", "replace").split("\n") if self._done else []
        docstrings = {c.first: c for c in comments if c.doc}
        documenting: dict[Comment, Comment] = {}
        definitions = []
        taken: set[int] = set()
        for one in self._done:
            comment = docstrings.get(one.docstring) or find(one.start, lines)
            if comment is not None and comment.first in taken:
                comment = None  # of several on one line the first has it
            elif comment is not None:
                taken.add(comment.first)
            if comment is not None and self._language in _ABOVE_IS_DOC and not comment.doc:
                comment = documenting.setdefault(comment, replace(comment, doc=True))
            definitions.append(replace(one.definition, comment=comment))
        return tuple(documenting.get(c, c) for c in comments), tuple(definitions)

    def _begin(self, node: Node, depth: int, found: Definition) -> None:
        start = node.start_point[0] + 1
        for kind, line in reversed(self._above):
            # the list of methods of an R6 class is no wrapper of each of them
            if kind not in _WRAPPERS or (kind == "arguments" and self._open):
                break
            start = line
        self._open.append(_Open(depth, found, start, self._docstring(node)))
        self._done.append(self._open[-1])

    def _docstring(self, node: Node) -> int:
        """The line on which the docstring of a definition or module in Python begins, 0 without one."""
        body = node if node.type == "module" else node.child_by_field_name("body")
        if self._language != "python" or body is None:
            return 0
        first = next((n for n in body.named_children[:50] if n.type != "comment"), None)
        if first is not None and first.type == "expression_statement" and first.named_child_count == 1:
            first = first.named_children[0]
        if first is None or first.type != "string":
            return 0
        self._docstrings.add(first.start_byte)
        return first.start_point[0] + 1

    def _string(self, node: Node) -> None:
        """Python's docstrings, and texts in triple quotes that stand where a statement could."""
        documents = node.start_byte in self._docstrings
        above = self._above[-1][0] if self._above else ""
        triple = (node.text or b"").lstrip(b"rRuUbBfF")[:3] in (b'"""', b"'''")
        if documents or (triple and above in ("block", "module", "expression_statement")):
            self._comments.append(Raw.of(node, docstring=documents))

    def _control(self, kind: str, depth: int, field_name: str | None) -> None:
        here = self._open[-1]
        above = self._above[-1][0] if self._above else ""
        while here.controls and here.controls[-1] >= depth:
            here.controls.pop()
        if kind == "if_statement" and (
            above == "else_clause" or (above == kind and field_name == "alternative")
        ):
            return  # stands beside the `if` it belongs to
        here.controls.append(depth)
        if len(here.controls) > here.definition.nesting:
            here.definition = replace(here.definition, nesting=len(here.controls))

    def _definition(self, node: Node) -> Definition | None:
        kind = _KINDS.get(node.type)
        if node.type == "call" and self._language == "r":
            return self._r_class(node)
        if kind is None and node.type not in _FUNCTION_VALUES:
            return None
        name, parent = self._named(node)
        if not name:
            return None
        holder = self._open[-1].definition if self._open else None
        within = self._open[-1].path if self._open else ""
        in_class = holder is not None and holder.kind in ("class", "interface")
        kind = kind or "function"
        if kind in ("function", "method") and (in_class or parent):
            kind = "method"
            if name in _CONSTRUCTORS or name == (parent.rpartition("::")[2] or (holder and holder.name)):
                kind = "constructor"
        first, last = node.start_point[0] + 1, node.end_point[0] + 1
        return Definition(kind, name, first, last, ".".join(p for p in (within, parent) if p), _bases(node))

    def _named(self, node: Node) -> tuple[str, str]:
        """The name of a definition, and the class that it names itself (`A::m` in C++, `setMethod` in R)."""
        if node.type in _BODIED and node.child_by_field_name("body") is None:
            return "", ""  # `struct point p;` mentions a type
        if self._language == "r" and node.type == "function_definition":
            return self._r_function(node)
        name = node.child_by_field_name("name")
        if name is None and node.type in ("function_definition", "struct_specifier", "enum_specifier"):
            holder = node if node.type == "function_definition" else node.parent
            return _declared(holder.child_by_field_name("declarator") if holder is not None else None)
        if name is None and node.type in _FUNCTION_VALUES:
            holder = node.parent
            if holder is not None and holder.type in _ASSIGNED:
                name = holder.child_by_field_name("name") or holder.child_by_field_name("property")
        if name is None and node.type.startswith("create_"):
            reference = next((n for n in node.named_children if n.type == "object_reference"), None)
            name = reference.child_by_field_name("name") if reference is not None else None
        return text(name).strip('`"[]'), ""

    def _r_function(self, node: Node) -> tuple[str, str]:
        holder = node.parent
        if holder is None:
            return "", ""
        if holder.type == "binary_operator":
            left, right = holder.child_by_field_name("lhs"), holder.child_by_field_name("rhs")
            name = right if left is not None and left.start_byte == node.start_byte else left
            return (text(name).strip("`\"'"), "") if name is not None and name.type in _R_NAMES else ("", "")
        if holder.type != "argument":
            return "", ""
        if self._open and self._open[-1].definition.kind == "class":
            return text(holder.child_by_field_name("name")).strip("`"), ""
        block = holder.parent
        call = block.parent if block is not None else None
        if call is None or text(call.child_by_field_name("function")) not in ("setMethod", "setGeneric"):
            return "", ""
        said = [text(n) for n in string_values(call)[:2]]
        return (said[0], said[1] if len(said) > 1 else "") if said else ("", "")

    def _r_class(self, node: Node) -> Definition | None:
        maker = text(node.child_by_field_name("function")).rpartition("::")[2]
        block = node.child_by_field_name("arguments")
        if maker not in _R_CLASSES or block is None:
            return None
        arguments = [n for n in block.named_children if n.type == "argument"]
        said = [text(n) for n in string_values(arguments[0])[:1]] if arguments else []
        if not said:
            return None
        bases: list[str] = []
        for argument in arguments:
            value = argument.child_by_field_name("value")
            if value is not None and text(argument.child_by_field_name("name")) == _R_CLASSES[maker]:
                bases = [text(n) for n in string_values(value)] or [text(value)]
        first, last = node.start_point[0] + 1, node.end_point[0] + 1
        return Definition("class", said[0], first, last, bases=tuple(b for b in bases if b))


def _declared(declarator: Node | None) -> tuple[str, str]:
    """Follows C declarators (`*f(int)`, `A::m`) down to the name and the class before it."""
    scopes: list[str] = []
    for _ in range(50):
        if declarator is None:
            return "", ""
        if declarator.type == "qualified_identifier":
            scopes.append(text(declarator.child_by_field_name("scope")))
        deeper = declarator.child_by_field_name("declarator") or declarator.child_by_field_name("name")
        if deeper is None and declarator.type in ("reference_declarator", "parenthesized_declarator"):
            deeper = declarator.named_children[-1] if declarator.named_children else None
        if deeper is None:
            break
        declarator = deeper
    return text(declarator), "::".join(scopes)


def _bases(node: Node) -> tuple[str, ...]:
    """What a class extends and implements, without type arguments and keywords such as `metaclass=`."""
    if node.type in _FUNCTION_VALUES:
        return ()
    found: list[str] = []
    blocks = [n for n in node.named_children if n.type in _BASES]
    while blocks:
        block = blocks.pop(0)
        for part in block.named_children[:50]:
            if part.type in ("type_list", "extends_clause", "implements_clause"):
                blocks.append(part)
                continue
            if part.type in ("generic_type", "template_type"):
                part = part.child_by_field_name("name") or part.named_children[0]
            if part.type in _NAMES and text(part):
                found.append(text(part))
    return tuple(found)
