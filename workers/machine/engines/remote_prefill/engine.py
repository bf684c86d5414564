"""The engine that writes here and may have prompts read elsewhere, whichever is faster each time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from grading.domain.errors import ConfigError
from grading.domain.jobs import Tokens
from workers.machine.engines.base import Generation, Measure, Progress, Request
from workers.machine.engines.mlx.engine import MlxEngine, Ready
from workers.machine.engines.remote_prefill import planner
from workers.machine.engines.remote_prefill.cache_layout import Want
from workers.machine.engines.remote_prefill.client import Peer
from workers.machine.engines.remote_prefill.errors import OutOfTime, TransferError
from workers.machine.engines.remote_prefill.fetching import Fetch, Fetched, Way
from workers.machine.engines.remote_prefill.generation import Trip
from workers.machine.engines.remote_prefill.learning import Learning
from workers.machine.engines.remote_prefill.planner import Choice, Work
from workers.machine.engines.remote_prefill.secret import secret


class HybridEngine:
    """The mlx engine, with other machines that read prompts for it.

    `readers` are their names and addresses (`host:port`), `strategy` is `auto`, `direct` or `disaggregated`,
    for all stages or by stage. `zstd` compresses what they send, `kv_bits = 8` rounds it, `most_gb` bounds
    the cache of one prompt. All other settings are those of the mlx engine.
    """

    name = "hybrid"
    uses_model = True

    def __init__(
        self,
        *,
        readers: dict[str, str],
        strategy: str | dict[str, str] = "auto",
        zstd: bool = False,
        kv_bits: int | None = None,
        most_gb: float = 4.0,
        slots: int = 8,
        prefill_step: int = 1024,
        prefix_cache_gb: float | None = None,
        models: int | None = None,
        max_context: int | None = None,
        wired_limit: bool = False,
    ) -> None:
        self._peers = {name: _peer(name, address) for name, address in readers.items()}
        self._strategies = strategy if isinstance(strategy, dict) else {"": strategy}
        for given in self._strategies.values():
            if given not in ("auto", "direct", "disaggregated"):
                raise ConfigError(
                    f"engines.hybrid.strategy: '{given}' is none of auto, direct, disaggregated."
                )
        if kv_bits not in (None, 8):
            raise ConfigError("engines.hybrid.kv_bits: only 8 can be given.")
        self._way = Way(kv_bits, zstd, int(most_gb * 1e9))
        self._mlx = MlxEngine(
            slots=slots,
            prefill_step=prefill_step,
            prefix_cache_gb=prefix_cache_gb,
            models=models,
            max_context=max_context,
            wired_limit=wired_limit,
        )
        self._step, self._slots = prefill_step, slots
        self._fetch = Fetch(secret(os.environ), self._mlx.prefixes, self._way)
        self._learning = Learning(tuple(self._peers))
        self._lock = threading.Lock()
        self._counted: dict[str, float] = {}

    def load(self, model: str, seconds: float = 600.0) -> str:
        """See the mlx engine."""
        return self._mlx.load(model, seconds)

    def digest(self, model: str, seconds: float) -> str:
        """See the mlx engine."""
        return self._mlx.digest(model, seconds)

    def measure(self, model: str, seconds: float, progress: Progress) -> Measure | None:
        """See the mlx engine."""
        return self._mlx.measure(model, seconds, progress)

    def counters(self) -> Mapping[str, float]:
        """Those of the mlx engine."""
        with self._lock:
            return {**self._mlx.counters(), **self._counted}

    def close(self) -> None:
        """See the mlx engine."""
        self._mlx.close()

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        trip = Trip(self.plan, self.fetch, self._gave_up, request, progress)
        generation = self._mlx.generate(request, progress, trip.warm)
        return self._learned(trip, generation)

    def plan(self, ready: Ready, stage: str) -> tuple[Choice, Work]:
        """Which way the prompt is read. Raises TransferErrors where it cannot be read elsewhere at all."""
        asked = self._strategies.get(stage, self._strategies.get("", "auto"))
        work = self._work(ready)
        if asked == "auto":
            return self._learning.choose(ready.digest, work), work
        known = self._learning.known(ready.digest)
        times = {name: planner.expected(one, name, work) for name, one in known.items() if one.times}
        reader = self._learning.nearest(times) if asked == "disaggregated" else ""
        chosen: planner.Strategy = "disaggregated" if reader else "direct"
        return Choice(chosen, reader, f"The strategy of this stage is {asked}.", times, True), work

    def _work(self, ready: Ready) -> Work:
        have, end = self._fetch.have(ready), len(ready.prompt.ids) - 1
        if not self._learning.known(ready.digest)[planner.HERE].measured:
            for probe in self._fetch.probe(ready):
                self._learning.probed(ready.digest, *probe)
        there = self._learning.there(ready.digest, tuple(ready.prompt.ids[: ready.prompt.shared]))
        size = self._fetch.layout(ready).bytes(Want(have, end))
        return Work(
            have,
            end - have,
            there,
            size,
            self._learning.waits_s(self._mlx.counters(), self._slots),
            self._step,
        )

    def fetch(self, ready: Ready, choice: Choice, request: Request) -> Fetched:
        """Have a prompt read by another machine. Raises TransferErrors, and Cancelled."""
        patience = ready.patience
        seconds = min(planner.budget_s(choice), request.deadline_s / 2)
        end = time.monotonic() + seconds

        def look() -> None:
            if patience.over:
                raise patience.end()
            if time.monotonic() > end:
                raise OutOfTime(f"Reading elsewhere took more than {seconds:.0f} s.")

        fetched = self._fetch(ready, self._peers[choice.reader], seconds, look)
        self._learning.asked(ready.digest, tuple(ready.prompt.ids[: ready.prompt.shared]), choice.reader)
        return fetched

    def _gave_up(self, ready: Ready, reader: str, error: TransferError, seconds: float) -> None:
        """One that failed is asked again after a pause that grows; one that was slow, when it should win."""
        if isinstance(error, OutOfTime):
            self._learning.too_slow(ready.digest, reader, error.sending_s or seconds, error.received)
        else:
            self._learning.failed(reader)

    def _learned(self, trip: Trip, generation: Generation) -> Generation:
        """What the job teaches, and the generation with its account."""
        account = trip.account(generation, self._way.bits)
        if (
            trip.ready is not None
            and trip.choice is not None
            and trip.work is not None
            and trip.fault is None
        ):
            name = trip.choice.reader or planner.HERE
            predicted = trip.choice.expected_s.get(name)
            self._learning.learn(trip.ready.digest, name, trip.work, trip.took(generation), predicted)
        self._learning.took(generation.seconds)
        tokens = generation.tokens
        if trip.fetched is not None:
            cached = max(trip.fetched.have, trip.fetched.account.cached)
            tokens = Tokens(prompt=tokens.prompt, cached=cached, output=tokens.output)
        self._count(trip)
        return replace(generation, hybrid=account, tokens=tokens)

    def _count(self, trip: Trip) -> None:
        with self._lock:
            for name, more in trip.counts().items():
                self._counted[name] = self._counted.get(name, 0.0) + more


def _peer(name: str, address: str) -> Peer:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"engines.hybrid.readers.{name}: write host:port, as 10.0.0.1:7300.")
    return Peer(name, host.strip("[]"), int(port))
