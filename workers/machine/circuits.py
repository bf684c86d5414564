"""The circuit breakers of a machine's engines: fed by the end of each run, probed while they are open."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from grading.broker.heartbeats import reason
from grading.config.settings import Machine
from grading.domain.errors import Cancelled, EngineError, EngineUnreachable, OutputEmpty, OutputTruncated
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material, Result, Tokens
from grading.domain.messages import Message
from grading.domain.rubric import Criterion, Rubric
from grading.scheduling.circuit_breaker import RULES, Circuit, Rules, verdict
from workers.machine.engines.base import Cancel, Engine, Generation, Phase, Request
from workers.machine.messages import PROBE_FAILED, STAGE_TAKEN_OUT
from workers.machine.stages.analysis import STAGE as ANALYSIS

MAX_TOKENS = 16
_SYSTEM = "You are asked whether you are there."
_USER = "Write the word: here"


def probe(engine: Engine, model: str, timeout_s: float, cancel: Cancel | None = None) -> Generation:
    """At most 16 tokens of this model, within `timeout_s` seconds or until `cancel`. Raises as `generate`.

    A model that spends all of them on thoughts works, too: its generation has tokens and no text.
    """
    began = time.monotonic()
    seen: list[int] = []

    def count(tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
        seen[:] = [tokens]

    try:
        return engine.generate(_request(engine, model, timeout_s, cancel or Cancel()), count)
    except (OutputEmpty, OutputTruncated):
        if not any(seen):
            raise
        seconds = time.monotonic() - began
        return Generation("", Tokens(output=seen[0]), first_token_s=None, seconds=seconds, truncated=True)


def _request(engine: Engine, model: str, timeout_s: float, cancel: Cancel) -> Request:
    criterion = Criterion(id="there", title="Is there", points=1)
    job = Job(
        run_id="probe",
        round_id="probe",
        stage=ANALYSIS.name,
        material=Material(title="Probe"),
        rubric=Rubric(criteria=(criterion,)),
        documents=(),
        evidence=Evidence(),
        nonce="probe",
        budget_s=timeout_s,
        max_output_tokens=MAX_TOKENS,
        temperature=0.0,
    )
    return Request(
        job=job,
        model=model,
        system=_SYSTEM,
        user=_USER,
        # what answers without a model works from the schema; a model would only be slowed down by it
        schema={} if engine.uses_model else ANALYSIS.schema(job),
        max_output_tokens=MAX_TOKENS,
        temperature=job.temperature,
        deadline_s=timeout_s,
        cancel=cancel,
    )


log = logging.getLogger(__name__)
PROBE_S = 300.0
"""For a probe: as long as engines give a model to load. One that hangs ends when its server does."""
Place = tuple[str, str]
"""(engine, model)"""


class CircuitBreakers:
    """One circuit for each model that this machine's stages use. Thread-safe.

    A server that is away opens those of all its models; a model that is missing only its own. Each engine is
    probed by a thread of its own, one model at a time: one that hangs keeps no other engine waiting.
    `changed` is called, without a lock and on such a thread, after a circuit opened or closed.
    """

    def __init__(
        self,
        machine: Machine,
        engines: Mapping[str, Engine],
        changed: Callable[[], None] = lambda: None,
        rules: Rules = RULES,
        clock: Callable[[], float] = time.monotonic,
        verify: Callable[[Place, float], object] = lambda _place, _seconds: None,
    ) -> None:
        self._places: dict[str, Place] = {s: (p.engine, p.model) for s, p in machine.stages.items()}
        self._circuits = {place: Circuit(rules) for place in sorted(set(self._places.values()))}
        self._engines = engines
        self._changed = changed
        self._clock = clock
        self._verify = verify
        """Raises an EngineError when the model that answers is not the one that it should be."""
        self._news = threading.Condition()
        self._probed: set[str] = set()
        """Engines that a thread probes now."""
        self._over = Cancel()
        self._out: frozenset[str] = frozenset()
        """Stages that an operator, or a comparison of golden submissions, took out."""

    def closed(self, stage: str) -> bool:
        """Whether this machine may take runs of a stage, as far as its engine goes. Never waits."""
        return stage not in self._out and self.answers(stage)

    def answers(self, stage: str) -> bool:
        """Whether the engine of a stage does, whatever the machine may take. Never waits."""
        place = self._places.get(stage)
        return place is None or self._circuits[place].closed

    def take_out(self, stages: Iterable[str]) -> None:
        """These stages get no work until they are left out here; their engines are not probed for it."""
        out = frozenset(stages) & self._places.keys()
        with self._news:
            if out == self._out:
                return
            self._out = out
            self._news.notify_all()
        log.warning("drained stages: %s", ", ".join(sorted(out)) or "none")
        self._tell()

    def wait_closed(self, stage: str, seconds: float) -> bool:
        """Wait a while for that; also ends when this process does."""
        with self._news:
            self._news.wait_for(lambda: self._over.cancelled or self.closed(stage), seconds)
        return self.closed(stage)

    def now(self) -> float:
        """The clock, for when a run begins."""
        return self._clock()

    def ended(self, result: Result, began: float, tokens: int, phase: str) -> None:
        """A run came to its end; `began` by `now`, tokens and phase as the engine told them last."""
        place = self._places.get(result.stage)
        if place is None:
            return
        error = None if result.ok else result.error or EngineError.code
        said, why = verdict(error, tokens, phase), result.coded
        concerned = self._concerned(place, error)
        self._move(concerned, lambda c, now: c.ended(said, began, now, random.random(), why))

    def refused(self, place: Place, began: float, why: Message) -> None:
        """No connection to an engine could be made, for whatever purpose; `began` by `now`."""
        concerned = self._concerned(place, EngineUnreachable.code)
        self._move(concerned, lambda c, now: c.ended("away", began, now, random.random(), why))

    def missing(self, place: Place, why: Message) -> None:
        """A model was found to be missing, or to be another one, with nothing to do."""
        self._move([place], lambda c, now: c.ended("away", now, now, random.random(), why))

    def lost(self, engine: str, why: Message) -> None:
        """An engine noticed by itself that it is away."""
        self.refused((engine, ""), self.now(), why)

    def state(self) -> dict[str, dict[str, Any]]:
        """What a heartbeat tells: engine -> state, why, for how many seconds, stages; only what is not
        closed.
        """
        found: dict[str, dict[str, Any]] = {}
        with self._news:
            now = self._clock()
            for (engine, _), circuit in self._circuits.items():
                if circuit.closed:
                    continue
                since_s = round(max(0.0, now - circuit.since), 1)
                said = found.setdefault(
                    engine, {"state": circuit.state, **reason(circuit.why), "since_s": since_s, "stages": []}
                )
                said["state"] = "open" if "open" in (said["state"], circuit.state) else "probing"
                said["since_s"] = max(said["since_s"], since_s)
            for stage, place in self._places.items():
                if place[0] in found and not self._circuits[place].closed:
                    found[place[0]]["stages"].append(stage)
            for stage in sorted(self._out):
                taken_out = {"state": "open", **reason(STAGE_TAKEN_OUT()), "since_s": 0.0, "stages": []}
                of_engine = found.setdefault(self._places[stage][0], taken_out)
                of_engine["stages"] = [*(one for one in of_engine["stages"] if one != stage), stage]
        return found

    def close(self) -> None:
        """No more probes: this process is going. One that is under way is cancelled."""
        self._over.cancel()
        with self._news:
            self._news.notify_all()

    def _concerned(self, place: Place, error: str | None) -> list[Place]:
        """A server that does not answer does so for none of its models."""
        if error != EngineUnreachable.code:
            return [place]
        return [one for one in self._circuits if one[0] == place[0]]

    def _move(self, places: Sequence[Place], step: Callable[[Circuit, float], Circuit]) -> None:
        """The next circuit of each; see that somebody probes those that are open."""
        with self._news:
            for place in places:
                before = self._circuits[place]
                after = self._circuits[place] = step(before, self._clock())
                if before.closed != after.closed:
                    _say(place, after)
            for engine in {place[0] for place in places} - self._probed:
                if not self._over.cancelled and self._open(engine):
                    self._probed.add(engine)
                    probing = threading.Thread(
                        target=self._probe_until_closed, args=(engine,), name="circuits", daemon=True
                    )
                    probing.start()
            self._news.notify_all()

    def _open(self, engine: str) -> list[Place]:
        return [place for place, one in self._circuits.items() if place[0] == engine and not one.closed]

    def _probe_until_closed(self, engine: str) -> None:
        """One probe at a time while any model is out of reach: the body of a thread that ends with that."""
        told: list[Place] = []
        while True:
            place = None
            with self._news:
                opened = self._open(engine)
                if self._over.cancelled or not (opened or told):
                    self._probed.discard(engine)
                    return
                if opened == told:
                    place = self._next(opened)
            if opened != told:
                told = opened
                self._tell()
            elif place is not None:
                self._probe(place)

    def _next(self, opened: list[Place]) -> Place | None:
        """Begin the probe that is due, or wait for it or for news. Holds the lock."""
        place = min(opened, key=lambda one: self._circuits[one].due)
        wait = self._circuits[place].due - self._clock()
        if wait > 0:
            self._news.wait(wait)
            return None
        self._circuits[place] = self._circuits[place].probe(self._clock())
        return place

    def _probe(self, place: Place) -> None:
        engine, model = place
        error, why = None, Message()
        try:
            probe(self._engines[engine], model, PROBE_S, self._over)
            self._verify(place, PROBE_S)
        except Cancelled:
            return
        except EngineError as failed:
            error, why = failed.code, failed.coded
        except Exception as failed:
            log.exception("the probe of %s on %s failed", model, engine)  # this thread must outlive anything
            error, why = EngineError.code, PROBE_FAILED(kind=type(failed).__name__)
        if error is None or verdict(error, 0, "") == "well":
            self._move([place], lambda c, now: c.answered(now))
        else:
            self._move([place], lambda c, now: c.unanswered(now, random.random(), why))

    def _tell(self) -> None:
        try:
            self._changed()
        except Exception:
            log.exception(
                "a change of a circuit breaker could not be sent"
            )  # this thread must outlive anything


def _say(place: Place, circuit: Circuit) -> None:
    engine, model = place
    if circuit.closed:
        log.info("circuit breaker of %s on %s closed: it answers again", model, engine)
    else:
        log.warning(
            "circuit breaker of %s on %s opened, it gets no runs until it answers a probe: %s",
            model,
            engine,
            circuit.why,
        )
