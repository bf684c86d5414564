"""Emulated machines as real servers: they speak Ollama's and OpenAI's protocols and take the time of a `Box`.

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

from bench.router.cost_model import OWN, WORLDS, World
from bench.router.emulator import Box, Event, Refused
from bench.router.http_server import Connection, Exchange
from bench.router.protocols import Asked, Counted, Dialect, padded, pages, show, understand

TELL_S = 2.0
"""Emulated seconds between two pieces of a stream."""


class Live:
    """A Box of some world in real time. `factor` emulated seconds pass in one."""

    def __init__(self, box: Box, factor: float, world: World = OWN) -> None:
        self.box = box
        self.factor = factor
        self.world = world
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._told: dict[str, asyncio.Queue[Event]] = {}
        self._streams: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tell_at = TELL_S

    @property
    def now(self) -> float:
        """Emulated seconds since the start."""
        return (self._loop.time() - self._start) * self.factor

    def submit(self, name: str, asked: Asked) -> asyncio.Queue[Event] | Refused:
        """What happens to the request from now on, or why it is not taken."""
        answer = self.box.submit(self.now, asked.request(name, self.world.works))
        if isinstance(answer, Refused):
            return answer
        told = self._told[name] = asyncio.Queue()
        if asked.stream:
            self._streams.add(name)
        self._move()
        return told

    def leave(self, name: str) -> None:
        """Nobody waits for it any more."""
        if self._told.pop(name, None) is not None:
            self.box.cancel(self.now, name)
        self._streams.discard(name)
        self._move()

    def change(self, speed: float) -> None:
        """Slower, dead, or back."""
        self.box.change(self.now, speed)
        self._move()

    def _move(self) -> None:
        """Up to now, and wake up when something happens next."""
        for event in self.box.advance(self.now):
            self._hear(event)
        if self._streams and self.now >= self._tell_at:
            self._tell_at = self.now + TELL_S
            self._tell()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        then = min(self.box.next_event(), self._tell_at if self._streams else math.inf)
        if then < math.inf:
            wait = max(0.0, then - self.now) / self.factor
            self._timer = self._loop.call_later(wait + 0.0005, self._move)

    def _tell(self) -> None:
        for name, tokens in self.box.snapshot().tokens.items():
            if name in self._streams and tokens:
                self._hear(Event(self.now, "progress", name, tokens))

    def _hear(self, event: Event) -> None:
        if event.id in self._told:
            self._told[event.id].put_nowait(event)
            if event.kind in ("done", "lost"):
                del self._told[event.id]
                self._streams.discard(event.id)


@dataclass
class Machine:
    """The routes of one emulated machine."""

    live: Live
    ended: Counter[str] = field(default_factory=Counter)
    _names: itertools.count[int] = field(default_factory=itertools.count)

    async def answer(self, exchange: Exchange) -> None:
        """One request."""
        payload = exchange.payload() if exchange.method == "POST" else {}
        understood = understand(exchange.path, payload)
        box = self.live.box
        if understood is not None:
            await self._generate(exchange, *understood)
        elif exchange.path == "/api/show":
            known = any(m.name == payload.get("model", payload.get("name")) for m in box.models)
            exchange.json(show() if known else {"error": "model not found"}, 200 if known else 404)
        elif exchange.path == "/emulator":
            exchange.json(asdict(box.snapshot()))
        else:
            page = pages([m.name for m in box.models], box.snapshot().loaded).get(exchange.path)
            exchange.json(
                page if page is not None else {"error": "Not Found"}, 200 if page is not None else 404
            )

    async def _generate(self, exchange: Exchange, asked: Asked, dialect: Dialect) -> None:
        name = str(next(self._names))
        begun = self.live.now
        told = self.live.submit(name, asked)
        if isinstance(told, Refused):
            self.ended[f"refused {told.status}"] += 1
            exchange.json(
                dialect.refusal(told.status, told.why), told.status
            ) if told.status else exchange.drop()
            return
        output = asked.request(name, self.live.world.works).output
        talk = _Talk(exchange, asked, dialect, begun, self.live.factor, output)
        try:
            while not talk.over:
                talk.hear(await told.get())
            self.ended[talk.over] += 1
        finally:
            self.live.leave(name)


@dataclass
class _Talk:
    """One answer on its way out."""

    exchange: Exchange
    asked: Asked
    dialect: Dialect
    begun: float
    factor: float
    output: int
    """Tokens it has in all."""
    over: str = ""
    """How it ended."""
    _text: str = ""
    _sent: int = 0
    _first: Event | None = None

    def hear(self, event: Event) -> None:
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
        self._text = padded(self.asked.text(), self.output)
        if self.asked.stream:
            self.exchange.begin(self.dialect.stream)
            self._piece(1)

    def _piece(self, tokens: int) -> None:
        until = max(1, len(self._text) * tokens // self.output)
        if until > self._sent:
            self.exchange.chunk(self.dialect.piece(self._text[self._sent : until]))
            self._sent = until

    def _end(self, event: Event) -> None:
        assert self._first is not None
        counted = Counted(
            event.prompt,
            event.cached,
            event.tokens,
            (self._first.at - self.begun) / self.factor,
            (event.at - self._first.at) / self.factor,
            cut=self.asked.most == event.tokens,
        )
        if self.asked.stream:
            self._piece(self.output)
            self.exchange.chunk(self.dialect.last(counted))
            self.exchange.end()
        else:
            self.exchange.json(self.dialect.whole(self._text, counted))
        self.over = "done"


@dataclass
class Cluster:
    """All machines, and what is asked of them from outside: a line of JSON each."""

    machines: dict[str, Machine] = field(default_factory=dict)

    async def serve(self, factor: float, slots: int, queue: int, world: World) -> None:
        """Tell the addresses, then answer until nobody asks any more."""
        loop = asyncio.get_running_loop()
        urls, servers = {}, []
        models = tuple(work.model for work in world.works.values())
        for name, card in world.cards.items():
            box = Box(card, slots, queue, models)
            machine = self.machines[name] = Machine(Live(box, factor, world))
            servers.append(await loop.create_server(_connections(machine), "127.0.0.1", 0, backlog=512))
            urls[name] = f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"
        print(json.dumps(urls), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(self._do(json.loads(line))), flush=True)

    def _do(self, wish: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change a machine's speed if that is wished; tell how requests ended and who waits."""
        if "machine" in wish:
            self.machines[wish["machine"]].live.change(float(wish["speed"]))
        ended = {name: machine.ended for name, machine in self.machines.items()}
        waiting = {name: machine.live.box.snapshot().waiting for name, machine in self.machines.items()}
        return {"ended": ended, "waiting": waiting, "cpu_s": time.process_time()}


def _connections(machine: Machine) -> Callable[[], Connection]:
    return lambda: Connection(machine.answer, lambda: not machine.live.box.speed)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--factor", type=float, default=1.0)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--queue", type=int, default=512)
    parser.add_argument("--world", choices=list(WORLDS), default=OWN.name)
    args = parser.parse_args()
    asyncio.run(Cluster().serve(args.factor, args.slots, args.queue, WORLDS[args.world]))


if __name__ == "__main__":
    main()
