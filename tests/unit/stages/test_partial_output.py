"""Half-written answers as text: whatever was written so far, nothing of it that is not for the student."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stages.test_parse import ANALYSIS, FEEDBACK
from workers.machine.sanitize import visible
from workers.machine.stages import known_stages
from workers.machine.stages.partial_output import MOST_CHARS, readable

SECRET = "SECRET"
WORDS = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc", "Cf", "Mn", "Zs", "Zl", "Zp"]), max_size=20
)
TRICKY = st.one_of(WORDS, st.sampled_from(['say "hi"', "C:\\u12", "a\\\\", "{[,:]}", "é🎉", "\\ud83d", "x"]))
LIST = st.lists(TRICKY, max_size=3)


def secret() -> dict[str, Any]:
    return {"quotes": [SECRET, f'{SECRET} {{"summary": "{SECRET}"'], "reason": SECRET, "level": 987}


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A stage and a valid answer, in which everything a student is not to see says so."""
    hidden = {"judgements": {"load": secret(), "summary": secret(), "next_step": secret()}}
    if draw(st.booleans()):
        names = ("achieved", "reflection", "strengths", "practice", "develop", "next_step")
        shown = {name: draw(LIST if name in ("strengths", "develop") else TRICKY) for name in names}
        return "feedback", hidden | shown
    finding = {"severity": SECRET, "title": SECRET, "detail": SECRET, "at": "9:8:7"}
    suggestion = st.fixed_dictionaries(dict.fromkeys(("what", "why", "how", "example"), TRICKY))
    return "analysis", hidden | {
        "summary": draw(TRICKY),
        "strengths": draw(LIST),
        "findings": [finding],
        "suggestions": draw(st.lists(suggestion, max_size=2)),
    }


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [t for part in (value.values() if isinstance(value, dict) else value) for t in texts(part)]


@settings(max_examples=30, deadline=None)
@given(answers(), st.booleans(), st.sampled_from([None, 1]))
def test_every_beginning_of_an_answer_is_a_beginning_of_its_text(
    answer: tuple[str, dict[str, Any]], plain: bool, indent: int | None
) -> None:
    stage, value = answer
    whole = json.dumps(value, ensure_ascii=plain, indent=indent)
    told = readable(stage, whole)
    for text in texts({k: v for k, v in value.items() if k not in ("judgements", "findings")}):
        assert visible(text).strip() in told
    for end in range(len(whole)):
        draft = readable(stage, whole[:end])
        assert told.startswith(draft)
        assert SECRET not in draft
        assert "987" not in draft


@pytest.mark.parametrize("stage", sorted(known_stages()))
@given(text=st.text(alphabet='{}[]",:\\ulevreasonsummary0123 \n<think>/\ud800', max_size=120))
def test_garbage_is_never_an_error(stage: str, text: str) -> None:
    assert len(readable(stage, text)) <= MOST_CHARS
    assert len(readable(stage, '{"summary": ["' + text)) <= MOST_CHARS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The student gets level 3 because it reads.",
        '{"judgements": {"load": {"reason": "well done", "level": 3}}}',
        '{"level": 3, "reason": "well done"}',
        '{"reason": {"summary": "well done"}}',
        '{"summary": {"reason": "well done", "what": "well done"}}',
        '{"strengths": [["well done"], {"reason": "well done"}], "suggestions": ["well done"]}',
        '{"suggestions": [{"reason": "well done", "level": "well done"}]}',
        '<think>{"summary": "well done',
        '[{"judgements": {"summary": "well done"}}]',
        "{" * 100_000,
        '{"summary":' * 5_000 + '"well done"',
        "[" * 100_000 + '{"summary": "',
    ],
)
def test_what_is_not_for_the_student_stays_out(text: str) -> None:
    assert readable("analysis", text) == ""


def test_thoughts_and_prose_around_the_answer_are_left_out() -> None:
    body = '{"summary": "Reads the data'
    for before in ("<think>level {3}? {}</think>", "```json\n", "Here is my review {of sorts}:\n"):
        assert readable("analysis", before + body) == "Reads the data"


def test_texts_are_paragraphs_in_their_order() -> None:
    assert readable("feedback", json.dumps(FEEDBACK)) == "a\nb\nc\n- d\ne"
    told = readable("analysis", json.dumps(ANALYSIS))
    assert told == "Loads the data.\n- Reads the file.\n- a\n- b\n- c\n- d"
    assert readable("poetry", json.dumps(FEEDBACK)) == ""


def test_a_draft_is_bounded() -> None:
    told = readable("feedback", json.dumps({"achieved": "word " * 40_000}))
    assert MOST_CHARS - 10 < len(told) <= MOST_CHARS
