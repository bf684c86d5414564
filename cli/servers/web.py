"""The web app as a process."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from flask import Flask

from app import create_app
from app.web.services import Services
from cli.model_requests import open_door
from cli.servers.connections import MIB, Bounds
from cli.servers.http import HttpServer
from cli.settings import lms_secrets, secret_key
from grading.broker.dispatch import open_dispatch
from grading.config.settings import Config
from grading.shared import telemetry
from grading.store import Store


def build(config: Config, folder: Path) -> Flask:
    """The app, wired to the store and the queue."""
    store, dispatch = Store(config.database.url), open_dispatch(config)
    return create_app(
        Services(
            config=config,
            store=store,
            dispatch=dispatch,
            door=open_door(config, store, dispatch),
            secret_key=secret_key(folder),
            lms_secrets=lms_secrets(config, os.environ),
            metrics_token=os.environ.get("GRADER_METRICS_TOKEN", ""),
        )
    )


YOUNG = 50_000
"""Objects after which the collector looks for cycles; a page makes some thousands, of which none stays."""


def settle() -> None:
    """Let the collector of cycles leave alone what is there for good: to look through it all takes 0.3 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)


class WebServer(HttpServer):
    """The web app as its own process."""

    def __init__(self, config: Config, folder: Path, host: str, port: int) -> None:
        def traced() -> Flask:
            telemetry.start("web", os.environ)
            app = build(config, folder)
            settle()
            return app

        bounds = Bounds(body_bytes=config.server.max_upload_mb * MIB)
        threads = config.server.threads
        super().__init__(host, port, threads=threads, graceful_s=20, bounds=bounds, build=traced)
