"""What a caller of an mlx engine is told of its generation: phases, tokens and drafts, and its end."""

from __future__ import annotations

import time
from typing import Any, Protocol

from grading.domain.errors import OutputEndless
from grading.domain.jobs import Tokens
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.http.answer import MAX_TEXT_BYTES, PROGRESS_EVERY_S, wrote_something
from workers.machine.engines.mlx.generation import Ticket
from workers.machine.engines.mlx.waiting import Patience


class Bound(Protocol):
    """What bound an answer to its schema."""

    @property
    def complete(self) -> bool:
        """Whether what was generated satisfies the schema."""

    @property
    def closed(self) -> bool:
        """Whether the token limit was near, so that something was cut off to end in time."""


class Watch:
    """One caller's view of its generation: tells phases as they come, tokens and draft now and then."""

    def __init__(self, ticket: Ticket, progress: Progress, *, draft: bool) -> None:
        self._ticket = ticket
        self._progress = progress
        self._draft = draft
        self._phases = 0
        self._told = 0
        self._next = time.monotonic() + PROGRESS_EVERY_S

    def wait(self, patience: Patience) -> str:
        """The finish reason. Raises what the generation ended with, Cancelled or BudgetExceeded."""
        done = self._ticket.done
        while not done.done():
            self._tell_phases()
            if time.monotonic() >= self._next:
                self._tell_tokens()
            patience.sleep(max(0.0, self._next - time.monotonic()))
        if done.cancelled():
            raise patience.end()
        reason = done.result()
        self._tell_phases()
        self._say(len(self._ticket.output))
        return reason

    def _tell_phases(self) -> None:
        for phase in self._ticket.phases[self._phases :]:
            self._phases += 1
            if phase != "generating":
                self._progress(0, phase)

    def _tell_tokens(self) -> None:
        self._next = time.monotonic() + PROGRESS_EVERY_S
        count = len(self._ticket.output)
        if not self._ticket.phases:
            self._progress(0, "queued")  # the thread is busy and has not even looked
        elif count != self._told:
            self._told = count
            self._say(count)

    def _say(self, count: int) -> None:
        if not self._draft:
            return self._progress(count)
        # a character may be unfinished
        text = self._ticket.loaded.decode(self._ticket.output[:count]).rstrip("\N{REPLACEMENT CHARACTER}")
        return self._progress(count, "generating", text)


def generation(
    ticket: Ticket, bound: Bound | None, request: Request, digest: str, reason: str, since: float
) -> Generation:
    """What a finished ticket says; `since` is when the caller came. Raises what the text forbids."""
    text = ticket.loaded.decode(ticket.output)
    truncated = reason == "length" and not (bound and bound.complete)
    wrote_something("The model", text, truncated=truncated)
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise OutputEndless(f"The model wrote more than {MAX_TEXT_BYTES} bytes; the answer was dropped.")
    first = ticket.first_token
    return Generation(
        text=text,
        tokens=Tokens(prompt=len(ticket.prompt.ids), cached=ticket.cached, output=len(ticket.output)),
        first_token_s=first - since if first is not None else None,
        seconds=time.monotonic() - since,
        digest=digest,
        truncated=truncated,
        closed=bound is not None and bound.closed,
        sampling=_sampling(request, "json_schema_bound" if bound else "none"),
        timings=ticket.timings(since),
        speculative=ticket.speculative,
    )


def _sampling(request: Request, form: str) -> dict[str, Any]:
    asked = {"top_p": request.top_p, "seed": request.seed}
    return {
        "temperature": request.temperature,
        "max_tokens": request.max_output_tokens,
        "format": form,
        **{name: value for name, value in asked.items() if value is not None},
    }
