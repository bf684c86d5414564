"""Schemas whose longest answer fits the output limit, and the tolerant way back from text to values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jsonschema

from grading.domain.errors import OutputInvalid
from grading.domain.jobs import Job
from workers.machine.messages import ANSWER_TOO_LONG, CRITERION_TWICE, NO_OBJECT, OTHER_SCHEMA
from workers.machine.sanitize import clip, visible

Schema = dict[str, Any]

_OUTPUT_CHARS_PER_TOKEN = 3.5
_FRAME = 67
"""Characters of JSON around one judgement beside its id and texts."""
_MAY_LACK = frozenset({"confidence"})
"""What models are asked for and an answer is not refused for: a grade is worth more than how sure it is."""
_LONGEST_ANSWER = 100_000
_MOST_STARTS = 40
_SHOWN: Mapping[str, Any] = MappingProxyType({"quotes": ["1:3:12 …"], "at": "1:3:12"})
"""How the shape shows what begins with a place."""
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True)
class Sizes:
    """How long the parts of an answer may be, in characters and items, for one rubric and output limit."""

    reason: int
    quote: int
    quotes: int
    scale: float
    """Factor for everything beside the judgements, at most 1."""

    def chars(self, full: int) -> int:
        """Length of a text that has `full` characters where there is room."""
        return max(40, int(full * self.scale) // 10 * 10)

    def items(self, full: int) -> int:
        """Length of a list that has `full` items where there is room."""
        return max(1, round(full * min(1.0, self.scale + 0.15)))


def sizes(job: Job, full: int) -> Sizes:
    """Share out the job's output limit: up to half for judgements, the rest for `full` characters of text."""
    budget = job.max_output_tokens * _OUTPUT_CHARS_PER_TOKEN
    criteria = job.rubric.of_stage(job.stage)
    names = sum(len(c.id) for c in criteria)
    count = max(1, len(criteria))
    each = (budget / 2 - names) / count - _FRAME
    each = min(400.0, max(80.0, each))
    left = budget - count * (each + _FRAME) - names
    quotes = 2 if each * 0.4 >= 160 else 1
    quote = min(160, max(40, int(each * 0.4 / quotes)))
    reason = max(40, int(each) - quotes * quote)
    return Sizes(reason=reason, quote=quote, quotes=quotes, scale=min(1.0, max(0.25, left / full)))


def text(limit: int) -> Schema:
    """A string of at most `limit` characters."""
    return {"type": "string", "maxLength": limit}


def many(item: Schema, most: int) -> Schema:
    """A list of at most `most` items."""
    return {"type": "array", "items": item, "maxItems": most}


def record(properties: dict[str, Schema]) -> Schema:
    """An object with exactly these properties, in this order."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def judgements(job: Job, size: Sizes) -> Schema:
    """One property a criterion, so that the schema itself holds each exactly once and its level in range."""
    return record(
        {
            criterion.id: record(
                {
                    "quotes": many(text(size.quote), size.quotes),
                    "reason": text(size.reason),
                    "level": {"type": "integer", "minimum": 0, "maximum": criterion.highest},
                    # after the level: it is of that very level
                    "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
                }
            )
            for criterion in job.rubric.of_stage(job.stage)
        }
    )


def skeleton(schema: Schema) -> Any:
    """An example of the shape, the same for all students: texts as dots, levels as 0."""
    if "properties" in schema:
        return {name: _SHOWN.get(name, skeleton(part)) for name, part in schema["properties"].items()}
    if "items" in schema:
        return [skeleton(schema["items"])]
    if "enum" in schema:
        return "|".join(schema["enum"])
    return 0 if schema["type"] == "integer" else "…"


def read_answer(answer: str, schema: Schema) -> dict[str, Any]:
    """The JSON object in a model's answer, trimmed to the schema; OutputInvalid says what is wrong."""
    found = _first_object(answer, frozenset(schema["properties"]))
    value = _trim(_by_criterion(found), schema)
    validator = jsonschema.Draft202012Validator(_tolerant(schema))
    errors = sorted(validator.iter_errors(value), key=lambda e: e.json_path)
    if errors:
        said = "; ".join(f"{error.json_path}: {clip(error.message, 120)}" for error in errors[:6])
        more = f"; and {len(errors) - 6} more" if len(errors) > 6 else ""
        raise OutputInvalid(OTHER_SCHEMA(faults=f"{said}{more}"))
    return dict(value)


def _tolerant(schema: Schema) -> Schema:
    """The same schema for an answer that may lack `_MAY_LACK`."""
    if "properties" not in schema:
        return schema
    return {
        **schema,
        "properties": {name: _tolerant(part) for name, part in schema["properties"].items()},
        "required": [name for name in schema["required"] if name not in _MAY_LACK],
    }


def _first_object(answer: str, keys: frozenset[str]) -> dict[str, Any]:
    """The first JSON object that shares a key with the schema, after thoughts, prose and code fences."""
    if len(answer) > _LONGEST_ANSWER:
        raise OutputInvalid(ANSWER_TOO_LONG)
    body = answer
    # an answer that begins with its object has no thoughts before it, but may quote such a mark
    if not answer.lstrip().startswith(("{", "```")):
        body = _THOUGHTS.sub("", answer).rpartition("</think>")[2]
    fallback: dict[str, Any] | None = None
    for value in _objects(body):
        if keys & value.keys():
            return value
        fallback = value if fallback is None else fallback
    broken = _broken(body)
    if fallback is None or broken:
        raise OutputInvalid(NO_OBJECT(where=broken))
    return fallback


def _broken(body: str) -> str:
    """Where an object that begins the answer stops being JSON, for the model that has to mend it."""
    text = body.strip().removeprefix("```json").lstrip("`\n ")
    if not text.startswith("{"):
        return ""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f": {error.msg.lower()} after {text[max(0, error.pos - 30) : error.pos]!r}"
    except (ValueError, RecursionError):
        pass
    return ""


def _objects(body: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = body.find("{")
    for _ in range(_MOST_STARTS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(body, at)
        except (ValueError, RecursionError):
            at = body.find("{", at + 1)
            continue
        if isinstance(value, dict):
            yield value
        at = body.find("{", end)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _by_criterion(value: dict[str, Any]) -> dict[str, Any]:
    """Accept judgements given as a list of objects with a `criterion`, unless one comes twice."""
    given = value.get("judgements")
    if not isinstance(given, list):
        return value
    named = [g for g in given if isinstance(g, dict) and isinstance(g.get("criterion"), str)]
    ids = [g["criterion"] for g in named]
    if len(named) != len(given) or len(set(ids)) != len(ids):
        raise OutputInvalid(CRITERION_TWICE)
    return {**value, "judgements": {g["criterion"]: g for g in named}}


def _fits(value: Any, schema: Schema) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def _trim(value: Any, schema: Schema) -> Any:
    """Drop unknown keys, clip long texts and lists, and read whole numbers given as text."""
    if isinstance(value, dict) and "properties" in schema:
        found = {k: _trim(value[k], s) for k, s in schema["properties"].items() if k in value}
        return {k: v for k, v in found.items() if k not in _MAY_LACK or _fits(v, schema["properties"][k])}
    if isinstance(value, list) and "items" in schema:
        return [_trim(item, schema["items"]) for item in value[: schema.get("maxItems", len(value))]]
    if (
        isinstance(value, str)
        and "integer" in schema.get("type", ())
        and re.fullmatch(r"\d{1,9}", value.strip())
    ):
        return int(value)
    if isinstance(value, float) and "integer" in schema.get("type", ()) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return clip(visible(value), schema["maxLength"]) if "maxLength" in schema else visible(value)
    return value
