"""Digests of this machine's models and metrics of its engines, as its heartbeats carry them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import asdict

from grading.broker.gateway_requests import NO_MODEL
from grading.config.settings import Machine
from grading.domain.errors import EngineError
from workers.machine.engines.base import Engine, LoadsModels, ReportsDigest, ReportsMetrics, model_source

log = logging.getLogger(__name__)
PATIENCE_S = 600.0
"""For one digest: a model of 60 GB from a slow disk."""
AGAIN_S = 300.0
"""Models may be fetched anew while the machine works."""
UNKNOWN_AGAIN_S = 30.0
"""The engine may still be starting."""


class ModelDigests:
    """The digests of a machine's models, as engines tell them. Thread-safe."""

    def __init__(self, machine: Machine, engines: Mapping[str, Engine]) -> None:
        self._machine = machine
        self._engines = engines
        self._digests: dict[tuple[str, str], str] = {}

    def learn(self, engine: str, model: str, digest: str) -> None:
        """A generation or a load told a digest; an empty one says nothing."""
        if digest:
            self._digests[engine, model] = digest

    def digest(self, engine: str, model: str) -> str:
        """What is known by now; empty when nothing is."""
        return self._digests.get((engine, model), "")

    def stages(self) -> dict[str, dict[str, str]]:
        """Each stage's engine and model, where the model is from, and its digest where it is known."""
        found = {}
        for stage, place in self._machine.stages.items():
            engine = self._engines[place.engine]
            told = {
                "source": model_source(engine) if engine.uses_model else NO_MODEL,
                "digest": self.digest(place.engine, place.model),
            }
            known = {name: value for name, value in told.items() if value}
            found[stage] = {"engine": place.engine, "model": place.model, **known}
        return found

    def load(self) -> None:
        """Load what in-process engines will need, so that the first student does not wait for it."""
        for place in self._machine.stages.values():
            engine = self._engines[place.engine]
            if isinstance(engine, LoadsModels):
                try:
                    self.learn(place.engine, place.model, engine.load(place.model))
                except EngineError as error:
                    log.error("model %s could not be loaded: %s", place.model, error.message)

    def ask(self) -> bool:
        """Ask the engines that can tell; whether all of them did. May take minutes."""
        places = {(place.engine, place.model) for place in self._machine.stages.values()}
        told = [self.told_by(engine, model, PATIENCE_S) for engine, model in sorted(places)]
        return None not in told

    def told_by(self, name: str, model: str, seconds: float) -> str | None:
        """What an engine says now, empty when it cannot tell; None when it fails to, which may pass."""
        engine = self._engines[name]
        if not isinstance(engine, ReportsDigest):
            return ""
        try:
            digest = engine.digest(model, seconds)
        except EngineError as error:
            log.info("the model digest of %s on %s is unknown: %s", model, name, error.message)
            return None
        self.learn(name, model, digest)
        return digest

    def ask_until_stopped(self, stop: threading.Event) -> None:
        """Ask now and then again; the end of the thread that loads models."""
        while not stop.is_set():
            stop.wait(AGAIN_S if self.ask() else UNKNOWN_AGAIN_S)


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
