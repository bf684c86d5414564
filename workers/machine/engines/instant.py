"""An engine that answers at once, without a model: for benchmarks and tests only, never for grading."""

from __future__ import annotations

import json
import os
import threading
import time

from grading.domain.errors import BudgetExceeded, Cancelled, EngineError, OutputEmpty
from grading.domain.jobs import Tokens
from workers.machine.engines.base import Cancel, Generation, Progress, Request
from workers.machine.engines.instances import InstanceMaker

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
        with request.cancel.heard_by(ended.set), self._closed.heard_by(ended.set):
            ended.wait(max(0.0, wait))
        if self._closed.said:
            raise EngineError("The engine was closed.")
        if request.cancel.said:
            raise Cancelled
        if crashes:
            os._exit(CRASH)
        if request.deadline_s <= 0 or self._seconds > request.deadline_s:
            raise BudgetExceeded(
                f"The answer takes {self._seconds:g} s, the job has {request.deadline_s:g} s."
            )
        if self._silent:
            raise OutputEmpty(f"The engine {self.name} finished without writing anything.")
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
        self._closed.say()
