"""Examples of requests and answers, assembled from the `examples` of fields."""

from __future__ import annotations

from typing import Any

MOMENT = "2026-11-26T09:30:00Z"
STAGE = "analysis"
"""The key of objects that have one value for each stage."""


class NoExample(LookupError):
    """A field of a text or a number has no example; the message names it."""


def example_of(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """What the schema declares as an example, or a value made of those of its parts. Raises NoExample."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if "enum" in schema or "anyOf" in schema:
        return schema["enum"][0] if "enum" in schema else example_of(schema["anyOf"][0], definitions)
    return _by_type(schema, definitions)


def _by_type(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return {STAGE: example_of(schema["additionalProperties"], definitions)}
    if kind == "object":
        return _object(schema, definitions)
    if kind == "array":
        return [example_of(schema["items"], definitions)]
    if kind == "boolean":
        return True
    if schema.get("format") == "date-time":
        return MOMENT
    raise NoExample


def _object(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """With what it needs, and what is worth an example."""
    needed, made = schema.get("required", ()), {}
    for name, field in schema.get("properties", {}).items():
        if name not in needed and "examples" not in field:
            continue
        try:
            made[name] = example_of(field, definitions)
        except NoExample as error:
            raise error if error.args else NoExample(f"{schema['title']}.{name}") from None
    return made
