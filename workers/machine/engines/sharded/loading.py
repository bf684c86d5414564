"""Loading a model that is shared out: its words in the worker, its parts in the ranks."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from grading.domain.errors import ModelMissing
from grading.shared.code_version import software as own_software
from workers.machine.engines.mlx.model import LoadedModel, missing, model_folder
from workers.machine.engines.sharded.protocol import Mode

PACKAGES = ("mlx", "mlx-lm", "llguidance", "tokenizers")
PLAIN = {"trust_remote_code": False}
"""How tokenizers are loaded: never with code that comes with a model."""


def software() -> str:
    """What ranks must have in common to take the same steps."""
    return ", ".join([f"grader {own_software()}", *(f"{name} {version(name)}" for name in PACKAGES)])


class _Elsewhere:
    """Stands for a model whose parts are in the ranks."""

    def parameters(self) -> dict[str, Any]:
        """None here."""
        return {}


def load_words(name: str, max_context: int | None) -> LoadedModel:
    """Tokenizer, chat template and context of a model, without its weights. Raises ModelMissing."""
    with missing(name):
        from mlx_lm.utils import load_config, load_tokenizer

        folder = model_folder(name)
        config = load_config(folder)
        tokenizer = load_tokenizer(folder, PLAIN, eos_token_ids=config.get("eos_token_id"))
        return LoadedModel(_Elsewhere(), tokenizer, config, max_context)


def join(rank: int, hosts: Sequence[str]) -> Any:
    """The ring of all ranks, as mlx's own launcher sets it up; waits for the others."""
    with tempfile.TemporaryDirectory() as folder:
        hostfile = Path(folder) / "hosts.json"
        hostfile.write_text(json.dumps([[host] for host in hosts]), encoding="ascii")
        os.environ.update(MLX_RANK=str(rank), MLX_HOSTFILE=str(hostfile))
        import mlx.core as mx

        return mx.distributed.init(strict=True, backend="ring")


def load_part(name: str, mode: Mode, group: Any, max_context: int | None) -> tuple[LoadedModel, Mode]:
    """This rank's part of a model, and how it is shared out. Raises ModelMissing."""
    with missing(name):
        from mlx_lm.utils import load_model, sharded_load

        folder = model_folder(name)
        whole, config = load_model(folder, lazy=True, strict=False)
        chosen = way(name, mode, whole, config, group.size())
        groups = (group, None) if chosen == "pipeline" else (None, group)
        model, tokenizer, config = sharded_load(
            str(folder), *groups, return_config=True, tokenizer_config=PLAIN
        )
        return LoadedModel(model, tokenizer, config, max_context), chosen


def way(name: str, mode: Mode, model: Any, config: dict[str, Any], ranks: int) -> Mode:
    """How a model is shared out to so many ranks: by layers if it can, as that asks least of the line.

    Raises ModelMissing, with what mends it, for a model that cannot, or not in the way that is wanted.
    """
    reasons: dict[Mode, str] = {
        "pipeline": _against_pipeline(model, ranks),
        "tensor": _against_tensor(model, config, ranks),
    }
    for way, reason in reasons.items():
        if mode in ("auto", way) and not reason:
            return way
    against = "; ".join(f"{way}: {why}" for way, why in reasons.items() if mode in ("auto", way))
    raise ModelMissing(
        f"The model {name} ({config.get('model_type', 'of unknown type')}) cannot be shared out to {ranks} "
        f"ranks. {against}. Take another model or mode, or the engine mlx on a machine that holds all of it."
    )


def _against_pipeline(model: Any, ranks: int) -> str:
    if not hasattr(getattr(model, "model", None), "pipeline"):
        return "mlx-lm cannot share out the layers of this kind of model"
    layers = len(model.model.layers)
    return f"it has {layers} layers" if layers < ranks else ""


def _against_tensor(model: Any, config: dict[str, Any], ranks: int) -> str:
    if not hasattr(model, "shard"):
        return "mlx-lm cannot split the layers of this kind of model"
    sizes = {**config, **(config.get("text_config") or {})}
    for key in ("num_attention_heads", "num_key_value_heads"):
        if isinstance(heads := sizes.get(key), int) and heads % ranks:
            return f"{key} = {heads} cannot be divided by {ranks}"
    return ""
