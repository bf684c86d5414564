"""Schema-bound decoding ends within its tokens, whatever a model would rather write; without a model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.tiny_models import make_model
from grading.domain.document import Cell, Document
from grading.domain.errors import EngineError, JobInvalid
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material
from grading.domain.rubric import Criterion, Rubric
from workers.machine.engines.mlx.constraint import Constraint, Grammars, listed, rise
from workers.machine.stages.analysis import STAGE as ANALYSIS
from workers.machine.stages.feedback import STAGE as FEEDBACK

PATHS = ("a.py", "ab.py", 'a long folder/with "quotes", née.R', "日本/報告.py")
PLAIN = ("load", "sum-up", "chart")
ODD = ('a"b', "näh\n", "日本語", "c\\", "x" * 60)
LISTED = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"said": {"type": "string", "maxLength": 4}, "line": {"type": ["integer", "null"]}},
        "required": ["said", "line"],
        "additionalProperties": False,
    },
    "maxItems": 9,
}
"""Texts reach their own limit before the answer reaches its."""


def with_a_text(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 20}, "value": value},
        "required": ["text", "value"],
        "additionalProperties": False,
    }


Policy = Callable[[random.Random, list[int], list[bytes]], int]


def job(stage: str, ids: tuple[str, ...]) -> Job:
    plain = Criterion(
        id="a", title="Title", points=4, stage="analysis" if stage == "analysis" else "feedback"
    )
    # a rubric refuses such ids; a schema must not break on them
    criteria = tuple(plain.model_copy(update={"id": i}) for i in ids)
    cell = Cell(number=1, kind="code", source="x = 1", language="python", added=(1,))
    return Job(
        run_id="run",
        round_id="round",
        stage=stage,
        material=Material(title="Sales"),
        rubric=Rubric.model_construct(criteria=criteria, equivalents={}),
        documents=tuple(Document(path=p, kind="script", language="python", cells=(cell,)) for p in PATHS),
        evidence=Evidence(),
        nonce="5eed5eed",
        budget_s=60,
        max_output_tokens=1200,
    )


SCHEMAS = {
    f"{stage.name} {name}": stage.schema(job(stage.name, ids))
    for stage in (ANALYSIS, FEEDBACK)
    for name, ids in (("plain", PLAIN), ("odd", ODD))
}


@pytest.fixture(scope="module")
def tiny_grammars(tmp_path_factory: pytest.TempPathFactory) -> Grammars:
    from transformers import PreTrainedTokenizerFast

    folder = make_model(tmp_path_factory.mktemp("tiny"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return Grammars(tokenizer, [tokenizer.eos_token_id])


@cache
def large_tokenizer(size: int) -> Any:
    """A byte-level vocabulary with long pieces across the borders of strings, keys and lists."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    rng = random.Random(1)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|endoftext|>": 0, "<|im_end|>": 1} | {a: n for n, a in enumerate(alphabet, 2)}
    pool = [a for a in alphabet if a.isascii() and a.isalnum()] * 3 + list('"{}[]:,\\') * 6
    merges = []
    while len(vocabulary) < size:
        one, other = rng.choice(pool), rng.choice(pool if rng.random() < 0.8 else alphabet)
        if len(one + other) <= 16 and one + other not in vocabulary:
            vocabulary[one + other] = len(vocabulary)
            merges.append((one, other))
            pool.append(one + other)
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def large_grammars() -> Grammars:
    return Grammars(large_tokenizer(4000), [1])


def anything(rng: random.Random, ids: list[int], _pieces: list[bytes]) -> int:
    return rng.choice(ids)


def preferring(wanted: Callable[[bytes], bool]) -> Policy:
    def choose(rng: random.Random, ids: list[int], pieces: list[bytes]) -> int:
        return rng.choice([i for i in ids if wanted(pieces[i])] or ids)

    return choose


POLICIES: dict[str, Policy] = {
    "anything": anything,
    "never ends a text": preferring(lambda piece: not set(piece) & set(b'"]}')),
    "opens whatever it can": preferring(lambda piece: piece[-1:] in (b"{", b"[", b",") or b'{"' in piece),
    "stays inside characters": preferring(lambda piece: piece[-1:] >= b"\x80" or piece[-1:] == b"\\"),
    "fills texts, then lists": lambda rng, ids, pieces: preferring(
        lambda p: p.isalpha() if any(pieces[i].isalpha() for i in ids) else p == b","
    )(rng, ids, pieces),
    "ends texts soon": lambda rng, ids, pieces: (
        preferring(lambda p: p[:1] == b'"')(rng, ids, pieces) if rng.random() < 0.6 else rng.choice(ids)
    ),
}


