"""What the engine for Ollama does beside the contract: contexts, digests, thoughts, a full queue, times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from grading.domain.errors import Cancelled, EngineBusy, JobInvalid, OutputEndless, OutputInvalid
from tests.support.engines import PATIENT, SCHEMA, Heard, ask, parsed, quiet
from tests.support.servers.base import ModelServer
from tests.support.servers.ollama_server import digest_of, ollama_server
from workers.machine.engines import open_engine
from workers.machine.engines.base import Cancel, ToolsRefused
from workers.machine.engines.ollama.engine import OllamaEngine


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ollama_server() as one:
        yield one


def engine_on(server: ModelServer, **settings: object) -> OllamaEngine:
    engine = open_engine("ollama", {"url": server.url, **settings})
    assert isinstance(engine, OllamaEngine)
    return engine


CHAT_WITH_TOOLS: Any = (
    {"role": "user", "content": "How is the weather?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Bern"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "rainy"},
)
LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def test_tools_in_words_of_ollama(server: ModelServer) -> None:
    engine = OllamaEngine(server.url)
    asked = ask(schema={}, chat=CHAT_WITH_TOOLS[:1], tools=(LOOK,))
    with pytest.raises(ToolsRefused):
        engine.generate(asked, quiet)
    engine.close()
    server.behaviour.capabilities = ("completion", "tools")
    engine = OllamaEngine(server.url)
    (call,) = engine.generate(asked, quiet).tool_calls
    assert (call.name, call.arguments) == ("look_up", '{"city": "Zürich"}')
    assert engine.generate(replace(asked, chat=CHAT_WITH_TOOLS), quiet).text
    _, called, result = server.stats.last["messages"]
    assert called["tool_calls"] == [{"function": {"name": "look_up", "arguments": {"city": "Bern"}}}]
    assert result == {"role": "tool", "content": "rainy", "tool_name": "look_up"}
    with pytest.raises(ToolsRefused):
        engine.generate(replace(asked, tool_choice="required"), quiet)
    engine.close()


def test_a_model_that_repeats_one_token_is_at_fault_not_its_server(server: ModelServer) -> None:
    server.behaviour.repeats = True
    with pytest.raises(OutputEndless, match="same token"):
        engine_on(server).generate(ask(), quiet)


def test_it_is_told_its_limits_and_tells_its_digest_and_times(server: ModelServer) -> None:
    answer = engine_on(server).generate(ask(user="x" * 30_000), quiet)
    sent = server.stats.last
    assert sent["format"] == SCHEMA
    assert sent["keep_alive"] == -1
    assert sent["options"] == {
        "num_predict": 400,
        "temperature": 0.0,
        "num_ctx": 12_288,
        "num_keep": -1,
    }
    assert "think" not in sent
    assert answer.digest == f"sha256:{digest_of('tiny')}"
    assert answer.sampling == {**sent["options"], "format": "json_schema"}
    timings = answer.timings
    assert timings.load_s == 0.041
    assert timings.prompt_s is not None
    assert timings.output_s == pytest.approx(2 * timings.prompt_s, rel=0.01)
    assert timings.queued_s is not None
    assert timings.queued_s >= 0


def test_top_p_and_seed_are_sent_only_where_they_are_given(server: ModelServer) -> None:
    answer = engine_on(server).generate(ask(top_p=0.9, seed=7), quiet)
    assert server.stats.last["options"].items() >= {"top_p": 0.9, "seed": 7}.items()
    assert answer.sampling.items() >= {"top_p": 0.9, "seed": 7}.items()


def test_its_slots_show_in_who_waits_of_as_many_short_requests(server: ModelServer) -> None:
    engine = engine_on(server, keep_alive=300)
    server.behaviour.waits = (0, 0, 1)
    assert engine.capacity("tiny", 3, 5.0).slots is None, "so short that sending takes as long"
    server.behaviour.seconds = 0.1
    told = engine.capacity("tiny", 3, 5.0)
    assert (told.slots, told.context_tokens, told.slots_setting) == (2, 65_536, "OLLAMA_NUM_PARALLEL")
    sent = server.stats.last
    # as it is loaded, or it would be loaded again
    assert (sent["options"]["num_ctx"], sent["options"]["num_predict"], sent["keep_alive"]) == (4096, 16, 300)
    server.behaviour.waits = (0,)
    assert engine.capacity("tiny", 3, 5.0).slots == 3
    server.behaviour.fault = "503"
    assert engine.capacity("tiny", 3, 5.0).slots is None
    server.behaviour.fault, server.behaviour.context = "", 8192
    before = server.stats.requests
    assert engine_on(server, num_ctx=2048).capacity("tiny", 1, 5.0).context_tokens == 2048
    server.behaviour.loaded = False
    assert engine_on(server).capacity("tiny", 3, 5.0).context_tokens == 8192
    assert server.stats.requests == before, "one at a time shows nothing, and nothing is loaded for it"


# --- the context ---------------------------------------------------------------------------------------


def test_a_prompt_that_would_be_cut_is_refused_where_the_context_is_fixed(server: ModelServer) -> None:
    with pytest.raises(JobInvalid, match="2048"):
        engine_on(server, num_ctx=2048).generate(ask(user="x" * 30_000), quiet)


def test_a_repair_try_without_its_submission_is_no_answer(server: ModelServer) -> None:
    """What does not fit Ollama leaves out by whole messages, oldest first, and counts the rest only."""
    engine = engine_on(server, num_ctx=4096)
    first = ask(user="x" * 12_000)
    engine.generate(first, quiet)
    again = replace(first, previous="y" * 3_000, repair="Answer once more.")
    with pytest.raises(OutputInvalid, match="4096"):
        engine.generate(again, quiet)
    assert engine_on(server, num_ctx=8192).generate(again, quiet).text  # there is room for all of it


@pytest.mark.parametrize("refuses_long", [False, True])
def test_a_cut_prompt_is_read_again_with_a_longer_context(server: ModelServer, refuses_long: bool) -> None:
    """Also one that is refused, as Ollama does with models whose template it leaves to llama.cpp."""
    server.behaviour.refuses_long = refuses_long
    server.behaviour.chars_a_token = 1.5  # twice as many tokens as the careful estimate
    engine = engine_on(server)
    answer = engine.generate(ask(user="x" * 30_000), quiet)
    assert answer.tokens.prompt >= 20_000  # all of it was read
    assert server.stats.last["options"]["num_ctx"] > answer.tokens.prompt + answer.tokens.output
    tries = server.stats.requests
    assert tries == 2
    engine.generate(ask(user="y" * 30_000), quiet)  # it has learned
    assert server.stats.requests == tries + 1


@pytest.mark.parametrize("refuses_long", [False, True])
def test_the_context_stops_at_what_the_model_was_made_for(server: ModelServer, refuses_long: bool) -> None:
    server.behaviour.context, server.behaviour.refuses_long = 8_192, refuses_long
    engine = engine_on(server)
    with pytest.raises(JobInvalid, match="8192"):
        engine.generate(ask(user="x" * 60_000), quiet)
    assert server.stats.last["options"]["num_ctx"] == 8_192


def test_the_context_follows_the_servers_own_count(server: ModelServer) -> None:
    """Its tokens are longer than a careful estimate has them, so the next context is shorter."""
    server.behaviour.models = ("tiny", "other")
    server.behaviour.chars_a_token = 4.5
    engine = engine_on(server)
    long = ask(user="x" * 36_000)
    engine.generate(replace(long, user="x" * 3_000), quiet)
    engine.generate(long, quiet)
    learned = server.stats.last["options"]["num_ctx"]
    engine.generate(replace(long, model="other"), quiet)
    assert learned < server.stats.last["options"]["num_ctx"]
    assert learned >= 36_000 / 4.5 + 400


# --- models ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "think"), [("qwen3:8b", False), ("gpt-oss:20b", "low")])
def test_models_that_think_are_told_not_to(server: ModelServer, model: str, think: object) -> None:
    server.behaviour.models = (model,)
    server.behaviour.capabilities = ("completion", "thinking")
    answer = engine_on(server).generate(ask(model), quiet)
    assert server.stats.last["think"] == think
    assert answer.sampling["think"] == think


def test_a_model_that_was_pulled_anew_has_another_digest(server: ModelServer) -> None:
    engine = engine_on(server)
    assert engine.digest("tiny", 5.0) == f"sha256:{digest_of('tiny')}"
    for weights, loaded in (("new", True), ("newer", False)):
        server.behaviour.weights, server.behaviour.loaded = weights, loaded
        digest = f"sha256:{digest_of('tiny', weights)}"
        assert engine.generate(ask(), quiet).digest == digest
        assert engine.digest("tiny", 5.0) == digest
    assert engine.digest("another", 5.0) == ""


def test_tokens_are_counted_by_the_server_and_progress_by_pieces(server: ModelServer) -> None:
    server.behaviour.tokens_a_piece = 16
    heard = Heard()
    answer = engine_on(server).generate(ask(), heard)
    assert answer.tokens.output == 16 * heard.tokens[-1] > 0


# --- a full queue -----------------------------------------------------------------------------------------


def test_a_full_queue_is_asked_again(server: ModelServer) -> None:
    server.behaviour.fault, server.behaviour.times = "503", 2
    heard = Heard()
    answer = engine_on(server).generate(ask(), heard)
    parsed(answer.text)
    assert server.stats.requests == 3
    assert heard.phases.count("queued") == 2
    assert heard.phases[-1] == "generating"
    assert answer.timings.queued_s is not None
    assert answer.timings.queued_s > 0.5  # two waits of at least a quarter and half a second


def test_a_queue_that_stays_full_is_left_within_a_share_of_the_budget(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.machine.engines.http.exchange.SHARE", 0.02)
    server.behaviour.fault = "503"
    with pytest.raises(EngineBusy, match=r"server busy.*retried for"):
        engine_on(server).generate(ask(deadline_s=60.0), quiet)
    assert 2 <= server.stats.requests <= 8
    assert server.stats.active == 0


def test_a_cancel_ends_the_wait_for_room(server: ModelServer) -> None:
    server.behaviour.fault = "503"
    cancel, waiting = Cancel(), threading.Event()

    def hear(_tokens: int, phase: str = "generating", _draft: str = "", /) -> None:
        if phase == "queued":
            waiting.set()

    def say() -> None:
        waiting.wait(60)
        cancel.cancel()

    thread = threading.Thread(target=say)
    thread.start()
    with pytest.raises(Cancelled):
        engine_on(server).generate(ask(cancel=cancel, deadline_s=600), hear)
    thread.join()
    assert server.stats.requests == 1


# --- others ------------------------------------------------------------------------------------------------


def test_a_missing_model_comes_with_the_command_that_mends_it(server: ModelServer) -> None:
    with pytest.raises(
        Exception, match=r"does not have the model gemma3:27b\. Run on that machine: ollama pull gemma3:27b$"
    ):
        engine_on(server, **PATIENT).generate(ask("gemma3:27b"), quiet)


def test_the_official_client_talks_to_the_test_server() -> None:
    import ollama

    command = [
        sys.executable,
        "-m",
        "tests.support.servers.ollama_server",
        "--models",
        "tiny",
        "--seconds",
        "0.1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
            with ollama.Client(host=url) as client:
                assert [m.model for m in client.list().models] == ["tiny"]
                assert client.show("tiny").capabilities == ["completion"]
                assert client.ps().models[0].model == "tiny"
                chat = [{"role": "user", "content": "+ 1| heights <- data$height"}]
                whole = client.chat("tiny", chat, format=SCHEMA)
                parts = list(client.chat("tiny", chat, format=SCHEMA, stream=True))
                plain = client.generate("tiny", "hello", options={"num_predict": 3})
            stats = requests.get(f"{url}/stats", timeout=60).json()
        finally:
            process.terminate()
    parsed(whole.message.content or "")
    assert "".join(p.message.content or "" for p in parts) == whole.message.content
    assert parts[-1].done_reason == "stop"
    assert (plain.done_reason, plain.eval_count) == ("length", 3)
    assert stats["requests"] == stats["finished"] == 3
