"""A collector of traces on loopback: OTLP over HTTP, kept in memory."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True)
class Span:
    """A span as it was received; ids in hex, times in nanoseconds."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    """What came in so far."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)

    def of(self, trace: str) -> list[Span]:
        """The spans of one trace, by their start."""
        return sorted((one for one in list(self.spans) if one.trace == trace), key=lambda one: one.start)


@contextmanager
def collector() -> Iterator[Collector]:
    """Listens until the context ends."""
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            kept.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield kept
        server.shutdown()
        thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        service = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    service=service,
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    failed=span.status.code == 2,
                    attributes={one.key: _value(one.value) for one in span.attributes},
                )


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")
