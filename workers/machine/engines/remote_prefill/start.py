"""The process that reads prompts for other machines."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

import structlog

from grading.config.machines import Machine
from grading.domain.errors import ConfigError
from workers.machine.engines.remote_prefill.models import Reader
from workers.machine.engines.remote_prefill.secret import secret
from workers.machine.engines.remote_prefill.server import Serving

log = structlog.get_logger(__name__)


def start(machine: Machine) -> None:
    """Load the models and read prompts until the process is told to end.

    Raises ConfigError and ModelMissing.
    """
    settings = machine.prefill
    if settings is None:
        raise ConfigError(f"The machine '{machine.name}' has no [machines.prefill] in the configuration.")
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    host, _, port = settings.listen.rpartition(":")
    known = secret(os.environ)
    reader = Reader(settings.models, step=settings.step, cache_gb=settings.cache_gb)
    try:
        log.info("prefill_loading", models=settings.models)
        reader.load()
        serving = Serving(reader, known, (host.strip("[]"), int(port)), most_bytes=settings.queue_mb << 20)
        log.info("prefill_listens", address=settings.listen)
        ended.wait()
        serving.close()
    finally:
        reader.close()
