"""Requests for embeddings and their answers, as OpenAI's API has them."""

from __future__ import annotations

import base64
import struct
from contextlib import closing
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from app.gateway import chat_request
from app.gateway.chat_request import Lenient
from app.gateway_requests.errors import Refused, fault
from app.gateway_requests.response_events import ClientGone, Conversation
from grading.broker.gateway_requests import Ask, embedder
from grading.domain.jobs import Tokens

MOST_TEXTS = 2048
UNSUPPORTED: dict[str, tuple[Any, ...]] = {"dimensions": (None,)}
Text = Annotated[str, StringConstraints(min_length=1)]


class EmbeddingsRequest(Lenient):
    """A request as it came."""

    model: str = Field(min_length=1, max_length=300)
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None


def read(raw: Any) -> tuple[EmbeddingsRequest, Ask]:
    """A request and what a machine is asked for. Raises Refused."""
    if isinstance(raw, dict) and _numbers(raw.get("input")):
        raise Refused(
            "input has numbers of tokens, which differ from model to model. Send texts (in LangChain: "
            "check_embedding_ctx_length=False).",
            "input",
        )
    body = chat_request.validate(EmbeddingsRequest, raw, UNSUPPORTED)
    texts = (body.input,) if isinstance(body.input, str) else tuple(body.input)
    ask = Ask(model=embedder(body.model), inputs=texts)
    chat_request.check_characters(ask, "input")
    return body, ask


def _numbers(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int)


def answer(conversation: Conversation, body: EmbeddingsRequest) -> dict[str, Any]:
    """All embeddings at once. Raises Refused and redis errors."""
    vectors: list[str] = []
    try:
        with closing(conversation.events()) as events:
            for event in events:
                vectors += event.vectors if event is not None else ()
                if event is not None and event.kind == "end":
                    return _whole(vectors, event.tokens, body)
    except ClientGone:
        raise fault("client_gone") from None  # read by nobody
    raise fault("engine_broke_off")


def _whole(vectors: list[str], tokens: Tokens, body: EmbeddingsRequest) -> dict[str, Any]:
    told: list[Any] = vectors if body.encoding_format == "base64" else list(map(_floats, vectors))
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(told)],
        "model": body.model,
        "usage": {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt},
    }


def _floats(vector: str) -> list[float]:
    packed = base64.b64decode(vector)
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))
