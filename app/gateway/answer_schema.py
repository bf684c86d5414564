"""Reads the JSON schema of an answer: without references, and only what every engine can follow.

References are put in place here, because not every engine that binds answers knows them. All bounds hold for
the schema as it is then: one of a few lines can stand for millions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.gateway_requests.errors import Refused

FIELD = "response_format"
MOST_SCHEMA = 20_000
"""Characters of a schema with its definitions in place."""
DEEPEST = 24
"""Levels of a schema: ten objects or lists inside each other, as OpenAI allows, with their keywords."""
MOST_COUNT = 10_000
"""What a bound on lengths may be: servers write grammars as long as that."""
COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
FORMATS = ("date", "time", "date-time", "uuid")
NESTING = ("properties", "items", "additionalProperties", "anyOf")
DEFINITIONS = ("$defs", "definitions")
PLAIN = frozenset(
    {
        *(
            "type",
            "required",
            "enum",
            "const",
            "format",
            "title",
            "description",
            "default",
            "$schema",
            "strict",
        ),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", *COUNTS, "$schema", "strict"),
    }
)
"""With `NESTING`, what all engines that bind answers understand."""
IGNORED = frozenset({"examples", "deprecated", "readOnly", "writeOnly", "$comment", "$id"})
"""What says nothing about an answer."""


def read_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definitions in place. Raises Refused."""
    definitions: dict[str, Any] = {}
    for name in DEFINITIONS:
        found = schema.get(name, {})
        if not isinstance(found, dict):
            raise _wrong_type(name)
        definitions |= {f"#/{name}/{key}": one for key, one in found.items()}
    resolved = _Resolver(definitions).resolve(schema, 0, ("#",))
    return resolved if isinstance(resolved, dict) else {}


@dataclass
class _Resolver:
    """Puts definitions in place. `left` is how many characters of the schema may still come."""

    definitions: dict[str, Any]
    left: int = field(default=MOST_SCHEMA)

    def resolve(self, schema: Any, depth: int, inside: tuple[str, ...]) -> Any:
        """A part of the schema; `inside` names the definitions that it is a part of."""
        _check_depth(depth)
        self._spend(0)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Refused("A schema must be a JSON object.", FIELD)
        schema = _plain_forms(schema)
        if "$ref" in schema:
            return self._put(schema, depth, inside)
        made = {}
        for key, value in schema.items():
            if key in IGNORED or (key in DEFINITIONS and depth == 0):
                continue
            self._spend(len(key))
            made[key] = self._value(key, value, depth, inside)
        return made

    def _put(self, schema: dict[str, Any], depth: int, inside: tuple[str, ...]) -> Any:
        """A definition in the place of its name; what stands beside the name counts more."""
        name = schema["$ref"]
        if name in inside:
            raise Refused(
                f"The schema is recursive: {name[:100]} contains itself. Use one without recursion.", FIELD
            )
        found = self.definitions.get(name) if isinstance(name, str) else None
        if found is None:
            raise Refused(f"The schema has no definition {str(name)[:100]!r}. Use #/$defs/NAME.", FIELD)
        beside = {key: value for key, value in schema.items() if key not in ("$ref", *DEFINITIONS)}
        if isinstance(found, dict):
            found = {**found, **beside}
        return self.resolve(found, depth + 1, (*inside, name))

    def _value(self, key: str, value: Any, depth: int, inside: tuple[str, ...]) -> Any:
        if key == "properties" and isinstance(value, dict):
            self._spend(sum(map(len, value)))
            return {name: self.resolve(part, depth + 1, inside) for name, part in value.items()}
        if key == "anyOf" and isinstance(value, list):
            return [self.resolve(part, depth + 1, inside) for part in value]
        if key in ("items", "additionalProperties"):
            return self.resolve(value, depth + 1, inside)
        if key in NESTING:
            raise _wrong_type(key)
        _check_plain(key, value, depth)
        self._spend(len(str(value)))
        return value

    def _spend(self, characters: int) -> None:
        self.left -= characters + 2
        if self.left < 0:
            raise Refused(
                f"The schema is longer than {MOST_SCHEMA} characters with its definitions in place.", FIELD
            )


def _plain_forms(schema: dict[str, Any]) -> dict[str, Any]:
    """Without two forms that Pydantic writes: `allOf` around one reference, and tagged unions as `oneOf`."""
    whole = schema.get("allOf")
    if isinstance(whole, list) and len(whole) == 1 and isinstance(whole[0], dict):
        schema = {**whole[0], **{key: value for key, value in schema.items() if key != "allOf"}}
    if "oneOf" in schema and "discriminator" in schema and "anyOf" not in schema:
        names = {"oneOf": "anyOf"}
        schema = {names.get(key, key): value for key, value in schema.items() if key != "discriminator"}
    return schema


def _check_plain(key: str, value: Any, depth: int) -> None:
    """Bounds and values."""
    if key not in PLAIN:
        raise Refused(f"The schema keyword {key[:100]!r} is not supported.", FIELD)
    if key in COUNTS and (type(value) is not int or not 0 <= value <= MOST_COUNT):
        raise Refused(f"The schema keyword {key!r} must be from 0 to {MOST_COUNT}.", FIELD)
    if key == "format" and value not in FORMATS:
        raise Refused(f"The schema keyword 'format' must be one of: {', '.join(FORMATS)}.", FIELD)
    check_depth(value, depth=depth + 1)


def check_depth(value: Any, field: str = FIELD, depth: int = 0) -> None:
    """Raise Refused for a value with more levels than engines can be trusted with."""
    _check_depth(depth, field)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        check_depth(part, field, depth + 1)


def _check_depth(depth: int, field: str = FIELD) -> None:
    if depth > DEEPEST:
        raise Refused(f"{field} is nested more than {DEEPEST} levels deep.", field)


def _wrong_type(key: str) -> Refused:
    return Refused(f"The schema keyword {key!r} has a value of the wrong type.", FIELD)
