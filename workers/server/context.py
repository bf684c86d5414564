"""What the processes beside the database share: store, queue, rubric versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grading.broker.dispatch import Dispatch, open_dispatch
from grading.config.settings import Config
from grading.store import Store
from workers.server.backlog import Told
from workers.server.rubric_cache import Versions


@dataclass
class Passes:
    """Who dispatches in this process: one thread at a time."""

    busy: threading.Lock = field(default_factory=threading.Lock)
    wanted: threading.Event = field(default_factory=threading.Event)
    """Somebody asked for a pass since the last one began."""
    clock: Callable[[], float] = time.monotonic
    rest_until: float = float("-inf")
    """Until then a result asks for no pass."""


@dataclass
class Halfway:
    """Rounds of which this process recorded a stage: the next result may be their last."""

    most: int = 10_000
    _rounds: dict[str, None] = field(default_factory=dict)

    def completes(self, round_ids: Sequence[str]) -> bool:
        """Whether results of these rounds, one each, may make one of them complete. They are noted."""
        found = len(set(round_ids)) < len(round_ids) or any(one in self._rounds for one in round_ids)
        if len(self._rounds) > self.most:
            self._rounds.clear()
        self._rounds.update(dict.fromkeys(round_ids))
        return found


@dataclass(frozen=True)
class Server:
    """The server side of the system."""

    config: Config
    store: Store
    dispatch: Dispatch
    versions: Versions = field(default_factory=Versions)
    passes: Passes = field(default_factory=Passes)
    halfway: Halfway = field(default_factory=Halfway)
    told: Told = field(default_factory=Told)


def open_server(config: Config) -> Server:
    """Connect lazily to what the configuration names."""
    return Server(config, Store(config.database.url), open_dispatch(config))
