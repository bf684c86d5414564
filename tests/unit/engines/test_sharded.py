"""Sharded models without a model that runs: settings, ways of sharing out, caches, ranks that are played."""

from __future__ import annotations

import queue
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.tiny_models import Kind, make_model
from grading.config.machines import EngineSettings, Machine
from grading.domain.errors import ConfigError, EngineError, EngineUnreachable, ModelMissing
from grading.domain.messages import Message
from tests.support.sharded import addresses
from workers.machine.engines import open_engine, open_engines
from workers.machine.engines.mlx.decode_loop import Counters
from workers.machine.engines.mlx.generation import Sampling, Ticket
from workers.machine.engines.mlx.model import Prompt
from workers.machine.engines.sharded import rank_group as groups
from workers.machine.engines.sharded.engine import ShardedEngine
from workers.machine.engines.sharded.loading import way
from workers.machine.engines.sharded.protocol import Settings
from workers.machine.engines.sharded.rank import TokenPrefixes
from workers.machine.engines.sharded.rank_group import DistributedGeneration, RankGroup
from workers.machine.engines.sharded.rank_handle import command, environment

HOSTS = ["10.0.0.1:7401", "10.0.0.2:7401"]


def machine(**changes: Any) -> dict[str, Any]:
    here = {"engine": "sharded", "model": "big"}
    engines = {"sharded": {"options": {"hosts": HOSTS, "mode": "pipeline"}}}
    return {"name": "pool", "engines": engines, "stages": {"analysis": here, "feedback": here}, **changes}


def test_a_machine_of_several_ranks_is_configured() -> None:
    settings = Machine.model_validate(machine()).engines["sharded"].options
    engine = open_engine("sharded", settings)
    assert isinstance(engine, ShardedEngine)
    engine.close()
    with pytest.raises(EngineError, match="was closed"):
        engine.load("big")


def test_the_examples_are_valid(root: Path) -> None:
    text = (root / "docs" / "how-to" / "administrators" / "sharded.md").read_text(encoding="utf-8")
    whole, part = (tomllib.loads(block.partition("```")[0]) for block in text.split("```toml\n")[1:])
    (example,) = whole["machines"]
    for engines in (Machine.model_validate(example).engines, part["machines"]["engines"]):
        settings = EngineSettings.model_validate(engines["sharded"])
        open_engine("sharded", settings.options).close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"engines": {}}, r"engines\.sharded\.hosts: is missing"),
        (
            {
                "stages": {
                    "analysis": {"engine": "sharded", "model": "big"},
                    "feedback": {"engine": "sharded", "model": "other"},
                }
            },
            "hold one model",
        ),
    ],
)
def test_a_machine_without_ranks_or_with_two_models_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_engines(Machine.model_validate(machine(**changes)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hosts": HOSTS[:1]}, "two or more"),
        ({"hosts": "10.0.0.1:7401, 10.0.0.2:7401"}, "two or more"),
        ({"hosts": ["10.0.0.1:7401", "spark-2:7401"]}, "'spark-2:7401' must be an IPv4 address"),
        ({"hosts": ["10.0.0.1:7401", "10.0.0.2:70000"]}, "has no port"),
        ({"hosts": ["10.0.0.1:7401"] * 2}, "the same address"),
        ({"hosts": HOSTS, "mode": "both"}, "'both' is none of auto, pipeline, tensor"),
    ],
)
def test_ranks_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_engine("sharded", settings)


def test_ranks_here_are_started_here_and_others_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = "ssh -T {host} python -m workers.machine.engines.sharded.rank"
    assert command(HOSTS, 0, remote)[0] == sys.executable
    assert command(HOSTS, 1, remote) == ["ssh", "-T", "10.0.0.2", *remote.split()[3:]]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert environment(HOSTS)["OMP_NUM_THREADS"] == "16"
    assert environment([*HOSTS, "10.0.0.1:7402"])["OMP_NUM_THREADS"] == "8"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert environment(HOSTS)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("kind", "mode", "ranks", "found"),
    [
        ("qwen2", "auto", 3, "pipeline"),
        ("qwen2", "tensor", 2, "tensor"),
        ("qwen2", "tensor", 3, "num_attention_heads = 4 cannot be divided by 3"),
        ("qwen2", "auto", 5, "pipeline: it has 4 layers; tensor: num_attention_heads"),
        ("llama", "auto", 2, "tensor"),
        ("llama", "pipeline", 2, "cannot share out the layers"),
        ("gemma3", "auto", 2, "pipeline: mlx-lm cannot share out .*; tensor: mlx-lm cannot split"),
    ],
)
def test_a_model_is_shared_out_as_it_can_be(
    tmp_path: Path, kind: Kind, mode: Any, ranks: int, found: str
) -> None:
    from mlx_lm.utils import load_model

    model, config = load_model(make_model(tmp_path, kind), lazy=True)
    if found in ("pipeline", "tensor"):
        assert way("m", mode, model, config, ranks) == found
    else:
        with pytest.raises(ModelMissing, match=found):
            way("m", mode, model, config, ranks)


@dataclass
class Layer:
    """A layer's cache of so many bytes."""

    nbytes: int
    state: list[Any] = field(default_factory=list)


@pytest.mark.parametrize("layer_bytes", [10, 10**9])
def test_ranks_keep_the_same_prefixes_whatever_their_layers_take(layer_bytes: int) -> None:
    prefixes = TokenPrefixes(100)
    for name in (1, 2, 3):
        prefixes.keep(0, (name,) * 40, [Layer(layer_bytes), Layer(layer_bytes)])
    assert prefixes.held() == [(2,) * 40, (3,) * 40]
    assert prefixes.held_bytes == 4 * layer_bytes
    prefixes.keep(0, (4,) * 101, [Layer(layer_bytes)])
    assert not prefixes.takes(0, (4,) * 101)


