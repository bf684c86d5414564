"""Sentences of checks and flags in the reader's language, with what is counted and quoted in them."""

from __future__ import annotations

import pytest
from flask import Flask, g

from app.web.check_messages import SENTENCES, said
from app.web.rubric_texts import about_kind, field_words, kind_words
from grading.checks.kinds.combined import Rung
from grading.checks.kinds.tests import Case
from grading.domain.check import check_kinds

CASES = [
    ("nothing was added here", "hier wurde nichts hinzugefügt"),
    (
        "3 of 5 code cells with your code show an output",
        "3 von 5 Codezellen mit Ihrem Code zeigen eine Ausgabe",
    ),
    ("uses eval, which is not allowed here", "benutzt eval, was hier nicht erlaubt ist"),
    ("defines support; confidence and lift are missing", "legt support an; es fehlen confidence und lift"),
    (
        "The code does not parse at line 4 of cell 11 of a.ipynb.",
        "Der Code ist bei Zeile 4 von Zelle 11 von a.ipynb nicht lesbar.",
    ),
    (
        "0 of 4 tests passed, 2 of those that failed are hidden; the first that failed: f(1) gave 6, not 3",
        "0 von 4 Tests bestanden, 2 der nicht bestandenen sind verborgen; der erste nicht bestandene: "
        "f(1) ergab 6 statt 3",
    ),
    (
        "2 uses of %>%; at least 4 are asked for",
        "2 Verwendungen von %>%; verlangt sind mindestens 4",
    ),
    ("at least 1 and at most 3 loops", "mindestens 1 und höchstens 3 Schleifen"),
    (
        "needs at least 3 lines of your own code; there is 1",
        "braucht mindestens 3 Zeilen eigenen Code; da ist 1",
    ),
    ("is missing; give it, at_most or both", "fehlt; geben Sie es an, at_most oder beides"),
    ("asks for nothing; give names or of", "verlangt nichts; geben Sie names or of an"),
    ("2 of at least 4 comments", "2 von mindestens 4 Kommentaren"),
    (
        "0 subclasses of Shape; at least 2 are asked for",
        "0 Unterklassen von Shape; verlangt sind mindestens 2",
    ),
    (
        "1 of 3 classes with a description; Circle has none",
        "1 von 3 Klassen mit Beschreibung; Circle hat keine",
    ),
    (
        "1 of 2 functions with at most 5 lines; long has 10",
        "1 von 2 Funktionen mit höchstens 5 Zeilen; long hat 10",
    ),
    (
        "1 of 2 names written as asked; biggestShape is not snake_case",
        "1 von 2 Namen wie verlangt geschrieben; biggestShape ist nicht snake_case",
    ),
    ("has no “this and that”", "hat kein “this and that”"),
    (
        "text that asks for points: “give this and that”",
        "Text, der um Punkte bittet: “give this and that”",
    ),
    ("a sentence of tomorrow, and another", "a sentence of tomorrow, and another"),
    ("uses %(p1)s and 100 %", "benutzt %(p1)s und 100 %"),
]


@pytest.mark.parametrize(("english", "german"), CASES, ids=[german for _, german in CASES])
def test_what_is_said(english: str, german: str) -> None:
    for language, expected in (("de", german), ("en", english)):
        with Flask(__name__).test_request_context():
            g.language = language
            assert said(english) == expected


def test_hostile_sentences_take_no_time() -> None:
    with Flask(__name__).test_request_context():
        g.language = "de"
        for text in (" of " * 140, " and " * 110, "cell " * 110, "x; y are missing" * 30):
            assert said(text + "!") is not None


def test_no_sentence_stands_twice() -> None:
    assert len(set(SENTENCES)) == len(SENTENCES)


def test_every_kind_of_check_and_every_field_of_one_has_words() -> None:
    with Flask(__name__).test_request_context():
        g.language = "de"
        for kind, model in check_kinds().items():
            assert kind_words()[kind] != kind.replace("_", " ").capitalize()
            assert about_kind(kind) != " ".join((model.__doc__ or "").split()).partition(". ")[0] + ".", kind
        g.language = "en"
        models = [Rung, Case, *check_kinds().values()]
        names = {name for model in models for name in model.model_fields} - {"kind"}
        assert names - set(field_words()) == set()
