"""The stages a machine can do: prompt, schema and parsing of each, and the run of one on an engine."""

from workers.machine.stages.base import Stage, known_stages
from workers.machine.stages.run import run_stage

__all__ = ["Stage", "known_stages", "run_stage"]
