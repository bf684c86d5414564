"""The gateway with a real Redis, a real worker and the official client: order, limits, ends, grading."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
from sqlalchemy import func, select

from cli.dev.embedded_redis import RedisProcess, free_port
from grading.broker.dispatch import Outgoing
from grading.broker.gateway_requests import chat_queue
from grading.broker.leases import LEASES
from grading.broker.token_use import USE, TokenUse, by_key
from grading.store import tables
from grading.store.accounts import gateway_use, users
from tests.support.engines import job
from tests.support.servers.base import ModelServer
from tests.support.servers.instances import PROSE, embedding, tokens
from tests.support.servers.openai_server import openai_server
from tests.support.system import Site, site, until

if TYPE_CHECKING:
    import openai

CONFIG = """
[gateway]
enabled = true
max_tokens = 400
per_token = 2
waiting = 1
max_body_kb = 64
[[machines]]
name = "one"
slots = 2
least_slots = 2
[machines.engines.openai]
url = "{url}/v1"
embeddings = "tiny-embedder"
options = {{ schema = "none" }}
[machines.stages]
analysis = {{ engine = "openai", model = "tiny" }}
feedback = {{ engine = "openai", model = "org/tiny:2" }}
[[machines]]
name = "off"
[machines.engines.openai]
url = "{url}/v1"
embeddings = "large-embedder"
[machines.stages]
analysis = {{ engine = "openai", model = "tiny" }}
"""
HELLO: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


class Place:
    """Everything of one course, and the client of one of its tools."""

    def __init__(self, made: Site, server: ModelServer, port: int) -> None:
        self.site = made
        self.server = server
        self.url = f"http://127.0.0.1:{port}/v1"
        self.clients: list[openai.OpenAI] = []
        self.tool = self.client(self.token("chat"))

    def token(self, *scopes: str, user: str = "admin", daily_tokens: int | None = None) -> str:
        with self.site.store.write() as session:
            found = users.find_user(session, "local", user) or users.create_user(session, user)
            made = users.create_token(
                session, found.id, "tool", scopes, timedelta(hours=1), daily_tokens=daily_tokens
            )
            return made.secret

    def store_use(self) -> tuple[int, str, int] | None:
        """As the sweeper does it; requests, model and tokens of the newest token."""
        counts = TokenUse(self.site.dispatch.registry.redis)
        pending = counts.pending()
        with self.site.store.write() as session:
            gateway_use.add_use(session, by_key(pending))
            newest = session.scalar(select(func.max(tables.Token.id)))
            rows = session.scalars(
                select(tables.GatewayUse).where(tables.GatewayUse.token_id == newest)
            ).all()
            found = [(one.requests, one.model, one.prompt_tokens + one.output_tokens) for one in rows]
        counts.settle(pending)
        return found[0] if found else None

    def client(self, token: str) -> openai.OpenAI:
        import openai

        self.clients.append(openai.OpenAI(base_url=self.url, api_key=token, max_retries=0, timeout=60))
        return self.clients[-1]

    def stream(self, model: str = "tiny", **more: Any) -> Any:
        return self.tool.chat.completions.create(model=model, messages=HELLO, stream=True, **more)

    def send_runs(self, *names: str) -> None:
        """Send work of grading."""
        for name in names:
            work = job().model_copy(update={"run_id": f"run-{name}", "round_id": f"round-{name}"})
            content = work.model_dump(mode="json")
            self.site.dispatch.send(
                [Outgoing(work.run_id, work.round_id, "analysis", "interactive", content)]
            )

    def forget_runs(self, *names: str) -> None:
        """Take it away from the machine."""
        registry = self.site.dispatch.registry
        registry.make_current({(f"round-{name}", "analysis"): "others" for name in names})
        registry.redis.delete(*(LEASES + name for name in registry.machines))
        assert self.server.wait_until_idle(30), "what was taken away is cancelled"

    def begun(self) -> tuple[Any, str]:
        """A slow answer whose first words are there."""
        self.server.behaviour.seconds = 40.0
        answer = self.stream()
        return answer, next(answer).choices[0].delta.content


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisProcess) -> Iterator[Place]:
    import redis

    folder, port = tmp_path_factory.mktemp("gateway"), free_port()
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    with (
        openai_server(("tiny", "org/tiny:2", "tiny-embedder")) as server,
        site(folder, CONFIG.format(url=server.url), f"sqlite:///{folder}/g.db", redis_server.url) as made,
    ):
        with made.store.write() as session:
            users.ensure_administrator(session)
        made.parts.start("one", "worker", "one", "--grace", "1")
        made.parts.start("gateway", "gateway", "--port", str(port))
        made.until_alive("one")
        until(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), 60, f"the gateway; see {folder}")
        place = Place(made, server, port)
        yield place
        for one in place.clients:
            one.close()


@pytest.fixture
def place(running: Place) -> Iterator[Place]:
    """The same for every test: quick, and with nothing of the test before."""
    running.server.behaviour.seconds = 0.0
    yield running
    running.server.behaviour.seconds = 0.0
    running.server.behaviour.context = 262_144
    redis = running.site.dispatch.registry.redis
    until(lambda: not redis.keys("grader:gateway:*"), 30, "nothing of a gateway request is left in Redis")


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=60).ok
    except requests.RequestException:
        return False


def test_the_official_client_streams(place: Place) -> None:
    place.server.behaviour.seconds = 1.2
    chunks = list(place.stream("grader/analysis", stream_options={"include_usage": True}))
    pieces = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert "".join(pieces) == PROSE
    assert len(pieces) > 1, "it came all at once"
    assert chunks[-2].choices[0].finish_reason == "stop"
    usage = chunks[-1].usage
    assert usage.completion_tokens > 5
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert {c.model for c in chunks} == {"tiny"}
    assert place.server.stats.last["messages"] == HELLO


def test_whole_answers_end_where_they_are_told_to(place: Place) -> None:
    create = place.tool.chat.completions.create
    whole = create(model="org/tiny:2", messages=HELLO, temperature=0.5, seed=7, top_p=0.9)
    assert whole.choices[0].message.content == PROSE
    sent = place.server.stats.last
    assert (sent["temperature"], sent["seed"], sent["top_p"], sent["max_tokens"]) == (0.5, 7, 0.9, 400)
    short = create(model="tiny", messages=HELLO, max_tokens=2)
    assert short.choices[0].finish_reason == "length"
    assert PROSE.startswith(short.choices[0].message.content or "-")
    # the test's server knows no stop texts: the machine cuts
    more = place.tool.chat.completions.with_raw_response.create(model="tiny", messages=HELLO, max_tokens=4096)
    assert place.server.stats.last["max_tokens"] == 400
    assert more.headers["Grader-Note"] == "max_tokens is 4096, and answers have at most 400 tokens here."
    cut = create(model="tiny", messages=HELLO, stop=["the work"])
    assert cut.choices[0].message.content == PROSE[: PROSE.index("the work")]
    assert cut.choices[0].finish_reason == "stop"


LOOK = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def test_tools_are_called_where_the_server_can(place: Place) -> None:
    import openai

    create: Any = place.tool.chat.completions.create
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [LOOK]}
    (choice,) = create(**asked, tool_choice="required").choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "look_up")
    assert (call.id, call.function.arguments) == ("call_1", '{"city": "Zürich"}')
    sent = place.server.stats.last
    assert (sent["tools"], sent["tool_choice"]) == ([LOOK], "required")
    with place.tool.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0].message
    assert streamed.tool_calls[0].function.arguments == call.function.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": "rainy"}
    answered = create(**{**asked, "messages": [*HELLO, choice.message.model_dump(exclude_none=True), result]})
    assert answered.choices[0].message.content == PROSE
    assert place.server.stats.last["messages"][-1] == result
    assert place.server.stats.last["messages"][-2]["tool_calls"][0]["id"] == call.id
    create(**asked, tool_choice="none")
    assert "tools" not in place.server.stats.last
    place.server.behaviour.refuses = ("tools",)
    with pytest.raises(openai.BadRequestError, match="cannot call these tools") as refused:
        create(**asked)
    place.server.behaviour.refuses = ()
    assert refused.value.code == "tools_not_supported"


def test_the_responses_api_in_its_basic_form(place: Place) -> None:
    place.server.behaviour.seconds = 0.6
    asked: dict[str, Any] = {"model": "grader/analysis", "instructions": "Be brief.", "input": "Hello"}
    events = list(place.tool.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    begin = ["created", "in_progress", "output_item.added", "content_part.added"]
    end = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    kinds = [event.type.removeprefix("response.") for event in events]
    assert (kinds[:4], set(kinds[4:-4]), kinds[-4:]) == (begin, {"output_text.delta"}, end)
    assert "".join(event.delta for event in events[4:-4]) == PROSE == events[-1].response.output_text
    assert place.server.stats.last["messages"] == HELLO
    place.server.behaviour.seconds = 0.0
    with place.tool.responses.stream(**asked) as helped:
        assert helped.get_final_response().usage.output_tokens > 5
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    short = place.tool.responses.create(**{**asked, "input": parts}, max_output_tokens=2, temperature=0)
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (short.model, short.text.format.type, short.max_output_tokens) == ("tiny", "text", 2)
    assert place.server.stats.last["messages"] == HELLO


def test_responses_say_what_they_refuse(place: Place) -> None:
    import openai

    refused = {
        "previous_response_id": {"input": "More", "previous_response_id": "resp_1"},
        "tools": {"input": "Hello", "tools": [{"type": "web_search"}]},
        "text.format": {"input": "Hello", "text": {"format": {"type": "json_schema", "schema": {"not": {}}}}},
        "input": {"input": " "},
        "input.0.type": {"input": [{"type": "function_call_output", "call_id": "1", "output": "2"}]},
    }
    for param, fields in refused.items():
        with pytest.raises(openai.BadRequestError) as error:
            place.tool.post("/responses", body={"model": "tiny", **fields}, cast_to=object)
        assert error.value.param == param


def test_embeddings(place: Place) -> None:
    """As numbers and as the official client asks for them; more texts than one exchange takes, in order."""
    import openai

    place.server.behaviour.capabilities = ("completion", "embedding")
    create: Any = place.tool.embeddings.create
    texts = [f"text {number}" for number in range(40)]
    for more in ({}, {"encoding_format": "float"}, {"extra_body": {"encoding_format": None, "user": "x"}}):
        answer = create(model="tiny-embedder", input=texts, **more)
        assert [one.index for one in answer.data] == list(range(40))
        for one, text in zip(answer.data, texts, strict=True):
            assert one.embedding == pytest.approx(embedding(text), abs=1e-6)
    assert (answer.model, answer.usage.prompt_tokens) == ("tiny-embedder", sum(map(tokens, texts)))
    assert len(place.server.stats.last["input"]) < 40
    assert len(create(model="tiny-embedder", input="Hello").data) == 1
    refused: dict[str, dict[str, Any]] = {
        "input": {"input": [[1, 2]]},
        "input.1": {"input": ["Hello", ""]},
        "dimensions": {"input": "Hello", "dimensions": 4},
        "encoding_format": {"input": "Hello", "encoding_format": "int8"},
    }
    for param, fields in refused.items():
        with pytest.raises(openai.BadRequestError) as error:
            create(model="tiny-embedder", **fields)
        assert error.value.param == param
    place.server.behaviour.context = 10
    with pytest.raises(openai.BadRequestError) as long:
        create(model="tiny-embedder", input="word " * 100)
    assert long.value.code == "job_invalid"
    place.server.behaviour.capabilities = ("completion",)
    with pytest.raises(openai.BadRequestError) as without:
        create(model="tiny-embedder", input="Hello")
    assert without.value.code == "embeddings_not_supported"
    with pytest.raises(openai.NotFoundError, match="makes embeddings"):
        create(model="tiny", input="Hello")
    with pytest.raises(openai.InternalServerError) as off:
        create(model="large-embedder", input="Hello")
    assert (off.value.status_code, off.value.code) == (503, "no_machine")
    with pytest.raises(openai.NotFoundError):
        place.tool.chat.completions.create(model="tiny-embedder", messages=HELLO)


def test_grading_comes_before_embeddings(place: Place) -> None:
    import openai

    place.server.behaviour.capabilities = ("completion", "embedding")
    place.server.behaviour.seconds = 2.0
    asked = place.server.stats.requests
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(place.tool.embeddings.create, model="tiny-embedder", input=["Hello"] * 200)
        until(lambda: place.server.stats.requests == asked + 2, 30, "the first vectors are there")
        place.send_runs("c")
        with pytest.raises(openai.InternalServerError) as broken:
            made.result(60)
    assert broken.value.code == "preempted"
    place.forget_runs("c")


def test_models_are_those_of_live_machines(place: Place) -> None:
    listed = {model.id for model in place.tool.models.list()}
    assert listed == {"tiny", "org/tiny:2", "grader/analysis", "grader/feedback", "tiny-embedder"}
    assert place.tool.models.retrieve("org/tiny:2").id == "org/tiny:2"


@pytest.mark.parametrize(
    ("scopes", "user", "status"),
    [(("read", "submit"), "admin", 403), (("chat",), "anna", 403), ((), "", 401)],
    ids=["another scope", "not of staff", "no token"],
)
def test_who_may_not(place: Place, scopes: tuple[str, ...], user: str, status: int) -> None:
    import openai

    secret = place.token(*scopes, user=user) if scopes else "grd_wrong"
    stranger = place.client(secret)
    with pytest.raises(openai.APIStatusError) as refused:
        stranger.chat.completions.create(model="tiny", messages=HELLO)
    assert refused.value.status_code == status
    assert re.fullmatch(r"[0-9a-f]{32}", refused.value.request_id or "")
    with pytest.raises(openai.APIStatusError):
        stranger.models.list()


REFUSED: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "a tool of the server": ({"tools": [{"type": "web_search"}]}, 400, "invalid_request", "tools.0.type"),
    "several answers": ({"n": 2}, 400, "invalid_request", "n"),
    "too hot": ({"temperature": 3}, 400, "invalid_request", "temperature"),
    "no message": ({"messages": []}, 400, "invalid_request", "messages"),
    "no user": ({"messages": [{"role": "assistant", "content": "I"}]}, 400, "invalid_request", "messages"),
    "half a character": ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "invalid_request", None),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        *(400, "invalid_request", "messages.0.content.0.type"),
    ),
    "another model": ({"model": "another"}, 404, "model_not_found", "model"),
    "too large": ({"messages": [{"role": "user", "content": "x" * 70_000}]}, 413, "http_413", None),
    "unbound": ({"response_format": {"type": "json_object"}}, 400, "schema_not_bound", None),
}


@pytest.mark.parametrize(("change", "status", "code", "param"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_said(
    place: Place, change: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    answer = requests.post(
        f"{place.url}/chat/completions",
        json={"model": "tiny", "messages": HELLO, "user": "unknown fields do no harm", **change},
        headers={"Authorization": f"Bearer {place.tool.api_key}"},
        timeout=60,
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    assert error["message"]
    if param:
        assert error["param"] == param


def test_limits_of_a_token_and_of_the_queue(place: Place) -> None:
    import openai

    first, _ = place.begun()
    waiting = threading.Thread(target=lambda: list(place.stream()), daemon=True)
    waiting.start()
    redis, queue = place.site.dispatch.registry.redis, chat_queue("tiny")
    until(lambda: redis.llen(queue) == 1, 30, "one waits: gateway requests have one slot of two")
    with pytest.raises(openai.RateLimitError) as token:
        place.stream("org/tiny:2")
    assert "2 open requests" in str(token.value)
    with pytest.raises(openai.RateLimitError) as full:
        place.client(place.token("chat")).chat.completions.create(model="tiny", messages=HELLO)
    assert full.value.response.headers["Retry-After"] == "5"
    place.server.behaviour.seconds = 0.0
    first.close()
    waiting.join(60)
    assert not waiting.is_alive(), "who waited had its turn"


def test_the_tokens_of_a_day(place: Place) -> None:
    """Checked before, counted after; what SQL has counts again where Redis knows nothing."""
    import openai

    answers: list[Any] = []
    web = openai.DefaultHttpxClient(event_hooks={"response": [answers.append]})
    tool = place.client(place.token("chat", daily_tokens=1)).with_options(max_retries=2, http_client=web)
    ask: Any = partial(tool.chat.completions.create, model="grader/analysis", messages=HELLO)
    used = ask().usage.total_tokens
    with pytest.raises(openai.RateLimitError, match="its 1 tokens of today") as spent:
        ask()
    assert len(answers) == 2, "it is not tried again"
    assert (spent.value.code, spent.value.type) == ("insufficient_quota", "insufficient_quota")
    headers = spent.value.response.headers
    assert 0 < int(headers["Retry-After"]) <= 86_400
    assert headers["x-should-retry"] == "false"  # for older clients
    assert place.store_use() == (1, "tiny", used)
    place.site.dispatch.registry.redis.delete(*place.site.dispatch.registry.redis.keys(f"{USE}*"))
    with pytest.raises(openai.RateLimitError, match="its 1 tokens of today"):
        ask()
    web.close()


def test_who_leaves_early_pays_what_there_was(place: Place) -> None:
    import openai

    place.server.behaviour.seconds = 40.0
    tool = place.client(place.token("chat", daily_tokens=1))
    with tool.chat.completions.create(model="tiny", messages=HELLO, stream=True) as answer:
        next(answer)
    until(place.store_use, 30, "it is counted")
    redis = place.site.dispatch.registry.redis
    for key in redis.keys(f"{USE}open:*"):
        redis.zadd(key, dict.fromkeys("abcd", 0))  # of a gateway that died
    with pytest.raises(openai.RateLimitError, match="its 1 tokens of today"):
        tool.chat.completions.create(model="tiny", messages=HELLO)


def test_a_client_that_leaves_ends_the_generation(place: Place) -> None:
    before = place.server.stats.disconnects
    answer, _ = place.begun()
    answer.close()
    assert place.server.wait_for("disconnects", before + 1, 30)


def test_a_client_that_leaves_the_queue_leaves_no_message(place: Place) -> None:
    import openai

    first, _ = place.begun()
    redis, queue = place.site.dispatch.registry.redis, chat_queue("org/tiny:2")
    with pytest.raises(openai.APITimeoutError):
        place.tool.with_options(timeout=0.8).chat.completions.create(model="org/tiny:2", messages=HELLO)
    until(lambda: redis.llen(queue) == 0, 30, "its message is taken off the queue")
    first.close()


def test_grading_takes_a_gateway_requests_slot(place: Place) -> None:
    import openai

    answer, heard = place.begun()
    place.send_runs("a", "b")
    with pytest.raises(openai.APIError) as broken:
        for chunk in answer:
            heard += chunk.choices[0].delta.content or ""
    assert broken.value.code == "preempted"
    assert PROSE.startswith(heard)
    registry = place.site.dispatch.registry
    until(lambda: len(registry.held()) == 2, 30, "both runs are under way")
    place.forget_runs("a", "b")


@pytest.mark.soak  # waits for 5 s; test_gateway_requests.py has the same with a machine that is played
def test_a_machine_that_dies_is_said(place: Place) -> None:
    import openai

    answer, _ = place.begun()
    place.site.parts.kill("one")
    with pytest.raises(openai.APIError) as broken:
        list(answer)
    assert broken.value.code == "machine_lost"


def test_nothing_a_gateway_request_wrote_is_logged(running: Place) -> None:
    running.site.parts.kill("gateway")
    logs = [Path(path).read_text() for path in running.site.folder.glob("*.log")]
    assert any("received for model tiny" in log for log in logs)
    assert not any("Be brief" in log or "Traceback" in log for log in logs)
