"""Slots for open gateway requests and quotas of API tokens, with the services that requests need."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from flask import current_app
from redis.exceptions import RedisError

from app.gateway_requests.errors import QuotaSpent, TooMany
from grading.broker.away import why_away
from grading.broker.gateway_requests import NO_MODEL, Talks, alias, chat_queue, embedder
from grading.broker.heartbeats import Heartbeat
from grading.broker.leases import Leases
from grading.broker.token_use import TokenUse
from grading.config.settings import Config, Gateway
from grading.domain.jobs import Tokens
from grading.store import Store
from grading.store.accounts import gateway_use

log = logging.getLogger(__name__)
HOLD_S = 10.0
"""So long the status of an answer is kept back, so that an early failure has one of its own."""


@dataclass(frozen=True)
class Offer:
    """What live machines can be asked for: models and names of stages for chats, models for embeddings."""

    models: frozenset[str]
    embedders: frozenset[str]

    def answers(self, name: str) -> bool:
        """Whether a request for this name, as `Ask.model` has it, can be answered."""
        return name in self.models or name in map(embedder, self.embedders)


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

    def offer(self) -> Offer:
        """What requests can ask for now; from the heartbeats of live machines."""
        models: set[str] = set()
        embedders: set[str] = set()
        for heartbeat in self._serving():
            embedders |= set(heartbeat.embeddings)
            for stage, placement in heartbeat.stages.items():
                if placement.get("source") != NO_MODEL:
                    models |= {placement.get("model", ""), alias(stage)}
        return Offer(frozenset(models), frozenset(embedders))

    def _serving(self) -> Iterator[Heartbeat]:
        """Machines that take gateway requests now."""
        for heartbeat in self.leases.heartbeats():
            kept = heartbeat.drained or heartbeat.reserved == "testing" or heartbeat.slots < 2
            broken = any(one.get("state") != "closed" for one in heartbeat.circuits.values())
            if heartbeat.alive and not kept and not broken:
                yield heartbeat

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

    def configured_embedder(self, model: str) -> bool:
        """Whether a machine of config.toml makes embeddings with it, alive or not."""
        return any(model in machine.embedders for machine in self.config.machines)

    def waiting(self, model: str) -> int:
        """Requests that wait for a model."""
        queue = chat_queue(model)
        return self.leases.lengths([queue])[queue]


class RequestSlots:
    """Requests that are open: all of this process, and those of a token at all gateways together."""

    def __init__(self, gateway: GatewayServices) -> None:
        self.gateway = gateway
        self._use = TokenUse(gateway.talks.redis)
        self._open = 0
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self, token_id: int, request_id: str) -> Iterator[None]:
        """Hold a slot while a request is open. Raises TooMany, QuotaSpent and redis errors."""
        with self._lock:
            if self._open >= self.gateway.settings.at_once:
                raise TooMany
            self._open += 1
        try:
            self._admit(token_id, request_id)
            try:
                yield
            finally:
                self._leave(token_id, request_id)
        finally:
            with self._lock:
                self._open -= 1

    def charge(self, token_id: int, model: str, tokens: Tokens) -> None:
        """Count what an answer took; the client has its answer also where Redis is away by now."""
        try:
            self._use.charge(token_id, model, tokens)
        except RedisError as error:
            log.warning("%s, an answer was not counted: %s", why_away(error), error)

    def _leave(self, token_id: int, request_id: str) -> None:
        try:
            self._use.leave(token_id, request_id)
        except RedisError as error:
            log.warning("%s, a request counts as open for some seconds: %s", why_away(error), error)

    def _admit(self, token_id: int, request_id: str) -> None:
        settings = self.gateway.settings
        with self.gateway.store.read() as session:
            own = gateway_use.own_limit(session, token_id)
        limit = settings.daily_tokens if own is None else own
        wanted = (token_id, request_id, settings.per_token, limit)
        found = self._use.admit(*wanted)
        if found.decision == "unknown":
            with self.gateway.store.read() as session:
                so_far = gateway_use.tokens_of_day(session, token_id, found.day)
            found = self._use.admit(*wanted, so_far)
        if found.decision == "spent":
            raise QuotaSpent(limit, found.left_s)
        if found.decision == "too_many":
            raise TooMany(
                f"This token already has {settings.per_token} open requests. Wait until one is finished."
            )


def request_slots() -> RequestSlots:
    """Those of the current app."""
    return cast(RequestSlots, current_app.extensions["gateway"])
