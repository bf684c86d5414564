"""Requests on a machine and their talk with the gateway, on a real Redis, with an engine over HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import NoPermissionError

from app.gateway import chat_request
from app.gateway_requests import errors
from app.gateway_requests.errors import Refused
from app.gateway_requests.response_events import ClientGone, Conversation
from app.gateway_requests.slots import GatewayServices
from grading.broker import redis_acl
from grading.broker.connections import connect
from grading.broker.gateway_requests import (
    DRAFTING,
    ENDING,
    PREEMPTED,
    Ask,
    Event,
    Said,
    Talks,
    alias,
    chat_queue,
)
from grading.broker.heartbeats import Heartbeat
from grading.broker.leases import Leases
from grading.config.machines import Placement
from grading.config.settings import Config, Machine, parse
from grading.domain.jobs import Tokens
from grading.scheduling.circuit_breaker import Rules
from grading.scheduling.cluster_view import Peer, SpeedProfile, View
from tests.support.engines import PATIENT
from tests.support.redis_servers import acl_file, password, redis_server
from tests.support.servers.base import ModelServer
from tests.support.servers.openai_server import openai_server
from tests.support.system import until
from workers.machine.circuits import CircuitBreakers
from workers.machine.engines.base import Cancel, Embeddings, Engine, Generation, Request
from workers.machine.engines.openai.engine import OpenAIEngine
from workers.machine.gateway_requests.request import MOST_UNREAD, UNBOUND, GatewayRequest
from workers.machine.gateway_requests.serving import (
    GatewayRequests,
    crowded,
    most_gateway_requests,
    open_gateway_requests,
    taken_up,
)
from workers.machine.scheduling.queue_selection import in_use
from workers.machine.scheduling.shared_exclusive_lock import Gate
from workers.machine.start import open_machine

LONG_S = 60.0
"""For tests in which nobody dies: a busy computer must not look like a gateway that is gone."""
CHAT = (Said(role="user", content="Hello"),)


def wish(**more: Any) -> Ask:
    return Ask(**{"model": "tiny", "messages": CHAT, "max_tokens": 300, **more})


def configuration(**machine: Any) -> Config:
    engine = {"engine": "openai", "model": "tiny"}
    stages = {"stages": {"analysis": engine, "feedback": engine}}
    return parse(
        {
            "machines": [
                {"name": "one", "slots": 8, "engines": {"openai": {"url": "http://x"}}, **stages, **machine}
            ]
        }
    )


@dataclass
class Host:
    """A machine's gateway requests, with what the gateway would hear of them."""

    gateway_requests: GatewayRequests
    talks: Talks
    gate: Gate
    back: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, name: str, ask: Ask | None = None) -> threading.Thread:
        self.talks.ask(name, ask or wish(), 60)
        thread = threading.Thread(target=self.serve, args=(name,), daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def serve(self, name: str) -> None:
        self.gateway_requests.serve(name, lambda: self.back.append(name))

    def hear(self, name: str) -> list[Event]:
        """All up to the end, as a reader that is there."""
        heard: list[Event] = []
        while not heard or heard[-1].kind not in ("end", "failed"):
            self.talks.waits(name)
            event = self.talks.hear(name, 0.2)
            heard += [event] if event else []
        return heard


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with openai_server() as made:
        yield made


@contextmanager
def hosting(
    redis_url: str, engine: Engine, machine: Machine | None = None, sign_s: float = LONG_S, **more: Any
) -> Iterator[Host]:
    redis, stop, gate = connect(redis_url), threading.Event(), Gate()
    talks = Talks(redis, sign_s)
    gateway_requests = GatewayRequests(
        machine or configuration().machines[0], {"openai": engine}, talks, gate, **more
    )
    keeper = threading.Thread(target=gateway_requests.until_stopped, args=(stop,), daemon=True)
    keeper.start()
    host = Host(gateway_requests, talks, gate)
    try:
        yield host
    finally:
        stop.set()
        gateway_requests.close()
        keeper.join(30)
        engine.close()
        for thread in host.threads:
            thread.join(60)  # they say good-bye to Redis
        redis.close()


@pytest.fixture
def host(redis_url: str, server: ModelServer) -> Iterator[Host]:
    with hosting(redis_url, OpenAIEngine(f"{server.url}/v1", **PATIENT)) as made:
        yield made


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events)


