"""The comments of code: whole-line ones below each other joined, without signs, code told from words."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grading.checks.parsing.code_facts import Comment

if TYPE_CHECKING:
    from tree_sitter import Node, Tree


MOST_BLANK = 3
"""Blank lines there may be between a doc comment and what it documents."""
Parse = Callable[[bytes], "Tree"]

_BLOCK = re.compile(r"^(/\*+!?(?!/)|<!--|[rRuUbBfF]{0,2}(?:[\"']{3}|[\"']))|(\*+/|-->|[\"']{3}|[\"'])$")
_LINE = re.compile(r"^\s*(?:#+['!]?|//[/!]?|--+)[^\S\n]?")
_STAR = re.compile(r"^\s*\*+(?!/)[^\S\n]?")
_DOC = re.compile(r"^(?:/\*\*(?!/)|/\*!|///(?!/)|//!|#')")
_CODE_SIGNS = re.compile(r"[=({;]|<-|->")
_PROSE_CALL = re.compile(r"[^\W\d]\s+\(")
_SQL = re.compile(
    r"\s*(?:select|insert|update|delete|create|drop|alter|with)\b.*\b(?:from|into|set|table|view|as)\b",
    re.I | re.S,
)
_STATEMENTS = frozenset(
    """assignment augmented_assignment assignment_expression call call_expression method_invocation
    import_statement import_declaration import_from_statement variable_declarator init_declarator
    return_statement function_definition
    method_declaration class_declaration class_definition for_statement while_statement if_statement
    object_creation_expression update_expression preproc_include lexical_declaration""".split()
)
"""Commented-out code has one of these; prose that happens to parse has only names and operators."""
_ASSIGNMENTS = frozenset({"<-", "<<-", "=", "->", "->>", ":="})
_NEEDS_END = frozenset({"java", "c", "cpp"})
"""Languages whose statements end with a semicolon or a brace."""
MOST_PARSED = 200_000
"""Bytes of comments that are parsed to find out whether they are code; of more, the rest counts as words."""
LONGEST_PARSED = 20_000
_PARSE_COST = 200
"""Counted for each comment beside its length."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A comment or docstring as it stands in the code, in bytes and 0-based rows."""

    start: int
    end: int
    row: int
    last_row: int
    column: int
    docstring: bool = False

    @classmethod
    def of(cls, node: Node, *, docstring: bool = False) -> Raw:
        """The comment that a node is."""
        end_row, end_column = node.end_point
        # grammars differ in whether the line break belongs to a line comment
        last = end_row - 1 if end_column == 0 and end_row > node.start_point[0] else end_row
        return cls(node.start_byte, node.end_byte, node.start_point[0], last, node.start_point[1], docstring)


def comments_of(raws: list[Raw], data: bytes, language: str, parse: Parse) -> tuple[Comment, ...]:
    """The comments in order; runs of whole-line comments at one column are one, code and words apart."""
    runs: list[list[tuple[Raw, str, bool]]] = []
    for raw in sorted(raws, key=lambda r: r.start):
        source = data[raw.start : raw.end].decode("utf-8", "replace").rstrip("\n")
        alone = not data[data.rfind(b"\n", 0, raw.start) + 1 : raw.start].strip()
        if runs and _follows(runs[-1][-1], (raw, source, alone)):
            runs[-1].append((raw, source, alone))
        else:
            runs.append([(raw, source, alone)])
    left = [MOST_PARSED]
    return tuple(comment for run in runs for comment in _run(run, language, parse, left))


def _follows(one: tuple[Raw, str, bool], other: tuple[Raw, str, bool]) -> bool:
    (before, above, alone), (raw, source, too) = one, other
    beside = raw.row == before.last_row + 1 and raw.column == before.column and alone and too
    line = bool(_LINE.match(above)) and bool(_LINE.match(source))
    return beside and line and bool(_DOC.match(above)) == bool(_DOC.match(source))


def _run(run: list[tuple[Raw, str, bool]], language: str, parse: Parse, left: list[int]) -> list[Comment]:
    """One comment, or several where code and words take turns."""
    first, alone = run[0][0], run[0][2]
    doc = first.docstring or bool(_DOC.match(run[0][1]))
    lines = [line for raw, source, _ in run for line in _lines(source, raw)]
    whole = Comment(first.row + 1, run[-1][0].last_row + 1, "\n".join(lines), doc, alone=alone)
    if doc or _is_code(whole.text, language, parse, left):
        return [replace(whole, code=not doc)]
    if len(run) == 1:
        return [whole]
    return _parted(whole, lines, [_is_code(line, language, parse, left) for line in lines])


def _parted(whole: Comment, lines: list[str], code: list[bool]) -> list[Comment]:
    starts = [n for n in range(len(lines)) if n == 0 or code[n] != code[n - 1]]
    return [
        replace(
            whole,
            first=whole.first + start,
            last=whole.first + end - 1,
            text="\n".join(lines[start:end]),
            code=code[start],
        )
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


def _lines(source: str, raw: Raw) -> list[str]:
    """The lines of a comment without its signs, as many as it spans."""
    if _LINE.match(source) and raw.row == raw.last_row:
        return ["" if source.startswith("#!") and raw.row == 0 else _LINE.sub("", source, count=1).rstrip()]
    inner = _BLOCK.sub("", source.strip())
    starred = source.lstrip().startswith("/*")
    return [(_STAR.sub("", line, count=1) if starred else line).strip() for line in inner.split("\n")]


def _is_code(text: str, language: str, parse: Parse, left: list[int]) -> bool:
    """Whether a comment's text parses as statements of the language and does something."""
    if language == "sql":
        return bool(_SQL.match(text[:LONGEST_PARSED]))
    if not _CODE_SIGNS.search(text) or len(text) > LONGEST_PARSED or left[0] <= 0:
        return False
    if language in _NEEDS_END and not text.rstrip().endswith((";", "{", "}")):
        return False
    left[0] -= len(text) + _PARSE_COST
    root = parse(text.strip().encode()).root_node
    return not root.has_error and _does(root)


def _does(root: Node) -> bool:
    stack = [root]
    for _ in range(400):
        if not stack:
            return False
        node = stack.pop()
        if node.type in _STATEMENTS and not _said(node):
            return True
        if node.type == "binary_operator":  # how R assigns
            sign = node.child_by_field_name("operator")
            if sign is not None and (sign.text or b"").decode() in _ASSIGNMENTS:
                return True
        stack.extend(node.named_children)
    return False


def _said(node: Node) -> bool:
    """Whether it is a word with a remark in brackets, as in `Revenue (total)`."""
    text = (node.text or b"")[:200].decode("utf-8", "replace")
    return "call" in node.type and bool(_PROSE_CALL.search(text.partition("(")[0] + "("))


def ends_above(comments: tuple[Comment, ...]) -> Callable[[int, list[str]], Comment | None]:
    """Finds the comment directly above a line; a doc comment also over blank lines."""
    alone = [c for c in comments if c.alone and not c.code]
    ends = [c.last for c in alone]

    def find(line: int, lines: list[str]) -> Comment | None:
        at = bisect_right(ends, line - 1) - 1
        if at < 0 or line - 1 - ends[at] > MOST_BLANK:
            return None
        between = lines[ends[at] : line - 1]
        if any(text.strip() for text in between):
            return None
        return alone[at] if not between or alone[at].doc else None

    return find
