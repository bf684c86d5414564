"""Swapped weights of real model servers, and the same ones in batches of changing size."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.weights import command


@pytest.mark.soak
@pytest.mark.parametrize("server", ["llama.cpp", "mlx_lm.server"])
def test_swapped_weights_are_noticed_and_the_same_ones_are_not(server: str) -> None:
    said = CliRunner().invoke(command, ["--server", server, "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert (found["starts"], found["false_alarms"]) == (200, 0)
    assert (found["swaps"], found["noticed"], found["back_refused"]) == (20, 20, 0)
