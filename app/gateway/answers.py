"""An answer to a gateway request, whole or as a stream, in the format of an API."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from app.gateway_requests.errors import Away, Refused, fault
from app.gateway_requests.response_events import ClientGone, Conversation
from app.gateway_requests.slots import HOLD_S
from grading.broker.away import why_away
from grading.broker.dispatch import AWAY
from grading.broker.gateway_requests import Event
from grading.domain.errors import GraderError

log = logging.getLogger(__name__)


class AnswerFormat(ABC):
    """The shape that an API gives one answer."""

    def __init__(self, model: str) -> None:
        self.model = model
        """As it was asked for; once a machine has begun, as that calls it."""
        self.created = int(time.time())

    @abstractmethod
    def whole(self, text: str, end: Event) -> dict[str, Any]:
        """All of it."""

    @abstractmethod
    def text(self, event: Event) -> Iterator[bytes]:
        """Server-sent events for a piece of text."""

    @abstractmethod
    def end(self, event: Event) -> Iterator[bytes]:
        """Server-sent events for its end."""

    @abstractmethod
    def error(self, error: GraderError) -> bytes:
        """The server-sent event for what goes wrong after it has begun."""


class Answer:
    """What a conversation gives, in a format. Use `whole` or `stream`, once."""

    def __init__(self, conversation: Conversation, form: AnswerFormat) -> None:
        self._conversation = conversation
        self._form = form

    def whole(self) -> dict[str, Any]:
        """All of it at once. Raises Refused."""
        parts: list[str] = []
        try:
            with closing(self._conversation.events()) as events:
                for event in events:
                    self._meet(event)
                    parts.append(event.text if event is not None else "")
                    if event is not None and event.kind == "end":
                        return self._form.whole("".join(parts), event)
        except ClientGone:
            raise fault("client_gone") from None  # read by nobody
        raise fault("engine_broke_off")

    def stream(self) -> Generator[bytes, None, None]:
        """Server-sent events. The first comes with the first word or after 10 s; then nothing is raised.

        Raises Refused for what goes wrong before.
        """
        begun, since = False, time.monotonic()
        try:
            with closing(self._conversation.events()) as events:
                for event in events:
                    self._meet(event)
                    early = event is None or event.kind == "begun"
                    if not begun and early and time.monotonic() - since < HOLD_S:
                        continue
                    begun = True
                    yield from self._pieces(event)
        except ClientGone:
            return
        except Refused as error:
            if not begun:
                raise
            yield self._form.error(error)
        except AWAY as error:
            if not begun:
                raise
            log.warning(
                "%s, the stream of a gateway request was closed: %s", why_away(error), type(error).__name__
            )
            yield self._form.error(Away())

    def _meet(self, event: Event | None) -> None:
        if event is not None and event.kind == "begun":
            self._form.model = event.model

    def _pieces(self, event: Event | None) -> Iterator[bytes]:
        if event is None or event.kind == "begun":
            yield b": still waiting\n\n"
        elif event.kind == "text":
            yield from self._form.text(event)
        else:
            yield from self._form.end(event)


def data_line(value: dict[str, Any]) -> bytes:
    """The data of a server-sent event, with its end."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
