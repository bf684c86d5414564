"""The engine that runs models in this process with mlx-lm: batches, prefix cache, bound decoding."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from grading.domain.errors import ConfigError, EngineError
from workers.machine.engines.base import (
    Comparison,
    Generation,
    Metric,
    Progress,
    Request,
    TokenCounter,
    unheard,
)
from workers.machine.engines.http.answer import messages
from workers.machine.engines.mlx.constraint import Constraint
from workers.machine.engines.mlx.decode_loop import BATCH_METRICS, Counters, DecodeLoops, Runner, Shape
from workers.machine.engines.mlx.generation import CallerWait, Sampling, Ticket, Watch, generation
from workers.machine.engines.mlx.model import LoadedModel, Prompt, load_model, require_room
from workers.machine.engines.mlx.models import Models
from workers.machine.engines.mlx.prefix_caches import Layers, PrefixCaches, default_bytes
from workers.machine.engines.mlx.tool_calls import check_tools, hiding, with_calls
from workers.machine.messages import ENGINE_CLOSED

CLOSE_SECONDS = 30.0


@dataclass(frozen=True)
class Ready:
    """A generation before it begins: its model with the fingerprint, its prompt, and who owns mlx."""

    loaded: LoadedModel
    digest: str
    prompt: Prompt
    tokenise_s: float
    """Seconds for its tokens and the grammar of its answer."""
    runner: Runner
    patience: CallerWait


Warm = Callable[[Ready], tuple[Layers, int] | None]
"""Brings the cache of so many first tokens of a prompt, or nothing."""


class MlxEngine:
    """Generates with mlx-lm in this process. A model is a folder or a hub id, loaded at its first request.

    `slots` is the most generations in one batch, `prefill_step` the prompt tokens read between two decoding
    steps, `prefix_cache_gb` what shared prefixes may take (a tenth of the memory without it), `models` how
    many stay loaded (all without it), `max_context` a limit in tokens below the model's own. `wired_limit`
    lets mlx-lm raise Metal's wired limit, under which Macs have panicked. `drafts` names a draft model for
    a model, which counts among `models`; it proposes at most `draft_tokens` tokens at a time where that pays,
    or with `draft_always`, for measurements, wherever it can.
    Nothing of mlx is imported before the first request.
    """

    name = "mlx"
    uses_model = True
    model_source = "hub"
    calls_tools = True

    def __init__(
        self,
        *,
        slots: int = 8,
        prefill_step: int = 1024,
        prefix_cache_gb: float | None = None,
        models: int | None = None,
        max_context: int | None = None,
        wired_limit: bool = False,
        drafts: Mapping[str, str] | None = None,
        draft_tokens: int = 4,
        draft_always: bool = False,
    ) -> None:
        self._shape = Shape(slots, prefill_step, wired_limit)
        most = default_bytes() if prefix_cache_gb is None else int(prefix_cache_gb * 1e9)
        self.prefixes = PrefixCaches(most)
        self._loops = _loops(drafts or {}, draft_tokens, models, draft_always)
        self.metrics: Mapping[str, Metric] = {**BATCH_METRICS, **self._loops.metrics}
        self._counters = Counters(self._loops.metrics)
        self._max_context = max_context
        self._runner: Runner | None = None
        self._models = Models(
            self._load, lambda loaded: self._thread().unload(loaded), models, self._loops.places
        )
        self._lock = threading.Lock()
        self._closed = False

    def load(self, model: str, seconds: float = 600.0) -> str:
        """Load a model now, as a warm-up; gives its digest. Raises ModelMissing or BudgetExceeded."""
        with self._models.use(model, CallerWait(seconds), unheard) as (_, digest):
            return digest

    def digest(self, model: str, seconds: float) -> str:
        """The sha256 of a model's weights, configuration and tokenizer, without loading it.

        Raises ModelMissing or BudgetExceeded.
        """
        return CallerWait(seconds).wait_for(self._models.digest(model), "The model's files were not read")

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
        """The model's context and its own count of tokens. Raises ModelMissing or BudgetExceeded."""
        with self._models.use(model, CallerWait(seconds), progress) as (loaded, _):
            return loaded.token_counter()

    def counters(self) -> Mapping[str, float]:
        """See `metrics`."""
        runner = self._runner
        now = runner.gauges() if runner is not None else {"running": 0, "waiting": 0, "cache_bytes": 0}
        return {**self._counters.read(), **now}

    def generate(
        self, request: Request, progress: Progress, warm: Warm | None = None, drafts: bool | None = None
    ) -> Generation:
        """Answer a request; see the contract in `base`.

        `warm` may bring what was read of it elsewhere; `drafts` says whether a draft model proposes, which is
        where it pays without it.
        """
        patience = CallerWait(request.deadline_s, request.cancel)
        if patience.over:
            raise patience.end()
        with (
            patience.listening(),
            self._models.use(request.model, patience, progress) as (loaded, digest),
        ):
            check_tools(loaded.tools, request)
            progress = hiding(loaded.tools, request, progress)
            since = time.monotonic()
            ticket = self._ticket(loaded, request, patience)
            ticket.drafts = drafts
            if warm is not None:
                made = time.monotonic() - since
                ticket.warm = warm(Ready(loaded, digest, ticket.prompt, made, self._thread(), patience))
            self._thread().submit(ticket)
            reason = Watch(ticket, progress, draft=request.job.draft).wait(patience)
        said = generation(ticket, ticket.constraint, request, digest, reason, patience.begun)
        return with_calls(loaded.tools, request, said)

    @contextmanager
    def comparison(
        self, model: str, seconds: float, fits: Callable[[int], bool], draft: str = ""
    ) -> Iterator[Comparison | None]:
        """With and without the draft model; one that the settings do not name is tried in a second engine."""
        if self._loops.places(model) > 1:
            yield Comparison(
                "speculative",
                "batch",
                partial(self.generate, drafts=False),
                partial(self.generate, drafts=True),
                "speculative",
            )
        elif draft:
            require_room(fits, model, draft)
            with closing(self._with_draft(model, draft)) as other:
                other.load(model, seconds)
                with other.comparison(model, seconds, fits) as both:
                    yield both
        else:
            yield None

    def _with_draft(self, model: str, draft: str) -> MlxEngine:
        """An engine as this one, in which that draft model proposes for a model."""
        shape = self._shape
        return MlxEngine(
            slots=shape.slots,
            prefill_step=shape.prefill_step,
            max_context=self._max_context,
            wired_limit=shape.wired,
            drafts={model: draft},
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
        with self._lock:
            if self._closed:
                raise EngineError(ENGINE_CLOSED)
            if self._runner is None:
                self._runner = Runner(self._shape, self.prefixes, self._counters, self._loops.loop)
                # mlx aborts the process when its thread is still alive at the interpreter's exit
                atexit.register(self.close)
            return self._runner

    def _load(self, model: str) -> Future[LoadedModel]:
        return self._thread().load(lambda: self._loops.join(load_model(model, self._max_context), model))

    def _ticket(self, loaded: LoadedModel, request: Request, patience: CallerWait) -> Ticket:
        prompt = loaded.prompt(
            messages(request), request.max_output_tokens, shares=not request.chat, tools=request.tools
        )
        constraint: Constraint | None = None
        if request.schema and loaded.grammars is not None:
            constraint = loaded.grammars.constraint(request.schema, request.max_output_tokens)
        return Ticket(
            loaded=loaded,
            prompt=prompt,
            max_tokens=request.max_output_tokens,
            sampling=Sampling(request.temperature, request.top_p, request.seed),
            constraint=constraint,
            over=lambda: patience.over,
            wake=patience.wake,
            stage=request.job.stage,
        )


def _loops(drafts: Mapping[str, str], longest: int, models: int | None, always: bool) -> DecodeLoops:
    """Nothing of speculative decoding is loaded, or need be installed, where no draft model is named."""
    if not drafts:
        return DecodeLoops()
    try:
        from workers.machine.engines.speculative.decode_loop import DraftModels
    except ModuleNotFoundError as error:
        raise ConfigError("engines.mlx.drafts: speculative decoding is not installed here.") from error
    return DraftModels(drafts, longest, models, always)
