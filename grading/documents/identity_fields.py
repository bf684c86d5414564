"""Fields such as "Student Name: …" or `author:` in submitted files, whose values identify a student."""

from __future__ import annotations

import re

from grading.domain.document import Cell

_OPEN = r"(?P<open>^[ \t]*(?:(?:#+'?|//+|--+|/\*+|\*(?![*\w])|>|-|\d+[.)])[ \t]*)?[*_]{0,3})"
_GAP = r"(?P<gap>[*_]{0,3}[ \t]*[:=][ \t]*[*_]{0,3}[ \t]*)"
_VALUE = (
    r"(?P<value>[^\n|\t]*?)"
    r"(?P<end>[ \t]*(?:[*_]{1,3}[ \t]*)?(?=$|\||\t|<br"
    r"|[,;/][ \t]*(?:student |matric\w* )?(?:id|no|number|e-?mail|date)\b))"
)


def _field(labels: str) -> re.Pattern[str]:
    return re.compile(rf"{_OPEN}(?P<label>{labels}){_GAP}{_VALUE}", re.IGNORECASE | re.MULTILINE)


_SURE = (
    (
        _field(
            r"student(?:'s|s)?[ _-]?names?|student|your name|full[ _-]?name"
            r"|(?:first|last|family|sur|given)[ _-]?name"
            r"|submitted by|prepared by|created by|written by|completed by|authors?|__author__"
            r"|group members?|team members?"
        ),
        "[student]",
    ),
    (
        _field(
            r"student[ _-]?(?:id|number|no|nr)\.?|student id number"
            r"|matric\w*(?:[ _-]?(?:id|number|no|nr)\.?)?"
            r"|enrol?lment (?:id|number|no\.?)|roll (?:number|no\.?)|net[ _-]?id|user[ _-]?(?:id|name)"
        ),
        "[id]",
    ),
    (_field(r"(?:student )?e-?mail(?: address)?"), "[email]"),
)
_MAYBE = ((_field(r"names?|by"), "[student]"), (_field(r"id"), "[id]"))
_SECOND = re.compile(
    r"(?P<before>[|,;/\t][ \t]*[*_]{0,3}(?:student |matric\w* )?(?P<label>id|number|no|e-?mail)"
    r"\.?[*_]{0,3}[ \t]*:"
    r"[*_]{0,3}[ \t]*)(?P<value>[^\s|,;*_\[\]]+)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\[.*\]|<.*>|[_.\-…\s*]*|\(.*\)|todo.*|n/?a|tbd|your .*", re.IGNORECASE)
_NAME_LIKE = re.compile(r"(?:[^\W\d_a-z][^\W\d_]*[.'’-]?[^\W\d_]*|von|van|de|der|den|da|di|la|bin|al|el|y)")
_COMMENT = re.compile(r"^[ \t]*(?:#|//|--|/?\*)")
_HEAD_CELLS, _HEAD_LINES = 2, 20


def hide_form(source: str, cell: Cell) -> str:
    """The source of `cell` with the values of its form fields replaced; line numbers stay.

    In code only comment lines count. Fields that may mean something else (`name:`) count at the top of a
    document, and elsewhere if the value looks like a person's name.
    """
    lower = source.lower()
    if not any(
        word in lower
        for word in ("name", "author", "student", "by", "id", "mail", "member", "matric", "roll")
    ):
        return source
    lines = source.split("\n")
    for index, line in enumerate(lines):
        if len(line) > 240 or (":" not in line and "=" not in line):
            continue
        if cell.kind == "code" and not _COMMENT.match(line) and "__author__" not in line:
            continue
        lines[index] = _line(line, cell.number <= _HEAD_CELLS and index < _HEAD_LINES)
    return "\n".join(lines)


def _line(line: str, at_top: bool) -> str:
    hidden = False
    for fields, most_words in ((_SURE, 12), (_MAYBE, 4 if at_top else 0)):
        for pattern, replacement in fields:
            match = pattern.match(line)
            if match is None or hidden or not _replaceable(match["value"], most_words):
                continue
            line = (
                line[: match.start("value")]
                + _quoted(match["value"], replacement)
                + line[match.end("value") :]
            )
            hidden = True
    return _SECOND.sub(_second, line) if hidden or at_top else line


def _second(match: re.Match[str]) -> str:
    if _PLACEHOLDER.fullmatch(match["value"]):
        return match[0]
    return match["before"] + ("[email]" if "mail" in match["label"].lower() else "[id]")


def _replaceable(value: str, most_words: int) -> bool:
    """Whether a value is short enough to be one at this place, or looks like a name anyway."""
    value = value.strip().strip("\"'").strip()
    if not value or _PLACEHOLDER.fullmatch(value):
        return False
    words = value.replace(",", " ").split()
    if len(words) <= most_words:
        return True
    return len(words) <= 5 and all(_NAME_LIKE.fullmatch(word) for word in words)


def _quoted(value: str, replacement: str) -> str:
    value = value.strip()
    quote = value[0] if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1] else ""
    return f"{quote}{replacement}{quote}"
