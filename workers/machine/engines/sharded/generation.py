"""A generation in the hands of ranks, as the worker follows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from grading.domain.errors import EngineError
from workers.machine.engines.mlx.generation import Ticket
from workers.machine.engines.sharded.protocol import DROPPED, FAILED, Add, News


@dataclass(eq=False)
class Sent:
    """A generation in the hands of ranks. `complete` and `closed` are told at its end; see `Bound`."""

    ticket: Ticket
    schema_text: str
    number: int = -1
    complete: bool = False
    closed: bool = False
    dropping: bool = False
    """The ranks were told that nobody waits for it."""

    def add(self, number: int) -> Add:
        """How it joins."""
        self.number = number
        ticket = self.ticket
        return Add(
            id=number,
            ids=tuple(ticket.prompt.ids),
            shared=ticket.prompt.shared,
            max_tokens=ticket.max_tokens,
            temperature=ticket.sampling.temperature,
            top_p=ticket.sampling.top_p,
            seed=ticket.sampling.seed,
            schema_text=self.schema_text,
        )

    def hear(self, news: News, began: float) -> None:
        """Take what a step that `began` then brought."""
        ticket, now = self.ticket, time.monotonic()
        if ticket.admitted is None and "reading" in news.phases:
            ticket.admitted, ticket.cached = max(began, ticket.submitted), news.cached
        if ticket.first_token is None and (news.tokens or news.end == "stop"):
            ticket.first_token = now
        ticket.output.extend(news.tokens)
        self.complete, self.closed = news.complete, news.closed
        for phase in news.phases:
            ticket.tell(phase)
        if news.end == FAILED:
            ticket.end(EngineError(news.error))
        elif news.end:
            ticket.end(None if news.end == DROPPED else news.end)
