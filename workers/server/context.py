"""What the processes beside the database share: store, queue, rubric versions."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from grading.config import Config
from grading.dispatch import Dispatch, open_dispatch
from grading.store import Store
from workers.server.backlog import Told
from workers.server.versions import Versions


@dataclass(frozen=True)
class Server:
    """The server side of the system."""

    config: Config
    store: Store
    dispatch: Dispatch
    versions: Versions = field(default_factory=Versions)
    releasing: threading.Lock = field(default_factory=threading.Lock)
    wanted: threading.Event = field(default_factory=threading.Event)
    """Somebody asked for a release since the last one began."""
    told: Told = field(default_factory=Told)


def open_server(config: Config) -> Server:
    """Connect lazily to what the configuration names."""
    return Server(config, Store(config.database.url), open_dispatch(config))
