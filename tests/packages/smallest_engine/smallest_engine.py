"""Engines that are not part of Grader: they answer with the smallest text that a schema allows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from grading.domain.engine_details import Detail, Measurement
from grading.domain.errors import Cancelled
from grading.domain.jobs import Tokens
from grading.domain.messages import verbatim
from workers.machine.engines.base import Generation, Metric, Progress, Request
from workers.machine.engines.instant import InstanceMaker


class SmallestEngine:
    """`label` is told as the digest, to be recognised."""

    name = "smallest"
    uses_model = False
    metrics: Mapping[str, Metric] = {"smallest_answers": Metric("counter", "Answers as small as can be.")}

    def __init__(self, *, label: str) -> None:
        self._label = label
        self._answers = 0

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.cancel.cancelled:
            raise Cancelled
        began = time.monotonic()
        text = json.dumps(InstanceMaker(request.schema).make())
        progress(1)
        self._answers += 1
        detail = Detail(
            strategy="minimal",
            reason=verbatim("Nothing shorter follows the schema."),
            values={"answer_length": Measurement(value=len(text), unit="characters")},
        )
        return Generation(
            text,
            Tokens(prompt=1, output=1),
            first_token_s=time.monotonic() - began,
            seconds=time.monotonic() - began,
            digest=self._label,
            details={"size_of_answer": detail},
        )

    def counters(self) -> Mapping[str, float]:
        """See `metrics`."""
        return {"smallest_answers": self._answers}

    def close(self) -> None:
        """It holds nothing."""


class ListedEngine(SmallestEngine):
    """As if a server that lists its models answered, and did not say when it loads one."""

    name = "listed"
    uses_model = True
    model_source = "server"
    knows_loading = False
