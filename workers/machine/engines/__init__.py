"""Engines, software that generates text, each announced by an entry point of `grader.engines`.

What an engine must do stands in `base.py`; what a stage asks of it belongs to workers.machine.stages.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from grading.config.machines import EngineSettings, Machine
from grading.domain.errors import ConfigError
from workers.machine.engines.base import (
    ChecksMachine,
    Engine,
    Generation,
    MakesEmbeddings,
    ModelSource,
    Phase,
    Progress,
    Request,
    model_source,
)

__all__ = [
    "Engine", "Generation", "ModelSource", "Phase", "Progress", "Request", "known_engines", "open_engine",
    "open_engines", "source_of_models",
]  # fmt: skip

GROUP = "grader.engines"


def known_engines() -> Mapping[str, EntryPoint]:
    """The engines that are installed here, by name; none is imported."""
    return {one.name: one for one in sorted(entry_points(group=GROUP))}


def open_engines(machine: Machine) -> dict[str, Engine]:
    """The engines that a machine's stages and embeddings use. Raises ConfigError with the wrong key."""
    for stage, one in machine.stages.items():
        if _class(machine.kind(one.engine), one.engine).uses_model and not one.names_model:
            raise ConfigError(f"stages.{stage}.model: is missing; the engine {one.engine} runs models.")
    for name, settings in machine.engines.items():
        if settings.embeddings and not issubclass(_class(machine.kind(name), name), MakesEmbeddings):
            raise ConfigError(
                f"engines.{name}.embeddings: the engine {machine.kind(name)} makes no embeddings."
            )
    names = sorted({one.engine for one in (*machine.stages.values(), *machine.embedders.values())})
    return {name: _open_for(machine, name) for name in names}


def _open_for(machine: Machine, name: str) -> Engine:
    settings = machine.engines.get(name) or EngineSettings()
    kind = _class(machine.kind(name), name)
    if issubclass(kind, ChecksMachine):
        kind.check_machine(machine)
    chosen: dict[str, Any] = dict(settings.options)
    if settings.url is not None:
        chosen["url"] = settings.url
    if "slots" in inspect.signature(kind).parameters:
        chosen.setdefault("slots", machine.slots_of(name))
    return open_engine(machine.kind(name), chosen, name)


def source_of_models(name: str) -> ModelSource:
    """Where the engine of that name has its models from; empty where it is not installed here."""
    try:
        return model_source(_class(name))
    except ConfigError:
        return ""


def open_engine(kind_name: str, settings: Mapping[str, Any], name: str = "") -> Engine:
    """The engine of that kind with these settings; unknown kinds and settings raise a ConfigError.

    `name` is what the machine calls it, where that is another name.
    """
    name = name or kind_name
    kind = _class(kind_name, name)
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


def _class(kind: str, name: str = "") -> Any:
    """The engine's class, imported now: only the engines that a machine uses are."""
    known = known_engines()
    at = f"engines.{name}.kind" if name not in ("", kind) else f"engines.{kind}"
    if kind not in known:
        names = f"use one of {', '.join(known)}, or install the package that brings it."
        raise ConfigError(f"{at}: there is no such engine here; {names} A name of your own needs its `kind`.")
    try:
        return known[kind].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{at}: {known[kind].value} cannot be imported: {error}.") from error
