"""A client as people write them: sends each submission's two requests over the machines, so many at once.

Reads a plan as JSON from standard input and writes what became of each request. Runs as a file under any
Python: it needs the standard library only, and litellm for litellm's ways.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

TRIES = 8
WAIT_S = 1.0
"""Emulated, before the second try; twice as long before each further one."""

GAP_S = 0.005
"""Real seconds between the beginnings of two requests."""


async def post(url: str, payload: dict[str, Any]) -> int:
    """Status of the answer to a POST, read to its end; 0 when it does not come whole."""
    parts = urlsplit(url)
    body = json.dumps(payload).encode()
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return 0
    try:
        writer.write(head.encode() + body)
        answer = await reader.read()
        first = answer.split(b"\r\n", 1)[0].split(b" ")
        return int(first[1]) if len(first) > 1 and b"\r\n\r\n" in answer else 0
    except OSError:
        return 0
    finally:
        writer.close()


class Direct:
    """The client chooses the machine itself, by what it has sent where."""

    def __init__(self, plan: dict[str, Any], kind: str) -> None:
        self._urls: dict[str, str] = plan["urls"]
        self._homes: dict[str, str] = plan["homes"]
        self._pick = {"pinned": self._pinned, "roles": self._roles, "shortest": self._shortest}[kind]
        self._turns: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()

    async def send(self, stage: str, payload: dict[str, Any]) -> tuple[bool, str]:
        """Whether it was answered, and by whom."""
        machine = self._pick(stage)
        self._busy[machine] += 1
        try:
            return await post(f"{self._urls[machine]}/v1/chat/completions", payload) == 200, machine
        finally:
            self._busy[machine] -= 1

    def _pinned(self, stage: str) -> str:
        return next(name for name, home in self._homes.items() if home == stage)

    def _roles(self, stage: str) -> str:
        able = [name for name, home in self._homes.items() if home == stage]
        self._turns[stage] += 1
        return able[self._turns[stage] % len(able)]

    def _shortest(self, _stage: str) -> str:
        return min(self._urls, key=lambda name: (self._busy[name], random.random()))


class Router:
    """Somebody else's router stands before the machines."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/chat/completions"

    async def send(self, _stage: str, payload: dict[str, Any]) -> tuple[bool, str]:
        """Whether it was answered."""
        return await post(self._url, payload) == 200, ""


class LiteLLM:
    """litellm's Router with one of its strategies; its intervals are divided as ours are."""

    def __init__(self, plan: dict[str, Any], strategy: str) -> None:
        import litellm

        self._plan = plan
        litellm.telemetry = False
        litellm.suppress_debug_info = True
        deployments = [
            {
                "model_name": stage,
                "litellm_params": {
                    "model": f"openai/{about['model']}",
                    "api_base": f"{url}/v1",
                    "api_key": "none",
                    "timeout": 3600,
                },
            }
            for stage, about in plan["stages"].items()
            for url in plan["urls"].values()
        ]
        self._router = litellm.Router(
            model_list=deployments,
            routing_strategy=strategy,
            num_retries=3,
            timeout=3600,
            cooldown_time=max(0.1, 5 / plan["factor"]),
        )

    async def warm_up(self) -> None:
        """Have everything imported, beside the router, which learns nothing of it."""
        import litellm

        about, url = next(iter(self._plan["stages"].values())), next(iter(self._plan["urls"].values()))
        await litellm.acompletion(
            model=f"openai/{about['model']}",
            api_base=f"{url}/v1",
            api_key="none",
            messages=[{"role": "user", "content": "warm"}],
            max_tokens=1,
        )

    async def send(self, stage: str, payload: dict[str, Any]) -> tuple[bool, str]:
        """Whether it was answered."""
        try:
            await self._router.acompletion(**{**payload, "model": stage})
        except Exception as error:  # noqa: BLE001 - whatever it raises, the request is sent again
            print(f"litellm: {type(error).__name__}: {error}"[:300], file=sys.stderr)
            return False, ""
        return True, ""


def way_of(plan: dict[str, Any]) -> Any:
    """The way that the plan names."""
    kind = plan["way"]["kind"]
    if kind == "litellm":
        return LiteLLM(plan, plan["way"]["strategy"])
    return Router(plan["way"]["url"]) if kind == "router" else Direct(plan, kind)


class Sending:
    """All requests of a plan; times are emulated seconds from the start."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._factor: float = plan["factor"]
        self._way = way_of(plan)
        self._room = asyncio.Semaphore(plan["at_once"])
        self._door = asyncio.Lock()
        self._start = time.monotonic()
        self.done: list[dict[str, Any]] = []

    async def warm_up(self) -> None:
        """What is done before the time counts."""
        if isinstance(self._way, LiteLLM):
            await self._way.warm_up()
        await asyncio.gather(*(self._arrival(n, one) for n, one in enumerate(self._plan["learn"])))
        self.done.clear()

    async def all(self) -> None:
        """Until the last one is answered or given up."""
        self._start = time.monotonic()
        await asyncio.gather(*(self._arrival(n, one) for n, one in enumerate(self._plan["arrivals"])))

    @property
    def _now(self) -> float:
        return (time.monotonic() - self._start) * self._factor

    async def _arrival(self, number: int, one: dict[str, Any]) -> None:
        await asyncio.sleep(max(0.0, one["at"] - self._now) / self._factor)
        await asyncio.gather(*(self._request(number, one, stage) for stage in self._plan["stages"]))

    async def _request(self, number: int, one: dict[str, Any], stage: str) -> None:
        about = self._plan["stages"][stage]
        payload = {
            "model": about["model"],
            "messages": [
                {"role": "system", "content": about["system"]},
                {"role": "user", "content": f"{one['mark']}\n{self._plan['user']}"},
            ],
            "max_tokens": about["most"],
        }
        async with self._room:
            async with (
                self._door
            ):  # routers that count a request late would send a whole burst to one machine
                await asyncio.sleep(GAP_S)
            begun, tries, ok, machine = self._now, 0, False, ""
            while not ok and tries < TRIES:
                if tries:
                    await asyncio.sleep(WAIT_S * 2 ** (tries - 1) / self._factor)
                tries += 1
                ok, machine = await self._way.send(stage, payload)
        self.done.append(
            {
                "number": number, "stage": stage, "machine": machine, "ok": ok, "tries": tries,
                "begun": begun, "ended": self._now,
            }
        )  # fmt: skip


async def _send(plan: dict[str, Any]) -> None:
    sending = Sending(plan)
    await sending.warm_up()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)  # the word to begin
    before = time.process_time()
    await sending.all()
    print(json.dumps({"done": sending.done, "cpu_s": time.process_time() - before}), flush=True)


def main() -> None:
    """Carry the plan of the first line of standard input out once a second line comes."""
    asyncio.run(_send(json.loads(sys.stdin.readline())))


if __name__ == "__main__":
    main()
