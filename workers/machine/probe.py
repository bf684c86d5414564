"""A few tokens from an engine, to see that it works: through the same code as a student's work."""

from __future__ import annotations

import time

from grading.domain.errors import OutputEmpty, OutputTruncated
from grading.domain.jobs import Job, Material, Tokens
from grading.domain.model import Evidence
from grading.domain.rubric import Criterion, Rubric
from workers.machine.engines.base import Cancel, Engine, Generation, Phase, Request
from workers.machine.stages.analysis import STAGE as ANALYSIS

MAX_TOKENS = 16
_SYSTEM = "You are asked whether you are there."
_USER = "Write the word: here"


def probe(engine: Engine, model: str, timeout_s: float, cancel: Cancel | None = None) -> Generation:
    """At most 16 tokens of this model, within `timeout_s` seconds or until `cancel`. Raises as `generate`.

    A model that spends all of them on thoughts works, too: its generation has tokens and no text.
    """
    began = time.monotonic()
    seen: list[int] = []

    def count(tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
        seen[:] = [tokens]

    try:
        return engine.generate(_request(engine, model, timeout_s, cancel or Cancel()), count)
    except (OutputEmpty, OutputTruncated):
        if not any(seen):
            raise
        seconds = time.monotonic() - began
        return Generation("", Tokens(output=seen[0]), first_token_s=None, seconds=seconds, truncated=True)


def _request(engine: Engine, model: str, timeout_s: float, cancel: Cancel) -> Request:
    criterion = Criterion(id="there", title="Is there", points=1)
    job = Job(
        run_id="probe",
        round_id="probe",
        stage=ANALYSIS.name,
        material=Material(title="Probe"),
        rubric=Rubric(criteria=(criterion,)),
        documents=(),
        evidence=Evidence(),
        nonce="probe",
        budget_s=timeout_s,
        max_output_tokens=MAX_TOKENS,
        temperature=0.0,
    )
    return Request(
        job=job,
        model=model,
        system=_SYSTEM,
        user=_USER,
        # what answers without a model works from the schema; a model would only be slowed down by it
        schema={} if engine.uses_model else ANALYSIS.schema(job),
        max_output_tokens=MAX_TOKENS,
        temperature=job.temperature,
        deadline_s=timeout_s,
        cancel=cancel,
    )
