"""A machine measures its strategies beside the direct way when an operator asks: do they pay?

The same made-up prompts go both ways in turn, with nothing else on the machine. Nothing is recorded, and it
is broken off as soon as students' work or a gateway request comes.
"""

from __future__ import annotations

import logging
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

from celery import Celery

from grading.broker import celery_app
from grading.domain.errors import BudgetExceeded, ConfigError, EngineError, OutputEmpty, OutputTruncated
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material
from grading.domain.rubric import Criterion, Rubric
from workers.machine.diagnostics import leave_answer, memory
from workers.machine.engines.base import (
    ComparesStrategy,
    Comparison,
    CountsTokens,
    Engine,
    Generate,
    Generation,
    Request,
    TokenCounter,
    unheard,
)
from workers.machine.idle import Limits, watched
from workers.machine.worker import MachineProcess

log = logging.getLogger(__name__)
MOST_S = 300.0
ROUNDS = 3
"""How often everything is measured, if there is time for it."""
TRIES = 5
"""Other prompts, where a model answers with nothing but blanks."""
ROOM = 1.25
"""A model takes somewhat more memory than its files have, for what is computed."""
LONGEST_MESSAGE = 300
STOCK = (
    "The student reads the data with read.csv and draws a histogram of the height column. ",
    "A good answer names the mean and the median and says which of them is robust against outliers. ",
    "library(dplyr); adults <- filter(survey, age > 18); summary(adults$height) ",
    "import pandas as pd; frame = pd.read_csv('survey.csv'); print(frame.groupby('class').mean()) ",
    "I was surprised that the two groups differ so little, and I would like to ask more people. ",
    "The model explains a third of the variance, so other reasons must be looked for. ",
)
"""What prompts are made of: work as students submit it, about which a model has something to say."""
NONCE = 8
"""Tokens before a prompt that no cache has."""
TASK = "You review the work of a student. Say what is good, what is missing and what comes next."
Way = Literal["direct", "strategy"]


@dataclass(frozen=True)
class Lengths:
    """What is measured. Lengths in tokens."""

    new: tuple[int, ...] = (256, 1024, 2048, 4096)
    known: int = 2000
    """Of the prefix that caches have."""
    output: int = 24
    batches: tuple[int, ...] = (1, 2, 4)
    """For draft models: answers at a time."""
    drafted: int = 128
    """For draft models: tokens of an answer."""


LENGTHS = Lengths()


@dataclass(frozen=True)
class Case:
    """Prompts that are measured together."""

    known: int
    new: int
    batch: int
    output: int


@dataclass(frozen=True)
class Sample:
    """Answers of one batch, and the seconds until all of them were there."""

    answers: tuple[Generation, ...]
    seconds: float


def compare(
    process: MachineProcess, seconds: float, draft: str = "", lengths: Lengths = LENGTHS
) -> dict[str, Any]:
    """The figures of each engine and model with a strategy, as JSON values, within `seconds`."""
    machine = process.machine
    limits, found = Limits(time.monotonic() + seconds), list[dict[str, Any]]()
    if process.gateway_requests() or not process.gate.enter_now(alone=True):
        return {"machine": machine.name, "ended": "busy", "strategies": found}
    places = sorted({(one.engine, one.model) for one in machine.stages.values()})
    log.info("comparing strategies, for at most %.0f s", seconds)
    try:
        with watched(process, limits):
            for number, (engine, model) in enumerate(places):
                if limits.cancel.cancelled:
                    break  # to open an engine loads its models
                share = Limits(time.monotonic() + limits.left_s / (len(places) - number), limits.cancel)
                place = Place(process.engines[engine], model, machine.slots_of(engine), share, lengths)
                if (one := place.compare(draft)) is not None:
                    stages = sorted(s for s, p in machine.stages.items() if p.place == (engine, model))
                    found.append({"engine": engine, "model": model, "stages": stages, **one})
                if share.left_s <= 0 and limits.ended == "done":
                    limits.ended = "time"
    finally:
        process.gate.leave()
    log.info("comparing strategies ended: %s", limits.ended)
    return {"machine": machine.name, "ended": limits.ended, "strategies": found}


