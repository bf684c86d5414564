"""Digests of this machine's models and metrics of its engines, as its heartbeats carry them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from redis.exceptions import RedisError

from grading.broker.away import why_away
from grading.broker.gateway_requests import NO_MODEL
from grading.broker.kept_digests import KeptDigests
from grading.config.settings import Machine
from grading.domain.errors import BudgetExceeded, EngineError, EngineGarbled, ModelMissing
from grading.domain.messages import Message
from grading.domain.model_behaviour import is_fingerprint, same_weights
from grading.domain.model_digests import short
from workers.machine.engines.base import Engine, LoadsModels, ReportsDigest, ReportsMetrics, model_source
from workers.machine.messages import WEIGHTS_CHANGED, WEIGHTS_UNKNOWN

log = logging.getLogger(__name__)
PATIENCE_S = 600.0
"""For one digest: a model of 60 GB from a slow disk."""
AGAIN_S = 300.0
"""Models may be fetched anew while the machine works."""
UNKNOWN_AGAIN_S = 30.0
"""The engine may still be starting."""


BEFORE_S = 60.0
"""The most seconds that a run waits for the weights' digest before it begins."""
AFTER_S = 300.0
"""And after its answer: a server may be reading the prompts of a whole batch."""
TRIES = 3
"""A fingerprint that differs is taken again: only one that differs each time is a change."""
Place = tuple[str, str]
"""(engine, model)"""


@dataclass
class SharedAsk:
    """One question at a time; who waits takes an answer that was asked for after it came. Thread-safe."""

    _news: threading.Condition = field(default_factory=threading.Condition)
    _begun: int = 0
    _running: bool = False
    _answer: tuple[int, str] = (0, "")
    """The number of the question, and what was answered."""

    def ask(self, question: Callable[[float], str], seconds: float) -> str:
        """What the question gives, asked now. Raises what it raises, and BudgetExceeded."""
        end = time.monotonic() + seconds
        with self._news:
            mine = self._begun + 1
            while self._running:
                if not self._news.wait(max(0.0, end - time.monotonic())):
                    raise BudgetExceeded
                if self._answer[0] >= mine:
                    return self._answer[1]
            self._running, self._begun = True, self._begun + 1
            number = self._begun
        answer = None
        try:
            answer = question(max(0.01, end - time.monotonic()))
        finally:
            with self._news:
                self._running = False
                if answer is not None:
                    self._answer = (number, answer)
                self._news.notify_all()
        return answer


