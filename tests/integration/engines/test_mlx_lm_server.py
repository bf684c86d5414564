"""The engine for `/v1/chat/completions` against a real mlx_lm.server, and its known faults."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from grading.domain.errors import Cancelled, EngineUnreachable, ModelMissing
from tests.support.engines import Heard, ask, mlx_lm_server, quiet
from workers.machine.engines import Engine, Request, open_engine
from workers.machine.engines.base import Cancel
from workers.machine.engines.openai.engine import OpenAIEngine


@pytest.fixture(scope="module")
def running() -> Iterator[ExitStack]:
    """What is open while a server runs; closing it ends the server."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def url(tiny: Path, running: ExitStack) -> str:
    """A server that writes one answer at a time, so that one who was left can be seen to have ended."""
    one_at_a_time = ("--decode-concurrency", "1", "--prompt-concurrency", "1")
    return running.enter_context(mlx_lm_server(tiny, *one_at_a_time))


@pytest.fixture
def engine(url: str) -> Engine:
    return open_engine("openai", {"url": f"{url}/v1"})


@pytest.fixture
def short(tiny: Path) -> Request:
    return ask(str(tiny), max_output_tokens=12)


def test_counts_and_cached_tokens(engine: Engine, short: Request) -> None:
    first = engine.generate(replace(short, system=f"Another rubric. {short.system}"), quiet)
    second = engine.generate(
        replace(short, system=f"Another rubric. {short.system}", user="+ 1| more"), quiet
    )
    assert first.tokens.output == second.tokens.output == 12
    assert first.truncated
    assert first.tokens.cached < second.tokens.cached <= second.tokens.prompt
    assert isinstance(engine, OpenAIEngine)
    assert engine.counters()["cached_tokens"] >= second.tokens.cached
    assert engine.digest(short.model, 30.0).startswith("behaviour:p")
    assert engine.token_counter(short.model, 5.0, quiet) is None


def test_an_ignored_schema_is_found_out(engine: Engine, short: Request) -> None:
    assert engine.generate(short, quiet).sampling["format"] == "none: the server ignores json_schema"


def test_four_at_once(engine: Engine, short: Request) -> None:
    asked = [replace(short, user=f"+ 1| the work of student {n}") for n in range(4)]
    alone = [engine.generate(one, quiet).text for one in asked]
    with ThreadPoolExecutor(4) as pool:
        assert [a.text for a in pool.map(lambda one: engine.generate(one, quiet), asked)] == alone


def test_a_cancel_makes_room_for_the_next(engine: Engine, short: Request) -> None:
    long = replace(short, max_output_tokens=2_500)
    whole = engine.generate(long, quiet)
    assert whole.tokens.output > 500

    def next_one() -> float:
        cancel = Cancel()
        with pytest.raises(Cancelled):
            engine.generate(replace(long, cancel=cancel), Heard(cancel.cancel))
        return engine.generate(short, quiet).seconds

    # the server looks for what comes next after half a second; had it gone on, each would wait for more
    assert any(next_one() < whole.seconds for _ in range(4))


def test_an_unknown_model_is_missing(engine: Engine, short: Request) -> None:
    with pytest.raises(ModelMissing, match="hf download nobody/nothing"):
        engine.generate(replace(short, model="nobody/nothing"), quiet)
    assert engine.generate(short, quiet).text


def test_a_dead_generation_thread_is_said_and_survived(
    running: ExitStack, url: str, tiny: Path, engine: Engine, short: Request
) -> None:
    """The last test here: it ends the server that all share."""
    assert engine.generate(short, quiet).text
    with suppress(requests.ConnectionError):  # an empty prompt ends the thread: no answer comes
        requests.post(f"{url}/v1/completions", json={"prompt": "", "max_tokens": 4}, timeout=60)
    assert requests.get(f"{url}/health", timeout=60).status_code == 503
    with pytest.raises(EngineUnreachable, match=r"Restart mlx_lm\.server"):
        engine.generate(short, quiet)
    running.close()
    with mlx_lm_server(tiny, port=urlsplit(url).port or 0):
        assert engine.generate(short, quiet).tokens.output == 12
