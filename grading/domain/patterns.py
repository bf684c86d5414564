"""Regular expressions of instructors, run on what students wrote, within bounds.

A backtracking search cannot be stopped from outside, so two rules hold: patterns with a repeat inside a
repeat (`(a+)+`), which take exponential time on some text, are refused when the assignment is read; and a
match sees at most the first 20,000 characters of a cell.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as constants  # type: ignore[attr-defined]  # no public way to look into a pattern
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from grading.domain.errors import AssignmentError

MAX_TEXT = 20_000
MAX_PATTERN = 1_000
_TOKEN = re.compile(r"\\(?P<escaped>s[*+]?|.)|(?P<sign>[\[\](){}|*+?^$])", re.DOTALL)
_EDGES = frozenset("bAZ")
SHOWN = 60
"""Characters of a pattern that are shown."""
MANY = 25
"""A repeat that may go round more often than this counts as unbounded."""


@lru_cache(maxsize=2048)
def compiled(pattern: str, flags: int = re.MULTILINE) -> re.Pattern[str]:
    """The compiled pattern; raises AssignmentError where it is not valid or not safe."""
    if len(pattern) > MAX_PATTERN:
        raise AssignmentError(f"the regular expression is longer than {MAX_PATTERN} characters")
    try:
        tree = parser.parse(pattern, flags)
        regex = re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise AssignmentError(f"the regular expression {pattern!r} is not valid: {error}") from error
    if _nested(tree):
        raise AssignmentError(
            f"the regular expression {pattern!r} repeats something that repeats itself, "
            "which can take for ever; use one repeat, or an atomic group (?>…) inside"
        )
    return regex


def _nested(tree: Any) -> bool:
    """Whether an unbounded repeat holds another one; atomic groups and possessive repeats do not count."""
    stack: list[tuple[Any, bool]] = [(tree, False)]
    while stack:
        items, inside = stack.pop()
        for op, value in items:
            if op in (constants.MAX_REPEAT, constants.MIN_REPEAT):
                many = value[1] is constants.MAXREPEAT or value[1] > MANY
                if many and inside:
                    return True
                stack.append((value[2], inside or many))
            elif op is constants.SUBPATTERN:
                stack.append((value[3], inside))
            elif op is constants.BRANCH:
                stack.extend((branch, inside) for branch in value[1])
            elif op in (constants.ASSERT, constants.ASSERT_NOT):
                stack.append((value[1], inside))
            elif op is constants.GROUPREF_EXISTS:
                stack.extend((part, inside) for part in value[1:] if part is not None)
    return False


def readable(pattern: str) -> str:
    """What a pattern asks for: in words where it is plain text, else as it was written."""
    said = _plain(pattern)
    said = pattern.removeprefix("(?i)") if said is None else said
    return f"“{said if len(said) <= SHOWN else said[: SHOWN - 3] + '…'}”"


def _plain(pattern: str) -> str | None:
    """The text a pattern stands for, white space and edges loosely; nothing where it is more than that."""
    said, at = "", 0
    text = re.sub(r"^\(\?i\)|(?<!\\)\$$", "", pattern).removeprefix("^")
    for hit in _TOKEN.finditer(text):
        before = text[at : hit.start()]
        at, escaped = hit.end(), hit["escaped"]
        if escaped is None or (escaped.isalnum() and escaped not in _EDGES):
            return None
        said += before
        if escaped in ("s*", "s+"):
            beside = said[-1:].isalnum() and text[at : at + 1].isalnum()
            said += " " if escaped == "s+" or beside else ""
        elif escaped not in _EDGES:
            said += escaped
    return (said + text[at:]).strip() or None


def matches(pattern: str, text: str, flags: int = re.MULTILINE, at_most: int = 500) -> list[tuple[int, int]]:
    """First and last line (from 1) of each place the pattern matches, in the first 20,000 characters."""
    text = text[:MAX_TEXT]
    found: list[tuple[int, int]] = []
    line, at = 1, 0
    for hit in compiled(pattern, flags).finditer(text):
        line += text.count("\n", at, hit.start())
        at = hit.start()
        end = max(hit.start(), hit.end() - 1)
        found.append((line, line + text.count("\n", at, end)))
        if len(found) >= at_most:
            break
    return found
