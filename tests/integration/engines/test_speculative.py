"""A draft model changes no token, be it equal to the model or often wrong. With tiny models."""

from __future__ import annotations

import copy
import gc
import json
import shutil
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.tiny_models import Kind, make_model
from cli.deploy.models import Wanted, wanted
from grading.config.machines import EngineSettings, Machine, Placement
from grading.domain.errors import ConfigError, EngineError, ModelMissing
from tests.support.decode_loop import Driven, alone, words
from tests.support.engines import SMALLER, ask, measured, quiet
from tests.support.strategies import compared, expect_figures
from workers.machine.engines import Generation, Request, open_engine
from workers.machine.engines.base import unheard
from workers.machine.engines.estimators import WeightedMean
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.mlx.generation import CallerWait
from workers.machine.engines.mlx.model import LoadedModel, load_model
from workers.machine.engines.mlx.models import Models
from workers.machine.engines.speculative.decode_loop import DraftDecodeLoop, DraftModels
from workers.machine.engines.speculative.draft_rounds import drawn, odd
from workers.machine.engines.speculative.messages import BUSY, FOREIGN

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "level": {"type": "integer", "minimum": 0, "maximum": 4},
        "reason": {"type": "string", "maxLength": 12},
    },
    "required": ["level", "reason"],
    "additionalProperties": False,
}
PROMPTS = 20