def test_a_gateway_that_dies_stops_the_machine(host: Host, server: ModelServer) -> None:
    server.behaviour.seconds = 60.0
    thread = host.begin("g")
    assert server.wait_for("requests", 1, 30)
    reader = "grader:gateway:g:reader"
    assert 0 < host.talks.redis.pttl(reader) <= LONG_S * 1000  # type: ignore[operator]
    host.talks.redis.pexpire(reader, 1)  # nobody says any more that somebody waits
    assert server.wait_for("disconnects", 1, 30)
    thread.join(30)
    until(lambda: not host.talks.redis.keys("grader:gateway:g:held"), 30, "it is let go")
    assert host.gateway_requests.in_hand == 0


def test_a_gateway_request_nobody_waits_for_is_not_begun(host: Host, server: ModelServer) -> None:
    host.talks.ask("g", wish(), 60)
    host.talks.withdraw("g", "tiny")
    host.serve("g")
    assert server.stats.requests == 0


def test_a_message_that_comes_twice_is_answered_once(host: Host, server: ModelServer) -> None:
    server.behaviour.seconds = 60.0
    thread = host.begin("g")
    assert server.wait_for("written", 1, 30)
    host.serve("g")
    host.gateway_requests.make_room(1)
    events = host.hear("g")
    thread.join(30)
    assert (events[-1].code, server.stats.requests) == (PREEMPTED, 1)


def test_what_is_too_many_goes_back(host: Host, server: ModelServer) -> None:
    server.behaviour.seconds = 60.0
    threads = []
    for count, name in enumerate(("a", "b"), start=1):
        threads.append(host.begin(name))
        assert server.wait_for("requests", count, 30)
    host.begin("c").join(30)
    assert host.back == ["c"]
    host.gateway_requests.make_room(1)
    assert host.hear("b")[-1].code == PREEMPTED, "the youngest gives way"
    until(lambda: server.stats.active == 1, 30, "the engine hears that the other gave way")
    host.gateway_requests.close()
    assert host.hear("a")[-1].code == ENDING
    host.begin("d").join(30)
    assert host.back == ["c", "d"]
    for thread in threads:
        thread.join(30)


def test_a_run_that_wants_to_be_alone_does_not_wait_for_gateway_requests(
    host: Host, server: ModelServer
) -> None:
    server.behaviour.seconds = 60.0
    thread = host.begin("g")
    assert server.wait_for("requests", 1, 30)
    alone = threading.Thread(target=lambda: host.gate.enter(alone=True, cancel=Cancel()), daemon=True)
    alone.start()
    assert host.hear("g")[-1].code == PREEMPTED
    for one in (thread, alone):
        one.join(30)
        assert not one.is_alive()
    host.begin("h").join(30)
    assert host.back == ["h"], "none is begun beside it"


def test_an_answer_follows_the_schema_of_its_gateway_request(host: Host, server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]}
    host.begin("g", wish(model=alias("feedback"), bound_to=schema))
    events = host.hear("g")
    assert text(events).startswith('{"level":')
    assert events[-1].kind == "end"
    assert server.stats.last["response_format"]["json_schema"]["schema"] == schema


def test_a_gateway_request_gives_way_when_grading_begins_with_another_model(
    redis_url: str, server: ModelServer
) -> None:
    """Else an engine with room for one model would keep the run waiting for the request, and load twice."""
    server.behaviour.seconds = 60.0
    server.behaviour.models = ("tiny", "large")
    placed = {
        stage: {"engine": "openai", "model": m} for stage, m in (("analysis", "tiny"), ("feedback", "large"))
    }
    machine = configuration(stages=placed).machines[0]
    hand: set[str] = set()
    engine = OpenAIEngine(f"{server.url}/v1", **PATIENT)
    with hosting(redis_url, engine, machine, graded=lambda: in_use(machine, hand)) as host:
        threads = [host.begin("a", wish(model="tiny")), host.begin("b", wish(model=alias("feedback")))]
        both = {("openai", "tiny"): 1, ("openai", "large"): 1}
        until(lambda: host.gateway_requests.at_work() == both, 30, "both are in the engine")
        hand.add("analysis")
        assert host.hear("b")[-1].code == PREEMPTED
        threads[1].join(30)
        assert host.gateway_requests.at_work() == {("openai", "tiny"): 1}
        threads.append(host.begin("c", wish(model="large")))
        assert host.hear("c")[-1].code == PREEMPTED, "a run began after its message was taken"
        assert threads[0].is_alive()
        host.gateway_requests.close()
        assert host.hear("a")[-1].code == ENDING
        for thread in threads:
            thread.join(30)


