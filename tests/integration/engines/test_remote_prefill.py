"""Prompts that another process reads: the same tokens, nothing read twice, nothing sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.tiny_models import WINDOW, Kind, make_model
from cli.dev.embedded_redis import free_port
from grading.scheduling.crossings import LEAST_GAIN
from tests.support.engines import HEADS, SCHEMA, Heard, ask, measured, quiet
from tests.support.remote_prefill import STEP, alone, prefilled, reading, together, writing
from tests.support.strategies import compared, expect_figures
from workers.machine.engines.base import Generation, Request
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.remote_prefill.engine import HybridEngine

KINDS: tuple[Kind, ...] = ("llama", "qwen3", "qwen2", "gemma3")
PATIENT_S = 120.0
"""Half of it is for reading elsewhere, where a busy machine may read eight prompts at once."""
SLIDING = [pytest.param(kind, marks=() if kind == "gemma3" else pytest.mark.soak) for kind in KINDS]
"""Batches of a model with a sliding window in every second layer."""
DTYPES = ("float32", "bfloat16")
OFTEN = {("gemma3", "float32"), ("llama", "bfloat16")}
"""One whose caches have windows, and one that rounds."""
CASES = [
    pytest.param(one, marks=() if one in OFTEN else pytest.mark.soak, id="-".join(one))
    for one in ((kind, dtype) for dtype in DTYPES for kind in KINDS)
]


@pytest.fixture(scope="module", params=CASES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind, dtype = request.param
    return make_model(tmp_path_factory.mktemp("model"), kind, HEADS, dtype=dtype)


@pytest.fixture(scope="module")
def sides(model: Path) -> Iterator[tuple[MlxEngine, HybridEngine]]:
    with reading(model) as address, writing(model, address) as hybrid, alone(model) as direct:
        yield direct, hybrid


def prompt(model: Path, number: int, **changes: Any) -> Request:
    """One of many: from a few words to several passes; every third shares its system message."""
    user = f"Work {number}: " + "x <- c(1, 2) # " * (1 + 3 * (number % 8))
    given = {"schema": {}, "user": user, "max_output_tokens": 8, "deadline_s": PATIENT_S, **changes}
    if number % 3:
        given["system"] = f"Task {number}. " + "Look at the plot. " * (number % 7)
    return ask(str(model), **given)


def read_elsewhere(made: Generation) -> bool:
    return made.details["remote_prefill"].strategy == "disaggregated"


# eight are of every length, with and without a system message
@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.soak)])
def test_many_prompts_give_the_tokens_of_one_machine(
    model: Path, sides: tuple[MlxEngine, HybridEngine], count: int
) -> None:
    direct, hybrid = sides
    before = dict(hybrid.counters())
    for number in range(count):
        request = prompt(model, number)
        here, there = direct.generate(request, quiet), hybrid.generate(request, quiet)
        assert there.text == here.text, number
        assert read_elsewhere(there), there.details["remote_prefill"]
        assert there.tokens.output == here.tokens.output
    assert (
        prefilled(before, dict(hybrid.counters())) == count
    )  # the last token of each, with which the answer begins


@pytest.mark.parametrize("kind", SLIDING)
def test_eight_at_once_give_the_tokens_of_eight_at_once(kind: Kind, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", kind, HEADS)
    requests = [prompt(model, 100 + number, user=f"Work {number} " + "y = 2; " * 30) for number in range(8)]
    with reading(model) as address, writing(model, address) as hybrid, alone(model) as direct:
        made = []
        for engine in (direct, hybrid):
            with ThreadPoolExecutor(8) as pool:
                made.append(
                    [one.text for one in pool.map(lambda r, e=engine: e.generate(r, quiet), requests)]
                )
        assert hybrid.counters()["hybrid_disaggregated"] == 8
    assert made[0] == made[1]


@pytest.mark.soak  # prompts of one after the other are here in bfloat16, batches in float32
@pytest.mark.parametrize("kind", KINDS)
def test_eight_in_bfloat16_give_the_tokens_of_the_same_batch_on_one_machine(
    kind: Kind, tmp_path: Path
) -> None:
    """What bfloat16 rounds may depend on who is in the batch, so both sides get the same batch."""
    model = make_model(tmp_path / "model", kind, HEADS, dtype="bfloat16")
    users = [f"Work {number}: " + "y = 2; " * 12 for number in range(8)]
    several_passes = [ask(str(model), system="All read this. " * 20, user=user) for user in users]
    one_pass = [ask(str(model), system="", user=users[n][: 14 * n + 7]) for n in range(8)]
    for requests, step in ((several_passes, STEP), (one_pass, 8 * STEP)):
        changes = {"schema": {}, "max_output_tokens": 8, "deadline_s": PATIENT_S}
        given = [replace(request, **changes) for request in requests]
        made = []
        with (
            reading(model, step) as address,
            writing(model, address, prefill_step=step) as hybrid,
            alone(model, prefill_step=step) as direct,
        ):
            for engine in (direct, hybrid):
                with together(8), ThreadPoolExecutor(8) as pool:
                    made.append([*pool.map(lambda one, engine=engine: engine.generate(one, quiet), given)])
            assert hybrid.counters()["hybrid_disaggregated"] == 8
            assert prefilled(dict.fromkeys(("prompt_tokens", "cached_tokens"), 0), hybrid.counters()) == 8
        assert [one.text for one in made[0]] == [one.text for one in made[1]]


def test_an_answer_is_bound_to_its_schema(model: Path, sides: tuple[MlxEngine, HybridEngine]) -> None:
    request = prompt(model, 3, schema=SCHEMA, max_output_tokens=300)
    here, there = (engine.generate(request, quiet) for engine in sides)
    assert there.text == here.text
    assert there.sampling["format"] == "json_schema_bound"


def test_what_a_class_shares_is_read_and_sent_once(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "gemma3", HEADS)
    system = "The whole class reads this. " * 40
    with reading(model) as address, writing(model, address) as hybrid, alone(model) as direct:
        made = []
        for number in range(3):
            request = ask(str(model), system=system, user=f"work {number}", schema={}, max_output_tokens=8)
            made.append(hybrid.generate(request, quiet))
            assert made[-1].text == direct.generate(request, quiet).text
    sent = [measured(one.details["remote_prefill"], "sent_bytes") for one in made]
    assert made[0].tokens.cached == 0
    assert made[1].tokens.cached == made[2].tokens.cached > WINDOW
    assert sent[1] < sent[0] / 4


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A model, and where a machine reads prompts with it."""
    model = make_model(tmp_path_factory.mktemp("read"), shape=HEADS)
    with reading(model) as address:
        yield model, address


