"""Situations on real model servers, as `grader bench situations` plays them; the small ones in each run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.model_servers import GivenCommand, ModelServer, known_servers
from bench.situations import command, failures
from bench.situations.command import SITUATIONS
from cli.commands.bench import bench

NOT_OFFERED: dict[str, set[str]] = {
    "llama.cpp": set(),
    "mlx_lm.server": {"schema", "nested", "broken_schema", "context", "capacity"},
    "vllm": set(),
    "ollama": {"broken_schema"},
}
"""Situations that ask for what a server does not have."""
STAND_IN = """#!/bin/sh
cd '{root}' && exec '{python}' -m tests.support.servers.ollama_program "$@"
"""


def situations(*words: str) -> tuple[Result, dict[str, Any]]:
    """What the command ends with, and prints."""
    run = CliRunner().invoke(bench, ["situations", *words, "--json"])
    assert run.stdout, run.output
    return run, json.loads(run.stdout)


def play(server: str) -> None:
    run, told = situations(server)
    assert told["missing"] == {}
    (played,) = told["servers"]
    other = {row["situation"]: row["seen"] for row in played["rows"] if not row["seen"]["expected"]}
    assert (other, run.exit_code) == ({}, 0)
    assert [row["situation"] for row in played["rows"]] == [one.name for one in SITUATIONS]
    assert {row["situation"] for row in played["rows"] if not row["seen"]["offered"]} == NOT_OFFERED[server]
    assert played["version"]


@pytest.mark.parametrize("server", ["llama.cpp", "mlx_lm.server"])
def test_a_small_server_does_what_is_expected_in_every_situation(server: str) -> None:
    assert len({one.name for one in SITUATIONS}) == 20
    play(server)


def test_ollama_is_started_by_its_program_and_played_by_its_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ollama"
    program.write_text(STAND_IN.format(root=Path(__file__).parents[3], python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    play("ollama")


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("server", ["vllm", "ollama"])
def test_a_large_server_does_what_is_expected_or_is_named_as_missing(server: str) -> None:
    if known_servers()[server].missing():
        run, told = situations(server)
        assert (list(told["missing"]), told["servers"], run.exit_code) == ([server], [], 1)
    else:
        play(server)


def test_a_server_that_is_not_here_is_named_and_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    run, told = situations("vllm", "--vllm", "no-such-program serve")
    assert told == {
        "servers": [],
        "missing": {"vllm": "the program no-such-program, or another one by --vllm"},
    }
    assert run.exit_code == 1
    assert CliRunner().invoke(bench, ["situations", "nobody"]).exit_code == 2


def test_what_fails_is_a_row_and_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a web server that is none of models, and a program that ends at once."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "models").write_text("{}")
    page = f"'{sys.executable}' -m http.server {{port}} --directory '{tmp_path}' --bind 127.0.0.1"
    weights = tmp_path / "v1", tmp_path
    servers: dict[str, ModelServer] = {
        name: GivenCommand(words, weights, "tiny", "openai") for name, words in (("a", page), ("b", "false"))
    }
    monkeypatch.setattr(command, "known_servers", lambda _vllm: servers)
    monkeypatch.setattr(failures, "START_S", 0.5)
    run, told = situations()
    other, ended = told["servers"]
    assert [row["situation"] for row in other["rows"]] == [one.name for one in SITUATIONS]
    seen = {row["situation"]: row["seen"]["outcome"] for row in other["rows"]}
    assert seen["answer"] != "answered"
    assert seen["refused"] != "answered"
    assert [row["situation"] for row in ended["rows"]] == ["start"]
    assert run.exit_code == 1
