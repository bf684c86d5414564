"""Coded messages in German, as tests of what is translated read them."""

from __future__ import annotations

from app.web import i18n
from grading.domain.messages import Message, render
from grading.shared.catalogues import catalogue


def in_german(message: Message) -> str:
    """The message in German. Fails where it has no code, or no translation."""
    assert message.code, message.message
    german = render(message, catalogue(i18n.FOLDER, "de"))
    assert german != message.message
    return german
