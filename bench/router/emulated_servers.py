"""Emulated machines as real servers: they speak Ollama's and OpenAI's protocols and take its emulator's time.

`python -m bench.router.emulated_servers --factor 10` runs all of a cluster in one process, prints their
addresses as a line of JSON, and ends when its standard input does. Their second is 1/factor of a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.router.cost_model import CLUSTER_MODELS, OWN, ClusterModel
from bench.router.emulator import Emulator, Event, Refused
from bench.router.http_server import Connection, Exchange
from bench.router.protocols import ChatRequest, Dialect, Usage, padded, pages, parse_request, show

REPORT_S = 2.0
"""Emulated seconds between two pieces of a stream."""


class RealTimeEmulator:
    """An emulator in real time. `factor` emulated seconds pass in one."""

    def __init__(self, emulator: Emulator, factor: float, cluster_model: ClusterModel = OWN) -> None:
        self.emulator = emulator
        self.factor = factor
        self.cluster_model = cluster_model
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._queues: dict[str, asyncio.Queue[Event]] = {}
        self._streams: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._report_at = REPORT_S

    @property
    def now(self) -> float:
        """Emulated seconds since the start."""
        return (self._loop.time() - self._start) * self.factor

    def submit(self, name: str, request: ChatRequest) -> asyncio.Queue[Event] | Refused:
        """What happens to the request from now on, or why it is not taken."""
        answer = self.emulator.submit(self.now, request.request(name, self.cluster_model.works))
        if isinstance(answer, Refused):
            return answer
        events = self._queues[name] = asyncio.Queue()
        if request.stream:
            self._streams.add(name)
        self._move()
        return events

    def leave(self, name: str) -> None:
        """Nobody waits for it any more."""
        if self._queues.pop(name, None) is not None:
            self.emulator.cancel(self.now, name)
        self._streams.discard(name)
        self._move()

    def change(self, speed: float) -> None:
        """Slower, dead, or back."""
        self.emulator.change(self.now, speed)
        self._move()

    def _move(self) -> None:
        """Up to now, and wake up when something happens next."""
        for event in self.emulator.advance(self.now):
            self._deliver(event)
        if self._streams and self.now >= self._report_at:
            self._report_at = self.now + REPORT_S
            self._report_progress()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        then = min(self.emulator.next_event(), self._report_at if self._streams else math.inf)
        if then < math.inf:
            wait = max(0.0, then - self.now) / self.factor
            self._timer = self._loop.call_later(wait + 0.0005, self._move)

    def _report_progress(self) -> None:
        for name, tokens in self.emulator.snapshot().tokens.items():
            if name in self._streams and tokens:
                self._deliver(Event(self.now, "progress", name, tokens))

    def _deliver(self, event: Event) -> None:
        if event.id in self._queues:
            self._queues[event.id].put_nowait(event)
            if event.kind in ("done", "lost"):
                del self._queues[event.id]
                self._streams.discard(event.id)


@dataclass
class Machine:
    """The routes of one emulated machine."""

    live: RealTimeEmulator
    ended: Counter[str] = field(default_factory=Counter)
    _names: itertools.count[int] = field(default_factory=itertools.count)

    async def answer(self, exchange: Exchange) -> None:
        """One request."""
        payload = exchange.payload() if exchange.method == "POST" else {}
        parsed = parse_request(exchange.path, payload)
        emulator = self.live.emulator
        if parsed is not None:
            await self._generate(exchange, *parsed)
        elif exchange.path == "/api/show":
            known = any(m.name == payload.get("model", payload.get("name")) for m in emulator.models)
            exchange.json(show() if known else {"error": "model not found"}, 200 if known else 404)
        elif exchange.path == "/emulator":
            exchange.json(asdict(emulator.snapshot()))
        else:
            page = pages([m.name for m in emulator.models], emulator.snapshot().loaded).get(exchange.path)
            exchange.json(
                page if page is not None else {"error": "Not Found"}, 200 if page is not None else 404
            )

    async def _generate(self, exchange: Exchange, request: ChatRequest, dialect: Dialect) -> None:
        name = str(next(self._names))
        started = self.live.now
        events = self.live.submit(name, request)
        if isinstance(events, Refused):
            self.ended[f"refused {events.status}"] += 1
            exchange.json(
                dialect.refusal(events.status, events.why), events.status
            ) if events.status else exchange.drop()
            return
        output = request.request(name, self.live.cluster_model.works).output
        response = _Response(exchange, request, dialect, started, self.live.factor, output)
        try:
            while not response.over:
                response.handle(await events.get())
            self.ended[response.over] += 1
        finally:
            self.live.leave(name)


@dataclass
class _Response:
    """One answer on its way out."""

    exchange: Exchange
    request: ChatRequest
    dialect: Dialect
    started: float
    factor: float
    output: int
    """Tokens it has in all."""
    over: str = ""
    """How it ended."""
    _text: str = ""
    _sent: int = 0
    _first: Event | None = None

    def handle(self, event: Event) -> None:
        """Say what happened."""
        if event.kind == "lost":
            self.over = "lost"
            self.exchange.drop()
        elif event.kind == "first":
            self._begin(event)
        elif event.kind == "progress":
            self._piece(event.tokens)
        elif event.kind == "done":
            self._end(event)

    def _begin(self, event: Event) -> None:
        self._first = event
        self._text = padded(self.request.text(), self.output)
        if self.request.stream:
            self.exchange.begin(self.dialect.stream)
            self._piece(1)

    def _piece(self, tokens: int) -> None:
        until = max(1, len(self._text) * tokens // self.output)
        if until > self._sent:
            self.exchange.chunk(self.dialect.piece(self._text[self._sent : until]))
            self._sent = until

    def _end(self, event: Event) -> None:
        assert self._first is not None
        counted = Usage(
            event.prompt,
            event.cached,
            event.tokens,
            (self._first.at - self.started) / self.factor,
            (event.at - self._first.at) / self.factor,
            cut=self.request.most == event.tokens,
        )
        if self.request.stream:
            self._piece(self.output)
            self.exchange.chunk(self.dialect.last(counted))
            self.exchange.end()
        else:
            self.exchange.json(self.dialect.whole(self._text, counted))
        self.over = "done"


@dataclass
class EmulatedCluster:
    """All machines, and what they are told from outside: a line of JSON each."""

    machines: dict[str, Machine] = field(default_factory=dict)

    async def serve(self, factor: float, slots: int, queue: int, cluster_model: ClusterModel) -> None:
        """Tell the addresses, then answer until nobody asks any more."""
        loop = asyncio.get_running_loop()
        urls, servers = {}, []
        models = tuple(work.model for work in cluster_model.works.values())
        for name, card in cluster_model.cards.items():
            emulator = Emulator(card, slots, queue, models)
            machine = self.machines[name] = Machine(RealTimeEmulator(emulator, factor, cluster_model))
            servers.append(await loop.create_server(_connections(machine), "127.0.0.1", 0, backlog=512))
            urls[name] = f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"
        print(json.dumps(urls), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(self._execute(json.loads(line))), flush=True)

    def _execute(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change a machine's speed if that is wished; tell how requests ended and who waits."""
        if "machine" in command:
            self.machines[command["machine"]].live.change(float(command["speed"]))
        ended = {name: machine.ended for name, machine in self.machines.items()}
        waiting = {name: machine.live.emulator.snapshot().waiting for name, machine in self.machines.items()}
        return {"ended": ended, "waiting": waiting, "cpu_s": time.process_time()}


def _connections(machine: Machine) -> Callable[[], Connection]:
    return lambda: Connection(machine.answer, lambda: not machine.live.emulator.speed)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--factor", type=float, default=1.0)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--queue", type=int, default=512)
    parser.add_argument("--cluster-model", choices=list(CLUSTER_MODELS), default=OWN.name)
    args = parser.parse_args()
    asyncio.run(
        EmulatedCluster().serve(args.factor, args.slots, args.queue, CLUSTER_MODELS[args.cluster_model])
    )


if __name__ == "__main__":
    main()
