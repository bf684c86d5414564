"""The engine for Ollama, through the official client: streamed, schema-bound, bounded in time and bytes."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from grading.domain.errors import (
    BudgetExceeded,
    ConfigError,
    EngineError,
    JobInvalid,
    OutputEndless,
    OutputInvalid,
)
from grading.domain.jobs import Tokens, ToolCall
from workers.machine.engines.base import (
    METRICS,
    Cancel,
    Capacity,
    Embeddings,
    EmbeddingsRefused,
    Generation,
    Progress,
    Request,
    unheard,
)
from workers.machine.engines.http.answer import Answer, messages, wrote_something
from workers.machine.engines.http.embeddings import checked
from workers.machine.engines.http.errors import broke_off, is_too_long
from workers.machine.engines.http.exchange import BusyRetry, ExchangeCounters, Limits, Watch
from workers.machine.engines.ollama.capacity import Trial
from workers.machine.engines.ollama.server import Models, OllamaWire, RunningModel, Think, timings
from workers.machine.engines.ollama.tool_calls import calls_of, chat_of, check_tools
from workers.machine.engines.token_estimates import Sizes
from workers.machine.messages import (
    NO_TIME_LEFT,
    OLLAMA_NO_ROOM_TO_REPAIR,
    OLLAMA_PROMPT_CUT,
    ONE_TOKEN_REPEATED,
    WROTE_NOTHING,
)

if TYPE_CHECKING:
    from ollama import ChatResponse, Client

MAX_CONTEXT = 65_536
CONTEXT_STEP = 4_096
WHOLE_PROMPT = -1
"""A prompt that is longer than the context is then cut to all but one token of it, which its counts show. By
itself, Ollama since June 2026 cuts it to the last half of the context, which looks like a shorter prompt.
"""
MAX_REPEATS = 30
"""Ollama stops a model that writes a token once more, and sends no last part (its `llm/llama_server.go`)."""


class _Cut(Exception):
    """The server cut the prompt to its context, and a longer one may be had."""


@dataclass
class _Asked:
    """One exchange: what is sent beside the messages, and what was loaded before."""

    options: dict[str, Any]
    most_context: int
    think: Think
    held: RunningModel | None


class OllamaEngine:
    """Generates with an Ollama server. Durations in seconds; `num_ctx` fixes the context length in tokens.

    Without `num_ctx` the context follows the prompt's size, up to what the model was made for and 65,536
    tokens, and never shrinks for a model, because Ollama loads the model again when it changes. `keep_alive`
    -1 keeps models loaded. `busy_timeout` is how long a server without room is asked again, at most a quarter
    of the job's time.
    """

    name = "ollama"
    uses_model = True
    model_source = "ollama"
    calls_tools = True
    metrics = METRICS

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 5.0,
        chunk_timeout: float = 60.0,
        load_timeout: float = 300.0,
        busy_timeout: float = 60.0,
        keep_alive: float | str = -1,
        num_ctx: int | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"engines.ollama.url: {url!r} must start with http:// or https://.")
        import_module("ollama")  # now, not inside the first job's time
        limits = Limits(connect_timeout, chunk_timeout, load_timeout, busy_timeout)
        self._wire = OllamaWire(url.rstrip("/"), limits)
        self._keep_alive = keep_alive
        self._num_ctx = num_ctx
        self._contexts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._models = Models()
        self._sizes = Sizes()
        self._counters = ExchangeCounters()

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.deadline_s <= 0:
            raise BudgetExceeded(NO_TIME_LEFT)
        with self._wire.watch(request.deadline_s, request.cancel) as watch, self._counters.generation(watch):
            watch.check()
            patience = BusyRetry(watch, progress, self._wire.limits.busy)
            made = patience.until_room(lambda: self._once(watch, request, progress, patience))
            self._counters.answered(made.tokens)
            return made

    def digest(self, model: str, seconds: float) -> str:
        """`sha256:HEX` the server lists for the model; empty when it does not have it."""
        self._counters.open()
        with self._wire.watch(seconds, Cancel()) as watch:
            return self._wire.exchange(watch, model, lambda client: self._models.digest(client, model))

    def capacity(self, model: str, at_once: int, seconds: float) -> Capacity:
        """Context by the model's description, slots by `at_once` short requests to a model that is loaded."""
        self._counters.open()
        with self._wire.watch(seconds, Cancel()) as watch:
            held = self._wire.exchange(watch, model, lambda client: self._models.held(client, model))
            about = self._wire.exchange(watch, model, lambda client: self._models.about(client, model))
            longest = min(MAX_CONTEXT, about.context or MAX_CONTEXT)
            context, slots = min(longest, self._num_ctx or longest), None
            if held and held.context and at_once > 1:  # with another context it would be loaded again
                trial = Trial(self._wire, model, held.context, about.think, self._keep_alive)
                slots = trial.slots(at_once, watch.remaining)
        return Capacity(slots, context, None, "OLLAMA_NUM_PARALLEL", "num_ctx")

    def embed(self, model: str, texts: Sequence[str], seconds: float, cancel: Cancel) -> Embeddings:
        """By `/api/embed`, which cuts nothing; see the contract in `base`."""
        self._counters.open()
        with self._wire.watch(seconds, cancel) as watch:
            watch.check()
            patience = BusyRetry(watch, unheard, self._wire.limits.busy)
            return patience.until_room(
                lambda: self._wire.exchange(watch, model, lambda client: self._embed(client, model, texts))
            )

    def _embed(self, client: Client, model: str, texts: Sequence[str]) -> Embeddings:
        from ollama import ResponseError

        try:
            made = client.embed(model, texts, truncate=False)
        except ResponseError as error:
            if "does not support embeddings" in str(error.error):
                raise EmbeddingsRefused from error
            raise
        return checked(made.embeddings, len(texts), made.prompt_eval_count or 0, self._wire.where)

    def counters(self) -> Mapping[str, float]:
        """See `base.METRICS`; Ollama does not tell which tokens came from its cache."""
        return self._counters.counters()

    def close(self) -> None:
        """End what runs; later generations fail."""
        self._counters.close()

    def _once(self, watch: Watch, request: Request, progress: Progress, patience: BusyRetry) -> Generation:
        """One try, or several with a longer context each where the server cut the prompt."""
        while True:
            try:
                return self._wire.exchange(
                    watch, request.model, lambda c: self._exchange(c, watch, request, progress, patience)
                )
            except _Cut:
                watch.again()

    def _exchange(
        self, client: Client, watch: Watch, request: Request, progress: Progress, patience: BusyRetry
    ) -> Generation:
        from ollama import ResponseError

        drafts, prose = request.job.draft, bool(request.chat)
        answer = Answer(watch, progress, request.max_output_tokens, drafts, prose)
        asked = self._asked(client, request, progress)
        calls: list[ToolCall] = []
        try:
            last = self._read(client, watch, request, asked, answer, calls)
        except ResponseError as error:
            if is_too_long(error.status_code, error.error) and self._longer(request, asked):
                raise _Cut from error
            raise
        output = answer.finish(last.eval_count or 0)
        self._check_context(last, request, asked)
        truncated = last.done_reason == "length"
        if not calls:
            wrote_something(WROTE_NOTHING(engine=self._wire.where), answer.text, truncated=truncated)
        seconds = watch.elapsed
        return Generation(
            text=answer.text,
            tokens=Tokens(prompt=last.prompt_eval_count or 0, output=output),
            first_token_s=answer.first_token_s,
            seconds=seconds,
            digest=self._digest(client, request.model),
            truncated=truncated,
            sampling={
                **asked.options,
                **({} if asked.think is None else {"think": asked.think}),
                "format": "json_schema" if request.schema else "none",
            },
            timings=timings(last, patience.waited),
            tool_calls=tuple(calls),
        )

    def _asked(self, client: Client, request: Request, progress: Progress) -> _Asked:
        """What is asked for; says whether the model must be loaded first."""
        held = self._models.held(client, request.model)
        about = self._models.about(client, request.model)
        check_tools(request, about)
        most = min(MAX_CONTEXT, about.context or MAX_CONTEXT)
        context = self._context(request, held.context if held else 0, most)
        progress(0, "reading" if held and held.context in (0, context) else "loading")
        options: dict[str, Any] = {
            "num_predict": request.max_output_tokens,
            "temperature": request.temperature,
            "num_ctx": context,
            "num_keep": WHOLE_PROMPT,
        }
        if request.top_p is not None:
            options["top_p"] = request.top_p
        if request.seed is not None:
            options["seed"] = request.seed
        if request.stop:
            options["stop"] = list(request.stop)
        return _Asked(options, most, about.think, held)

    def _read(
        self,
        client: Client,
        watch: Watch,
        request: Request,
        asked: _Asked,
        answer: Answer,
        calls: list[ToolCall],
    ) -> ChatResponse:
        """The last part of the answer; the text goes to `answer`, and what it calls to `calls`."""
        stream: Iterator[ChatResponse] = client.chat(
            model=request.model,
            messages=chat_of(request),
            tools=request.tools or None,
            stream=True,
            think=asked.think,
            format=request.schema or None,
            options=asked.options,
            keep_alive=self._keep_alive,
        )
        piece, repeats = "", 0
        for part in stream:
            text, thought = part.message.content or "", part.message.thinking or ""
            watch.arrived(token=bool(text or thought))
            answer.add(text, thought=thought)
            calls.extend(calls_of(part.message))
            if part.done:
                return part
            before, piece = piece, (text or thought).strip()
            repeats = repeats + 1 if piece == before else 0
        if repeats >= MAX_REPEATS:
            raise OutputEndless(ONE_TOKEN_REPEATED(engine=self._wire.where))
        raise broke_off(self._wire.where, "its last part is missing")

    def _estimate(self, request: Request) -> int:
        """The most tokens prompt and answer may need. Templates show tools, some also the schema."""
        schema = len(json.dumps(request.schema)) // 3 if request.schema else 0
        schema += len(json.dumps(request.tools)) // 3 if request.tools else 0
        return self._sizes.tokens(request.model, _said(request)) + schema + request.max_output_tokens

    def _context(self, request: Request, held: int, most: int) -> int:
        """The context to ask for; a `held` one that is long enough stays: no model is loaded again."""
        if self._num_ctx is not None:
            return self._num_ctx
        steps = math.ceil(self._estimate(request) / CONTEXT_STEP)
        wanted = min(steps * CONTEXT_STEP, most)
        with self._lock:
            self._contexts[request.model] = max(wanted, held, self._contexts.get(request.model, 0))
            return self._contexts[request.model]

    def _check_context(self, last: ChatResponse, request: Request, asked: _Asked) -> None:
        """Ollama cuts what does not fit without saying so; its own counts give it away."""
        num_ctx, used = asked.options["num_ctx"], last.prompt_eval_count or 0
        full = used + (last.eval_count or 0) >= num_ctx
        # of a repair try Ollama leaves out whole messages, the submission first, and then counts little
        near = self._estimate(request) > num_ctx and (
            bool(request.repair) or used + request.max_output_tokens >= num_ctx
        )
        if not full and not near:
            self._sizes.learn(request.model, _said(request), used)
            return
        if self._longer(request, asked):
            raise _Cut
        if request.repair:
            raise OutputInvalid(OLLAMA_NO_ROOM_TO_REPAIR(tokens=num_ctx))
        raise JobInvalid(OLLAMA_PROMPT_CUT(tokens=num_ctx))

    def _longer(self, request: Request, asked: _Asked) -> bool:
        """Ask for a longer context of the model from now on; whether there is one."""
        num_ctx = asked.options["num_ctx"]
        if self._num_ctx is not None or num_ctx >= asked.most_context:
            return False
        with self._lock:
            longer = min(2 * num_ctx, asked.most_context)
            self._contexts[request.model] = max(longer, self._contexts.get(request.model, 0))
        return True

    def _digest(self, client: Client, model: str) -> str:
        """Of what is loaded after the answer; before it, the model may not have been pulled anew yet.

        The answer is there: a look-up that fails now is no reason to lose it; the run asks again.
        """
        import httpx

        try:
            held = self._models.held(client, model)
            return self._models.digest(client, model, held.digest if held else "")
        except (httpx.HTTPError, EngineError, OSError):
            return ""


def _said(request: Request) -> str:
    return "\n".join(one["content"] for one in messages(request))
