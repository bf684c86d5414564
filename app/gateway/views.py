"""Routes of the gateway: models, chat completions, responses, health."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from flask import Blueprint, Response, jsonify, request

from app.gateway import chat_request, responses_request
from app.gateway import embeddings as embedding_requests
from app.gateway.answers import Answer, AnswerFormat
from app.gateway.chat_format import ChatFormat
from app.gateway.chat_request import ChatCompletionRequest
from app.gateway.responses_format import ResponsesFormat
from app.gateway_requests.errors import NoEmbeddings, NoSuchModel, Refused, TooMany, fault
from app.gateway_requests.response_events import Conversation
from app.gateway_requests.slots import GatewayServices, RequestSlots, request_slots
from grading.broker.gateway_requests import Ask
from grading.domain.errors import Forbidden, NotSignedIn
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
    listed = [_model(name) for name in _names()]
    return jsonify(object="list", data=listed)


@endpoints.get("/v1/models/<path:name>")
def model(name: str) -> Response:
    """One of them."""
    _caller()
    if name not in _names():
        raise NoSuchModel
    return jsonify(_model(name))


@endpoints.post("/v1/chat/completions")
def chat() -> Response:
    """An answer of a model, whole or as a stream of server-sent events."""
    caller, slots = _caller(), request_slots()
    body, ask = chat_request.read(_body(), slots.gateway.settings.max_tokens)
    usage = body.stream_options is not None and body.stream_options.include_usage
    form = partial(ChatFormat, model=ask.model, include_usage=usage)
    return _answer(caller, body, ask, form)


@endpoints.post("/v1/responses")
def responses() -> Response:
    """The same in the newer API: texts in, a text out."""
    caller, slots = _caller(), request_slots()
    wanted, body, ask = responses_request.read(_body(), slots.gateway.settings.max_tokens)
    return _answer(caller, body, ask, partial(ResponsesFormat, wanted=wanted, ask=ask))


@endpoints.post("/v1/embeddings")
def embeddings() -> Response:
    """The embeddings of texts."""
    caller, slots = _caller(), request_slots()
    body, ask = embedding_requests.read(_body())
    _require_embedder(slots.gateway, body.model)
    _require_waiting_room(slots, ask.model)
    conversation = Conversation(slots.gateway, ask, _gone())
    with _counted(slots, caller, conversation):
        log.info("gateway request %s of %s received for embeddings", conversation.id, caller.name)
        return jsonify(embedding_requests.answer(conversation, body))


def _answer(
    caller: Actor, body: ChatCompletionRequest, ask: Ask, form: Callable[[str], AnswerFormat]
) -> Response:
    """The answer in a format, which is made with the id of the request."""
    slots = request_slots()
    _require_room(slots, ask.model)
    with ExitStack() as stack:
        conversation = Conversation(slots.gateway, ask, _gone())
        stack.enter_context(_counted(slots, caller, conversation))
        log.info("gateway request %s of %s received for model %s", conversation.id, caller.name, ask.model)
        answer = Answer(conversation, form(conversation.id))
        if not body.stream:
            return _noted(jsonify(answer.whole()), body, ask)
        pieces = answer.stream()
        first = next(pieces, b"")  # here, so that what fails before has a status of its own
        return _noted(_streamed(first, pieces, stack.pop_all()), body, ask)


@contextmanager
def _counted(slots: RequestSlots, caller: Actor, conversation: Conversation) -> Iterator[None]:
    """Hold a slot for a conversation, and count at its end what it took. Raises TooMany and QuotaSpent."""
    if caller.token_id is None:
        raise NotSignedIn
    with slots.acquire(caller.token_id, conversation.id):
        try:
            yield
        finally:
            if conversation.used is not None:
                slots.charge(caller.token_id, conversation.model, conversation.used)


def _noted(response: Response, body: ChatCompletionRequest, ask: Ask) -> Response:
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


def _names() -> list[str]:
    """The models of chats and of embeddings."""
    offer = request_slots().gateway.offer()
    return sorted(offer.models | offer.embedders)


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
    if name not in gateway.offer().models:
        raise fault("no_machine") if gateway.configured(name) else NoSuchModel(param="model")
    _require_waiting_room(slots, name)


def _require_embedder(gateway: GatewayServices, model: str) -> None:
    """Go on, or raise NoEmbeddings or Failed."""
    if model not in gateway.offer().embedders:
        raise fault("no_machine") if gateway.configured_embedder(model) else NoEmbeddings(param="model")


def _require_waiting_room(slots: RequestSlots, name: str) -> None:
    """Go on, or raise TooMany."""
    gateway = slots.gateway
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
