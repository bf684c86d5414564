"""The gateway under gunicorn, one process with threads."""

from __future__ import annotations

from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication

from app.gateway import Door, create_gateway
from cli.web_server import OneLog
from grading import queue
from grading.config import Config
from grading.guests import CHAT, Talks, chat_queue
from grading.leases import Leases, connect
from grading.store import Store

SPARE_THREADS = 8
"""For refusing and listing while as many requests are open as may be."""


def build(config: Config) -> Flask:
    """The gateway, wired to the store and the queue."""
    celery = queue.celery_app(config.redis.url, config.redis.visibility_timeout_s)

    def send(guest: str, model: str) -> None:
        to = chat_queue(model)
        celery.send_task(CHAT, args=[guest], task_id=guest, queue=to, ignore_result=True, **queue.unsaid())

    leases = Leases(connect(config.redis.url))
    return create_gateway(Door(config, Store(config.database.url), leases, Talks(leases.redis), send))


class GatewayServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn without its own command line."""

    def __init__(self, config: Config, host: str, port: int) -> None:
        self.grader_config = config
        self.address = f"{host}:{port}"
        super().__init__()

    def load_config(self) -> None:
        """Gunicorn's settings from ours; an open request keeps a thread."""
        settings: dict[str, Any] = {
            "bind": self.address,
            "worker_class": "gthread",
            "workers": 1,
            "threads": self.grader_config.gateway.at_once + SPARE_THREADS,
            "timeout": 120,
            "graceful_timeout": 5,
            "loglevel": "warning",
            "proc_name": "grader-gateway",
            "control_socket_disable": True,
            "logger_class": OneLog,
        }
        for key, value in settings.items():
            if key in self.cfg.settings:
                self.cfg.set(key, value)

    def load(self) -> Flask:
        """The app, built after the fork: no connection is shared between processes."""
        return build(self.grader_config)
