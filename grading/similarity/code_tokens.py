"""Code as tokens of its grammar, without comments and layout, in one spelling of strings and numbers.

What is left out: comments, docstrings, blanks and line breaks, semicolons, quotes of strings, spellings of
numbers (`1e3` in R, `0x10` in Python), parentheses and braces around a whole condition, value or body, and in
R the difference between `<-` and `=`. What stays: every operator, literal, called function, attribute, column
and named argument, and how blocks stand in each other. Names are left to `grading.similarity.own_names`.
Code of other languages than Python and R loses its comments and layout only; prose is its words in small
letters.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from grading.checks.parsing.parser import MAX_BYTES, parse
from grading.similarity import literals
from grading.similarity.name_roles import PLAIN, Roles, roles_in

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_TOKENS = 50_000
"""Of one cell or script; of longer code the rest counts as one token."""
BLOCK, END, BROKEN, STOP = ":{", ":}", "?!", ";"
_WORD = re.compile(r"\w+")
_STATEMENTS = frozenset({"module", "program", "block", "braced_expression"})
"""Nodes whose children are statements, each with its end."""
_LEAVES = frozenset({"identifier", "string_content"})
_SKIPPED = frozenset({"line_continuation", "shebang"})
_WHOLE = {
    "python": frozenset(
        "return_statement if_statement elif_clause while_statement assignment expression_statement"
        " parenthesized_expression assert_statement".split()
    ),
    "r": frozenset({"parenthesized_expression"}),
}
"""Nodes in which parentheses around an expression change nothing; in R a statement in them is shown."""
_BODIES = frozenset({"if_statement", "for_statement", "while_statement", "function_definition"})
"""Nodes in R whose body needs no braces around a single expression."""


class Token(NamedTuple):
    """A token at its line; `at` is its place in bytes.

    `scope` is the number of the function around a name, 0 outside of all, and negative for all else: COLUMN
    for a name of a column or argument, PLAIN for the rest. `defined` is from where on a name that is defined
    here has its value; nothing for a use. A tuple, as there are many and tuples are made fastest.
    """

    text: str
    line: int
    at: int = 0
    scope: int = PLAIN
    defined: int | None = None


@dataclass(frozen=True)
class Tokens:
    """The tokens of a piece of code in order; `parents` has the scope around each scope."""

    tokens: tuple[Token, ...]
    parents: tuple[int, ...] = (0,)
    size: int = 0
    """Bytes of the code."""


def tokens_of(source: str, language: str) -> Tokens:
    """The tokens of code; its words in small letters where there is no grammar of the language."""
    found = parse(source, language)
    if found is None:
        return words_of(source)
    walk = _Walk(found.language, roles_in(found.language))
    cut = walk.run(found.tree.root_node)
    if cut or found.cut:
        rest = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()
        walk.out.append(Token(rest, source.count("\n") + 1))
    return Tokens(tuple(walk.out), tuple(walk.parents), len(found.data))


def words_of(source: str) -> Tokens:
    """The words of prose in small letters."""
    size, found = 0, []
    for number, line in enumerate(source[:MAX_BYTES].split("\n"), start=1):
        found += [Token(word, number, size) for word in _WORD.findall(line.casefold())]
        size += len(line) + 1
    return Tokens(tuple(found[:MOST_TOKENS]), size=size)


@dataclass
class _Frame:
    """A node around the cursor."""

    kind: str
    scope: int
    skips: frozenset[str] = frozenset()
    """Its own brackets that are left out."""


@dataclass
class _Walk:
    """Goes through a tree with a cursor, without recursion, so that deep nesting is harmless."""

    language: str
    roles: Roles | None
    out: list[Token] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [0])

    def run(self, root: Node) -> bool:
        """Collects the tokens; whether there were too many."""
        cursor = root.walk()
        frames: list[_Frame] = []
        while len(self.out) < MOST_TOKENS:
            node = cursor.node
            assert node is not None  # a cursor stands on a node
            frame = self._enter(node, frames, cursor.field_name)
            if frame is not None and cursor.goto_first_child():
                frames.append(frame)
                continue
            while not cursor.goto_next_sibling():
                if not frames or not cursor.goto_parent():
                    return False
                self._leave(cursor.node, frames.pop(), frames)
        return True

    def _enter(self, node: Node, frames: list[_Frame], field_name: str | None) -> _Frame | None:
        """The frame of a node whose children count; else it is a token, or nothing."""
        above = frames[-1] if frames else _Frame("", 0)
        kind = node.type
        if "comment" in kind or kind in _SKIPPED or self._is_docstring(node, above):
            return None
        if node.is_error or node.is_missing:
            self._add(BROKEN, node)
        literal = literals.canonical(node, self.language) if kind in literals.KINDS else None
        if literal is not None:
            self._add(literal, node)
            self._ended(node, above)
            return None
        if node.child_count == 0 or kind in _LEAVES:
            self._leaf(node, kind, above, field_name)
            return None
        if kind == "block":
            self._add(BLOCK, node)
        scope = above.scope
        if self.roles is not None:
            self.roles.entered(node)
            if kind in self.roles.scopes:
                scope = len(self.parents)
                self.parents.append(above.scope)
        loose = self._loose(node, above.kind)
        # what stands alone in braces ends with what is around them
        return _Frame("" if loose and kind == "braced_expression" else kind, scope, loose)

    def _leave(self, node: Node | None, frame: _Frame, frames: list[_Frame]) -> None:
        if node is None:
            return
        if frame.kind == "block":
            self._add(END, node, last=True)
        self._ended(node, frames[-1] if frames else _Frame("", 0))

    def _ended(self, node: Node, above: _Frame) -> None:
        if above.kind in _STATEMENTS and node.is_named:
            self._add(STOP, node, last=True)

    def _leaf(self, node: Node, kind: str, above: _Frame, field_name: str | None) -> None:
        text = (node.text or b"").decode("utf-8", "replace")
        if kind in ("string_start", "string_end"):
            text = text.strip("\"'")
        if not text.strip() or text == STOP or text in above.skips:
            return
        if self.language == "python" and text in ")]}" and above.kind != "tuple" and self._after_comma():
            self.out.pop()
        if self.language == "r" and text == "=" and above.kind == "binary_operator":
            text = "<-"
        if kind == "identifier" and self.roles is not None:
            self._name(node, text.strip("`"), above, field_name, self.roles)
        else:
            self._add(text, node)
        self._ended(node, above)

    def _name(self, node: Node, text: str, above: _Frame, field_name: str | None, roles: Roles) -> None:
        role = roles.of(node, text, above.kind, field_name, above.scope)
        # what names a function stands in the function's node, and is a name of what is around it
        scope = self.parents[above.scope] if role.outside else above.scope
        if role.scope is not None:
            scope = role.scope
        self.out.append(Token(text, node.start_point[0] + 1, node.start_byte, scope, role.defined))

    def _after_comma(self) -> bool:
        return bool(self.out) and self.out[-1].text == ","

    def _add(self, text: str, node: Node, *, last: bool = False) -> None:
        row = node.end_point[0] if last else node.start_point[0]
        self.out.append(Token(text, row + 1, node.end_byte if last else node.start_byte))

    def _is_docstring(self, node: Node, above: _Frame) -> bool:
        """A text that stands where a statement could: nobody reads it when the code runs."""
        if self.language != "python" or above.kind not in _STATEMENTS:
            return False
        inner = node.named_children if node.type == "expression_statement" else [node]
        return len(inner) == 1 and inner[0].type == "string"

    def _loose(self, node: Node, above: str) -> frozenset[str]:
        """The brackets of a node that change nothing where it stands."""
        if node.type == "parenthesized_expression" and above in _WHOLE.get(self.language, ()):
            return frozenset("()")
        if node.type == "braced_expression" and above in _BODIES:
            inner = [one for one in node.named_children if "comment" not in one.type]
            return frozenset("{}") if len(inner) == 1 else frozenset()
        return frozenset()
