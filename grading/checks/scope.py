"""Where a check looks: the cells, or the sections of a script, that a `where` names."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property, lru_cache

from grading.checks.parsing.code_facts import CodeFacts, Comment, Definition, Mention
from grading.checks.parsing.parser import FactReader
from grading.domain.document import Cell, Document, Location
from grading.domain.messages import Message, define_message
from grading.domain.patterns import compiled, readable

COMMENT = re.compile(r"^\s*(?:#+'?|//+|--+|/?\*+)\s?(.*)$")
SECTION = re.compile(
    r"^(?:[-=#*\s]*)(?:%%|(?:task|question|part|exercise|problem|step|section|q|aufgabe|teil|frage|ejercicio|exercice)"
    r"[\s_.:#-]*\d|\d+(?:\.\d+)*[.):]\s)|[-=#]{4,}$",
    re.IGNORECASE,
)
"""What makes a comment a heading in a script."""


MAXSECTIONS = 400
"""Of one script; what follows belongs to the last."""


NO_FILE = define_message("check.no_file", "no file is named like %(pattern)s")
NOTHING_TO_READ = define_message("check.nothing_to_read", "there is nothing to read")
NO_PLACE = define_message("check.no_place", "no cell or heading matches %(pattern)s")


@dataclass(frozen=True)
class Piece:
    """A cell or a part of one, from line `first` to `last`; `added` are the student's lines in it."""

    document: Document
    cell: Cell
    first: int
    last: int
    added: frozenset[int]
    reader: FactReader = field(compare=False, repr=False)

    @property
    def facts(self) -> CodeFacts:
        """What the whole cell's code calls and defines (parsed once, then remembered)."""
        return self.reader.facts(self.cell.source, self.cell.language or self.document.language)

    @cached_property
    def coded(self) -> bool:
        """Whether the student wrote code (not only comments) here."""
        if self.cell.kind != "code" or not self.added:
            return False
        lines = self.facts.code_lines
        return any(n <= len(lines) and lines[n - 1].strip() for n in self.added)

    @property
    def own_code(self) -> int:
        """Lines of code the student wrote here; comments are none."""
        if self.cell.kind != "code":
            return 0
        lines = self.facts.code_lines
        return sum(1 for n in self.added if n <= len(lines) and lines[n - 1].strip())

    @cached_property
    def in_order(self) -> list[int]:
        """The student's lines, sorted."""
        return sorted(self.added)

    @cached_property
    def comments(self) -> tuple[Comment, ...]:
        """The comments and docstrings of this piece, each with the student's lines only."""
        if self.cell.kind != "code":
            return ()
        return tuple(own for c in self.facts.comments if (own := self._own_part(c)) is not None)

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """What the student defined or changed here, a comment with the student's lines only."""
        if self.cell.kind != "code":
            return ()
        return tuple(
            replace(d, comment=self._own_part(d.comment) if d.comment is not None else None)
            for d in self.facts.definitions
            if self.touches(d.first, d.last)
        )

    def _own_part(self, comment: Comment) -> Comment | None:
        """From the student's first line of a comment to the last, lines of the starter between them blank."""
        own = [n for n in range(comment.first, comment.last + 1) if n in self.added]
        if not own:
            return None
        lines = comment.text.split("\n")
        kept = (lines[n - comment.first] if n in self.added else "" for n in range(own[0], own[-1] + 1))
        return replace(comment, first=own[0], last=own[-1], text="\n".join(kept))

    @property
    def own(self) -> str:
        """The lines the student wrote."""
        lines = lines_of(self.cell.source)
        return "\n".join(lines[n - 1] for n in self.in_order if n <= len(lines))

    def whole(self) -> Piece:
        """This piece with all of its lines as if the student had written them."""
        lines = lines_of(self.cell.source)[self.first - 1 : self.last]
        every = (n for n, line in enumerate(lines, start=self.first) if line.strip())
        return replace(self, added=frozenset(every))

    def touches(self, first: int, last: int) -> bool:
        """Whether the student wrote any line from `first` to `last` of this piece."""
        at = bisect_left(self.in_order, first)
        return at < len(self.in_order) and self.in_order[at] <= last

    def within(self, mention: Mention) -> bool:
        """Whether any line of a mention is the student's."""
        return self.touches(mention.first, mention.last)

    def at(self, line: int | None = None) -> Location:
        """A location in this piece; lines of scripts count in the file."""
        if line is None:
            line = min(self.added, default=self.first)
        return Location(
            document=self.document.path, cell=self.cell.number, line=self.cell.first_line + line - 1
        )


