"""What tests of engines share: a request, a schema, tiny models, and a real mlx_lm.server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema

from grading.jobs import Job, Material
from grading.model import Evidence
from grading.rubric import Criterion, Rubric
from workers.machine.engines import Request

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
SYSTEM = "Grade the work by the rubric. Quote the student's own words. " * 12
USER = "+ 1| data <- read.csv('survey.csv')\n+ 2| summary(data$height)"
SHORT = {"connect_timeout": 0.5, "chunk_timeout": 0.4, "load_timeout": 0.6}


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
        deadline_s=30.0,
    )
    return replace(first, **changes)


def quiet(count: int, phase: str = "generating") -> None:
    """Takes progress and says nothing."""


def parsed(text: str) -> Any:
    answer = json.loads(text)
    jsonschema.validate(answer, SCHEMA)
    return answer


@contextmanager
def mlx_lm_server(model: Path) -> Iterator[str]:
    """A real mlx_lm.server on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "Starting httpd" not in said:
                said = process.stderr.readline()
                assert said, "mlx_lm.server ended"
            drain = threading.Thread(target=process.stderr.read, daemon=True)
            drain.start()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
