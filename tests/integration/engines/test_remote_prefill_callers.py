"""The reading machine against callers that mean it no good: each is refused, and others are served."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from bench.tiny_models import make_model
from tests.support.engines import SMALLER, ask, quiet
from tests.support.remote_prefill import SECRET, reading, writing
from workers.machine.engines.mlx.model import fingerprint
from workers.machine.engines.remote_prefill.engine import HybridEngine
from workers.machine.engines.remote_prefill.protocol import Channel, Frame, Kind, TransferError, pack, proof

Call = Callable[[], Channel]
HEAD = {"most_bytes": 1 << 30, "seconds": 20.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), shape=SMALLER, context=600)


@pytest.fixture(scope="module")
def address(model: Path) -> Iterator[tuple[str, int]]:
    with reading(model) as said:
        host, _, port = said.rpartition(":")
        yield host, int(port)


@pytest.fixture(scope="module")
def honest(model: Path, address: tuple[str, int]) -> Iterator[HybridEngine]:
    """One that has every prompt read in a talk of its own."""
    with writing(model, f"{address[0]}:{address[1]}") as hybrid:
        yield hybrid


@pytest.fixture(autouse=True)
def still_reads(model: Path, honest: HybridEngine) -> Iterator[None]:
    """Whatever a test does, somebody honest is served afterwards."""
    yield
    made = honest.generate(ask(str(model), system="", user="hello", schema={}, max_output_tokens=2), quiet)
    assert made.details["remote_prefill"].strategy == "disaggregated", made.details["remote_prefill"]


@pytest.fixture
def call(address: tuple[str, int]) -> Iterator[Call]:
    """Makes connections, and ends them after the test."""
    made: list[Channel] = []

    def connect() -> Channel:
        made.append(Channel(socket.create_connection(address)))
        return made[-1]

    yield connect
    for channel in made:
        channel.close()


def told(channel: Channel) -> tuple[str, str]:
    """The refusal that comes: its code and sentence."""
    while (frame := channel.receive()).kind in (Kind.LAYOUT, Kind.ALIVE, Kind.PIECE):
        pass
    assert frame.kind == Kind.REFUSED, frame
    return str(frame.head["code"]), str(frame.head["message"])


def greeted(call: Call, order: int) -> Channel:
    """After a login whose nonces are in the right order, or not."""
    channel = call()
    nonces = [str(channel.receive().head["nonce"]), "mine"][::order]
    channel.send(Frame(Kind.LOGIN, {"nonce": "mine", "proof": proof(SECRET.encode(), "writer", *nonces)}))
    return channel


def signed_in(call: Call) -> Channel:
    channel = greeted(call, 1)
    assert channel.receive().kind == Kind.WELCOME
    return channel


def test_a_proof_of_another_talk_is_none(call: Call) -> None:
    assert told(greeted(call, -1))[0] == "not_authentic"


def tokens(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


@pytest.mark.parametrize("seed", range(8))
def test_noise(address: tuple[str, int], seed: int) -> None:
    draw = random.Random(seed)
    with socket.create_connection(address, 10) as raw:
        raw.sendall(draw.randbytes(draw.randrange(1, 2000)))
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(1 << 16):
            pass  # it says no, and ends


@pytest.mark.parametrize(
    "login",
    [
        Frame(Kind.LOGIN, {}),
        Frame(Kind.LOGIN, {"nonce": 1, "proof": ["x"]}),
        Frame(Kind.LOGIN, {"nonce": "x", "proof": "é" * 64}),
        Frame(Kind.LOGIN, {"nonce": "x" * 10_000, "proof": "0" * 64}),
        Frame(Kind.ASK, {"fingerprint": "x", **HEAD}),
        Frame(Kind.DONE),
    ],
    ids=range(6),
)
def test_nobody_comes_in_without_the_secret(call: Call, login: Frame) -> None:
    channel = call()
    assert channel.receive().kind == Kind.HELLO
    channel.send(login)
    assert told(channel)[0] == "not_authentic"


def test_nothing_large_is_taken_from_a_stranger(call: Call) -> None:
    channel = call()
    assert channel.receive().kind == Kind.HELLO
    channel.send(Frame(Kind.LOGIN, {}, bytes(100)))
    assert told(channel)[0] == "frame_corrupt"


@pytest.mark.parametrize(
    ("changes", "body", "code"),
    [
        ({"fingerprint": "sha256:0"}, tokens(1, 2, 3), "weights_differ"),
        ({}, b"", "peer_refused"),
        ({}, b"123", "peer_refused"),
        ({}, tokens(1, 2, 2**32 - 1), "peer_refused"),
        ({}, tokens(*([5] * 601)), "peer_refused"),
        ({"have": 3}, tokens(1, 2, 3), "peer_refused"),
        ({"have": -1}, tokens(1, 2, 3), "peer_refused"),
        ({"shared": 4}, tokens(1, 2, 3), "peer_refused"),
        ({"bits": 4}, tokens(1, 2, 3), "peer_refused"),
        ({"seconds": 0}, tokens(1, 2, 3), "peer_refused"),
        ({"seconds": "nan"}, tokens(1, 2, 3), "peer_refused"),
        ({"most_bytes": 10}, tokens(1, 2, 3), "too_large"),
        ({"another": 1}, tokens(1, 2, 3), "peer_refused"),
    ],
    ids=range(13),
)
def test_what_does_not_fit_together_is_refused(
    model: Path, call: Call, changes: dict[str, Any], body: bytes, code: str
) -> None:
    channel = signed_in(call)
    channel.send(Frame(Kind.ASK, {"fingerprint": fingerprint(model), **HEAD, **changes}, body))
    said = told(channel)
    assert said[0] == code
    assert said[1]


def test_a_caller_that_reads_nothing_holds_up_nobody(model: Path, call: Call) -> None:
    channel = signed_in(call)
    ids = tokens(*([5] * 500))
    channel.send(Frame(Kind.ASK, {"fingerprint": fingerprint(model), **HEAD}, ids))
    # and never receives; `still_reads` is served beside it


def test_no_more_than_some_callers_at_once(address: tuple[str, int]) -> None:
    held = [socket.create_connection(address) for _ in range(80)]
    try:
        greeted = sum(bool(one.recv(1)) for one in held)
    finally:
        for one in held:
            one.close()
    assert 60 <= greeted <= 64  # one of the test before may be just going
    until_free(address)


def until_free(address: tuple[str, int]) -> None:
    """Those that left are noticed."""
    for _ in range(200):
        with socket.create_connection(address) as one:
            if one.recv(1):
                return
        threading.Event().wait(0.05)
    raise AssertionError("nobody is greeted any more")


def test_prompts_are_never_in_the_log(call: Call) -> None:
    with structlog.testing.capture_logs() as logs:
        channel = signed_in(call)
        channel.send(Frame(Kind.ASK, {"fingerprint": "x", **HEAD}, tokens(*b"secret words")))
        with pytest.raises(TransferError):
            while True:
                channel.receive()
    assert "secret words" not in str(logs)
    assert pack(Frame(Kind.ASK))[0][:4] == b"GrKV"
