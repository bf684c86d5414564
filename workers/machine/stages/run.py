"""Runs one stage of a job on an engine: render, generate, parse, one repair try, verify, account."""

from __future__ import annotations

import hashlib
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from grading.domain.errors import (
    BudgetExceeded,
    Cancelled,
    EngineError,
    JobInvalid,
    OutputInvalid,
    OutputTruncated,
)
from grading.domain.evidence import Flag
from grading.domain.jobs import Job, Provenance, Result, SentPrompt, Timings, Tokens
from grading.domain.stages import StageOutput
from workers.machine.engines.base import Cancel, CountsTokens, Engine, Generation, Progress, Request
from workers.machine.messages import ANSWER_SHORTENED, NO_SUCH_STAGE, UNEXPECTED_FAILURE
from workers.machine.stages import prompt_leaks
from workers.machine.stages.base import Stage, known_stages, require_words
from workers.machine.stages.prompt import Prompt
from workers.machine.stages.quotes import verify
from workers.machine.stages.truncation import DEFAULT_CONTEXT_TOKENS

log = logging.getLogger(__name__)
_LEAST_FOR_REPAIR_S = 2.0
_LONGEST_PREVIOUS = 8_000
_LONGEST_FAULT = 600
_SHORTENED = Flag.of("answer_shortened", ANSWER_SHORTENED())


def run_stage(
    job: Job,
    engine: Engine,
    model: str,
    machine: str,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
    on_prompt: Callable[[int], None] | None = None,
    cancel: Cancel | None = None,
    weights: Weights | None = None,
) -> Result:
    """Do the job's stage. Whatever the engine does ends in a result, ok or failed, never in an exception.

    `clock` gives seconds from any start; `context_tokens` is how much the model reads and writes at most,
    the model's own context permitting; `on_prompt` is told the tokens of the prompt, once, before anything
    is generated: the engine's count where it has one, else an estimate. Once `cancel` is said, the run ends.
    `weights` looks at the model before and after each generation.
    """
    run = _Run(job, engine, model, machine, progress, clock, cancel or Cancel(), weights)
    try:
        output, flags = run.attempt(context_tokens, on_prompt)
    except EngineError as error:
        return run.failed(error)
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the chord, not by a broken engine either
        # without the error's own words, which may be a student's
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("the engine %s failed with %s:\n%s", engine.name, type(error).__name__, where)
        return run.failed(EngineError(UNEXPECTED_FAILURE(kind=type(error).__name__)))
    return run.done(output, flags)


