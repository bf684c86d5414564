"""The words of model faults: for students, for operators, and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grading.domain.errors import EngineError, for_student, model_faults
from grading.store.rounds.lifecycle import BACKOFF_S

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "model-faults.md"
JARGON = re.compile(
    r"\b(server|machine|model|engine|token|http|url|json|schema|queue|timeout|connection|worker|run|stage|retry)",
    re.IGNORECASE,
)


@pytest.mark.parametrize("code", [*model_faults(), "no_such_code", ""])
def test_students_read_plain_words(code: str) -> None:
    sentence = for_student(code).message
    assert not JARGON.search(sentence)
    assert "Your submission is saved" in sentence
    assert "ou do not need to do anything" in sentence
    assert sentence.endswith(".")
    assert "_" not in sentence


def test_every_fault_has_its_own_code_and_words() -> None:
    kinds = model_faults()
    assert len({kind.student for kind in kinds.values()}) == len(kinds)
    assert all(kind.__doc__ == str(kind.default_message()) for kind in kinds.values())
    assert all(len(code) <= 40 for code in kinds)  # the column in SQL
    assert for_student("no_such_code") == for_student(EngineError.code)


def test_the_documentation_says_when_the_next_try_is() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for rule, (second, third) in BACKOFF_S.items():
        assert f"`{rule}`: after {second:g} s and {third:g} s" in text


def test_the_documentation_says_the_same() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    table = {code: [cell.strip() for cell in rest.split(" | ")] for code, rest in rows}
    expected = {
        code: (str(kind.default_message()), kind.retry, str(for_student(code)))
        for code, kind in model_faults().items()
    }
    assert {code: (cells[0], cells[1], cells[3]) for code, cells in table.items()} == expected
    assert all(len(cells) == 5 and all(cells) for cells in table.values())