class ModelDigests:
    """The digests of a machine's models, as engines tell them. Thread-safe.

    A model keeps the digest that it had first, across restarts, until a person accepts another one: a change
    is told to `changed`, and every run with that model ends as ModelMissing.
    """

    def __init__(
        self,
        machine: Machine,
        engines: Mapping[str, Engine],
        kept: KeptDigests,
        changed: Callable[[Place, Message], None] = lambda _place, _why: None,
    ) -> None:
        self._machine = machine
        self._engines = engines
        self._kept = kept
        self._changed = changed
        self._lock = threading.Lock()
        self._expected: dict[Place, str] = {}
        """What Redis keeps, as it was read last."""
        self._others: dict[Place, str] = {}
        """Of the models whose weights changed, what they have now."""
        self._asks: dict[Place, SharedAsk] = {}

    def stages(self) -> dict[str, dict[str, str]]:
        """Each stage's engine and model, where the model is from, and its digest where it is known.

        With `before` where the weights changed.
        """
        found = {}
        for stage, place in self._machine.stages.items():
            engine = self._engines[place.engine]
            expected, other = self._expected.get(place.place, ""), self._others.get(place.place, "")
            kind = self._machine.kind(place.engine)
            told = {
                "kind": kind if kind != place.engine else "",
                "source": model_source(engine) if engine.uses_model else NO_MODEL,
                "digest": other or expected,
                "before": expected if other else "",
            }
            known = {name: value for name, value in told.items() if value}
            found[stage] = {"engine": place.engine, "model": place.model, **known}
        return found

    def known(self, place: Place) -> str:
        """What a model has as far as is known; empty when nothing is."""
        return self._others.get(place) or self._expected.get(place, "")

    def load(self) -> None:
        """Load what in-process engines will need, so that the first student does not wait for it."""
        for place in self._machine.stages.values():
            engine = self._engines[place.engine]
            if isinstance(engine, LoadsModels):
                try:
                    self.verify(place.place, PATIENCE_S, engine.load(place.model))
                except EngineError as error:
                    log.error("model %s could not be used: %s", place.model, error.message)

    def ask(self) -> bool:
        """Ask the engines that can tell; whether all of them did. May take minutes.

        Once a fingerprint is known, only answers and probes take it again: it generates tokens, which a
        server with nothing to do, or that others use, is not asked for.
        """
        places = {place.place for place in self._machine.stages.values()}
        told = [self._asked(place) for place in sorted(places) if not self._fingerprinted(place)]
        return all(told)

    def _fingerprinted(self, place: Place) -> bool:
        return is_fingerprint(self._expected.get(place, "")) and place not in self._others

    def _asked(self, place: Place) -> bool:
        try:
            self.verify(place, PATIENCE_S)
        except ModelMissing as error:
            self._changed(place, error.coded)
            return False
        except EngineError as error:
            log.info("the model digest of %s on %s is unknown: %s", place[1], place[0], error.message)
            return False
        return True

    def ask_until_stopped(self, stop: threading.Event) -> None:
        """Ask now and then again; the end of the thread that loads models."""
        while not stop.is_set():
            stop.wait(AGAIN_S if self.ask() else UNKNOWN_AGAIN_S)

    def before_run(self, place: Place, seconds: float) -> None:
        """Raises ModelMissing when the model is known to have other weights than it had.

        What the engine cannot tell now is looked at again before the run's result is used.
        """
        if place in self._expected and place not in self._others:
            return
        if isinstance(self._engines[place[0]], LoadsModels):
            return  # its answer tells; files of a model that is not loaded take minutes to read
        try:
            self.verify(place, min(BEFORE_S, seconds))
        except ModelMissing:
            raise
        except EngineError as error:
            log.info("the model digest of %s on %s is unknown: %s", place[1], place[0], error.message)

    def verify(self, place: Place, seconds: float, told: str = "") -> str:
        """The digest of a model's weights now, as it was first told; `told` is what an answer says.

        Asks the engine unless the answer says it, so what was generated before is of these weights. Empty
        where the engine never tells. Raises ModelMissing when the weights changed, and other EngineErrors
        when the engine fails to tell.
        """
        engine = self._engines[place[0]]
        if not engine.uses_model:
            return told
        now = told or self._tell(place, min(AFTER_S, seconds))
        expected = self._expect(place, now)
        for _ in range(TRIES - 1):
            if not now or same_weights(expected, now) or told:
                break
            now = self._tell(place, min(AFTER_S, seconds))
        if not now:
            if expected:
                raise EngineGarbled(WEIGHTS_UNKNOWN(engine=place[0], model=place[1]))
            return ""
        if not same_weights(expected, now):
            raise self._change(place, expected, now)
        with self._lock:
            self._others.pop(place, None)
        return expected

    def _tell(self, place: Place, seconds: float) -> str:
        engine, model = self._engines[place[0]], place[1]
        if not isinstance(engine, ReportsDigest):
            return ""
        with self._lock:
            ask = self._asks.setdefault(place, SharedAsk())
        return ask.ask(lambda left: engine.digest(model, left), seconds)

    def _expect(self, place: Place, now: str) -> str:
        """What is kept; the first that a model tells is. Without Redis, what was read last."""
        try:
            kept = self._kept.first(*place, now) if now else self._kept.get(*place)
        except RedisError as error:
            log.warning("%s, the kept digests could not be read: %s", why_away(error), error)
            kept = self._expected.get(place, now)
        if kept:
            with self._lock:
                self._expected[place] = kept
        return kept

    def _change(self, place: Place, expected: str, now: str) -> ModelMissing:
        why = WEIGHTS_CHANGED(
            model=place[1],
            engine=place[0],
            now=short(now),
            before=short(expected),
            machine=self._machine.name,
        )
        with self._lock:
            known = place in self._others
            self._others[place] = now
        if not known:
            log.error("%s", why)
            self._changed(place, why)
        return ModelMissing(why)


@dataclass(frozen=True)
class WeightsCheck:
    """Around the generations of one run."""

    digests: ModelDigests
    place: Place

    def before(self, seconds: float) -> None:
        """Raises ModelMissing when the model is known to have other weights than it had."""
        self.digests.before_run(self.place, seconds)

    def after(self, told: str, seconds: float) -> str:
        """The digest to keep with an answer that tells this one. Raises ModelMissing as `before`."""
        return self.digests.verify(self.place, seconds, told)


def counters(engines: Mapping[str, Engine]) -> dict[str, dict[str, float]]:
    """What each engine that counts reports, as far as it is a number with a name that it declares."""
    return {name: _counted(engine) for name, engine in engines.items() if isinstance(engine, ReportsMetrics)}


def metric_types(engines: Mapping[str, Engine]) -> dict[str, dict[str, str]]:
    """Name -> kind and help of all that these engines may report."""
    reporting = [engine for engine in engines.values() if isinstance(engine, ReportsMetrics)]
    return {name: one for engine in reporting for name, one in _types(engine).items()}


def _types(engine: ReportsMetrics) -> dict[str, dict[str, str]]:
    try:
        return {name: asdict(one) for name, one in engine.metrics.items()}
    except Exception:
        log.exception(
            "the details of an engine could not be read"
        )  # figures must not cost the machine its heartbeat
        return {}


def _counted(engine: ReportsMetrics) -> dict[str, float]:
    try:
        found = engine.counters()
        return {
            name: float(found[name]) for name in engine.metrics if math.isfinite(found.get(name, math.nan))
        }
    except Exception:
        log.exception(
            "the metrics of an engine could not be read"
        )  # figures must not cost the machine its heartbeat
        return {}
