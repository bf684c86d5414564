"""One generation's way through the hybrid engine, and the account of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from grading.domain.jobs import Hybrid
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.mlx.engine import Ready
from workers.machine.engines.mlx.prefix_caches import Layers
from workers.machine.engines.remote_prefill import planner
from workers.machine.engines.remote_prefill.errors import TransferError
from workers.machine.engines.remote_prefill.fetching import Fetched
from workers.machine.engines.remote_prefill.planner import Choice, Took, Work


@dataclass(eq=False)
class Trip:
    """One generation's way through the engine. Times are of `time.monotonic`."""

    plan: Callable[[Ready, str], tuple[Choice, Work]]
    fetch: Callable[[Ready, Choice, Request], Fetched]
    gave_up: Callable[[Ready, str, TransferError, float], None]
    request: Request
    progress: Progress
    ready: Ready | None = None
    choice: Choice | None = None
    work: Work | None = None
    fetched: Fetched | None = None
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
            self.choice, self.work = self.plan(ready, self.request.job.stage)
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

    def took(self, generation: Generation) -> Took:
        """What the way took, as the planner learns it."""
        first = self.first_s(generation) - self.plan_s
        queued = max(0.0, (generation.timings.queued_s or 0.0) - self.fetch_s)
        if self.fetched is None:
            have = generation.tokens.cached
            count = generation.tokens.prompt - 1 - have
            return Took(first, have, count, generation.timings.prompt_s or 0.0, queued)
        got = self.fetched.account
        return Took(
            first,
            got.cached,
            got.read,
            got.read_s,
            queued + got.queued_s,
            got.bytes,
            got.send_s,
            got.queued_s,
        )

    def account(self, generation: Generation, bits: int | None) -> Hybrid:
        """What the result says of it."""
        choice = self.choice
        why = choice.why if choice else ""
        if self.fault is not None:
            why = f"{why} {self.fault.message} So the prompt was read where the answer is written.".strip()
        first, decode = self.first_s(generation), generation.timings.output_s
        expected = dict(choice.expected_s) if choice else {}
        direct = expected.get(planner.HERE)
        made = Hybrid(
            strategy="disaggregated" if self.fetched else "direct",
            why=why,
            fault=self.fault.code if self.fault else "",
            expected_s=expected,
            first_s=first,
            tokenise_s=self.ready.tokenise_s if self.ready else None,
            decode_s=decode,
            speed_up=(direct + (decode or 0.0)) / (first + (decode or 0.0)) if direct else None,
        )
        if self.fetched is None or choice is None:
            return made.model_copy(update={"prefill_s": generation.timings.prompt_s})
        got = self.fetched.account
        return made.model_copy(
            update={
                "reader": choice.reader,
                "queued_s": got.queued_s,
                "prefill_s": got.read_s,
                "compress_s": got.compress_s,
                "transfer_s": got.send_s,
                "tail_s": got.tail_s,
                "convert_s": self.fetched.convert_s,
                "sent_bytes": got.bytes,
                "kv_bits": bits,
            }
        )

    def counts(self) -> dict[str, float]:
        """What it adds to the counters."""
        if self.fetched is None:
            return {"hybrid_failed": 1.0} if self.fault else {"hybrid_direct": 1.0}
        return {"hybrid_disaggregated": 1.0, "hybrid_bytes": float(self.fetched.account.bytes)}
