"""Parts of engines that need no connection: instances, lines, thoughts, sizes, schemas, fingerprints."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.domain.errors import (
    ConfigError,
    EngineBusy,
    EngineError,
    EngineGarbled,
    EngineUnreachable,
    JobInvalid,
    ModelMissing,
)
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from tests.support.engines import ask
from tests.support.servers.instances import answer_text
from workers.machine.engines import open_engine
from workers.machine.engines.http.answer import ThoughtFilter, lines
from workers.machine.engines.http.errors import reason, status_error
from workers.machine.engines.instant import InstanceMaker
from workers.machine.engines.mlx.model import fingerprint
from workers.machine.engines.openai import schema_support as openai_schemas
from workers.machine.engines.openai.schema_support import ODD, Schemas, SchemaSupport, judge
from workers.machine.engines.token_estimates import Sizes, careful


def item(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


LEVEL = {"type": "integer", "minimum": 0, "maximum": 4}
SCHEMAS: list[tuple[dict[str, Any], Any]] = [
    (item({"level": LEVEL}), {"level": 2}),
    ({"type": "array", "items": LEVEL, "maxItems": 3}, []),
    ({"type": "string", "minLength": 3}, "xxx"),
    ({"type": ["string", "null"]}, None),
    ({"enum": [0, 1, 2, 3]}, 1),
    ({"anyOf": [{"const": "a"}, {"const": "b"}]}, "a"),
    ({"$ref": "#/$defs/L", "$defs": {"L": LEVEL}}, 2),
    (
        {"type": "array", "items": item({"criterion": {"enum": ["a", "b"]}, "level": LEVEL})},
        [{"criterion": "a", "level": 2}, {"criterion": "b", "level": 2}],
    ),
]


@pytest.mark.parametrize(("schema", "expected"), SCHEMAS)
def test_the_smallest_instance(schema: dict[str, Any], expected: Any) -> None:
    made = InstanceMaker(schema).make()
    assert made == expected
    jsonschema.validate(made, schema)


@pytest.mark.parametrize("model", [AnalysisOutput, FeedbackOutput])
def test_instances_of_the_domain_are_valid(model: type[AnalysisOutput] | type[FeedbackOutput]) -> None:
    schema = model.model_json_schema()
    model.model_validate(InstanceMaker(schema).make())
    model.model_validate_json(answer_text(schema, "system", "+ 1| data <- read.csv('x.csv')"))


def test_a_schema_that_never_ends_is_refused() -> None:
    endless = {"$ref": "#/$defs/N", "$defs": {"N": item({"next": {"$ref": "#/$defs/N"}})}}
    with pytest.raises(ValueError, match="too deeply"):
        InstanceMaker(endless).make()
    with pytest.raises(ValueError, match="circle"):
        InstanceMaker({"$ref": "#"}).make()


def test_a_test_server_quotes_the_submission_and_repeats_itself() -> None:
    schema = item({"quotes": {"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 1}})
    user = "One student's submission follows.\n+ 1| data <- read.csv('x.csv')\n"
    assert answer_text(schema, "s", user) == '{"quotes": ["data <- read.csv(\'x.csv\')"]}'
    assert answer_text(schema, "s", user) == answer_text(schema, "s", user)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_lines_do_not_depend_on_how_bytes_arrive(body: bytes, size: int) -> None:
    pieces = (body[i : i + size] for i in range(0, len(body), size))
    whole = body.split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    assert list(lines(pieces)) == [line.rstrip(b"\r") for line in expected]


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (404, "", ModelMissing),
        (503, "full", EngineBusy),
        (429, "", EngineBusy),
        (400, "maximum context length is 4096", JobInvalid),
        (400, "bad", EngineError),
        (401, "", EngineError),
        (302, "", EngineGarbled),
        (502, "<html><title>Bad Gateway</title>", EngineUnreachable),
    ],
)
def test_every_status_has_its_error(status: int, text: str, kind: type[EngineError]) -> None:
    assert type(status_error("The server", status, text, "missing")) is kind


def test_a_fingerprint_follows_names_and_contents(tmp_path: Path) -> None:
    for name in ("one", "same", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "same" / "README.md").write_text("not part of the model")
    (tmp_path / "other" / "model.safetensors").write_bytes(b"heights")
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "same")
    assert fingerprint(tmp_path / "one") != fingerprint(tmp_path / "other")


# --- thoughts inside the text ---------------------------------------------------------------------------

ANSWER = '{"quote": "</think> <think> <|end|>"}'
HARMONY = "<|channel|>analysis<|message|>Hm, {a}.<|end|><|start|>assistant<|channel|>final<|message|>"
WITH_THOUGHTS = [
    (ANSWER, ANSWER),
    (f"\n {ANSWER}", f"\n {ANSWER}"),
    (f"<think>\nHm, {{a}}.\n</think>\n\n{ANSWER}", ANSWER),
    (f"<thinking>Hm.</thinking>{ANSWER}", ANSWER),
    (f"Hm, I see.\n</think>\n\n{ANSWER}", ANSWER),  # the template opened the block
    ("Hm, I see.", "Hm, I see."),
    ("<think>Hm", ""),
    ("<thi", "<thi"),
    ("<table>", "<table>"),
    (HARMONY + '{"a": "1 < 2"}<|return|>', '{"a": "1 < 2"}'),
    (HARMONY + '{"a": 1}', '{"a": 1}'),
    (HARMONY + '{"a": "1 <2"}', '{"a": "1 <2"}'),  # ends without a mark, with what looks like one
    (HARMONY + '{"a": "x"}<|ret', '{"a": "x"}<|ret'),
    ("<|channel|>analysis<|message|>Hm <b", ""),
    ("<|channel|>analysis<|message|>Hm.", ""),
    ("", ""),
]


@pytest.mark.parametrize(("said", "text"), WITH_THOUGHTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_thoughts_are_set_apart_however_they_arrive(said: str, text: str, size: int) -> None:
    only = ThoughtFilter()
    shown = ""
    for at in range(0, len(said), size):
        shown += only.add(said[at : at + size])
        assert text.startswith(shown)  # no draft ever shows a thought
    assert shown + only.rest() == text


@given(st.text(max_size=60), st.integers(1, 9))
def test_text_that_begins_like_json_is_never_touched(rest: str, size: int) -> None:
    said = "{" + rest
    only = ThoughtFilter()
    assert "".join(only.add(said[at : at + size]) for at in range(0, len(said), size)) == said


# --- sizes, patience, schemas ----------------------------------------------------------------------------


def test_an_estimate_learns_from_counts_and_stays_above_the_densest() -> None:
    sizes = Sizes()
    text = "some words of a text " * 100
    first = sizes.tokens("m", text)
    sizes.learn("m", text, 450)
    assert 450 < sizes.tokens("m", text) < first
    sizes.learn("m", text, 600)
    sizes.learn("m", text, 450)
    assert sizes.tokens("m", text) > 600  # the densest of late counts
    assert sizes.tokens("other", text) == first


def test_a_count_of_what_was_not_cached_is_no_count_of_the_prompt() -> None:
    sizes = Sizes()
    text = "some words of a text " * 100
    first = sizes.tokens("m", text)
    sizes.learn("m", text, 12)
    assert sizes.tokens("m", text) == first


@pytest.mark.parametrize(
    "text", ["1234567890" * 50, "數據" * 100, "x[1]<-y$a;" * 40, "the height of it " * 40]
)
def test_a_careful_size_is_not_below_that_of_a_small_tokenizer(text: str) -> None:
    """Of digits one by one, signs mostly one by one, words of three letters and more."""
    pieces = re.findall(r"\d|[^\W\d_]{1,4}|\s*[^\w\s]{1,2}|\s+", text)
    foreign = sum(len(piece) for piece in pieces if not piece.isascii())
    assert careful(text) >= 0.8 * max(foreign, len([p for p in pieces if p.strip()]))


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ('{"zk7":"quokka-41"}', SchemaSupport.BOUND),
        ('{ "zk7": "quo', SchemaSupport.BOUND),
        ("{", SchemaSupport.UNPROVED),
        ("", SchemaSupport.UNPROVED),
        ("The sky is blue.", SchemaSupport.IGNORED),
        ('{"answer": "blue"}', SchemaSupport.IGNORED),
        ("```json\n{", SchemaSupport.IGNORED),
    ],
)
def test_what_an_answer_to_the_odd_question_says(answer: str, form: SchemaSupport) -> None:
    assert judge(answer) is form


def test_the_odd_question_has_one_answer() -> None:
    assert InstanceMaker(ODD).make() == {"zk7": "quokka-41"}


def test_what_is_known_of_a_model_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    schemas = Schemas("auto")

    def look() -> SchemaSupport:
        looks.append(1)
        return SchemaSupport.BOUND

    for _ in range(3):
        assert schemas.form(ask(), look) is SchemaSupport.BOUND
    assert len(looks) == 1
    monkeypatch.setattr(openai_schemas, "REMEMBER_S", -1.0)
    schemas.learn("tiny", SchemaSupport.BOUND)
    assert schemas.form(ask(), look) is SchemaSupport.BOUND
    assert len(looks) == 2


def test_looks_take_at_most_so_long_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(openai_schemas, "time", SimpleNamespace(monotonic=lambda: now[0]))
    schemas, looks = Schemas("auto"), []

    def look() -> SchemaSupport:
        looks.append(now[0])
        now[0] += 8.0
        return SchemaSupport.UNPROVED

    while now[0] < 2 * 86_400:
        assert schemas.form(ask(), look) is SchemaSupport.UNPROVED
        now[0] += 301.0
    # each day as many as fit, and the last one that begins within it
    days = [sum(day * 86_400 <= at < (day + 1) * 86_400 for at in looks) for day in (0, 1)]
    assert days == [8, 8]


def test_two_at_a_first_use_ask_once() -> None:
    schemas = Schemas("auto")
    inner: list[SchemaSupport] = []

    def look() -> SchemaSupport:
        inner.append(schemas.form(ask(), pytest.fail))  # another caller meanwhile does not wait
        return SchemaSupport.BOUND

    assert schemas.form(ask(), look) is SchemaSupport.BOUND
    assert inner == [SchemaSupport.UNPROVED]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "out of\\n memory"}}', "out of memory"),
        ('{"error": "no"}', "no"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("{broken", "{broken"),
        ("<html><title>Bad &amp; Gateway</title>", "Bad & Gateway"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_reason_in_a_body(body: str, said: str) -> None:
    assert reason(body) == said


def test_unknown_engines_and_settings_are_named() -> None:
    with pytest.raises(
        ConfigError, match=r"engines\.gpt: there is no such engine here; use one of hybrid, instant, mlx"
    ):
        open_engine("gpt", {})
    with pytest.raises(ConfigError, match=r"engines\.ollama\.urll"):
        open_engine("ollama", {"urll": "http://127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"engines\.ollama\.url: is missing"):
        open_engine("ollama", {})
    with pytest.raises(ConfigError, match="GRADER_ABSENT_KEY"):
        open_engine("openai", {"url": "http://127.0.0.1:1/v1", "api_key_env": "GRADER_ABSENT_KEY"})
    with pytest.raises(ConfigError, match=r"engines\.openai\.schema"):
        open_engine("openai", {"url": "http://127.0.0.1:1/v1", "schema": "yes"})
