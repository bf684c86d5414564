"""What the engine for `/v1/chat/completions` does beside the contract: schemas, thoughts, differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cli.deploy.models import wanted
from grading.config.machines import Machine
from grading.domain.errors import (
    ConfigError,
    EngineBrokeOff,
    EngineError,
    EngineGarbled,
    EngineUnreachable,
    JobInvalid,
    ModelMissing,
)
from grading.domain.model_behaviour import same_weights
from tests.support.engines import SCHEMA, Heard, ask, parsed, quiet
from tests.support.servers.base import ModelServer
from tests.support.servers.flavours import SLOT_CONTEXT, VLLM_METRICS
from tests.support.servers.openai_server import openai_server
from workers.machine.engines import open_engine, open_engines
from workers.machine.engines.base import ToolsRefused
from workers.machine.engines.openai.capacity import with_cache
from workers.machine.engines.openai.engine import OpenAIEngine
from workers.machine.engines.openai.schema_support import ODD


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with openai_server() as one:
        yield one


def engine_on(server: ModelServer, **settings: Any) -> OpenAIEngine:
    engine = open_engine("openai", {"url": f"{server.url}/v1", **settings})
    assert isinstance(engine, OpenAIEngine)
    return engine


def like(server: ModelServer, flavour: str) -> OpenAIEngine:
    server.behaviour.flavour = flavour
    return engine_on(server)


# --- what is sent ----------------------------------------------------------------------------------------


def test_it_sends_the_schema_and_the_key_but_no_seed(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_TEST_KEY", "not-a-secret")
    answer = engine_on(server, api_key_env="GRADER_TEST_KEY").generate(ask(), quiet)
    sent = server.stats.last
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert sent["stream"] is True
    assert not {"seed", "top_p"} & set(sent)
    assert answer.tokens.cached > 0


def test_top_p_and_seed_are_sent_only_where_they_are_given(server: ModelServer) -> None:
    answer = engine_on(server).generate(ask(top_p=0.9, seed=7), quiet)
    assert server.stats.last.items() >= {"top_p": 0.9, "seed": 7}.items()
    assert answer.sampling.items() >= {"top_p": 0.9, "seed": 7}.items()


TOOL: Any = {"type": "function", "function": {"name": "look_up"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
RESULT: Any = (
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": ""},
)


def test_tools_are_handed_on_or_refused_and_never_dropped(server: ModelServer) -> None:
    asked = ask(schema={}, chat=RESULT[:1], tools=(TOOL,))
    engine = like(server, "llama")
    with pytest.raises(ToolsRefused):
        engine.generate(asked, quiet)
    assert server.stats.requests == 0, "a template without a place for tools: the server would drop them"
    server.behaviour.capabilities = ("completion", "tools")
    (call,) = engine.generate(asked, quiet).tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "look_up", '{"city": "Zürich"}')
    assert engine.generate(replace(asked, chat=RESULT), quiet).text
    assert server.stats.last["messages"] == list(RESULT)
    with pytest.raises(ToolsRefused):
        engine.generate(replace(asked, chat=RESULT, tool_choice="required"), quiet)
    server.behaviour.refuses = ("tools",)
    with pytest.raises(ToolsRefused):
        engine.generate(asked, quiet)


def test_an_empty_prompt_is_never_sent(server: ModelServer) -> None:
    with pytest.raises(JobInvalid):
        engine_on(server).generate(ask(user=" \n"), quiet)
    assert server.stats.requests == 0


# --- whether it binds answers to schemas --------------------------------------------------------------------


def test_a_server_that_binds_answers_is_asked_once(server: ModelServer) -> None:
    engine = engine_on(server)
    first = engine.generate(ask(), quiet)
    assert server.stats.requests == 2  # the odd question, and the work
    second = engine.generate(ask(), quiet)
    assert server.stats.requests == 3
    assert first.sampling["format"] == second.sampling["format"] == "json_schema"
    assert engine.counters()["requests"] == 2  # the question is none of the work


def test_a_server_that_ignores_schemas_is_found_out(server: ModelServer) -> None:
    engine = like(server, "mlx")
    for _ in range(2):
        answer = engine.generate(ask(), quiet)
        assert answer.sampling["format"] == "none: the server ignores json_schema"
        assert "response_format" not in server.stats.last
    assert server.stats.requests == 3


@pytest.mark.parametrize("name", ["response_format", "stream_options"])
def test_a_field_that_a_server_refuses_is_left_out_from_then_on(server: ModelServer, name: str) -> None:
    server.behaviour.refuses = (name,)
    engine = engine_on(server)
    engine.generate(ask(), quiet)
    before = server.stats.requests
    answer = engine.generate(ask(), quiet)
    assert server.stats.requests == before + 1
    assert name not in server.stats.last
    assert answer.tokens.output > 0
    if name == "response_format":
        assert answer.sampling["format"] == "none: the server refuses json_schema"
    else:
        parsed(answer.text)


@pytest.mark.parametrize("flavour", ["llama", "vllm"])
def test_a_refused_schema_says_nothing_of_others(server: ModelServer, flavour: str) -> None:
    server.behaviour.unfit = "nowhere"
    engine = like(server, flavour)
    bound = engine.generate(ask(), quiet)
    unfit = engine.generate(ask(schema={"$ref": "#/$defs/nowhere"}), quiet)
    again = engine.generate(ask(), quiet)
    assert (bound.sampling["format"], again.sampling["format"]) == ("json_schema", "json_schema")
    assert unfit.sampling["format"] == "none: the server refuses this schema"
    assert unfit.text
    always = engine_on(server, schema="json_schema")
    assert always.generate(ask(schema={"$ref": "#/$defs/nowhere"}), quiet).text
    assert always.generate(ask(), quiet).sampling["format"] == "json_schema"


def test_other_refusals_are_errors(server: ModelServer) -> None:
    server.behaviour.refuses = ("messages",)
    with pytest.raises(EngineError, match="Unrecognized request argument supplied: messages"):
        engine_on(server).generate(ask(), quiet)
    assert server.stats.requests <= 3  # each optional field is left out once, then it ends


def test_nothing_is_found_out_where_the_setting_says_it(server: ModelServer) -> None:
    bound = engine_on(server, schema="json_schema").generate(ask(), quiet)
    assert server.stats.requests == 1
    bare = engine_on(server, schema="none").generate(ask(), quiet)
    assert server.stats.requests == 2
    assert (bound.sampling["format"], bare.sampling["format"]) == ("json_schema", "none")
    assert "response_format" not in server.stats.last


def test_an_answer_that_is_no_json_shows_that_it_was_not_bound(server: ModelServer) -> None:
    engine = engine_on(server)
    engine.generate(ask(), quiet)
    server.behaviour.fault = "prose"
    engine.generate(ask(), quiet)
    assert engine.generate(ask(), quiet).sampling["format"] == "none: the server ignores json_schema"


def test_a_question_that_only_gives_thoughts_proves_nothing(server: ModelServer) -> None:
    server.behaviour.thinks = 5
    server.behaviour.fault, server.behaviour.times = "wordless", 1
    answer = engine_on(server).generate(ask(), quiet)
    assert answer.sampling["format"] == "json_schema, not proved to be enforced"
    parsed(answer.text)


def test_a_slow_question_takes_little_of_the_budget(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.machine.engines.openai.engine.SHARE", 0.01)
    server.behaviour.fault, server.behaviour.times = "hang", 1
    answer = engine_on(server).generate(ask(deadline_s=60.0), quiet)
    assert answer.sampling["format"] == "json_schema, not proved to be enforced"
    assert server.wait_for("disconnects", 1)
    assert ODD != SCHEMA


# --- thoughts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", ["mlx", "llama", "lmstudio", "vllm"])
def test_thoughts_are_no_text_and_no_draft(server: ModelServer, flavour: str) -> None:
    server.behaviour.flavour = flavour
    engine = engine_on(server)
    plain_heard, heard = Heard(), Heard()
    plain = engine.generate(ask(), plain_heard)
    server.behaviour.thinks = 20
    drafted = ask().job.model_copy(update={"draft": True})
    answer = engine.generate(ask(job=drafted), heard)
    assert answer.text == plain.text
    assert all(plain.text.startswith(draft) for draft in heard.drafts)
    assert heard.tokens[2] == 1  # the first thought counts as a token
    assert heard.tokens == sorted(heard.tokens)
    assert heard.tokens[-1] >= 20 + plain_heard.tokens[-1]  # LM Studio writes marks around thoughts, too


# --- servers' differences ----------------------------------------------------------------------------------


def test_counts_and_times_of_a_llama_server(server: ModelServer) -> None:
    answer = like(server, "llama").generate(ask(), quiet)
    assert 0 < answer.tokens.cached < answer.tokens.prompt
    assert (answer.timings.prompt_s, answer.timings.output_s) == (0.0305, 60.661)
    assert answer.timings.queued_s is None
    server.behaviour.times_ms = (0.0, 0.0)
    queued_s = like(server, "llama").generate(ask(), quiet).timings.queued_s
    assert queued_s, "what it neither read nor wrote, it waited for a slot"


@pytest.mark.parametrize("flavour", ["llama", "vllm"])
def test_a_server_with_a_tokenizer_measures_texts(server: ModelServer, flavour: str) -> None:
    measure = like(server, flavour).token_counter("tiny", 5.0, quiet)
    assert measure is not None
    assert measure.context_tokens == SLOT_CONTEXT
    assert measure.count("x" * 400) == 100
    server.shutdown()
    server.server_close()
    assert measure.count("x" * 400) == 100  # remembered
    assert measure.count("y" * 900) >= 225  # carefully estimated


def test_a_server_tells_how_much_it_has_room_for(server: ModelServer) -> None:
    llama = like(server, "llama").capacity("tiny", 8, 5.0)
    assert (llama.slots, llama.context_tokens, llama.slots_setting) == (4, SLOT_CONTEXT, "--parallel")
    vllm = like(server, "vllm").capacity("tiny", 8, 5.0)
    assert (vllm.slots, vllm.context_tokens, vllm.cache_tokens) == (None, SLOT_CONTEXT, 24_000)
    newer = with_cache(vllm, VLLM_METRICS.replace('num_gpu_blocks="', 'kv_cache_size_tokens="9000",old="'))
    assert newer.cache_tokens == 9000
    for silent in ("mlx", "lmstudio"):
        told = like(server, silent).capacity("tiny", 8, 5.0)
        assert (told.slots, told.context_tokens, told.cache_tokens) == (None, None, None)
    assert not server.stats.last, "nothing was generated for it"


@pytest.mark.parametrize("flavour", ["mlx", "lmstudio"])
def test_a_server_without_one_does_not(server: ModelServer, flavour: str) -> None:
    assert like(server, flavour).token_counter("tiny", 5.0, quiet) is None


def test_a_tokenizer_that_fell_silent_is_waited_for_once(server: ModelServer) -> None:
    """A submission has hundreds of texts."""
    measure = like(server, "llama").token_counter("tiny", 5.0, quiet)
    assert measure is not None
    asked: list[str] = []
    server.behaviour.flavour = "mlx"  # has no such page any more
    handle = server.finish_request

    def count(request: Any, address: Any) -> None:
        asked.append("once")
        handle(request, address)

    server.finish_request = count  # type: ignore[method-assign]
    for number in range(20):
        assert measure.count(f"some text, {number}") > 0
    assert len(asked) == 1


def test_counts_are_given_while_other_threads_forget_them(server: ModelServer) -> None:
    measure = like(server, "llama").token_counter("tiny", 5.0, quiet)
    assert measure is not None

    class Forgetful(dict[int, int]):
        def __setitem__(self, key: int, value: int) -> None:
            """Another thread clears all of it at this moment."""

    counting = measure.count.__self__  # type: ignore[attr-defined]
    object.__setattr__(counting, "_known", Forgetful())
    assert measure.count("x" * 400) == 100


@pytest.mark.parametrize("flavour", ["", "mlx", "llama", "lmstudio", "vllm", "proxy"])
def test_weights_are_told_apart_by_what_the_model_does(server: ModelServer, flavour: str) -> None:
    engine = like(server, flavour)
    digest = engine.digest("tiny", 30.0)
    assert all(same_weights(digest, engine.digest("tiny", 30.0)) for _ in range(5))  # rounded otherwise
    server.behaviour.weights = "other"  # of the same size
    assert not same_weights(digest, engine.digest("tiny", 30.0))
    assert not same_weights(digest, like(server, flavour).digest("tiny", 30.0))


def test_a_server_that_answers_to_any_name_must_have_the_model(server: ModelServer) -> None:
    engine = like(server, "llama")
    with pytest.raises(ModelMissing, match="It has tiny"):
        engine.digest("gemma-3-27b", 30.0)
    server.behaviour.models = ("models/gemma-3-27b",)  # as a path
    assert engine.digest("gemma-3-27b", 30.0)


def test_an_answer_in_another_models_name_is_refused(server: ModelServer) -> None:
    engine = engine_on(server)
    engine.digest("tiny", 30.0)
    engine._peer.fingerprints._names["tiny"] = "a former one"
    with pytest.raises(ModelMissing, match="as tiny, and before as a former one"):
        engine.generate(ask(), quiet)


def test_a_server_that_is_away_or_full_is_no_change_of_weights(server: ModelServer) -> None:
    engine = engine_on(server, busy_timeout=0.1)
    server.behaviour.flavour = "mlx"
    server.behaviour.dead = True
    with pytest.raises(EngineUnreachable):
        engine.digest("tiny", 30.0)
    with pytest.raises(EngineUnreachable):
        open_engine("openai", {"url": "http://127.0.0.1:1/v1"}).digest("tiny", 30.0)  # type: ignore[attr-defined]


def test_a_wrong_url_is_not_a_missing_model(server: ModelServer) -> None:
    for flavour in ("mlx", "lmstudio", "vllm"):
        server.behaviour.flavour = flavour
        with pytest.raises(EngineGarbled, match=r"should end in /v1"):
            open_engine("openai", {"url": server.url}).generate(ask(), quiet)


def test_an_error_in_the_middle_says_what_the_server_said(server: ModelServer) -> None:
    for flavour in ("", "lmstudio"):
        engine = like(server, flavour)
        server.behaviour.fault = "error_midstream"
        with pytest.raises(EngineBrokeOff, match="out of memory"):
            engine.generate(ask(), quiet)


def test_a_dead_generation_thread_is_not_a_missing_model(server: ModelServer) -> None:
    engine = like(server, "mlx")
    server.behaviour.dead = True
    with pytest.raises(EngineUnreachable, match=r"according to /health\)\. Restart mlx_lm\.server"):
        engine.generate(ask(), quiet)
    server.behaviour.dead = False
    assert engine.generate(ask(), quiet).text


def test_a_missing_model_comes_with_those_there_are(server: ModelServer) -> None:
    with pytest.raises(
        EngineError, match=r"does not have the model gemma\. It has tiny\. Download the model there"
    ):
        engine_on(server).generate(replace(ask(), model="gemma"), quiet)


def test_several_engines_of_a_kind_have_models_of_their_own(server: ModelServer) -> None:
    with openai_server(models=("second",)) as other:
        urls = {"spark_a": server.url, "spark_b": other.url}
        ports = {name: {"kind": "openai", "url": f"{url}/v1"} for name, url in urls.items()}
        stages = {
            "analysis": {"engine": "spark_a", "model": "tiny"},
            "feedback": {"engine": "spark_b", "model": "second"},
        }
        one = Machine.model_validate({"name": "one", "engines": ports, "stages": stages})
        engines = open_engines(one)
        assert engines["spark_a"].generate(ask("tiny"), quiet).text
        assert engines["spark_b"].generate(ask("second"), quiet).text
        with pytest.raises(ModelMissing):
            engines["spark_b"].generate(ask("tiny"), quiet)
        assert {model.engine for model in wanted(one)} == {"openai"}
    for place, said in (
        ({"engine": "spark_a"}, "stages.analysis.model: is missing"),
        ({"engine": "spark_c", "model": "m"}, "needs its `kind`"),
    ):
        broken = Machine.model_validate({"name": "one", "engines": ports, "stages": {"analysis": place}})
        with pytest.raises(ConfigError, match=said):
            open_engines(broken)
