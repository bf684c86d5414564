"""Starting the worker of one machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore

from grading import queue
from grading.config import Config, EngineSettings, Machine
from grading.leases import Leases, connect
from workers.machine.engines import open_engine
from workers.machine.process import HandOn, MachineProcess
from workers.start import run_worker


def open_machine(config: Config, machine: Machine, app: Celery) -> MachineProcess:
    """The process of a machine with its engines; nothing is loaded or connected yet."""
    names: set[str] = {placement.engine for placement in machine.stages.values()}
    engines = {name: open_engine(name, _settings(machine, name)) for name in sorted(names)}

    def send(result: Mapping[str, Any]) -> None:
        app.send_task(queue.RECORD, args=[result], queue=queue.STORE, ignore_result=True, **queue.unsaid())

    return MachineProcess(machine, engines, Leases(connect(config.redis.url)), send)


def _settings(machine: Machine, engine: str) -> dict[str, Any]:
    settings = machine.engines.get(engine) or EngineSettings()
    chosen: dict[str, Any] = dict(settings.options)
    if settings.url is not None:
        chosen["url"] = settings.url
    if engine == "mlx":
        chosen.setdefault("slots", machine.slots)
    return chosen


def _handed_on(task: Task, machine: str) -> bool:
    return bool((task.request.delivery_info or {}).get("routing_key") == queue.own_queue(machine))


def _hand_on(task: Task) -> HandOn:
    def send(machine: str) -> None:
        # the same id and chord: it counts once, whoever does it
        task.signature_from_request(queue=queue.own_queue(machine)).apply_async()

    return send


def start(config: Config, name: str) -> None:
    """Run the worker of machine `name` until it is told to stop."""
    machine = config.machine(name)
    app = queue.celery_app(config.redis.url, config.redis.visibility_timeout_s)
    process = open_machine(config, machine, app)

    @app.task(name=queue.RUN, bind=True)
    def run(self: Task, job: dict[str, Any]) -> dict[str, Any]:
        result = process.run(job, None if _handed_on(self, name) else _hand_on(self))
        if result is None:
            raise Ignore  # the same message is on its way to another machine; the chord waits for that one
        return result

    heart = threading.Thread(target=process.beat_until_stopped, name="heartbeat", daemon=True)

    def ready() -> None:
        # first of all and whatever Redis answers: a machine that never beats loses all its work
        heart.start()
        threading.Thread(target=process.load_models, name="load", daemon=True).start()
        app.send_task(queue.RELEASE, queue=queue.STORE, ignore_result=True)

    try:
        run_worker(app, name, queue.machine_queues(name, list(machine.stages)), machine.slots, ready)
    finally:
        process.close()
