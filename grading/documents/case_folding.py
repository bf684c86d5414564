"""Text without case and diacritics, with the way back to the original's positions."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_SPECIAL = {
    "ø": "o",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "þ": "th",
    "æ": "ae",
    "œ": "oe",
    "ı": "i",
    "ß": "ss",
    "ħ": "h",
}


@lru_cache(maxsize=4096)
def fold_char(char: str) -> str:
    """One character in lower case without diacritics; nothing for combining and invisible ones."""
    folded = []
    for c in unicodedata.normalize("NFKD", char.casefold()):
        if unicodedata.combining(c) or unicodedata.category(c) == "Cf":
            continue
        folded.append(_SPECIAL.get(c, c))
    # a character such as a non-breaking space folds to a plain one; line ends have to stay what they are
    return "".join(folded) if char != "\n" else "\n"


def fold(text: str) -> str:
    """The text in lower case without diacritics."""
    return text.lower() if text.isascii() else "".join(map(fold_char, text))


def origins(text: str) -> list[int] | None:
    """For every character of the folded text the index it comes from; none if they are the same."""
    if text.isascii():
        return None
    return [index for index, char in enumerate(text) for _ in fold_char(char)]
