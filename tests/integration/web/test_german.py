"""Every page in German: no text lacks its translation, no English sentence and no decimal point is left.

What people and models wrote stays as it is: DATA names what the school of these tests has of it. A new text
of the product that is found here belongs into `_()`, `N_()` or a template's `{% trans %}`, not into DATA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from babel.support import NullTranslations

from app.web import i18n
from grading.shared.catalogues import catalogue
from tests.integration.web.pages_expected import OPEN
from tests.integration.web.pages_world import World, build

ENGLISH = re.compile(
    r"\b(the|of|and|is|are|with|without|nothing|by|or|this|these|that|from|to|your|you|has|have|there|cannot"
    r"|which|only|as|it|for|its|their|they|been|were|be|not|on|out|more|than|every|each|until|since|after"
    r"|before|open|read|sent|again|changed?|student(?!/in)|answered|cell|line|ai)\b",
    re.IGNORECASE,
)
"""Words that no German sentence has."""
POINT = re.compile(r"(?<![\w.])\d+\.\d{1,2}(?![\w.])")
SAME = {
    "Administrator",
    "Canvas",
    "Engine",
    "Issuer",
    "Links",
    "Median",
    "Median, s",
    "Name",
    "Person",
    "Prompt",
    "Sampling",
    "Store",
    "Sweeper",
    "System",
    "Token",
    "Tokens",
    "%(seconds)s s",
    "in %(length)s",
    "name",
}
"""Texts that are the same in both languages."""
DATA = (
    *("Add one.", "Good use of pandas", "Loads the data", "Look at the types", "No check for missing values"),
    *("Thinks about it", "Worth a look: pandas", "Names say what they hold.", "Plot the sales by month."),
    *("Clear work with pandas. The data is loaded and looked at before anything else.", "answered 500"),
    *("In a company you would note where the file came from.", "Say what you would try next."),
    *("The file is read with pandas.", "The reflection names pandas as a choice and says why."),
    "Written by two language models on the school's own machines. Rules give the points.",
    *("You explain your choices.", "You say what surprised you, which is a good habit.", "You loaded"),
    *("the data", "with pandas and looked at it first.", "**", "shows a plot: no picture in the outputs"),
    *(
        "(student, grader oder instructor)",
        "id, name, email",
        "id,name,email",
        "Mit der id",
        "grade, manage, read, submit",
        "read",
    ),
    *("submission.created", "data/a.csv", "LTI 1.3", "text/plain", "read.csv", "Student-t"),
)
OWN_WORDS = {"editor_rubric.as_text", "editor_rubric.edit"}
"""Pages of a rubric as it is kept: its levels are words of its own there."""
LEFT_OUT = {"api_docs.page"}
"""Written for programs, in English."""


class Texts(HTMLParser):
    """What a page says to people: texts and what is said of controls, without code."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.unread += tag in UNREAD
        self.found += [value or "" for name, value in attrs if name in ("title", "aria-label", "alt")]

    def handle_endtag(self, tag: str) -> None:
        self.unread -= tag in UNREAD

    def handle_data(self, data: str) -> None:
        if not self.unread:
            self.found.append(" ".join(data.split()))


UNREAD = {"script", "style", "code", "pre", "kbd", "samp", "textarea", "option", "title"}


class Recorded(NullTranslations):
    """The German catalogue; notes what it is asked for and does not have."""

    def __init__(self, there: NullTranslations) -> None:
        super().__init__()
        self.there = there
        self.lacking: set[str] = set()

    def gettext(self, message: str) -> str:
        found = self.there.gettext(message)
        if found == message and re.search("[a-z]{3}", message):
            self.lacking.add(message)
        return found

    def ngettext(self, msgid1: str, msgid2: str, n: Any) -> str:
        found = self.there.ngettext(msgid1, msgid2, n)
        if found in (msgid1, msgid2):
            self.lacking.add(msgid1)
        return found

    ugettext, ungettext = gettext, ngettext  # as Flask-Babel calls them


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = build(tmp_path_factory.mktemp("german"))
    yield made
    made.school.close()


@pytest.fixture(scope="module")
def german(world: World) -> tuple[dict[str, list[str]], set[str]]:
    """Texts by page, as who may most and as a student; and what the catalogue lacks."""
    recorded = Recorded(catalogue(i18n.FOLDER, "de"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(i18n.DOMAIN.cache, "de", recorded)
        pages = dict(_pages(world))
    return pages, recorded.lacking


def _pages(world: World) -> Iterator[tuple[str, list[str]]]:
    mine = {name: values[0] for name, values in world.ids.items()}
    for rule in world.school.app.url_map.iter_rules():
        fits = "GET" in (rule.methods or set()) and rule.arguments <= set(mine) and rule.endpoint not in OPEN
        if not fits or rule.endpoint.startswith("api") or "zip" in rule.rule or "progress" in rule.rule:
            continue
        for role in ("admin", "teacher", "anna"):
            client, _ = world.client(role)
            answer = client.get(world.url(rule, mine), headers={"Accept-Language": "de"})
            assert answer.status_code < 500 or rule.endpoint == "operations.ready", rule.endpoint
            if answer.status_code == 200 and answer.mimetype == "text/html":
                read = Texts()
                read.feed(answer.get_data(as_text=True))
                yield f"{rule.endpoint} as {role}", read.found
            answer.close()


def test_there_are_pages(german: tuple[dict[str, list[str]], set[str]]) -> None:
    assert len(german[0]) > 100


def test_no_text_lacks_its_translation(german: tuple[dict[str, list[str]], set[str]]) -> None:
    """Also where a text is in a variable, which `scripts/translations` does not see."""
    translated = {str(one) for one in catalogue(i18n.FOLDER, "de")._catalog.values()}  # type: ignore[attr-defined]
    assert german[1] - SAME - translated - set(DATA) == set()


def test_nothing_is_said_in_english(german: tuple[dict[str, list[str]], set[str]]) -> None:
    found = {
        (name.partition(" as ")[0], text)
        for name, texts in german[0].items()
        for text in texts
        if name.partition(" as ")[0] not in LEFT_OUT | OWN_WORDS and ENGLISH.search(_bare(text))
    }
    assert found == set()


def test_no_decimal_point_is_left(german: tuple[dict[str, list[str]], set[str]]) -> None:
    found = {(name, text) for name, texts in german[0].items() for text in texts if POINT.search(_bare(text))}
    assert found == set()


def _bare(text: str) -> str:
    """Without what people and models wrote."""
    for one in DATA:
        text = text.replace(one, "")
    return text
