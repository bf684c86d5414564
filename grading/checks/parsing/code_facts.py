"""What parsing finds in code: values, and the collector the language files fill."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_QUALIFIED = 120
"""Longest qualified name kept, in bytes; of longer chains only the last part counts."""
MAX_SCAN = 400
"""Most nodes looked at below one node, so that nested code stays linear."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A name at a place: `first` to `last` are the 1-based lines it spans, arguments or value included.

    `full` is the qualified form (`dplyr::filter`, `pd.read_csv`) and equals `name` when there is none.
    """

    name: str
    full: str
    first: int
    last: int


Index = dict[str, list[Mention]]

_NO_WORDS = re.compile(r"[@\\]\w+|<[^<>\n]{1,200}>|https?://\S+")
"""Tags of Javadoc, JSDoc, Doxygen and roxygen, markup and addresses."""
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, from line `first` to `last`; whole-line comments below each other are one.

    `text` is without the signs of the comment and has one line for each of the lines it spans.
    """

    first: int
    last: int
    text: str
    doc: bool = False
    """Javadoc, JSDoc, Doxygen, roxygen, a docstring; in C, R and SQL any comment above a definition."""
    code: bool = False
    """It is code that was commented out."""
    alone: bool = True
    """No code stands before it on its line."""

    @property
    def words(self) -> int:
        """How many words it says; tags such as `@param`, numbers and commented-out code are none."""
        return 0 if self.code else len(_WORD.findall(_NO_WORDS.sub(" ", self.text)))


Kind = Literal["function", "method", "constructor", "class", "interface", "table", "view"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class or the like, from its first line (comment and decorators left out) to its last.

    `parent` is what it stands in (`Outer.Inner`), `bases` are what a class extends or implements, by name.
    Enums, records and structs count as classes.
    """

    kind: Kind
    name: str
    first: int
    last: int
    parent: str = ""
    bases: tuple[str, ...] = ()
    comment: Comment | None = None
    """Its docstring, or the comment directly above it."""
    nesting: int = 0
    """How deep its control structures stand in each other; an `else if` stands beside its `if`."""

    @property
    def lines(self) -> int:
        """How many lines it spans."""
        return self.last - self.first + 1

    @property
    def documented(self) -> int:
        """The words of its doc comment or docstring; other comments above it do not count."""
        return self.comment.words if self.comment is not None and self.comment.doc else 0


def _index(mentions: tuple[Mention, ...]) -> Index:
    found: Index = {}
    for mention in mentions:
        found.setdefault(mention.name.lower(), []).append(mention)
    return found


@dataclass(frozen=True)
class CodeFacts:
    """What one cell's code calls and defines. `arguments` are columns made by a named argument.

    `code_without_comments` keeps the line numbers. `errors` are the lines where the grammar does not fit.
    `parsed` is False for languages without a parser; then only `code_without_comments` is set.
    """

    language: str
    calls: tuple[Mention, ...] = ()
    defines: tuple[Mention, ...] = ()
    arguments: tuple[Mention, ...] = ()
    strings: tuple[Mention, ...] = ()
    comments: tuple[Comment, ...] = ()
    definitions: tuple[Definition, ...] = ()
    code_without_comments: str = ""
    errors: tuple[int, ...] = ()
    parsed: bool = False
    cut: bool = False
    """The code was larger than is looked at; the rest was left out."""

    @cached_property
    def code_lines(self) -> list[str]:
        """The code without comments, line by line."""
        return self.code_without_comments.split("\n")

    @cached_property
    def called(self) -> Index:
        """The calls by their bare name in small letters."""
        return _index(self.calls)

    @cached_property
    def made(self) -> Index:
        """Everything that counts as defined, by its name in small letters."""
        return _index(self.defines + self.arguments)


@dataclass
class Collector:
    """Gathers mentions while a tree is walked."""

    calls: list[Mention] = field(default_factory=list)
    defines: list[Mention] = field(default_factory=list)
    arguments: list[Mention] = field(default_factory=list)
    strings: list[Mention] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)

    def call(self, name: str, at: Node, end: Node | None = None, full: str = "") -> None:
        """A call whose name stands at `at` and that ends with `end`."""
        self.calls.append(_mention(name, at, end, full))

    def define(self, name: str, at: Node, end: Node | None = None, full: str = "") -> None:
        """A definition of `name`, its value ending with `end`."""
        self.defines.append(_mention(name, at, end, full))

    def argument(self, name: str, at: Node, end: Node | None = None) -> None:
        """A column made by a named argument."""
        self.arguments.append(_mention(name, at, end, ""))

    def string(self, value: str, at: Node) -> None:
        """The content of a string literal."""
        self.strings.append(_mention(value, at, None, ""))

    def comment(self, node: Node) -> None:
        """A comment, to be blanked."""
        self.comments.append((node.start_byte, node.end_byte))


def _mention(name: str, at: Node, end: Node | None, full: str) -> Mention:
    last = (end or at).end_point[0] + 1
    return Mention(name, full or name, at.start_point[0] + 1, last)


def words(names: str) -> frozenset[str]:
    """A set of names written with blanks between them."""
    return frozenset(names.split())


def text(node: Node | None) -> str:
    """The source of a small node; nothing for none or for one longer than a name may be."""
    if node is None or node.end_byte - node.start_byte > MAX_QUALIFIED:
        return ""
    return (node.text or b"").decode("utf-8", "replace")


def below(node: Node, limit: int = MAX_SCAN) -> list[Node]:
    """The node and what is below it, in order, at most `limit` nodes."""
    found: list[Node] = []
    stack = [node]
    while stack and len(found) < limit:
        here = stack.pop()
        found.append(here)
        if here.child_count <= limit:
            stack.extend(reversed(here.named_children))
    return found


def string_values(node: Node) -> list[Node]:
    """The contents of the string literals at or below a node."""
    return [n for n in below(node) if n.type in ("string_content", "string_fragment")]
