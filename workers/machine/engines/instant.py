"""An engine that answers at once with a small valid instance of the schema: for benchmarks and tests only."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from grading.domain.errors import BudgetExceeded, Cancelled, EngineError, OutputEmpty
from grading.domain.jobs import Tokens
from workers.machine.engines.base import Cancel, Generation, Progress, Request
from workers.machine.messages import ENGINE_CLOSED, WROTE_NOTHING

MAX_DEPTH = 40


class InstanceMaker:
    """Makes the smallest instance of a schema. Override `string`, `integer` and `length` to make other ones.

    Knows what stages and pydantic write: types, enum, const, bounds, $ref, anyOf, oneOf, allOf of one,
    prefixItems. An array whose items name a `criterion` gets one item a criterion.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema

    def make(self) -> Any:
        """An instance of the schema."""
        return self._value(self._root, (), 0)

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        """A text of at least `low` and at most `high` characters for the property at `path`."""
        return "x" * low

    def integer(self, path: tuple[str, ...], low: int, high: int | None) -> int:
        """A whole number; the middle where both bounds are known."""
        return low if high is None else (low + high) // 2

    def length(self, path: tuple[str, ...], low: int, high: int | None) -> int:
        """How many items the array at `path` has."""
        return low

    def _value(self, schema: dict[str, Any], path: tuple[str, ...], index: int) -> Any:
        schema = self._resolve(schema)
        if len(path) > MAX_DEPTH:
            raise ValueError("The schema nests too deeply for an instance.")
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            numbers = all(isinstance(o, int) for o in options)
            return sorted(options)[(len(options) - 1) // 2] if numbers else options[index % len(options)]
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._value(schema[key][index % len(schema[key])], path, index)
        return self._typed(schema, path, index)

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        for _ in range(MAX_DEPTH):
            if "$ref" in schema:
                found: Any = self._root
                for step in schema["$ref"].removeprefix("#").split("/"):
                    found = found[step] if step else found
                schema = found
            elif len(schema.get("allOf", ())) == 1:
                schema = schema["allOf"][0]
            else:
                return schema
        raise ValueError("The schema's references go in a circle.")

    def _typed(self, schema: dict[str, Any], path: tuple[str, ...], index: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "null")
        if isinstance(kind, list):
            kind = "null" if "null" in kind else kind[0]
        if kind == "object":
            needed = schema.get("required", ())
            return {
                name: self._value(part, (*path, name), index)
                for name, part in schema.get("properties", {}).items()
                if name in needed
            }
        if kind == "array":
            return self._array(schema, path)
        if kind == "string":
            return self.string(path, schema.get("minLength", 0), schema.get("maxLength"))
        if kind in ("integer", "number"):
            low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            high = schema.get("maximum")
            if high is None and "exclusiveMaximum" in schema:
                high = schema["exclusiveMaximum"] - 1
            return self.integer(path, low, high)
        return False if kind == "boolean" else None

    def _array(self, schema: dict[str, Any], path: tuple[str, ...]) -> list[Any]:
        head = schema.get("prefixItems", [])
        made = [self._value(item, path, i) for i, item in enumerate(head)]
        items = schema.get("items") or {}
        high = schema.get("maxItems")
        count = max(schema.get("minItems", 0), self._criteria(items))
        count = count if self._criteria(items) else self.length(path, count, high)
        count = min(count, high) if high is not None else count
        made += [self._value(items, path, i) for i in range(len(head), count)]
        return made

    def _criteria(self, items: Any) -> int:
        if not isinstance(items, dict):
            return 0
        item = self._resolve(items)
        for key in ("anyOf", "oneOf"):
            if key in item and all("criterion" in self._resolve(o).get("properties", {}) for o in item[key]):
                return len(item[key])
        named = item.get("properties", {}).get("criterion")
        return len(self._resolve(named).get("enum", ())) if named else 0


CHARS_A_TOKEN = 4
CRASH = 70
"""Exit status of a process that an answer took along."""


class InstantEngine:
    """For benchmarks and tests only: gives the smallest answer of the schema, every level in the middle.

    `seconds` is how long each answer takes; waiting ends at the request's deadline, on a cancel and on
    `close`. A prompt that contains `exits_on` ends the process half way, as an engine that takes it along
    when it crashes. With `silent` every answer ends without a word, as of a model that finishes at once.
    """

    name = "instant"
    uses_model = False

    def __init__(self, *, seconds: float = 0.0, exits_on: str = "", silent: bool = False) -> None:
        self._seconds = seconds
        self._exits_on = exits_on
        self._silent = silent
        self._closed = Cancel()

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        start = time.monotonic()
        progress(0, "reading")
        crashes = bool(self._exits_on) and self._exits_on in request.user
        wait = min(self._seconds / 2 if crashes else self._seconds, request.deadline_s)
        ended = threading.Event()
        with request.cancel.on_cancel(ended.set), self._closed.on_cancel(ended.set):
            ended.wait(max(0.0, wait))
        if self._closed.cancelled:
            raise EngineError(ENGINE_CLOSED)
        if request.cancel.cancelled:
            raise Cancelled
        if crashes:
            os._exit(CRASH)
        if request.deadline_s <= 0 or self._seconds > request.deadline_s:
            raise BudgetExceeded(
                f"The answer takes {self._seconds:g} s, the job has {request.deadline_s:g} s."
            )
        if self._silent:
            raise OutputEmpty(WROTE_NOTHING(engine=f"The engine {self.name}"))
        text = json.dumps(InstanceMaker(request.schema).make())
        tokens = Tokens(
            prompt=max(1, (len(request.system) + len(request.user)) // CHARS_A_TOKEN),
            output=max(1, len(text) // CHARS_A_TOKEN),
        )
        progress(tokens.output)
        seconds = time.monotonic() - start
        return Generation(
            text=text, tokens=tokens, first_token_s=seconds, seconds=seconds, digest="instant", sampling={}
        )

    def close(self) -> None:
        """End every wait."""
        self._closed.cancel()
