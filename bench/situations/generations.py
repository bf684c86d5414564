"""Situations with a server that is well: what it answers, refuses and tells."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema

from bench.model_server_lab import ANSWER_S, PLACE
from bench.model_servers import Offer
from bench.situations.situation import Seen, Situation, UnderTest
from grading.domain.errors import EngineError, JobInvalid, ModelMissing, OutputEmpty
from workers.machine.engines.base import Generation, ReportsCapacity, ToolsRefused, unheard

USER = "Name what the student did well."
LIMIT = 40
"""Tokens of a short answer."""
FEW = 5
"""So few that no server stops a model that repeats itself."""
FLAT: dict[str, Any] = {
    "type": "object",
    "properties": {"level": {"enum": [0, 1, 2]}, "word": {"enum": ["yes", "no"]}},
    "required": ["level", "word"],
    "additionalProperties": False,
}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "criteria": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"$ref": "#/$defs/one"}}
    },
    "required": ["criteria"],
    "additionalProperties": False,
    "$defs": {
        "one": {
            "type": "object",
            "properties": {"name": {"enum": ["Größe – 測定 🎓"]}, "mark": {"$ref": "#/$defs/mark"}},
            "required": ["name", "mark"],
            "additionalProperties": False,
        },
        "mark": {"type": "integer", "enum": [1, 2]},
    },
}
BROKEN: dict[str, Any] = {"$ref": "#/$defs/nowhere"}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"enum": ["mean"]}}, "required": ["word"]},
    },
}


def plain(tested: UnderTest) -> Seen:
    """An answer, with tokens that the server counted."""
    with tested.worker() as (engine, _):
        made = engine.generate(tested.lab.request(USER, 4 * LIMIT), unheard)
    took = made.seconds - (made.first_token_s or 0.0)
    tested.speed = made.tokens.output / max(took, 0.001)
    counted = made.tokens.prompt > 0 and made.tokens.output > 0
    note = f"{made.tokens.prompt} tokens read, {made.tokens.output} written"
    return Seen("answered", bool(made.text) and counted, note)


def bound(schema: dict[str, Any], most: int) -> Callable[[UnderTest], Seen]:
    """An answer under a schema; or a server that ignores schemas, which is found out."""

    def play(tested: UnderTest) -> Seen:
        asked = tested.lab.request(USER, most, schema=schema)
        with tested.worker() as (engine, _):
            made = engine.generate(asked, unheard)
        form = str(made.sampling["format"])
        if Offer.SCHEMAS not in tested.lab.server.offers:
            return Seen("schema ignored, found out", form.startswith("none: "), form, offered=False)
        follows = _follows(made.text, schema)
        return Seen("bound" if follows else "other text", follows and form == "json_schema", made.text[:80])

    return play


def _follows(text: str, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def broken_schema(tested: UnderTest) -> Seen:
    """A schema that nothing can follow: an answer without it, or an error that says so; others stay bound."""
    offered = Offer.REFUSALS in tested.lab.server.offers
    with tested.worker() as (engine, _):
        try:
            made = engine.generate(tested.lab.request(USER, LIMIT, schema=BROKEN), unheard)
        except EngineError as error:
            outcome, expected, note = error.code, "schema" in error.message, error.message[-80:]
        else:
            note = str(made.sampling["format"])
            outcome, expected = "answered without it", note.startswith("none: ") or not offered
        after = engine.generate(tested.lab.request(USER, 2 * LIMIT, schema=FLAT), unheard)
    later = str(after.sampling["format"])
    return Seen(
        outcome, expected and (later == "json_schema" or not offered), f"{note}; the next: {later}", offered
    )


def limited(tested: UnderTest) -> Seen:
    """An answer that ends at its limit of tokens, and says so."""
    with tested.worker() as (engine, _):
        made = engine.generate(tested.lab.request(USER, LIMIT), unheard)
    within = made.truncated and made.tokens.output <= LIMIT
    return Seen(
        "truncated" if made.truncated else "complete", within, f"{made.tokens.output} of {LIMIT} tokens"
    )


def too_long(tested: UnderTest) -> Seen:
    """A prompt that is longer than the context."""
    words = "mean " * tested.lab.setup.context  # at least a token each
    try:
        with tested.worker() as (engine, _):
            made = engine.generate(tested.lab.request(words, LIMIT), unheard)
    except JobInvalid as error:
        return Seen(error.code, True, error.message[-120:])
    offered = Offer.CONTEXT in tested.lab.server.offers
    return Seen("answered: it has no limit", not offered, f"{made.tokens.prompt} tokens read", offered)


def other_name(tested: UnderTest) -> Seen:
    """A model that the server does not have: no grade of another one."""
    place = PLACE, "nobody/nothing"
    with tested.worker(place[1]) as (engine, digests):
        try:
            digests.before_run(place, ANSWER_S)
            made = engine.generate(tested.lab.request(USER, LIMIT, model=place[1]), unheard)
            digests.verify(place, ANSWER_S, made.digest)
        except ModelMissing as error:
            return Seen(error.code, True, error.message[:120])
    return Seen("answered", False, made.text[:80])


def fingerprint(tested: UnderTest) -> Seen:
    """The weights are known, and the same while the server is busy."""
    over = threading.Event()

    def load() -> None:
        with tested.worker() as (engine, _):
            while not over.is_set():
                engine.generate(tested.lab.request(USER, LIMIT), unheard)

    with tested.worker() as (_, digests), ThreadPoolExecutor(tested.lab.setup.slots) as pool:
        running = [pool.submit(load) for _ in range(tested.lab.setup.slots)]
        try:
            known = [digests.verify(tested.lab.place, ANSWER_S) for _ in range(3)]
        finally:
            over.set()
        for one in running:
            one.result()
    return Seen("same weights, three times", all(known), known[0].partition(":")[0])


def tools(tested: UnderTest) -> Seen:
    """A tool must be called, and the model's template has no place for any: no call is made up."""
    chat = ({"role": "user", "content": "Look up the word mean."},)
    asked = tested.lab.request("", 4 * LIMIT, chat=chat, tools=(TOOL,), tool_choice="required")
    try:
        with tested.worker() as (engine, _):
            made = engine.generate(asked, unheard)
    except ToolsRefused as error:
        return Seen(error.code, True, error.message)
    called = ", ".join(call.name for call in made.tool_calls)
    return Seen(f"called {called}" if called else "text, cut at its limit", made.truncated and not called)


