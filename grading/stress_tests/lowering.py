"""Variants that must cost points: an answer removed, a wrong value in its place."""

from __future__ import annotations

import re
from functools import partial
from random import Random

from grading.checks.parsing.parser import grammar_of
from grading.checks.scope import Piece, Scopes
from grading.domain.rubric import Criterion
from grading.similarity.code_tokens import tokens_of
from grading.stress_tests.editing import Place, cell_at, language_at, own_places, with_cells, with_source
from grading.stress_tests.variant import Documents, Setting, Variant

NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w.])")
TELLING = 2
"""Digits from which on a number in the solution is taken for a result."""
WORD = re.compile(r"[^\W\d]\w*")
ALL = ""
"""The criterion of a variant in which every answer is missing: all must fall."""


def variants(setting: Setting) -> tuple[Variant, ...]:
    """For the whole work and for each criterion."""
    found = [Variant("removed", "removed", _all_removed, "lower", ALL)]
    for one in setting.rubric.criteria:
        if one.where is not None:
            change = partial(_removed, criterion=one)
            found.append(Variant(f"removed.{one.id}", "removed", change, "lower", one.id))
        wrong = partial(_wrong, criterion=one)
        found.append(Variant(f"wrong.{one.id}", "wrong value", wrong, "lower", one.id))
    return tuple(found)


def _without(documents: Documents, place: Place, gone: frozenset[int]) -> Documents:
    """The documents without some lines of a cell, and without its outputs."""
    cell = cell_at(documents, place)
    kept = "\n".join(line for number, line in enumerate(cell.lines, start=1) if number not in gone)
    cells = list(documents[place.document].cells)
    update = {"source": kept, "outputs": (), "execution_count": None}
    cells[place.cell] = cell.model_copy(update=update)
    return with_cells(documents, place.document, cells)


def _all_removed(documents: Documents, setting: Setting, rng: Random) -> Documents | None:
    """Only what the class was given."""
    if setting.starter:
        return setting.starter
    changed = documents
    for kind in ("code", "markdown"):
        for place in own_places(documents, kind):
            changed = _without(changed, place, frozenset(cell_at(documents, place).added))
    return changed


def _pieces(documents: Documents, criterion: Criterion) -> list[tuple[Place, Piece]]:
    """The pieces of the student's own that the criterion names."""
    scope = Scopes(documents).find(criterion.where)
    places = {
        (document.path, cell.number): Place(at, number)
        for at, document in enumerate(documents)
        for number, cell in enumerate(document.cells)
    }
    if scope.fallback and criterion.where is not None:
        return []  # nothing is named so: the whole script stands in
    return [(places[one.document.path, one.cell.number], one) for one in scope.added]


def _removed(documents: Documents, setting: Setting, rng: Random, criterion: Criterion) -> Documents | None:
    """The criterion's place without what the student wrote there."""
    changed = documents
    gone: dict[Place, frozenset[int]] = {}
    for place, piece in _pieces(documents, criterion):
        gone[place] = gone.get(place, frozenset()) | piece.added
    for place, lines in gone.items():
        changed = _without(changed, place, lines)
    return changed if gone else None


def _wrong(documents: Documents, setting: Setting, rng: Random, criterion: Criterion) -> Documents | None:
    """Names that the criterion's checks look up hold nothing; results that the solution has are others."""
    changed = _emptied(documents, setting, criterion)
    right = _results(setting)
    for place, piece in _pieces(documents, criterion):
        cell = cell_at(changed, place)
        first, last = piece.first - 1, piece.last
        lines = cell.lines
        lines[first:last] = [_other(line, right) for line in lines[first:last]]
        outputs = tuple(one.model_copy(update={"text": _other(one.text, right)}) for one in cell.outputs)
        cells = list(changed[place.document].cells)
        cells[place.cell] = cell.model_copy(update={"source": "\n".join(lines), "outputs": outputs})
        changed = with_cells(changed, place.document, cells)
    return changed if changed != documents else None


def _results(setting: Setting) -> frozenset[str]:
    """Numbers that the solution prints or names in words."""
    texts = [
        text
        for document in setting.solution
        for cell in document.cells
        for text in (
            *(output.text for output in cell.outputs),
            *((cell.source,) if cell.kind == "markdown" else ()),
        )
    ]
    found = (number for text in texts for number in NUMBER.findall(text))
    return frozenset(one for one in found if sum(c.isdigit() for c in one) >= TELLING)


def _other(text: str, right: frozenset[str]) -> str:
    """A text with other numbers where it has right ones."""

    def changed(hit: re.Match[str]) -> str:
        if hit.group() not in right:
            return hit.group()
        value = float(hit.group().replace(",", "")) * 3 + 7
        return f"{value:.2f}" if "." in hit.group() else f"{value:.0f}"

    return NUMBER.sub(changed, text)


def _emptied(documents: Documents, setting: Setting, criterion: Criterion) -> Documents:
    """The documents with a line that sets each name the checks look up to nothing, after it was made."""
    words = set(WORD.findall(" ".join(one.model_dump_json() for one in criterion.checks)))
    if any(getattr(one, "tests", None) for one in criterion.checks):
        words |= {word for text in setting.tests for word in WORD.findall(text)}
    changed = documents
    for place in own_places(documents, "code"):
        language = grammar_of(language_at(documents, place))
        if language not in ("python", "r"):
            continue
        cell = cell_at(changed, place)
        tokens = tokens_of(cell.source, language).tokens
        made = {one.text for one in tokens if one.defined is not None and one.scope == 0}
        lines = [f"{name} <- NULL" if language == "r" else f"{name} = None" for name in sorted(made & words)]
        if lines:
            changed = with_source(changed, place, "\n".join([cell.source.rstrip("\n"), *lines]))
    return changed
