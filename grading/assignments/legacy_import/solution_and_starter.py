"""The assignment's own solution and starter, as far as they say what a rubric's words mean.

A rubric of search strings does not say whether `group_by` is a function or a column, in which cells a task is
answered, or what comes out. The solution does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from grading.checks.scope import Piece, Scopes
from grading.domain.document import Cell, Document, Output

CLOCK = frozenset("today now Sys.time Sys.Date date proc.time system.time utcnow perf_counter".split())
"""Functions whose value is another one at every run, in R and Python."""
CHANCE = frozenset(
    "sample sample_n sample_frac slice_sample rnorm runif rbinom rpois rexp choice choices shuffle randint"
    " random rand randn".split()
)
"""Functions that draw by chance; with a seed they give the same again."""
SEEDS = frozenset({"set.seed", "seed", "default_rng", "Random", "RandomState"})
WORDS = {"r": frozenset({"cat", "message", "writeLines"}), "python": frozenset({"print"})}
"""Functions that print words of one's own, by language."""
_DATA = re.compile(r"""["']([^"'\n]{1,200}\.(?:csv|tsv|xlsx|xls|json|parquet|rds))["']""", re.IGNORECASE)
_QUESTION = re.compile(r"\bQuestion\s*(\d+)\.(\d+)(?![\d.]*\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Works:
    """Solution and starter; the solution's cells know which lines the starter does not have."""

    solution: Sequence[Document] = ()
    starter: Sequence[Document] = ()
    data: frozenset[str] = frozenset()
    """Names of the files that lie beside the work."""

    @cached_property
    def solved(self) -> Scopes:
        """Where things are in the solution."""
        return Scopes(self.solution)

    @cached_property
    def calls(self) -> frozenset[str]:
        """Every function that the solution calls, also on lines of the starter."""
        return frozenset(m.name for p in self.solved.find().pieces for m in p.facts.calls)

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every variable and column that the solution makes."""
        return frozenset(name for p in self.solved.find().pieces for name in _made(p))

    @cached_property
    def given_text(self) -> str:
        """All that the starter says, code and text."""
        return "\n".join(c.source for d in self.starter for c in d.cells)

    @cached_property
    def own_lines(self) -> int:
        """Lines of code that the solution adds to the starter."""
        return sum(p.own_code for p in self.solved.find().code)

    def own(self, where: str | None) -> tuple[Piece, ...]:
        """The cells in a place in which the solution has code of its own."""
        return self.solved.find(where).code if self.solution else ()

    def prescribed(self, where: str | None, named: frozenset[str]) -> tuple[str, ...]:
        """Variables that the solution makes in this place only and whose names students are told."""
        own = self.own(where)
        here = {key_of(p) for p in own}
        found = {}
        for piece in own:
            for mention in piece.facts.defines:
                name = mention.name
                if mention.full == name and piece.within(mention) and self._told(name, named):
                    found[name] = {key_of(p) for p in self._makers.get(name, ())} <= here
        return tuple(name for name, only in found.items() if only)

    def _told(self, name: str, named: frozenset[str]) -> bool:
        return name in named or re.search(rf"\b{re.escape(name)}\b", self.given_text) is not None

    @cached_property
    def _makers(self) -> dict[str, list[Piece]]:
        found: dict[str, list[Piece]] = {}
        for piece in self.solved.find().pieces:
            for mention in piece.facts.defines:
                found.setdefault(mention.name, []).append(piece)
        return found

    @cached_property
    def changing(self) -> frozenset[tuple[str, int]]:
        """Cells whose outputs change from run to run: they ask for the time, draw, or use what others made.

        A table that a cell only adds a column to does not count as made there, the column does.
        """
        found: set[tuple[str, int]] = set()
        tainted: set[str] = set()
        known: set[str] = set()
        chance = frozenset() if self.calls & SEEDS else CHANCE
        for piece in self.solved.find().pieces:
            if piece.cell.kind != "code":
                continue
            facts = piece.facts
            said = set(re.findall(r"[A-Za-z_.][\w.]*", facts.code_without_comments))
            if {m.name for m in facts.calls} & (CLOCK | chance) or said & tainted:
                found.add(key_of(piece))
                tainted |= _made(piece) - known
            known |= _made(piece)
        return frozenset(found)

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """Data files that the solution names and the assignment does not have."""
        have = {name.rpartition("/")[2].lower() for name in self.data}
        text = "\n".join(p.facts.code_without_comments for p in self.solved.find().pieces)
        named = (hit.replace("\\", "/").rpartition("/")[2] for hit in _DATA.findall(text))
        return tuple(dict.fromkeys(name for name in named if name.lower() not in have))

    def has(self, where: str) -> bool:
        """Whether the solution, or else the starter, has such a place."""
        return any(Scopes(works).find(where).pieces for works in (self.solution, self.starter) if works)

    def question(self, number: int, of: int) -> str | None:
        """Where the question is that a rubric numbers 1 and the notebook 7.1; nothing where it is unclear."""
        series: dict[str, set[int]] = {}
        for cell in self._texts():
            for hit in _QUESTION.finditer(cell.source[:400]):
                series.setdefault(hit.group(1), set()).add(int(hit.group(2)))
        fitting = [prefix for prefix, numbers in series.items() if numbers == set(range(1, of + 1))]
        return rf"\bQuestion\s*{fitting[0]}\.{number}(?![\d.]*\d)" if len(fitting) == 1 else None

    def _texts(self) -> Iterable[Cell]:
        works = self.starter or self.solution
        return (cell for d in works for cell in d.cells if cell.kind == "markdown")


def outputs_of(piece: Piece) -> tuple[Output, ...]:
    """What a cell of the solution showed where it was written."""
    return tuple(one for one in piece.cell.outputs if one.kind != "error")


def words_printed(piece: Piece) -> bool:
    """Whether lines that the solution added print words, which students will choose otherwise."""
    printers = WORDS.get(piece.facts.language, frozenset())
    return any(m.name in printers and m.first in piece.added for m in piece.facts.calls)


def key_of(piece: Piece) -> tuple[str, int]:
    """What names a cell."""
    return piece.document.path, piece.cell.number


def _made(piece: Piece) -> set[str]:
    return {m.name for m in (*piece.facts.defines, *piece.facts.arguments)}
