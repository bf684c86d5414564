"""Reads the tokens of the pieces of a submission, each cell once and within bounds, and joins them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence

from grading.checks.parsing.parser import MAX_BYTES
from grading.checks.scope import Piece
from grading.similarity.code_tokens import Token, Tokens, tokens_of, words_of
from grading.similarity.own_names import spelled


class Reader:
    """Reads the tokens of each cell once, and of no more than so many characters in all."""

    def __init__(self) -> None:
        self._left = MAX_BYTES
        self._known: dict[tuple[str, str], Tokens] = {}

    def tokens(self, piece: Piece) -> Tokens:
        """The tokens of the piece's cell; what is beyond the bound is compared as it is written."""
        cell = piece.cell
        code = cell.kind == "code"
        at = (cell.source, (cell.language or piece.document.language) if code else "")
        if at not in self._known:
            self._left -= len(cell.source)
            if self._left < 0:
                return Tokens((Token(hashlib.sha256(cell.source.encode("utf-8", "replace")).hexdigest(), 1),))
            self._known[at] = tokens_of(*at) if code else words_of(cell.source)
        return self._known[at]


def joined(
    pieces: Sequence[Piece], reader: Reader, kept: Collection[str] = ()
) -> Iterator[tuple[tuple[str, str], Piece, Token]]:
    """The tokens of pieces in order, as `spelled` gives them, names of one cell known in those after it."""
    tokens: list[Token] = []
    owners: list[Piece] = []
    parents: list[int] = [0]
    at = 0
    for piece in pieces:
        read = reader.tokens(piece)
        chosen = [one for one in read.tokens if piece.first <= one.line <= piece.last]
        tokens += _moved(chosen, at, len(parents) - 1)
        owners += [piece] * len(chosen)
        parents += [_beyond(one, len(parents) - 1) for one in read.parents[1:]]
        at += read.size + 1
    yield from zip(spelled(tokens, parents, kept), owners, tokens, strict=True)


def _moved(tokens: Iterable[Token], by: int, scopes: int) -> Iterator[Token]:
    """Tokens of one cell after those of others: places count on, scopes but the outermost are new ones."""
    if not by:
        yield from tokens
        return
    for one in tokens:
        defined = one.defined + by if one.defined else one.defined
        yield Token(one.text, one.line, one.at + by, _beyond(one.scope, scopes), defined)


def _beyond(scope: int, scopes: int) -> int:
    return scope + scopes if scope > 0 else scope
