"""The web app under gunicorn, one process with threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from app import create_app
from app.services import Services
from cli.settings import lms_secrets, secret_key
from grading import tracing
from grading.config import Config
from grading.dispatch import open_dispatch
from grading.store import Store


def build(config: Config, folder: Path) -> Flask:
    """The app, wired to the store and the queue."""
    return create_app(
        Services(
            config=config,
            store=Store(config.database.url),
            dispatch=open_dispatch(config),
            secret_key=secret_key(folder),
            lms_secrets=lms_secrets(config, os.environ),
            metrics_token=os.environ.get("GRADER_METRICS_TOKEN", ""),
        )
    )


class OneLog(Logger):  # type: ignore[misc]
    """Gunicorn's messages go where all others go, in the same form."""

    def setup(self, cfg: Any) -> None:
        """As gunicorn does, but without handlers of its own."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class WebServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn without its own command line."""

    def __init__(self, config: Config, folder: Path, host: str, port: int) -> None:
        self.grader_config = config
        self.folder = folder
        self.address = f"{host}:{port}"
        super().__init__()

    def load_config(self) -> None:
        """Gunicorn's settings from ours."""
        server = self.grader_config.server
        settings: dict[str, Any] = {
            "bind": self.address,
            "worker_class": "gthread",
            "workers": 1,
            "threads": server.threads,
            "timeout": 120,
            "graceful_timeout": 20,
            "loglevel": "warning",
            "proc_name": "grader-web",
            "control_socket_disable": True,
            "logger_class": OneLog,
        }
        for key, value in settings.items():
            if key in self.cfg.settings:
                self.cfg.set(key, value)

    def load(self) -> Flask:
        """The app, built after the fork: no connection is shared between processes."""
        tracing.start("web", os.environ)
        return build(self.grader_config, self.folder)
