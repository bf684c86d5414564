"""A finding of the doctor, and what all diagnostics are given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from grading.config.settings import Config
from grading.domain.ssrf import Allowed, Refused, read, require
from grading.store.reporting.replication import BEHIND_BYTES, KEPT_BYTES

Level = Literal["ok", "warning", "failure"]
GB = 1_000_000_000


@dataclass(frozen=True)
class Finding:
    """What a diagnostic found; `remedy` says what to do about it, empty when all is well."""

    check: str
    level: Level
    message: str
    remedy: str = ""
    code: str = ""
    """Which finding it is, for programs and tests; empty when all is well."""


def ok(check: str, message: str) -> Finding:
    """It is as it should be."""
    return Finding(check, "ok", message)


def warning(code: str, check: str, message: str, remedy: str) -> Finding:
    """It works, but may not for long or not well."""
    return Finding(check, "warning", message, remedy, code)


def failure(code: str, check: str, message: str, remedy: str) -> Finding:
    """It does not work, or will lose something."""
    return Finding(check, "failure", message, remedy, code)


@dataclass(frozen=True)
class Bounds:
    """From where on a figure is a finding."""

    free_gb: float = 5.0
    """Less free disk space is a failure, less than three times as much a warning."""
    memory_share: float = 0.8
    """More of Redis' memory in use is a warning."""
    clock_s: float = 5.0
    backlog_s: float = 3600.0
    latency_s: float = 0.05
    bytes_s: float = 1e6
    certificate_days: float = 14.0
    backup_s: float = 36 * 3600.0
    """An older newest back-up is a warning: one of a night was left out."""
    replica_bytes: float = BEHIND_BYTES
    """Log that a replica may be behind."""
    slot_bytes: float = KEPT_BYTES
    """Log that is kept for a replica."""
    patience_s: float = 60.0
    """For one token of each model."""


@dataclass(frozen=True)
class Installation:
    """The installation that is looked at."""

    config: Config
    folder: Path
    environ: Mapping[str, str]
    bounds: Bounds = field(default_factory=Bounds)


def size(count: float) -> str:
    """Bytes in words."""
    return f"{count / GB:.1f} GB" if count >= GB / 10 else f"{count / 1e6:.1f} MB"


def disk(check: str, free: int, bounds: Bounds, remedy: str) -> Finding:
    """Whether so many free bytes are enough."""
    least = bounds.free_gb * GB
    message = f"{size(free)} free"
    if free < least:
        return failure("disk_full", check, f"{message}, less than {size(least)}", remedy)
    if free < 3 * least:
        return warning("disk_nearly_full", check, message, remedy)
    return ok(check, message)


def certificate(check: str, ends: float, bounds: Bounds) -> Finding:
    """Whether a certificate that ends then, in seconds since 1970, is valid for long enough."""
    left = (ends - time.time()) / 86_400
    message = f"the certificate expires in {left:.0f} days"
    if left < bounds.certificate_days:
        return warning("certificate_ends", check, message, "renew it now")
    return ok(check, message)


def shut(url: str, allowed: Allowed) -> str:
    """Why nothing is sent to an address, as far as that is known without looking up its name."""
    try:
        target = read(url)
        if target.literal is not None:
            require(target, target.literal, allowed)
    except Refused as error:
        return error.message
    return ""
