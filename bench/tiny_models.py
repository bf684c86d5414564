"""Makes small real models with random weights in a folder, for tests and benchmarks: nothing is fetched."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["llama", "qwen2", "qwen3", "gemma3"]
WINDOW = 64
"""Tokens that a sliding layer of a `gemma3` model sees."""
EXTRAS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "model_type": "gemma3_text",
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,  # sliding and global layers in turn
        "rope_local_base_freq": 10000.0,
    }
}
"""What a kind's configuration has beside or instead of what all have."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; `head_dim` × `heads` need not be `hidden`."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int


TINY = Shape(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=32, intermediate=256)
"""0.7 million parameters, made in half a second."""
SMALL = Shape(hidden=512, layers=8, heads=8, kv_heads=4, head_dim=64, intermediate=1408)
"""24 million parameters."""

TEXT = """The student reads the data with read.csv and draws a histogram of the height column.
A good answer names the mean, the median and says which of them is robust against outliers and why.
library(dplyr); data <- filter(survey, age > 18); summary(data$height); ggplot(data, aes(x = height))
import pandas as pd; frame = pd.read_csv("survey.csv"); frame.groupby("class").mean()
{"judgements": [{"criterion": "reading", "level": 3, "reason": "clear", "quotes": ["x"]}], "summary": "ok"}
"""
SYSTEM_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# as Gemma's: no system role
FOLDING_TEMPLATE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + SYSTEM_TEMPLATE
)
PRINTABLE = [chr(code) for code in range(33, 127)]
"""The characters that `write_printable` leaves a model."""
UNWANTED, END = 64.0, 48.0
"""By how much it lowers others, and the one that ends, times the first number of the hidden state."""
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def _config(kind: Kind, shape: Shape, tokens: int, context: int, eos: int) -> dict[str, Any]:
    """What mlx-lm reads of a model beside its weights."""
    return {
        "model_type": kind,
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": 1e-6,
        "vocab_size": tokens,
        "rope_theta": 10000.0,
        "max_position_embeddings": context,
        "tie_word_embeddings": False,
        "query_pre_attn_scalar": shape.head_dim,
        "eos_token_id": eos,
        **EXTRAS.get(kind, {}),
    }


def make_model(
    folder: Path,
    kind: Kind = "llama",
    shape: Shape = TINY,
    *,
    system: bool = True,
    context: int = 4096,
    dtype: Literal["float32", "bfloat16"] = "float32",
    seed: int = 0,
    tokens: int = 0,
) -> Path:
    """Write a model that mlx-lm loads, with a byte-level tokenizer of about 512 tokens.

    The same arguments give the same weights, another seed others of the same spread.
    With `tokens` the model knows as many, of which the tokenizer knows only its own.
    `system` false gives a template that refuses the system role.
    Every second layer of kind `gemma3` sees only the last `WINDOW` tokens; its output shares the embedding.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, eos = _tokenizer(folder, SYSTEM_TEMPLATE if system else FOLDING_TEMPLATE)
    config = _config(kind, shape, max(vocabulary, tokens), context, eos)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _weights(folder, config, dtype, seed)
    return folder


def write_printable(folder: Path) -> Path:
    """Change a model: it writes printable characters only, and never ends by itself.

    Where a grammar leaves it no such character, it ends rather than write white space.
    """
    import mlx.core as mx
    from mlx_lm.utils import load_tokenizer

    vocabulary = load_tokenizer(folder).get_vocab()
    file = str(folder / "model.safetensors")
    weights: Any = mx.load(file)
    # the first number of the hidden state is the same for all texts, so that the head can have a bias
    for name, value in weights.items():
        if name == "model.embed_tokens.weight":
            value[:, 0] = 1.0
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            value[0, :] = 0.0
    head = weights["lm_head.weight"]
    unwanted = mx.ones((head.shape[0], 1))
    unwanted[mx.array([vocabulary[character] for character in PRINTABLE])] = 0.0
    head = head * (1 - unwanted).astype(head.dtype)
    head[:, 0] -= UNWANTED * unwanted[:, 0].astype(head.dtype)
    head[json.loads((folder / "config.json").read_text())["eos_token_id"], 0] = -END
    weights["lm_head.weight"] = head
    mx.eval(weights)
    mx.save_safetensors(file, weights, metadata={"format": "mlx"})
    return folder


def _tokenizer(folder: Path, template: str) -> tuple[int, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXT.splitlines() * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",  # noqa: S106 - no password
        pad_token="<|endoftext|>",  # noqa: S106 - no password
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
    return inner.get_vocab_size(), SPECIALS.index("<|im_end|>")


def _weights(folder: Path, config: dict[str, Any], dtype: str, seed: int) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import load_model

    # the structure comes from mlx-lm itself; strict off because there are no weights yet
    model, _ = load_model(folder, lazy=True, strict=False)
    mx.random.seed(seed)
    made = {}
    for name, value in tree_flatten(model.parameters()):
        if value.ndim == 1:
            made[name] = mx.zeros(value.shape) if name.endswith("bias") else mx.ones(value.shape)
        else:
            made[name] = mx.random.normal(value.shape) / math.sqrt(value.shape[-1])
    made = {name: value.astype(getattr(mx, dtype)) for name, value in made.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), made, metadata={"format": "mlx"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(made, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
