"""Messages of checks and flags in the reader's language, with what is counted and quoted in them."""

from __future__ import annotations

import pytest
from flask import Flask, g

from app.web.i18n import render_message
from app.web.rubric_texts import _field_words, about_kind, kind_words
from grading.checks.comparison.values import GAVE
from grading.checks.context import FIRST_FAILED, NOTHING_ADDED
from grading.checks.evaluate import TOO_LITTLE
from grading.checks.kinds import code, counts, outputs, style, tests
from grading.checks.kinds.combined import Rung
from grading.checks.manipulation import flags as signs
from grading.checks.manipulation import phrases
from grading.checks.message_parts import CLASSES, CODE_CELLS, FUNCTIONS, LINES, clauses, listed
from grading.checks.test_outcomes import HIDDEN, sentence
from grading.checks.work_flags import LINE_OF_CELL, UNPARSED
from grading.domain.check import check_kinds
from grading.domain.evidence import TestOutcome
from grading.domain.messages import Message, verbatim

_GAVE = GAVE(got="6", expected="3")
_TEST = TestOutcome(
    name="f", passed=False, input="f(1)", message=_GAVE.message, code=_GAVE.code, params=_GAVE.params
)
CASES = [
    (NOTHING_ADDED(), "nothing was added here", "hier wurde nichts hinzugefügt"),
    (
        outputs.SHOWN[False](shown=3, all=CODE_CELLS(count=5)),
        "3 of 5 code cells with your code show an output",
        "3 von 5 Codezellen mit Ihrem Code zeigen eine Ausgabe",
    ),
    (
        code.NOT_ALLOWED(name="eval"),
        "uses eval, which is not allowed here",
        "verwendet eval, was hier nicht erlaubt ist",
    ),
    (
        clauses([code.DEFINES(names="support"), code.SEVERAL_MISSING(names=listed(["confidence", "lift"]))]),
        "defines support; confidence and lift are missing",
        "definiert support; es fehlen confidence und lift",
    ),
    (
        UNPARSED(place=LINE_OF_CELL(line=4, cell=11), path="a.ipynb"),
        "a.ipynb has a syntax error at line 4 of cell 11.",
        "a.ipynb hat einen Syntaxfehler: Zeile 4 von Zelle 11.",
    ),
    (
        FIRST_FAILED(summary=HIDDEN(summary=tests.PASSED(passed=0, count=4), count=2), first=sentence(_TEST)),
        "0 of 4 tests passed, 2 of those that failed are hidden; the first that failed: f(1) gave 6, not 3",
        "0 von 4 Tests bestanden, 2 der nicht bestandenen sind verborgen; der erste nicht bestandene: "
        "f(1) ergab 6 statt 3",
    ),
    (
        counts.TOO_FEW(found=counts.USES_OF(count=2, names="%>%"), count=4),
        "2 uses of %>%; at least 4 are asked for",
        "2 Verwendungen von %>%; verlangt sind mindestens 4",
    ),
    (
        counts.Count(of="loops", at_least=1, at_most=3).default_label(),
        "at least 1 and at most 3 loops",
        "mindestens 1 und höchstens 3 Schleifen",
    ),
    (
        TOO_LITTLE(needed=LINES(count=3), count=1),
        "needs at least 3 lines of your own code; there is 1",
        "mindestens 3 Zeilen eigener Code nötig; vorhanden: 1",
    ),
    (
        style.COMMENTS_FOUND(found=2, count=4),
        "2 of at least 4 comments",
        "2 von mindestens 4 Kommentaren",
    ),
    (
        counts.TOO_FEW(found=counts.SUBCLASSES_OF(count=0, base="Shape"), count=2),
        "0 subclasses of Shape; at least 2 are asked for",
        "0 Unterklassen von Shape; verlangt sind mindestens 2",
    ),
    (
        style.BARE(described=1, all=CLASSES(count=3), name="Circle"),
        "1 of 3 classes with a description; Circle has none",
        "1 von 3 Klassen mit Beschreibung; Circle hat keine",
    ),
    (
        style.TOO_LONG(short=1, all=FUNCTIONS(count=2), at_most=LINES(count=5), name="long", lines=10),
        "1 of 2 functions with at most 5 lines; long has 10",
        "1 von 2 Funktionen mit höchstens 5 Zeilen; long hat 10",
    ),
    (
        style.OTHER_STYLE(right=1, all=style.NAMES(count=2), name="biggestShape", style="snake_case"),
        "1 of 2 names written as asked; biggestShape is not snake_case",
        "1 von 2 Namen in der verlangten Schreibweise; biggestShape ist nicht snake_case",
    ),
    (code.HAS_NONE(patterns="“this and that”"), "has no “this and that”", "enthält kein “this and that”"),
    (
        signs.QUOTED(sign=phrases.POINTS, words="give this and that"),
        "text that asks for points: “give this and that”",
        "Text, der um Punkte bittet: “give this and that”",
    ),
    (
        verbatim("a sentence of tomorrow, and another"),
        "a sentence of tomorrow, and another",
        "a sentence of tomorrow, and another",
    ),
    (
        code.USES(names="%(names)s and 100 %"),
        "uses %(names)s and 100 %",
        "verwendet %(names)s and 100 %",
    ),
]


@pytest.mark.parametrize(("message", "english", "german"), CASES, ids=[german for _, _, german in CASES])
def test_what_is_said(message: Message, english: str, german: str) -> None:
    assert message.message == english
    for language, expected in (("de", german), ("en", english)):
        with Flask(__name__).test_request_context():
            g.language = language
            assert render_message(message) == expected


def test_every_kind_of_check_and_every_field_of_one_has_words() -> None:
    with Flask(__name__).test_request_context():
        g.language = "de"
        for kind, model in check_kinds().items():
            assert kind_words()[kind] != kind.replace("_", " ").capitalize()
            assert about_kind(kind) != model.about.text, kind  # type: ignore[attr-defined]
        g.language = "en"
        models = [Rung, tests.Case, *check_kinds().values()]
        names = {name for model in models for name in model.model_fields} - {"kind"}
        assert names <= set(_field_words("en"))
