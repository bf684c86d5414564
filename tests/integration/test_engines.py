"""All engines against one contract; the HTTP engines against every fault; the mlx engine's own promises."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from grading.errors import (
    BudgetExceeded,
    ConfigError,
    EngineStalled,
    JobInvalid,
    ModelMissing,
)
from tests.engines import SCHEMA, SHORT, ask, mlx_lm_server, parsed, quiet
from tests.servers.base import ModelServer
from tests.servers.ollama_server import digest_of, ollama_server
from tests.servers.openai_server import openai_server
from workers.machine.engines import Engine, Request, open_engine


@contextmanager
def slow_engine(kind: str, tiny: Path) -> Iterator[tuple[Engine, Request]]:
    """An engine and a request that takes far longer than its deadline of 0.5 s."""
    late = ask(deadline_s=0.5)
    with ExitStack() as stack:
        if kind == "ollama":
            engine = open_engine("ollama", {"url": stack.enter_context(ollama_server(seconds=60)).url})
        elif kind == "openai":
            url = stack.enter_context(openai_server(seconds=60)).url
            engine = open_engine("openai", {"url": f"{url}/v1"})
        elif kind == "mlx":
            engine = open_engine("mlx", {})
            late = replace(late, model=str(tiny), schema={}, max_output_tokens=3000)
            engine.generate(replace(late, max_output_tokens=1, deadline_s=30), quiet)  # loads the model
        else:
            engine = open_engine("instant", {"seconds": 60})
        stack.callback(engine.close)
        yield engine, late


@pytest.fixture(params=["ollama", "openai", "mlx", "instant"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, str]]:
    """Each engine in turn, with the name of its model."""
    with ExitStack() as stack:
        if request.param == "ollama":
            url = stack.enter_context(ollama_server()).url
            yield open_engine("ollama", {"url": url}), "tiny"
        elif request.param == "openai":
            url = stack.enter_context(openai_server()).url
            yield open_engine("openai", {"url": f"{url}/v1"}), "tiny"
        elif request.param == "mlx":
            yield request.getfixturevalue("mlx"), str(request.getfixturevalue("tiny"))
        else:
            yield open_engine("instant", {}), "any"


# --- the contract -------------------------------------------------------------------------------------


def test_answers_follow_the_schema_and_are_counted(engine: tuple[Engine, str]) -> None:
    counts: list[int] = []
    answer = engine[0].generate(ask(engine[1]), lambda count, _=None: counts.append(count))
    parsed(answer.text)
    assert answer.tokens.prompt > 0
    assert answer.tokens.output > 0
    assert counts[-1] == answer.tokens.output
    assert answer.first_token_s is not None
    assert 0 <= answer.first_token_s <= answer.seconds
    assert not answer.truncated


def test_four_threads_at_once_get_their_own_answers(engine: tuple[Engine, str]) -> None:
    asked = [ask(engine[1], user=f"+ 1| the work of student number {n}") for n in range(4)]
    alone = [engine[0].generate(request, quiet).text for request in asked]
    with ThreadPoolExecutor(4) as pool:
        together = [a.text for a in pool.map(lambda request: engine[0].generate(request, quiet), asked)]
    for text in together:
        parsed(text)
    assert together == alone


@pytest.mark.parametrize("kind", ["ollama", "openai", "mlx", "instant"])
def test_a_deadline_is_kept(kind: str, tiny: Path) -> None:
    with slow_engine(kind, tiny) as (engine, late):
        begun = time.monotonic()
        with pytest.raises(BudgetExceeded):
            engine.generate(late, quiet)
        assert time.monotonic() - begun < 5


def test_unknown_engines_and_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"engines\.gpt: there is no such engine; use one of instant, mlx"):
        open_engine("gpt", {})
    with pytest.raises(ConfigError, match=r"engines\.ollama\.urll"):
        open_engine("ollama", {"urll": "http://127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"engines\.ollama\.url: is missing"):
        open_engine("ollama", {})
    with pytest.raises(ConfigError, match="GRADER_ABSENT_KEY"):
        open_engine("openai", {"url": "http://127.0.0.1:1/v1", "api_key_env": "GRADER_ABSENT_KEY"})


# --- over HTTP; faults are in test_model_faults.py -------------------------------------------------------


@pytest.fixture(params=["ollama", "openai"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[ModelServer, Callable[..., Engine]]]:
    """A protocol server, and what opens an engine on it."""
    make = ollama_server if request.param == "ollama" else openai_server
    with make() as server:
        url = server.url if request.param == "ollama" else f"{server.url}/v1"

        def opened(**settings: Any) -> Engine:
            return open_engine(request.param, {"url": url, **SHORT, **settings})

        yield server, opened


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_the_deadline_ends_the_connection_itself(
    served: tuple[ModelServer, Callable[..., Engine]], fault: str
) -> None:
    server, opened = served
    server.behaviour.fault = fault
    begun = time.monotonic()
    with pytest.raises(BudgetExceeded):
        opened(chunk_timeout=30, load_timeout=30).generate(ask(deadline_s=0.5), quiet)
    assert time.monotonic() - begun < 5
    assert server.wait_for("disconnects", 1)


def test_an_answer_cut_by_the_token_limit_is_marked(
    served: tuple[ModelServer, Callable[..., Engine]],
) -> None:
    server, opened = served
    assert opened().generate(ask(max_output_tokens=5), quiet).truncated
    server.behaviour.fault = "length"
    assert opened().generate(ask(), quiet).truncated


def test_prose_is_handed_on_for_the_stage_to_judge(served: tuple[ModelServer, Callable[..., Engine]]) -> None:
    server, opened = served
    server.behaviour.fault = "prose"
    assert opened().generate(ask(), quiet).text.startswith("Here is what I think")


def test_a_second_try_shows_the_first_answer(served: tuple[ModelServer, Callable[..., Engine]]) -> None:
    server, opened = served
    opened().generate(ask(previous="{}", repair="judgements is missing"), quiet)
    chat = server.stats.last["messages"]
    assert [m["role"] for m in chat] == ["system", "user", "assistant", "user"]
    assert chat[2]["content"] == "{}"
    assert chat[3]["content"] == "judgements is missing"


def test_a_slow_model_load_is_not_a_stall() -> None:
    with ollama_server(fault="hang") as server:
        engine = open_engine("ollama", {"url": server.url, "chunk_timeout": 0.1, "load_timeout": 0.8})
        begun = time.monotonic()
        with pytest.raises(EngineStalled):
            engine.generate(ask(), quiet)
        assert 0.7 < time.monotonic() - begun < 6


# --- what each protocol carries -----------------------------------------------------------------------


def test_ollama_is_told_its_limits_and_tells_its_digest() -> None:
    with ollama_server() as server:
        engine = open_engine("ollama", {"url": server.url})
        answer = engine.generate(ask(user="x" * 30_000), quiet)
        sent = server.stats.last
    assert sent["format"] == SCHEMA
    assert sent["keep_alive"] == -1
    assert sent["options"] == {"num_predict": 400, "temperature": 0.0, "num_ctx": 12_288}
    assert answer.digest == digest_of("tiny")


def test_a_prompt_that_ollama_would_cut_is_refused() -> None:
    with ollama_server() as server:
        engine = open_engine("ollama", {"url": server.url, "num_ctx": 2048})
        with pytest.raises(JobInvalid, match="2048"):
            engine.generate(ask(user="x" * 30_000), quiet)


def test_openai_sends_the_schema_and_the_key_but_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_TEST_KEY", "not-a-secret")
    with openai_server() as server:
        settings = {"url": f"{server.url}/v1", "api_key_env": "GRADER_TEST_KEY"}
        answer = open_engine("openai", settings).generate(ask(), quiet)
        sent = server.stats.last
        open_engine("openai", {**settings, "schema": "none"}).generate(ask(), quiet)
        bare = server.stats.last
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "seed" not in sent
    assert "response_format" not in bare
    assert answer.tokens.cached > 0


def test_the_official_client_talks_to_the_test_server() -> None:
    import ollama

    command = [sys.executable, "-m", "tests.servers.ollama_server", "--models", "tiny", "--seconds", "0.1"]
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
            stats = requests.get(f"{url}/stats", timeout=5).json()
        finally:
            process.terminate()
    parsed(whole.message.content or "")
    assert "".join(p.message.content or "" for p in parts) == whole.message.content
    assert parts[-1].done_reason == "stop"
    assert (plain.done_reason, plain.eval_count) == ("length", 3)
    assert stats["requests"] == stats["finished"] == 3


# --- mlx_lm.server ------------------------------------------------------------------------------------


def test_openai_engine_drives_a_real_mlx_lm_server(tiny: Path) -> None:
    with mlx_lm_server(tiny) as url:
        engine = open_engine("openai", {"url": f"{url}/v1", "schema": "none"})
        first = engine.generate(ask(str(tiny), max_output_tokens=12), quiet)
        second = engine.generate(ask(str(tiny), max_output_tokens=12, user="+ 1| more"), quiet)
        with pytest.raises(BudgetExceeded):
            engine.generate(ask(str(tiny), max_output_tokens=3000, deadline_s=0.3), quiet)
        with pytest.raises(ModelMissing):
            engine.generate(ask("nobody/nothing"), quiet)
    assert first.tokens.output == second.tokens.output == 12
    assert first.truncated
    assert first.tokens.cached < second.tokens.cached <= second.tokens.prompt
