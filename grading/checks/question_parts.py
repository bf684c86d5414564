"""One question of several in a cell: from the line that names it to the line that names the next one.

What begins a part is a comment line in code, any line in prose. The next part is known by its heading having
the same shape: `Question 2.2` follows `Question 2.1`, `b)` follows `a)`, `TODO: …` follows `TODO: …`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from grading.checks.scope import COMMENT, SECTION, Piece, Scope, lines_of
from grading.domain.messages import define_message
from grading.domain.patterns import compiled, readable

MAX_HEADINGS = 400
"""Of one cell; what follows belongs to the last."""
MAX_LINE = 300
_ORNAMENT = " \t#*_>-=+"
_NUMBERED = re.compile(
    r"(?:([^\W\d_]+)[\s_.#-]*)?\(?(\d{1,4}(?:\.\d{1,4}){0,5}[a-z]?|(?<![^\W\d_])[a-z])(?:[.):\]]|\*\*|\s*[-–—:]|\s*$)",
    re.IGNORECASE,
)
_NAMED_NUMBER = re.compile(
    r"(task|question|part|exercise|problem|step|section|q|aufgabe|teil|frage|schritt|ejercicio|exercice)"
    r"[\s_.:#-]*(\d{1,4}(?:\.\d{1,4}){0,5}[a-z]?)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"([^\W\d_]{2,40})\s*:")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Heading:
    """A line that may begin a part: its number and words, and what they look like."""

    line: int
    text: str
    kind: str
    """`numbered`, `label` (a word and a colon) or `word`."""
    word: str
    depth: int = 0
    """Of its number: 2 for `6.1`."""

    def ends(self, other: Heading) -> bool:
        """Whether the part this line begins ends where the other line stands."""
        if self.kind != "numbered":
            same = (self.kind, self.word) == (other.kind, other.word)
            return same or (other.kind == "numbered" and bool(SECTION.search(other.text)))
        if other.kind != "numbered" or other.word != self.word:
            return False
        return other.depth == self.depth if not self.word else other.depth <= self.depth


NO_COMMENT_LINE = define_message("check.no_comment_line", "no comment line matches %(pattern)s")


def parted(scope: Scope, pattern: str, *, placed: bool) -> Scope:
    """The parts of a scope's pieces whose first line matches a pattern.

    Where a place is named and nothing in it looks like a part, the place counts as a whole.
    """
    if scope.problem:
        return scope
    found = tuple(part for piece in scope.pieces for part in parts(piece, pattern))
    if found:
        return Scope(found)
    if placed and not any(_apart(piece) for piece in scope.pieces):
        return replace(scope, fallback=True)
    return Scope((), NO_COMMENT_LINE(pattern=readable(pattern)))


def parts(piece: Piece, pattern: str) -> Iterator[Piece]:
    """The parts of a piece whose first line matches; those inside one another count once."""
    regex = compiled(pattern, re.IGNORECASE)
    headings = list(_headings(piece))
    done = 0
    for at, heading in enumerate(headings):
        if heading.line > done and regex.search(heading.text):
            done = _end(piece, headings, at)
            inside = frozenset(n for n in piece.added if heading.line <= n <= done)
            yield replace(piece, first=heading.line, last=done, added=inside)


def _end(piece: Piece, headings: list[Heading], at: int) -> int:
    """The last line of a part. Lines that follow a heading without a gap name the same code."""
    before = headings[at].line
    for other in headings[at + 1 :]:
        together = piece.cell.kind == "code" and other.line == before + 1
        if together:
            before = other.line
        elif headings[at].ends(other):
            return other.line - 1
    return piece.last


def _apart(piece: Piece) -> bool:
    """Whether a piece holds something like parts: two headings of one numbering or label."""
    named = [(one.kind, one.word, one.depth) for one in _headings(piece) if one.kind != "word"]
    return len(named) != len(set(named))


def _headings(piece: Piece) -> Iterator[Heading]:
    """The lines of a piece that may begin a part."""
    lines = lines_of(piece.cell.source)
    code = piece.facts.code_lines if piece.cell.kind == "code" else None
    count = 0
    for number in range(piece.first, min(piece.last, len(lines)) + 1):
        line = lines[number - 1][:MAX_LINE].rstrip()
        if code is not None:
            hit = COMMENT.match(line)
            if hit is None or (number <= len(code) and code[number - 1].strip()):
                continue
            line = hit.group(1)
        text = line.strip(_ORNAMENT)
        if text and count < MAX_HEADINGS:
            count += 1
            yield _heading(number, text)


def _heading(number: int, text: str) -> Heading:
    hit = _NAMED_NUMBER.match(text) or _NUMBERED.match(text)
    if hit:
        return Heading(number, text, "numbered", (hit.group(1) or "").casefold(), hit.group(2).count(".") + 1)
    label = _LABEL.match(text)
    if label:
        return Heading(number, text, "label", label.group(1).casefold())
    word = _WORD.search(text)
    return Heading(number, text, "word", word.group().casefold() if word else text)