def empty(tested: UnderTest) -> Seen:
    """An answer that ends with its first letter."""
    with tested.worker() as (engine, _):
        text = engine.generate(tested.lab.request(USER, FEW, temperature=0.0), unheard).text
        try:
            stopped = tested.lab.request(USER, LIMIT, temperature=0.0, stop=(text[0],))
            made = engine.generate(stopped, unheard)
        except OutputEmpty as error:
            return Seen(error.code, True, error.message[-120:])
    return Seen("answered", False, made.text[:80])


def crowd(tested: UnderTest) -> Seen:
    """More requests at once than there are slots: all are answered."""
    count = 2 * tested.lab.setup.slots + 1
    with tested.worker() as (engine, _), ThreadPoolExecutor(count) as pool:
        asked = [tested.lab.request(f"{USER} {number}", LIMIT) for number in range(count)]
        made: list[Generation] = list(pool.map(lambda one: engine.generate(one, unheard), asked))
    answered = sum(bool(one.text) for one in made)
    waits = [one.timings.queued_s for one in made if one.timings.queued_s]
    note = (
        f"{tested.lab.setup.slots} slots; the longest wait told {max(waits):.2f} s"
        if waits
        else "no wait told"
    )
    return Seen(f"{answered} of {count} answered", answered == count, note)


def capacity(tested: UnderTest) -> Seen:
    """What the server tells of its slots and context, beside what it was started with."""
    setup, offers = tested.lab.setup, tested.lab.server.offers
    with tested.worker() as (engine, _):
        if not isinstance(engine, ReportsCapacity):
            return Seen("not told", False, offered=False)
        told = engine.capacity(tested.lab.model, 2 * setup.slots, ANSWER_S)
    slots = setup.slots if Offer.TOLD_SLOTS in offers else None
    context = setup.context if Offer.TOLD_CONTEXT in offers else None
    outcome = f"slots {told.slots or 'not told'}, context {told.context_tokens or 'not told'}"
    note = f"started with {setup.slots} and {setup.context}"
    expected = told.slots in (slots, setup.slots) and told.context_tokens in (context, setup.context)
    return Seen(outcome, expected, note, bool(slots or context))


SITUATIONS = (
    Situation("answer", "a plain answer", plain),
    Situation("schema", "an answer under a schema", bound(FLAT, 2 * LIMIT)),
    Situation("nested", "a nested schema with letters of several bytes", bound(NESTED, 4 * LIMIT)),
    Situation("broken_schema", "a schema that cannot be followed", broken_schema),
    Situation("limit", "the limit of tokens is reached", limited),
    Situation("context", "the prompt is longer than the context", too_long),
    Situation("name", "the server does not have the model", other_name),
    Situation("weights", "the weights' fingerprint, while it is busy", fingerprint),
    Situation("tools", "a tool must be called, and the model has none", tools),
    Situation("empty", "the answer ends at once", empty),
    Situation("crowd", "more requests than slots", crowd),
    Situation("capacity", "slots and context that it tells", capacity),
)
