"""An httpx transport whose connections a `Watch` can end and whose bytes it counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from grading.domain.errors import EngineGarbled
from workers.machine.engines.http.errors import compressed, not_a_page
from workers.machine.engines.http.watch import Watch

if TYPE_CHECKING:
    import httpx


def identity_headers() -> dict[str, str]:
    """Ask for uncompressed answers, so that counted bytes are the bytes there are."""
    return {"Accept-Encoding": "identity"}


def watched_transport(watch: Watch, where: str) -> httpx.BaseTransport:
    """A transport for one exchange under this watch."""
    import httpx

    class Counted(httpx.SyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._inner:
                watch.wire(len(chunk))
                yield chunk

        def close(self) -> None:
            self._inner.close()

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.extensions = {**request.extensions, "trace": _holder(watch)}
            response = super().handle_request(request)
            try:
                _check(response, where)
            except EngineGarbled:
                response.close()
                raise
            response.stream = Counted(response.stream)
            return response

    return Watched(trust_env=False)


def _check(response: httpx.Response, where: str) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise compressed(where)
    if response.status_code == 200:
        not_a_page(where, response.headers.get("content-type", ""))


def _holder(watch: Watch) -> Any:
    def trace(event: str, info: dict[str, Any]) -> None:
        # told before the first byte is sent, so that a server that never answers can be left too
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            watch.hold(info["return_value"].get_extra_info("socket"))

    return trace
