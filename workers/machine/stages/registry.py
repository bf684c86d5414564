"""What a machine does for each stage, by the module of this package that has the stage's name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from grading.domain.stages import STAGES
from workers.machine.stages.base import Stage


@cache
def known_stages() -> Mapping[str, Stage]:
    """Stages by name; each module has its value as STAGE."""
    return MappingProxyType({name: import_module(f"workers.machine.stages.{name}").STAGE for name in STAGES})
