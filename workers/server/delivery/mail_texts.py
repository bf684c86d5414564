"""What letters say, in the language of who reads them."""

from __future__ import annotations

from pathlib import Path

from grading.shared.catalogues import catalogue


def _(text: str) -> str:
    """Marks a text for translators; it is translated when a letter is written."""
    return text


SUBJECT = _("Your result is ready: %(title)s")
BODY = _(
    'Hello,\n\nthe result of your hand-in for "%(title)s" can be seen now:\n\n%(link)s\n\n'
    "You get this because you asked for it. "
    "On the page of your account you can say that you do not want it.\n"
)
ANSWER_SUBJECT = _("Your request was answered: %(title)s")
ANSWER_BODY = _(
    'Hello,\n\nyour request for a regrade of "%(title)s" was answered. You find the answer here:\n\n'
    "%(link)s\n\nYou get this because you asked for mail. "
    "On the page of your account you can say that you do not want it.\n"
)


def answered(translations: Path, language: str, title: str, link: str) -> tuple[str, str]:
    """Subject and body of the letter that a request for a regrade was answered."""
    say = catalogue(translations, language).gettext
    return say(ANSWER_SUBJECT) % {"title": title}, say(ANSWER_BODY) % {"title": title, "link": link}


def ready(translations: Path, language: str, title: str, link: str) -> tuple[str, str]:
    """Subject and body of the letter that a result can be seen; English where the language is not known."""
    say = catalogue(translations, language).gettext
    return say(SUBJECT) % {"title": title}, say(BODY) % {"title": title, "link": link}
