"""Parts of engines that need no connection: instances of schemas, lines of a stream, fingerprints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.errors import EngineBusy, EngineError, EngineGarbled, EngineUnreachable, JobInvalid, ModelMissing
from grading.jobs import AnalysisOutput, FeedbackOutput
from tests.servers.instances import answer_text
from workers.machine.engines.bounded import lines, status_error
from workers.machine.engines.instances import InstanceMaker
from workers.machine.engines.mlx_model import fingerprint


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


def test_a_test_server_quotes_the_hand_in_and_repeats_itself() -> None:
    schema = item({"quotes": {"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 1}})
    user = "One student's hand-in follows.\n+ 1| data <- read.csv('x.csv')\n"
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
