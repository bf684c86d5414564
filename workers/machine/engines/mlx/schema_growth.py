"""By how much the shortest ending of an answer can grow while it is written, read off its schema.

What is not known here (`$ref`, `patternProperties`, values of any type) counts as a short value: such an
answer is closed in time as long as nothing of that kind nests deeply.
"""

from __future__ import annotations

import json
from typing import Any

GUARD = 12
"""Bytes that the rest of a character or an escape inside a text has at most, with room to spare."""


def rise(schema: dict[str, Any]) -> int:
    """Bytes by which the shortest ending can become longer while an answer is written, at most."""
    if "properties" in schema:
        return 2 + max((rise(part) for part in schema["properties"].values()), default=0)
    if "items" in schema:
        return 2 + _most(schema["items"])
    return max([_most(schema), *(rise(part) for part in _variants(schema))])


def _most(schema: dict[str, Any]) -> int:
    """Bytes of the longest shortest ending of a value that was begun somehow."""
    if "properties" in schema:
        tail, most = 1, _least(schema)
        for name, part in reversed(schema["properties"].items()):
            most = max(most, _said(name) + 2 + _most(part) + tail)
            tail += _said(name) + 2 + _least(part) if name in schema.get("required", ()) else 0
        return most
    if "items" in schema:
        return 2 + _most(schema["items"]) + _fewest(schema) * (1 + _least(schema["items"]))
    if "enum" in schema or "const" in schema:
        return max(_said(value) for value in schema.get("enum", [schema.get("const")]))
    digits = [_said(schema[key]) for key in ("minimum", "maximum") if key in schema]
    parts = [_most(part) for part in _variants(schema)]
    return max([GUARD + 2 + int(schema.get("minLength", 0)), *digits, *parts])


def _least(schema: dict[str, Any]) -> int:
    """Bytes of the value that an ending gives, at most."""
    if "properties" in schema:
        required = [n for n in schema["properties"] if n in schema.get("required", ())]
        return 2 + sum(_said(n) + 2 + _least(schema["properties"][n]) for n in required)
    if "items" in schema:
        return 2 + _fewest(schema) * (1 + _least(schema["items"]))
    return _most(schema)


def _fewest(schema: dict[str, Any]) -> int:
    return int(schema.get("minItems", 0))


def _variants(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, [])]


def _said(value: Any) -> int:
    """Bytes of a value as JSON, in the longer of its two spellings."""
    return max(len(json.dumps(value)), len(json.dumps(value, ensure_ascii=False).encode()))
