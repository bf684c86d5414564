"""Who is in a running batch of the mlx engine, and what is kept of them; shown by its counters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.tiny_models import make_model
from grading.domain.errors import BudgetExceeded, Cancelled
from tests.support.decode_loop import Driven, words
from tests.support.engines import ENDLESS, Heard, ask, quiet
from workers.machine.engines import Request
from workers.machine.engines.base import Cancel
from workers.machine.engines.mlx.decode_loop import Counters, DecodeLoop, Shape
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.mlx.generation import CallerWait, Sampling, Watch
from workers.machine.engines.mlx.model import LoadedModel, load_model
from workers.machine.engines.mlx.prefix_caches import PrefixCaches

SECONDS = 60


@pytest.fixture(scope="module")
def loaded(tiny: Path) -> LoadedModel:
    return load_model(str(tiny), None)


@pytest.fixture(scope="module")
def endless(tiny: Path) -> Request:
    """A request that goes on for long, whatever it draws."""
    return ask(str(tiny), schema=ENDLESS, max_output_tokens=3000, temperature=1.0, seed=3, deadline_s=120)


# --- step by step ---------------------------------------------------------------------------------------


def test_who_is_cancelled_leaves_before_the_next_step(loaded: LoadedModel) -> None:
    driven = Driven(loaded, Shape(slots=1, prefill_step=64))
    first = driven.ask((), words(loaded, 20, 1), 500)
    second = driven.ask((), words(loaded, 20, 2), 3)
    driven.steps(6)
    written = len(first.ticket.output)
    assert written > 0
    assert (driven.loop.running, driven.loop.waiting) == (1, 1)
    assert second.ticket.phases == ["queued"]
    steps = driven.count("decode_steps")
    first.cancel.cancel()
    driven.steps(1)
    assert len(first.ticket.output) == written
    assert driven.count("decode_steps") == steps
    assert second.ticket.phases == ["queued", "reading"]
    driven.finish()
    assert len(second.ticket.output) == 3
    assert (driven.count("requests"), driven.count("cancelled")) == (0, 1)


def test_a_long_prompt_is_left_after_the_chunk_under_way(loaded: LoadedModel) -> None:
    driven = Driven(loaded, Shape(slots=1, prefill_step=64))
    first = driven.ask((), words(loaded, 1000, 1), 500)
    driven.ask((), words(loaded, 20, 2), 3)
    driven.steps(3)
    assert driven.count("prefill_chunks") == 3
    assert not first.ticket.output
    first.cancel.cancel()
    driven.steps(1)
    assert driven.count("prompt_tokens") == 1020  # the second one is in
    assert driven.count("prefill_chunks") == 4
    driven.finish()
    assert driven.count("prefill_chunks") == 4
    assert driven.loop.running == 0


def test_prompts_beyond_the_slots_are_not_read(loaded: LoadedModel) -> None:
    driven = Driven(loaded, Shape(slots=2, prefill_step=64))
    asked = [driven.ask((), words(loaded, 20, n), 5).ticket for n in range(5)]
    driven.steps(3)
    assert driven.count("prompt_tokens") == 40
    assert [ticket.phases[-1] for ticket in asked[2:]] == ["queued"] * 3
    seen = []
    while driven.loop.running or driven.loop.waiting:
        driven.steps(1)
        seen.append(driven.loop.running)
    assert max(seen) == 2
    ended = [ticket.ended or 0.0 for ticket in asked]
    assert ended == sorted(ended)  # in the order in which they came


def test_a_pass_over_many_prompts_reads_no_more_than_one_over_a_single(loaded: LoadedModel) -> None:
    driven = Driven(loaded, Shape(slots=4, prefill_step=128))
    for n in range(4):
        driven.ask((), words(loaded, 129, n), 1)
    driven.finish()
    assert driven.count("prefill_chunks") == 4


def test_a_seed_gives_the_same_alone_and_among_others(loaded: LoadedModel) -> None:
    wish, ids = Sampling(1.0, 0.95, seed=11), words(loaded, 30, 1)
    others = [Sampling(1.0), Sampling(0.7, 0.9), Sampling(1.0, 0.95, seed=12), Sampling(0.0)]

    def written(company: list[Sampling], late: int) -> tuple[list[int], list[list[int]]]:
        driven = Driven(loaded, Shape(slots=8, prefill_step=64))
        beside = [driven.ask((), ids, 40, other).ticket for other in company]
        driven.steps(late)
        seeded = driven.ask((), ids, 40, wish).ticket
        driven.finish()
        return seeded.output, [ticket.output for ticket in beside]

    alone, _ = written([], 0)
    among, beside = written(others, 0)
    later, beside_later = written(others, 7)
    assert alone == among == later
    assert beside[2] == beside_later[2] != alone
    assert beside[3] == beside_later[3]
    assert beside[0] != beside_later[0]  # no seed, so drawn anew


def test_only_what_a_class_shares_is_kept_and_within_its_bytes(loaded: LoadedModel) -> None:
    class_a, class_b = words(loaded, 64, 1), words(loaded, 64, 2)
    driven = Driven(loaded)
    for n in range(24):
        driven.ask((class_a, class_b)[n % 2], words(loaded, 5 + n, 100 + n), 4)
    driven.finish()
    assert driven.prefixes.held() == [tuple(class_a), tuple(class_b)]
    assert driven.count("prefix_lookups") == 24
    assert driven.count("prefix_hits") == 22
    one = driven.prefixes.bytes // 2
    small = Driven(loaded, prefixes=PrefixCaches(one))
    for prefix in (class_a, class_b, class_b):
        small.ask(prefix, words(loaded, 5, 3), 2)
        small.finish()
        assert small.prefixes.held() == [tuple(prefix)]
        assert small.prefixes.bytes == one
    assert small.count("prefix_hits") == 1


def test_a_prefix_that_is_too_large_holds_nobody_up(loaded: LoadedModel) -> None:
    driven = Driven(loaded, prefixes=PrefixCaches(1000))
    prefix = words(loaded, 64, 1)
    driven.ask(prefix, [5, 6], 2)
    driven.finish()
    tickets = [driven.ask(prefix, [7, n], 2).ticket for n in range(3, 7)]
    driven.steps(1)
    assert driven.loop.running == 4
    driven.finish()
    assert all(len(ticket.output) == 2 for ticket in tickets)
    assert driven.prefixes.held() == []


def test_metals_wired_limit_is_left_alone_unless_wanted(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlx.core as mx

    wired: list[int] = []
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 7})
    monkeypatch.setattr(mx, "set_wired_limit", lambda size: wired.append(size) or 0)
    before = import_module("mlx_lm.generate").maybe_set_recommended_wired_limit
    DecodeLoop(loaded, Shape(), PrefixCaches(0), Counters()).close()
    assert wired == []
    DecodeLoop(loaded, Shape(wired=True), PrefixCaches(0), Counters()).close()
    assert wired == [7, 0]
    assert import_module("mlx_lm.generate").maybe_set_recommended_wired_limit is before


def test_only_the_mlx_thread_writes_down_what_happens(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.machine.engines.mlx.generation.PROGRESS_EVERY_S", 0.0)
    driven, heard = Driven(loaded), Heard()
    ticket = driven.ask((), words(loaded, 20, 1), 3).ticket

    def begins_while_its_caller_speaks(tokens: int, phase: str = "generating", draft: str = "", /) -> None:
        heard(tokens, phase, draft)
        if phase == "queued":
            driven.finish()

    watch = Watch(ticket, begins_while_its_caller_speaks, draft=False)
    assert watch.wait(CallerWait(SECONDS)) == "length"
    assert heard.phases == ["queued", "reading", "generating"]
    assert ticket.phases == ["reading", "generating"]


# --- through the engine ---------------------------------------------------------------------------------


@pytest.fixture
def narrow(tiny: Path) -> Iterator[MlxEngine]:
    """An engine with one slot."""
    engine = MlxEngine(slots=1)
    engine.load(str(tiny))
    yield engine
    engine.close()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def test_cancelling_frees_the_slot_for_who_waits(narrow: MlxEngine, endless: Request) -> None:
    cancel, waiting, heard = Cancel(), Cancel(), Heard()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(narrow.generate, replace(endless, cancel=cancel), quiet)
        until(lambda: narrow.counters()["running"] == 1)
        second = pool.submit(narrow.generate, replace(endless, schema={}, max_output_tokens=3), heard)
        until(lambda: "queued" in heard.phases)
        third = pool.submit(narrow.generate, replace(endless, cancel=waiting), quiet)
        until(lambda: narrow.counters()["waiting"] == 2)
        waiting.cancel()
        with pytest.raises(Cancelled):
            third.result(SECONDS)
        assert narrow.counters()["running"] == 1
        cancel.cancel()
        with pytest.raises(Cancelled):
            first.result(SECONDS)
        answer = second.result(SECONDS)
    assert heard.phases == ["queued", "reading", "generating"]
    assert answer.tokens.output == 3
    assert answer.timings.queued_s is not None
    assert answer.timings.queued_s > 0
    counted = narrow.counters()
    assert (counted["requests"], counted["cancelled"]) == (3, 2)
    assert counted["running"] == counted["waiting"] == 0


def test_a_deadline_while_waiting_for_a_slot_is_kept(narrow: MlxEngine, endless: Request) -> None:
    cancel = Cancel()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(narrow.generate, replace(endless, cancel=cancel), quiet)
        until(lambda: narrow.counters()["running"] == 1)
        with pytest.raises(BudgetExceeded, match=r"0\.1 s"):
            narrow.generate(replace(endless, deadline_s=0.1), quiet)
        cancel.cancel()
        with pytest.raises(Cancelled):
            first.result(SECONDS)


def test_who_breaks_off_at_its_own_progress_is_let_go(narrow: MlxEngine, endless: Request) -> None:
    def broken(count: int, _phase: str = "") -> None:
        if count:
            raise RuntimeError("nobody listens")

    with pytest.raises(RuntimeError):
        narrow.generate(endless, broken)
    until(lambda: narrow.counters()["running"] == 0)
    assert narrow.counters()["cancelled"] == 1


def test_cancelling_does_not_wait_for_a_model_that_loads(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, cancel, go_on = MlxEngine(), Cancel(), threading.Event()
    real, told = load_model, list[str]()

    def slow(*about: Any) -> LoadedModel:
        assert go_on.wait(SECONDS)
        return real(*about)

    monkeypatch.setattr("workers.machine.engines.mlx.engine.load_model", slow)
    try:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                engine.generate, ask(str(tiny), cancel=cancel), lambda _, phase="": told.append(phase)
            )
            until(lambda: "loading" in told)
            with pytest.raises(BudgetExceeded, match="loading"):
                engine.generate(ask(str(tiny), deadline_s=0.05), quiet)
            cancel.cancel()
            with pytest.raises(Cancelled):
                running.result(SECONDS)
            go_on.set()
        assert engine.generate(ask(str(tiny), schema={}, max_output_tokens=10), quiet).text
    finally:
        go_on.set()
        engine.close()


def test_drafts_grow_and_answers_say_how_they_came_about(mlx: MlxEngine, tiny: Path) -> None:
    drafts: list[tuple[int, str]] = []
    request = ask(str(tiny), schema={}, max_output_tokens=300, temperature=1.0, top_p=0.9, seed=3)
    shown = replace(request, job=request.job.model_copy(update={"draft": True}))
    answer = mlx.generate(shown, lambda count, _phase="", draft="": drafts.append((count, draft)))
    texts = [draft for count, draft in drafts if count]
    assert all(answer.text.startswith(draft) for draft in texts)
    assert texts[-1] == answer.text.rstrip("\N{REPLACEMENT CHARACTER}")
    assert answer.sampling == {
        "temperature": 1.0,
        "max_tokens": 300,
        "format": "none",
        "top_p": 0.9,
        "seed": 3,
    }
    assert mlx.generate(request, quiet).text == answer.text
    spent = answer.timings
    parts = [spent.load_s, spent.queued_s, spent.prompt_s, spent.output_s]
    known = [part for part in parts if part is not None]
    assert len(known) == 4
    assert min(known) >= 0
    assert sum(known) <= answer.seconds
    assert answer.first_token_s is not None
    assert sum(known[:3]) == pytest.approx(answer.first_token_s)


def test_prefixes_hold_nothing_of_a_submission(mlx: MlxEngine, tiny: Path) -> None:
    asked = [
        ask(
            str(tiny),
            system=f"Class {n % 2}. " * 20,
            user=f"secret of {n}" * n,
            schema={},
            max_output_tokens=10,
        )
        for n in range(1, 13)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda request: mlx.generate(request, quiet), asked))
    loaded = load_model(str(tiny), None)
    shown = [loaded.decode(list(key)) for key in mlx.prefixes.held()]
    assert sum("Class" in text for text in shown) == 2
    assert not any("secret" in text for text in shown)
    counted = mlx.counters()
    assert counted["prefix_lookups"] > counted["prefix_hits"] > 0
    assert counted["cache_bytes"] > 0


def test_models_take_turns_where_few_may_stay(tiny: Path, tmp_path: Path) -> None:
    other = str(make_model(tmp_path / "other", "qwen3"))
    engine = MlxEngine(models=1)
    try:
        asked = [
            ask(model, user=f"+ 1| {n}", schema={}, max_output_tokens=6)
            for n in range(3)
            for model in (str(tiny), other)
        ]
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda request: engine.generate(request, quiet), asked))
        assert len({answer.digest for answer in answers}) == 2
        assert len(engine._models._held) == 1
        runner = engine._thread()
        assert len(runner._loops) == 1
        assert engine.digest(other, SECONDS) == answers[1].digest != answers[0].digest
        again = engine.generate(asked[0], quiet)
        assert again.text == answers[0].text
    finally:
        engine.close()


def test_the_measure_of_a_model_is_its_own_tokenizers(mlx: MlxEngine, tiny: Path) -> None:
    measure = mlx.token_counter(str(tiny), SECONDS, quiet)
    assert measure is not None
    assert measure.context_tokens == 4096
    text = "summary(data$height)\n" * 10
    assert measure.count(text) == len(load_model(str(tiny), None).tokenizer.encode(text))
    assert measure.count("<|im_start|>") > 1
    assert mlx.digest(str(tiny), SECONDS) == mlx.generate(ask(str(tiny)), quiet).digest
    with pytest.raises(BudgetExceeded, match="were not read within"):
        CallerWait(0.0).wait_for(Future[str](), "The model's files were not read")


def test_what_a_gateway_request_asks_goes_to_no_prefix_cache(mlx: MlxEngine, tiny: Path) -> None:
    before = mlx.counters()
    chat = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"})
    heard = Heard()
    request = ask(str(tiny), system="", user="", chat=chat, schema={}, max_output_tokens=20)
    request = replace(request, job=request.job.model_copy(update={"draft": True}))
    made = mlx.generate(request, heard)
    assert mlx.counters()["prefix_lookups"] == before["prefix_lookups"]
    assert mlx.counters()["cache_bytes"] == before["cache_bytes"]
    assert heard.drafts[-1]
    assert made.text.startswith(heard.drafts[-1])
