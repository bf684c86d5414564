"""The language of the pages: English in the code, others in `app/translations/LANGUAGE.po`.

Catalogues are read when a language is first asked for. `docs/translating.md` says how to add one.
"""

from __future__ import annotations

from functools import lru_cache
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from flask import Flask, g, has_request_context, request

FOLDER = Path(__file__).parent / "translations"
ENGLISH = "en"


def languages() -> tuple[str, ...]:
    """All there are, English first."""
    return (ENGLISH, *sorted(file.stem for file in FOLDER.glob("*.po")))


@lru_cache(maxsize=32)
def _catalogue(language: str) -> NullTranslations:
    file = FOLDER / f"{language}.po"
    if language == ENGLISH or not file.is_file():
        return NullTranslations()
    compiled = BytesIO()
    with file.open("rb") as opened:
        write_mo(compiled, read_po(opened, locale=language))
    compiled.seek(0)
    return GNUTranslations(compiled)


def current() -> str:
    """The reader's language: `g.language` where it is chosen, else what the browser likes best."""
    if not has_request_context():
        return ENGLISH
    if "language" not in g:
        g.language = request.accept_languages.best_match(languages()) or ENGLISH
    return str(g.language) if g.language in languages() else ENGLISH


def gettext(text: str, /, **values: object) -> str:
    """The text in the reader's language, with `%(name)s` filled in."""
    found = _catalogue(current()).gettext(text)
    return found % values if values else found


def ngettext(one: str, many: str, count: int, /, **values: object) -> str:
    """The text for so many; `%(count)s` is filled in, too."""
    return _catalogue(current()).ngettext(one, many, count) % {"count": count, **values}


def translate(app: Flask) -> None:
    """Let templates say `_('…')`, `ngettext` and `{% trans %}`."""
    env = app.jinja_env
    env.add_extension("jinja2.ext.i18n")
    env.install_gettext_callables(  # type: ignore[attr-defined]  # by the extension
        _catalogue_gettext, _catalogue_ngettext, newstyle=True
    )
    env.globals.update(language=current)


def _catalogue_gettext(text: str) -> str:
    return _catalogue(current()).gettext(text)


def _catalogue_ngettext(one: str, many: str, count: int) -> str:
    return _catalogue(current()).ngettext(one, many, count)
