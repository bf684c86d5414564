"""When silence of a server is a stall."""

from __future__ import annotations

import socket
import time

from grading.domain.errors import EngineError
from workers.machine.engines.base import Cancel
from workers.machine.engines.http.exchange import LastToken, Limits, Watch
from workers.machine.engines.ollama.server import OllamaWire

LIMITS = Limits(chunk=0.05, load=0.6)


class GoesOn(LastToken):
    """Of a server on which others have tokens all the time, whatever comes of this one."""

    def __setattr__(self, name: str, value: float) -> None:
        super().__setattr__(name, time.monotonic() + 1000)


def silent(heard: LastToken) -> tuple[EngineError | None, float]:
    """What a watch makes of a server that sends one token and no more, and after how many seconds."""
    began = time.monotonic()
    ours, theirs = socket.socketpair()
    with ours, theirs, Watch(60, Cancel(), LIMITS, "It", heard) as watch:
        watch.hold(ours)
        watch.arrived(token=True)
        ours.recv(1)  # ends when the watch shuts it
        return watch.failure(), time.monotonic() - began


def test_a_silent_stream_is_a_stall_only_later_while_the_server_goes_on_with_others() -> None:
    failure, seconds = silent(GoesOn())
    assert seconds >= LIMITS.load
    assert failure is not None
    assert failure.code == "engine_stalled"


def test_it_is_one_at_once_where_no_other_stream_moves() -> None:
    failure, _ = silent(LastToken())
    assert failure is not None
    assert failure.code == "engine_stalled"


def test_streams_of_one_server_share_what_was_heard_of_it() -> None:
    wire = OllamaWire("http://127.0.0.1:1", LIMITS)
    one, other = wire.watch(60, Cancel()), wire.watch(60, Cancel())
    one.arrived(token=True)
    assert other._heard is one._heard is wire.heard
    assert wire.heard.at > 0
