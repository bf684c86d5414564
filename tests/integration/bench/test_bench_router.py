"""The real part of the emulated cluster: its servers, the product in compressed time, other ways to send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import requests

from bench.router import results, trial
from bench.router.competitors import COMPETITORS
from bench.router.cost_model import CLUSTER_MODELS, GEMMA, QWEN
from bench.router.processes import EmulatedServers, Processes, start_servers
from bench.router.protocols import mark, marked, padded
from bench.router.results import Plan
from bench.router.scenarios import Scenario, lost
from bench.router.simulation import Arrival, Setting
from tests.support.system import until

SPARK, MAC = "dgx-spark-1", "mac-studio-1"
SCHEMA = {
    "type": "object",
    "properties": {"words": {"type": "string"}, "level": {"type": "integer", "minimum": 0, "maximum": 4}},
    "required": ["words", "level"],
}
JOB = mark(7, {"analysis": 120, "feedback": 20})
CHAT = [{"role": "system", "content": "rubric"}, {"role": "user", "content": f"# {JOB}\nx <- 1"}]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedServers]:
    with Processes(tmp_path_factory.mktemp("servers")) as parts:
        yield start_servers(parts, factor=20, slots=1, queue=1)


def ask(servers: EmulatedServers, machine: str, **more: object) -> requests.Response:
    wish = {"model": GEMMA.name, "messages": CHAT, **more}
    return requests.post(f"{servers.urls[machine]}/v1/chat/completions", json=wish, stream=True, timeout=30)


def test_a_mark_says_how_long_answers_are() -> None:
    assert marked(f"# {JOB}, indeed", "analysis") == 120
    assert marked(JOB, "feedback") == 20
    assert marked("job-7 of nothing", "feedback") is None


def test_padding_keeps_json_and_has_a_character_a_token() -> None:
    value = {"a": [{"b": 1}, {"b": 2}], "c": "Words, and more."}
    for length in (10, 200, 1500):
        text = padded(json.dumps(value), length)
        assert json.loads(text) == value
        assert len(text) == max(length, len(json.dumps(value)))


def test_ollamas_own_client_reads_a_stream_with_its_counts(servers: EmulatedServers) -> None:
    import ollama

    with closing(ollama.Client(servers.urls[SPARK])) as client:
        parts = list(client.chat(QWEN.name, CHAT, stream=True, format=SCHEMA))
    last = parts[-1]
    assert json.loads("".join(part.message.content or "" for part in parts))["level"] == 2
    assert (last.done, last.done_reason, last.prompt_eval_count, last.eval_count) == (True, "stop", 5000, 120)
    # alone on a Spark: about 80 tokens a second, at twenty times its speed
    assert last.eval_duration is not None
    assert 0.03 < last.eval_duration / 1e9 < 0.2


def test_ollama_tells_of_its_models_and_cuts_at_the_limit(servers: EmulatedServers) -> None:
    import ollama

    with closing(ollama.Client(servers.urls[SPARK])) as client:
        assert [one.model for one in client.list().models] == [QWEN.name, GEMMA.name]
        assert QWEN.name in [one.model for one in client.ps().models]
        assert client.show(QWEN.name).capabilities == ["completion"]
        said = client.chat(QWEN.name, CHAT, options={"num_predict": 5})
        assert (said.done_reason, said.eval_count) == ("length", 5)
        with pytest.raises(ollama.ResponseError, match="not found"):
            client.chat("another", CHAT)


def test_openai_answers_at_once_or_in_events(servers: EmulatedServers) -> None:
    with ask(servers, MAC) as answer:
        whole = answer.json()
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] == 20
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    options = {"stream": True, "stream_options": {"include_usage": True}, "response_format": wanted}
    with ask(servers, MAC, **options) as answer:
        events = [line[6:] for line in answer.iter_lines() if line]
    assert events.pop() == b"[DONE]"
    *pieces, counts = map(json.loads, events)
    text = "".join(piece["choices"][0]["delta"]["content"] for piece in pieces)
    assert json.loads(text)["level"] == 2
    assert counts["usage"]["completion_tokens"] == 20
    assert counts["usage"]["prompt_tokens_details"]["cached_tokens"] == 4000  # the rubric was read before
    listed = requests.get(f"{servers.urls[MAC]}/v1/models", timeout=30).json()["data"]
    assert [one["id"] for one in listed] == [QWEN.name, GEMMA.name]
    assert requests.get(f"{servers.urls[MAC]}/health", timeout=30).ok
    assert requests.get(f"{servers.urls[MAC]}/other", timeout=30).status_code == 404


def test_a_full_queue_says_503_and_who_leaves_makes_room(servers: EmulatedServers) -> None:
    busy = "mac-studio-2"
    long = [{"role": "user", "content": mark(1, {"feedback": 100_000})}]
    statuses: list[int] = []

    def wait_in_line() -> None:
        with ask(servers, busy, max_tokens=1) as answer:
            statuses.append(answer.status_code)

    with ask(servers, busy, messages=long, stream=True):  # its first token came: it has the slot
        second = threading.Thread(target=wait_in_line)
        second.start()
        until(lambda: servers.waiting(busy) == 1, 30, "the second one waits")
        with ask(servers, busy) as third:
            assert (third.status_code, third.json()["error"]["code"]) == (503, 503)
        assert statuses == []
    second.join(30)
    assert statuses == [200]


def test_a_machine_that_loses_power_breaks_off_and_comes_back(servers: EmulatedServers) -> None:
    long = [{"role": "user", "content": mark(1, {"analysis": 100_000})}]
    with ask(servers, "dgx-spark-2", model=QWEN.name, messages=long, stream=True) as stream:
        servers.change("dgx-spark-2", 0)
        with pytest.raises(requests.RequestException):
            list(stream.iter_content())
    with pytest.raises(requests.ConnectionError):
        ask(servers, "dgx-spark-2")
    servers.change("dgx-spark-2", 1)
    with ask(servers, "dgx-spark-2", max_tokens=1) as answer:
        assert answer.ok
    assert servers.ended()["dgx-spark-2"]["lost"] == 1


def tiny(count: int = 4, cluster_model: str = "own", factor: float = 20.0) -> Plan:
    """So many small submissions at once, two at a time on each machine, at so many times the speed."""
    arrivals = tuple(Arrival(0.0, {"analysis": 60 + n, "feedback": 20 + n}) for n in range(count))
    return Plan(
        Scenario("tiny", arrivals, Setting(slots=2, cluster_model=CLUSTER_MODELS[cluster_model])), factor
    )


@pytest.mark.soak
def test_the_product_grades_against_the_servers_of_another_world() -> None:
    said: list[str] = []
    plan = tiny(cluster_model="long")
    outcome = trial.run_product(plan, said.append)
    assert "workstation" in outcome.done
    assert (len(outcome.ended), outcome.failed, said) == (4, 0, [])
    # at this speed who is late by half a second is given up, and what it has in hand is done again
    assert sum(ends["done"] for ends in outcome.done.values() if ends) >= 8
    assert 0 < outcome.makespan < 20 * outcome.wall_s + 20
    rows = results.ScenarioResult(plan, [outcome]).rows()
    assert rows[0]["× bound"] > 1


@pytest.mark.soak
def test_a_lost_machine_of_the_product_works_again() -> None:
    plan = Plan(lost(2, 1, 16), 20.0)
    row = results.ScenarioResult(plan, [trial.run_product(plan, print)]).rows()[0]
    assert row["failed"] == 0


@pytest.mark.parametrize(("way", "homes"), [("roles", True), ("shortest", False)])
def test_a_client_sends_every_request_once(way: str, homes: bool) -> None:
    outcome = trial.run_competitor(COMPETITORS[way], tiny(factor=80.0), lambda line: None)
    assert (len(outcome.ended), outcome.failed) == (4, 0)
    done = {name: ends.get("done", 0) for name, ends in outcome.done.items()}
    sparks = done["dgx-spark-1"] + done["dgx-spark-2"]
    assert sum(done.values()) == 8
    assert sparks == 4 or not homes
