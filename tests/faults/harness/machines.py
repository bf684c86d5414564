"""The machines of a fault test, and the config.toml that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

BOTH = ("analysis", "feedback")
FAKETIME = ("env", "FAKETIME_FORCE_MONOTONIC_FIX=0", "faketime", "--exclude-monotonic", "-f")
"""Its correction for an old glibc makes waits with a limit end at once: Python's threads then spin."""


@dataclass(frozen=True)
class MachineSpec:
    """A machine with the `instant` engine, whose answers take `seconds`.

    `behind_proxy` lets its way to Redis be cut. `clock` is how far its clock is off, such as "+1h". A
    submission that contains `exits_on` ends its worker. A machine that is `silent` writes nothing.
    """

    name: str
    slots: int = 2
    seconds: float = 0.3
    role: str = "primary"
    stages: tuple[str, ...] = BOTH
    exits_on: str = ""
    silent: bool = False
    behind_proxy: bool = False
    clock: str = ""
    grace_s: float = 20
    model: str = "m"

    def toml(self) -> str:
        """Its part of config.toml."""
        options = f"seconds = {self.seconds}"
        if self.exits_on:
            options += f", exits_on = {json.dumps(self.exits_on)}"
        if self.silent:
            options += ", silent = true"
        place = f'{{ engine = "instant", model = "{self.model}" }}'
        placements = "\n".join(f"{stage} = {place}" for stage in self.stages)
        return (
            f'[[machines]]\nname = "{self.name}"\nrole = "{self.role}"\nslots = {self.slots}\n'
            f"grace_s = {self.grace_s}\n"
            f"[machines.engines.instant]\noptions = {{ {options} }}\n[machines.stages]\n{placements}\n"
        )

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command its worker is started under."""
        return (*FAKETIME, self.clock) if self.clock else ()


def config_of(machines: Iterable[MachineSpec], port: int, more: str = "") -> str:
    """A whole config.toml; `more` are further sections."""
    head = f"[server]\nport = {port}\nuploads_per_minute = 100000\napi_per_minute = 10000000\n{more}\n"
    return head + "\n".join(machine.toml() for machine in machines)
