"""The web app and the gateway as processes: what each serves, with how many threads, within which limits."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app import create_app
from app.gateway import GatewayServices, create_gateway
from app.web.services import Services
from cli.servers.certificates import certificate_ends
from cli.servers.connection_limits import MIB, Bounds
from cli.servers.waitress_server import HttpServer
from cli.settings import key_fingerprint, lms_secrets, secret_key, sign_on_secrets
from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.broker.connections import connect
from grading.broker.dispatch import Dispatch, open_dispatch, open_leases
from grading.broker.gateway_requests import CHAT, Talks, chat_queue
from grading.broker.part_heartbeats import send_heartbeats_until
from grading.broker.rate_counts import open_rate_counts
from grading.config.settings import Config
from grading.domain.errors import ConfigError
from grading.shared import telemetry
from grading.store import Store, open_store
from grading.store.accounts import second_factor

NO_BREAK_GLASS = (
    "sign_on.local_accounts: with false, somebody must get in when the provider is away. Set it to true, "
    "sign in with an administrator's account, set up its second factor on My account, run "
    "`grader user break-glass NAME`, and set it to false again."
)


def gateway_services(config: Config, store: Store, dispatch: Dispatch) -> GatewayServices:
    """The gateway's services for the web app, over the connections it has anyway."""

    def send(request_id: str, model: str) -> None:
        to, quiet = chat_queue(model), celery_app.unsaid()
        dispatch.celery.send_task(
            CHAT, args=[request_id], task_id=request_id, queue=to, ignore_result=True, **quiet
        )

    return GatewayServices(config, store, dispatch.registry, Talks(dispatch.registry.redis), send)


def create_web_app(config: Config, folder: Path, draining: Callable[[], bool] = lambda: False) -> Flask:
    """The app, wired to the store and the queue."""
    store, dispatch = open_store(config), open_dispatch(config)
    require_break_glass(config, store)
    return create_app(
        Services(
            config=config,
            store=store,
            dispatch=dispatch,
            gateway=gateway_services(config, store, dispatch),
            secret_key=secret_key(folder),
            lms_secrets=lms_secrets(config, os.environ),
            sign_on_secrets=sign_on_secrets(config, os.environ),
            metrics_token=os.environ.get("GRADER_METRICS_TOKEN", ""),
            certificate_ends=partial(certificate_ends, config),
            rate_counts=open_rate_counts(config.redis.url),
            draining=draining,
        )
    )


def require_break_glass(config: Config, store: Store) -> None:
    """Raise ConfigError where local accounts are off and no break-glass account can sign in.

    Nothing is said of a database that is away: web apps start without one.
    """
    if config.sign_on.local_accounts:
        return
    try:
        with store.read() as session:
            usable = second_factor.count_break_glass(session)
    except SQLAlchemyError:
        return
    if not usable:
        raise ConfigError(NO_BREAK_GLASS)


def settle() -> None:
    """Let the collector of cycles leave alone what is there for good: to look through it all takes 0.3 s."""
    gc.collect()
    gc.freeze()


SWITCH_S = 0.0005
"""After so long, a thread that computes lets another one go on."""


class WebServer(HttpServer):
    """The web app as its own process."""

    def __init__(self, config: Config, folder: Path, host: str, port: int) -> None:
        def traced() -> Flask:
            telemetry.start("web", os.environ)
            app = create_web_app(config, folder, lambda: self.draining)
            settle()
            self._begin_heartbeats(key_fingerprint(secret_key(folder)))
            return app

        bounds = Bounds(body_bytes=config.server.max_upload_mb * MIB)
        threads = config.server.threads
        super().__init__(
            host,
            port,
            threads=threads,
            graceful_s=20,
            bounds=bounds,
            build=traced,
            public_url=config.server.public_url,
            drain_s=config.server.drain_s,
        )
        self.config = config
        self._ended = threading.Event()

    def serve(self) -> None:
        """Serve until `stop`. Raises ConfigError."""
        # a request asks the database some thirty times; it must not wait 5 ms each time for one that computes
        sys.setswitchinterval(SWITCH_S)
        try:
            super().serve()
        finally:
            self._ended.set()

    def _begin_heartbeats(self, key: str) -> None:
        """Say that this web app lives, in which folder and with which secret key, for `grader doctor`."""
        canaries = Canaries(connect(self.config.redis.url))
        sending = (self._ended, canaries, "web")
        threading.Thread(
            target=send_heartbeats_until, args=sending, kwargs={"secret": key}, daemon=True
        ).start()


SPARE_THREADS = 8
"""For refusing and listing while as many requests are open as may be."""


def create_gateway_app(config: Config) -> Flask:
    """The gateway, wired to the store and the queue."""
    celery = celery_app.celery_app(config.redis.url, config.redis.visibility_timeout_s)

    def send(request_id: str, model: str) -> None:
        to = chat_queue(model)
        celery.send_task(
            CHAT, args=[request_id], task_id=request_id, queue=to, ignore_result=True, **celery_app.unsaid()
        )

    leases = open_leases(config)
    return create_gateway(GatewayServices(config, open_store(config), leases, Talks(leases.redis), send))


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
            build=lambda: create_gateway_app(config),
            notices_leaving=True,
        )
