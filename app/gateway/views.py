"""Routes of the gateway: models, chat completions, health."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from typing import Any

from flask import Blueprint, Response, jsonify, request

from app.gateway import chat_request
from app.gateway_requests.errors import Away, NoSuchModel, Refused, TooMany, content, fault
from app.gateway_requests.response_events import ClientGone, Conversation
from app.gateway_requests.slots import HOLD_S, RequestSlots, request_slots
from grading.broker.away import why_away
from grading.broker.dispatch import AWAY
from grading.broker.gateway_requests import Ask, Event
from grading.domain.errors import Forbidden, NotSignedIn
from grading.domain.jobs import Tokens
from grading.domain.permissions import Actor, may
from grading.store.accounts import users

log = logging.getLogger(__name__)
endpoints = Blueprint("gateway", __name__)


@endpoints.get("/healthz")
def health() -> Response:
    """This process answers."""
    return jsonify(status="ok")


@endpoints.get("/v1/models")
def models() -> Response:
    """What live machines can be asked for."""
    _caller()
    listed = [_model(name) for name in request_slots().gateway.models()]
    return jsonify(object="list", data=listed)


@endpoints.get("/v1/models/<path:name>")
def model(name: str) -> Response:
    """One of them."""
    _caller()
    if name not in request_slots().gateway.models():
        raise NoSuchModel
    return jsonify(_model(name))


@endpoints.post("/v1/chat/completions")
def chat() -> Response:
    """An answer of a model, whole or as a stream of server-sent events."""
    caller, slots = _caller(), request_slots()
    body, ask = chat_request.read(_body(), slots.gateway.settings.max_tokens)
    _require_room(slots, ask.model)
    with ExitStack() as stack:
        stack.enter_context(slots.acquire(caller.token_id))
        conversation = Conversation(slots.gateway, ask, _gone())
        log.info("gateway request %s of %s received for model %s", conversation.id, caller.name, ask.model)
        answer = Answer(conversation)
        if not body.stream:
            return _noted(jsonify(answer.whole()), body, ask)
        usage = body.stream_options is not None and body.stream_options.include_usage
        pieces = answer.stream(include_usage=usage)
        first = next(pieces, b"")  # here, so that what fails before has a status of its own
        return _noted(_streamed(first, pieces, stack.pop_all()), body, ask)


def _noted(response: Response, body: chat_request.ChatCompletionRequest, ask: Ask) -> Response:
    """With what was done otherwise: in a header, since some clients refuse fields that they do not know."""
    if said := chat_request.note(body, ask):
        response.headers["Grader-Note"] = said
    return response


def _streamed(first: bytes, pieces: Generator[bytes, None, None], inside: ExitStack) -> Response:
    response = Response(itertools.chain([first], pieces), mimetype="text/event-stream")
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"

    def over() -> None:
        pieces.close()
        inside.close()

    response.call_on_close(over)
    return response


class Answer:
    """An answer in OpenAI's shapes."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._model = conversation.ask.model
        self._created = int(time.time())

    def whole(self) -> dict[str, Any]:
        """All of it at once. Raises Refused."""
        parts: list[str] = []
        try:
            with closing(self._conversation.events()) as events:
                for event in events:
                    self._meet(event)
                    parts.append(event.text if event is not None else "")
                    if event is not None and event.kind == "end":
                        return self._completion("".join(parts), event)
        except ClientGone:
            raise fault("client_gone") from None  # read by nobody
        raise fault("engine_broke_off")

    def stream(self, *, include_usage: bool) -> Generator[bytes, None, None]:
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
                    yield from self._pieces(event, include_usage=include_usage)
        except ClientGone:
            return
        except Refused as error:
            if not begun:
                raise
            yield _event(content(error))
        except AWAY as error:
            if not begun:
                raise
            log.warning(
                "%s, the stream of a gateway request was closed: %s", why_away(error), type(error).__name__
            )
            yield _event(content(Away()))

    def _completion(self, text: str, end: Event) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end.reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(end.tokens)}

    def _meet(self, event: Event | None) -> None:
        if event is not None and event.kind == "begun":
            self._model = event.model

    def _pieces(self, event: Event | None, *, include_usage: bool) -> Iterator[bytes]:
        if event is None or event.kind == "begun":
            yield b": still waiting\n\n"
        elif event.kind == "text":
            first = {"role": "assistant"} if event.at == 0 else {}
            if event.text:
                yield self._chunk({**first, "content": event.text}, include_usage)
        else:
            yield self._chunk({}, include_usage, event.reason)
            if include_usage:
                head = self._head("chat.completion.chunk")
                yield _event({**head, "choices": [], "usage": _usage(event.tokens)})
            yield b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, str], include_usage: bool, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        none: dict[str, Any] = {"usage": None} if include_usage else {}
        return _event({**self._head("chat.completion.chunk"), "choices": [choice], **none})

    def _head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{self._conversation.id}"
        return {"id": name, "object": kind, "created": self._created, "model": self._model}


def _caller() -> Actor:
    """Whose token this is. Raises NotSignedIn or Forbidden."""
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer":
        raise NotSignedIn("Send a token with the scope chat: Authorization: Bearer grd_….")
    with request_slots().gateway.store.read() as session:
        found = users.verify_token(session, secret.strip())
    if found is None:
        raise NotSignedIn("The token is unknown, expired or revoked.")
    if not may(found, "chat"):
        raise Forbidden("Use a token with the scope chat that belongs to staff.")
    return found


def _body() -> Any:
    try:
        return json.loads(request.get_data(cache=False))
    except (ValueError, RecursionError):
        raise Refused("The request is not valid JSON.") from None


def _require_room(slots: RequestSlots, name: str) -> None:
    """Go on, or raise NoSuchModel, Failed or TooMany."""
    gateway = slots.gateway
    if name not in gateway.models():
        raise fault("no_machine") if gateway.configured(name) else NoSuchModel(param="model")
    if gateway.waiting(name) >= gateway.settings.waiting:
        raise TooMany(
            f"{gateway.settings.waiting} requests are already queued for this model. Try again later."
        )


def _gone() -> Callable[[], bool]:
    """Asks whether the client closed its connection, where the server can tell."""
    asks: Callable[[], bool] | None = request.environ.get("waitress.client_disconnected")
    return asks or (lambda: False)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "grader"}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
