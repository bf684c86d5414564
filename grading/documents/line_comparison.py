"""Lines compared by what they say, not by how they are laid out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from difflib import SequenceMatcher

from grading.domain.document import Cell

_MOST_COMPARED = 1_000_000
_FEW_WORDS = 4
"""Of a placeholder as students leave or shorten it, with its mark."""
_MARKED = re.compile(
    r"(?:#{1,6}|//{1,3}|--|/\*{1,3})\s{0,4}(?:TODO|FIXME|YOUR (?:CODE|ANSWER|TURN))\b.*$"
    r"|\[(?:write|enter|insert|type|put|add|your)\b[^\[\]]{0,200}\]",
    re.IGNORECASE,
)
FORM_FIELD = re.compile(
    r"\s*(?:#+|//|--|[-*>])?\s*[*_]{0,2}(?:student(?:'s)?(?: (?:name|id|number))?|full name|name"
    r"|author|by|e-?mail"
    r"|(?:date|due date|date submitted|submitted(?: by| on)?)|class|course)[*_]{0,2}\s*:(?!:)",
    re.IGNORECASE,
)
"""A line of the form at the top of a homework; says who, not what."""
_TRIVIAL = re.compile(r"[()\[\]{},;.`~*_-]*")
_SPACE = re.compile(r"\s+")


def key(line: str) -> str:
    """A line without white space and placeholders; empty when nothing but brackets and marks is left."""
    if "[" in line or "#" in line or "/" in line or "--" in line:
        line = _MARKED.sub("", line)
    bare = _SPACE.sub("", line).rstrip(",;")
    return "" if _TRIVIAL.fullmatch(bare) else bare


def keys(cell: Cell) -> list[str]:
    """The key of every line of a cell; empty for lines that can be nobody's work, such as a name's."""
    if cell.kind == "raw" and cell.language == "yaml":
        return [""] * len(cell.lines)
    found = [key(line) for line in cell.lines]
    for index, line in enumerate(cell.lines[:40] if cell.number <= 2 else ()):
        if (cell.kind != "code" or line.lstrip()[:1] in ("#", "/", "-")) and FORM_FIELD.match(line[:200]):
            found[index] = ""
    return found


def own_placeholders(cell: Cell, given: Collection[str]) -> list[int]:
    """The 1-based lines with a placeholder of several words that stands in nothing that was given."""
    return [
        number
        for number, line in enumerate(cell.lines, start=1)
        if line.strip() not in given
        and (hit := _MARKED.search(line)) is not None
        and not key(line)
        and len(hit.group().split()) > _FEW_WORDS
    ]


def says_something(cell: Cell) -> bool:
    """Whether a cell has a line that can be somebody's work, not only brackets, placeholders and a name."""
    return any(keys(cell))


def new_lines(own: list[str], given: list[str], spare: Counter[str]) -> list[int]:
    """The 1-based lines of `own` that `given` does not have, both as keys.

    Order counts first, then moved lines are found, also those in `spare`: lines of the starter that no other
    cell has used. `spare` is reduced by what was found there.
    """
    mine = [(number, text) for number, text in enumerate(own, start=1) if text]
    theirs = [text for text in given if text]
    added, unused = _differing(mine, theirs)
    left = Counter(unused)
    result = []
    for number, text in added:
        if left[text] > 0:
            left[text] -= 1
        elif len(text) >= 6 and spare[text] > 0:
            spare[text] -= 1
        else:
            result.append(number)
    return result


def _differing(mine: list[tuple[int, str]], theirs: list[str]) -> tuple[list[tuple[int, str]], list[str]]:
    """What only one side has. A block that was only wrapped differently counts as the same."""
    if not theirs or not mine or len(mine) * len(theirs) > _MOST_COMPARED:
        return mine, theirs
    added: list[tuple[int, str]] = []
    unused: list[str] = []
    matcher = SequenceMatcher(None, [text for _, text in mine], theirs, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        if tag == "replace" and "".join(text for _, text in mine[a:b]) == "".join(theirs[c:d]):
            continue
        added += mine[a:b]
        unused += theirs[c:d]
    return added, unused
