"""Machines with other weights: what `grader deploy` finds there and says, and `grader machines` shows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.deploy.deployment import differences
from cli.deploy.models import Wanted
from cli.deploy.remote.deploy_models import fingerprint as there
from cli.deploy.remote.deploy_models import hub
from cli.deploy.ssh import Remote
from cli.main import grader
from cli.settings import Settings
from grading.broker.connections import connect
from grading.broker.heartbeats import Heartbeat
from grading.broker.kept_digests import KeptDigests
from grading.broker.leases import Leases
from tests.integration.deploy.test_deploy import MODEL, deployment, ollama, ollama_store, remote, server
from tests.support.ssh_server import SshServer
from workers.machine.engines.mlx.model import fingerprint as by_the_worker

__all__ = ["ollama", "remote", "server"]
CONFIG = """
[[machines]]
name = "{name}"
[machines.engines.ollama]
url = "{url}"
[machines.stages]
analysis = {{ engine = "ollama", model = "qwen3-coder:30b" }}
feedback = {{ engine = "ollama", model = "qwen3-coder:30b" }}
"""


@pytest.fixture
def leases(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    monkeypatch.setenv("GRADER_REDIS_URL", redis_url)
    client = connect(redis_url)
    yield Leases(client)
    client.close()


def heartbeat(leases: Leases, machine: str, digest: str, **other: float) -> None:
    place = {"engine": "ollama", "model": MODEL, "digest": digest, "source": "ollama"}
    engines = {"ollama": other} if other else {}
    leases.heartbeat(Heartbeat(f"of {machine}", machine, 2, 0, {"analysis": place}, engines=engines))


def test_a_deploy_says_that_the_machine_has_other_weights_than_the_rest(
    leases: Leases, server: SshServer, remote: Remote, ollama: Wanted, tmp_path: Path
) -> None:
    ollama_store(server.folder / "models")
    one = deployment(remote, tmp_path)
    (tmp_path / "config.toml").write_text(CONFIG.format(name="lab-1", url=ollama.url))
    one.settings = Settings(tmp_path / "config.toml")
    one.machine = one.settings.config.machine("lab-1")
    one.options = replace(one.options, offline=True)
    assert "checked: all of its files by hash" in one._models()
    (found,) = one.claims
    assert (found.machine, found.engine, found.model) == ("lab-1", "ollama", MODEL)
    assert differences(one.settings, [one]) == []
    for name in ("lab-2", "lab-3"):
        heartbeat(leases, name, found.digest)
    heartbeat(leases, "lab-1", "sha256:00")  # what its worker said before the model was brought
    assert differences(one.settings, [one]) == []
    for name in ("lab-2", "lab-3"):
        heartbeat(leases, name, "sha256:11")
    (difference,) = differences(one.settings, [one])
    assert difference.alone == ("lab-1",)
    assert f"`ollama pull {MODEL}` on lab-1" in difference.remedy


def test_what_is_found_over_there_is_what_the_engine_tells(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"):
        (folder / name).write_bytes(os.urandom(3000))
    (folder / "README.md").write_text("is no part of the model")
    (tmp_path / "blob").write_bytes(b"{}")
    (folder / "generation_config.json").symlink_to(tmp_path / "blob")
    assert there(folder) == by_the_worker(folder)
    assert hub(tmp_path, str(folder), "")["model_digest"] == by_the_worker(folder)
    assert hub(tmp_path, str(folder), "", "quick")["model_digest"] == ""
    before = there(folder)
    (folder / "config.json").write_bytes(b"changed")
    assert there(folder) == by_the_worker(folder) != before


def test_the_command_machines_shows_weights_and_cached_tokens(leases: Leases, tmp_path: Path) -> None:
    names = ("lab-1", "lab-2", "lab-3")
    toml = "".join(CONFIG.format(name=name, url="http://localhost:11434") for name in names)
    (tmp_path / "config.toml").write_text(toml)
    for name in names:
        heartbeat(leases, name, "sha256:0011" if name == "lab-2" else "sha256:aabb")
    heartbeat(leases, "lab-1", "sha256:aabb", prompt_tokens=4000, cached_tokens=3000)
    words = ["--config", str(tmp_path / "config.toml"), "machines"]
    said = CliRunner().invoke(grader, words, env={"COLUMNS": "200"})
    assert said.exit_code == 0, said.output
    assert said.output.count("(ollama, aabb)") == 2
    assert "lab-1, ollama: 3,000 of 4,000 prompt tokens cached" in said.output
    assert "lab-2 differs from most" in said.output
    assert f"  → run `ollama pull {MODEL}` on lab-2" in said.output
    KeptDigests(leases.redis, "lab-2").first("ollama", MODEL, "sha256:0011")
    accepted = CliRunner().invoke(grader, [*words[:-1], "accept-models", "lab-2"])
    assert accepted.output == "lab-2: 1 model accepted with the weights they have now.\n"
    assert KeptDigests(leases.redis, "lab-2").get("ollama", MODEL) == ""
    told = json.loads(CliRunner().invoke(grader, [*words, "--json"]).output)
    assert told["machines"][0]["stages"]["analysis"]["digest"] == "sha256:aabb"
    assert told["machines"][0]["engines"] == {"ollama": {"prompt_tokens": 4000, "cached_tokens": 3000}}
    assert len(told["warnings"]) == 1
