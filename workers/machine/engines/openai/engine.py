"""The engine for servers that speak `/v1/chat/completions`: streamed, bounded in time and bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from grading.domain.errors import BudgetExceeded, ConfigError
from workers.machine.engines.base import Generation, Measure, Progress, Request
from workers.machine.engines.http.counters import Tally
from workers.machine.engines.http.retries import Patience
from workers.machine.engines.http.watch import Limits
from workers.machine.engines.openai.generation import Peer, Talk
from workers.machine.engines.openai.schemas import Schemas
from workers.machine.engines.openai.server import Server

SCHEMAS = ("auto", "json_schema", "none")


class OpenAIEngine:
    """Generates with an OpenAI-compatible server; `url` ends in `/v1`. Durations in seconds.

    `schema` "auto" asks a few odd tokens of a model at its first use, to see whether the server binds answers
    to a schema, and remembers that for an hour; "json_schema" always sends `response_format`, "none" never.
    `api_key_env` names the environment variable that holds the key. `busy_timeout` is how long a server
    without room is asked again, at most a quarter of the job's time.
    """

    name = "openai"
    uses_model = True

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 5.0,
        chunk_timeout: float = 60.0,
        load_timeout: float = 300.0,
        busy_timeout: float = 60.0,
        schema: Literal["auto", "json_schema", "none"] = "auto",
        api_key_env: str = "",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"engines.openai.url: {url!r} must start with http:// or https://.")
        if schema not in SCHEMAS:
            raise ConfigError(f'engines.openai.schema: {schema!r} must be "auto", "json_schema" or "none".')
        if api_key_env and not os.environ.get(api_key_env):
            raise ConfigError(f"engines.openai.api_key_env: set the environment variable {api_key_env}.")
        address = url.rstrip("/")
        self._peer = Peer(
            address,
            Limits(connect_timeout, chunk_timeout, load_timeout, busy_timeout),
            api_key_env,
            Server(address, f"The server at {address}"),
            Schemas(schema),
        )
        self._tally = Tally()

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.deadline_s <= 0:
            raise BudgetExceeded("No time was left for this job before it reached the engine.")
        with self._peer.watch(request.deadline_s, request.cancel) as watch, self._tally.generation(watch):
            watch.check()
            patience = Patience(watch, progress, self._peer.limits.busy)
            talk = Talk(self._peer, watch, request, progress)
            made = patience.until_room(lambda: talk.once(patience.waited))
            self._tally.answered(made.tokens)
            return made

    def digest(self, model: str, seconds: float) -> str:
        """`llama-meta-sha256:HEX` of what llama-server tells of its weights; empty for others."""
        self._tally.open()
        with self._peer.open(seconds) as wire:
            return self._peer.server.digest(wire, model)

    def measure(self, model: str, seconds: float, progress: Progress) -> Measure | None:
        """The server's own tokenizer (llama-server, vLLM); None where it has no page for it."""
        self._tally.open()
        with self._peer.open(seconds) as wire:
            return self._peer.server.measure(model, wire, self._peer.open)

    def counters(self) -> Mapping[str, float]:
        """See `base.COUNTERS`."""
        return self._tally.counters()

    def close(self) -> None:
        """End what runs; later generations fail."""
        self._tally.close()
