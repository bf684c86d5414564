"""Guests of the gateway, who chat all the while that grading runs, by the official client of OpenAI's API."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.cluster.cards import MODELS
from bench.cluster.runs import Visits
from bench.cluster.sizes import CHARS_A_TOKEN, CHAT, mark

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PROMPT, ANSWER, MOST = 400, 300, 2000
"""Tokens of a guest's prompt, of a usual answer, and the most it asks for."""
SPREAD = 0.25
"""Of the logarithm of answers' lengths."""
AGAIN_S = 5.0
"""Emulated seconds before a guest that was not answered asks again."""
LOOK_S = 1.0
"""Emulated seconds between two looks whether there is a machine at all, before the first request."""
LIMIT_S = 300.0
"""Emulated seconds from a request to the end of its answer, as by default in config.toml."""
PATIENCE_S = 600.0
"""Real seconds for which a client waits for a word."""
UNHEARD = frozenset({"rate_limit_exceeded", "machines_busy", "no_machine"})
"""Codes of requests that no machine had time for; all others broke something off."""


class NoClient(Exception):
    """The client for guests is not installed; install the test requirements."""


@dataclass
class Tally:
    """What became of requests so far."""

    answered: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    first_s: list[float] = field(default_factory=list)
    """Emulated seconds from each request to its first word."""

    def ended(self, code: str) -> None:
        """One was not answered."""
        (self.refused if code in UNHEARD else self.broken)[code] += 1

    def visits(self) -> Visits:
        """All of it."""
        return Visits(self.answered, dict(self.broken), dict(self.refused), self.tokens, tuple(self.first_s))


class Guests:
    """So many at once; a context manager within which they chat, each again as soon as it is answered.

    Those that are under way at its end leave, and count for nothing. `url` ends in /v1.
    """

    def __init__(self, url: str, token: str, count: int, factor: float, seed: int = 1) -> None:
        _require_client()
        self.tally = Tally()
        self._url, self._token, self._count, self._factor = url, token, count, factor
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="guests", daemon=True)

    def __enter__(self) -> Guests:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        self._loop.run_until_complete(self._all())

    async def _all(self) -> None:
        from openai import AsyncOpenAI

        async with AsyncOpenAI(
            base_url=self._url, api_key=self._token, max_retries=0, timeout=PATIENCE_S
        ) as client:
            chats = [asyncio.create_task(self._visit(client, number)) for number in range(self._count)]
            await self._over.wait()
            for chat in chats:
                chat.cancel()
            ends = await asyncio.gather(*chats, return_exceptions=True)
            self._failed += [end for end in ends if isinstance(end, Exception)]

    async def _visit(self, client: AsyncOpenAI, number: int) -> None:
        """One guest, again and again, of the models in turns."""
        models = [*MODELS]
        while not await self._served(client):
            await asyncio.sleep(LOOK_S / self._factor)
        for turn in itertools.count(number):
            code = await self._chat(client, turn, models[turn % len(models)])
            if code:
                self.tally.ended(code)
                await asyncio.sleep(AGAIN_S / self._factor)
            else:
                self.tally.answered += 1

    async def _served(self, client: AsyncOpenAI) -> bool:
        """Whether machines have begun to take guests of all models."""
        return {*MODELS} <= {model.id for model in (await client.models.list()).data}

    async def _chat(self, client: AsyncOpenAI, number: int, model: str) -> str:
        """One request; why it was not answered, or nothing."""
        from openai import APIError

        began, heard, ended = time.monotonic(), False, False
        length = max(1, round(ANSWER * self._rng.lognormvariate(-(SPREAD**2) / 2, SPREAD)))
        try:
            stream = await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": prompt(number, length)}],
                max_tokens=MOST,
                stream=True,
                stream_options={"include_usage": True},
            )
            async with stream:
                async for chunk in stream:
                    for choice in chunk.choices:
                        ended = ended or choice.finish_reason is not None
                        if choice.delta.content and not heard:
                            heard = True
                            self.tally.first_s.append((time.monotonic() - began) * self._factor)
                    self.tally.tokens += chunk.usage.completion_tokens if chunk.usage else 0
        except APIError as error:
            return str(error.code or type(error).__name__)
        return "" if ended else "no_end"


def prompt(number: int, answer: int) -> str:
    """What a guest says: PROMPT tokens, and a mark that says how long the answer is."""
    said = f"# {mark(number, {CHAT: answer})}\nWhat does this code do? "
    return (said + "x <- mean(sales$amount) # why not the median? " * PROMPT)[: PROMPT * CHARS_A_TOKEN]


def _require_client() -> None:
    try:
        import openai  # noqa: F401 - a requirement of the tests only
    except ImportError:
        raise NoClient("Guests need the package openai, which comes with the extra test.") from None
