"""The language of the pages by Flask-Babel: English in the code, others in `app/translations/LANGUAGE.po`.

Catalogues are read when a language is first asked for. How to add one:
`docs/contributing/translating.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from functools import lru_cache
from pathlib import Path

from babel import Locale
from babel.dates import format_date, format_datetime
from babel.messages.pofile import read_po
from babel.numbers import get_decimal_symbol, get_group_symbol
from babel.support import NullTranslations
from flask import Flask, g, has_request_context, request, session
from flask_babel import Babel, Domain, refresh
from flask_login import current_user

from grading.domain import messages
from grading.domain.errors import GraderError
from grading.domain.messages import Message
from grading.shared import catalogues

FOLDER = Path(__file__).parents[1] / "translations"
ENGLISH = "en"
DAYS, MOMENTS = {ENGLISH: "dd MMM y"}, {ENGLISH: "dd MMM y, HH:mm"}
"""How a moment is written where its locale's pattern is not clear everywhere: 12 Nov 2026, not Nov 12."""


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


def current() -> str:
    """The reader's language: what they chose, else what the browser likes best."""
    if not has_request_context():
        return ENGLISH
    context = (
        g._get_current_object()
    )  # asked for with each text; through the proxy it costs five times as much
    return _spoken(context.get("language") or _looked_up())


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
    offered = languages()
    g.language = chosen if chosen in offered else request.accept_languages.best_match(offered) or ENGLISH
    refresh()


class PageDomain(Domain):
    """The gettext domain of the pages, from po files; in English where there is no request."""

    def get_translations(self) -> NullTranslations:
        """All texts in the reader's language."""
        language = current()
        if language not in self.cache:
            self.cache[language] = catalogues.catalogue(FOLDER, language)
        found: NullTranslations = self.cache[language]
        return found

    def gettext(self, string: str, **variables: object) -> str:
        """The text in the reader's language, with `%(name)s` filled in."""
        # a catalogue has its header under the empty text
        return str(super().gettext(string, **variables)) if string else ""

    def ngettext(self, singular: str, plural: str, num: int, **variables: object) -> str:
        """The text for so many; `%(count)s` is filled in, too."""
        return str(super().ngettext(singular, plural, num, **{"count": whole(num), **variables}))


DOMAIN = PageDomain()
gettext, ngettext = DOMAIN.gettext, DOMAIN.ngettext


def later(text: str) -> str:
    """The text itself: it is translated where it is shown, and listed for translators here."""
    return text


N_ = later
"""As translators' tools know it."""


def when(moment: datetime) -> str:
    """Day and time, as they are written in the reader's language."""
    return when_in(current(), moment)


def day(moment: date) -> str:
    """A day, as it is written in the reader's language."""
    language = current()
    return format_date(moment, DAYS.get(language, "medium"), locale=language)


def when_in(language: str, moment: datetime) -> str:
    """The same in a language."""
    return format_datetime(moment, _pattern(language), locale=language)


@lru_cache(maxsize=32)
def _pattern(language: str) -> str:
    """The locale's medium date and short time, joined as it joins them."""
    known = Locale.parse(language)
    day, time = known.date_formats["medium"].pattern, known.time_formats["short"].pattern
    joined = str(known.datetime_formats["medium"]).replace("{0}", time).replace("{1}", day)
    return MOMENTS.get(language, joined)


def number(value: float | None) -> str:
    """With two decimals at most; a dash where there is none."""
    if value is None:
        return "–"
    # Babel's format_decimal raises on numbers of more than 28 digits, which students' programs may print
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
    babel = Babel()
    babel.domain_instance = DOMAIN
    babel.init_app(app, default_locale=ENGLISH, locale_selector=current)
    env = app.jinja_env
    env.globals.update(language=current, languages=languages, language_title=title_of)
    env.filters.update(day=day, when=when, number=number, fixed=fixed, whole=whole)
    env.filters.update(render_message=render_message)
    env.globals.update(texts_of_scripts=texts_of_scripts)


def render_error(error: GraderError) -> str:
    """What an error says, in the reader's language."""
    return render_message(error.coded)


def render_message(message: Message) -> str:
    """A coded message in the reader's language; in English where its code is not known."""
    return messages.render(message, DOMAIN.get_translations(), number)
