from __future__ import annotations

import pytest
from pydantic import ValidationError

from grading.assignments.loader import Manifest
from grading.config.language_names import LANGUAGES, MOST, REGIONAL, english_name


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("German", "German"),
        (" german ", "German"),
        ("de", "German"),
        ("DE", "German"),
        ("de-CH", "Swiss Standard German"),
        ("de_CH", "Swiss Standard German"),
        ("de-LU", "German"),
        ("pt-BR", "Brazilian Portuguese"),
        ("zh-Hant-TW", "Traditional Chinese"),
        ("sr-Latn-RS", "Serbian"),
        ("en-US", "English"),
        ("norwegian bokmål", "Norwegian Bokmål"),
        ("Norwegian  Bokma\u030al", "Norwegian Bokmål"),
        ("Low German", "Low German"),
        ("Serbo-Croatian", "Serbo-Croatian"),
        ("Twi", "Twi"),
    ],
)
def test_names_and_codes_become_english_names(said: str, name: str) -> None:
    assert english_name(said) == name


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("xx", "'xx' is not a code known here; write the language's English name"),
        ("qq-QQ", "write the language's English name"),
        ("twi", "write the language's English name"),
        ("", "must be the English name"),
        ("German.", "must be the English name"),
        ("Ger{man}", "must be the English name"),
        ("C3PO speak", "must be the English name"),
        ("-German", "must be the English name"),
        ("a" * (MOST + 1), f"at most {MOST} characters"),
        ("German\u202e", "must be the English name"),
        ("Ger\u200bman", "must be the English name"),
    ],
)
def test_others_are_refused_with_what_to_write(said: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="English name") as caught:
        english_name(said)
    assert sentence in str(caught.value)


def test_the_table_is_long_enough_and_all_of_it_can_stand_in_a_prompt() -> None:
    assert len(LANGUAGES) >= 30
    names = {*LANGUAGES.values(), *REGIONAL.values()}
    assert {english_name(name) for name in names} == names
    assert {english_name(code) for code in (*LANGUAGES, *REGIONAL)} == names
    assert max(map(len, names)) <= MOST


def test_a_manifest_takes_both_keys_and_has_defaults() -> None:
    assert (Manifest(title="T").spoken_language, Manifest(title="T").show_draft) == ("English", False)
    made = Manifest.model_validate({"title": "T", "spoken_language": "fr", "show_draft": True})
    assert (made.spoken_language, made.show_draft) == ("French", True)
    with pytest.raises(ValidationError):
        Manifest.model_validate({"title": "T", "show_draft": "perhaps"})
