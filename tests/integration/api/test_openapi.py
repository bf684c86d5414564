"""The OpenAPI document: valid, described to the last field, with examples that hold."""

from __future__ import annotations

import copy
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from app.api import blueprint, openapi
from app.api.examples import NoExample, example_of
from app.api.routes import ROUTES
from grading.integrations import events
from tests.integration.webapp import School

assert blueprint.RESOURCES  # they fill the table of routes
WHOLE = openapi.document()
METHODS = frozenset({"get", "post", "put", "patch", "delete"})


def operations(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section in ("paths", "webhooks"):
        for path, methods in whole[section].items():
            for method, operation in methods.items():
                assert method in METHODS
                yield f"{method} {path}", operation


def bodies(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is sent, and what is answered with success."""
    yield from operation.get("requestBody", {}).get("content", {}).values()
    for status, response in operation["responses"].items():
        if status < "300":
            yield from response.get("content", {}).values()


def fields(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of every schema in it, by its place."""
    if isinstance(value, list):
        for one in value:
            yield from fields(place, one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == "properties" and isinstance(one, dict):
                yield from ((f"{place}.{field}", schema) for field, schema in one.items())
            if name not in ("example", "examples", "default"):
                yield from fields(f"{place}.{name}", one)


def undescribed(whole: dict[str, Any]) -> list[str]:
    found = [place for place, field in fields("", whole["components"]) if not field.get("description")]
    for kind in ("schemas", "headers"):
        found += [name for name, one in whole["components"][kind].items() if not one.get("description")]
    for place, operation in operations(whole):
        named = [(f"{place} {one['name']}", one) for one in operation.get("parameters", ())]
        named += [(f"{place} {status}", one) for status, one in operation["responses"].items()]
        found += [name for name, one in [*named, (place, {"description": operation["summary"]})]
                  if not one.get("description")]  # fmt: skip
    return found


def fits(schema: dict[str, Any], value: Any) -> None:
    validator = Draft202012Validator({**schema, "components": WHOLE["components"]})
    validator.validate(value)


def test_the_document_is_valid() -> None:
    from openapi_spec_validator import validate

    validate(WHOLE)


def test_everything_is_described() -> None:
    assert undescribed(WHOLE) == []


def test_what_is_not_described_is_named() -> None:
    whole = copy.deepcopy(WHOLE)
    del whole["components"]["schemas"]["Course"]["properties"]["title"]["description"]
    del whole["paths"]["/api/v1/courses"]["get"]["parameters"][0]["description"]
    assert undescribed(whole) == [".schemas.Course.title", "get /api/v1/courses limit"]


def test_names_of_operations_are_names_in_programs() -> None:
    names = [operation["operationId"] for _, operation in operations(WHOLE)]
    assert len(names) == len(set(names)) == len(ROUTES) + 1 + len(events.EVENTS)
    assert [name for name in names if not name.isidentifier() or keyword.iskeyword(name)] == []


def test_every_operation_has_examples_that_fit() -> None:
    files = {route.name for route in ROUTES if route.file}
    for place, operation in operations(WHOLE):
        whole = list(bodies(operation))
        if operation["operationId"] not in {*files, "description"}:
            assert all("example" in one for one in whole), place
        arguments = [one for one in operation.get("parameters", ()) if one["in"] == "path"]
        assert whole or arguments, place
        assert all("example" in one for one in arguments), place
        for one in (*whole, *arguments):
            if "example" in one:
                fits(one["schema"], one["example"])


def test_a_field_without_an_example_is_named() -> None:
    class Inner(BaseModel):
        title: str

    class Outer(BaseModel):
        inner: Inner

    schema = Outer.model_json_schema()
    with pytest.raises(NoExample, match=re.escape("Inner.title")):
        example_of(schema, schema["$defs"])


def test_examples_of_requests_are_taken() -> None:
    for route in ROUTES:
        if route.body:
            path = WHOLE["paths"][openapi.path_of(route)][route.method.lower()]
            route.body.model_validate(path["requestBody"]["content"]["application/json"]["example"])


def test_files_are_described_as_what_they_are() -> None:
    found = {}
    for _, operation in operations(WHOLE):
        content = operation["responses"].get("200", {}).get("content", {})
        found |= {kind: one["schema"] for kind, one in content.items() if kind != "application/json"}
    binary = {"type": "string", "format": "binary"}
    assert found == {
        "text/csv": {"type": "string"},
        "application/zip": binary,
        "application/octet-stream": binary,
    }


def test_events_are_described_with_their_headers() -> None:
    assert set(WHOLE["webhooks"]) == set(events.EVENTS)
    for kind, methods in WHOLE["webhooks"].items():
        names = [one["name"] for one in methods["post"]["parameters"]]
        assert names == ["webhook-id", "webhook-timestamp", "webhook-signature"]
        (body,) = bodies(methods["post"])
        fits(body["schema"], body["example"])
        assert body["example"]["type"] == kind
        with pytest.raises(Exception, match="was expected"):
            fits(body["schema"], {**body["example"], "type": "submission.created"})


def test_a_problem_has_the_fields_that_are_described(tmp_path: Path) -> None:
    school = School(tmp_path)
    answer = school.app.test_client().get("/api/v1/courses/99", headers=school.token("teacher", "read"))
    school.close()
    schema = WHOLE["components"]["schemas"]["Problem"]
    assert answer.status_code == 404
    assert set(answer.get_json()) == set(schema["properties"])
    fits(schema, answer.get_json())
