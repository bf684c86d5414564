"""One gateway request from its start to the end of its answer: events in order, heartbeats meanwhile."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from app.gateway_requests.errors import Refused, fault
from app.gateway_requests.slots import GatewayServices
from grading.broker.away import why_away
from grading.broker.gateway_requests import ENDING, PREEMPTED, Ask, Event
from grading.domain.jobs import Tokens

log = logging.getLogger(__name__)
PAUSE_S = 0.5
CHARS_A_TOKEN = 4
TRIES = 3
"""Attempts for a request of which no text has arrived yet."""
AGAIN = (PREEMPTED, ENDING, "machine_lost")
LOOK_FOR_MACHINES_S = 5.0


class ClientGone(Exception):
    """The client closed its connection."""


@dataclass
class Conversation:
    """A request and its answer. `gone` says whether the client disconnected. Use `events` once."""

    gateway: GatewayServices
    ask: Ask
    gone: Callable[[], bool]
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    model: str = field(init=False)
    """As it was asked for; once a machine has begun, as that calls it."""
    used: Tokens | None = None
    """What the answer took, once it has ended; where the client leaves before, an estimate."""
    _heard: int = 0
    _begun: bool = False
    _tries: int = 0

    def __post_init__(self) -> None:
        self.model = self.ask.model

    def events(self) -> Generator[Event | None, None, None]:
        """What the machine says, in order and whole; None when it said nothing for a while.

        Raises Refused for what goes wrong, ClientGone, and redis errors.
        """
        gateway, limit_s = self.gateway, self.gateway.settings.limit_s
        since = time.monotonic()
        try:
            gateway.talks.ask(self.id, self.ask, limit_s)
            self._send()
            checked_at = since
            while True:
                event = self._next()
                if self.gone():
                    raise ClientGone
                now = time.monotonic()
                if event is None:
                    checked_at = self._look(now - since, checked_at)
                elif event.kind == "failed":
                    self._failed(event.code)
                    continue
                if event is not None and event.kind == "end":
                    self.used = event.tokens
                    yield event
                    return
                yield event
        except (ClientGone, GeneratorExit):
            self.used = self.used or self._estimate()
            raise
        except Refused as error:
            # else a schema that no engine binds would have streams for nothing
            if self._heard and error.code not in AGAIN:
                self.used = self._estimate()
            raise
        finally:
            self._leave()

    def _estimate(self) -> Tokens | None:
        """Nobody counts an answer that is broken off: else who leaves before its end would pay nothing."""
        if not self._begun:
            return None
        asked = sum(map(len, (*(one.content for one in self.ask.messages), *self.ask.inputs)))
        if self.ask.inputs:
            return Tokens(prompt=asked // CHARS_A_TOKEN)
        return Tokens(prompt=asked // CHARS_A_TOKEN, output=self._heard // CHARS_A_TOKEN)

    def _leave(self) -> None:
        try:
            self.gateway.talks.withdraw(self.id, self.ask.model)
        except RedisError as error:
            log.warning(
                "%s, the keys of a gateway request were not deleted and will expire: %s",
                why_away(error),
                error,
            )

    def _send(self) -> None:
        self._tries += 1
        self._begun = False
        self.gateway.send(self.id, self.ask.model)

    def _next(self) -> Event | None:
        talks = self.gateway.talks
        held = talks.waits(self.id)
        event = talks.hear(self.id, PAUSE_S) if not self._begun or held else talks.hear(self.id)
        if event is None and self._begun and not held:
            event = Event(kind="failed", code="machine_lost")
        if event is None:
            return None
        if event.kind == "begun":
            self._begun, self.model = True, event.model
        return self._in_order(event) if event.kind in ("text", "vectors") else event

    def _in_order(self, event: Event) -> Event:
        """A piece told twice counts once; one that was lost on the way is the end."""
        if event.at > self._heard:
            return Event(kind="failed", code="engine_broke_off")
        piece = event.vectors if event.kind == "vectors" else event.text
        new = piece[self._heard - event.at :]
        at, self._heard = self._heard, self._heard + len(new)
        return event.model_copy(update={event.kind: new, "at": at})

    def _failed(self, code: str) -> None:
        if code not in AGAIN or self._heard or self._tries >= TRIES:
            raise fault(code)
        self._send()

    def _look(self, waited_s: float, checked_at: float) -> float:
        """Nothing was said for a while: is there anybody to wait for, and who waits?"""
        settings, now = self.gateway.settings, time.monotonic()
        if waited_s > settings.limit_s + (PAUSE_S * 6 if self._begun else 0):
            raise fault("budget_exceeded" if self._begun else "machines_busy")
        if not self._begun and now - checked_at > LOOK_FOR_MACHINES_S:
            if not self.gateway.offer().answers(self.ask.model):
                raise fault("no_machine")
            return now
        return checked_at
