"""Known model servers, started here with tiny random weights: llama.cpp, mlx_lm.server, vLLM and Ollama."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

import requests

from bench.tiny_gguf import write_gguf
from bench.tiny_models import TINY, Shape, make_model, write_printable

START_S = 240.0
"""vLLM takes most of a minute on an idle CPU."""
STOP_S = 20.0
VLLM = "vllm serve"
MODEL = "tiny"
"""What servers call their model where they can be told."""
BRISK = Shape(hidden=256, layers=6, heads=4, kv_heads=2, head_dim=64, intermediate=704)
"""For llama.cpp, which writes thousands of tokens a second with a tiny model: long answers must last."""


class ServerBroken(Exception):
    """A model server did not start, or ended; says what it wrote."""


class Offer(StrEnum):
    """What servers differ in."""

    SCHEMAS = "binds answers to JSON schemas"
    REFUSALS = "says that it cannot follow a schema"
    CONTEXT = "refuses a prompt that is longer than its context"
    TOLD_SLOTS = "tells how many slots it has"
    TOLD_CONTEXT = "tells how long its context is"


@dataclass(frozen=True)
class Setup:
    """What a server is started with."""

    weights: Path
    port: int
    slots: int = 2
    context: int = 16_384
    """Tokens of one slot."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


class ModelServer(ABC):
    """A kind of model server: how it is started, and what it tells of itself."""

    name: str
    kind: str = "openai"
    """Of the engine that speaks to it."""
    page: str = "/health"
    """Answers 200 from when the model is served."""
    offers: frozenset[Offer] = frozenset()
    context: int = 16_384
    suffix: str = ""
    """Of weights; empty for folders."""

    @abstractmethod
    def missing(self) -> str:
        """What would have to be installed here; empty where nothing is missing."""

    @abstractmethod
    def command(self, setup: Setup) -> Sequence[str]:
        """The words that start it."""

    def environment(self, setup: Setup) -> Mapping[str, str]:
        """Variables beside those of this process."""
        return {"HF_HUB_OFFLINE": "1"}

    def make_weights(self, folder: Path, seed: int) -> Path:
        """Tiny random weights; another seed gives other ones of the same sizes."""
        made = make_model(folder, "qwen3", TINY, dtype="bfloat16", context=self.context, seed=seed)
        return write_printable(made)

    def model(self, setup: Setup) -> str:
        """What requests call the model."""
        return MODEL

    def prepare(self, setup: Setup) -> None:  # noqa: B027 - most need nothing
        """What is done once it runs, and before it is used."""

    def version(self, setup: Setup) -> str:
        """Of the running server."""
        return ""

    def working(self, setup: Setup) -> bool | None:
        """Whether it generates; None where it does not tell."""
        return None

    def written(self, setup: Setup) -> int | None:
        """Tokens that it has generated since its start; None where it does not tell."""
        return None


class LlamaCpp(ModelServer):
    """llama.cpp's server: out of the package `xllamacpp`, else the program `llama-server`."""

    name = "llama.cpp"
    offers = frozenset(Offer)
    suffix = ".gguf"

    def missing(self) -> str:
        """See `ModelServer`."""
        found = importlib.util.find_spec("xllamacpp") or shutil.which("llama-server")
        return "" if found else "the package xllamacpp, or llama-server in PATH"

    def command(self, setup: Setup) -> Sequence[str]:
        """See `ModelServer`."""
        weights, port, slots, context = map(str, (setup.weights, setup.port, setup.slots, setup.context))
        if importlib.util.find_spec("xllamacpp"):
            return [sys.executable, "-m", "bench.llama_cpp_server", weights, port, slots, context]
        whole = str(setup.slots * setup.context)
        words = ["llama-server", "--model", weights, "--alias", MODEL, "--host", "127.0.0.1", "--port", port]
        return [*words, "--parallel", slots, "--ctx-size", whole, "--threads", "1", "--slots", "--metrics"]

    def make_weights(self, folder: Path, seed: int) -> Path:
        """See `ModelServer`."""
        made = make_model(folder, "qwen3", BRISK, dtype="bfloat16", context=self.context, seed=seed)
        return write_gguf(write_printable(made), folder / "model.gguf")

    def version(self, setup: Setup) -> str:
        """See `ModelServer`."""
        if importlib.util.find_spec("xllamacpp"):
            return f"xllamacpp {version('xllamacpp')}"
        return str(_json(f"{setup.url}/props").get("build_info", ""))

    def working(self, setup: Setup) -> bool | None:
        """See `ModelServer`."""
        return _working(_metric(setup, "llamacpp:requests_processing"))

    def written(self, setup: Setup) -> int | None:
        """See `ModelServer`."""
        return _metric(setup, "llamacpp:tokens_predicted_total")


