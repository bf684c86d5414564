"""A model server under test, and what a worker of a machine has of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from redis import Redis

from bench.engines.workload import job
from bench.model_servers import VLLM, ModelServer, ServerProcess, Setup, started
from cli.dev.embedded_redis import free_port
from grading.broker.kept_digests import KeptDigests
from grading.config.machines import Machine
from workers.machine.engines import open_engines
from workers.machine.engines.base import Engine, Request
from workers.machine.model_digests import ModelDigests

PLACE = "server"
ANSWER_S = 60.0
VLLM_OPTION = click.option(
    "--vllm",
    default=VLLM,
    show_default=True,
    help="Words that begin vLLM's server, such as of another environment; the weights come behind them.",
)
"""Of commands that start servers by name."""


class Remembered(KeptDigests):
    """Kept in memory, as Redis keeps them."""

    def __init__(self) -> None:
        super().__init__(Redis(), "bench")
        self._kept: dict[tuple[str, str], str] = {}

    def first(self, engine: str, model: str, digest: str) -> str:
        """See `KeptDigests`."""
        return self._kept.setdefault((engine, model), digest)

    def get(self, engine: str, model: str) -> str:
        """See `KeptDigests`."""
        return self._kept.get((engine, model), "")


@dataclass(frozen=True)
class Lab:
    """A server that is started with either of two weights behind one path, and the worker's view of it."""

    server: ModelServer
    weights: tuple[Path, Path]
    setup: Setup

    @property
    def model(self) -> str:
        """What the server calls it."""
        return self.server.model(self.setup)

    @property
    def place(self) -> tuple[str, str]:
        """Engine and model."""
        return PLACE, self.model

    @contextmanager
    def starting(self, which: int) -> Iterator[ServerProcess]:
        """The server with the first (0) or the second (1) weights, not ready yet."""
        link = self.setup.weights
        link.unlink(missing_ok=True)
        link.symlink_to(self.weights[which].resolve())
        with started(self.server, self.setup) as process:
            yield process

    @contextmanager
    def serving(self, which: int) -> Iterator[ServerProcess]:
        """The same, once it is ready."""
        with self.starting(which) as process:
            process.await_ready()
            yield process

    def machine(self, model: str = "", options: Mapping[str, Any] | None = None) -> Machine:
        """One machine with that server."""
        tail = "/v1" if self.server.kind == "openai" else ""
        settings = {"kind": self.server.kind, "url": f"{self.setup.url}{tail}", "options": options or {}}
        stages = {"analysis": {"engine": PLACE, "model": model or self.model}}
        told = {"name": "bench", "engines": {PLACE: settings}, "stages": stages, "slots": self.setup.slots}
        return Machine.model_validate(told)

    @contextmanager
    def worker(
        self, kept: KeptDigests, model: str = "", options: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Engine, ModelDigests]]:
        """What a worker has of the server after its start; `options` are the engine's."""
        machine = self.machine(model, options)
        engines = open_engines(machine)
        with closing(engines[PLACE]):
            yield engines[PLACE], ModelDigests(machine, engines, kept)

    def request(self, user: str, most: int, **changes: Any) -> Request:
        """A request for at most so many tokens.

        Drawn at random: at temperature 0 a random model writes one token for ever, at which Ollama stops it.
        """
        asked = Request(job(most), self.model, "Say something.", user, {}, most, 1.0, ANSWER_S)
        return replace(asked, **changes)


def lab_of(server: ModelServer, folder: Path, slots: int = 2) -> Lab:
    """A lab with weights that are made in the folder, on a free port."""
    weights = server.make_weights(folder / "first", 0), server.make_weights(folder / "second", 1)
    setup = Setup(folder / f"weights{server.suffix}", free_port(), slots, server.context)
    return Lab(server, weights, setup)
