"""Situations on real model servers, as `grader bench situations` plays them; the small ones in each run."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.situations.command import SITUATIONS
from cli.commands.bench import bench

NOT_OFFERED: dict[str, set[str]] = {
    "llama.cpp": set(),
    "mlx_lm.server": {"schema", "nested", "broken_schema", "context", "capacity"},
    "vllm": set(),
}
"""Situations that ask for what a server does not have."""


def play(server: str) -> None:
    run = CliRunner().invoke(bench, ["situations", server, "--json"])
    assert run.stdout, run.output
    told = json.loads(run.stdout)
    assert told["missing"] == {}
    (played,) = told["servers"]
    other = {row["situation"]: row["seen"] for row in played["rows"] if not row["seen"]["expected"]}
    assert (other, run.exit_code) == ({}, 0)
    assert [row["situation"] for row in played["rows"]] == [one.name for one in SITUATIONS]
    assert {row["situation"] for row in played["rows"] if not row["seen"]["offered"]} == NOT_OFFERED[server]
    assert played["version"]


def test_there_are_twenty_situations() -> None:
    assert len({one.name for one in SITUATIONS}) == 20


@pytest.mark.parametrize("server", ["llama.cpp", "mlx_lm.server"])
def test_a_small_server_does_what_is_expected_in_every_situation(server: str) -> None:
    play(server)
