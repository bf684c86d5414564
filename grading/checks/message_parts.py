"""Counts with their nouns and lists of names, as parts of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grading.domain.messages import Message, define_message, define_plural

LINES = define_plural("count.lines", "%(count)s line", "%(count)s lines")
CELLS = define_plural("count.cells", "%(count)s cell", "%(count)s cells")
CODE_CELLS = define_plural("count.code_cells", "%(count)s code cell", "%(count)s code cells")
SCRIPTS = define_plural("count.scripts", "%(count)s script", "%(count)s scripts")
FUNCTIONS = define_plural("count.functions", "%(count)s function", "%(count)s functions")
METHODS = define_plural("count.methods", "%(count)s method", "%(count)s methods")
CLASSES = define_plural("count.classes", "%(count)s class", "%(count)s classes")

AT_LEAST = define_message("check.at_least", "at least %(number)s")

_CLAUSES = define_message("list.clauses", "%(first)s; %(then)s")
_AND = define_message("list.and", "%(first)s and %(last)s")
_MORE = define_message("list.more", "%(first)s and %(count)s more")


def listed(names: Iterable[str | Message], at_most: int = 8) -> str | Message:
    """`a, b and c`, each once, shortened with a count; a text where it is one name or none."""
    items = list({str(name): name for name in names}.values())
    if len(items) > at_most:
        return _MORE(first=tuple(items[:at_most]), count=len(items) - at_most)
    if len(items) > 1:
        return _AND(first=tuple(items[:-1]), last=items[-1])
    return items[0] if items else ""


def clauses(parts: Sequence[Message]) -> Message:
    """`a; b; c`; at least one."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2  # in halves, as messages may not be nested deep
    return _CLAUSES(first=clauses(parts[:half]), then=clauses(parts[half:]))
