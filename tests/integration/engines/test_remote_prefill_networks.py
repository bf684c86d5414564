"""Reader and writer in two networks with a cable between them: the same tokens, also when it is pulled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from bench.tiny_models import Kind, Shape, make_model
from tests.support.engines import HEADS, ask, quiet
from tests.support.networks import End, two_networks
from tests.support.remote_prefill import SECRET, alone, prefill_process
from workers.machine.engines.remote_prefill.protocol import SECRET_VARIABLE

PORT = 7300
KINDS: tuple[Kind, ...] = ("llama", "qwen3", "qwen2", "gemma3")
OFTEN: tuple[Kind, ...] = ("llama", "gemma3")
"""One without and one with windows in its caches."""
PROMPTS = 3
"""For each of them."""
LARGE = Shape(hidden=128, layers=2, heads=8, kv_heads=8, head_dim=128, intermediate=128)
"""16 kB of cache a token: far more than a link holds of a prompt."""


class Writer:
    """The writing process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, **said: object) -> None:
        """A line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next line of it."""
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    made = {kind: make_model(folder / kind, kind, HEADS) for kind in OFTEN}
    return {**made, "large": make_model(folder / "large", shape=LARGE)}


@pytest.fixture(scope="module")
def ends(
    models: dict[str, Path], root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[End, Writer]]:
    with cable(list(models.values()), root, tmp_path_factory.mktemp("reader")) as made:
        yield made


TRIES = 5
"""Requests by which a reader is used again whose cable is plugged in."""


@contextmanager
def cable(models: Sequence[Path], root: Path, folder: Path) -> Iterator[tuple[End, Writer]]:
    """The reader's end of the cable, and the writer at the other."""
    with ExitStack() as stack:
        one, two = stack.enter_context(two_networks())
        address = f"{one.address}:{PORT}"
        command = [*two.enter, sys.executable, "-m", "tests.support.remote_prefill_writer", address]
        there = stack.enter_context(writer(command, root))  # both start at the same time
        stack.enter_context(prefill_process(folder, address, models, one.enter))
        assert there.hear() == {"ready": True}
        yield one, there


@contextmanager
def writer(command: list[str], root: Path) -> Iterator[Writer]:
    with subprocess.Popen(
        command,
        cwd=root,
        env={**os.environ, SECRET_VARIABLE: SECRET},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


def same_tokens(there: Writer, model: Path, prompts: int) -> None:
    """Of so many prompts, each read over the cable and written by a process that reads one token itself."""
    with alone(model) as direct:
        for n in range(prompts):
            words = {"system": f"Task {n}. " * 9 * (n % 5), "user": f"Work {n} " + "y = 2; " * (15 + n)}
            given = {"model": str(model), **words, "schema": {}, "max_output_tokens": 8}
            there.tell(**given)
            expected = direct.generate(ask(**given), quiet).text
            made = {"text": expected, "read": 1, "strategy": "disaggregated", "fault": None}
            assert there.hear() == made, (model, n)


@pytest.mark.soak  # tests/e2e/machine/test_remote_prefill.py has the same on one network
def test_the_tokens_are_those_of_one_machine(models: dict[str, Path], ends: tuple[End, Writer]) -> None:
    for kind in OFTEN:
        same_tokens(ends[1], models[kind], PROMPTS)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_tokens_of_fifty_prompts_are_those_of_one_machine(
    tmp_path: Path, root: Path, dtype: Literal["float32", "bfloat16"]
) -> None:
    made = [make_model(tmp_path / kind, kind, HEADS, dtype=dtype) for kind in KINDS]
    with cable(made, root, tmp_path) as (_, there):
        for model in made:
            same_tokens(there, model, 50)


@pytest.mark.soak  # test_remote_prefill_faults.py has a link that carries nothing any more
def test_a_cable_pulled_in_the_middle_changes_no_token(
    models: dict[str, Path], ends: tuple[End, Writer]
) -> None:
    end, there = ends
    words = {"system": "", "user": "x <- c(1, 2) # " * 50}
    given = {"model": str(models["large"]), **words, "schema": {}, "max_output_tokens": 8}
    with alone(models["large"]) as direct:
        expected = direct.generate(ask(**given), quiet)
    there.tell(**given, stops=True)
    assert there.hear() == {"arrives": True}
    end.pull()
    there.tell()
    said = there.hear()
    assert (said["text"], said["strategy"], said["fault"]) == (expected.text, "direct", "link_stalled")
    assert said["read"] > 0.9 * expected.tokens.prompt  # but for what all prompts begin with
    end.plug()
    for _ in range(TRIES):  # on a busy computer the first may still time out
        there.tell(**given)
        again = there.hear()
        assert again["text"] == expected.text
        if again["strategy"] == "disaggregated":
            break
    assert (again["strategy"], again["read"]) == ("disaggregated", 1)
