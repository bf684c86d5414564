"""What checks and flags say of a work, which they write in English, in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from app.web.i18n import current, gettext, render_message
from app.web.i18n import later as N_
from grading.domain.messages import Message

SENTENCES: tuple[str, ...] = (
    # of machines, why they listen to their queues
    N_("it has not looked yet"),
    N_("a spare that has just started leaves work to others"),
    N_("it was just taken in again and looks at the others first"),
    N_("takes only what is sent to it by name"),
    N_("can do nothing now"),
    N_("all slots are in use"),
    N_("others are done with it earlier"),
    N_("nothing waits"),
    N_("nothing"),
    N_("it takes %(p1)s"),
    N_("%(p1)s comes soon"),
)
AND = N_("%(p1)s and %(p2)s")
"""Only of values: a sentence that is not known is not shown in two languages."""
"""With %(p1)s where a value stands, the more telling ones first. What is not here is shown as it is."""
LONGEST = 600
"""Characters; a longer one is shown as it is."""
QUOTED = re.compile("“[^“”]*”")
"""What somebody else wrote stays as it is."""
DEEP = 4
"""How often values in values are looked up."""


def said(sentence: str | Message) -> str:
    """A sentence of a check or flag in the reader's language, as far as its words are known."""
    if isinstance(sentence, Message):
        return render_message(sentence) if sentence.code else said(sentence.message)
    language = current()
    return sentence if language == "en" or len(sentence) > LONGEST else _said(language, sentence, DEEP)


@lru_cache(maxsize=4096)
def _said(language: str, sentence: str, deep: int) -> str:
    """`language` is the reader's; it keeps the answers apart. Values are looked up, too, `deep` times."""
    found = gettext(sentence) if sentence in SENTENCES else sentence
    if found != sentence or not deep or QUOTED.fullmatch(sentence):
        return found
    for values, text in _fitting(sentence, inside=deep < DEEP):
        return gettext(text) % {name: _said(language, one, deep - 1) for name, one in values.items()}
    return sentence


def _fitting(sentence: str, *, inside: bool) -> Iterator[tuple[dict[str, str], str]]:
    for pattern, text in _patterns():
        if (inside or text is not AND) and (match := pattern.fullmatch(sentence)):
            yield match.groupdict(), text


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((_pattern(text), text) for text in (*SENTENCES, AND) if "%(p1)s" in text)


def _pattern(text: str) -> re.Pattern[str]:
    """A number stands before a counted word, anything else elsewhere."""
    parts = re.split(r"%\((p\d)\)s", text)
    counted = re.fullmatch(r"%\(p1\)s [a-z ]+", text) is not None and not text.endswith("missing")
    value = r"\d+" if counted else ".+?"
    return re.compile(
        "".join(f"(?P<{part}>{value})" if n % 2 else re.escape(part) for n, part in enumerate(parts)),
        re.DOTALL,
    )
