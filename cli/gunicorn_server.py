"""A Flask app under gunicorn: one process with threads, without gunicorn's own command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger


class OneLog(Logger):  # type: ignore[misc]
    """Gunicorn's messages go where all others go, in the same form."""

    def setup(self, cfg: Any) -> None:
        """As gunicorn does, but without handlers of its own."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class GunicornServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """Serves what `build` makes at `address` (HOST:PORT); an open request keeps one of `threads`.

    Open requests have `graceful_s` seconds when it is told to stop.
    """

    def __init__(
        self, name: str, address: str, *, threads: int, graceful_s: int, build: Callable[[], Flask]
    ) -> None:
        self.build = build
        self.wanted: dict[str, Any] = {
            "bind": address,
            "worker_class": "gthread",
            "workers": 1,
            "threads": threads,
            "timeout": 120,
            "graceful_timeout": graceful_s,
            "loglevel": "warning",
            "proc_name": name,
            "control_socket_disable": True,
            "logger_class": OneLog,
        }
        super().__init__()

    def load_config(self) -> None:
        """Gunicorn's settings; those that its version does not know are left out."""
        for key, value in self.wanted.items():
            if key in self.cfg.settings:
                self.cfg.set(key, value)

    def load(self) -> Flask:
        """The app, built after the fork: no connection is shared between processes."""
        return self.build()
