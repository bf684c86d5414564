"""Engines: software that generates text. Opened by name; each module is imported only when asked for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from grading.domain.errors import ConfigError
from workers.machine.engines.base import Engine, Generation, Phase, Progress, Request

__all__ = ["ENGINES", "Engine", "Generation", "Phase", "Progress", "Request", "open_engine"]

ENGINES: Mapping[str, str] = {
    "rules": "workers.machine.engines.rules.engine:RulesEngine",
    "instant": "workers.machine.engines.instant:InstantEngine",
    "ollama": "workers.machine.engines.ollama.engine:OllamaEngine",
    "openai": "workers.machine.engines.openai.engine:OpenAIEngine",
    "mlx": "workers.machine.engines.mlx.engine:MlxEngine",
    "hybrid": "workers.machine.engines.remote_prefill.engine:HybridEngine",
    "sharded": "workers.machine.engines.sharded.engine:ShardedEngine",
}


def open_engine(name: str, settings: Mapping[str, Any]) -> Engine:
    """The engine of that name with these settings; unknown names and settings raise a ConfigError."""
    if name not in ENGINES:
        raise ConfigError(
            f"engines.{name}: there is no such engine; use one of {', '.join(sorted(ENGINES))}."
        )
    module, _, attribute = ENGINES[name].partition(":")
    kind = getattr(import_module(module), attribute)
    parameters = inspect.signature(kind).parameters
    for key in settings:
        if key not in parameters:
            raise ConfigError(
                f"engines.{name}.{key}: no such setting; there are: {', '.join(parameters) or 'none'}."
            )
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in settings:
            raise ConfigError(f"engines.{name}.{key}: is missing.")
    return cast(Engine, kind(**settings))
