"""The engine that writes here and may have prompts read elsewhere, whichever is faster each time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from grading.domain.engine_details import Detail, Measurement
from grading.domain.errors import ConfigError
from grading.domain.jobs import Tokens
from grading.domain.messages import Message
from workers.machine.engines.base import Comparison, Generation, Metric, Progress, Request, TokenCounter
from workers.machine.engines.mlx.decode_loop import BATCH_METRICS
from workers.machine.engines.mlx.engine import MlxEngine, Ready
from workers.machine.engines.mlx.prefix_caches import Layers
from workers.machine.engines.remote_prefill import planner
from workers.machine.engines.remote_prefill.cache import Want
from workers.machine.engines.remote_prefill.client import FetchedCache, Peer, RemotePrefill, TransferSettings
from workers.machine.engines.remote_prefill.messages import CONFIGURED, DETAIL, FAILED, FAILED_THERE
from workers.machine.engines.remote_prefill.planner import Choice, PlannerStatistics, WayTimes, Work
from workers.machine.engines.remote_prefill.protocol import OutOfTime, TransferError, secret


@dataclass(eq=False)
class PrefillTrace:
    """One generation's way through the engine. Times are of `time.monotonic`."""

    plan: Callable[[Ready], tuple[Choice, Work]]
    fetch: Callable[[Ready, Choice, Request], FetchedCache]
    gave_up: Callable[[Ready, str, TransferError, float], None]
    request: Request
    progress: Progress
    ready: Ready | None = None
    choice: Choice | None = None
    work: Work | None = None
    fetched: FetchedCache | None = None
    fault: TransferError | None = None
    before_s: float = 0.0
    """Seconds until the tokens of the prompt were known."""
    fetch_s: float = 0.0
    """Seconds for the choice and what came from elsewhere, or did not come."""
    plan_s: float = 0.0
    """Seconds for the choice, for which some tokens are read with the first prompt of a model."""

    def warm(self, ready: Ready) -> tuple[Layers, int] | None:
        """The cache of the prompt, if another machine has read it."""
        self.ready, came = ready, time.monotonic()
        self.before_s = came - ready.patience.begun
        self.progress(0, "reading")
        try:
            self.choice, self.work = self.plan(ready)
            self.plan_s = time.monotonic() - came
            if self.choice.strategy == "direct":
                return None
            self.fetched = self.fetch(ready, self.choice, self.request)
        except TransferError as error:
            self.fault = error
            if self.choice is not None and self.choice.reader:
                self.gave_up(ready, self.choice.reader, error, time.monotonic() - came)
            return None
        finally:
            self.fetch_s = time.monotonic() - came
        return self.fetched.cache, self.fetched.known

    def first_s(self, generation: Generation) -> float:
        """Seconds from the tokens of the prompt to the first token of the answer."""
        return (generation.first_token_s or generation.seconds) - self.before_s

    def took(self, generation: Generation) -> WayTimes:
        """What the way took, as the planner learns it."""
        first = self.first_s(generation) - self.plan_s
        queued = max(0.0, (generation.timings.queued_s or 0.0) - self.fetch_s)
        if self.fetched is None:
            have = generation.tokens.cached
            count = generation.tokens.prompt - 1 - have
            return WayTimes(first, have, count, generation.timings.prompt_s or 0.0, queued)
        got = self.fetched.account
        return WayTimes(
            first,
            got.cached,
            got.read,
            got.read_s,
            queued + got.queued_s,
            got.bytes,
            got.send_s,
            got.queued_s,
        )

    def detail(self, generation: Generation, bits: int | None) -> Detail:
        """What the result reports of it.

        Seconds that one machine measured are by its own clock; they overlap, so they do not add up to
        `first_s`, which is from knowing the tokens of the prompt until the first token of the answer.
        """
        timings = generation.timings
        values = {**self._expected(), **self._overall(generation)}
        if self.fault is not None:
            values["fault"] = Measurement(value=self.fault.code)
        if self.fetched is None or self.choice is None:
            return Detail(
                strategy="direct",
                reason=self._reason(),
                values={**values, **_in_s(prefill_s=timings.prompt_s)},
            )
        got = self.fetched.account
        values |= {
            "reader": Measurement(value=self.choice.reader),
            "sent_bytes": Measurement(value=got.bytes, unit="bytes"),
            **_in_s(
                queued_s=got.queued_s,
                prefill_s=got.read_s,
                compress_s=got.compress_s,
                transfer_s=got.send_s,
                tail_s=got.tail_s,
                convert_s=self.fetched.convert_s,
            ),
        }
        if bits is not None:
            values["kv_bits"] = Measurement(value=bits, unit="bits")
        return Detail(strategy="disaggregated", reason=self._reason(), values=values)

    def _reason(self) -> Message:
        """Why the prompt was read where it was."""
        why = self.choice.why if self.choice else None
        if self.fault is None:
            return why or Message()
        error = self.fault.message
        return FAILED(error=error) if why is None else FAILED_THERE(reason=why, error=error)

    def _expected(self) -> dict[str, Measurement]:
        """Seconds until the first token that the chosen way and the direct one were expected to take."""
        if self.choice is None:
            return {}
        times = self.choice.expected_s
        return _in_s(
            expected_s=times.get(self.choice.reader or planner.HERE),
            expected_direct_s=times.get(planner.HERE),
        )

    def _overall(self, generation: Generation) -> dict[str, Measurement]:
        first, decode = self.first_s(generation), generation.timings.output_s
        values = _in_s(
            first_s=first, tokenise_s=self.ready.tokenise_s if self.ready else None, decode_s=decode
        )
        if self.choice and (direct := self.choice.expected_s.get(planner.HERE)):
            written = decode or 0.0
            values["speed_up"] = Measurement(value=(direct + written) / (first + written))
        return values

    def counts(self) -> dict[str, float]:
        """What it adds to the counters."""
        if self.fetched is None:
            return {"hybrid_failed": 1.0} if self.fault else {"hybrid_direct": 1.0}
        return {"hybrid_disaggregated": 1.0, "hybrid_bytes": float(self.fetched.account.bytes)}


