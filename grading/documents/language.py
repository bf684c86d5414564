"""The language that a text is written in, guessed from its commonest words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

COMMON: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "en": frozenset(("the", "of", "to", "that", "this", "with", "are", "was", "have", "because", "we")),
        "de": frozenset(("der", "die", "das", "und", "ist", "nicht", "ein", "eine", "mit", "weil", "ich")),
        "fr": frozenset(("le", "les", "des", "est", "une", "pas", "que", "dans", "pour", "je", "et")),
        "es": frozenset(("el", "los", "las", "es", "una", "que", "por", "para", "con", "y", "porque")),
        "it": frozenset(("il", "gli", "che", "una", "non", "per", "sono", "con", "della", "perché", "di")),
    }
)
"""Words that hardly any text lacks; none that is common in code, such as `for` and `in`."""
FEWEST = 3
_WORD = re.compile(r"[^\W\d_]+")


def guess_language(text: str) -> str | None:
    """Its code, or nothing for a text with few such words or with those of two languages."""
    words = [word.lower() for word in _WORD.findall(text)]
    counts = {language: sum(word in common for word in words) for language, common in COMMON.items()}
    (best, most), (_, next_most), *_ = sorted(counts.items(), key=lambda one: -one[1])
    return best if most >= FEWEST and most >= 2 * next_most else None
