"""What a machine finds out about itself when the doctor asks: link, one token a model, disk, memory."""

from __future__ import annotations

import json
import logging
import os
import platform
import secrets
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery
from redis import Redis
from redis.exceptions import RedisError

from grading.broker import celery_app
from grading.broker.canaries import examination_key
from grading.domain.errors import EngineError
from grading.shared.code_version import software
from workers.machine.circuits import probe
from workers.machine.engines.base import ReportsCapacity
from workers.machine.model_digests import counters
from workers.machine.worker import MachineProcess

log = logging.getLogger(__name__)
KEEP_S = 600
PINGS = 20
BLOCKS = (50_000, 1_000_000)
SLOW_S = 0.5
MOST_PATIENCE_S = 600.0


def examine(process: MachineProcess, patience_s: float) -> dict[str, Any]:
    """Everything the machine can say of itself, as JSON values; each model has `patience_s` for its token."""
    return {
        "machine": process.machine.name,
        "software": software(),
        "python": platform.python_version(),
        "link": _link(process.leases.redis, process.machine.name),
        "models": _models(process, patience_s),
        "disk_free_bytes": shutil.disk_usage(Path.home()).free,
        "memory": memory(),
    }


def _link(client: Redis, machine: str) -> dict[str, Any]:
    """Seconds of a round trip, and bytes a second each way, through Redis as jobs and results travel."""
    try:
        latency = statistics.median(_seconds(client.ping) for _ in range(PINGS))
        there, back = _speeds(client, machine)
    except RedisError as error:
        return {"error": str(error)[:200]}
    return {"latency_s": latency, "to_server_bytes_s": there, "from_server_bytes_s": back}


def _speeds(client: Redis, machine: str) -> tuple[float, float]:
    """Bytes a second to Redis and back; a slow line is not burdened with the larger block."""
    key = examination_key(machine, f"block-{secrets.token_hex(8)}")
    there = back = 0.0
    try:
        for size in BLOCKS:
            block = secrets.token_hex(size // 2)  # not compressible, and text for clients that decode
            there = _seconds(partial(client.set, key, block, ex=60))
            back = _seconds(partial(client.get, key))
            if there + back > SLOW_S:
                break
        return size / there, size / back
    finally:
        client.delete(key)


def _seconds(do: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    do()
    return max(time.perf_counter() - begun, 1e-9)


def _models(process: MachineProcess, patience_s: float) -> list[dict[str, Any]]:
    """One token from each model that the machine's stages use."""
    places = {(p.engine, p.model) for p in process.machine.stages.values()}
    return [_model(process, engine, model, patience_s) for engine, model in sorted(places)]


def _model(process: MachineProcess, engine: str, model: str, patience_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {"engine": engine, "kind": process.machine.kind(engine), "model": model}
    begun = time.monotonic()
    try:
        generation = probe(process.engines[engine], model, patience_s)
        left = max(1.0, patience_s - (time.monotonic() - begun))
        digest = process.model_digests.verify((engine, model), left, generation.digest)
    except EngineError as error:
        log.warning("%s on %s cannot be used: %s", model, engine, error.message)
        digest = process.model_digests.known((engine, model))
        return {**found, "ok": False, "error": error.code, "message": error.message, "digest": digest}
    seconds = time.monotonic() - begun
    return {
        **found,
        "ok": True,
        "seconds": seconds,
        "first_token_s": generation.first_token_s,
        "tokens": generation.tokens.output,
        "digest": digest,
        "counters": counters({engine: process.engines[engine]}).get(engine, {}),
        "capacity": _capacity(process, engine, model, max(1.0, patience_s - (time.monotonic() - begun))),
    }


def _capacity(process: MachineProcess, name: str, model: str, seconds: float) -> dict[str, Any]:
    """What an engine's server has room for; nothing is tried out beside students' work."""
    engine = process.engines[name]
    if not isinstance(engine, ReportsCapacity):
        return {}
    idle = not process.in_hand() and not process.gateway_requests()
    try:
        return asdict(engine.capacity(model, process.machine.slots_of(name) if idle else 1, seconds))
    except EngineError as error:
        log.info("the capacity of %s on %s is unknown: %s", model, name, error.message)
        return {}


def memory() -> dict[str, int]:
    """Bytes of memory in all, and available where the system says so."""
    found = {"total_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return found  # not Linux
    said = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    if "MemAvailable" in said:
        found["available_bytes"] = int(said["MemAvailable"][0]) * 1024
    return found


def leave_answer(process: MachineProcess, question: str, found: Mapping[str, Any]) -> None:
    """Keep what was found for who asked; see `cli.examinations`."""
    key = examination_key(process.machine.name, question)
    process.leases.redis.set(key, json.dumps(found), ex=KEEP_S)


def register(app: Celery, process: MachineProcess) -> None:
    """Make the examination known to a worker's application."""
    software()  # read now: later the files may be another version's

    @app.task(name=celery_app.EXAMINE, ignore_result=True)
    def examine_machine(examination: str, patience_s: float, until: float) -> None:
        if process.leases.time() > until:
            return  # nobody waits for it any more
        leave_answer(process, examination, examine(process, min(float(patience_s), MOST_PATIENCE_S)))
