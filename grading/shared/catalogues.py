"""Translations as they lie in `LANGUAGE.po` files: read when a language is first asked for."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.support import NullTranslations, Translations


@lru_cache(maxsize=8)
def translated(folder: Path) -> tuple[str, ...]:
    """The languages there are translations into; looked up once, for every text of a page asks."""
    return tuple(sorted(file.stem for file in folder.glob("*.po")))


@lru_cache(maxsize=32)
def catalogue(folder: Path, language: str) -> NullTranslations:
    """The texts in this language; as they are in the code where there is no such file."""
    if language not in translated(folder):
        return NullTranslations()
    compiled = BytesIO()
    with (folder / f"{language}.po").open("rb") as opened:
        write_mo(compiled, read_po(opened, locale=language))
    compiled.seek(0)
    return Translations(compiled)
