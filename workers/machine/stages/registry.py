"""The open table of stages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from workers.machine.stages.analysis import ANALYSIS
from workers.machine.stages.base import Stage
from workers.machine.stages.feedback import FEEDBACK

STAGES: Mapping[str, Stage] = MappingProxyType({stage.name: stage for stage in (ANALYSIS, FEEDBACK)})
"""Stages by name. A new one is a file with a Stage value and its name here."""
