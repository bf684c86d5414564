"""What a name in Python or R code is: defined here, used, or the name of a column, argument or attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import below, text

if TYPE_CHECKING:
    from tree_sitter import Node

PLAIN, COLUMN = -1, -2
"""Scopes of what is no name of a value: an attribute or module, and a column or named argument."""
FROM_START = 0
"""Where a name has its value in the whole of its scope: parameters, functions, names of comprehensions."""


@dataclass(frozen=True, slots=True)
class Role:
    """`defined` is from where on a name has its value that is defined here; `scope` is another one than that
    around it; `outside` says that it belongs to what is around its function.
    """

    defined: int | None = None
    scope: int | None = None
    outside: bool = False


USED, NO_VALUE, NAMED = Role(), Role(scope=PLAIN), Role(scope=COLUMN)
PARAMETER = Role(defined=FROM_START)


class Roles:
    """The roles of names in one piece of code; nodes are given from the outside in."""

    scopes: frozenset[str] = frozenset()
    """Nodes with names of their own."""

    def entered(self, node: Node) -> None:
        """Looks at a node before what is in it."""
        raise NotImplementedError

    def of(self, node: Node, name: str, above: str, field_name: str | None, scope: int) -> Role:
        """The role of an identifier in the node above it, in a field of that."""
        raise NotImplementedError


@dataclass
class PythonRoles(Roles):
    """Roles in Python."""

    scopes = frozenset(
        "function_definition lambda list_comprehension dictionary_comprehension set_comprehension"
        " generator_expression".split()
    )
    _targets: dict[int, int] = field(default_factory=dict)
    """Start of a name that is assigned to -> from where on it has its value."""
    _global: set[tuple[int, str]] = field(default_factory=set)

    def entered(self, node: Node) -> None:
        """Notes the names that a node assigns to."""
        target, value_from = _python_target(node)
        for part in below(target) if target is not None else ():
            if part.type == "identifier" and _assigned(part):
                self._targets[part.start_byte] = value_from

    def of(self, node: Node, name: str, above: str, field_name: str | None, scope: int) -> Role:
        """The role of an identifier."""
        if (above, field_name) in _PYTHON_PLAIN or above == "dotted_name":
            return NO_VALUE
        if above in ("function_definition", "class_definition") and field_name == "name":
            return Role(defined=FROM_START, outside=above == "function_definition")
        if above in ("global_statement", "nonlocal_statement"):
            self._global.add((scope, name))
        whole = 0 if (scope, name) in self._global else None
        if above in ("parameters", "lambda_parameters", "typed_parameter", "dictionary_splat_pattern"):
            return PARAMETER
        if above in ("default_parameter", "typed_default_parameter") and field_name == "name":
            return PARAMETER
        if above == "aliased_import" and field_name == "alias":
            return Role(defined=node.start_byte)
        return Role(defined=self._targets.get(node.start_byte), scope=whole)


_PYTHON_PLAIN = frozenset({("attribute", "attribute"), ("keyword_argument", "name")})
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "assignment": "left",
        "augmented_assignment": "left",
        "for_statement": "left",
        "for_in_clause": "left",
        "named_expression": "name",
    }
)
_AFTER = frozenset({"assignment", "augmented_assignment", "named_expression"})
"""Nodes that give the value when they are done."""


def _python_target(node: Node) -> tuple[Node | None, int]:
    """What a node assigns to, and from where on that has its value."""
    if node.type == "as_pattern_target":
        return node, node.start_byte
    name = _FIELDS.get(node.type)
    if name is None:
        return None, 0
    if node.type == "for_in_clause":
        return node.child_by_field_name(name), FROM_START
    return node.child_by_field_name(name), node.end_byte if node.type in _AFTER else node.start_byte


def _assigned(name: Node) -> bool:
    """Whether a name in a target is assigned to itself: in `a.b = 1` and `a[b] = 1` none is."""
    above = name.parent
    while above is not None and above.type in ("pattern_list", "tuple_pattern", "list_pattern"):
        above = above.parent
    return above is not None and above.type not in ("attribute", "subscript", "call", "argument_list")


@dataclass
class RRoles(Roles):
    """Roles in R."""

    scopes = frozenset({"function_definition"})
    _targets: dict[int, Role] = field(default_factory=dict)

    def entered(self, node: Node) -> None:
        """Notes the name that a node assigns to."""
        if node.type == "for_statement":
            variable = node.child_by_field_name("variable")
            if variable is not None:
                self._targets[variable.start_byte] = Role(defined=node.start_byte)
        elif node.type == "binary_operator":
            self._assignment(node)

    def _assignment(self, node: Node) -> None:
        sign = text(node.child_by_field_name("operator"))
        left, right = node.child_by_field_name("lhs"), node.child_by_field_name("rhs")
        if sign in ("->", "->>"):
            left, right = right, left
        elif sign not in ("<-", "<<-", "="):
            return
        if left is None or right is None or left.type != "identifier":
            return
        is_function = right.type == "function_definition"
        whole = 0 if sign in ("<<-", "->>") else None
        self._targets[left.start_byte] = Role(FROM_START if is_function else node.end_byte, whole)

    def of(self, node: Node, name: str, above: str, field_name: str | None, scope: int) -> Role:
        """The role of an identifier."""
        if above == "namespace_operator":
            return NO_VALUE
        if (above, field_name) in (("argument", "name"), ("extract_operator", "rhs")):
            return NAMED
        if above == "parameter" and field_name == "name":
            return PARAMETER
        return self._targets.get(node.start_byte, USED)


_MADE: Mapping[str, Callable[[], Roles]] = MappingProxyType({"python": PythonRoles, "r": RRoles})


def roles_in(language: str) -> Roles | None:
    """New roles for a piece of code; nothing for languages whose names all count."""
    made = _MADE.get(language)
    return None if made is None else made()
