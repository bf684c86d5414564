"""The engine for Ollama, through the official client: streamed, schema-bound, bounded in time and bytes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from grading.errors import BudgetExceeded, ConfigError, EngineError, EngineGarbled, JobInvalid
from grading.jobs import Tokens
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.bounded import (
    Answer,
    Limits,
    Watch,
    broke_off,
    garbled,
    messages,
    status_error,
    unreachable,
    wrote_something,
)

if TYPE_CHECKING:
    import httpx
    from ollama import ChatResponse, Client

T = TypeVar("T")
MAX_CONTEXT = 65_536
CONTEXT_STEP = 4_096
DIGEST_SECONDS = 300.0


class OllamaEngine:
    """Generates with an Ollama server. Durations in seconds; `num_ctx` fixes the context length in tokens.

    Without `num_ctx` the context follows the prompt's size, up to 65,536 tokens, and never shrinks for a
    model, because Ollama loads the model again when it changes. `keep_alive` -1 keeps models loaded.
    """

    name = "ollama"
    uses_model = True

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 5.0,
        chunk_timeout: float = 60.0,
        load_timeout: float = 300.0,
        keep_alive: float | str = -1,
        num_ctx: int | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"engines.ollama.url: {url!r} must start with http:// or https://.")
        import_module("ollama")  # now, not inside the first job's time
        self.url = url.rstrip("/")
        self._limits = Limits(connect=connect_timeout, chunk=chunk_timeout, load=load_timeout)
        self._keep_alive = keep_alive
        self._num_ctx = num_ctx
        self._contexts: dict[str, int] = {}
        self._digests: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    @property
    def _where(self) -> str:
        return f"Ollama at {self.url}"

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.deadline_s <= 0:
            raise BudgetExceeded("No time was left for this job before it reached the engine.")
        with Watch(request, self._limits, self._where) as watch:
            client = self._client(watch)
            try:
                return self._exchange(client, watch, request, progress)
            finally:
                client.close()

    def close(self) -> None:
        """Nothing is held between requests."""

    def _client(self, watch: Watch) -> Client:
        # one connection a generation, so that ending it ends exactly this one
        from ollama import Client

        from workers.machine.engines.transport import identity_headers, watched_transport

        return Client(
            host=self.url,
            timeout=_timeouts(self._limits, watch),
            follow_redirects=False,
            trust_env=False,
            headers=identity_headers(),
            transport=watched_transport(watch, self._where),
        )

    def _exchange(self, client: Client, watch: Watch, request: Request, progress: Progress) -> Generation:
        answer = Answer(watch, progress, request.max_output_tokens)
        options = self._guarded(watch, request, lambda: self._options(client, request, progress))
        last = self._guarded(watch, request, lambda: self._read(client, watch, request, options, answer))
        truncated = last.done_reason == "length"
        wrote_something(self._where, answer.text, truncated=truncated)
        self._check_context(last, request, options["num_ctx"])
        seconds = watch.elapsed
        progress(last.eval_count or answer.chunks)
        return Generation(
            text=answer.text,
            tokens=Tokens(prompt=last.prompt_eval_count or 0, output=last.eval_count or answer.chunks),
            first_token_s=answer.first_token_s,
            seconds=seconds,
            digest=self._digest(client, watch, request.model),
            truncated=truncated,
            sampling={**options, "format": "json_schema" if request.schema else "none"},
        )

    def _options(self, client: Client, request: Request, progress: Progress) -> dict[str, Any]:
        """The model's options; says whether the model must be loaded first."""
        held = self._held_context(client, request.model)
        context = self._context(request, held or 0)
        progress(0, "reading" if held in (0, context) else "loading")
        return {
            "num_predict": request.max_output_tokens,
            "temperature": request.temperature,
            "num_ctx": context,
        }

    def _read(
        self, client: Client, watch: Watch, request: Request, options: dict[str, Any], answer: Answer
    ) -> ChatResponse:
        stream: Iterator[ChatResponse] = client.chat(
            model=request.model,
            messages=messages(request),
            stream=True,
            format=request.schema or None,
            options=options,
            keep_alive=self._keep_alive,
        )
        for part in stream:
            text = part.message.content or ""
            watch.arrived(token=bool(text or part.message.thinking))
            answer.add(text, thought=part.message.thinking or "")
            if part.done:
                return part
        raise broke_off(self._where, "its last part is missing")

    def _held_context(self, client: Client, model: str) -> int | None:
        """The context a loaded model has, 0 when the server does not tell it; nothing for others."""
        from ollama import ResponseError

        names = (model, f"{model}:latest")
        try:
            held = [m for m in client.ps().models if m.model in names]
        except (ResponseError, ValueError, TypeError, AttributeError):
            return None  # an older server
        return (held[0].context_length or 0) if held else None

    def _guarded(self, watch: Watch, request: Request, exchange: Callable[[], T]) -> T:
        """Run the exchange and turn every way it can fail into an EngineError."""
        import httpx
        from ollama import ResponseError

        try:
            return exchange()
        except ResponseError as exc:
            raise watch.failure() or self._response_error(exc, request.model) from exc
        except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as exc:
            raise watch.failure() or unreachable(self._where, self._limits.connect) from exc
        except (httpx.HTTPError, httpx.StreamError, OSError) as exc:
            raise watch.failure() or broke_off(self._where, type(exc).__name__) from exc
        except EngineError as exc:
            raise watch.failure() or exc from exc
        except (ValueError, TypeError, AttributeError) as exc:
            # what the client raises on a line that is not a JSON object of the protocol
            raise watch.failure() or garbled(self._where) from exc

    def _response_error(self, exc: Any, model: str) -> EngineError:
        if exc.status_code < 0:
            return broke_off(self._where, str(exc.error)[:300])
        if exc.status_code == 404 and "model" not in str(exc.error):
            return EngineGarbled(f"{self._where} has no page for chats. Correct its url in config.toml.")
        missing = f"{self._where} does not have the model {model}. Run there: ollama pull {model}"
        return status_error(self._where, exc.status_code, str(exc.error), missing)

    def _estimate(self, request: Request) -> int:
        chars = sum(len(m["content"]) for m in messages(request)) + len(str(request.schema))
        return math.ceil(chars / 3) + request.max_output_tokens

    def _context(self, request: Request, held: int) -> int:
        """The context to ask for; a `held` one that is long enough stays: no model is loaded again."""
        if self._num_ctx is not None:
            return self._num_ctx
        steps = math.ceil(self._estimate(request) / CONTEXT_STEP)
        wanted = min(steps * CONTEXT_STEP, MAX_CONTEXT)
        with self._lock:
            self._contexts[request.model] = max(wanted, held, self._contexts.get(request.model, 0))
            return self._contexts[request.model]

    def _check_context(self, last: ChatResponse, request: Request, num_ctx: int) -> None:
        # Ollama cuts a prompt that does not fit without saying so; its own count gives it away
        used = last.prompt_eval_count or 0
        if self._estimate(request) > num_ctx and used + request.max_output_tokens >= num_ctx:
            raise JobInvalid(
                f"The prompt does not fit the context of {num_ctx} tokens, so the engine cut it. "
                "Raise engines.ollama.num_ctx or shorten the hand-in."
            )

    def _digest(self, client: Client, watch: Watch, model: str) -> str:
        """The model's digest as the server lists it; empty when it does not tell."""
        import httpx
        from ollama import ResponseError

        with self._lock:
            known = self._digests.get(model)
        if known is not None and time.monotonic() - known[0] < DIGEST_SECONDS:
            return known[1]
        try:
            listed = client.list().models
        except (ResponseError, httpx.HTTPError, EngineError, OSError, ValueError, TypeError):
            return ""
        digest = next((m.digest or "" for m in listed if m.model in (model, f"{model}:latest")), "")
        if digest:
            with self._lock:
                self._digests[model] = (time.monotonic(), digest)
        return digest


def _timeouts(limits: Limits, watch: Watch) -> httpx.Timeout:
    import httpx

    # the watch is the stricter one; this is the net below it
    return httpx.Timeout(max(limits.load, limits.chunk) + 5, connect=min(limits.connect, watch.remaining))
