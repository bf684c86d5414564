"""What the processes beside the database share: store, queue, rubric versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from grading.config import Config
from grading.dispatch import Dispatch, open_dispatch
from grading.store import Store
from workers.server.backlog import Told
from workers.server.versions import Versions


@dataclass
class Passes:
    """Who dispatches in this process: one thread at a time."""

    busy: threading.Lock = field(default_factory=threading.Lock)
    wanted: threading.Event = field(default_factory=threading.Event)
    """Somebody asked for a pass since the last one began."""
    clock: Callable[[], float] = time.monotonic
    rest_until: float = float("-inf")
    """Until then a result asks for no pass."""


@dataclass(frozen=True)
class Server:
    """The server side of the system."""

    config: Config
    store: Store
    dispatch: Dispatch
    versions: Versions = field(default_factory=Versions)
    passes: Passes = field(default_factory=Passes)
    told: Told = field(default_factory=Told)


def open_server(config: Config) -> Server:
    """Connect lazily to what the configuration names."""
    return Server(config, Store(config.database.url), open_dispatch(config))