@pytest.mark.parametrize(
    ("fault", "closed"), [("away", False), ("proxy", True), ("500", True), ("404", True)]
)
def test_only_a_connection_that_cannot_be_made_takes_the_engine_from_grading(
    redis_url: str, server: ModelServer, fault: str, closed: bool
) -> None:
    """All else may be for what a stranger asked."""
    server.behaviour.fault = "" if fault == "away" else fault
    machine = configuration().machines[0]
    url = "http://127.0.0.1:1" if fault == "away" else server.url
    engine = OpenAIEngine(f"{url}/v1", **PATIENT)
    circuits = CircuitBreakers(machine, {"openai": engine}, rules=Rules(first_s=3600, most_s=3600))
    with hosting(redis_url, engine, machine, circuits=circuits) as host:
        host.begin("g")
        assert host.hear("g")[-1].kind == "failed"
        assert circuits.closed("analysis") == closed
        circuits.close()


def test_gateway_requests_are_told_in_heartbeats(redis_url: str) -> None:
    engine = {"engine": "openai", "model": "tiny"}
    config = parse(
        {
            "redis": {"url": redis_url},
            "machines": [
                {
                    "name": "one",
                    "slots": 8,
                    "engines": {"openai": {"url": "http://x"}},
                    "stages": {"analysis": engine},
                }
            ],
        }
    )
    process = open_machine(config, config.machines[0])
    gateway_requests, queues = open_gateway_requests(config, process)
    assert list(queues) == [chat_queue(DRAFTING)]  # there is no gateway, but the web app may ask
    assert gateway_requests._come_in()
    process.heartbeat()
    (heartbeat,) = process.leases.heartbeats()
    assert (heartbeat.gateway_requests, heartbeat.busy) == (1, 0)
    process.close()


class Failing:
    """An engine that repeats what it was sent when it fails."""

    name, uses_model = "openai", True

    def generate(self, request: Request, progress: Any) -> Generation:
        raise KeyError(request.chat[0]["content"])

    def close(self) -> None:
        """Nothing."""