def pieces_of(grammars: Grammars) -> list[bytes]:
    return grammars._pieces._bytes


Allowed = Callable[[Constraint, list[int]], list[int]]
"""The tokens that may follow what was written; to be called once for each."""


def allowed(constraint: Constraint, written: list[int]) -> list[int]:
    if written:
        constraint.take(written[-1])
    found: list[int] = constraint.allowed(constraint._pieces.size).nonzero()[0].tolist()
    return found


def allowed_logits(constraint: Constraint, written: list[int]) -> list[int]:
    """The same as a processor of logits, which takes longer."""
    import mlx.core as mx

    logits = constraint(mx.array(written or [0]), mx.zeros((1, constraint._pieces.size)))
    flags = (logits[0] == 0).tolist()
    return [i for i, flag in enumerate(flags) if flag]


def write(
    grammars: Grammars,
    constraint: Constraint,
    most: int,
    choose: Policy,
    seed: int,
    following: Allowed = allowed,
) -> tuple[str, bool]:
    """Let a policy choose up to `most` tokens; the text, and whether the end token came among them."""
    rng, written = random.Random(seed), list[int]()
    end = grammars._pieces.end[0]
    while len(written) < most:
        written.append(choose(rng, following(constraint, written), pieces_of(grammars)))
        if written[-1] == end:
            break
    text = grammars._tokenizer.decode_bytes([i for i in written if i != end])
    return text.decode("utf-8", "replace"), written[-1] == end


def shortest(grammars: Grammars, schema: dict[str, Any]) -> int:
    with pytest.raises(JobInvalid, match="shortest answer") as refused:
        grammars.constraint(schema, 1)
    return int(str(refused.value).split(" has ")[1].split(" ")[0])


def check_runs(grammars: Grammars, schema: dict[str, Any], policy: str, more: int, seed: int) -> bool:
    most = shortest(grammars, schema) + more
    constraint = grammars.constraint(schema, most)
    text, ended = write(grammars, constraint, most, POLICIES[policy], seed)
    assert ended
    assert constraint.error == ""
    jsonschema.validate(json.loads(text), schema)
    return constraint.closed


runs = given(
    schema=st.sampled_from(sorted(SCHEMAS)),
    policy=st.sampled_from(sorted(POLICIES)),
    more=st.integers(0, 60) | st.integers(0, 500),
    seed=st.integers(0, 10**6),
)


@settings(max_examples=20)
@runs
def test_every_answer_is_complete_within_any_limit(
    tiny_grammars: Grammars, schema: str, policy: str, more: int, seed: int
) -> None:
    check_runs(tiny_grammars, SCHEMAS[schema], policy, more, seed)


@settings(max_examples=6)
@runs
def test_every_answer_is_complete_with_long_pieces(
    large_grammars: Grammars, schema: str, policy: str, more: int, seed: int
) -> None:
    check_runs(large_grammars, SCHEMAS[schema], policy, more, seed)


@pytest.mark.soak
@settings(max_examples=800)
@runs
def test_every_answer_is_complete_in_many_runs(
    tiny_grammars: Grammars, large_grammars: Grammars, schema: str, policy: str, more: int, seed: int
) -> None:
    for grammars in (tiny_grammars, large_grammars):
        check_runs(grammars, SCHEMAS[schema], policy, 3 * more, seed)


def test_an_answer_says_whether_the_limit_closed_it(tiny_grammars: Grammars) -> None:
    schema = SCHEMAS["analysis plain"]
    assert check_runs(tiny_grammars, schema, "never ends a text", 100, 1)
    assert not check_runs(tiny_grammars, schema, "ends texts soon", 2000, 1)


def test_a_limit_below_the_shortest_answer_is_refused_at_once(tiny_grammars: Grammars) -> None:
    schema = SCHEMAS["feedback plain"]
    least = shortest(tiny_grammars, schema)
    assert 50 < least < 400
    with pytest.raises(JobInvalid, match=f"max_output_tokens = {least - 1} must be raised"):
        tiny_grammars.constraint(schema, least - 1)
    check_runs(tiny_grammars, schema, "anything", 0, 1)


def test_without_a_limit_nothing_is_closed(tiny_grammars: Grammars) -> None:
    constraint = tiny_grammars.constraint(SCHEMAS["feedback plain"])
    policy = POLICIES["never ends a text"]
    text, ended = write(tiny_grammars, constraint, 120, policy, 1, allowed_logits)
    assert not ended
    assert not constraint.closed
    assert not constraint.complete
    assert text.startswith('{"judgements":{"load":{"quotes":[')


