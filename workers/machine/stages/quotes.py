"""Checks that quotes are really in the submission and that places exist; what is not there is dropped.

The words decide: where they stand elsewhere than the model said, the place is corrected.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from grading.domain.document import Document, Location
from grading.domain.evidence import Flag
from grading.domain.jobs import Finding, Judgement, Quote
from grading.domain.stages import AnalysisOutput, StageOutput
from workers.machine.messages import QUOTES_NOT_FOUND
from workers.machine.sanitize import SHORTEST, normal

_LINE_MARK = re.compile(r"^\s*(?:[+ ]\s*)?\d{1,5}\|\s?|^\|\s", re.MULTILINE)
_WRAPPING = "\"'`“”‘’ .…"


@dataclass(frozen=True)
class _Text:
    """A searchable text: normalised lines joined by blanks, and where each begins."""

    joined: str
    starts: tuple[int, ...]
    numbers: tuple[int | None, ...]
    document: str
    cell: int | None

    def within(self, place: Location) -> bool:
        """Whether it is the cell or file that a place names."""
        return self.document == place.document and place.cell in (None, self.cell)

    def find(self, wanted: str, among: frozenset[int | None] | None = None) -> Location | None:
        """The first place of a normalised text, or the first that starts on one of the lines `among`."""
        at = self.joined.find(wanted)
        while at >= 0:
            number = self.numbers[bisect_right(self.starts, at) - 1]
            if among is None or number in among:
                return Location(document=self.document, cell=self.cell, line=number)
            at = self.joined.find(wanted, at + 1)
        return None


def _text(lines: list[tuple[int | None, str]], document: str, cell: int | None) -> _Text:
    kept = [(number, line) for number, raw in lines if (line := normal(raw))]
    starts: list[int] = []
    at = 0
    for _, line in kept:
        starts.append(at)
        at += len(line) + 1
    joined = " ".join(line for _, line in kept)
    return _Text(joined, tuple(starts), tuple(number for number, _ in kept), document, cell)


class SubmittedText:
    """Finds words and places in the documents of one submission."""

    def __init__(self, documents: tuple[Document, ...]) -> None:
        self._sources: list[tuple[_Text, frozenset[int | None]]] = []
        self._outputs: list[_Text] = []
        self._cells: dict[tuple[str, int], range] = {}
        self._lines: dict[str, set[int]] = {}
        for document in documents:
            self._read(document)

    def _read(self, document: Document) -> None:
        notebook = document.kind == "notebook"
        every = self._lines.setdefault(document.path, set())
        for cell in document.cells:
            shown = cell.number if notebook else None
            numbered = [(cell.first_line + n, line) for n, line in enumerate(cell.lines)]
            self._cells[document.path, cell.number] = range(cell.first_line, cell.first_line + len(numbered))
            if not notebook:
                every.update(number for number, _ in numbered)
            own = frozenset(cell.first_line + n - 1 for n in cell.added)
            self._sources.append((_text(list(numbered), document.path, shown), own))
            outputs: list[tuple[int | None, str]] = [
                (None, line) for output in (*cell.outputs, *cell.played) for line in output.text.split("\n")
            ]
            self._outputs.append(_text(outputs, document.path, shown))

    def find(self, words: str, claimed: Location | None = None) -> Location | None:
        """Where these words are: at the claimed place if they are there, or else elsewhere.

        Elsewhere is the claimed cell or file first, then lines the student wrote, any source, outputs.
        """
        wanted = normal(_LINE_MARK.sub("", words).strip(_WRAPPING))
        if len(wanted) < SHORTEST:
            return None
        return next((place for place in self._places(wanted, claimed) if place is not None), None)

    def _places(self, wanted: str, claimed: Location | None) -> Iterator[Location | None]:
        if claimed is not None:
            near = [s for s, _ in self._sources if s.within(claimed)]
            if claimed.line is not None:
                yield from (source.find(wanted, frozenset({claimed.line})) for source in near)
            outputs = [output for output in self._outputs if output.within(claimed)]
            if claimed.line is None:
                yield from (output.find(wanted) for output in outputs)
            yield from (source.find(wanted) for source in near)
            yield from (output.find(wanted) for output in outputs)
        yield from (source.find(wanted, own) for source, own in self._sources)
        yield from (source.find(wanted) for source, _ in self._sources)
        yield from (output.find(wanted) for output in self._outputs)

    def holds(self, place: Location) -> bool:
        """Whether the document, cell and line exist."""
        if place.document not in self._lines:
            return False
        if place.cell is None:
            return place.line is None or place.line in self._lines[place.document]
        lines = self._cells.get((place.document, place.cell))
        return lines is not None and (place.line is None or place.line in lines)


def verify(output: StageOutput, documents: tuple[Document, ...]) -> tuple[StageOutput, tuple[Flag, ...]]:
    """The output with located quotes and existing places only, and a flag that counts dropped quotes."""
    submission = SubmittedText(documents)
    given = sum(len(j.quotes) for j in output.judgements)
    judgements = tuple(_judgement(j, submission) for j in output.judgements)
    missing = given - sum(len(j.quotes) for j in judgements)
    update: dict[str, object] = {"judgements": judgements}
    if isinstance(output, AnalysisOutput):
        update["findings"] = tuple(_finding(f, submission) for f in output.findings)
    flags = (Flag.of("quote_not_found", QUOTES_NOT_FOUND(count=missing)),) if missing else ()
    return output.model_copy(update=update), flags


def _judgement(judgement: Judgement, submission: SubmittedText) -> Judgement:
    found = [
        Quote(text=quote.text, location=place)
        for quote in judgement.quotes
        if (place := submission.find(quote.text, quote.location)) is not None
    ]
    return judgement.model_copy(update={"quotes": tuple(found)})


def _finding(finding: Finding, submission: SubmittedText) -> Finding:
    if finding.location is None or submission.holds(finding.location):
        return finding
    return finding.model_copy(update={"location": None})
