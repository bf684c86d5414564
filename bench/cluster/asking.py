"""What an emulated machine is asked for and what it tells; values only, times are the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Request:
    """What a machine is asked for. The first `shared` tokens of the prompt are known by the name `prefix`."""

    id: str
    model: str
    prompt: int
    output: int
    """Tokens the model will write before it ends by itself or by its limit."""
    prefix: str = ""
    shared: int = 0


@dataclass(frozen=True)
class Refused:
    """A request that was not taken; status 0: nobody answers there."""

    status: int
    why: str


@dataclass(frozen=True)
class Event:
    """Something that happened to a request, or to a model (`loaded`, `evicted`: its name is the id)."""

    at: float
    kind: Literal["first", "progress", "done", "lost", "loaded", "evicted"]
    id: str
    tokens: int = 0
    """Output tokens so far."""
    prompt: int = 0
    cached: int = 0
    """Prompt tokens that a kept prefix saved."""


@dataclass(frozen=True)
class Snapshot:
    """What a machine is at now."""

    at: float
    speed: float
    running: Mapping[str, int]
    """model -> requests in slots, those that read their prompt included."""
    waiting: int
    tokens: Mapping[str, int]
    """id -> output tokens so far, of those in slots."""
    loaded: tuple[str, ...]
    prefix_bytes: float