@dataclass(frozen=True)
class Scope:
    """The pieces a check looks at. `problem` says why there are none."""

    pieces: tuple[Piece, ...]
    problem: Message | None = None
    fallback: bool = False
    """Whether nothing matched and the whole of a plain script stands in."""

    @cached_property
    def added(self) -> tuple[Piece, ...]:
        """The pieces the student worked on."""
        return tuple(p for p in self.pieces if p.added)

    @cached_property
    def code(self) -> tuple[Piece, ...]:
        """The pieces the student wrote code in."""
        return tuple(p for p in self.pieces if p.coded)


def executed(cell: Cell) -> bool:
    """Whether a notebook cell was run."""
    return cell.execution_count is not None or bool(cell.outputs)


def runs_recorded(document: Document) -> bool:
    """Whether this kind of file carries execution counts and outputs."""
    return document.kind == "notebook"


def _find(documents: Sequence[Document], where: str | None, files: str | None, reader: FactReader) -> Scope:
    chosen = [d for d in documents if files is None or _path_fits(d.path, files)]
    if not chosen:
        return Scope((), NO_FILE(pattern=files) if files else NOTHING_TO_READ())
    if where is None:
        return Scope(tuple(_whole(d, c, reader) for d in chosen for c in d.cells))
    regex = compiled(where, re.IGNORECASE | re.MULTILINE)
    pieces = tuple(piece for d in chosen for c in d.cells for piece in _named(d, c, regex, reader))
    if pieces:
        return Scope(pieces)
    if all(_plain(d) for d in chosen):
        return Scope(tuple(_whole(d, c, reader) for d in chosen for c in d.cells), fallback=True)
    return Scope((), NO_PLACE(pattern=readable(where)))


class Scopes:
    """The scopes in some documents, each found once; their code is parsed once and within bounds."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self.reader = FactReader()
        self._known: dict[tuple[str | None, ...], Scope] = {}

    def find(self, where: str | None = None, files: str | None = None) -> Scope:
        """The pieces that `where` (a regular expression on places) and `files` (a glob on paths) name."""
        return self.remembered((where, files), lambda: _find(self.documents, where, files, self.reader))

    def remembered(self, key: tuple[str | None, ...], find: Callable[[], Scope]) -> Scope:
        """A scope that is found once for all checks that ask for it."""
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]


def first_comments(cell: Cell) -> str:
    """The comment lines a code cell begins with."""
    found: list[str] = []
    for line in cell.source.split("\n", 40)[:40]:
        hit = COMMENT.match(line.rstrip())
        if hit:
            found.append(hit.group(1))
        elif line.strip():
            break
    return "\n".join(found)


def _path_fits(path: str, files: str) -> bool:
    path, files = path.lower(), files.lower()
    return fnmatch(path, files) or fnmatch(path.rsplit("/", 1)[-1], files)


def _whole(document: Document, cell: Cell, reader: FactReader) -> Piece:
    return Piece(document, cell, 1, len(lines_of(cell.source)), frozenset(_written(cell)), reader)


def _written(cell: Cell) -> list[int]:
    """The added lines that are not blank, sorted."""
    lines = lines_of(cell.source)
    return sorted(n for n in set(cell.added) if 1 <= n <= len(lines) and lines[n - 1].strip())


def _named(document: Document, cell: Cell, regex: re.Pattern[str], reader: FactReader) -> list[Piece]:
    """The cell when its place fits, or those sections of a one-cell script whose heading comment fits."""
    if document.kind == "script" and len(document.cells) == 1:
        sections = _sections(cell.source)
        fitting = [(a, b) for a, b, title in sections if regex.search(title)]
        if fitting:
            own = _written(cell)
            return [
                Piece(
                    document, cell, a, b, frozenset(own[bisect_left(own, a) : bisect_right(own, b)]), reader
                )
                for a, b in fitting
            ]
        if sections:
            return []
    if regex.search(cell.place[:4000]) or (cell.kind == "code" and regex.search(first_comments(cell))):
        return [_whole(document, cell, reader)]
    return []


@lru_cache(maxsize=32)
def lines_of(source: str) -> tuple[str, ...]:
    """The lines of a source, split once for all checks."""
    return tuple(source.split("\n"))


@lru_cache(maxsize=32)
def _sections(source: str) -> tuple[tuple[int, int, str], ...]:
    """First line, last line and title of each section that a heading comment opens in a script."""
    starts: list[tuple[int, str]] = []
    lines = lines_of(source)
    for number, line in enumerate(lines, start=1):
        hit = COMMENT.match(line[:300].rstrip())
        if hit and SECTION.search(hit.group(1)):
            starts.append((number, hit.group(1)))
            if len(starts) >= MAXSECTIONS:
                break
    ends = [number - 1 for number, _ in starts[1:]] + [len(lines)] * bool(starts)
    return tuple((number, end, title) for (number, title), end in zip(starts, ends, strict=True))


def _plain(document: Document) -> bool:
    """Whether a document is a script without any headings."""
    return document.kind == "script" and len(document.cells) == 1 and not _sections(document.cells[0].source)
