"""What the server processes share: store, queue, rubric versions, the backlog last sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grading.broker.dispatch import Dispatch, open_dispatch
from grading.config.settings import Config
from grading.store import Store, open_store
from grading.store.rounds import queue
from workers.server.rubric_cache import Versions

MOST = 2_000
"""Rounds of a priority that are counted; for a plan, more are as good as so many."""
FEW = 200
"""Runs that are counted after each chunk."""
EVERY_S = 1.0
"""More are counted no more often than this."""


@dataclass
class Told:
    """When this process last counted, and how much there was: counting costs what is counted."""

    clock: Callable[[], float] = time.monotonic
    at: float = float("-inf")
    runs: int = 0

    def tell(self, store: Store, dispatch: Dispatch, *, left: bool) -> None:
        """Count and tell, unless that was done a moment ago; `left` if something may wait.

        Raises redis and database errors.
        """
        moment = self.clock()
        if moment - self.at < EVERY_S and (self.runs > FEW or (self.runs == 0 and not left)):
            return
        with store.read() as session:
            found = queue.count_backlog(session, MOST)
        self.at, self.runs = moment, sum(found.values())
        dispatch.tell_backlog(found)


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
    return Server(config, open_store(config), open_dispatch(config))
