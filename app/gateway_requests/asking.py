"""One answer of a model for the web app itself, behind all grading: drafts of rubrics, words of questions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from app.gateway_requests.errors import Refused
from app.gateway_requests.response_events import Conversation
from app.gateway_requests.slots import GatewayServices
from grading.broker.away import why_away
from grading.broker.gateway_requests import DRAFTING, Ask, Event, Said

log = logging.getLogger(__name__)
UNBOUND = "schema_not_bound"
TEMPERATURE = 0.3


class AnswerCut(Exception):
    """The answer was longer than it may be."""


@dataclass(frozen=True)
class ModelQuestion:
    """What a model is asked, and the schema of its answer."""

    system: str
    user: str
    schema: dict[str, Any]
    max_tokens: int


def available_model(gateway: GatewayServices | None) -> str:
    """The name under which a machine can be asked now; empty: none is there, or all run without a model."""
    try:
        return DRAFTING if gateway is not None and DRAFTING in gateway.offer().models else ""
    except RedisError as error:
        log.warning("%s, no model could be asked: %s", why_away(error), type(error).__name__)
        return ""


def ask_model(
    gateway: GatewayServices,
    question: ModelQuestion,
    limit_s: float,
    gone: Callable[[], bool],
    heard: Callable[[Event], None],
) -> str:
    """The JSON that a model answers, at most `limit_s` later; `heard` is told each event.

    Raises Refused, ClientGone once `gone` says so, AnswerCut and redis errors.
    """
    settings = gateway.config.gateway.model_copy(update={"limit_s": limit_s})
    config = gateway.config.model_copy(update={"gateway": settings})
    mine = GatewayServices(config, gateway.store, gateway.leases, gateway.talks, gateway.send)
    try:
        return _answer(mine, question, gone, heard, bound=True)
    except Refused as error:
        if error.code != UNBOUND:
            raise
    text = _answer(mine, question, gone, heard, bound=False)
    # a model that is not bound likes to say something before and after it
    return text[max(0, text.find("{")) : text.rfind("}") + 1]


def _answer(
    gateway: GatewayServices,
    question: ModelQuestion,
    gone: Callable[[], bool],
    heard: Callable[[Event], None],
    *,
    bound: bool,
) -> str:
    ask = Ask(
        model=DRAFTING,
        messages=(Said(role="system", content=question.system), Said(role="user", content=question.user)),
        max_tokens=question.max_tokens,
        temperature=TEMPERATURE,
        bound_to=question.schema if bound else {},
    )
    parts: list[str] = []
    with closing(Conversation(gateway, ask, gone).events()) as events:
        for event in events:
            if event is None:
                continue
            heard(event)
            parts.append(event.text)
            if event.kind == "end" and event.reason == "length":
                raise AnswerCut
    return "".join(parts)
