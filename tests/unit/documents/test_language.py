"""Guessing the language of a text."""

from __future__ import annotations

import pytest

from grading.documents.language import guess_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("We drop the rows that have missing values, because the mean was wrong.", "en"),
        ("Ich entferne die Zeilen, weil der Mittelwert nicht stimmt und das Ergebnis falsch ist.", "de"),
        ("Les valeurs manquantes sont dans une colonne, et je ne les garde pas.", "fr"),
        ("for row in rows: if row is not None and x or y: print(row)", None),
        ("The data: der, die, das, und, the, of, to", None),
        ("", None),
    ],
)
def test_the_commonest_words_tell_the_language(text: str, language: str | None) -> None:
    assert guess_language(text) == language
