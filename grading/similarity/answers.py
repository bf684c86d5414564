"""The answer of a submission to a criterion: what its student wrote at the criterion's place, with a key.

Two answers are equal when their keys are: the same code in the same order once comments, layout, own names,
quotes and the spelling of numbers are left out, and the same words of prose. Another constant, text, column,
operator, called function or order of statements is another answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grading.checks.context import Context
from grading.checks.scope import Piece, Scopes
from grading.domain.base_value import Value
from grading.domain.check import CheckBase, all_checks
from grading.domain.document import Document
from grading.domain.rubric import Criterion, Rubric
from grading.similarity.fingerprints import fingerprints
from grading.similarity.reading import Reader, joined

K, WINDOW = 4, 3
"""Six tokens in a row that two answers share give them a fingerprint in common."""
MOST_REGIONS = 40
_NO_NAMES = frozenset({"id", "label", "where", "part", "files", "kind", "note", "show"})
"""Fields of checks that name nothing in code."""
_NAME = re.compile(r"[^\W\d][\w.]*")
MOST_NAMED = 200_000
"""Characters of checks and tests that are read for names."""


class Region(Value):
    """Lines of a file, counted as in `grading.domain.document.Location`."""

    document: str
    cell: int | None = None
    first: int
    last: int


@dataclass(frozen=True)
class Answer:
    """An answer as it is compared; without a key nothing was written."""

    key: str = ""
    tokens: int = 0
    fingerprints: frozenset[int] = frozenset()
    regions: tuple[Region, ...] = ()


def answers_of(
    documents: Sequence[Document], rubric: Rubric, tests: Iterable[str] = (), reader: Reader | None = None
) -> dict[str, Answer]:
    """The answer to each criterion, by its id; `tests` are texts of the assignment's tests.

    The documents know what the student added. A `reader` keeps what it read for others.
    """
    scopes, reader, given = Scopes(documents), reader or Reader(), names_in(tests)
    known: dict[Any, Answer] = {}
    found = {}
    for criterion in rubric.criteria:
        pieces = place_of(criterion, rubric, scopes)
        kept = given | kept_names(criterion)
        at = (tuple((p.document.path, p.cell.number, p.first, p.last) for p in pieces), kept)
        if at not in known:
            known[at] = _answer(pieces, reader, kept)
        found[criterion.id] = known[at]
    return found


def place_of(criterion: Criterion, rubric: Rubric, scopes: Scopes) -> tuple[Piece, ...]:
    """What the student wrote where the criterion looks, in the order of the submission.

    That is where its checks look that name a place, else what the criterion itself names, else the whole.
    """
    context = Context(scopes, rubric, Scopes(()), criterion.where)
    placed = [one for one in criterion.checks if _names_place(one)]
    if criterion.where is None and placed:
        pieces = [piece for check in placed for piece in _looked_at(context, check)]
    else:
        pieces = list(scopes.find(criterion.where).added)
    unique = {(p.document.path, p.cell.number, p.first, p.last): p for p in pieces}
    order = {document.path: n for n, document in enumerate(scopes.documents)}
    ordered = sorted(unique.values(), key=lambda p: (order[p.document.path], p.cell.number, p.first, -p.last))
    return tuple(_apart(ordered))


def regions_of(documents: Sequence[Document], rubric: Rubric, criterion: Criterion) -> tuple[Region, ...]:
    """Where the answer to a criterion stands; the documents know what the student added."""
    return tuple(map(_region, place_of(criterion, rubric, Scopes(documents))[:MOST_REGIONS]))


def kept_names(criterion: Criterion) -> frozenset[str]:
    """The names by which the checks of a criterion find what a student made."""
    return names_in(text for check in all_checks(criterion.checks) for text in _texts(check))


def names_in(texts: Iterable[str]) -> frozenset[str]:
    """All words in texts that may be names of code."""
    whole = "\n".join(texts)[:MOST_NAMED]
    return frozenset(name for word in _NAME.findall(whole) for name in (word, *word.split(".")))


def _names_place(check: CheckBase) -> bool:
    return any(one.where or one.part or one.files for one in all_checks((check,)))


def _looked_at(context: Context, check: CheckBase) -> Iterator[Piece]:
    """What the student wrote where a check looks, or where those inside it do."""
    inside = [one for _, one in check.inner()]
    if inside and not (check.where or check.part or check.files):
        for one in inside:
            yield from _looked_at(context.narrowed(check), one)
    elif check.where or check.part or check.files:
        yield from context.scope(check.model_copy(update={"given": False})).added


def _texts(check: CheckBase) -> Iterator[str]:
    """The texts in the fields of a check, without those of checks inside it."""
    stack: list[Any] = [getattr(check, name) for name in type(check).model_fields if name not in _NO_NAMES]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            stack += value
        elif isinstance(value, Value) and not isinstance(value, CheckBase):
            stack += [getattr(value, name) for name in type(value).model_fields]


def _apart(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Without pieces that lie in the one before."""
    last: Piece | None = None
    for piece in pieces:
        same = last is not None and (last.document.path, last.cell.number) == (
            piece.document.path, piece.cell.number,
        )  # fmt: skip
        if last is not None and same and piece.last <= last.last:
            continue
        last = piece
        yield piece


def _answer(pieces: Sequence[Piece], reader: Reader, kept: frozenset[str]) -> Answer:
    found = list(joined(pieces, reader, kept))
    if not found:
        return Answer()
    whole = "\x1f".join(exact for (exact, _), _, _ in found)
    alike = [general for (_, general), piece, token in found if token.line in piece.added]
    return Answer(
        key=hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:32],
        tokens=len(alike),
        fingerprints=frozenset(mark for mark, _ in fingerprints(alike, K, WINDOW)),
        regions=tuple(_region(piece) for piece in pieces[:MOST_REGIONS]),
    )


def _region(piece: Piece) -> Region:
    notebook = piece.document.kind == "notebook"
    shift = piece.cell.first_line - 1
    return Region(
        document=piece.document.path,
        cell=piece.cell.number if notebook else None,
        first=piece.first + shift,
        last=piece.last + shift,
    )