class Weights(Protocol):
    """Looks whether the model still has the weights that it had. Raises EngineErrors."""

    def before(self, seconds: float) -> None:
        """Before the first generation, within so many seconds."""
        ...

    def after(self, told: str, seconds: float) -> str:
        """After a generation that tells this digest; the digest to keep with the result."""
        ...


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
        cancel: Cancel,
        weights: Weights | None,
    ) -> None:
        self.job = job
        self.engine = engine
        self.progress = progress
        self.clock = clock
        self.cancel = cancel
        self.weights = weights
        self.started = clock()
        self.prompt: SentPrompt | None = None
        self.leaked = False
        asked = {"temperature": job.temperature, "top_p": job.top_p, "seed": job.seed}
        self.provenance = Provenance(
            machine=machine,
            engine=engine.name,
            model=model,
            sampling={name: value for name, value in asked.items() if value is not None},
            uses_model=engine.uses_model,
        )

    def attempt(
        self, context_tokens: int, on_prompt: Callable[[int], None] | None
    ) -> tuple[StageOutput, tuple[Flag, ...]]:
        """The verified output and its flags, after at most one repair try."""
        stage = known_stages().get(self.job.stage)
        if stage is None:
            raise JobInvalid(NO_SUCH_STAGE(stage=repr(self.job.stage), known=tuple(known_stages())))
        if self.weights is not None:
            self.weights.before(self._left())
        prompt = self._render(stage, context_tokens)
        if on_prompt is not None:
            on_prompt(prompt.tokens)
        generation = self._generate(self._request(stage, prompt))
        try:
            output = self._read(stage, generation)
        except OutputInvalid as error:
            output, generation = self._repair(stage, prompt, generation, error)
        flags = prompt.flags
        if generation.closed:
            flags += (_SHORTENED,)
        said = output.model_dump(mode="json")
        clean = prompt_leaks.without(said, self.job)
        if self.leaked or clean != said:  # escaped letters show only once the answer is read
            flags += (prompt_leaks.LEAKED,)
            output = type(output).model_validate(clean)
        verified, dropped = verify(output, self.job.documents)
        return verified, flags + dropped

    def _render(self, stage: Stage, context_tokens: int) -> Prompt:
        """The prompt, measured by the model's own tokenizer where the engine has it."""
        measure = None
        if isinstance(self.engine, CountsTokens):
            measure = self.engine.token_counter(self.provenance.model, self._left(), self.progress)
        if measure is not None and measure.context_tokens is not None:
            context_tokens = min(context_tokens, measure.context_tokens)
        prompt = stage.render(self.job, context_tokens, measure.count if measure is not None else None)
        self.prompt = SentPrompt(system=prompt.system, user=prompt.user)
        digest = hashlib.sha256(f"{prompt.system}\0{prompt.user}".encode()).hexdigest()
        self._account(prompt_version=stage.version, prompt_hash=digest, examples=prompt.examples)
        return prompt

    def _request(self, stage: Stage, prompt: Prompt) -> Request:
        return Request(
            job=self.job,
            model=self.provenance.model,
            system=prompt.system,
            user=prompt.user,
            schema=stage.schema(self.job),
            max_output_tokens=self.job.max_output_tokens,
            temperature=self.job.temperature,
            deadline_s=self._left(),
            top_p=self.job.top_p,
            seed=self.job.seed,
            cancel=self.cancel,
        )

    def _repair(
        self, stage: Stage, prompt: Prompt, first: Generation, error: OutputInvalid
    ) -> tuple[StageOutput, Generation]:
        """The output of the second and last try, which is told what was wrong with the first."""
        request = self._request(stage, prompt)
        if request.deadline_s < _LEAST_FOR_REPAIR_S:
            raise error
        self._account(repaired=True)
        again = replace(
            request,
            repair=repair_message(error.message, self.job),
            previous=first.text[:_LONGEST_PREVIOUS],
        )
        second = self._generate(again)
        return self._read(stage, second), second

    def _read(self, stage: Stage, generation: Generation) -> StageOutput:
        """Parse; an answer that the token limit ended is truncated unless it happens to be complete.

        Such an answer gets no repair try: the second one would have no more room.
        """
        try:
            output = stage.parse(generation.text, self.job)
            if self.engine.uses_model:
                require_words(output)
        except OutputInvalid as error:
            if generation.truncated or generation.closed:
                raise OutputTruncated from error
            raise
        return output

    def _left(self) -> float:
        """Seconds of the budget that are left. Raises Cancelled, and BudgetExceeded when there are none."""
        if self.cancel.cancelled:
            raise Cancelled
        left = self.job.budget_s - (self.clock() - self.started)
        if left <= 0:
            raise BudgetExceeded
        return left

    def _generate(self, request: Request) -> Generation:
        generation = self.engine.generate(request, self.progress)
        self.leaked = self.leaked or prompt_leaks.leaked(generation.text, self.job)
        so_far, used = self.provenance, generation.tokens
        first = not (so_far.tokens.prompt or so_far.repaired)
        self._account(
            digest=generation.digest or so_far.digest,
            sampling=dict(generation.sampling) or so_far.sampling,
            first_token_s=generation.first_token_s if first else so_far.first_token_s,
            tokens=Tokens(
                prompt=so_far.tokens.prompt + used.prompt,
                cached=so_far.tokens.cached + used.cached,
                output=so_far.tokens.output + used.output,
            ),
            timings=_together(so_far.timings, generation.timings),
            details={**so_far.details, **generation.details},
        )
        if self.weights is not None:
            left = max(0.0, self.job.budget_s - (self.clock() - self.started))
            self._account(digest=self.weights.after(generation.digest, left))
        return generation

    def _account(self, **known: object) -> None:
        self.provenance = self.provenance.model_copy(update=known)

    def done(self, output: StageOutput, flags: tuple[Flag, ...]) -> Result:
        """The result of a run that gave an output."""
        return self._result(ok=True, output=output.model_dump(mode="json"), flags=flags)

    def failed(self, error: EngineError) -> Result:
        """The result of a run that did not."""
        why = error.coded
        said = {"message": why.message, "message_code": why.code, "params": why.params}
        return self._result(ok=False, error=error.code, retry=error.retry, **said)

    def _result(self, **outcome: Any) -> Result:
        self._account(seconds=max(0.0, self.clock() - self.started))
        job = self.job
        return Result.model_validate(
            {
                "run_id": job.run_id,
                "round_id": job.round_id,
                "stage": job.stage,
                "provenance": self.provenance,
                "prompt": self.prompt,
                **outcome,
            }
        )


def repair_message(fault: str, job: Job) -> str:
    """What the model is told of its answer: the places and rules it broke, and what to send instead."""
    return (
        f"Your answer cannot be used. {fault[:_LONGEST_FAULT].rstrip('. ')}. Answer once more with the whole "
        f"JSON object for the stage {job.stage}, with this mended, and nothing else."
    )


def _together(one: Timings, two: Timings) -> Timings:
    """The sums; what neither knows stays unknown."""
    pairs = {name: (getattr(one, name), getattr(two, name)) for name in Timings.model_fields}
    return Timings(
        **{name: None if a is b is None else (a or 0.0) + (b or 0.0) for name, (a, b) in pairs.items()}
    )
