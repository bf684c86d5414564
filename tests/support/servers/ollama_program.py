"""Stands for the program `ollama`, where tests start one: its protocol, with answers as long as they may be.

    python -m tests.support.servers.ollama_program serve
    python -m tests.support.servers.ollama_program create NAME -f MODELFILE

Reads the variables that `bench.model_servers` sets. A model's digest is that of its file.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tests.support.servers.base import Behaviour, ModelServer
from tests.support.servers.ollama_server import OllamaHandler

PROSE = "The plot is easy to read. " * 3_000


class Handler(OllamaHandler):
    """As many answers at once as it has slots; its models are those in its folder."""

    def setup(self) -> None:
        super().setup()
        known = {file.name: file.read_text() for file in models().iterdir()}
        self.server.behaviour.models = tuple(known)
        self.server.behaviour.weights = "".join(known.values())


def models() -> Path:
    """The folder of the models."""
    folder = Path(os.environ["OLLAMA_MODELS"])
    folder.mkdir(exist_ok=True)
    return folder


def serve() -> None:
    """Serve until it is ended."""
    slots, context = int(os.environ["OLLAMA_NUM_PARALLEL"]), int(os.environ["OLLAMA_CONTEXT_LENGTH"])
    behaviour = Behaviour((), seconds=0.05, context=context, prose=PROSE, token_s=0.001, unfit="nowhere")
    behaviour.waits = (*(0.0 for _ in range(slots)), *(1.0 for _ in range(slots)))
    ModelServer(Handler, behaviour, int(os.environ["OLLAMA_HOST"].rpartition(":")[2])).serve_forever()


def create(name: str, modelfile: str) -> None:
    """Take the weights that the file names."""
    weights = Path(Path(modelfile).read_text().removeprefix("FROM ").strip())
    (models() / name).write_text(hashlib.sha256(weights.read_bytes()).hexdigest())


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        create(sys.argv[2], sys.argv[4])
