"""Faults at random, several at a time, each healed after a while; the same seed gives the same order."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from redis.exceptions import RedisError

from tests.faults.harness.broker import Duplicator
from tests.faults.harness.cluster import Cluster
from tests.faults.harness.ledger import moment
from tests.support.services import Postgres

Heal = Callable[[], object]
MACHINES = ("kill a worker", "SIGSTOP", "cut off by a proxy", "cut off by the link")
"""What strikes machines comes three times as often as anything else."""
ENDS_S = 90.0
"""A worker ends within its grace, and what it takes to find out that Redis does not answer."""


@dataclass(frozen=True)
class Loss:
    """A machine that went with work in its hands."""

    at: datetime
    kind: str
    runs: frozenset[str]


@dataclass
class Chaos:
    """Strikes a running system and heals it. A part is struck again only when it was healed."""

    running: Cluster
    seed: int
    postgres: Postgres | None = None
    strikes: Counter[str] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    _healing: dict[str, tuple[float, Heal]] = field(default_factory=dict)
    """what was struck -> when it is healed, and how"""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._kinds: dict[str, Callable[[], bool]] = {
            "kill a worker": lambda: self._kill(list(self.running.machines)),
            "kill the store worker, sweeper or web app": lambda: self._kill(["store", "sweep", "web"]),
            "SIGSTOP": self._freeze,
            "cut off by a proxy": self._cut,
            "deploy": self._deploy,
            "Redis killed": self._crash_redis,
            "FLUSHALL": lambda: self._at_once(self.running.broker.forget_everything),
            "maxmemory 1": self._fill_redis,
            "every message 2 to 5 times": self._duplicate,
        }
        if self.running.links:
            self._kinds["cut off by the link"] = self._unplug
        if self.postgres is not None:
            self._kinds["PostgreSQL restarted"] = self._restart_postgres

    def step(self) -> None:
        """Heal what is due, then strike once, if what was chosen is free."""
        self.heal_due()
        kinds = sorted(self._kinds)
        kind = self.random.choices(kinds, [3 if kind in MACHINES else 1 for kind in kinds])[0]
        # every strike looks at Redis; what must come after it waits for the next
        with suppress(RedisError):
            if self._kinds[kind]():
                self.strikes[kind] += 1

    def heal_due(self, at: float | None = None) -> None:
        """Heal what was to be healed by now, or by another time."""
        now = time.monotonic() if at is None else at
        for target, (due, heal) in sorted(self._healing.items(), key=lambda item: item[1][0]):
            if due <= now:
                del self._healing[target]
                heal()

    def heal_all(self) -> None:
        """Heal everything."""
        self.heal_due(float("inf"))

    # --- what is struck -------------------------------------------------------------------------------

    def _strike(self, target: str, strike: Heal, heal: Heal, least_s: float, most_s: float) -> bool:
        if target in self._healing:
            return False
        strike()
        self._healing[target] = (time.monotonic() + self.random.uniform(least_s, most_s), heal)
        return True

    def _choose(self, names: list[str]) -> str:
        free = [name for name in names if name not in self._healing]
        return self.random.choice(free) if free else ""

    def _held(self, name: str) -> frozenset[str]:
        return frozenset(lease.run_id for lease in self.running.held_by(name))

    def _lose(self, kind: str, name: str, strike: Heal, heal: Heal, least_s: float, most_s: float) -> bool:
        """Strike a part; note the work it had in hand."""
        if not name:
            return False
        held = (
            self._held(name)
            if name in self.running.machines and "redis" not in self._healing
            else frozenset()
        )
        if held:
            self.losses.append(Loss(moment(), kind, held))
        return self._strike(name, strike, heal, least_s, most_s)

    def _kill(self, names: list[str]) -> bool:
        name = self._choose(names)
        return self._lose(
            "killed", name, lambda: self.running.kill(name), lambda: self.running.start(name), 0.5, 20
        )

    def _freeze(self) -> bool:
        name = self._choose([*self.running.machines, "store", "sweep"])
        return self._lose(
            "stopped", name, lambda: self.running.freeze(name), lambda: self.running.thaw(name), 2, 30
        )

    def _cut(self) -> bool:
        name = self._choose(list(self.running.proxies))
        proxy = self.running.proxies.get(name)
        return proxy is not None and self._lose("cut off", name, proxy.cut, proxy.heal, 5, 40)

    def _unplug(self) -> bool:
        name = self._choose(list(self.running.links))
        link = self.running.links.get(name)

        def up() -> None:
            assert link is not None
            link.up()
            self.running.broker.listen()

        return link is not None and self._lose("cut off", name, link.down, up, 5, 40)

    def _deploy(self) -> bool:
        name = self._choose(list(self.running.machines))
        if not name:
            return False
        process = self.running.stop(name)

        def start() -> None:
            process.wait(ENDS_S)
            self.running.start(name)

        return self._strike(name, lambda: None, start, 2, 4)

    def _crash_redis(self) -> bool:
        return self._strike("redis", self.running.broker.crash, self.running.broker.start, 0.5, 8)

    def _fill_redis(self) -> bool:
        return self._strike("redis", self.running.broker.fill, self.running.broker.empty, 2, 6)

    def _at_once(self, strike: Heal) -> bool:
        if "redis" in self._healing:
            return False
        strike()
        return True

    def _duplicate(self) -> bool:
        copies = Duplicator(self.running.broker.url, self.seed)
        return "redis" not in self._healing and self._strike(
            "deliveries", copies.__enter__, lambda: copies.__exit__(), 3, 8
        )

    def _restart_postgres(self) -> bool:
        assert self.postgres is not None
        return self._strike("postgres", self.postgres.stop, self.postgres.start, 0.2, 4)
