"""One Ollama server: a client an exchange under a watch, and what the server tells of its models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from grading.domain.errors import EngineError, EngineGarbled
from grading.domain.jobs import Timings
from workers.machine.engines.base import Cancel
from workers.machine.engines.http.errors import broke_off, garbled, status_error, unreachable
from workers.machine.engines.http.exchange import LastToken, Limits, Watch
from workers.machine.messages import NO_CHATS, OLLAMA_MODEL_MISSING

if TYPE_CHECKING:
    import httpx
    from ollama import ChatResponse, Client


T = TypeVar("T")


@dataclass(frozen=True)
class OllamaWire:
    """A server and the seconds it may take."""

    url: str
    limits: Limits
    heard: LastToken = field(default_factory=LastToken)

    @property
    def where(self) -> str:
        """The server as sentences name it."""
        return f"Ollama at {self.url}"

    def watch(self, seconds: float, cancel: Cancel) -> Watch:
        """A watch over an exchange with it."""
        return Watch(seconds, cancel, self.limits, self.where, self.heard)

    def exchange(self, watch: Watch, model: str, talk: Callable[[Client], T]) -> T:
        """What the talk gives; raises EngineErrors only, but for what the talk itself raises of its own."""
        # one connection an exchange, so that ending it ends exactly this one
        from ollama import Client

        from workers.machine.engines.http.exchange import identity_headers, watched_transport

        client = Client(
            host=self.url,
            timeout=self._timeouts(watch),
            follow_redirects=False,
            trust_env=False,
            headers=identity_headers(),
            transport=watched_transport(watch, self.where),
        )
        try:
            return self._guarded(watch, model, lambda: talk(client))
        finally:
            client.close()

    def _guarded(self, watch: Watch, model: str, talk: Callable[[], T]) -> T:
        import httpx
        from ollama import ResponseError

        try:
            return talk()
        except ResponseError as exc:
            raise watch.failure() or self._response_error(exc, model) from exc
        except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as exc:
            raise watch.failure() or unreachable(self.where, self.limits.connect) from exc
        except (httpx.HTTPError, httpx.StreamError, OSError) as exc:
            raise watch.failure() or broke_off(self.where, type(exc).__name__) from exc
        except EngineError as exc:
            raise watch.failure() or exc from exc
        except (ValueError, TypeError, AttributeError) as exc:
            # what the client raises on a line that is not a JSON object of the protocol
            raise watch.failure() or garbled(self.where) from exc

    def _response_error(self, exc: Any, model: str) -> EngineError:
        if exc.status_code < 0:
            return broke_off(self.where, str(exc.error)[:300])
        if exc.status_code == 404 and "model" not in str(exc.error):
            return EngineGarbled(NO_CHATS(engine=self.where))
        missing = OLLAMA_MODEL_MISSING(engine=self.where, model=model)
        return status_error(self.where, exc.status_code, str(exc.error), missing)

    def _timeouts(self, watch: Watch) -> httpx.Timeout:
        import httpx

        # the watch is the stricter one; this is the net below it
        net = max(self.limits.load, self.limits.chunk) + 5
        return httpx.Timeout(net, connect=min(self.limits.connect, watch.remaining))


ABOUT_SECONDS = 300.0
Think = bool | str | None
"""What is sent as `think`: off, the least where it cannot be off, or nothing for models that do not think."""


@dataclass(frozen=True)
class About:
    """A model by its own description; nothing where the server does not tell."""

    context: int | None = None
    """Tokens it was made to read and write at most."""
    think: Think = None
    tools: bool | None = None
    """Whether its template has a place for tools."""


@dataclass(frozen=True)
class RunningModel:
    """A model in the server's memory; 0 and empty where an older server does not tell."""

    context: int
    digest: str


class Models:
    """Looks up and remembers, by model. The server's refusals are no news; connection errors pass through."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._abouts: dict[str, tuple[float, About]] = {}
        self._digests: dict[str, str] = {}

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
        able = shown.capabilities or ()
        found = About(_context(info), _think(model, info, able), "tools" in able if able else None)
        with self._lock:
            self._abouts[model] = (time.monotonic(), found)
        return found

    def held(self, client: Client, model: str) -> RunningModel | None:
        """The model as it is loaded now; nothing when it is not, or the server does not tell."""
        from ollama import ResponseError

        try:
            loaded = client.ps().models
        except (ResponseError, ValueError, TypeError, AttributeError):
            return None
        for one in loaded:
            if one.model in _names(model):
                return RunningModel(one.context_length or 0, _prefixed(one.digest))
        return None

    def digest(self, client: Client, model: str, loaded: str = "") -> str:
        """`sha256:HEX` of the model that is `loaded`, else what the server lists for the name now."""
        from ollama import ResponseError

        digest = loaded
        if not digest:
            try:
                listed = client.list().models
            except (ResponseError, ValueError, TypeError, AttributeError):
                return ""
            digest = next((_prefixed(one.digest) for one in listed if one.model in _names(model)), "")
        with self._lock:
            if self._digests.get(model, digest) != digest:
                self._abouts.pop(model, None)  # pulled anew: it may have another description, too
            self._digests[model] = digest
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


def timings(last: ChatResponse, waited_s: float) -> Timings:
    """What an answer says of its times, which come in nanoseconds.

    Loading counts from the request's arrival until a runner has the model, so waiting for memory is part of
    it; what the total has beside it, the prompt and the answer is waiting for a free place in the runner.
    """
    load, prompt, output = (last.load_duration, last.prompt_eval_duration, last.eval_duration)
    rest = (last.total_duration or 0) - sum(part or 0 for part in (load, prompt, output))
    return Timings(
        queued_s=max(0, rest) / 1e9 + waited_s if last.total_duration else waited_s or None,
        load_s=_seconds(load),
        prompt_s=_seconds(prompt),
        output_s=_seconds(output),
    )


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
