"""What processes say while they run: one line a message on standard error, plain or as JSON."""

from __future__ import annotations

import logging
import os

from structlog.contextvars import get_contextvars

from grading.domain.errors import ConfigError

OURS = ("app", "cli", "grading", "workers")
FORMATS = ("plain", "json")


def configure(part: str, machine: str = "") -> None:
    """Show warnings of everybody and what our own packages tell of their work.

    GRADER_LOG chooses `plain` (the default) or `json`, where each line says its `part` of the system and the
    ids of `grading.shared.telemetry`. Raises ConfigError.
    """
    form = os.environ.get("GRADER_LOG") or "plain"
    if form not in FORMATS:
        raise ConfigError(f"GRADER_LOG: '{form}' is not supported. Use {' or '.join(FORMATS)}.")
    handler = logging.StreamHandler()
    handler.addFilter(_add_request)
    handler.setFormatter(_json(part, machine) if form == "json" else _plain())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(form == "json")
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)


def _plain() -> logging.Formatter:
    return logging.Formatter(
        "%(asctime)s %(levelname)s %(name)s%(about)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S%z"
    )


def _add_request(record: logging.LogRecord) -> bool:
    """Add ` [ID]` of the request that is answered, for plain lines."""
    request = get_contextvars().get("request")
    record.about = f" [{request}]" if request else ""
    return True


def _json(part: str, machine: str) -> logging.Formatter:
    import structlog
    from structlog.typing import EventDict, WrappedLogger

    def whose(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        first = {name: line.pop(name) for name in ("time", "level", "logger", "event")}
        return {**first, "part": part, **({"machine": machine} if machine else {}), **line}

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.contextvars.merge_contextvars,
            whose,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )
