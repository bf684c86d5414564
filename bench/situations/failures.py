"""Situations in which a server, its process or the one who asks fails."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.model_server_lab import ANSWER_S
from bench.model_servers import START_S
from bench.situations.generations import LIMIT, USER
from bench.situations.situation import Seen, Situation, UnderTest
from grading.domain.errors import EngineError, ModelMissing
from workers.machine.circuits import probe
from workers.machine.engines.base import Cancel, Phase, unheard

LONG = 15_000
"""Tokens of an answer that is not to end by itself."""
DEADLINE_S = 0.5
STALL_S = 0.5
SOON_S = 10.0
"""Within these seconds of its cause, a fault is told."""
IDLE_S = 20.0


class AtFirstToken:
    """Progress that does something once, when the first tokens are there; tells when that was."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self.at: float | None = None

    def __call__(self, tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
        """See `Progress`."""
        if tokens and self.at is None:
            self.at = time.monotonic()
            self._then()


def _long(
    tested: UnderTest, then: Callable[[], None], deadline_s: float, cancel: Cancel, **options: Any
) -> Seen:
    """A long answer; `then` is done in mid-stream. What it ended with, and how long after that."""
    progress = AtFirstToken(then)
    asked = tested.lab.request(USER, LONG, deadline_s=deadline_s, cancel=cancel)
    with tested.worker(**options) as (engine, _):
        began = time.monotonic()
        try:
            engine.generate(asked, progress)
        except EngineError as error:
            took = time.monotonic() - (progress.at or began)
            in_time = took < SOON_S + (DEADLINE_S if deadline_s == DEADLINE_S else 0.0)
            return Seen(error.code, in_time, f"after {took:.1f} s")
    return Seen("answered", False)


def _stopped(tested: UnderTest, before: int | None, requests: int) -> tuple[bool, str]:
    """Whether the server wrote no further for nobody.

    By its own counts, or else by how soon the next requests are answered.
    """
    server, setup = tested.lab.server, tested.lab.setup
    began = time.monotonic()
    if server.working(setup) is not None:
        while server.working(setup) and time.monotonic() < began + IDLE_S:
            time.sleep(0.02)  # it tells only when it is asked
        idle_s, written = time.monotonic() - began, (server.written(setup) or 0) - (before or 0)
        stopped = not server.working(setup) and written < requests * LONG
        return stopped, f"the server idle after {idle_s:.1f} s and {written} tokens of {requests * LONG}"
    with tested.worker() as (engine, _), ThreadPoolExecutor(setup.slots) as pool:
        short = [tested.lab.request(USER, LIMIT) for _ in range(setup.slots)]
        list(pool.map(lambda one: engine.generate(one, unheard), short))
    took, whole = time.monotonic() - began, LONG / max(tested.speed, 1.0)
    return took < whole / 2, f"the next answers after {took:.1f} s, where a whole one takes {whole:.0f} s"


def cancelled(tested: UnderTest) -> Seen:
    """As many long answers as there are slots, all of them left in mid-stream: the server stops."""
    slots, before = tested.lab.setup.slots, tested.lab.server.written(tested.lab.setup)
    cancels = [Cancel() for _ in range(slots)]
    with ThreadPoolExecutor(slots) as pool:
        ended = list(pool.map(lambda one: _long(tested, one.cancel, ANSWER_S, one), cancels))
    stopped, note = _stopped(tested, before, slots)
    codes = {one.outcome for one in ended}
    return Seen(
        ", ".join(sorted(codes)), codes == {"cancelled"} and all(e.expected for e in ended) and stopped, note
    )


def deadline(tested: UnderTest) -> Seen:
    """The stage's time is over in mid-stream: the server stops."""
    before = tested.lab.server.written(tested.lab.setup)
    ended = _long(tested, _nothing, DEADLINE_S, Cancel())
    stopped, note = _stopped(tested, before, 1)
    return Seen(ended.outcome, ended.outcome == "budget_exceeded" and ended.expected and stopped, note)


def stalled(tested: UnderTest) -> Seen:
    """The server hangs in mid-stream, and goes on later."""
    process = tested.process
    try:
        ended = _long(tested, lambda: process.send(signal.SIGSTOP), ANSWER_S, Cancel(), chunk_timeout=STALL_S)
    finally:
        process.send(signal.SIGCONT)
    with tested.worker() as (engine, _):
        again = bool(engine.generate(tested.lab.request(USER, LIMIT), unheard).text)
    note = f"{ended.note}, with a limit of {STALL_S:g} s; answers again" if again else ended.note
    return Seen(ended.outcome, ended.outcome == "engine_stalled" and ended.expected and again, note)


def killed(tested: UnderTest) -> Seen:
    """The server's process dies in mid-stream."""
    ended = _long(tested, tested.process.kill, ANSWER_S, Cancel())
    return Seen(ended.outcome, ended.outcome == "engine_broke_off" and ended.expected, ended.note)


def refused(tested: UnderTest) -> Seen:
    """Nothing listens at the server's address."""
    tested.stop()
    with tested.worker() as (engine, _):
        began = time.monotonic()
        try:
            engine.generate(tested.lab.request(USER, LIMIT), unheard)
        except EngineError as error:
            took = time.monotonic() - began
            return Seen(
                error.code, error.code == "engine_unreachable" and took < SOON_S, f"after {took:.1f} s"
            )
    return Seen("answered", False)


def loading(tested: UnderTest) -> Seen:
    """The server is starting with the same weights: asked all the time, until it answers."""
    process = tested.start(0)
    codes: Counter[str] = Counter()
    began = time.monotonic()
    with tested.worker(connect_timeout=1.0) as (engine, _):
        while "answered" not in codes and time.monotonic() < began + START_S:
            try:
                engine.generate(tested.lab.request(USER, LIMIT), unheard)
                codes["answered"] += 1
            except EngineError as error:
                codes[error.code] += 1
                time.sleep(0.05)  # as often as that, a port is looked at
    process.await_ready()
    known = codes.keys() <= {"engine_unreachable", "engine_busy", "answered"}
    outcome = ", then ".join(codes)
    return Seen(outcome, known and "answered" in codes, f"after {time.monotonic() - began:.1f} s")


def restarted(tested: UnderTest) -> Seen:
    """The server was restarted with the same weights: the probe finds it, and there is no alarm."""
    with tested.worker() as (engine, digests):
        probe(engine, tested.lab.model, ANSWER_S)
        made = engine.generate(tested.lab.request(USER, LIMIT), unheard)
        known = digests.verify(tested.lab.place, ANSWER_S, made.digest)
    return Seen("answered, no alarm", bool(known) and bool(made.text))


def swapped(tested: UnderTest) -> Seen:
    """The server was restarted with other weights behind the same name: noticed before a grade."""
    tested.start(1).await_ready()
    with tested.worker() as (engine, digests):
        made = engine.generate(tested.lab.request(USER, LIMIT), unheard)
        try:
            digests.verify(tested.lab.place, ANSWER_S, made.digest)
        except ModelMissing as error:
            return Seen(error.code, True, error.message[:120])
    return Seen("answered", False, "other weights were taken for the same")


def _nothing() -> None:
    """Done in mid-stream."""


SITUATIONS = (
    Situation("cancel", "nobody waits any more, in mid-stream", cancelled),
    Situation("deadline", "the stage's time is over in mid-stream", deadline),
    Situation("stall", "the server hangs in mid-stream (SIGSTOP)", stalled),
    Situation("kill", "the server is killed in mid-stream (SIGKILL)", killed),
    Situation("refused", "the server does not run", refused),
    Situation("loading", "the server is starting", loading),
    Situation("restart", "it was restarted with the same weights", restarted),
    Situation("swap", "it was restarted with other weights", swapped),
)
