"""Runs one stage of a job on an engine: render, generate, parse, one repair try, verify, account."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from grading.errors import BudgetExceeded, EngineError, JobInvalid, OutputInvalid, OutputTruncated
from grading.model import Flag, Job, Provenance, Result, Tokens
from workers.machine.engines.base import Engine, Generation, Progress, Request
from workers.machine.stages.base import Output, Stage
from workers.machine.stages.fit import DEFAULT_CONTEXT_TOKENS
from workers.machine.stages.quotes import verify
from workers.machine.stages.table import STAGES

_LEAST_FOR_REPAIR_S = 2.0
_LONGEST_PREVIOUS = 8_000


@dataclass
class _Account:
    """What a run used so far; kept also when it fails."""

    version: str = ""
    prompt_hash: str = ""
    digest: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    first_token_s: float | None = None
    repaired: bool = False

    def add(self, generation: Generation) -> None:
        """Count one more generation."""
        used = generation.tokens
        self.tokens = Tokens(
            prompt=self.tokens.prompt + used.prompt,
            cached=self.tokens.cached + used.cached,
            output=self.tokens.output + used.output,
        )
        self.digest = generation.digest or self.digest
        self.sampling = dict(generation.sampling) or self.sampling
        if self.first_token_s is None:
            self.first_token_s = generation.first_token_s


def run_stage(
    job: Job,
    engine: Engine,
    model: str,
    machine: str,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
) -> Result:
    """Do the job's stage. Whatever the engine does ends in a result, ok or failed, never in an exception.

    `clock` gives seconds from any start; `context_tokens` is how much the model reads and writes at most.
    """
    started = clock()
    account = _Account(sampling={"temperature": job.temperature})
    output: Output | None = None
    flags: tuple[Flag, ...] = ()
    failure: EngineError | None = None
    try:
        output, flags = _attempt(
            job, engine, model, progress, lambda: job.budget_s - (clock() - started), account, context_tokens
        )
    except EngineError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the chord, also not by a broken engine
        failure = EngineError(f"The engine failed in an unexpected way ({type(error).__name__})")
    provenance = Provenance(
        machine=machine,
        engine=engine.name,
        model=model,
        digest=account.digest,
        prompt_version=account.version,
        prompt_hash=account.prompt_hash,
        sampling=account.sampling,
        tokens=account.tokens,
        first_token_s=account.first_token_s,
        seconds=max(0.0, clock() - started),
        repaired=account.repaired,
        uses_model=engine.uses_model,
    )
    return Result(
        run_id=job.run_id,
        round_id=job.round_id,
        stage=job.stage,
        ok=output is not None,
        output=output.model_dump(mode="json") if output is not None else {},
        flags=flags,
        error=failure.code if failure else None,
        message=failure.message if failure else "",
        retry=failure.retry if failure else True,
        provenance=provenance,
    )


def _attempt(
    job: Job,
    engine: Engine,
    model: str,
    progress: Progress,
    left: Callable[[], float],
    account: _Account,
    context_tokens: int,
) -> tuple[Output, tuple[Flag, ...]]:
    """The verified output and its flags, after at most one repair try."""
    stage = STAGES.get(job.stage)
    if stage is None:
        raise JobInvalid(f"There is no stage named {job.stage!r}; this machine knows {', '.join(STAGES)}")
    prompt = stage.render(job, context_tokens)
    account.version = stage.version
    account.prompt_hash = hashlib.sha256(f"{prompt.system}\0{prompt.user}".encode()).hexdigest()
    request = Request(
        job=job,
        model=model,
        system=prompt.system,
        user=prompt.user,
        schema=stage.schema(job),
        max_output_tokens=job.max_output_tokens,
        temperature=job.temperature,
        deadline_s=_deadline(left),
    )
    first = _generate(engine, request, progress, account)
    try:
        output = _read(stage, first, job)
    except OutputInvalid as error:
        output = _repair(stage, first, error, request, engine, progress, left, account)
    verified, dropped = verify(output, job.documents)
    return verified, prompt.flags + dropped


def _repair(
    stage: Stage,
    first: Generation,
    error: OutputInvalid,
    request: Request,
    engine: Engine,
    progress: Progress,
    left: Callable[[], float],
    account: _Account,
) -> Output:
    """The output of the second and last try, which is told what was wrong with the first."""
    if left() < _LEAST_FOR_REPAIR_S:
        raise error
    account.repaired = True
    again = replace(
        request, repair=error.message, previous=first.text[:_LONGEST_PREVIOUS], deadline_s=_deadline(left)
    )
    return _read(stage, _generate(engine, again, progress, account), request.job)


def _deadline(left: Callable[[], float]) -> float:
    remaining = left()
    if remaining <= 0:
        raise BudgetExceeded
    return remaining


def _generate(engine: Engine, request: Request, progress: Progress, account: _Account) -> Generation:
    generation = engine.generate(request, progress)
    account.add(generation)
    return generation


def _read(stage: Stage, generation: Generation, job: Job) -> Output:
    """Parse; an answer the token limit ended is truncated unless it happens to be complete."""
    try:
        return stage.parse(generation.text, job)
    except OutputInvalid as error:
        if generation.truncated:
            raise OutputTruncated from error
        raise