def test_an_engine_that_breaks_says_nothing_of_the_gateway_request(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with hosting(redis_url, Failing()) as host:
        host.begin("g", wish(messages=(Said(role="user", content="my secret"),)))
        assert host.hear("g")[-1] == Event(kind="failed", code="engine_failed")
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


def test_each_side_has_the_rights_it_needs_and_no_others(tmp_path: Path) -> None:
    config = parse(
        {
            "machines": [
                {**configuration().machines[0].model_dump(), "name": name, "stages": {stage: placed}}
                for name, stage, model in (("one", "analysis", "tiny"), ("two", "feedback", "large"))
                for placed in [{"engine": "openai", "model": model}]
            ]
        }
    )
    users = {"server": password(), "machine.one": password()}
    with redis_server(tmp_path, acl_file(tmp_path, redis_acl.lines(config, users))) as port:
        urls = {
            user: f"redis://{user}:{quote(secret, safe='')}@127.0.0.1:{port}/0"
            for user, secret in users.items()
        }
        server, machine = (connect(urls[user]) for user in users)
        gateway, talks = Talks(server), Talks(machine)
        gateway.ask("g", wish(), 60)
        for model in ("tiny", alias("analysis")):
            server.lpush(chat_queue(model), '{"id": "g"}')
            assert machine.brpop([chat_queue(model)], timeout=5)
        with pytest.raises(NoPermissionError):
            machine.brpop([chat_queue("large")], timeout=5)
        assert talks.take("g", "one")
        assert talks.hold(["g"]) == {"g"}
        assert talks.say("g", Event(kind="text", text="Hi")) == talks.unread("g") == 1
        assert gateway.waits("g")
        talks.leave("g", Event(kind="end"))
        heard = [gateway.hear("g", 5), gateway.hear("g")]
        assert [event and event.kind for event in heard] == ["text", "end"]
        gateway.withdraw("g", "tiny")
        assert server.llen(chat_queue("tiny")) == 0
        with pytest.raises(NoPermissionError):
            machine.lpush(chat_queue("tiny"), '{"id": "g"}')
        server.close()
        machine.close()


# --- one request's text -----------------------------------------------------------------------------------


def gateway_request(talks: Any, **more: Any) -> GatewayRequest:
    return GatewayRequest("g", wish(**more), Placement(engine="openai", model="tiny"), Failing(), talks)


@dataclass
class Spoiling(Failing):
    """An engine that answers when Redis can take no more of it."""

    redis: Any

    def generate(self, request: Request, progress: Any) -> Generation:
        self.redis.set("grader:gateway:g:said", "no list")
        return Generation("my secret", Tokens(), None, 1.0)


def test_what_redis_refuses_is_not_logged(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with hosting(redis_url, Spoiling(connect(redis_url))) as host:
        host.begin("g").join(30)
    app = Flask(__name__)
    errors.handle_errors(app)

    @app.get("/")
    def ask() -> str:
        with connect(redis_url) as redis:
            redis.set("grader:gateway:h:ask", "no list")
            redis.pipeline().rpush("grader:gateway:h:ask", "my secret").execute()
        return ""

    assert app.test_client().get("/").status_code == 503
    assert caplog.text.count("ResponseError") == 2
    assert "secret" not in caplog.text


class Uncounted(Failing):
    """An engine whose server makes embeddings and counts no tokens."""

    def embed(self, model: str, texts: Sequence[str], seconds: float, cancel: Cancel) -> Embeddings:
        return Embeddings(((1.0,),) * len(texts), 0)


def test_embeddings_that_no_server_counts_are_estimated() -> None:
    ask, placement = Ask(model="tiny", inputs=("x" * 40, "y") * 20), Placement(engine="openai", model="tiny")
    (end,) = GatewayRequest("g", ask, placement, Uncounted(), Kept()).answer(60)  # type: ignore[arg-type]
    assert end.tokens == Tokens(prompt=20 * (10 + 1))


def test_a_slow_reader_costs_no_memory(redis_url: str) -> None:
    redis = connect(redis_url)
    talks = Talks(redis, 60)
    one, written = gateway_request(talks), "word " * 500
    for end in range(1, len(written) + 1, 5):
        one._moved(end // 5, "generating", written[:end])
    assert talks.unread("g") == MOST_UNREAD
    heard = [talks.hear("g") for _ in range(MOST_UNREAD)]
    one.tell()  # as the keeper does
    assert talks.unread("g") == 1, "what was held back comes in one piece"
    heard.append(talks.hear("g"))
    whole = "".join(event.text for event in heard if event)
    assert whole == written[: len(whole)]
    assert len(whole) > 2400
    redis.close()


class Kept:
    """Talks that keep what is said."""

    def __init__(self) -> None:
        self.said: list[Event] = []

    def say(self, _caller: str, event: Event) -> int:
        self.said.append(event)
        return 0


@given(st.text("ab.", max_size=30), st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3), st.data())
def test_no_part_of_a_stop_text_is_shown(written: str, stops: list[str], data: st.DataObject) -> None:
    talks = Kept()
    one = gateway_request(talks, stop=tuple(stops))
    ends = sorted(data.draw(st.sets(st.integers(0, len(written)), max_size=6)))
    for end in ends:
        one._moved(end, "generating", written[:end])
    one._write(written)
    said = text([*talks.said, *one._rest()])
    places = [at for stop in stops if (at := written.find(stop)) >= 0]
    # the text grows, and the first moment at which one is whole counts
    expected = {written[: min(places)]} if places else {written}
    for end in (*ends, len(written)):
        found = [at for stop in stops if (at := written[:end].find(stop)) >= 0]
        if found:
            expected = {written[: min(found)]}
            break
    assert {said} == expected


# --- who goes first -------------------------------------------------------------------------------------


def view(running: int, waiting: int, slots: int = 8) -> View:
    profile = {"analysis": SpeedProfile(10, 20, 8)}
    me = Peer("one", slots, ("analysis",), speed_profiles=profile, running={"analysis": running})
    return View("one", {"one": me}, {("analysis", "interactive"): waiting})


@pytest.mark.parametrize(
    ("running", "waiting", "gateway_requests", "handed", "go"),
    [(0, 0, 2, 0, 0), (6, 1, 2, 0, 1), (6, 9, 2, 0, 2), (5, 1, 2, 0, 0), (7, 0, 2, 0, 1), (6, 0, 2, 1, 1)],
)
def test_as_many_gateway_requests_go_as_runs_need_their_slots(
    running: int, waiting: int, gateway_requests: int, handed: int, go: int
) -> None:
    assert crowded(view(running, waiting), gateway_requests, handed) == go


def test_none_is_drawn_while_none_can_come_in() -> None:
    config = configuration(engines={}, stages={"analysis": {"engine": "rules", "model": "rules"}})
    process = open_machine(config, config.machines[0])
    gateway_requests = GatewayRequests(
        process.machine, process.engines, Talks(process.leases.redis), process.gate
    )
    assert taken_up(process, gateway_requests) == 0 < gateway_requests.most
    assert process.gate.enter(alone=True, cancel=Cancel())
    assert taken_up(process, gateway_requests) == gateway_requests.most, (
        "else their messages go to and fro all the time"
    )
    process.gate.leave()
    assert taken_up(process, gateway_requests) == 0
    process.close()


def test_the_last_slot_is_never_a_gateway_requests() -> None:
    assert [most_gateway_requests(slots) for slots in (1, 2, 4, 8, 16, 32)] == [0, 1, 1, 2, 4, 8]


# --- the gateway's side ---------------------------------------------------------------------------------


@dataclass
class Played:
    """A door behind which a test plays the machine: `plays` is called with each message that is sent."""

    talks: Talks
    plays: list[Any]
    sent: list[str] = field(default_factory=list)

    def open(self) -> GatewayServices:
        return GatewayServices(configuration(), None, Leases(self.talks.redis), self.talks, self._send)  # type: ignore[arg-type]

    def _send(self, gateway_request: str, model: str) -> None:
        self.sent.append(gateway_request)
        assert self.talks.take(gateway_request, "one") is not None
        self.plays.pop(0)(gateway_request)

    def hear(self) -> list[Event]:
        return [event for event in Conversation(self.open(), wish(), lambda: False).events() if event]


@pytest.fixture
def played(redis_url: str) -> Iterator[Played]:
    redis = connect(redis_url)
    yield Played(Talks(redis, LONG_S), [])
    assert not redis.keys("grader:gateway:*:[ars][esa]*"), "nothing is left"
    redis.close()


def test_who_was_broken_off_before_the_first_word_is_begun_again(played: Played) -> None:
    talks = played.talks

    def preempted(gateway_request: str) -> None:
        talks.say(gateway_request, Event(kind="begun", machine="one", model="tiny"))
        talks.leave(gateway_request, Event(kind="failed", code=PREEMPTED))

    def answered(gateway_request: str) -> None:
        talks.leave(gateway_request, Event(kind="text", text="Hi"), Event(kind="end"))

    played.plays = [preempted, answered]
    assert text(played.hear()) == "Hi"
    played.plays = [preempted, preempted, preempted]
    with pytest.raises(Refused) as given_up:
        played.hear()
    assert (given_up.value.code, given_up.value.status) == (PREEMPTED, 503)


def test_who_leaves_is_noticed_while_pieces_come(played: Played) -> None:
    played.plays = [
        lambda gateway_request: played.talks.leave(
            gateway_request, Event(kind="text", text="Hi"), Event(kind="end")
        ),
    ]
    with pytest.raises(ClientGone):
        list(Conversation(played.open(), wish(), lambda: True).events())


def test_a_machine_that_takes_no_gateway_requests_offers_no_model(redis_url: str) -> None:
    stages = {"analysis": {"engine": "openai", "model": "tiny"}, "feedback": {"engine": "mlx", "model": "m"}}
    away = {"mlx": {"state": "probing", "stages": ["feedback"]}}
    redis = connect(redis_url)
    leases = Leases(redis)
    gateway = GatewayServices(configuration(), None, leases, Talks(redis), lambda *_: None)  # type: ignore[arg-type]
    leases.heartbeat(Heartbeat("p", "one", 8, 0, stages))
    assert sorted(gateway.offer().models) == ["grader/analysis", "grader/feedback", "m", "tiny"]
    leases.heartbeat(Heartbeat("p", "one", 8, 0, stages, circuits=away))
    assert gateway.offer().models == set()
    redis.close()


DEEP: Any = [0]
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "minItems": "many"},
        {"type": "array", "minItems": -1},
        {"enum": DEEP},
        {"properties": {"a": {"default": DEEP}}},
        {"required": DEEP},
    ],
)
def test_a_schema_that_could_harm_an_engine_is_refused(schema: Any) -> None:
    raw = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    with pytest.raises(Refused) as refused:
        chat_request.read({**raw, "response_format": form}, 100)
    assert refused.value.param == "response_format"


