"""How servers that speak `/v1/chat/completions` differ, as far as a client can tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

VLLM_METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1500",\
num_gpu_blocks_override="None",sliding_window="None"} 1.0
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
"""


@dataclass(frozen=True)
class Flavour:
    """One kind of server."""

    enforces: bool = True
    """It binds answers to `response_format`; others ignore it silently."""
    thoughts: Literal["reasoning_content", "reasoning", "both", "content"] = "reasoning_content"
    """Where thoughts go; some leave them in the text."""
    usage: Literal["event", "last"] = "event"
    """The counts come in an event of their own, or with the last piece."""
    details: bool = True
    """The counts say how much of the prompt was cached."""
    errors: Literal["object", "string"] = "object"
    tokenizer: Literal["", "content", "prompt"] = ""
    """The field of `/tokenize` with the text, where there is such a page."""
    timings: bool = False
    meta: bool = False
    logprobs: Literal["completions", "mixed", "chats", "none"] = "completions"
    """How it gives log-probabilities: completions by number, only as chats ask, only in chats, or never."""
    strays: int = 404
    """The status for pages it does not have."""
    refuses_late: bool = False
    """It says within a stream that it cannot follow a schema."""
    metrics: str = ""
    """What it serves at `/metrics`."""


FLAVOURS: Mapping[str, Flavour] = {
    "": Flavour(),
    "mlx": Flavour(enforces=False, thoughts="reasoning", errors="string", logprobs="mixed"),
    "llama": Flavour(usage="last", details=False, tokenizer="content", timings=True, meta=True),
    "lmstudio": Flavour(thoughts="content", details=False, errors="string", logprobs="none", strays=200),
    "proxy": Flavour(logprobs="chats"),
    "vllm": Flavour(
        thoughts="both", details=False, tokenizer="prompt", refuses_late=True, metrics=VLLM_METRICS
    ),
}
META = {
    "vocab_type": 2,
    "n_vocab": 151_936,
    "n_ctx_train": 32_768,
    "n_embd": 2048,
    "n_params": 30_532_122_624,
    "size": 18_000_000_000,
}
SLOT_CONTEXT = 8_192


def pages(
    flavour: Flavour, models: tuple[str, ...], *, dead: bool, tools: bool
) -> dict[str, tuple[int, Any]]:
    """What GET gives by path: status and JSON."""
    listed: list[dict[str, Any]] = [{"id": model, "object": "model", "created": 0} for model in models]
    for one in listed:
        if flavour.meta:
            one["meta"] = META  # weights of the same size may be others
            one["owned_by"] = "llamacpp"
        if flavour.tokenizer == "prompt":
            one["max_model_len"] = SLOT_CONTEXT
    found: dict[str, tuple[int, Any]] = {"/v1/models": (200, {"object": "list", "data": listed})}
    if flavour.strays == 404:
        found["/health"] = (503, {"status": "unavailable"}) if dead else (200, {"status": "ok"})
    if flavour.meta:
        told = {"default_generation_settings": {"n_ctx": SLOT_CONTEXT}, "total_slots": 4}
        found["/props"] = (200, {**told, "chat_template_caps": {"supports_tools": tools}})
    return found


def error(flavour: Flavour, status: int, message: str, kind: str) -> dict[str, Any]:
    """The body of an error."""
    if flavour.errors == "string":
        return {"error": message}
    return {"error": {"message": message, "type": kind, "code": status}}


def thought(flavour: Flavour, text: str) -> dict[str, str]:
    """A piece of thought as a delta has it."""
    if flavour.thoughts == "content":
        return {"content": text}
    names = ("reasoning_content", "reasoning") if flavour.thoughts == "both" else (flavour.thoughts,)
    return {"content": "", **dict.fromkeys(names, text)}
