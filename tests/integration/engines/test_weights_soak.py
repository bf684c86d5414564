"""Swapped weights of a real mlx_lm.server, and the same ones in batches of changing size."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.tiny_models import make_model
from bench.weights import command


def other_weights(folder: Path) -> None:
    """Of the same sizes and spreads."""
    import mlx.core as mx

    path = str(folder / "model.safetensors")
    mx.random.seed(random.Random(5).randrange(1000))
    made = {}
    for name, value in mx.load(path).items():
        if value.ndim > 1:
            spread = mx.sqrt((value.astype(mx.float32) ** 2).mean())
            value = (mx.random.normal(value.shape) * spread).astype(value.dtype)
        made[name] = value
    mx.eval(made)
    mx.save_safetensors(path, made, metadata={"format": "mlx"})


@pytest.mark.soak
def test_swapped_weights_of_mlx_lm_server_are_noticed_and_the_same_ones_are_not(tmp_path: Path) -> None:
    first, second = (make_model(tmp_path / name, "qwen3", dtype="bfloat16") for name in ("first", "second"))
    other_weights(second)
    server = f"{sys.executable} -m mlx_lm server --model {{weights}} --port {{port}}"
    words = ["--server", server, "--first", str(first), "--second", str(second), "--json"]
    said = CliRunner().invoke(command, words)
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert (found["starts"], found["false_alarms"]) == (200, 0)
    assert (found["swaps"], found["noticed"], found["back_refused"]) == (20, 20, 0)
