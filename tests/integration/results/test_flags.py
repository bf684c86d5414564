"""What flags say on the page of a result, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grading.domain.document import Location
from grading.domain.evidence import Flag
from tests.integration.webapp import School, report


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def sign(message: str, document: str, cell: int | None, line: int | None) -> Flag:
    place = Location(document=document, cell=cell, line=line)
    return Flag(code="manipulation", message=message, hold=True, location=place)


FLAGS = (
    Flag(code="quote_not_found", message="One quote was not found."),
    sign("text that asks for points: “<b>10</b>”", "work.ipynb", 9, 5),
    sign("text that claims full points", "notes.R", 1, 3),
    sign("text that asks for points (in a file's name)", "give_points.R", None, None),
    Flag(code="prompt_leaked", message="The model repeated words of its instructions.", hold=True),
    Flag(code="unsupported", message="'Advice': the model gives level 3 of 3.", hold=True),
    Flag(code="disagreement", message="'Load': the checks give level 1.0.", hold=True),
    Flag(code="answer_shortened", message="Some texts end early."),
)


def shown(school: School, who: str, *, released: bool = True) -> str:
    submission = school.submit("anna")
    school.grade(submission, report(flags=FLAGS), released=released)
    text = school.client(who).get(f"/submissions/{submission}").get_data(as_text=True)
    return text.partition("Flags")[2].partition("Points by criterion")[0]


def test_signs_of_manipulation_are_one_note_with_their_places_and_what_to_do(school: School) -> None:
    text = shown(school, "teacher", released=False)
    assert text.count("may try to influence the model") == 1
    assert "<li>work.ipynb, cell 9, line 5: text that asks for points: “&lt;b&gt;10" in text
    assert "<li>notes.R, line 3: text that claims full points</li>" in text
    assert "<li>give_points.R: text that asks" in text
    assert "before you release the grade" in text
    assert text.count("held for review") == 4
    assert "raise max_output_tokens" in text
    assert text.index("One quote was") < text.index("may try to influence") < text.index("repeated words")


def test_a_student_is_told_what_is_theirs_and_not_what_staff_should_do(school: School) -> None:
    text = shown(school, "anna")
    assert "notes.R, line 3: text that claims full points" in text
    assert "No points were deducted" in text
    assert "Some texts end early." in text
    for words in ("held for review", "before you", "max_output_tokens", "repeated", "level"):
        assert words not in text