def test_the_reader_knows_what_another_writer_had_read(reader: tuple[Path, str]) -> None:
    model, address = reader
    system = "The whole class reads this. " * 40
    request = ask(str(model), system=system, user="work", schema={}, max_output_tokens=8)
    with writing(model, address) as first:
        one = first.generate(request, quiet)
    with writing(model, address) as second:
        two = second.generate(request, quiet)
    assert one.text == two.text
    assert (one.tokens.cached, two.tokens.cached > 0) == (0, True)
    sent = [measured(made.details["remote_prefill"], "sent_bytes") for made in (one, two)]
    assert sent[1] == pytest.approx(sent[0], rel=0.02)


def test_from_which_length_on_reading_elsewhere_pays_is_measured(reader: tuple[Path, str]) -> None:
    model, address = reader
    with writing(model, address, strategy="auto") as hybrid:
        found, result = compared(hybrid, model)
    expect_figures(found, (1, False), (1, True), (1, False), (1, True))
    assert (found["strategy"], found["pays_by"]) == ("hybrid", "first_token")
    advice = result.advice
    assert advice is not None
    wins = advice.tokens is not None and advice.tokens <= result.usual.new
    assert advice.on == (wins and (advice.gain or 0) >= LEAST_GAIN)
    assert "(median of 3 runs)" in result.sentence
    with writing(model, f"127.0.0.1:{free_port()}", strategy="auto") as nobody:
        found, result = compared(nobody, model)
    assert result.advice is None
    assert result.sentence.startswith("not measured: It could not be tried: ")


def test_the_result_says_where_the_time_went_and_what_was_sent_can_be_made_smaller(
    reader: tuple[Path, str],
) -> None:
    model, address = reader
    heard = Heard()
    with writing(model, address) as hybrid:
        whole = hybrid.generate(prompt(model, 9), heard)
        assert hybrid.counters()["hybrid_disaggregated"] == 1
    detail = whole.details["remote_prefill"]
    assert (detail.strategy, measured(detail, "reader")) == ("disaggregated", "spark")
    assert measured(detail, "fault") is None
    took = measured(detail, "first_s") + measured(detail, "decode_s")
    for name in ("tokenise", "queued", "prefill", "transfer", "tail", "compress", "convert", "decode"):
        assert 0 <= measured(detail, f"{name}_s") < took + 1, name
    assert measured(detail, "first_s") > measured(detail, "prefill_s") > 0
    smaller_than = {None: 1.0, 8: 0.4}
    for bits, share in smaller_than.items():
        settings = {"zstd": True} | ({"kv_bits": bits} if bits else {})
        with writing(model, address, **settings) as smaller:
            made = smaller.generate(prompt(model, 9), quiet)
        sent = measured(made.details["remote_prefill"], "sent_bytes")
        assert sent < share * measured(detail, "sent_bytes")
        assert measured(made.details["remote_prefill"], "kv_bits") == bits
        if not bits:
            assert made.text == whole.text
