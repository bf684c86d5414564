"""What a model of the test servers makes of a text at temperature 0, by its weights, with their rounding."""

from __future__ import annotations

import hashlib
import random
from typing import Any

VOCABULARY = 500
ROUNDING = 0.03
"""Of log-probabilities, drawn for each request: a batch of another size sums in another order."""


def continued(payload: dict[str, Any], model: str, weights: str, logprobs: bool) -> dict[str, Any]:
    """The answer to a request without a stream, as completions and chats have it."""
    chat = "messages" in payload
    text = payload["messages"][-1]["content"] if chat else payload["prompt"]
    count = int(payload.get("top_logprobs") or payload.get("logprobs") or 1)
    positions = [_position(f"{model}|{weights}|{text}|{at}") for at in range(int(payload["max_tokens"]))]
    said = "".join(rows[0][0] for rows in positions)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": said}} if chat else {"text": said}
    if logprobs and "logprobs" in payload:
        tops = [rows[:count] for rows in positions]
        as_chats = chat or payload["logprobs"] is True
        choice["logprobs"] = _as_chats(tops) if as_chats else {"top_logprobs": [dict(rows) for rows in tops]}
    return {"id": "cmpl-1", "object": "text_completion", "model": model, "choices": [choice]}


def _position(seed: str) -> list[tuple[str, float]]:
    """Token and log-probability, the likeliest first."""
    drawn = random.Random(hashlib.sha256(seed.encode()).digest())
    tokens = drawn.sample(range(VOCABULARY), 20)
    rows = [(f" w{token}", -drawn.uniform(0.2, 0.4) - 0.5 * at) for at, token in enumerate(tokens)]
    return [(token, value + random.uniform(-ROUNDING, ROUNDING)) for token, value in rows]


def _as_chats(tops: list[list[tuple[str, float]]]) -> dict[str, Any]:
    content = []
    for rows in tops:
        told = [{"token": token, "logprob": value} for token, value in rows]
        content.append({**told[0], "top_logprobs": told})
    return {"content": content}
