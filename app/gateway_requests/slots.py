"""Slots for open gateway requests, limited by token, with the services that requests need."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from flask import current_app

from app.gateway_requests.errors import TooMany
from grading.broker.gateway_requests import NO_MODEL, Talks, alias, chat_queue
from grading.broker.leases import Leases
from grading.config.settings import Config, Gateway
from grading.store import Store

HOLD_S = 10.0
"""So long the status of an answer is kept back, so that an early failure has one of its own."""


@dataclass(frozen=True)
class GatewayServices:
    """Everything the gateway is given. `send` puts a request into the queue of a model."""

    config: Config
    store: Store
    leases: Leases
    talks: Talks
    send: Callable[[str, str], None]

    @property
    def settings(self) -> Gateway:
        """Its section of config.toml."""
        return self.config.gateway

    def models(self) -> dict[str, str]:
        """What requests can ask for now, with the engine it runs in; from the heartbeats of live machines."""
        found: dict[str, str] = {}
        for heartbeat in self.leases.heartbeats():
            if (
                not heartbeat.alive
                or heartbeat.drained
                or heartbeat.reserved == "testing"
                or heartbeat.slots < 2
            ):
                continue
            if any(one.get("state") != "closed" for one in heartbeat.circuits.values()):
                continue  # it takes no gateway requests now
            for stage, placement in heartbeat.stages.items():
                engine, model = placement.get("engine", ""), placement.get("model", "")
                if placement.get("source") == NO_MODEL:
                    continue
                found |= {model: engine, alias(stage): engine}
        return dict(sorted(found.items()))

    def configured(self, name: str) -> bool:
        """Whether a machine of config.toml could have it, alive or not."""
        without = {
            (heartbeat.machine, placement.get("engine"))
            for heartbeat in self.leases.heartbeats()
            for placement in heartbeat.stages.values()
            if placement.get("source") == NO_MODEL
        }
        return any(
            name in (placement.model, alias(stage)) and (machine.name, placement.engine) not in without
            for machine in self.config.machines
            for stage, placement in machine.stages.items()
        )

    def waiting(self, model: str) -> int:
        """Requests that wait for a model."""
        queue = chat_queue(model)
        return self.leases.lengths([queue])[queue]


class RequestSlots:
    """Requests that are open, by token; one a process. Raises TooMany beyond the limits."""

    def __init__(self, gateway: GatewayServices) -> None:
        self.gateway = gateway
        self._open: Counter[int | None] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, token: int | None) -> Iterator[None]:
        """Hold a slot while a request is open, or raise TooMany."""
        settings = self.gateway.settings
        with self._lock:
            if self._open[token] >= settings.per_token:
                raise TooMany(
                    f"This token already has {settings.per_token} open requests. Wait until one is finished."
                )
            if self._open.total() >= settings.at_once:
                raise TooMany
            self._open[token] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[token] -= 1
                if not self._open[token]:
                    del self._open[token]


def request_slots() -> RequestSlots:
    """Those of the current app."""
    return cast(RequestSlots, current_app.extensions["gateway"])
