"""The table [checks] of config.toml: where and within which limits students' work is run."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, model_validator

from grading.domain.value import Value

MOST_SLOTS = 64


class Checks(Value):
    """The pool that runs students' work in a sandbox."""

    sandbox: Literal["auto", "bubblewrap", "container", "none"] = "auto"
    """What work is run in; `auto` takes bubblewrap where it works, else the container engine if one is named,
    else `none`, which runs nothing and says so."""
    slots: int = Field(default=0, ge=0, le=MOST_SLOTS)
    """Documents that are run at the same time; 0: one a core that the pool may use."""
    engine: str = ""
    """The program of a container engine, `docker` or `podman`."""
    image: str = ""
    """The image that the container engine runs; `deploy/checks.Dockerfile` makes one."""
    python: str = ""
    """The Python that runs students' work; empty: the one `make checks` made, else the plain Python of this
    system."""
    r: str = ""
    """The Rscript that runs students' work; empty: the one on the PATH."""
    packages: tuple[str, ...] = ()
    """Packages that students may use though nothing of an assignment asks for them; where one of these is not
    installed, that is no fault of the work. An import of any other is."""
    seconds: float = Field(default=120.0, ge=1, le=3600)
    """Wall time of one document with all its tests, seconds."""
    cell_s: float = Field(default=30.0, ge=0.1, le=3600)
    """Wall time of one cell or script, seconds."""
    memory_mb: int = Field(default=1024, ge=128, le=1_000_000)
    """Memory of one document's processes together, MiB."""
    processes: int = Field(default=64, ge=8, le=4096)
    """Processes and threads of one document at the same time."""
    disk_mb: int = Field(default=256, ge=1, le=100_000)
    """What one document may write, MiB; it is kept in memory."""
    output_kb: int = Field(default=512, ge=16, le=16_384)
    """Text that one document may print, KiB."""

    @model_validator(mode="after")
    def _container_is_named(self) -> Checks:
        if self.sandbox == "container" and not (self.engine and self.image):
            raise ValueError("a container needs its engine (docker or podman) and an image")
        return self

    @property
    def at_once(self) -> int:
        """Documents that are run at the same time on this machine."""
        return self.slots or min(_usable_cores(), MOST_SLOTS)

    @property
    def limits(self) -> Limits:
        """What one trial may use."""
        names = ("seconds", "cell_s", "memory_mb", "processes", "disk_mb", "output_kb")
        return Limits(**{name: getattr(self, name) for name in names})


def _usable_cores() -> int:
    """Those that this process may use, fewer than there are where it was told so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Limits(Value):
    """What one trial may use."""

    seconds: float = Field(default=120.0, gt=0)
    """Wall time in all."""
    cell_s: float = Field(default=30.0, gt=0)
    """Wall time of one cell, or of a script."""
    memory_mb: int = Field(default=1024, ge=64)
    """Of all its processes together, MiB."""
    processes: int = Field(default=64, ge=4)
    """Processes and threads at the same time."""
    disk_mb: int = Field(default=256, ge=1)
    """What it may write, MiB."""
    output_kb: int = Field(default=512, ge=1)
    """Text it may print in all, KiB."""