REMOTE_PREFILL_METRICS: Mapping[str, Metric] = {
    "hybrid_direct": Metric(
        "counter", "Prompts with local prefill although a prefill machine was available."
    ),
    "hybrid_disaggregated": Metric("counter", "Prompts with remote prefill."),
    "hybrid_failed": Metric("counter", "Prompts with local prefill because remote prefill failed."),
    "hybrid_bytes": Metric("counter", "Bytes of KV caches received from prefill machines."),
}


class HybridEngine:
    """The mlx engine, with other machines that read prompts for it.

    `readers` are their names and addresses (`host:port`), `strategy` is `auto`, `direct` or `disaggregated`,
    for all stages or by stage. `zstd` compresses what they send, `kv_bits = 8` rounds it, `most_gb` bounds
    the cache of one prompt. All other settings are those of the mlx engine.
    """

    name = "hybrid"
    uses_model = True
    model_source = "hub"
    metrics: Mapping[str, Metric] = {**BATCH_METRICS, **REMOTE_PREFILL_METRICS}

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
        self._way = TransferSettings(kv_bits, zstd, int(most_gb * 1e9))
        self._mlx = MlxEngine(
            slots=slots,
            prefill_step=prefill_step,
            prefix_cache_gb=prefix_cache_gb,
            models=models,
            max_context=max_context,
            wired_limit=wired_limit,
        )
        self._step, self._slots = prefill_step, slots
        self._fetch = RemotePrefill(secret(os.environ), self._mlx.prefixes, self._way)
        self._learning = PlannerStatistics(tuple(self._peers))
        self._lock = threading.Lock()
        self._counted: dict[str, float] = {}

    def load(self, model: str, seconds: float = 600.0) -> str:
        """See the mlx engine."""
        return self._mlx.load(model, seconds)

    def digest(self, model: str, seconds: float) -> str:
        """See the mlx engine."""
        return self._mlx.digest(model, seconds)

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
        """See the mlx engine."""
        return self._mlx.token_counter(model, seconds, progress)

    def counters(self) -> Mapping[str, float]:
        """See `metrics`."""
        with self._lock:
            return {**self._mlx.counters(), **self._counted}

    def close(self) -> None:
        """See the mlx engine."""
        self._mlx.close()

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        configured = self._strategies.get(request.job.stage, self._strategies.get("", "auto"))
        return self._generate(request, progress, strategy=configured)

    @contextmanager
    def comparison(
        self, model: str, seconds: float, fits: Callable[[int], bool], draft: str = ""
    ) -> Iterator[Comparison]:
        """The prompt read here and there."""
        self.load(model, seconds)
        yield Comparison(
            "hybrid",
            "first_token",
            partial(self._generate, strategy="direct"),
            partial(self._generate, strategy="disaggregated"),
            DETAIL,
        )

    def _generate(self, request: Request, progress: Progress, strategy: str) -> Generation:
        trip = PrefillTrace(
            partial(self.plan, strategy=strategy), self.fetch, self._gave_up, request, progress
        )
        generation = self._mlx.generate(request, progress, trip.warm)
        return self._learned(trip, generation)

    def plan(self, ready: Ready, strategy: str) -> tuple[Choice, Work]:
        """Which way the prompt is read. Raises TransferErrors where it cannot be read elsewhere at all."""
        work = self._work(ready)
        if strategy == "auto":
            return self._learning.choose(ready.digest, work), work
        known = self._learning.known(ready.digest)
        times = {name: planner.expected(one, name, work) for name, one in known.items() if one.times}
        reader = self._learning.nearest(times) if strategy == "disaggregated" else ""
        chosen: planner.Strategy = "disaggregated" if reader else "direct"
        nobody = strategy == "disaggregated" and not reader
        why = planner.nobody(self._learning.paused()) if nobody else CONFIGURED(strategy=strategy)
        return Choice(chosen, reader, why, times, True), work

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

    def fetch(self, ready: Ready, choice: Choice, request: Request) -> FetchedCache:
        """Have a prompt read by another machine. Raises TransferErrors, and Cancelled."""
        patience = ready.patience
        seconds = min(planner.budget_s(choice), request.deadline_s / 2)
        end = time.monotonic() + seconds

        def look() -> None:
            if patience.over:
                raise patience.end()
            if time.monotonic() > end:
                raise OutOfTime(f"Remote prefill took more than {seconds:.0f} s.")

        fetched = self._fetch(ready, self._peers[choice.reader], seconds, look)
        self._learning.asked(ready.digest, tuple(ready.prompt.ids[: ready.prompt.shared]), choice.reader)
        return fetched

    def _gave_up(self, ready: Ready, reader: str, error: TransferError, seconds: float) -> None:
        """One that failed is asked again after a pause that grows; one that was slow, when it should win."""
        if isinstance(error, OutOfTime):
            self._learning.too_slow(ready.digest, reader, error.sending_s or seconds, error.received)
        else:
            self._learning.failed(reader)

    def _learned(self, trip: PrefillTrace, generation: Generation) -> Generation:
        """What the job teaches, and the generation with its account."""
        detail = trip.detail(generation, self._way.bits)
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
        return replace(generation, details={**generation.details, DETAIL: detail}, tokens=tokens)

    def _count(self, trip: PrefillTrace) -> None:
        with self._lock:
            for name, more in trip.counts().items():
                self._counted[name] = self._counted.get(name, 0.0) + more


def _peer(name: str, address: str) -> Peer:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"engines.hybrid.readers.{name}: write host:port, as 10.0.0.1:7300.")
    return Peer(name, host.strip("[]"), int(port))


def _in_s(**seconds: float | None) -> dict[str, Measurement]:
    """Durations by name, without those that are not known."""
    return {name: Measurement(value=value, unit="s") for name, value in seconds.items() if value is not None}