@pytest.mark.parametrize(
    ("code", "used"),
    [
        (PREEMPTED, None),
        (UNBOUND, Tokens(prompt=1, output=2)),
        ("budget_exceeded", Tokens(prompt=1, output=2)),
    ],
)
def test_after_the_first_word_it_is_an_error(played: Played, code: str, used: Tokens | None) -> None:
    begun, words = Event(kind="begun", machine="one", model="tiny"), Event(kind="text", text="Hi, Anna")
    played.plays = [lambda name: played.talks.leave(name, begun, words, Event(kind="failed", code=code))]
    conversation = Conversation(played.open(), wish(), lambda: False)
    with pytest.raises(Refused):
        list(conversation.events())
    assert len(played.sent) == 1
    assert conversation.used == used


def test_a_machine_that_goes_silent_is_given_up(played: Played) -> None:
    def silent(gateway_request: str) -> None:
        played.talks.say(gateway_request, Event(kind="begun", model="tiny"))
        assert played.talks.redis.persist(f"grader:gateway:{gateway_request}:held")  # it had a time to end
        played.talks.redis.delete(f"grader:gateway:{gateway_request}:held")

    played.plays = [silent] * 3
    with pytest.raises(Refused) as lost:
        played.hear()
    assert lost.value.code == "machine_lost"
    assert len(played.sent) == 3


def test_pieces_that_come_twice_count_once_and_lost_ones_are_an_error(played: Played) -> None:
    def twice(gateway_request: str) -> None:
        pieces = [(0, "ab"), (0, "ab"), (1, "bc"), (3, "d")]
        played.talks.leave(
            gateway_request,
            *(Event(kind="text", at=at, text=piece) for at, piece in pieces),
            Event(kind="end"),
        )

    def lost(gateway_request: str) -> None:
        played.talks.leave(gateway_request, Event(kind="text", at=2, text="cd"), Event(kind="end"))

    def vectors(*pieces: tuple[int, tuple[str, ...]]) -> Any:
        told = [Event(kind="vectors", at=at, vectors=made) for at, made in pieces]
        return lambda gateway_request: played.talks.leave(gateway_request, *told, Event(kind="end"))

    played.plays = [
        twice,
        vectors((0, ("a", "b")), (0, ("a", "b")), (1, ("b", "c"))),
        lost,
        vectors((1, ("b",))),
    ]
    assert text(played.hear()) == "abcd"
    assert [one for event in played.hear() for one in event.vectors] == ["a", "b", "c"]
    for _ in range(2):
        with pytest.raises(Refused) as gap:
            played.hear()
        assert gap.value.code == "engine_broke_off"