# --- ranks that are played ------------------------------------------------------------------------------

PLAYED = """
import json, signal, sys
how, odd = sys.argv[1], False
def say(word, **said):
    print(json.dumps({"word": word, **said}), flush=True)
for said in sys.stdin:
    told = json.loads(said)
    odd = odd or told["word"] == "begin" and told["rank"] == 1
    if told["word"] == "begin" and not (how == "silent" and odd):
        if how == "ends" and odd:
            sys.exit(7)
        other = "2" if how == "other software" and odd else "1"
        say("here", digest="sha256:1", software="grader " + other, pid=1)
    elif told["word"] == "load":
        say("ready", mode="pipeline")
    elif told["word"] == "step":
        if how == "nonsense" and odd:
            print("nonsense", flush=True)
        if how == "stands still" and odd:
            signal.pause()
        if how == "behind" and odd and told["number"] == 1:
            sys.stdin.readline()  # the second step
        token = 8 if how == "apart" and odd else 9
        one = {"phases": ["reading"], "tokens": [token], "end": "length"}
        news = [{"id": add["id"], **one} for add in told["add"]]
        say("done", number=told["number"], news=news, counts={"output_tokens": len(news)})
"""
"""A rank that says what it should but for one thing, in plain JSON: to import Grader's own takes long."""


def plays(how: str) -> list[str]:
    """What starts a rank that is played in this way."""
    return [sys.executable, "-I", "-S", "-c", PLAYED, how]


@contextmanager
def played(how: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RankGroup]:
    """A group whose two ranks are played, the second one in this way."""
    monkeypatch.setattr(groups, "command", lambda *_: plays(how))
    load_s, step_s = 2.0 if how == "silent" else 60.0, 1.0 if how == "stands still" else 60.0
    if how == "stands still":  # so it does not end by itself
        monkeypatch.setattr("workers.machine.engines.sharded.rank_handle.END_S", 0.2)
    settings = Settings(tuple(addresses(2)), "auto", 1, 64, 100, None, False, "", load_s, step_s)
    group = RankGroup(settings, "big", Counters())
    try:
        yield group
    finally:
        group.end(EngineError("over"))


@pytest.mark.parametrize(
    ("how", "kind", "sentence"),
    [
        ("other software", ModelMissing, r"do not have the same software, .*Rank 1 \(.*\): grader 2"),
        ("silent", EngineUnreachable, r"Rank 1 \(127.0.0.1:\d+\) could not be reached within 2 s"),
        ("ends", EngineUnreachable, r"Rank 1 \(.*\) ended \(status 7\)"),
    ],
)
def test_ranks_that_do_not_fit_are_not_used(
    monkeypatch: pytest.MonkeyPatch, how: str, kind: type[EngineError], sentence: str
) -> None:
    with played(how, monkeypatch) as group, pytest.raises(kind, match=sentence):
        group.start()


def sent() -> DistributedGeneration:
    ticket = Ticket(
        loaded=None,  # type: ignore[arg-type]  # nothing is decoded
        prompt=Prompt([1, 2, 3], 0),
        max_tokens=1,
        sampling=Sampling(0.0),
        constraint=None,
        over=lambda: False,
        wake=lambda: None,
    )
    return DistributedGeneration(ticket, "")


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("apart", "wrote something else than rank 0"),
        ("nonsense", "not a message between worker and rank"),
        ("stands still", r"Rank 1 \(.*\) took no step for 1 s"),
    ],
)
def test_ranks_that_come_apart_are_lost(monkeypatch: pytest.MonkeyPatch, how: str, sentence: str) -> None:
    with played(how, monkeypatch) as group:
        group.start()
        one = sent()
        group.submit(one)
        with pytest.raises(EngineUnreachable, match=sentence) as caught:
            group.play()
        assert group.refuse(caught.value)
        group.end(caught.value)
        assert not group.refuse(caught.value)
        assert one.ticket.done.exception() is caught.value
        late = sent()
        group.submit(late)
        assert late.ticket.done.exception() is caught.value


@pytest.mark.parametrize("how", ["well", "behind"])
def test_ranks_that_agree_are_heard(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Also one that ends its first step only when the second has come: so many are under way at once."""
    with played(how, monkeypatch) as group:
        group.start()
        one = sent()
        one.ticket.done.add_done_callback(lambda _: group.stop())
        group.submit(one)
        group.play()
        assert one.ticket.done.result() == "length"
        assert one.ticket.output == [9]
        assert one.ticket.admitted is not None
        assert one.ticket.submitted <= one.ticket.admitted <= time.monotonic()


def test_a_start_that_fails_is_told_and_the_next_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine hears of it without any work, so that none comes; who asks meanwhile gets the next."""
    how = iter(("ends", "ends"))  # the ranks of the first start
    monkeypatch.setattr(groups, "command", lambda *_: plays(next(how, "well")))
    told: queue.SimpleQueue[Message] = queue.SimpleQueue()
    engine = ShardedEngine(hosts=addresses(2))
    engine.on_unavailable(told.put)
    try:
        with pytest.raises(EngineUnreachable, match="Rank 1"):
            engine.load("big")
        assert "Rank 1" in told.get(timeout=60).message
        assert engine.load("big") == "sha256:1"
    finally:
        engine.close()
    assert told.empty()
