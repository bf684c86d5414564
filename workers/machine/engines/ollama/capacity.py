"""How many answers Ollama writes at once (`OLLAMA_NUM_PARALLEL`), which it does not tell: a short trial."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from grading.domain.errors import EngineError
from grading.domain.jobs import Timings
from workers.machine.engines.base import Cancel
from workers.machine.engines.ollama.server import OllamaWire, Think, timings

log = logging.getLogger(__name__)
TOKENS = 16
QUESTION = "Count from one to one hundred, in words."
WAITED = 0.5
"""Of the shortest answer's time: whoever waits for a slot waits for all of an answer, the others for none."""
LEAST_S = 0.05
"""Shortest answer that shows it: requests that begin at once arrive up to 10 ms apart, as if one waited."""


@dataclass(frozen=True)
class Trial:
    """Requests of at most 16 tokens to a model that is loaded with this context."""

    wire: OllamaWire
    model: str
    context: int
    think: Think
    keep_alive: float | str

    def slots(self, at_once: int, seconds: float) -> int | None:
        """How many of so many requests did not wait, by the server's clock; None where that is not known."""
        log.info("sending %s %d requests of %d tokens, to see whether some wait", self.model, at_once, TOKENS)
        with ThreadPoolExecutor(at_once, "capacity") as pool:
            try:
                answers = list(pool.map(lambda _: self._ask(seconds), range(at_once)))
            except EngineError:
                return None
        return without_waiting(answers)

    def _ask(self, seconds: float) -> Timings:
        with self.wire.watch(seconds, Cancel()) as watch:
            answer = self.wire.exchange(
                watch,
                self.model,
                lambda client: client.chat(
                    model=self.model,
                    messages=[{"role": "user", "content": QUESTION}],
                    think=self.think,
                    options={"num_predict": TOKENS, "temperature": 0.0, "num_ctx": self.context},
                    keep_alive=self.keep_alive,
                ),
            )
        return timings(answer, 0.0)


def without_waiting(answers: Sequence[Timings]) -> int | None:
    """How many answers were begun at once; None where the server tells no times or they are too short."""
    took = [(one.prompt_s or 0.0) + (one.output_s or 0.0) for one in answers]
    if min(took) < LEAST_S:
        return None
    return sum((one.queued_s or 0.0) < WAITED * min(took) for one in answers) or None