class MlxLm(ModelServer):
    """mlx_lm.server, as the extra `mlx` installs it."""

    name = "mlx_lm.server"
    context = 512
    """Of the model; the server itself has no limit, and reads whatever it gets."""

    def missing(self) -> str:
        """See `ModelServer`."""
        return "" if importlib.util.find_spec("mlx_lm") else "Grader's extra mlx"

    def command(self, setup: Setup) -> Sequence[str]:
        """See `ModelServer`."""
        slots = str(setup.slots)
        words = [sys.executable, "-m", "mlx_lm", "server", "--model", str(setup.weights)]
        words += ["--host", "127.0.0.1", "--port", str(setup.port), "--log-level", "WARNING"]
        return [*words, "--decode-concurrency", slots, "--prompt-concurrency", slots]

    def model(self, setup: Setup) -> str:
        """See `ModelServer`."""
        return str(setup.weights)

    def version(self, setup: Setup) -> str:
        """See `ModelServer`."""
        return version("mlx-lm")


class Vllm(ModelServer):
    """`vllm serve`, or what begins it in another environment; the weights come behind these words."""

    name = "vllm"
    offers = frozenset(Offer) - {Offer.TOLD_SLOTS}

    def __init__(self, words: str = VLLM) -> None:
        self._words = shlex.split(words)

    def missing(self) -> str:
        """See `ModelServer`."""
        program = self._words[0]
        return "" if shutil.which(program) else f"the program {program}, or another one by --vllm"

    def command(self, setup: Setup) -> Sequence[str]:
        """See `ModelServer`."""
        words = [*self._words, str(setup.weights), "--served-model-name", MODEL]
        words += ["--host", "127.0.0.1", "--port", str(setup.port), "--dtype", "bfloat16", "--enforce-eager"]
        return [*words, "--max-model-len", str(setup.context), "--max-num-seqs", str(setup.slots)]

    def environment(self, setup: Setup) -> Mapping[str, str]:
        """See `ModelServer`."""
        small = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
        return {**super().environment(setup), "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **small}

    def version(self, setup: Setup) -> str:
        """See `ModelServer`."""
        return str(_json(f"{setup.url}/version").get("version", ""))

    def working(self, setup: Setup) -> bool | None:
        """See `ModelServer`."""
        return _working(_metric(setup, "vllm:num_requests_running"))

    def written(self, setup: Setup) -> int | None:
        """See `ModelServer`."""
        return _metric(setup, "vllm:generation_tokens_total")


class Ollama(ModelServer):
    """`ollama serve`, with models in a folder of its own."""

    name = "ollama"
    kind = "ollama"
    page = "/api/version"
    offers = frozenset((Offer.SCHEMAS, Offer.CONTEXT, Offer.TOLD_CONTEXT))
    context = 4_096
    """It reads a prompt that is too long up to here, then refuses it."""
    suffix = ".gguf"

    def missing(self) -> str:
        """See `ModelServer`."""
        return "" if shutil.which("ollama") else "ollama in PATH"

    def command(self, setup: Setup) -> Sequence[str]:
        """See `ModelServer`."""
        return ["ollama", "serve"]

    def environment(self, setup: Setup) -> Mapping[str, str]:
        """See `ModelServer`."""
        models = setup.weights.parent / "ollama-models"
        told = {"OLLAMA_HOST": f"127.0.0.1:{setup.port}", "OLLAMA_MODELS": str(models)}
        return {**told, "OLLAMA_NUM_PARALLEL": str(setup.slots), "OLLAMA_CONTEXT_LENGTH": str(setup.context)}

    make_weights = LlamaCpp.make_weights

    def prepare(self, setup: Setup) -> None:
        """Name the weights: Ollama copies them into its own folder."""
        file = setup.weights.with_suffix(".Modelfile")
        file.write_text(f"FROM {setup.weights.resolve()}\n")
        told = {**os.environ, **self.environment(setup)}
        made = subprocess.run(
            ["ollama", "create", MODEL, "-f", str(file)],
            check=False,
            env=told,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if made.returncode:
            raise ServerBroken(f"ollama create failed: {made.stderr.strip()[-300:]}")

    def version(self, setup: Setup) -> str:
        """See `ModelServer`."""
        return str(_json(f"{setup.url}/api/version").get("version", ""))


class GivenCommand(ModelServer):
    """Any other server, by a command with `{weights}` and `{port}`, and two weights."""

    name = "server"

    def __init__(self, words: str, weights: tuple[Path, Path], model: str, kind: str) -> None:
        self._words = words
        self._weights = weights
        self._model = model
        self.kind = kind
        self.page = "/v1/models" if kind == "openai" else "/api/tags"
        self.suffix = weights[0].suffix

    def missing(self) -> str:
        """See `ModelServer`."""
        return ""

    def command(self, setup: Setup) -> Sequence[str]:
        """See `ModelServer`."""
        return [word.format(weights=setup.weights, port=setup.port) for word in shlex.split(self._words)]

    def make_weights(self, folder: Path, seed: int) -> Path:
        """The given ones."""
        return self._weights[seed]

    def model(self, setup: Setup) -> str:
        """See `ModelServer`."""
        return self._model or str(setup.weights)


def missing_for(server: ModelServer) -> str:
    """What would have to be installed to start it with weights that are made here; empty where nothing is."""
    made = importlib.util.find_spec("mlx_lm") is not None
    return server.missing() or ("" if made else "Grader's extra mlx, which makes the weights")


def known_servers(vllm: str = VLLM) -> Mapping[str, ModelServer]:
    """All that can be started by name; `vllm` is how vLLM begins."""
    return {one.name: one for one in (LlamaCpp(), MlxLm(), Vllm(vllm), Ollama())}


@dataclass(frozen=True)
class ServerProcess:
    """A started server and all processes that it starts: a group of their own."""

    server: ModelServer
    setup: Setup
    process: subprocess.Popen[bytes]
    log: Path

    def await_ready(self, seconds: float = START_S) -> None:
        """Wait until it serves its model. Raises ServerBroken."""
        end = time.monotonic() + seconds
        with requests.Session() as session:
            session.trust_env = False
            while time.monotonic() < end and self.process.poll() is None:
                with suppress(requests.RequestException):
                    if session.get(f"{self.setup.url}{self.server.page}", timeout=2).ok:
                        self.server.prepare(self.setup)
                        return
                time.sleep(0.05)  # nothing tells when a port opens
        said = self.log.read_text(errors="replace")[-500:]
        raise ServerBroken(f"{self.server.name} did not start: {said}")

    def send(self, what: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, what)

    def kill(self) -> None:
        """End it at once, as a lack of memory does."""
        self.send(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it in order, and what is left of it."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        self.kill()


@contextmanager
def started(server: ModelServer, setup: Setup) -> Iterator[ServerProcess]:
    """A server that is starting; it ends with the block."""
    log = setup.weights.with_suffix(".log")
    with log.open("ab") as written:
        process = subprocess.Popen(
            list(server.command(setup)),
            env={**os.environ, **server.environment(setup)},
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    running = ServerProcess(server, setup, process, log)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM leaves the block as an exception does, so that what was started in it is ended."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _json(url: str) -> dict[str, object]:
    with requests.Session() as session:
        session.trust_env = False
        found = session.get(url, timeout=5).json()
        return found if isinstance(found, dict) else {}


def _working(running: int | None) -> bool | None:
    return None if running is None else running > 0


def _metric(setup: Setup, name: str) -> int | None:
    """The sum of a metric, over its labels."""
    with requests.Session() as session:
        session.trust_env = False
        told = session.get(f"{setup.url}/metrics", timeout=5).text
    values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", told, re.MULTILINE)
    return round(sum(map(float, values))) if values else None
