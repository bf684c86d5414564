"""Fingerprints of the whole code of a submission, each with its lines, to compare submissions in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from grading.checks.scope import Piece, Scopes
from grading.domain.document import Document
from grading.similarity.code_tokens import Token
from grading.similarity.fingerprints import fingerprints
from grading.similarity.reading import Reader, joined

K, WINDOW = 12, 4
"""Fifteen tokens in a row that two submissions share give them a fingerprint in common."""


class Mark(NamedTuple):
    """A fingerprint; lines count as in `grading.domain.document.Location`, `at` counts tokens."""

    value: int
    at: int
    document: str
    cell: int | None
    first: int
    last: int


def marks_of(documents: Sequence[Document], reader: Reader | None = None) -> tuple[Mark, ...]:
    """The fingerprints of the code that a student added, whatever its own names are.

    A `reader` keeps what it read for others.
    """
    pieces = [piece for piece in Scopes(documents).find().added if piece.cell.kind == "code"]
    own = list(_own(pieces, reader or Reader()))
    found = fingerprints([alike for alike, _, _ in own], K, WINDOW)
    return tuple(_mark(value, at, own) for value, at in found)


def _own(pieces: Sequence[Piece], reader: Reader) -> Iterator[tuple[str, Piece, Token]]:
    for (_, alike), piece, token in joined(pieces, reader):
        if token.line in piece.added:
            yield alike, piece, token


def _mark(value: int, at: int, own: Sequence[tuple[str, Piece, Token]]) -> Mark:
    _, piece, first = own[at]
    _, other, last = own[min(at + K, len(own)) - 1]
    shift = piece.cell.first_line - 1
    cell = piece.cell.number if piece.document.kind == "notebook" else None
    end = last.line if other is piece else first.line
    return Mark(value, at, piece.document.path, cell, first.line + shift, max(first.line, end) + shift)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a file."""

    document: str
    cell: int | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SharedRegion:
    """Lines of one submission that say the same as lines of another."""

    one: Lines
    other: Lines
    tokens: int


MOST_REGIONS = 40
_MOST_PLACES = 5
"""Places of one fingerprint in a submission that are tried."""
_MOST_MATCHES = 5_000
_MOST_OPEN = 40
"""Regions that a match may continue: those begun last."""
_GAP = 2 * (K + WINDOW)
"""Tokens between two fingerprints of one region."""
_DRIFT = 3
"""Tokens that one side of a region may have more than the other between two fingerprints."""


@dataclass
class _Run:
    one_first: Mark
    one_last: Mark
    other_first: Mark
    other_last: Mark

    @property
    def tokens(self) -> int:
        return self.one_last.at - self.one_first.at + K

    def goes_on(self, one: Mark, other: Mark) -> bool:
        """Whether two places continue it."""
        step, beside = one.at - self.one_last.at, other.at - self.other_last.at
        near = 0 < step <= _GAP and 0 < beside <= _GAP and abs(step - beside) <= _DRIFT
        return near and _same_file(one, self.one_last) and _same_file(other, self.other_last)


def shared_regions(
    one: Sequence[Mark], other: Sequence[Mark], shared: Iterable[int]
) -> tuple[SharedRegion, ...]:
    """Regions that two submissions share, the longest first; `shared` are the fingerprints that count."""
    wanted = frozenset(shared)
    places: dict[int, list[Mark]] = {}
    for mark in other:
        if mark.value in wanted:
            places.setdefault(mark.value, []).append(mark)
    runs: list[_Run] = []
    matches = ((mark, there) for mark in one for there in places.get(mark.value, ())[:_MOST_PLACES])
    for mark, there in islice(matches, _MOST_MATCHES):
        run = next((run for run in reversed(runs[-_MOST_OPEN:]) if run.goes_on(mark, there)), None)
        if run is None:
            runs.append(_Run(mark, mark, there, there))
        else:
            run.one_last, run.other_last = mark, there
    return tuple(map(_region, _apart(runs)))


def _apart(runs: Iterable[_Run]) -> list[_Run]:
    """The longest runs that share no lines with a longer one."""
    kept: list[_Run] = []
    for run in sorted(runs, key=lambda run: (-run.tokens, run.one_first.at, run.other_first.at)):
        if len(kept) < MOST_REGIONS and not any(
            run.one_first.at <= old.one_last.at and old.one_first.at <= run.one_last.at for old in kept
        ):
            kept.append(run)
    return kept


def _region(run: _Run) -> SharedRegion:
    return SharedRegion(
        _lines(run.one_first, run.one_last), _lines(run.other_first, run.other_last), run.tokens
    )


def _lines(first: Mark, last: Mark) -> Lines:
    return Lines(first.document, first.cell, first.first, max(first.last, last.last))


def _same_file(one: Mark, other: Mark) -> bool:
    return (one.document, one.cell) == (other.document, other.cell)