def test_a_level_stays_the_models_choice_to_the_end(tiny_grammars: Grammars) -> None:
    schema = SCHEMAS["analysis plain"]
    most = shortest(tiny_grammars, schema)
    levels = set()
    for seed in range(20):
        constraint = tiny_grammars.constraint(schema, most)
        answer = json.loads(write(tiny_grammars, constraint, most, anything, seed)[0])
        levels |= {judged["level"] for judged in answer["judgements"].values()}
        assert answer["findings"] == []
    assert levels == {0, 1, 2, 3, 4}


def test_what_is_left_is_shared_among_the_texts(tiny_grammars: Grammars) -> None:
    schema = SCHEMAS["feedback plain"]
    most = shortest(tiny_grammars, schema) + 140
    constraint = tiny_grammars.constraint(schema, most)
    text, _ = write(tiny_grammars, constraint, most, POLICIES["never ends a text"], 3, allowed_logits)
    answer = json.loads(text)
    texts = [answer[k] for k in ("achieved", "reflection", "practice", "next_step")]
    texts += [judged["reason"] for judged in answer["judgements"].values()]
    assert all(texts)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "integer", "minimum": 15, "maximum": 2300},
        {"type": "integer", "minimum": -5, "maximum": -3},
        {"type": ["integer", "null"]},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "string", "minLength": 3, "maxLength": 9},
        {"enum": ["x", "xx" * 40, "née", 'a"b\\', "]]]]", None, 17]},
        LISTED,
        {"type": "array", "items": {"enum": ["long " * 30]}, "maxItems": 40},
        {"type": "array", "minItems": 2, "maxItems": 5, "items": {"enum": ["yes", "no"]}},
        {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 9, "items": {"type": "integer"}}]},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"const": "long " * 9}}},
        {"type": "array", "maxItems": 9, "items": {"type": "string", "format": "uuid"}},
        {"type": "array", "maxItems": 9, "items": {"type": "integer", "exclusiveMinimum": 10**12}},
    ],
)
def test_other_schemas_end_in_time_too(tiny_grammars: Grammars, value: dict[str, Any]) -> None:
    closed = {"additionalProperties": False} if value.get("type") == "object" else {}
    schema = with_a_text(value | closed)
    for seed in (0, 2, 5):
        for policy in ("anything", "opens whatever it can", "never ends a text"):
            check_runs(tiny_grammars, schema, policy, seed * 40, seed)


def test_a_text_that_is_as_long_as_it_may_be_opens_nothing_new(tiny_grammars: Grammars) -> None:
    for more in range(40, 200, 7):
        check_runs(tiny_grammars, with_a_text(LISTED), "fills texts, then lists", more, more)


def test_the_rise_of_an_ending_is_that_of_the_deepest_list(tiny_grammars: Grammars) -> None:
    text = {"type": "string", "maxLength": 9}
    inner = {"type": "object", "properties": {"name": text, "more": text}, "required": ["name", "more"]}
    flat = {"type": "object", "properties": {"a": text, "b": text}, "required": ["a", "b"]}
    deep = {"type": "object", "properties": {"a": text, "b": {"type": "array", "items": inner}}}
    assert rise(flat) < rise(deep) - len('{"name":"","more":""}') / 2


def test_a_schema_that_nothing_satisfies_is_refused(tiny_grammars: Grammars) -> None:
    with pytest.raises(EngineError, match="Constrained decoding"):
        tiny_grammars.constraint({"type": "no such type"}, 100)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [0, 37])
def test_logits_keep_their_type_and_width(tiny_grammars: Grammars, kind: str, width: int) -> None:
    import mlx.core as mx

    constraint = tiny_grammars.constraint(SCHEMAS["feedback plain"], 700)
    size = tiny_grammars._pieces.size + width
    logits = mx.ones((1, size), dtype=getattr(mx, kind))
    bound = constraint(mx.array([0]), logits)
    assert (bound.dtype, bound.shape) == (logits.dtype, (1, size))
    kept = [i for i, one in enumerate((bound[0] == 1).tolist()) if one]
    fresh = tiny_grammars.constraint(SCHEMAS["feedback plain"])
    assert kept == listed(fresh._bits())
    assert max(kept) < tiny_grammars._pieces.size
    assert mx.isinf(bound[0]).sum().item() == size - len(kept)


def test_the_tests_own_vocabulary_has_pieces_across_borders() -> None:
    pieces = large_tokenizer(4000).get_vocab()
    assert sum('"' in piece[:-1] for piece in pieces) > 300
