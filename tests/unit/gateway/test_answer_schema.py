"""Schemas of other tools: definitions in place, the same answers valid, and none that grows without end."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from operator import methodcaller
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from app.gateway.answer_schema import read_schema
from app.gateway_requests.errors import Refused


class Level(Enum):
    low, high = "low", "high"


class Step(BaseModel):
    title: str
    level: Level = Field(description="how hard it is")
    minutes: int = Field(gt=0)


class Exam(BaseModel):
    kind: Literal["exam"]


class Review(BaseModel):
    kind: Literal["review"]
    by: Step | None


class Plan(BaseModel):
    steps: list[Step]
    end: Annotated[Exam | Review, Field(discriminator="kind")]


class Node(BaseModel):
    children: list[Node]


STEP = {"title": "read", "level": "low", "minutes": 3}
GOOD: list[Any] = [
    {"steps": [STEP, STEP], "end": {"kind": "review", "by": STEP}},
    {"steps": [], "end": {"kind": "review", "by": None}},
]
BAD: list[Any] = [
    {"steps": [{**STEP, "level": "middle"}], "end": {"kind": "exam"}},
    {"steps": [{**STEP, "minutes": 0}], "end": {"kind": "exam"}},
    {"steps": [], "end": {"kind": "review"}},
    {"steps": [], "end": {"kind": "other"}},
]


def sent_by_the_client(model: type[BaseModel]) -> dict[str, Any]:
    """What the official client's `parse` sends."""
    from openai.lib._parsing._completions import type_to_response_format_param

    sent: Any = type_to_response_format_param(model)
    return json.loads(json.dumps(sent["json_schema"]["schema"]))


@pytest.mark.parametrize("make", [sent_by_the_client, methodcaller("model_json_schema")])
def test_nested_models_of_the_official_client(make: Callable[[type[BaseModel]], dict[str, Any]]) -> None:
    schema = make(Plan)
    assert "$ref" in json.dumps(schema), "else this shows nothing"
    read = read_schema(schema)
    assert "$ref" not in json.dumps(read)
    assert "oneOf" not in json.dumps(read)
    valid = jsonschema.Draft202012Validator(read).is_valid
    assert [valid(answer) for answer in (*GOOD, *BAD)] == [True] * len(GOOD) + [False] * len(BAD)
    assert read["properties"]["steps"]["items"]["properties"]["level"]["description"] == "how hard it is"


def named(**definitions: Any) -> dict[str, Any]:
    return {"$defs": definitions, "$ref": "#/$defs/a"}


def at(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


MORE = {f"a{i}": {"anyOf": [at(f"a{i + 1}")] * 8} for i in range(1, 99)}
WIDE = {"anyOf": [{}] * 10_000}
REFUSED = {
    "a model in itself": (Node.model_json_schema(), "recursive"),
    "the whole in itself": ({"properties": {"a": {"$ref": "#"}}}, "recursive"),
    "one in the other": (named(a={"items": at("b")}, b={"anyOf": [at("a")]}), "recursive"),
    "more each time": (named(a=at("a1"), **MORE), "deep|longer"),
    "many times nothing": (named(a={"anyOf": [at("b")] * 10_000}, b=WIDE), "longer"),
    "many times much": (named(a={"anyOf": [at("b")] * 99}, b={"enum": ["x" * 999]}), "longer"),
    "of another file": ({"$ref": "https://example.org/schema.json"}, "no definition"),
    "of nothing": (named(b={}), "no definition"),
    "no name": ({"$ref": {"a": 1}}, "no definition"),
    "no definitions": ({"$defs": [], "type": "object"}, "wrong type"),
    "overlapping kinds": ({"oneOf": [{"type": "string"}]}, "'oneOf' is not supported"),
    "a pattern": ({"type": "string", "pattern": "(a+)+$"}, "'pattern' is not supported"),
    "a format": ({"type": "string", "format": "regex"}, "'format' must be one of"),
}


@pytest.mark.parametrize(("schema", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_put_in_place_is_said(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        read_schema(schema)
    assert refused.value.param == "response_format"


def test_a_model_in_itself_of_the_official_client() -> None:
    with pytest.raises(Refused, match="recursive"):
        read_schema(sent_by_the_client(Node))
