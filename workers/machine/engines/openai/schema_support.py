"""Whether a server enforces JSON schemas: tested with a request whose words ask for another answer."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from workers.machine.engines.base import Cancel, Request

log = logging.getLogger(__name__)
REMEMBER_S = 3600.0
AGAIN_S = 300.0
"""When a look that said nothing is repeated."""
LOOK_S = 8.0
SHARE = 0.1
"""The most of a job's time that a look takes."""
MOST_S = 60.0
DAY_S = 86_400.0
"""Looks of one server take at most so long a day; from then on, what is known by then counts."""
MOST_TOKENS = 24
_KEY, _WORD = "zk7", "quokka-41"
ODD: dict[str, Any] = {
    "type": "object",
    "properties": {_KEY: {"type": "string", "enum": [_WORD]}},
    "required": [_KEY],
    "additionalProperties": False,
}
_ONLY = json.dumps({_KEY: _WORD}, separators=(",", ":"))
_LEAST = 6
"""Characters of the only valid answer that nothing writes by chance."""


class SchemaSupport(StrEnum):
    """How a schema was asked for, in the words of the result's sampling."""

    BOUND = "json_schema"
    UNPROVED = "json_schema, not proved to be enforced"
    IGNORED = "none: the server ignores json_schema"
    REFUSED = "none: the server refuses json_schema"
    UNFIT = "none: the server refuses this schema"
    OFF = "none"

    @property
    def sent(self) -> bool:
        """Whether `response_format` goes along."""
        return self in (SchemaSupport.BOUND, SchemaSupport.UNPROVED)


def question(request: Request, seconds: float, cancel: Cancel) -> Request:
    """A few tokens under a schema that asks for something else than the words do."""
    return replace(
        request,
        job=request.job.model_copy(update={"draft": False}),
        system="You answer in one plain English sentence.",
        user="Name the colour of the sky at noon.",
        schema=ODD,
        max_output_tokens=MOST_TOKENS,
        temperature=0.0,
        top_p=None,
        seed=None,
        repair="",
        previous="",
        chat=(),
        stop=(),
        tools=(),
        tool_choice=None,
        deadline_s=seconds,
        cancel=cancel,
    )


def judge(answer: str) -> SchemaSupport:
    """What an answer to the question says about the server."""
    said = "".join(answer.split())
    if not said:
        return SchemaSupport.UNPROVED  # all of it went into thoughts
    agrees = said.startswith(_ONLY) or _ONLY.startswith(said)
    if agrees and len(said) >= _LEAST:
        return SchemaSupport.BOUND
    return SchemaSupport.UNPROVED if agrees else SchemaSupport.IGNORED


class Schemas:
    """What is known of each model of one server; thread-safe."""

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, SchemaSupport]] = {}
        self._looking: set[str] = set()
        self._looks: list[tuple[float, float]] = []
        """When a look ended, and how long it took, of the last day."""

    def form(self, request: Request, look: Callable[[], SchemaSupport]) -> SchemaSupport:
        """How to ask for the request's schema. Looks where it is not known; others do not wait for that."""
        if not request.schema or self._setting == "none":
            return SchemaSupport.OFF
        model = request.model
        with self._lock:
            until, known = self._known.get(model, (0.0, SchemaSupport.UNPROVED))
            if time.monotonic() < until:
                return known
            if self._setting == "json_schema":
                return SchemaSupport.BOUND
            if model in self._looking or self._spent() >= MOST_S:
                return known
            self._looking.add(model)
        log.info("asking %s for at most %d tokens, to see whether it is bound to schemas", model, MOST_TOKENS)
        began = time.monotonic()
        try:
            found = look()
            self.learn(model, found)
            return found
        finally:
            with self._lock:
                self._looking.discard(model)
                self._looks.append((time.monotonic(), time.monotonic() - began))

    def _spent(self) -> float:
        """Seconds that looks of the last day took. Called with the lock."""
        since = time.monotonic() - DAY_S
        self._looks = [one for one in self._looks if one[0] > since]
        return sum(took for _, took in self._looks)

    def learn(self, model: str, form: SchemaSupport) -> None:
        """Remember what was found: an hour, or five minutes where it proves nothing."""
        keep = AGAIN_S if form is SchemaSupport.UNPROVED else REMEMBER_S
        with self._lock:
            self._known[model] = (time.monotonic() + keep, form)

    def refused(self, model: str) -> SchemaSupport:
        """A schema was refused: what it is asked without now.

        Of a server that is bound to others, this one is at fault, which a client of the gateway may have
        sent: grading goes on with its own.
        """
        with self._lock:
            _, known = self._known.get(model, (0.0, SchemaSupport.UNPROVED))
        if known is SchemaSupport.BOUND or self._setting == "json_schema":
            return SchemaSupport.UNFIT
        self.learn(model, SchemaSupport.REFUSED)
        return SchemaSupport.REFUSED

    def saw(self, model: str, form: SchemaSupport, text: str) -> None:
        """A whole answer: one that is no JSON although it was bound shows that it was not."""
        if not form.sent or self._setting != "auto":
            return
        try:
            json.loads(text)
        except ValueError:
            self.learn(model, SchemaSupport.IGNORED)
