"""A writing machine as a process of its own: requests come in as lines of JSON, what was made goes out.

A request that `stops` is told of when the first piece of its cache is here, and goes on after another line.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any
from unittest import mock

from tests.support.engines import ask, measured, quiet
from tests.support.remote_prefill import prefilled, writing
from workers.machine.engines.remote_prefill import planner, protocol
from workers.machine.engines.remote_prefill.protocol import Channel, Frame, Kind

STALL_S = 1.5
"""Of a link that is made to stall; elsewhere, who is late on a busy computer is waited for."""


def main(address: str) -> None:
    """Answer until the input ends."""
    with (
        mock.patch.object(protocol, "STALL_S", 30.0),
        mock.patch.object(planner, "FIRST_PAUSE_S", 0.0),  # a reader that failed is asked again at once
        writing(None, address) as engine,
    ):
        say(ready=True)
        for line in sys.stdin:
            given = json.loads(line)
            before = dict(engine.counters())
            with ExitStack() as stack:
                if given.pop("stops", False):
                    stack.enter_context(mock.patch.object(protocol, "STALL_S", STALL_S))
                    stack.enter_context(mock.patch.object(Channel, "receive", stopping()))
                made = engine.generate(ask(**given), quiet)
            way = {
                "strategy": made.details["remote_prefill"].strategy,
                "fault": measured(made.details["remote_prefill"], "fault"),
            }
            say(text=made.text, read=prefilled(before, dict(engine.counters())), **way)


def stopping() -> Any:
    """`Channel.receive`, which waits for a line after the first piece: the rest stays on the link."""
    receive, stopped = Channel.receive, []

    def stops(channel: Channel, most: int = protocol.MOST_BODY) -> Frame:
        frame = receive(channel, most)
        if frame.kind == Kind.PIECE and not stopped:
            stopped.append(True)
            say(arrives=True)
            sys.stdin.readline()
        return frame

    return stops


def say(**said: object) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
