"""One machine of the benchmark: a process with one core that is told what to do in lines of JSON.

{"id": 1, "do": "serve", …}     reads prompts for the other machine: says at which address
{"id": 2, "do": "engine", …}    makes an engine, which may have its prompts read there
{"id": 3, "do": "generate", …}  answers, and says when what happened, by the clock both machines share
{"id": 4, "do": "read", …}      when the passes of the prompts ended that were read since the last time
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from bench.engines_models import job
from bench.strategies.noting import NotingReader
from workers.machine.engines.base import Phase, Request
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.remote_prefill.engine import HybridEngine
from workers.machine.engines.remote_prefill.server import Serving

SECRET = "of this benchmark alone"  # noqa: S105 - loopback only
DEADLINE_S = 300.0
AT_ONCE = 8
"""Orders that may be under way."""


class Machine:
    """What one process keeps: engines by their names, and readers with their addresses."""

    def __init__(self, model: str, step: int) -> None:
        self._model = model
        self._step = step
        self._engines: dict[str, MlxEngine | HybridEngine] = {}
        self._readers: dict[str, tuple[NotingReader, Serving]] = {}

    def serve(
        self, name: str, link_bytes_s: float | None = None, serially: bool = False, one_by_one: bool = False
    ) -> dict[str, Any]:
        """Read prompts for others from now on, over a link with this rate; one of that name before ends."""
        self._end(name)
        reader = NotingReader([self._model], step=self._step, serially=serially, one_by_one=one_by_one)
        reader.load()
        serving = Serving(reader, SECRET.encode(), ("127.0.0.1", 0), link_bytes_s=link_bytes_s)
        self._readers[name] = (reader, serving)
        return {"address": f"127.0.0.1:{serving.address[1]}"}

    def engine(
        self, name: str, address: str | None = None, strategy: str = "disaggregated", draft: str = ""
    ) -> dict[str, Any]:
        """Make an engine, which may have a draft model propose; one with that name before is closed."""
        if (old := self._engines.pop(name, None)) is not None:
            old.close()
        made: MlxEngine | HybridEngine
        if address is None:
            drafts = {self._model: draft} if draft else None
            made = MlxEngine(prefill_step=self._step, drafts=drafts, draft_always=bool(draft))
        else:
            made = HybridEngine(readers={"a": address}, strategy=strategy, prefill_step=self._step)
        made.load(self._model)
        self._engines[name] = made
        return {}

    def generate(self, engine: str, user: str, most: int, system: str = "") -> dict[str, Any]:
        """Answer a prompt; without a system message nothing of it is kept for the next."""
        request = Request(
            job=job(most), model=self._model, system=system, user=user, schema={}, max_output_tokens=most,
            temperature=0.0, deadline_s=DEADLINE_S,
        )  # fmt: skip
        if not system:
            request = replace(request, chat=({"role": "user", "content": user},))
        asked = time.monotonic()
        made = self._engines[engine].generate(request, _unheard)
        return {
            "asked": asked,
            "first": asked + (made.first_token_s or 0.0),
            "ended": asked + made.seconds,
            "prompt": made.tokens.prompt,
            "cached": made.tokens.cached,
            "output": made.tokens.output,
            "hybrid": made.hybrid.model_dump() if made.hybrid else None,
            "speculative": made.speculative.model_dump() if made.speculative else None,
        }

    def read(self, name: str) -> dict[str, Any]:
        """What was read since the last time, a note a prompt."""
        return {"prompts": self._readers[name][0].taken()}

    def close(self) -> None:
        """End all threads."""
        for name in list(self._readers):
            self._end(name)
        for engine in self._engines.values():
            engine.close()

    def _end(self, name: str) -> None:
        if name in self._readers:
            reader, serving = self._readers.pop(name)
            serving.close()
            reader.close()


def main(model: str, step: str, core: str) -> None:
    """Do what comes on the standard input until it ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints must not stand between the answers
    if core and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})
    os.environ["GRADER_PREFILL_SECRET"] = SECRET
    machine, lock = Machine(model, int(step)), threading.Lock()

    def say(answer: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(answer) + "\n")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in sys.stdin:
            pool.submit(_do, machine, json.loads(line), say)
    machine.close()


def _do(machine: Machine, order: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    number, do = order.pop("id"), order.pop("do")
    try:
        say({"id": number, "done": getattr(machine, do)(**order)})
    except Exception as error:  # noqa: BLE001 - the other process is told, whatever it was
        say({"id": number, "error": f"{type(error).__name__}: {error}"})


def _unheard(_tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
    """Nobody looks at the progress."""


if __name__ == "__main__":
    main(*sys.argv[1:])