@dataclass(frozen=True)
class Place:
    """One model of one engine."""

    engine: Engine
    model: str
    slots: int
    limits: Limits
    lengths: Lengths = LENGTHS
    rounds: int = ROUNDS

    def compare(self, draft: str) -> dict[str, Any] | None:
        """What both ways took, row by row; None where the engine has no strategy."""
        if not isinstance(self.engine, ComparesStrategy):
            return None
        samples: dict[tuple[Case, Way], list[Sample]] = {}
        head: dict[str, Any] = {"strategy": "", "pays_by": "", "computers": 1, "fault": ""}
        with ExitStack() as stack:
            try:
                opened = self.engine.comparison(self.model, max(1.0, self.limits.left_s), has_room, draft)
                both = stack.enter_context(opened)
                if both is None:
                    return None
                head |= {"strategy": both.strategy, "pays_by": both.pays_by, "computers": both.computers}
                self._measure(both, samples)
            except (EngineError, ConfigError) as error:
                if not self.limits.cancel.cancelled and self.limits.left_s > 0:
                    log.warning("comparing strategies of %s failed: %s", self.model, error.message)
                    head["fault"] = error.message[:LONGEST_MESSAGE]
        cases = dict.fromkeys(case for case, _ in samples)
        rows = [_row(case, samples[case, "direct"], samples[case, "strategy"])
                for case in cases if {(case, "direct"), (case, "strategy")} <= samples.keys()]  # fmt: skip
        return {**head, "rows": rows}

    def _measure(self, both: Comparison, samples: dict[tuple[Case, Way], list[Sample]]) -> None:
        """Everything once, then again as long as there is time for all of it."""
        counter = self._counter()
        texts = Texts(counter.count if counter else lambda text: len(text) // 4)
        cases = list(self._cases(both, counter.context_tokens if counter else None))
        ways: tuple[tuple[Way, Generate], ...] = (
            ("direct", both.direct),
            ("strategy", both.with_strategy),
        )
        for known in dict.fromkeys(case.known for case in cases):
            for _, generate in ways:  # loads, compiles, and reads the prefix that caches have then
                self._sample(generate, Case(known, self.lengths.new[0], 1, 8), texts)
        took = 0.0
        for _ in range(self.rounds):
            if self.limits.left_s <= took:
                break
            began = time.monotonic()
            for case in cases:
                for way, generate in ways:
                    sample = self._sample(generate, case, texts)
                    if way == "strategy":
                        _require_taken(both, case, sample)
                    samples.setdefault((case, way), []).append(sample)
            took = time.monotonic() - began

    def _cases(self, both: Comparison, context: int | None) -> Iterator[Case]:
        """Short prompts first, so that what is not reached in time are the long ones."""
        lengths = self.lengths

        def fits(known: int, new: int) -> bool:
            return context is None or known + new + lengths.output + ROOM_FOR_TEMPLATE <= context

        if both.pays_by == "batch":
            for batch in lengths.batches:
                if batch <= self.slots:
                    yield Case(0, lengths.new[0], batch, lengths.drafted)
            return
        for new in lengths.new:
            for known in (0, lengths.known):
                if fits(known, new):
                    yield Case(known, new, 1, lengths.output)
        shortest = lengths.new[0]
        known = lengths.known if fits(lengths.known, shortest) else 0
        if both.pays_by == "answer" and self.slots > 1 and fits(known, shortest):
            yield Case(known, shortest, self.slots, lengths.output)

    def _counter(self) -> TokenCounter | None:
        if not isinstance(self.engine, CountsTokens):
            return None
        return self.engine.token_counter(self.model, max(1.0, self.limits.left_s), unheard)

    def _sample(self, generate: Generate, case: Case, texts: Texts) -> Sample:
        """Generate a batch of answers at the same time. Raises EngineErrors."""
        if self.limits.left_s <= 0:
            raise BudgetExceeded
        for _ in range(TRIES):
            asked = [self._request(case, texts) for _ in range(case.batch)]
            began = time.monotonic()
            try:
                with ThreadPoolExecutor(case.batch, thread_name_prefix="strategies") as threads:
                    answers = tuple(threads.map(lambda one: generate(one, unheard), asked))
            except (OutputEmpty, OutputTruncated):
                continue  # it is about its time, not about what it says
            return Sample(answers, time.monotonic() - began)
        raise OutputEmpty

    def _request(self, case: Case, texts: Texts) -> Request:
        system = texts.prefix(case.known) if case.known else f"{texts.new(NONCE)} {TASK}"
        left = max(0.001, self.limits.left_s)
        return Request(
            job=_job(left, case.output),
            model=self.model,
            system=system,
            user=texts.new(case.new),
            schema={},
            max_output_tokens=case.output,
            temperature=0.0,
            deadline_s=left,
            cancel=self.limits.cancel,
        )


ROOM_FOR_TEMPLATE = 128
"""Tokens that a chat template and the task may add."""


class Texts:
    """Prompts of a wanted length, no two alike; and one prefix that all share."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._letters = len("".join(STOCK)) / max(1, count("".join(STOCK)))
        self._random = random.Random()
        self._prefixes: dict[int, str] = {}

    def new(self, tokens: int) -> str:
        """About so many tokens that nobody has read yet."""
        letters = round(tokens * self._letters)
        stock = "".join(self._random.sample(STOCK, len(STOCK)))
        text = f"{self._random.randrange(10**9)}. {stock * (1 + letters // len(stock))}"
        return text[:letters]

    def prefix(self, tokens: int) -> str:
        """About so many tokens, the same each time."""
        return self._prefixes.setdefault(tokens, f"{TASK} {self.new(tokens)}")


def has_room(size: int) -> bool:
    """Whether a model with files of so many bytes has room in this computer's memory beside all else.

    Where the system does not say what is free, it must fit into half of the memory.
    """
    found = memory()
    return ROOM * size <= found.get("available_bytes", found["total_bytes"] // 2)


def _require_taken(both: Comparison, case: Case, sample: Sample) -> None:
    """Raise an EngineError where a strategy was asked for and the direct way was taken, as after a fault."""
    if not both.detail or (both.pays_by == "batch" and case.batch > 1):  # more than one go without drafts
        return
    for answer in sample.answers:
        detail = answer.details.get(both.detail)
        if detail is None or detail.strategy == "direct":
            raise EngineError(f"It could not be tried: {detail.reason if detail else 'nothing is told'}")


def _row(case: Case, direct: Sequence[Sample], strategy: Sequence[Sample]) -> dict[str, Any]:
    """Medians of both ways."""
    new = [a.tokens.prompt - a.tokens.cached for sample in direct for a in sample.answers]
    known = [a.tokens.cached for sample in direct for a in sample.answers]
    return {
        "known": round(statistics.median(known)),
        "new": round(statistics.median(new)),
        "batch": case.batch,
        "times": min(len(direct), len(strategy)),
        "direct": _speed(direct),
        "strategy": _speed(strategy),
        "accepted": _accepted(strategy),
    }


def _speed(samples: Sequence[Sample]) -> dict[str, float | None]:
    firsts = [a.first_token_s or a.seconds for sample in samples for a in sample.answers]
    rates = [rate for sample in samples if (rate := _rate(sample)) is not None]
    return {
        "first_s": statistics.median(firsts),
        "tokens_s": statistics.median(rates) if rates else None,
    }


def _rate(sample: Sample) -> float | None:
    """Output tokens a second of all answers, from the first token of the first one to the end of the last."""
    written = sum(answer.tokens.output - 1 for answer in sample.answers)
    writing = sample.seconds - min(answer.first_token_s or 0.0 for answer in sample.answers)
    return written / writing if written > 0 and writing > 0 else None


def _accepted(samples: Sequence[Sample]) -> float | None:
    """Share of proposed tokens that were accepted; None where none were proposed."""
    totals = {"proposed": 0.0, "accepted": 0.0}
    for answer in (a for sample in samples for a in sample.answers):
        for detail in answer.details.values():
            for name in totals:
                if (one := detail.values.get(name)) is not None:
                    totals[name] += float(one.value)
    return totals["accepted"] / totals["proposed"] if totals["proposed"] else None


def _job(seconds: float, output: int) -> Job:
    return Job(
        run_id="comparison",
        round_id="comparison",
        stage="comparison",
        material=Material(title="Comparison"),
        rubric=Rubric(criteria=(Criterion(id="there", title="Is there", points=1),)),
        documents=(),
        evidence=Evidence(),
        nonce="comparison",
        budget_s=seconds,
        max_output_tokens=output,
        temperature=0.0,
    )


def register(app: Celery, process: MachineProcess) -> None:
    """Make the comparison known to a worker's application."""

    def answer(comparison: str, seconds: float, draft: str) -> None:
        leave_answer(process, comparison, compare(process, seconds, draft))

    @app.task(name=celery_app.COMPARE, ignore_result=True)
    def compare_strategies(comparison: str, options: Mapping[str, Any], until: float) -> None:
        seconds = min(until - process.leases.time(), float(options["seconds"]), MOST_S)
        if seconds <= 0:
            return  # nobody waits for it any more
        args = (comparison, seconds, str(options["draft"]))
        # beside the slots: a machine with one slot must see the work that ends it, and answer its canaries
        threading.Thread(target=answer, args=args, name="strategies", daemon=True).start()
