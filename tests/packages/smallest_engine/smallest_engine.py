"""An engine that is not part of Grader: answers with the smallest text that a schema allows."""

from __future__ import annotations

import json
import time

from grading.domain.errors import Cancelled
from grading.domain.jobs import Tokens
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.instant import InstanceMaker


class SmallestEngine:
    """`label` is told as the digest, to be recognised."""

    name = "smallest"
    uses_model = False

    def __init__(self, *, label: str) -> None:
        self._label = label

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.cancel.said:
            raise Cancelled
        began = time.monotonic()
        text = json.dumps(InstanceMaker(request.schema).make())
        progress(1)
        seconds = time.monotonic() - began
        return Generation(text, Tokens(prompt=1, output=1), seconds, seconds, digest=self._label)

    def close(self) -> None:
        """It holds nothing."""
