"""Runs one stage of a job on an engine: render, generate, parse, one repair try, verify, account."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import replace

from grading.errors import BudgetExceeded, EngineError, JobInvalid, OutputInvalid, OutputTruncated
from grading.jobs import Job, Provenance, Result, Tokens
from grading.model import Flag
from workers.machine.engines.base import Engine, Generation, Progress, Request
from workers.machine.stages.base import Output, Stage, require_words
from workers.machine.stages.fit import CHARS_PER_TOKEN, DEFAULT_CONTEXT_TOKENS
from workers.machine.stages.quotes import verify
from workers.machine.stages.table import STAGES

_LEAST_FOR_REPAIR_S = 2.0
_LONGEST_PREVIOUS = 8_000


def run_stage(
    job: Job,
    engine: Engine,
    model: str,
    machine: str,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
    on_prompt: Callable[[int], None] | None = None,
) -> Result:
    """Do the job's stage. Whatever the engine does ends in a result, ok or failed, never in an exception.

    `clock` gives seconds from any start; `context_tokens` is how much the model reads and writes at most;
    `on_prompt` is told the estimated tokens of the prompt, once, before anything is generated.
    """
    run = _Run(job, engine, model, machine, progress, clock)
    try:
        output, flags = run.attempt(context_tokens, on_prompt)
    except EngineError as error:
        return run.failed(error)
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the chord, not by a broken engine either
        return run.failed(EngineError(f"The engine failed in an unexpected way ({type(error).__name__})."))
    return run.done(output, flags)


class _Run:
    """One run, with what it used so far; the account is kept when it fails, too."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        model: str,
        machine: str,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self.job = job
        self.engine = engine
        self.progress = progress
        self.clock = clock
        self.started = clock()
        self.provenance = Provenance(
            machine=machine,
            engine=engine.name,
            model=model,
            sampling={"temperature": job.temperature},
            uses_model=engine.uses_model,
        )

    def attempt(
        self, context_tokens: int, on_prompt: Callable[[int], None] | None
    ) -> tuple[Output, tuple[Flag, ...]]:
        """The verified output and its flags, after at most one repair try."""
        stage = STAGES.get(self.job.stage)
        if stage is None:
            raise JobInvalid(
                f"There is no stage named {self.job.stage!r}; this machine knows {', '.join(STAGES)}."
            )
        prompt = stage.render(self.job, context_tokens)
        digest = hashlib.sha256(f"{prompt.system}\0{prompt.user}".encode()).hexdigest()
        self._account(prompt_version=stage.version, prompt_hash=digest)
        request = Request(
            job=self.job,
            model=self.provenance.model,
            system=prompt.system,
            user=prompt.user,
            schema=stage.schema(self.job),
            max_output_tokens=self.job.max_output_tokens,
            temperature=self.job.temperature,
            deadline_s=self._left(),
        )
        if on_prompt is not None:
            on_prompt(math.ceil((len(prompt.system) + len(prompt.user)) / CHARS_PER_TOKEN))
        first = self._generate(request)
        try:
            output = self._read(stage, first)
        except OutputInvalid as error:
            output = self._repair(stage, request, first, error)
        verified, dropped = verify(output, self.job.documents)
        return verified, prompt.flags + dropped

    def _repair(self, stage: Stage, request: Request, first: Generation, error: OutputInvalid) -> Output:
        """The output of the second and last try, which is told what was wrong with the first."""
        if self._left() < _LEAST_FOR_REPAIR_S:
            raise error
        self._account(repaired=True)
        again = replace(
            request,
            repair=error.message,
            previous=first.text[:_LONGEST_PREVIOUS],
            deadline_s=self._left(),
        )
        return self._read(stage, self._generate(again))

    def _read(self, stage: Stage, generation: Generation) -> Output:
        """Parse; an answer the token limit ended is truncated unless it happens to be complete."""
        try:
            output = stage.parse(generation.text, self.job)
            if self.engine.uses_model:
                require_words(output)
        except OutputInvalid as error:
            if generation.truncated:
                raise OutputTruncated from error
            raise
        return output

    def _left(self) -> float:
        """Seconds of the budget that are left; BudgetExceeded when there are none."""
        left = self.job.budget_s - (self.clock() - self.started)
        if left <= 0:
            raise BudgetExceeded
        return left

    def _generate(self, request: Request) -> Generation:
        generation = self.engine.generate(request, self.progress)
        so_far, used = self.provenance, generation.tokens
        self._account(
            digest=generation.digest or so_far.digest,
            sampling=dict(generation.sampling) or so_far.sampling,
            first_token_s=so_far.first_token_s if so_far.tokens.prompt else generation.first_token_s,
            tokens=Tokens(
                prompt=so_far.tokens.prompt + used.prompt,
                cached=so_far.tokens.cached + used.cached,
                output=so_far.tokens.output + used.output,
            ),
        )
        return generation

    def _account(self, **known: object) -> None:
        self.provenance = self.provenance.model_copy(update=known)

    def done(self, output: Output, flags: tuple[Flag, ...]) -> Result:
        """The result of a run that gave an output."""
        return self._result(ok=True, output=output.model_dump(mode="json"), flags=flags)

    def failed(self, error: EngineError) -> Result:
        """The result of a run that did not."""
        return self._result(ok=False, error=error.code, message=error.message, retry=error.retry)

    def _result(self, **outcome: object) -> Result:
        self._account(seconds=max(0.0, self.clock() - self.started))
        job = self.job
        return Result.model_validate(
            {
                "run_id": job.run_id,
                "round_id": job.round_id,
                "stage": job.stage,
                "provenance": self.provenance,
                **outcome,
            }
        )
