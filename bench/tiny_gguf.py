"""Writes a tiny model of kind `qwen3` once more as the one file that llama.cpp and Ollama load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What mlx-lm calls the weights, and GGUF; those of layers without their numbers."""
NORMAL, CONTROL = 1, 3
"""Types of tokens."""


def write_gguf(folder: Path, file: Path) -> Path:
    """Write the model of the folder, with its tokenizer and its template, into the file in 16 bit."""
    import mlx.core as mx

    config = json.loads((folder / "config.json").read_text())
    weights: Any = mx.load(str(folder / "model.safetensors"))
    # llama.cpp wants what is added in full precision
    made = {
        _name(name): value.astype(mx.float32 if value.ndim == 1 else mx.float16)
        for name, value in weights.items()
    }
    told = {**dict(_shape(config)), **dict(_tokens(folder, config))}
    mx.save_gguf(str(file), made, told)
    return file


def _name(name: str) -> str:
    inner = name.removesuffix(".weight")
    if not inner.startswith("model.layers."):
        return f"{NAMES[inner]}.weight"
    number, _, part = inner.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{NAMES[part]}.weight"


def _shape(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    import mlx.core as mx

    yield "general.architecture", config["model_type"]
    yield "general.name", "tiny"
    whole = {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "attention.value_length": "head_dim",
    }
    for name, ours in whole.items():
        yield f"{config['model_type']}.{name}", mx.array(config[ours], dtype=mx.uint32)
    real = {"rope.freq_base": "rope_theta", "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
    for name, ours in real.items():
        yield f"{config['model_type']}.{name}", mx.array(config[ours], dtype=mx.float32)


def _tokens(folder: Path, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    import mlx.core as mx

    inner = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = inner["model"]["vocab"]
    special = {one["content"] for one in inner["added_tokens"] if one["special"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    types = [CONTROL if token in special else NORMAL for token in tokens]
    yield "tokenizer.ggml.model", "gpt2"
    yield "tokenizer.ggml.pre", "gpt-2"
    yield "tokenizer.ggml.tokens", tokens
    yield "tokenizer.ggml.token_type", mx.array(types, dtype=mx.int32)
    pairs = inner["model"]["merges"]
    yield "tokenizer.ggml.merges", [one if isinstance(one, str) else " ".join(one) for one in pairs]
    yield "tokenizer.ggml.eos_token_id", mx.array(config["eos_token_id"], dtype=mx.uint32)
    yield "tokenizer.chat_template", (folder / "chat_template.jinja").read_text()
