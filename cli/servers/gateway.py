"""The gateway as a process."""

from __future__ import annotations

from flask import Flask

from app.gateway import Door, create_gateway
from cli.servers.connections import Bounds
from cli.servers.http import HttpServer
from grading.broker import celery_app
from grading.broker.dispatch import open_leases
from grading.broker.gateway_requests import CHAT, Talks, chat_queue
from grading.config.settings import Config
from grading.store import Store

SPARE_THREADS = 8
"""For refusing and listing while as many requests are open as may be."""


def build(config: Config) -> Flask:
    """The gateway, wired to the store and the queue."""
    celery = celery_app.celery_app(config.redis.url, config.redis.visibility_timeout_s)

    def send(guest: str, model: str) -> None:
        to = chat_queue(model)
        celery.send_task(
            CHAT, args=[guest], task_id=guest, queue=to, ignore_result=True, **celery_app.unsaid()
        )

    leases = open_leases(config)
    return create_gateway(Door(config, Store(config.database.url), leases, Talks(leases.redis), send))


class GatewayServer(HttpServer):
    """The gateway as its own process."""

    def __init__(self, config: Config, host: str, port: int) -> None:
        threads = config.gateway.at_once + SPARE_THREADS
        super().__init__(
            host,
            port,
            threads=threads,
            graceful_s=5,
            bounds=Bounds(body_bytes=config.gateway.max_body_kb * 1024),
            build=lambda: build(config),
            notices_leaving=True,
        )
