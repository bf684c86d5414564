"""Patterns over folded text that find people's names, identifiers and addresses."""

from __future__ import annotations

import re
from functools import lru_cache

from grading.documents.case_folding import fold

_BETWEEN = r"[ \t_.,'\-]{1,3}"
_BETWEEN_OR_NONE = r"[ \t_.,'\-]{0,3}"
_LEAST_JOINED = 7
"""Letters a name needs to be found written as one word; shorter ones are too often part of other words."""

_LEAST_LOGIN = 5
"""Letters of a family name that make it, with an initial, a login name rather than a word."""

COMMON_WORDS = frozenset(
    """
    abu amber april art august austin autumn bank banks bar berry best bill bin black brown bush
    carolina case chase cherry china church cook count cross crystal daisy dart data date day days
    dean del den der dollar east faith false field fields filter florence ford frame frank function
    georgia good grace grant gray green grey group hill hist holiday hope hunter ibn india israel
    ivy java join jordan joy julia june key king lane large let lily line lines list london long
    love lua madison major mark max may mean merge miles min moon noble node none north null olive
    order page paris park parks pascal pearl penny perl plot price print python queen rain ray
    return rich river root rose ruby sales scala select sharp short sky small son song sort south
    star stone sum summer sun swift sydney table time true val van var violet virginia von west
    white wild will winter wise wood woods young
    """.split()
)
"""Names that are also words of code, data or prose: replaced only where the context says it is a person."""

_TITLES = {"mr", "mrs", "ms", "dr", "prof", "jr", "sr", "ii", "iii"}


def name_parts(name: str) -> set[str]:
    """The parts of a name of at least three letters, folded, also with the other spelling of umlauts."""
    return {spelling for token in _tokens(name) if len(token) >= 3 for spelling in _spellings(token)}


def all_parts(name: str) -> set[str]:
    """All parts of a name in all spellings, one of which is in every text the name is in."""
    return {spelling for token in _tokens(name) for spelling in _spellings(token)}


def full_name_pattern(name: str) -> list[str]:
    """Patterns for a name of two or more parts, in either order, with and without its middle names."""
    tokens = _tokens(name)
    if len(tokens) < 2:
        return []
    first, last = tokens[0], tokens[-1]
    orders = dict.fromkeys(
        [tuple(tokens), (last, *tokens[:-1]), (*tokens[1:], first), (first, last), (last, first)]
    )
    patterns = [_joined(order) for order in orders if len("".join(order)) >= 4 or not name.isascii()]
    if len(last) >= 3:
        patterns.append(rf"(?<![a-z]){re.escape(first[0])}\.[ \t]?{_any_spelling(last)}(?![a-z])")
    if len(last) >= _LEAST_LOGIN:
        initial, family = re.escape(fold(first[0])), _any_spelling(last)
        patterns.append(rf"(?<![a-z])(?:{initial}[._-]?{family}|{family}[._-]?{initial})(?![a-z])")
    return patterns


def id_pattern(value: str) -> str | None:
    """A pattern for an identifier as a whole word, or none if it is too short to tell."""
    folded = fold(value.strip())
    return rf"(?<![a-z0-9]){re.escape(folded)}(?![a-z0-9])" if len(folded) >= 4 else None


def email_pattern(value: str) -> str:
    """A pattern for an address as a whole."""
    return rf"(?<![\w.+-]){re.escape(fold(value.strip()))}(?![\w-])"


@lru_cache(maxsize=256)
def _tokens(name: str) -> tuple[str, ...]:
    last, comma, first = name.partition(",")
    ordered = f"{first} {last}" if comma else name
    tokens = re.split(r"[\s_.,'’\-]+", ordered)
    folded = (_raw_fold(token) for token in tokens)
    return tuple(token for token in folded if token and token.rstrip(".") not in _TITLES)


def _raw_fold(token: str) -> str:
    """Folded, with a mark where an umlaut was, so that both spellings can be made."""
    lowered = token.lower()
    return "".join(c if c in "äöü" else fold(c) for c in lowered)


def _spellings(token: str) -> set[str]:
    plain = fold(token)
    wide = "".join({"ä": "ae", "ö": "oe", "ü": "ue"}.get(c, c) for c in token)
    narrow = re.sub(r"([aou])e", r"\1", plain) if re.search(r"(?:ae|oe|ue)", plain) else plain
    return {spelling for spelling in (plain, wide, narrow) if len(spelling) >= min(3, len(token))}


def _any_spelling(token: str) -> str:
    return f"(?:{'|'.join(sorted(map(re.escape, _spellings(token)), key=lambda s: (-len(s), s)))})"


def _joined(tokens: tuple[str, ...]) -> str:
    between = _BETWEEN_OR_NONE if sum(map(len, tokens)) >= _LEAST_JOINED else _BETWEEN
    return rf"(?<![a-z]){between.join(map(_any_spelling, tokens))}(?![a-z])"
