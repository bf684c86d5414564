"""Starting the worker of one machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from celery import Celery

from grading import queue
from grading.config import Config, EngineSettings, Machine
from grading.leases import Leases, connect
from workers.machine.engines import open_engine
from workers.machine.process import MachineProcess
from workers.start import run_worker


def open_machine(config: Config, machine: Machine, app: Celery) -> MachineProcess:
    """The process of a machine with its engines; nothing is loaded or connected yet."""
    names: set[str] = {placement.engine for placement in machine.stages.values()}
    engines = {name: open_engine(name, _settings(machine, name)) for name in sorted(names)}

    def send(result: Mapping[str, Any]) -> None:
        app.send_task(queue.RECORD, args=[result], queue=queue.STORE, ignore_result=True)

    return MachineProcess(machine, engines, Leases(connect(config.redis.url)), send)


def _settings(machine: Machine, engine: str) -> dict[str, Any]:
    settings = machine.engines.get(engine) or EngineSettings()
    chosen: dict[str, Any] = dict(settings.options)
    if settings.url is not None:
        chosen["url"] = settings.url
    if engine == "mlx":
        chosen.setdefault("slots", machine.slots)
    return chosen


def start(config: Config, name: str) -> None:
    """Run the worker of machine `name` until it is told to stop."""
    machine = config.machine(name)
    app = queue.celery_app(config.redis.url, config.redis.visibility_timeout_s)
    process = open_machine(config, machine, app)

    @app.task(name=queue.RUN)
    def run(job: dict[str, Any]) -> dict[str, Any]:
        return process.run(job)

    heart = threading.Thread(target=process.beat_until_stopped, name="heartbeat", daemon=True)

    def ready() -> None:
        process.beat()
        heart.start()
        app.send_task(queue.RELEASE, queue=queue.STORE, ignore_result=True)

    try:
        run_worker(app, name, queue.stage_queues(list(machine.stages)), machine.slots, ready)
    finally:
        process.close()
