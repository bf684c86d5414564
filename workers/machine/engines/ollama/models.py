"""What an Ollama server tells of its models: how much they read, whether they think, what is loaded."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ollama import Client

T = TypeVar("T")
ABOUT_SECONDS = 300.0
DIGEST_SECONDS = 60.0
Think = bool | str | None
"""What is sent as `think`: off, the least where it cannot be off, or nothing for models that do not think."""


@dataclass(frozen=True)
class About:
    """A model by its own description; nothing where the server does not tell."""

    context: int | None = None
    """Tokens it was made to read and write at most."""
    think: Think = None


@dataclass(frozen=True)
class Held:
    """A model in the server's memory; 0 and empty where an older server does not tell."""

    context: int
    digest: str


class Models:
    """Looks up and remembers, by model. The server's refusals are no news; connection errors pass through."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._abouts: dict[str, tuple[float, About]] = {}
        self._digests: dict[str, tuple[float, str]] = {}

    def about(self, client: Client, model: str) -> About:
        """The description, asked for every five minutes."""
        from ollama import ResponseError

        if (known := self._fresh(self._abouts, model, ABOUT_SECONDS)) is not None:
            return known
        try:
            shown = client.show(model)
        except (ResponseError, ValueError, TypeError, AttributeError):
            return About()  # an older server, or a model it does not have: the chat will say so
        info = shown.modelinfo or {}
        found = About(_context(info), _think(model, info, shown.capabilities or ()))
        with self._lock:
            self._abouts[model] = (time.monotonic(), found)
        return found

    def held(self, client: Client, model: str) -> Held | None:
        """The model as it is loaded now; nothing when it is not, or the server does not tell."""
        from ollama import ResponseError

        try:
            loaded = client.ps().models
        except (ResponseError, ValueError, TypeError, AttributeError):
            return None
        for one in loaded:
            if one.model in _names(model):
                return Held(one.context_length or 0, _prefixed(one.digest))
        return None

    def digest(self, client: Client, model: str, loaded: str = "") -> str:
        """`sha256:HEX` the server lists for the name; looked up again when another one is `loaded`."""
        from ollama import ResponseError

        known = self._fresh(self._digests, model, DIGEST_SECONDS)
        if known is not None and loaded in ("", known):
            return known
        try:
            listed = client.list().models
        except (ResponseError, ValueError, TypeError, AttributeError):
            return ""
        digest = next((_prefixed(one.digest) for one in listed if one.model in _names(model)), "")
        with self._lock:
            old = self._digests.get(model)
            if digest:
                self._digests[model] = (time.monotonic(), digest)
            if old is not None and old[1] != digest:
                self._abouts.pop(model, None)  # pulled anew: it may have another description, too
        return digest

    def _fresh(self, kept: Mapping[str, tuple[float, T]], model: str, seconds: float) -> T | None:
        with self._lock:
            found = kept.get(model)
        return found[1] if found is not None and time.monotonic() - found[0] < seconds else None


def _names(model: str) -> tuple[str, str]:
    return model, f"{model}:latest"


def _prefixed(digest: str | None) -> str:
    return f"sha256:{digest.removeprefix('sha256:')}" if digest else ""


def _context(info: Mapping[str, Any]) -> int | None:
    lengths = [v for k, v in info.items() if k.endswith(".context_length") and isinstance(v, int) and v > 0]
    return min(lengths, default=None)


def _think(model: str, info: Mapping[str, Any], capabilities: Any) -> Think:
    if "thinking" not in capabilities:
        return None
    named = f"{info.get('general.architecture', '')} {model}".lower()
    # gpt-oss knows levels only and ignores an "off"
    return "low" if "gptoss" in named or "gpt-oss" in named else False
