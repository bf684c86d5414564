"""The engine that runs models in this process with mlx-lm: batches, prefix cache, bound decoding."""

from __future__ import annotations

import atexit
import threading
import time
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout

from grading.errors import BudgetExceeded, EngineError, OutputEndless
from grading.jobs import Tokens
from workers.machine.engines.base import Generation, Phase, Progress, Request
from workers.machine.engines.bounded import MAX_TEXT_BYTES, PROGRESS_EVERY_S, messages, wrote_something
from workers.machine.engines.mlx_model import LoadedModel, load_model
from workers.machine.engines.mlx_runner import Runner, Ticket

CLOSE_SECONDS = 30.0


class MlxEngine:
    """Generates with mlx-lm in this process. A model is a folder or a hub id, loaded at its first request.

    `slots` is the most generations in one batch, `prefill_step` the prompt tokens between two decoding steps,
    `prefix_caches` how many shared prefixes a model keeps, `max_context` a limit in tokens below its own.
    Nothing of mlx is imported before the first request.
    """

    name = "mlx"
    uses_model = True

    def __init__(
        self,
        *,
        slots: int = 8,
        prefill_step: int = 1024,
        prefix_caches: int = 4,
        max_context: int | None = None,
    ) -> None:
        self._shape = {"slots": slots, "prefill_step": prefill_step, "keep_prefixes": prefix_caches}
        self._max_context = max_context
        self._runner: Runner | None = None
        self._models: dict[str, Future[LoadedModel]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def load(self, model: str, seconds: float = 600.0) -> str:
        """Load a model now, as a warm-up; gives its digest. Raises ModelMissing or BudgetExceeded."""
        return self._loaded(model, time.monotonic() + seconds, _unheard).digest

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        begun = time.monotonic()
        deadline = begun + request.deadline_s
        loaded = self._loaded(request.model, deadline, progress)
        prompt = loaded.prompt(messages(request), request.max_output_tokens)
        bound = bool(request.schema) and loaded.grammars is not None
        ticket = Ticket(
            loaded=loaded,
            prompt=prompt,
            max_tokens=request.max_output_tokens,
            temperature=request.temperature,
            constraint=loaded.grammars.constraint(request.schema) if bound and loaded.grammars else None,
            deadline=deadline,
            begun=begun,
        )
        reason = self._finish(ticket, request, progress)
        text = loaded.decode(ticket.output)
        truncated = reason == "length" and not (ticket.constraint and ticket.constraint.complete)
        wrote_something("The model", text, truncated=truncated)
        if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
            raise OutputEndless(f"The model wrote more than {MAX_TEXT_BYTES} bytes; the answer was dropped.")
        return Generation(
            text=text,
            tokens=Tokens(prompt=len(prompt.ids), cached=ticket.cached, output=len(ticket.output)),
            first_token_s=ticket.first_token_s,
            seconds=time.monotonic() - begun,
            digest=loaded.digest,
            truncated=truncated,
            sampling={
                "temperature": request.temperature,
                "max_tokens": request.max_output_tokens,
                "format": "json_schema_bound" if bound else "none",
            },
        )

    def close(self) -> None:
        """End the mlx thread and give back the models; running and later generations fail."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            runner, self._runner = self._runner, None
            self._models.clear()
        if runner is not None:
            runner.close(CLOSE_SECONDS)

    def _thread(self) -> Runner:
        if self._closed:
            raise EngineError("The engine was closed.")
        if self._runner is None:
            self._runner = Runner(**self._shape)
            # mlx aborts the process when its thread is still alive at the interpreter's exit
            atexit.register(self.close)
        return self._runner

    def _loaded(self, model: str, deadline: float, progress: Progress) -> LoadedModel:
        with self._lock:
            future = self._models.get(model)
            if future is None or (future.done() and future.exception() is not None):
                future = self._thread().call(lambda: load_model(model, self._max_context))
                self._models[model] = future
        if not future.done():
            progress(0, "loading")
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeout as exc:
            raise BudgetExceeded(f"The model {model} was still loading at the deadline of this job.") from exc

    def _finish(self, ticket: Ticket, request: Request, progress: Progress) -> str:
        """Wait for the end of a generation, telling its progress; leaves at the deadline."""
        with self._lock:
            runner = self._thread()
        progress(0, "reading")
        runner.submit(ticket)
        told = 0
        while True:
            left = ticket.deadline - time.monotonic()
            try:
                reason = ticket.done.result(max(0.0, min(left, PROGRESS_EVERY_S)))
            except CancelledError as exc:
                raise self._late(request) from exc
            except FutureTimeout as exc:
                if left <= 0:
                    ticket.cancelled = True
                    raise self._late(request) from exc
                if len(ticket.output) != told:
                    told = len(ticket.output)
                    progress(told)
                continue
            progress(len(ticket.output))
            return reason

    def _late(self, request: Request) -> BudgetExceeded:
        return BudgetExceeded(f"The model did not finish within the {request.deadline_s:g} s of this job.")


def _unheard(_tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
    """Progress of what nobody waits for."""
