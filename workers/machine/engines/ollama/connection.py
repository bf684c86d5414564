"""The way to an Ollama server: one client an exchange, under a watch, and its failures as errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from grading.domain.errors import EngineError, EngineGarbled
from workers.machine.engines.base import Cancel
from workers.machine.engines.http.errors import broke_off, garbled, status_error, unreachable
from workers.machine.engines.http.watch import Heard, Limits, Watch

if TYPE_CHECKING:
    import httpx
    from ollama import Client

T = TypeVar("T")


@dataclass(frozen=True)
class OllamaWire:
    """A server and the seconds it may take."""

    url: str
    limits: Limits
    heard: Heard = field(default_factory=Heard)

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

        from workers.machine.engines.http.transport import identity_headers, watched_transport

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
            return EngineGarbled(f"{self.where} has no page for chats. Correct its url in config.toml.")
        missing = f"{self.where} does not have the model {model}. Run there: ollama pull {model}"
        return status_error(self.where, exc.status_code, str(exc.error), missing)

    def _timeouts(self, watch: Watch) -> httpx.Timeout:
        import httpx

        # the watch is the stricter one; this is the net below it
        net = max(self.limits.load, self.limits.chunk) + 5
        return httpx.Timeout(net, connect=min(self.limits.connect, watch.remaining))
