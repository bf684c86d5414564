"""The language of the pages: English in the code, others in `app/translations/LANGUAGE.po`.

Catalogues are read when a language is first asked for. `docs/translating.md` says how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from functools import lru_cache
from gettext import NullTranslations
from pathlib import Path

from babel import Locale
from babel.dates import format_date, format_time
from babel.messages.pofile import read_po
from babel.numbers import get_decimal_symbol, get_group_symbol
from flask import Flask, g, has_request_context, request, session
from flask_login import current_user

from grading.domain import messages
from grading.domain.errors import GraderError
from grading.domain.messages import Message
from grading.shared import catalogues

FOLDER = Path(__file__).parents[1] / "translations"
ENGLISH = "en"
ENGLISH_TEXTS = NullTranslations()
MOMENT = {ENGLISH: "dd MMM y"}
TIME = {ENGLISH: "HH:mm"}
"""How a moment is written where `medium` would not be clear everywhere: 12 Nov 2026, not Nov 12."""


def languages() -> tuple[str, ...]:
    """All there are, English first."""
    return (ENGLISH, *catalogues.translated(FOLDER))


@lru_cache(maxsize=32)
def title_of(language: str) -> str:
    """What a language calls itself: `Deutsch`."""
    name = Locale.parse(language).display_name or language
    return name[:1].upper() + name[1:]


@lru_cache(maxsize=32)
def _of_scripts(language: str) -> Mapping[str, str]:
    file = FOLDER / f"{language}.po"
    if language == ENGLISH or not file.is_file():
        return {}
    with file.open("rb") as opened:
        catalogue = read_po(opened, locale=language)
    return {str(m.id): str(m.string) for m in catalogue if any(f.endswith(".js") for f, _ in m.locations)}


def texts_of_scripts() -> Mapping[str, str]:
    """What scripts say, with its translations."""
    return _of_scripts(current())


@lru_cache(maxsize=32)
def _catalogue(language: str) -> NullTranslations:
    return catalogues.catalogue(FOLDER, language)


def current() -> str:
    """The reader's language: what they chose, else what the browser likes best."""
    if not has_request_context():
        return ENGLISH
    known = g._get_current_object()  # asked for with each text; through the proxy it costs five times as much
    return _spoken(known.get("language") or _looked_up())


@lru_cache(maxsize=64)
def _spoken(wanted: str) -> str:
    return wanted if wanted in languages() else ENGLISH


def _looked_up() -> str:
    _ = not g.get("broken") and current_user.is_authenticated  # loads the reader, and what they chose
    if "language" not in g:
        speak(session.get("language"))
    return str(g.language)


def speak(chosen: str | None) -> None:
    """Answer this request in that language where it is known, else in what the browser likes best."""
    known = languages()
    g.language = chosen if chosen in known else request.accept_languages.best_match(known) or ENGLISH


def gettext(text: str, /, **values: object) -> str:
    """The text in the reader's language, with `%(name)s` filled in."""
    found = _catalogue(current()).gettext(text) if text else ""
    return found % values if values else found


def ngettext(one: str, many: str, count: int, /, **values: object) -> str:
    """The text for so many; `%(count)s` is filled in, too."""
    return _catalogue(current()).ngettext(one, many, count) % {"count": whole(count), **values}


def later(text: str) -> str:
    """The text itself: it is translated where it is shown, and listed for translators here."""
    return text


N_ = later
"""As translators' tools know it."""


def when(moment: datetime) -> str:
    """Day and time, as they are written in the reader's language."""
    return when_in(current(), moment)


def when_in(language: str, moment: datetime) -> str:
    """The same in a language."""
    day, time = _day(language, moment.date()), _time(language, moment.time().replace(microsecond=0))
    return _joined(language).replace("{0}", time).replace("{1}", day)


@lru_cache(maxsize=4096)
def _day(language: str, day: date) -> str:
    return format_date(day, MOMENT.get(language, "medium"), locale=language)


@lru_cache(maxsize=4096)
def _time(language: str, at: time) -> str:
    return format_time(at, TIME.get(language, "short"), locale=language)


@lru_cache(maxsize=32)
def _joined(language: str) -> str:
    """How day and time stand together, with `{1}` and `{0}`."""
    known = Locale.parse(language).datetime_formats
    return "{1}, {0}" if language in MOMENT else str(known["medium"]).replace("'", "")


def number(value: float | None) -> str:
    """With two decimals at most; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:.2f}".rstrip("0").rstrip(".").replace(".", _signs(current())[0])


def fixed(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """With so many decimals; with `sign` also a plus is written."""
    return f"{value:{'+' if sign else ''}.{digits}f}".replace(".", _signs(current())[0])


def whole(value: float) -> str:
    """A count, with its thousands apart."""
    return f"{value:,.0f}".replace(",", _signs(current())[1])


@lru_cache(maxsize=32)
def _signs(language: str) -> tuple[str, str]:
    return get_decimal_symbol(language), get_group_symbol(language)


def translate(app: Flask) -> None:
    """Let templates say `_('…')`, `ngettext` and `{% trans %}`."""
    env = app.jinja_env
    env.add_extension("jinja2.ext.i18n")
    env.install_gettext_callables(  # type: ignore[attr-defined]  # by the extension
        _catalogue_gettext, _catalogue_ngettext, newstyle=True
    )
    env.globals.update(language=current, languages=languages, language_title=title_of)
    env.filters.update(when=when, number=number, fixed=fixed, whole=whole)
    env.filters.update(render_message=render_message, stored=stored_message)
    env.globals.update(texts_of_scripts=texts_of_scripts)


def catalogue_of_reader() -> NullTranslations:
    """All texts in the reader's language."""
    return catalogue_of(current())


def catalogue_of(language: str) -> NullTranslations:
    """All texts in a language."""
    return ENGLISH_TEXTS if language == ENGLISH else _catalogue(language)


def _catalogue_gettext(text: str) -> str:
    return _catalogue(current()).gettext(text)


def _catalogue_ngettext(one: str, many: str, count: int) -> str:
    return _catalogue(current()).ngettext(one, many, count)


def render_error(error: GraderError) -> str:
    """What an error says, in the reader's language."""
    return render_message(error.coded)


def stored_message(english: str) -> str:
    """A sentence that is stored in English only, in the reader's language where it has no parameters."""
    return render_message(messages.of_english(english))


def render_message(said: Message) -> str:
    """A coded message in the reader's language; in English where its code is not known."""
    return messages.render(said, catalogue_of_reader(), number)
