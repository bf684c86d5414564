"""A file of a submission as a document: cells with their lines and outputs, locations in them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grading.domain.base_value import Value


class Output(Value):
    """One output of a notebook cell, as text. Pictures are only counted."""

    kind: Literal["stream", "result", "display", "error"]
    text: str = ""
    image: bool = False


class Cell(Value):
    """A cell of a notebook, a chunk of an R Markdown file, or a whole script.

    `added` holds the 1-based numbers of the lines of `source` the student wrote (all of them without a
    starter). `place` is text to find the cell by: its headings and first comment, also those of the matching
    starter cell.
    """

    number: int
    kind: Literal["code", "markdown", "raw"]
    source: str
    language: str = "text"
    first_line: int = 1
    """The line of the file at which `source` starts; 1 in notebooks, whose lines count per cell."""
    execution_count: int | None = None
    outputs: tuple[Output, ...] = ()
    place: str = ""
    added: tuple[int, ...] = ()
    played: tuple[Output, ...] = Field(default=(), exclude_if=lambda outputs: not outputs)
    """What it put out when the school ran it, where it was submitted without outputs."""

    @property
    def lines(self) -> list[str]:
        """The source, line by line."""
        return self.source.split("\n")

    @property
    def own(self) -> str:
        """Only the lines the student wrote."""
        lines = self.lines
        return "\n".join(lines[n - 1] for n in self.added)


class Document(Value):
    """One readable file of a submission, as cells. A script has one cell."""

    path: str
    kind: Literal["notebook", "script", "prose"]
    language: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What was repaired or left out while reading, a plain sentence each."""


class Location(Value):
    """A place in a submission. `line` counts in the cell for notebooks, in the file otherwise."""

    document: str
    cell: int | None = None
    line: int | None = None
