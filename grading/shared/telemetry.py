"""Logs and traces: which request, submission, round and run a message or span is about."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars, get_contextvars

from grading.domain.jobs import Result

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer


NAMES = ("request", "submission", "round", "run", "stage", "machine")


def working_on(**ids: str) -> AbstractContextManager[None]:
    """Messages inside are about these NAMES; empty ones say nothing."""
    return bound_contextvars(**_said(ids))


def begin(**ids: str) -> None:
    """From now on messages are about these NAMES and nothing else, as at the start of a request."""
    clear_contextvars()
    bind_contextvars(**_said(ids))


def current(name: str) -> str:
    """The id of this name that messages are about now; empty where there is none."""
    return str(get_contextvars().get(name, ""))


def _said(ids: dict[str, str]) -> dict[str, str]:
    assert ids.keys() <= set(NAMES), f"not an id: {ids.keys() - set(NAMES)}"
    return {name: value for name, value in ids.items() if value}


log = logging.getLogger(__name__)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATIENCE_S = 3.0
ID = re.compile(r"[0-9a-f]{32}")
Attribute = str | int | float | bool
Say = Callable[[Mapping[str, Attribute]], None]
"""Adds attributes to a span."""

_tracer: Tracer | None = None
_chosen: ContextVar[tuple[int, int] | None] = ContextVar("chosen", default=None)
"""Ids of the trace and the span that is being made, where they are not random."""


def start(part: str, environ: Mapping[str, str], machine: str = "") -> None:
    """Send the spans of this process from now on, if `environ` says where. Not before a fork."""
    global _tracer
    if not environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ModuleNotFoundError as error:
        log.warning(
            "%s is set, but the extra 'tracing' is not installed (%s): traces are disabled", ENDPOINT, error
        )
        return

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            chosen = _chosen.get()
            return chosen[0] if chosen else super().generate_trace_id()

        def generate_span_id(self) -> int:
            chosen = _chosen.get()
            return chosen[1] if chosen else super().generate_span_id()

    names = {"service.namespace": "grader", "service.name": f"grader-{part}"}
    if machine:
        names["service.instance.id"] = machine
    # an end waits for it when nobody collects
    patience_s = float(environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") or PATIENCE_S)
    provider = TracerProvider(resource=Resource.create(names), id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=patience_s)))
    _tracer = provider.get_tracer("grader")


def mark(name: str, round_id: str, began_ns: int, run_id: str = "", **attributes: Attribute) -> None:
    """A span since `began_ns` (`time.time_ns`) that later spans of the round, or run, are children of."""
    if _tracer is None or not ID.fullmatch(round_id) or (run_id and not ID.fullmatch(run_id)):
        return
    token = _chosen.set((int(round_id, 16), _half(run_id or round_id)))
    try:
        span = _tracer.start_span(name, _parent(round_id, "" if run_id else None), start_time=began_ns)
    finally:
        _chosen.reset(token)
    span.set_attributes(_ids(round_id, run_id) | attributes)
    span.end()


@contextmanager
def span(
    name: str, round_id: str, run_id: str = "", began_ns: int | None = None, **attributes: Attribute
) -> Iterator[Say]:
    """A span around what is done inside; it fails when that raises, and says no more than what was raised.

    `began_ns` (`time.time_ns`) is when it began, where that was earlier.
    """
    if _tracer is None or not ID.fullmatch(round_id) or (run_id and not ID.fullmatch(run_id)):
        yield _nothing
        return
    from opentelemetry.trace import StatusCode

    with _tracer.start_as_current_span(
        name,
        _parent(round_id, run_id),
        attributes=_ids(round_id, run_id) | attributes,
        start_time=began_ns,
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield current.set_attributes
        except BaseException as error:
            current.set_status(StatusCode.ERROR, type(error).__name__)  # its text may be a student's
            raise


def outcome(result: Result) -> dict[str, Attribute]:
    """What a span says of a result, by the names that OpenTelemetry gives to generations where it has one."""
    origin = result.provenance
    return {
        "grader.stage": result.stage,
        "grader.machine": origin.machine,
        "grader.outcome": "done" if result.ok else result.error or "failed",
        "grader.first_token_s": origin.first_token_s or 0.0,
        "grader.cached_tokens": origin.tokens.cached,
        "gen_ai.provider.name": origin.engine,
        "gen_ai.request.model": origin.model,
        "gen_ai.usage.input_tokens": origin.tokens.prompt,
        "gen_ai.usage.output_tokens": origin.tokens.output,
    }


def _nothing(attributes: Mapping[str, Attribute]) -> None:
    """Traces are off."""


def _half(identifier: str) -> int:
    return int(identifier[:16], 16)


def _ids(round_id: str, run_id: str) -> dict[str, Attribute]:
    return {"grader.round": round_id, **({"grader.run": run_id} if run_id else {})}


def _parent(round_id: str, run_id: str | None) -> Context:
    """The span of this run, of the round if there is no run, or no parent at all for None."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if run_id is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(int(round_id, 16), _half(run_id or round_id), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(parent), Context())
