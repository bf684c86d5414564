"""Parts of a submission: of its documents only the lines that some regions name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grading.domain.document import Cell, Document
from grading.similarity import Region


def excerpt(documents: Sequence[Document], regions: Sequence[Region]) -> tuple[Document, ...]:
    """The documents with only these lines; one without any has no cells, and all keep their places."""
    return tuple(
        document.model_copy(update={"cells": tuple(_cells(document, regions)), "notes": ()})
        for document in documents
    )


def _cells(document: Document, regions: Sequence[Region]) -> Iterator[Cell]:
    for region in regions:
        if region.document == document.path:
            yield from (_part(cell, region) for cell in document.cells if _in_it(cell, region))


def _in_it(cell: Cell, region: Region) -> bool:
    """Whether a region has lines of a cell; those of files that are no notebooks count in the file."""
    if region.cell is not None and region.cell != cell.number:
        return False
    return region.first < cell.first_line + len(cell.lines) and cell.first_line <= region.last


def _part(cell: Cell, region: Region) -> Cell:
    skipped = max(0, region.first - cell.first_line)
    lines = cell.lines[skipped : region.last - cell.first_line + 1]
    added = tuple(n - skipped for n in cell.added if skipped < n <= skipped + len(lines))
    update = {"source": "\n".join(lines), "first_line": cell.first_line + skipped, "added": added}
    return cell.model_copy(update=update)
