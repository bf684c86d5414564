"""How much room llama-server and vLLM have, read from what they tell of themselves."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from workers.machine.engines.base import Capacity

CACHE = "vllm:cache_config_info{"
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def reported(props: Any, listed: Any) -> Capacity:
    """From llama-server's `/props`, or vLLM's entry for a model in `/v1/models`; of other servers nothing.

    llama-server divides its context among its slots, and tells the share of one.
    """
    slots, context = _count(props, "total_slots"), _count(_get(props, "default_generation_settings"), "n_ctx")
    if slots is not None or context is not None:
        return Capacity(slots, context, None, "--parallel", "--ctx-size, which its slots share")
    return Capacity(context_tokens=_count(listed, "max_model_len"), context_setting="--max-model-len")


def with_cache(told: Capacity, metrics: str) -> Capacity:
    """Add the size of vLLM's KV cache, from `/metrics`; of several replicas, their sum.

    Newer versions tell it in tokens, older ones only in blocks.
    """
    sizes = [_tokens(line) for line in metrics.splitlines() if line.startswith(CACHE)]
    return replace(told, cache_tokens=sum(sizes) or None)


def _tokens(line: str) -> int:
    labels = dict(_LABEL.findall(line))
    if (tokens := _number(labels.get("kv_cache_size_tokens"))) is not None:
        return tokens
    blocks, size = _number(labels.get("num_gpu_blocks")), _number(labels.get("block_size"))
    return (blocks or 0) * (size or 0)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _count(value: Any, name: str) -> int | None:
    found = _get(value, name)
    return found if isinstance(found, int) and found > 0 else None
