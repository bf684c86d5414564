"""Sets what a student wrote apart from what the class was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from grading.documents.align import align, likeness
from grading.documents.cell_context import Place, places
from grading.documents.files import same_name
from grading.documents.line_comparison import keys, new_lines, own_placeholders
from grading.domain.document import Cell, Document

_LEAST_ALIKE = 0.2
_LONGEST_PLACE = 2000


def set_apart(documents: Sequence[Document], starter: Sequence[Document] = ()) -> tuple[Document, ...]:
    """The documents with `added` and `place` of every cell filled in.

    A document is compared with the starter document of its name, else with the one it shares most lines
    with. Lines of the matching cell are not added, however they are indented or wrapped; nor are
    blank lines, lone brackets, placeholders and the form at the top (name, date).
    Without a starter all else is; with one, a placeholder of several words that is no line of it is the
    student's.
    """
    lines_given = {line.strip() for one in starter for cell in one.cells for line in cell.lines}
    return tuple(_set_apart(document, _origin(document, starter), lines_given) for document in documents)


def _origin(document: Document, starter: Sequence[Document]) -> Document | None:
    """The starter document a document was made from."""
    base = same_name(document.path.rsplit("/", 1)[-1])
    named = [d for d in starter if same_name(d.path.rsplit("/", 1)[-1]) == base]
    if named:
        return next((d for d in named if d.path == document.path), named[0])
    alike = [
        (likeness(document.cells, d.cells), d.language == document.language, -n)
        for n, d in enumerate(starter)
    ]
    best = max(alike, default=None)
    return starter[-best[2]] if best is not None and best[0] >= _LEAST_ALIKE else None


def _set_apart(document: Document, origin: Document | None, lines_given: Collection[str]) -> Document:
    given = origin.cells if origin is not None else ()
    match, pieces = align(document.cells, given)
    added = _added(document.cells, given, match, pieces)
    if lines_given:
        added = [
            sorted({*lines, *own_placeholders(cell, lines_given)})
            for cell, lines in zip(document.cells, added, strict=True)
        ]
    given_places = places(given)
    sources = [j if j is not None else piece for j, piece in zip(match, pieces, strict=True)]
    origins = [given_places[j] if j is not None else None for j in sources]
    texts = _place_texts(document.cells, places(document.cells), origins)
    cells = tuple(
        cell.model_copy(update={"added": tuple(lines), "place": text})
        for cell, lines, text in zip(document.cells, added, texts, strict=True)
    )
    return document.model_copy(update={"cells": cells})


def _added(
    cells: Sequence[Cell], given: Sequence[Cell], match: list[int | None], pieces: list[int | None]
) -> list[list[int]]:
    """The added lines of every cell. Starter lines whose own cell lost them may turn up in others."""
    own_keys = [keys(cell) for cell in cells]
    given_keys = [keys(cell) for cell in given]
    spare = Counter(text for found in given_keys for text in found if text)
    for i, j in enumerate(match):
        if j is not None:
            spare -= Counter(own_keys[i]) & Counter(given_keys[j])
    result = []
    for i, own in enumerate(own_keys):
        j = match[i]
        piece = pieces[i]
        if j is None and piece is not None:
            known = set(given_keys[piece])
            result.append([n for n, text in enumerate(own, start=1) if text and text not in known])
        else:
            result.append(new_lines(own, given_keys[j] if j is not None else [], spare))
    return result


def _place_texts(cells: Sequence[Cell], own: list[Place], origins: list[Place | None]) -> list[str]:
    """One line a cell. Code without a label belongs to the task before it, up to the next heading."""
    texts = []
    carried: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    for cell, place, origin in zip(cells, own, origins, strict=True):
        parts = [*place.headings, *place.labels]
        if origin is not None:
            parts += [*origin.headings, *origin.labels]
        if place.headings != under:
            carried, under = (), place.headings
        if cell.kind == "code":
            labels = place.labels if place.section else ()
            labels += origin.labels if origin is not None and origin.section else ()
            carried = labels or carried
            parts += [] if labels else carried
        texts.append(" | ".join(dict.fromkeys(filter(None, parts)))[:_LONGEST_PLACE])
    return texts
