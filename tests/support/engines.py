"""What tests of engines share: a request, a schema, tiny models, and a real mlx_lm.server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema

from bench.tiny_models import Shape
from cli.dev.embedded_redis import free_port
from grading.domain.engine_details import Detail
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material
from grading.domain.rubric import Criterion, Rubric
from workers.machine.engines import Request, known_engines
from workers.machine.engines.base import Metric

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "judgements": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {
                    "criterion": {"enum": ["reading", "plot"]},
                    "level": {"type": "integer", "minimum": 0, "maximum": 4},
                    "quotes": {"type": "array", "maxItems": 1, "items": {"type": "string", "maxLength": 20}},
                },
                "required": ["criterion", "level", "quotes"],
                "additionalProperties": False,
            },
        },
        "summary": {"type": "string", "maxLength": 40},
    },
    "required": ["judgements", "summary"],
    "additionalProperties": False,
}
ENDLESS: dict[str, Any] = {"type": "string", "minLength": 2500}
"""No model ends sooner than that: far longer than a test looks at it, however late its threads are."""
SMALLER = Shape(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, intermediate=96)
"""Of a model that is faster than a tiny one and still has layers of both kinds."""
HEADS = Shape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=32, intermediate=96)
"""Of a small model with several heads for keys and values, too."""
SYSTEM = "Grade the work by the rubric. Quote the student's own words. " * 12
USER = "+ 1| data <- read.csv('survey.csv')\n+ 2| summary(data$height)"
SHORT = {"connect_timeout": 30.0, "chunk_timeout": 0.3, "load_timeout": 0.4, "busy_timeout": 0.3}
"""For faults that end by them."""
PATIENT = {"connect_timeout": 30.0, "chunk_timeout": 30.0, "load_timeout": 30.0, "busy_timeout": 0.3}
"""For all others: a busy machine must not turn one fault into another."""


def job() -> Job:
    criterion = Criterion(id="reading", title="Reads the data", points=10, stage="analysis")
    return Job(
        run_id="run",
        round_id="round",
        stage="analysis",
        material=Material(title="Heights"),
        rubric=Rubric(criteria=(criterion,)),
        documents=(),
        evidence=Evidence(),
        nonce="abc",
        budget_s=60,
        max_output_tokens=400,
    )


def ask(model: str = "tiny", **changes: Any) -> Request:
    first = Request(
        job=job(),
        model=model,
        system=SYSTEM,
        user=USER,
        schema=SCHEMA,
        max_output_tokens=400,
        temperature=0.0,
        deadline_s=90.0,
    )
    return replace(first, **changes)


def quiet(count: int, phase: str = "generating", draft: str = "", /) -> None:
    """Takes progress and says nothing."""


class Heard:
    """Progress that is kept: tokens, phases and drafts, in their order."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self.tokens: list[int] = []
        self.phases: list[str] = []
        self.drafts: list[str] = []
        self._then = then

    def __call__(self, tokens: int, phase: str = "generating", draft: str = "", /) -> None:
        self.tokens.append(tokens)
        self.drafts.append(draft)
        if self.phases[-1:] != [phase]:
            self.phases.append(phase)
        if tokens and self._then is not None:
            self._then()  # the first tokens are there


def graded_job() -> Job:
    """A job of the analysis with work in it, as the server sends it."""
    from tests.support.factories import document  # loads the store, which processes that only ask need not

    rubric = Rubric(
        criteria=(
            Criterion(id="reading", title="Reads the data", points=10, stage="analysis"),
            Criterion(id="plot", title="Draws a plot", points=10, stage="analysis"),
        )
    )
    work = document("data <- read.csv('survey.csv')\nhist(data$height)\nmean(data$height)")
    return job().model_copy(update={"rubric": rubric, "documents": (work,)})


def parsed(text: str) -> Any:
    answer = json.loads(text)
    jsonschema.validate(answer, SCHEMA)
    return answer


@contextmanager
def mlx_lm_server(model: Path, *options: str, port: int = 0) -> Iterator[str]:
    """A real mlx_lm.server on a free port, or on the one given; ended by its process id, within seconds."""
    port = port or free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(port), *options]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            _await(process, "Starting httpd", 60)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _await(process: subprocess.Popen[str], sentence: str, seconds: float) -> None:
    """Wait for a line on its standard error, and go on reading that: a full pipe would stop it."""
    seen, said = threading.Event(), list[str]()

    def read() -> None:
        for line in process.stderr or ():
            said.append(line)
            if sentence in line:
                seen.set()
        seen.set()

    threading.Thread(target=read, daemon=True).start()
    assert seen.wait(seconds), f"mlx_lm.server said nothing of {sentence!r} for {seconds} s"
    assert any(sentence in line for line in said), f"mlx_lm.server ended: {''.join(said)[-2000:]}"


def measured(detail: Detail, name: str) -> Any:
    """What an engine reports under that name of a detail; None where it reports nothing."""
    found = detail.values.get(name)
    return None if found is None else found.value


def all_metrics() -> dict[str, Metric]:
    """What the engines of this tree may report, by name."""
    from workers.machine.engines.speculative.decode_loop import SPECULATIVE_METRICS  # which loads mlx

    engines = [entry.load() for entry in known_engines().values()]
    own = {name: one for engine in engines for name, one in getattr(engine, "metrics", {}).items()}
    return {**own, **SPECULATIVE_METRICS}  # of engines with draft models only