def changed(folder: Path, noise: float, words: int | None = None) -> Path:
    """The same model with other numbers in it, or with its last `words` words left out."""
    import mlx.core as mx

    file = folder / "model.safetensors"
    mx.random.seed(1)
    weights: Any = mx.load(str(file))
    for name, value in list(weights.items()):
        if words and name.endswith(("embed_tokens.weight", "lm_head.weight")):
            value = value[:-words]
        if value.ndim > 1:
            value = value + noise * value.std() * mx.random.normal(value.shape)
        weights[name] = value
    mx.eval(weights)
    mx.save_safetensors(str(file), weights, metadata={"format": "mlx"})
    if words:
        config = json.loads((folder / "config.json").read_text())
        config["vocab_size"] -= words
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and one that is like it."""
    folder = tmp_path_factory.mktemp("pair")
    return make_model(folder / "model", "llama", SMALLER), changed(
        make_model(folder / "draft", "llama", SMALLER), 0.1
    )


@contextmanager
def engine(model: Path, draft: Path | None = None, **settings: Any) -> Iterator[MlxEngine]:
    drafts = {str(model): str(draft)} if draft else None
    made = MlxEngine(drafts=drafts, draft_always=True, draft_tokens=3, slots=PROMPTS, **settings)
    try:
        yield made
    finally:
        made.close()


def requests(model: Path, schema: dict[str, Any], every: int) -> list[Request]:
    """Every n-th of some prompts of 60 to 150 tokens, so beyond the window of a sliding layer."""
    return [
        ask(
            str(model),
            system="Grade the work by the rubric. " * 3,
            user=f"summary(data$height[{n}]) " * (1 + n // 4),
            schema=schema,
            max_output_tokens=(26 if schema else 12) + n // 2,
        )
        for n in range(0, PROMPTS, every)
    ]


def said(answer: Generation) -> tuple[str, int, bool, bool]:
    return answer.text, answer.tokens.output, answer.truncated, answer.closed


# --- the same tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        ("llama", 0.0),
        ("gemma3", 0.1),
        *(
            pytest.param(*one, marks=pytest.mark.soak)
            for one in (("llama", 0.1), ("qwen2", 0.1), ("qwen3", 0.0))
        ),
    ],
)
def test_the_tokens_are_those_of_the_model_alone(
    tmp_path: Path, kind: Kind, noise: float, every: int
) -> None:
    model = make_model(tmp_path / "model", kind, SMALLER)
    draft = changed(make_model(tmp_path / "draft", kind, SMALLER), noise)
    asked = requests(model, {}, every) + requests(model, SCHEMA, every)
    with engine(model) as plain, ThreadPoolExecutor(PROMPTS) as pool:
        expected = [said(one) for one in pool.map(lambda request: plain.generate(request, quiet), asked)]
    with engine(model, draft) as drafted:
        answers = [drafted.generate(request, quiet) for request in asked]
        told = drafted.counters()
    assert [said(answer) for answer in answers] == expected
    found = [one.details["speculative"] for one in answers]
    accounts = [one for one in found if measured(one, "rounds")]
    assert len(accounts) >= len(asked) / 2
    proposed, accepted = (sum(measured(a, name) for a in accounts) for name in ("proposed", "accepted"))
    assert accepted == proposed if not noise else 0.1 * proposed < accepted < proposed
    assert (told["speculative_proposed"], told["speculative_accepted"]) == (proposed, accepted)
    assert told["speculative_drafted"] == len(accounts) == len(asked) - told["speculative_direct"]
    assert told["output_tokens"] == sum(answer.tokens.output for answer in answers)
    assert told["decode_steps"] < told["output_tokens"]


@pytest.mark.parametrize("sampling", [{"seed": 7}, {"seed": 7, "top_p": 0.9}])
def test_a_seed_gives_the_same_with_a_draft(pair: tuple[Path, Path], sampling: dict[str, Any]) -> None:
    model, draft = pair
    request = ask(str(model), system="Grade.", temperature=0.3, max_output_tokens=60, schema={}, **sampling)
    with engine(model) as plain, engine(model, draft) as drafted:
        expected, answer = plain.generate(request, quiet), drafted.generate(request, quiet)
    assert said(answer) == said(expected)
    assert (
        0
        < measured(answer.details["speculative"], "accepted")
        < measured(answer.details["speculative"], "proposed")
    )


def test_at_a_temperature_each_token_has_the_models_own_chance() -> None:
    import mlx.core as mx
    from mlx_lm.sample_utils import make_sampler

    mx.random.seed(5)
    chances = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]
    logprobs, sampler, many = mx.log(mx.array(chances)), make_sampler(temp=1.0), 3000
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(many):
        written = tuple(drawn(sampler, logprobs, [0, 2]))
        counts[written] = counts.get(written, 0) + 1
    expected = {(1,): 0.3, (2,): 0.1, (0, 0): 0.12, (0, 1): 0.12} | {
        (0, 2, last): 0.36 * chances[2][last] for last in range(3)
    }
    assert counts.keys() == expected.keys()
    for written, chance in expected.items():
        assert abs(counts[written] - many * chance) < 4 * (many * chance * (1 - chance)) ** 0.5


# --- who is in the batch --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(pair: tuple[Path, Path]) -> tuple[LoadedModel, DraftModels]:
    model, draft = pair
    drafts = DraftModels({"m": str(draft)}, longest=3, always=True)
    return drafts.join(load_model(str(model), None), "m"), drafts


@pytest.fixture
def driven(loaded: tuple[LoadedModel, DraftModels]) -> Driven:
    model, drafts = loaded
    made = Driven(model)
    made.counters = type(made.counters)(drafts.metrics)
    made.loop = drafts.loop(model, made.shape, made.prefixes, made.counters)
    return made


def solo(driven: Driven) -> bool:
    """Whether a generation has left the batch."""
    assert isinstance(driven.loop, DraftDecodeLoop)
    return driven.loop._solo is not None


def until_solo(driven: Driven) -> None:
    for _ in range(50):
        driven.steps(1)
        if solo(driven):
            return
    raise AssertionError("nothing was drafted")


def test_who_comes_meanwhile_does_not_wait_for_the_drafted_one(driven: Driven) -> None:
    first_ids, other_ids = words(driven.loaded, 40, 1), words(driven.loaded, 90, 2)
    first = driven.ask((), first_ids, 120).ticket
    until_solo(driven)
    driven.steps(4)
    other = driven.ask((), other_ids, 10).ticket
    driven.steps(1)
    assert not solo(driven)
    driven.steps(4)  # two chunks of its prompt and its first token
    assert other.output
    until_solo(driven)  # the first one, again alone
    assert other.done.done()
    driven.finish()
    assert first.output == alone(driven.loaded, first_ids, 120)
    assert other.output == alone(driven.loaded, other_ids, 10)
    assert (other.details["speculative"].strategy, other.details["speculative"].reason) == ("direct", BUSY())
    assert first.details["speculative"].strategy == "speculative"
    assert driven.count("speculative_drafted") == driven.count("speculative_direct") == 1


def test_cancelling_a_drafted_one_ends_it_before_the_next_round(driven: Driven) -> None:
    first = driven.ask((), words(driven.loaded, 40, 1), 500)
    until_solo(driven)
    written = len(first.ticket.output)
    first.cancel.cancel()
    driven.steps(1)
    assert first.ticket.done.cancelled()
    assert (len(first.ticket.output), driven.loop.running) == (written, 0)
    assert driven.count("cancelled") == 1
    ids = words(driven.loaded, 30, 3)
    later = driven.ask((), ids, 30).ticket
    driven.finish()
    assert later.output == alone(driven.loaded, ids, 30)


def test_the_draft_model_reads_in_chunks_and_what_a_class_shares_once(driven: Driven) -> None:
    prefix = words(driven.loaded, 150, 4)
    for number in (5, 6):
        rest = words(driven.loaded, 20, number)
        before = driven.count("prefill_chunks")
        ticket = driven.ask(prefix, rest, 30).ticket
        driven.finish()
        assert ticket.output == alone(driven.loaded, prefix + rest, 30)
        # of 64 tokens at most: three of the prefix and one of the rest, for each model, then only the rest
        assert driven.count("prefill_chunks") - before == (8 if number == 5 else 2)
    assert driven.prefixes.held() == [tuple(prefix)] * 2
    driven.loop.close()
    assert driven.prefixes.bytes == 0


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_both_caches_are_as_if_only_what_was_accepted_had_been_read(tmp_path: Path, kind: Kind) -> None:
    import mlx.core as mx

    made = make_model(tmp_path / "model", kind, SMALLER)
    draft = changed(make_model(tmp_path / "draft", kind, SMALLER), 0.1)
    drafts = DraftModels({"m": str(draft)}, longest=4, always=True)
    driven = Driven(drafts.join(load_model(str(made), None), "m"))
    driven.counters = type(driven.counters)(drafts.metrics)
    driven.loop = loop = drafts.loop(driven.loaded, driven.shape, driven.prefixes, driven.counters)
    ticket = driven.ask((), words(driven.loaded, 150, 1), 200).ticket
    until_solo(driven)
    assert isinstance(loop, DraftDecodeLoop)
    for _ in range(8):
        driven.steps(1)
        one = loop._solo
        assert one is not None
        ids = [*ticket.prompt.ids, *ticket.output]
        if one.reader.have < 150:
            continue
        for loaded, cache, have in (
            (driven.loaded, one.cache, len(ids) - 1),
            (one.reader.loaded, one.reader.cache, one.reader.have),
        ):
            ahead = loaded.model(mx.array(ids[have:])[None], cache=copy.deepcopy(cache))[0, -1]
            afresh = loaded.model(mx.array(ids)[None])[0, -1]
            assert mx.allclose(ahead, afresh, atol=1e-3).item()
    story = loop._stories[ticket]
    assert 0 < story.accepted < story.proposed


def test_a_broken_batch_takes_the_drafted_one_along(driven: Driven) -> None:
    ticket = driven.ask((), words(driven.loaded, 40, 1), 100).ticket
    until_solo(driven)
    driven.loop.fail(EngineError("mlx failed"))
    assert isinstance(ticket.done.exception(), EngineError)


@pytest.mark.parametrize(("step_s", "strategy"), [(100.0, "speculative"), (1e-9, "direct")])
def test_what_was_measured_decides(pair: tuple[Path, Path], step_s: float, strategy: str) -> None:
    model, draft = pair
    drafts = DraftModels({"m": str(draft)}, longest=3)
    driven = Driven(drafts.join(load_model(str(model), None), "m"))
    driven.counters = type(driven.counters)(drafts.metrics)
    driven.loop = loop = drafts.loop(driven.loaded, driven.shape, driven.prefixes, driven.counters)
    assert isinstance(loop, DraftDecodeLoop)
    ids = words(driven.loaded, 40, 1)
    first = driven.ask((), ids, 40).ticket
    driven.finish()
    assert first.details["speculative"].strategy == "speculative"  # nobody knew yet
    learned = loop._draft.learned
    assert learned.speeds.draft.value > 0 < learned.speeds.check.at(1, 4)
    # a step that takes for ever, or no time at all: a few more steps do not change that
    object.__setattr__(learned.speeds, "plain", WeightedMean(step_s, 1e9))
    second = driven.ask((), ids, 40).ticket
    driven.finish()
    assert second.output == first.output == alone(driven.loaded, ids, 40)
    assert second.details["speculative"].strategy == strategy
    assert "proposed tokens per round, of which" in str(second.details["speculative"].reason)


def test_what_a_draft_model_brings_is_measured(pair: tuple[Path, Path], tmp_path: Path) -> None:
    model, _ = pair
    # the same model: of another one's few proposals, none may be accepted
    with engine(model, Path(shutil.copytree(model, tmp_path / "twin"))) as drafted:
        found, result = compared(drafted, model)
    expect_figures(found, (1, False), (2, False))
    assert (found["strategy"], found["pays_by"]) == ("speculative", "batch")
    one = result.rows[0]
    assert result.accepted is not None
    assert 0.5 < result.accepted <= 1
    assert result.advice is not None
    assert result.advice.on == ((one.strategy.tokens_s or 0) > (one.direct.tokens_s or 0))
    advised = "on" if result.advice.on else "off"
    assert result.sentence.endswith(f"Recommended: {advised}. Everything was measured only once.")
    assert f"{result.accepted:.0%} of the proposals accepted" in result.sentence


def test_a_draft_model_can_be_tried_before_it_is_configured(pair: tuple[Path, Path]) -> None:
    model, draft = pair
    with engine(model) as plain:
        with plain.comparison(str(model), 30.0, lambda _size: True) as both:
            assert both is None
        found, result = compared(plain, model, str(draft.parent / "nothing"))
        assert "nothing" in found["fault"]
        assert result.advice is None
        with (
            pytest.raises(EngineError, match="have no room"),
            plain.comparison(str(model), 30.0, lambda _size: False, str(draft)),
        ):
            pass
        found, _ = compared(plain, model, str(draft))
    expect_figures(found, (1, False), (2, False))


# --- what cannot be ---------------------------------------------------------------------------------------


def test_a_token_that_the_draft_model_lacks_ends_the_drafting(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model, _ = pair
    smaller = changed(make_model(tmp_path, "llama", SMALLER), 0.1, words=200)
    request = ask(str(model), system="Grade.", user="0", schema={}, max_output_tokens=60)
    with engine(model) as plain, engine(model, smaller) as drafted:
        expected, answer = plain.generate(request, quiet), drafted.generate(request, quiet)
    assert said(answer) == said(expected)
    assert answer.details["speculative"].reason == FOREIGN()


def test_another_vocabulary_is_refused_when_the_model_is_loaded(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model, _ = pair
    other = make_model(tmp_path, "llama", SMALLER)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    known = tokenizer["model"]["vocab"]
    known["a"], known["b"] = known["b"], known["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with (
        engine(model, other) as made,
        pytest.raises(ModelMissing, match=r"cannot draft for .* its vocabulary is another one"),
    ):
        made.load(str(model))


def test_a_draft_model_that_is_not_there_is_named(pair: tuple[Path, Path], tmp_path: Path) -> None:
    model, _ = pair
    with engine(model, tmp_path / "nowhere") as made, pytest.raises(ModelMissing, match="nowhere"):
        made.load(str(model))


def test_caches_that_cannot_be_taken_back_are_refused() -> None:
    from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

    assert odd([KVCache(), ArraysCache(2), KVCache()]) == "ArraysCache"
    assert odd([KVCache(), RotatingKVCache(8)]) == ""


@pytest.mark.parametrize(
    "settings", [{"models": 1}, {"draft_tokens": 0}, {"drafts": {"m": "m"}}, {"drafts": {"m": ""}}]
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"engines\.mlx\."):
        MlxEngine(**{"drafts": {"m": "small"}, **settings})


def test_a_draft_model_counts_among_the_loaded_models() -> None:
    unloaded: list[Any] = []
    loads: dict[str, Future[Any]] = {name: Future() for name in ("pair", "a", "b")}
    for name, future in loads.items():
        future.set_result(name)
    models = Models(loads.__getitem__, unloaded.append, 3, lambda name: 2 if name == "pair" else 1)

    def used(name: str) -> None:
        models._enter(name, CallerWait(5), unheard).users -= 1

    used("pair")
    used("a")
    assert not unloaded
    used("b")
    assert unloaded == ["pair"]
    used("pair")
    assert unloaded == ["pair", "a"]


def test_a_draft_model_is_let_go_with_its_model(pair: tuple[Path, Path]) -> None:
    model, draft = pair
    drafts = DraftModels({"m": str(draft)}, longest=3)
    loaded = drafts.join(load_model(str(model), None), "m")
    held = weakref.ref(drafts._loaded[loaded].loaded)
    del loaded
    gc.collect()
    assert held() is None


def test_draft_models_are_brought_to_a_machine_and_known_to_its_engine() -> None:
    options: Any = {"drafts": {"large": "small", "unused": "other"}, "draft_tokens": 2}
    placement = Placement(engine="mlx", model="large", jobs_per_hour=60)
    machine = Machine(
        name="mac-studio-1", stages={"feedback": placement}, engines={"mlx": EngineSettings(options=options)}
    )
    assert wanted(machine) == [Wanted("mlx", "hub", "large"), Wanted("mlx", "hub", "small")]
    open_engine("mlx", machine.engines["mlx"].options).close()


def test_an_engine_without_drafts_says_nothing_of_them(pair: tuple[Path, Path]) -> None:
    model, _ = pair
    with engine(model) as plain:
        request = ask(str(model), system="Grade.", schema={}, max_output_tokens=4)
        assert plain.generate(request, quiet).details == {}
        assert not [name for name in plain.counters() if name.startswith("speculative")]
