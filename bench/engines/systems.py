"""What the benchmark of engines compares: the `mlx` engine, and a real `mlx_lm.server` with two clients."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import requests

from bench.engines.workload import Ask, job
from bench.tiny_models import PRINTABLE
from grading.domain.errors import BudgetExceeded, EngineError
from workers.machine.engines.base import Engine, Request, unheard
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.openai.engine import OpenAIEngine

START_S = 60.0
Left = Callable[[], float]
"""Seconds that the benchmark has left."""


class BenchmarkBroken(Exception):
    """The benchmark cannot go on; says why."""


class NotExact(BenchmarkBroken):
    """A request did not write what it had to, so that its time says nothing."""


class ServerGone(BenchmarkBroken):
    """`mlx_lm.server` did not start; says what it wrote."""


class NotUnderstood(BenchmarkBroken):
    """`mlx_lm.server` answered something else than its interface says."""


class OutOfTime(Exception):
    """The benchmark's own limit was reached."""


OUT_OF_TIME = (OutOfTime, BudgetExceeded, requests.Timeout)
"""What a part of the benchmark ends with when its time is over."""
FAILURES = (BenchmarkBroken, EngineError, requests.RequestException)
"""What a side of the benchmark fails with; those above come first."""


def why(error: Exception) -> str:
    """One sentence about a failure."""
    if isinstance(error, EngineError):
        return error.message
    if isinstance(error, requests.ConnectionError):
        return "The server refused the connection or broke it off."
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class Answer:
    """What came back. `steps` of decoding are the written tokens, and the end token where there was one."""

    text: str
    tokens: int
    steps: int
    prompt: int
    """Tokens of the prompt."""
    cached: int
    """Of these, how many came from a prefix cache."""


class Side(Protocol):
    """Something that answers; called from several threads."""

    name: str

    def __call__(self, ask: Ask, /) -> Answer:
        """Answer one request."""
        ...


class ByEngine:
    """An engine of ours."""

    def __init__(self, name: str, engine: Engine, model: Path, left: Left) -> None:
        self.name = name
        self._engine = engine
        self._model = str(model)
        self._left = left

    def __call__(self, ask: Ask) -> Answer:
        """Raises EngineErrors; BudgetExceeded where the benchmark's own time is over."""
        request = Request(
            job=job(ask.most),
            model=self._model,
            system=ask.system,
            user=ask.user,
            schema=ask.schema,
            max_output_tokens=ask.most,
            temperature=0.0,
            deadline_s=self._left(),
        )
        made = self._engine.generate(request, unheard)
        ended = 0 if made.truncated else 1
        tokens = made.tokens
        return Answer(made.text, tokens.output, tokens.output + ended, tokens.prompt, tokens.cached)


class Bare:
    """The server's own interface, asked for whole answers: the least work for it and for us."""

    name = "server"

    def __init__(self, url: str, model: Path, left: Left) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._model = str(model)
        self._left = left

    def __call__(self, ask: Ask) -> Answer:
        """Raises requests' errors, and NotUnderstood."""
        asked = {"model": self._model, "messages": ask.chat, "max_tokens": ask.most, "temperature": 0.0}
        with requests.Session() as session:
            session.trust_env = False  # no proxy on loopback
            response = session.post(self._url, json=asked, timeout=self._left())
            response.raise_for_status()
            said: dict[str, Any] = response.json()
        try:
            usage = said["usage"]
            written = int(usage["completion_tokens"])
            cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0))
            text = str(said["choices"][0]["message"]["content"])
            return Answer(text, written, written, int(usage["prompt_tokens"]), cached)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise NotUnderstood(f"The server answered {str(said)[:80]!r}.") from error


@contextmanager
def ours(model: Path, left: Left, *, slots: int, caches: bool = True, step: int = 1024) -> Iterator[ByEngine]:
    """The `mlx` engine with its model loaded, in this process."""
    settings: dict[str, Any] = {} if caches else {"prefix_cache_gb": 0.0}
    engine = MlxEngine(slots=slots, prefill_step=step, **settings)
    try:
        engine.load(str(model), left())
        yield ByEngine("mlx", engine, model, left)
    finally:
        engine.close()


@contextmanager
def server(model: Path, left: Left) -> Iterator[tuple[ByEngine, Bare]]:
    """A real `mlx_lm.server` with its default settings on loopback: through our client, and bare."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "WARNING"]
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            _until_up(process, url, left)
            yield (
                ByEngine("openai", OpenAIEngine(f"{url}/v1", schema="none"), model, left),
                Bare(url, model, left),
            )
        except ServerGone as exc:
            log.seek(0)
            raise ServerGone(f"{exc} {log.read()[-500:]}") from exc
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _until_up(process: subprocess.Popen[bytes], url: str, left: Left) -> None:
    patience = time.monotonic() + START_S
    with requests.Session() as session:
        session.trust_env = False
        while process.poll() is None and time.monotonic() < patience:
            if left() < 1:
                raise OutOfTime
            try:
                if session.get(f"{url}/health", timeout=1).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.05)  # nothing tells when a port opens
    raise ServerGone("mlx_lm.server did not start.")


@dataclass(frozen=True)
class Run:
    """Requests that were sent at once."""

    seconds: float
    answers: tuple[Answer, ...]

    @property
    def rate(self) -> float:
        """Tokens a second, all together."""
        return sum(answer.tokens for answer in self.answers) / self.seconds


def at_once(side: Side, asks: Sequence[Ask]) -> Run:
    """Send all requests at the same time and wait for all; free ones must write all their tokens."""
    with ThreadPoolExecutor(len(asks)) as pool:
        began = time.perf_counter()
        answers = tuple(pool.map(side, asks))
        seconds = time.perf_counter() - began
    for ask, answer in zip(asks, answers, strict=True):
        exact = answer.tokens == len(answer.text) == ask.most and set(answer.text) <= set(PRINTABLE)
        if not ask.schema and not exact:
            raise NotExact(f"{side.name} wrote {answer.tokens} tokens of {ask.most}: {answer.text[:80]!r}")
    return Run(seconds, answers)
