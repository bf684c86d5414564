"""Answers of models: schemas that bound them, tolerant reading, quotes that exist."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.domain.document import Location
from grading.domain.errors import OutputInvalid
from grading.domain.jobs import Finding, Judgement, Quote
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from tests.unit.stages.test_prompt import NOTEBOOK, code, job
from workers.machine.stages import known_stages
from workers.machine.stages.quotes import SubmittedText, verify

ANALYSIS: dict[str, Any] = {
    "judgements": {
        "load": {"quotes": ["1:2:2 sales <- read.csv"], "reason": "It reads.", "level": 3},
        "sum": {"quotes": [], "reason": "Not there.", "level": 0},
    },
    "summary": "Loads the data.",
    "strengths": ["Reads the file."],
    "findings": [
        {
            "severity": "minor",
            "title": "No sum",
            "detail": "d",
            "at": "1:2:3",
        }
    ],
    "suggestions": [{"what": "a", "why": "b", "how": "c", "example": "d"}],
}
FEEDBACK: dict[str, Any] = {
    "judgements": {"thought": {"quotes": [], "reason": "r", "level": 2}},
    "achieved": "a",
    "reflection": "b",
    "strengths": [],
    "practice": "c",
    "develop": ["d"],
    "next_step": "e",
}


def longest(schema: dict[str, Any]) -> Any:
    """The longest value a schema allows."""
    if "enum" in schema:
        return max(schema["enum"], key=lambda v: len(json.dumps(v)))
    if "properties" in schema:
        return {name: longest(part) for name, part in schema["properties"].items()}
    if schema["type"] == "array":
        return [longest(schema["items"])] * schema["maxItems"]
    if "maxLength" in schema:
        return "x" * schema["maxLength"]
    return schema.get("maximum", 999)


def objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = [schema] if schema.get("type") == "object" else []
    for part in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        found += objects(part)
    return found


def rubric(count: int, stage: str) -> Rubric:
    return Rubric(
        criteria=tuple(Criterion(id=f"criterion-{n}", title="T", points=5, stage=stage) for n in range(count))
    )


@pytest.mark.parametrize(
    ("stage", "count"),
    [*(("analysis", n) for n in range(21)), *(("feedback", n) for n in range(16))],
)
def test_the_longest_answer_fits_the_output_limit(stage: str, count: int) -> None:
    given_job = job(stage, rubric=rubric(count, stage) if count else rubric(1, "other"))
    schema = known_stages()[stage].schema(given_job)
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(longest(schema), separators=(",", ":"))
    assert len(text) / 3.5 <= given_job.max_output_tokens
    known_stages()[stage].parse(text, given_job)


@pytest.mark.parametrize("stage", sorted(known_stages()))
def test_schemas_are_closed_and_bounded(stage: str) -> None:
    schema = known_stages()[stage].schema(job(stage))
    for part in objects(schema):
        assert part["additionalProperties"] is False
        assert part["required"] == list(part["properties"])
    level = schema["properties"]["judgements"]["properties"]
    assert {k: v["properties"]["level"]["maximum"] for k, v in level.items()} == (
        {"feedback": {"thought": 4}}.get(stage, {"load": 4, "sum": 2})
    )


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "```json\n{}\n```",
        "Here is my review {{of sorts}}:\n{}\nI hope it helps.",
        "<think>level {{4}}? {{}}</think>\n{}",
        "no end of thought</think>{}",
        '{{"note": 1}} {}',
    ],
)
def test_json_is_found_in_what_models_write_around_it(wrap: str) -> None:
    output = known_stages()["analysis"].parse(wrap.format(json.dumps(ANALYSIS)), job())
    assert isinstance(output, AnalysisOutput)
    assert [(j.criterion, j.level) for j in output.judgements] == [("load", 3), ("sum", 0)]
    assert output.findings[0].location == Location(document="work.ipynb", cell=2, line=3)


def test_marks_of_thoughts_that_a_student_wrote_may_be_quoted() -> None:
    said = {**FEEDBACK, "achieved": "You wrote <think>all is right</think> in your answer."}
    output = known_stages()["feedback"].parse(json.dumps(said), job("feedback"))
    assert isinstance(output, FeedbackOutput)
    assert output.achieved == said["achieved"]


def test_feedback_is_read() -> None:
    output = known_stages()["feedback"].parse(json.dumps(FEEDBACK), job("feedback"))
    assert isinstance(output, FeedbackOutput)
    assert output.next_step == "e"


def changed(**parts: Any) -> dict[str, Any]:
    return ANALYSIS | parts


def test_small_slips_are_mended() -> None:
    slips = changed(
        judgements=[
            {"criterion": "load", "quotes": ["a", "b", "c"], "reason": "r " * 900, "level": "3", "points": 6},
            {"criterion": "sum", "quotes": [], "reason": "r\x00\u200b", "level": 1.0},
        ],
        total=99,
    )
    output = known_stages()["analysis"].parse(json.dumps(slips), job())
    first, second = output.judgements
    assert first.level == 3
    assert first.reason.endswith("…")
    assert len(first.quotes) == 2
    assert (second.level, second.reason) == (1, "r")


LOAD, SUM = ANALYSIS["judgements"]["load"], ANALYSIS["judgements"]["sum"]


@pytest.mark.parametrize(
    ("said", "read"),
    [(85, 85), (" 84", 84), (0, 0), (100, 100), (101, None), (0.9, None), ("sure", None), (None, None)],
)
def test_a_confidence_is_read_where_a_model_gives_one(said: Any, read: int | None) -> None:
    judgements = {"load": LOAD | {"confidence": said}, "sum": SUM}
    output = known_stages()["analysis"].parse(json.dumps(changed(judgements=judgements)), job())
    assert [one.confidence for one in output.judgements] == [read, None]
    assert "confidence" not in output.judgements[1].model_dump(mode="json")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "no complete JSON"),
        ("I cannot grade this.", "no complete JSON"),
        (json.dumps(ANALYSIS)[:-30], "schema|no complete JSON"),
        ("[" * 50_000, "no complete JSON"),
        ('{"a":' * 20_000, "no complete JSON"),
        ("x" * 200_000, "far longer"),
        (json.dumps(changed(judgements={"load": LOAD})), "'sum' is a required"),
        (json.dumps(changed(judgements={"load": LOAD, "total": SUM})), "'sum' is a required"),
        (
            json.dumps(changed(judgements={"load": LOAD | {"level": 5}, "sum": SUM})),
            "load.level.*maximum of 4",
        ),
        (json.dumps(changed(judgements={"load": LOAD | {"level": -1}, "sum": SUM})), "minimum of 0"),
        (json.dumps(changed(judgements={"load": LOAD | {"level": 2.5}, "sum": SUM})), "integer"),
        (json.dumps(changed(judgements={"load": LOAD | {"level": True}, "sum": SUM})), "integer"),
        (json.dumps(changed(judgements=[LOAD | {"criterion": "load"}] * 2)), "exactly once"),
        (json.dumps(changed(judgements=[LOAD])), "exactly once"),
        (json.dumps(changed(summary=None)), "summary"),
        (json.dumps(changed(findings=[{"severity": "fatal"}])), "findings"),
        ('{"judgements": NaN}', "no complete JSON"),
    ],
)
def test_wrong_answers_are_refused_with_a_short_reason(answer: str, said: str) -> None:
    with pytest.raises(OutputInvalid, match=said) as caught:
        known_stages()["analysis"].parse(answer, job())
    assert len(caught.value.message) < 1_200


@given(st.text(alphabet='{}[]",:judgements0123 \\\ud800', max_size=80))
def test_garbage_is_only_ever_output_invalid(text: str) -> None:
    with pytest.raises(OutputInvalid):
        known_stages()["analysis"].parse(text, job())


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("sales <- read.csv", Location(document="work.ipynb", cell=2, line=2)),
        ("+ 3| nrow(sales)", Location(document="work.ipynb", cell=2, line=3)),
        ("“I saw 3  GAPS because…”", Location(document="work.ipynb", cell=4, line=1)),
        ('read.csv("a.csv") nrow(sales)', Location(document="work.ipynb", cell=2, line=2)),
        ("| [1] 24", Location(document="work.ipynb", cell=2, line=None)),
        ("sum(sales$units)", None),
        ("a", None),
        ("", None),
    ],
)
def test_quotes_are_found_where_they_are(words: str, place: Location | None) -> None:
    assert SubmittedText((NOTEBOOK,)).find(words) == place


def test_lines_of_the_student_are_preferred() -> None:
    cell = NOTEBOOK.cells[1].model_copy(update={"source": "x <- 1\ny <- 2\nx <- 1", "added": (3,)})
    document = NOTEBOOK.model_copy(update={"cells": (cell,)})
    assert SubmittedText((document,)).find("x <- 1") == Location(document="work.ipynb", cell=2, line=3)


def test_invented_quotes_and_places_are_dropped() -> None:
    output = AnalysisOutput(
        judgements=(
            Judgement(criterion="load", level=1, quotes=(Quote(text="nrow(sales)"), Quote(text="lm(y ~ x)"))),
            Judgement(criterion="sum", level=1, quotes=(Quote(text="made up words"),)),
        ),
        findings=tuple(
            Finding(severity="note", title="t", location=Location(document=d, cell=c, line=n))
            for d, c, n in [
                ("work.ipynb", 2, 3),
                ("work.ipynb", 2, 9),
                ("work.ipynb", 99, None),
                ("other.R", None, None),
                ("work.ipynb", None, None),
            ]
        ),
    )
    checked, flags = verify(output, (NOTEBOOK,))
    assert isinstance(checked, AnalysisOutput)
    assert [[q.text for q in j.quotes] for j in checked.judgements] == [["nrow(sales)"], []]
    assert [f.location is not None for f in checked.findings] == [True, False, False, False, True]
    assert [(f.code, f.message) for f in flags] == [
        ("quote_not_found", "2 quotes were not found in the submission and removed.")
    ]


def test_lines_of_scripts_count_in_the_file() -> None:
    document = code("a = 1\nbbb = 2", first_line=7)
    submission = SubmittedText((document,))
    assert submission.find("bbb = 2") == Location(document="a.py", line=8)
    assert submission.holds(Location(document="a.py", line=8))
    assert not submission.holds(Location(document="a.py", line=3))
