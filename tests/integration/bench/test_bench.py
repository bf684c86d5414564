"""The yardsticks of the benchmarks work beside the system's own guards; engines are measured as is said."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import requests
from click.testing import CliRunner
from sqlalchemy import make_url

from bench.celery_chord import BareChord, workers
from bench.engines import benchmark, measurements
from bench.engines.benchmark import Figures, Target
from bench.engines.measurements import KINDS, Clock, Here, Rate
from bench.engines.report import lines
from bench.engines.systems import Answer, NotExact, Side, at_once
from bench.engines.workload import Ask, Prompts, Sizes
from bench.pages.review_ways import WAYS
from cli.commands.bench import bench
from tests.support.services import find_browser

SHORT = benchmark.Plan(
    models=("tiny",),
    at_once=(1, 2),
    many=3,
    turns=1,
    limit_s=250.0,
    same=Sizes(40, 12, 10),
    prefix=Sizes(90, 8, 2),
    rate=Sizes(24, 8, 6),
    schema=Sizes(24, 8, 130),
)


def test_bare_chords_pass_the_guard_for_messages(redis_url: str) -> None:
    chords = BareChord(redis_url)
    try:
        for key in ("a", "b"):
            chords.send(key)
        with workers(redis_url):
            assert chords.wait() <= chords.wait()
    finally:
        chords.client.close()
        chords.app.close()


@pytest.mark.soak  # it measures; that tokens are the same, tests of the mlx engine show
def test_batches_are_measured_with_a_model_made_on_the_spot() -> None:
    sizes = "--requests 3 --tokens 4 --shared 20 --own 8 --steps 2 --turns 1 --at-once 2"
    asked = ["batches", "--model", "tiny", "--numbers", "bfloat16,float32", "--json", *sizes.split()]
    run = CliRunner().invoke(bench, asked)
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)["found"]
    exact = [one for one in found if one.get("way") == {"device": "cpu", "numbers": "float32", "at_once": 2}]
    assert [(one["answers"], one["differ"]) for one in exact] == [(3, 0)]
    assert [one["grading"] for one in found if "grading" in one] == [1, 1]
    assert all(one["queued_ms"]["median"] >= 0 for one in found if "doing" in one)


@pytest.mark.soak  # that the tokens are the same, tests of the mlx engine show, too
@pytest.mark.timeout(300)  # it takes a few seconds, but starts a server, on a machine that may be busy
def test_engines_are_measured_beside_a_real_server_and_write_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(benchmark, "QUICK", SHORT)
    run = CliRunner().invoke(bench, ["engines", "--quick", "--models", "tiny", "--blas", "as-is", "--json"])
    assert run.exit_code == 0, run.output
    figures = json.loads(run.stdout)
    tiny = figures["models"]["tiny"]
    assert (tiny["same"]["same"], tiny["same"]["all"]) == (15, 15)
    assert set(tiny["same"]["ways"].values()) == {"3 of 3"}
    assert tiny["same"]["narrowest"] > 0
    assert tiny["prefix"]["cached"] > 0.5
    assert [bound["at_once"] for bound in tiny["schema"]] == [1, 3]
    cells = {(rate["prefix"], rate["at_once"]): rate for rate in tiny["rates"]}
    assert set(cells) == {("cold", 1), ("cold", 2), ("cached", 1), ("cached", 2)}
    for rate in tiny["rates"]:
        assert all(rate[side]["median"] > 0 for side in ("mlx", "server", "openai", "bound"))
    # the prefixes are new to each side, or known to it, as the row says
    assert cells["cold", 1]["cached"]["mlx"] == 0
    assert all(share < 0.5 for share in cells["cold", 1]["cached"].values())
    assert all(share > 0.5 for share in cells["cached", 2]["cached"].values())
    assert {target["must"] for target in figures["targets"] if target["met"]} >= {True}
    assert figures["machine"]["blas"]
    assert "tokens per second" in run.stderr


def test_a_benchmark_of_engines_without_time_ends_and_says_what_it_did_not_measure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measurements.Clock, "left", lambda _clock: 0.001)
    figures = benchmark.measure(replace(SHORT, limit_s=0.0), lambda _line: None)
    assert [target.must for target in figures.broken] == [True]
    assert all(target.value is None and target.met is None for target in figures.targets)


def test_other_tokens_are_found_and_make_the_benchmark_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measurements.Comparison(["abcd", "efgh"])
    found.compare("alone", [Answer("abcd", 4, 4, 9, 0), Answer("efxh", 4, 4, 9, 0)])
    assert (found.same, found.all, found.ways) == (1, 2, {"alone": "1 of 2"})
    assert found.first_difference == "alone: answer 1, token 2"
    broken = Figures({}, {}, [Target("tiny", "the same tokens", "all 2", 1, False, must=True)], 0.0)
    monkeypatch.setattr(benchmark, "measure", lambda _plan, _say: broken)
    run = CliRunner().invoke(bench, ["engines", "--blas", "as-is"])
    assert run.exit_code == 1
    assert "MISSED" in run.stdout


def test_an_answer_of_another_length_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        name = "short"

        def __call__(self, ask: Ask) -> Answer:
            return Answer("ab", 2, 3, 9, 0)

    with pytest.raises(NotExact, match="short wrote 2 tokens of 3"):
        at_once(Short(), [Ask("system", "user", 3)])
    assert at_once(Short(), [Ask("system", "user", 2)]).rate > 0
    monkeypatch.setattr(benchmark, "measure", lambda _plan, _say: at_once(Short(), [Ask("", "", 3)]))
    run = CliRunner().invoke(bench, ["engines", "--blas", "as-is"])
    assert run.exit_code == 1
    assert "short wrote 2 tokens" in run.output


class Writes:
    """A side that writes what it is asked for, so many times."""

    def __init__(self, name: str, times: int = 10_000) -> None:
        self.name = name
        self.times = times

    def __call__(self, ask: Ask) -> Answer:
        self.times -= 1
        if self.times < 0:
            raise requests.ConnectionError("refused")
        return Answer("x" * ask.most, ask.most, ask.most, 9, 0)


class NoPrompts:
    def asks(self, _shared: str, _own: str, count: int, sizes: Sizes) -> list[Ask]:
        return [Ask("system", "user", sizes.output)] * count


def test_a_side_that_fails_is_a_row_and_costs_nothing_that_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured(mlx: Side, *servers: Side) -> tuple[Here, list[Rate]]:
        monkeypatch.setattr(measurements, "ours", lambda *_, **__: nullcontext(mlx))
        monkeypatch.setattr(measurements, "server", lambda *_: nullcontext(servers))
        here = Here(
            "tiny", Path(), cast("Prompts", NoPrompts()), Clock(100.0, [1.0, 1.0]), 2, 2, lambda _: None
        )
        found = measurements.rates(here, Sizes(9, 9, 8), (1, 2))
        model = benchmark.Model(None, None, [], found, here.failures)
        (row,) = [line for line in lines(Figures({}, {"tiny": model}, [], 1.0)) if "FAILED" in line]
        assert "refused the connection" in row
        return here, found

    # warm-up, one turn of both kinds and two numbers of requests, and not much of the next
    once = 3 + 2 * 3 + 2 * 1
    here, found = measured(Writes("mlx"), Writes("openai"), Writes("server", once + 1))
    assert [failure.side for failure in here.failures] == ["server"]
    assert {(rate.prefix, rate.at_once) for rate in found} == {(kind, n) for kind in KINDS for n in (1, 2)}
    assert {rate.mlx.turns for rate in found} == {rate.openai.turns for rate in found} == {2}
    assert {rate.server.turns for rate in found if rate.server} <= {1, 2}
    here, found = measured(Writes("mlx"), Writes("openai"), Writes("server", 3))
    assert {rate.server for rate in found} == {None}
    here, found = measured(Writes("mlx", 40), Writes("openai"), Writes("server"))
    assert found
    assert [failure.side for failure in here.failures] == ["mlx"]
    failed = Figures({}, {"tiny": benchmark.Model(None, None, [], found, here.failures)}, [], 0.0)
    monkeypatch.setattr(benchmark, "measure", lambda _plan, _say: failed)
    run = CliRunner().invoke(bench, ["engines", "--blas", "as-is", "--json"])
    assert run.exit_code == 1
    assert json.loads(run.stdout)["models"]["tiny"]["rates"]


def test_parts_of_a_benchmark_share_its_time() -> None:
    clock = Clock(0.0, [1.0, 1.0])
    assert list(clock.turns(5)) == [0]
    assert list(Clock(1000.0, [1.0, 1.0]).turns(5)) == [0, 1, 2, 3, 4]


@pytest.mark.soak  # e2e walks hold the pages; this one, that each way finds the class as it was before
@pytest.mark.timeout(300)
def test_a_class_is_reviewed_in_all_ways_on_both_databases(database_url: str) -> None:
    wanted = ["review", "--submissions", "600", "--count", "4", "--browser", find_browser(), "--json"]
    run = CliRunner().invoke(bench, [*wanted, "--database", database_url])
    assert run.exit_code == 0, run.output
    figures = json.loads(run.stdout)
    assert [one["way"] for one in figures["ways"]] == list(WAYS)
    assert figures["database"] == make_url(database_url).get_backend_name()
    assert all(one["processor"]["least_ms"] <= one["processor"]["p95_ms"] for one in figures["ways"])
