"""One stage on a scripted engine: every behaviour ends in a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from grading.domain import errors
from grading.domain.jobs import Job, Result, Timings, Tokens
from grading.domain.stages import AnalysisOutput
from tests.support.german import in_german
from tests.unit.stages.test_parse import ANALYSIS, LOAD, SUM, changed
from tests.unit.stages.test_prompt import job
from workers.machine.engines.base import Cancel, Generation, Progress, Request
from workers.machine.stages import run_stage

GOOD = json.dumps(ANALYSIS)
BAD = json.dumps(changed(judgements={"load": LOAD | {"level": 9}, "sum": SUM}))


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """Answers or raises what it is told to, one thing a call, each taking `seconds`."""

    name = "scripted"
    uses_model = True

    def __init__(
        self, *acts: str | Exception | Generation, clock: Clock | None = None, seconds: float = 1.0
    ) -> None:
        self.acts: Iterator[str | Exception | Generation] = iter(acts)
        self.requests: list[Request] = []
        self.clock = clock or Clock()
        self.seconds = seconds

    def generate(self, request: Request, progress: Progress) -> Generation:
        self.requests.append(request)
        self.clock.now += self.seconds
        progress(1)
        act = next(self.acts)
        if isinstance(act, Exception):
            raise act
        return answer(act) if isinstance(act, str) else act

    def close(self) -> None:
        pass


def answer(text: str, **more: Any) -> Generation:
    return Generation(
        text=text,
        tokens=Tokens(prompt=100, cached=40, output=10),
        first_token_s=0.5,
        seconds=1.0,
        digest="sha256:abc",
        sampling={"temperature": 0.3, "top_p": 0.9},
        **more,
    )


def run(engine: Scripted, given: Job | None = None) -> Result:
    return run_stage(given or job(), engine, "model:1", "machine-1", lambda count: None, engine.clock)


def test_a_good_answer_is_done_in_one_try() -> None:
    engine = Scripted(GOOD)
    result = run(engine)
    assert result.ok
    assert (result.error, result.message, result.flags) == (None, "", ())
    output = AnalysisOutput.model_validate(result.output)
    assert output.judgements[0].quotes[0].location is not None
    provenance = result.provenance
    assert (provenance.machine, provenance.engine, provenance.model) == ("machine-1", "scripted", "model:1")
    assert (provenance.digest, provenance.prompt_version) == ("sha256:abc", "analysis/4")
    assert provenance.tokens == Tokens(prompt=100, cached=40, output=10)
    assert (provenance.first_token_s, provenance.seconds, provenance.repaired) == (0.5, 1.0, False)
    assert len(provenance.prompt_hash) == 64
    assert provenance.sampling == {"temperature": 0.3, "top_p": 0.9}
    request = engine.requests[0]
    assert request.deadline_s == 60.0
    assert (request.repair, request.previous) == ("", "")
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_half_characters_and_nul_do_not_reach_the_database() -> None:
    half = GOOD.replace('"reason": "', '"reason": "\\ud83d\\u0000', 1)
    assert half != GOOD
    result = run(Scripted(half))
    assert result.ok
    told = json.dumps(result.output, ensure_ascii=False)
    told.encode()
    assert "\0" not in json.loads(told)["judgements"][0]["reason"]
    assert not result.flags


def test_the_hash_is_of_the_whole_prompt() -> None:
    hashes = {
        run(Scripted(GOOD), job(nonce=nonce)).provenance.prompt_hash for nonce in ("aa11", "aa11", "bb22")
    }
    assert len(hashes) == 2


@pytest.mark.parametrize("first", [BAD, "no JSON here", GOOD[: len(GOOD) // 2], "", "{}"])
def test_a_bad_answer_gets_one_repair_try(first: str) -> None:
    engine = Scripted(first, GOOD)
    result = run(engine)
    assert result.ok
    assert result.provenance.repaired
    assert result.provenance.tokens == Tokens(prompt=200, cached=80, output=20)
    again = engine.requests[1]
    assert again.previous == first
    assert again.repair
    assert again.deadline_s == 59.0
    assert again.system == engine.requests[0].system


def test_two_bad_answers_are_a_failure_that_may_be_tried_again() -> None:
    engine = Scripted(BAD, "prose", GOOD)
    result = run(engine)
    assert not result.ok
    assert (result.error, result.retry, result.output) == ("output_invalid", "elsewhere", {})
    assert len(engine.requests) == 2
    assert result.provenance.repaired
    assert result.provenance.tokens.output == 20


def all_errors(base: type[errors.EngineError]) -> list[type[errors.EngineError]]:
    return [base, *(e for sub in base.__subclasses__() for e in all_errors(sub))]


@pytest.mark.parametrize("kind", all_errors(errors.EngineError))
@pytest.mark.parametrize("before", [(), (BAD,)])
def test_every_engine_error_becomes_a_result(kind: type[errors.EngineError], before: tuple[str, ...]) -> None:
    result = run(Scripted(*before, kind("what happened")))
    assert not result.ok
    assert (result.error, result.message, result.retry) == (kind.code, "what happened", kind.retry)
    assert result.provenance.tokens.output == 10 * len(before)


@pytest.mark.parametrize(
    "error", [ValueError("secret text"), KeyError("x"), RuntimeError(), RecursionError()]
)
def test_a_broken_engine_raises_nothing_and_leaks_nothing(error: Exception) -> None:
    result = run(Scripted(error))
    assert (result.ok, result.error) == (False, "engine_failed")
    assert "secret" not in result.message


def test_a_cut_answer_is_truncated_and_not_repaired() -> None:
    engine = Scripted(answer(GOOD[:100], truncated=True), GOOD)
    result = run(engine)
    assert (result.ok, result.error, len(engine.requests)) == (False, "output_truncated", 1)


def test_a_cut_answer_that_is_complete_counts() -> None:
    assert run(Scripted(answer(GOOD + "\n{", truncated=True))).ok


def test_no_repair_without_time() -> None:
    engine = Scripted(BAD, GOOD, seconds=59.0)
    result = run(engine)
    assert (result.ok, result.error, len(engine.requests)) == (False, "output_invalid", 1)
    assert result.provenance.seconds == 59.0


def test_a_spent_budget_is_not_begun() -> None:
    engine = Scripted(GOOD)
    result = run(engine, job(budget_s=0.0))
    assert (result.error, result.retry, engine.requests) == ("budget_exceeded", "elsewhere", [])


def test_an_unknown_stage_is_refused_for_good() -> None:
    result = run(Scripted(GOOD), job(stage="poetry"))
    assert (result.ok, result.error, result.retry) == (False, "job_invalid", "never")
    assert "analysis" in result.message


def test_a_prompt_that_cannot_fit_is_refused_for_good() -> None:
    engine = Scripted(GOOD)
    result = run_stage(job(), engine, "m", "x", lambda count: None, engine.clock, context_tokens=2_000)
    assert (result.error, result.retry, engine.requests) == ("job_invalid", "never", [])


def test_flags_tell_of_invented_quotes() -> None:
    invented = changed(judgements={"load": LOAD | {"quotes": ["lm(sales)"]}, "sum": SUM})
    result = run(Scripted(json.dumps(invented)))
    assert result.ok
    [flag] = result.flags
    assert flag.code == "quote_not_found"
    assert flag.message == "One quote was not found in the submission and removed."
    assert in_german(flag.coded) == "Ein Zitat wurde in der Abgabe nicht gefunden und entfernt."


def test_the_prompt_is_told_word_for_word_when_it_works_and_when_it_fails() -> None:
    for acts in ((GOOD,), (BAD, GOOD), (BAD, BAD), (errors.EngineBusy("full"),)):
        engine = Scripted(*acts)
        result = run(engine)
        assert result.prompt is not None
        first = engine.requests[0]
        assert (result.prompt.system, result.prompt.user) == (first.system, first.user)
        said = hashlib.sha256(f"{result.prompt.system}\0{result.prompt.user}".encode()).hexdigest()
        assert result.provenance.prompt_hash == said
    assert run(Scripted(GOOD), job(stage="poetry")).prompt is None


def test_how_to_draw_is_asked_of_the_engine_and_said() -> None:
    class Silent(Scripted):
        def generate(self, request: Request, progress: Progress) -> Generation:
            return replace(super().generate(request, progress), sampling={})

    engine = Silent(BAD, GOOD)
    result = run(engine, job(top_p=0.9, seed=7, temperature=0.0))
    assert [(r.temperature, r.top_p, r.seed) for r in engine.requests] == [(0.0, 0.9, 7)] * 2
    assert result.provenance.sampling == {"temperature": 0.0, "top_p": 0.9, "seed": 7}
    plain = Silent(GOOD)
    assert run(plain).provenance.sampling == {"temperature": 0.3}
    assert (plain.requests[0].top_p, plain.requests[0].seed) == (None, None)


def test_timings_of_both_tries_are_added() -> None:
    first = answer(BAD, timings=Timings(queued_s=1.0, load_s=20.0, output_s=2.0))
    second = answer(GOOD, timings=Timings(queued_s=0.5, output_s=3.0))
    timings = run(Scripted(first, second)).provenance.timings
    assert timings == Timings(queued_s=1.5, load_s=20.0, prompt_s=None, output_s=5.0)


def test_an_answer_brought_to_an_end_early_is_flagged_and_not_held() -> None:
    flags = run(Scripted(answer(GOOD, closed=True))).flags
    assert [(flag.code, flag.hold) for flag in flags] == [("answer_shortened", False)]
    assert "sind einige seiner Texte gekürzt" in in_german(flags[0].coded)


def test_an_answer_that_had_no_room_for_reasons_is_not_repaired() -> None:
    empty = changed(judgements={name: {"quotes": [], "reason": "", "level": 0} for name in ("load", "sum")})
    engine = Scripted(answer(json.dumps(empty), closed=True), GOOD)
    result = run(engine)
    assert (result.error, len(engine.requests)) == ("output_truncated", 1)


@pytest.mark.parametrize(
    ("first", "named"),
    [
        (BAD, ["$.judgements.load.level", "maximum of 4"]),
        (json.dumps(changed(judgements={"load": LOAD})), ["$.judgements", "'sum' is a required property"]),
        (json.dumps({k: v for k, v in ANALYSIS.items() if k != "summary"}), ["'summary'"]),
        (
            '{"judgements": {"load": {"quotes": [], "reason": "r" "level": 1}}}',
            ['reason": "r" ', "',' delimiter"],
        ),
        ("Sure! Here it is.", ["no complete JSON object"]),
    ],
)
def test_the_repair_names_the_place_and_the_rule(first: str, named: list[str]) -> None:
    engine = Scripted(first, GOOD)
    assert run(engine).ok
    said = engine.requests[1].repair
    assert [word for word in named if word not in said] == []
    assert said.startswith("Your answer cannot be used.")
    assert said.endswith("with this mended, and nothing else.")
    assert len(said) < 800


def test_cancelled_before_and_between_tries_nothing_more_is_asked() -> None:
    cancel = Cancel()
    cancel.cancel()
    engine = Scripted(GOOD)
    result = run_stage(job(), engine, "m", "x", lambda *_: None, engine.clock, cancel=cancel)
    assert (result.error, engine.requests) == ("cancelled", [])

    class Leaving(Scripted):
        def generate(self, request: Request, progress: Progress) -> Generation:
            generation = super().generate(request, progress)
            request.cancel.cancel()
            return generation

    engine = Leaving(BAD, GOOD)
    result = run_stage(job(), engine, "m", "x", lambda *_: None, engine.clock, cancel=Cancel())
    assert (result.error, len(engine.requests)) == ("cancelled", 1)
    assert not result.provenance.repaired


def test_cancelled_during_the_repair_ends_the_run() -> None:
    cancel = Cancel()
    engine = Scripted(BAD, errors.Cancelled())
    result = run_stage(job(), engine, "m", "x", lambda *_: None, engine.clock, cancel=cancel)
    assert [request.cancel for request in engine.requests] == [cancel, cancel]
    assert (result.ok, result.error, result.provenance.repaired) == (False, "cancelled", True)
