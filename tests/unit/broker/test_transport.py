"""What may come off a queue: anything at all, and only this system's own messages get through."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.broker.celery_app import celery_app
from grading.broker.kombu_transport import BROKEN, Unwanted, check

PARTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("grader.run"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("body", "content-type", "content-encoding", "headers", "properties")


def message(body: bytes = b"[[], {}, {}]", **headers: Any) -> dict[str, Any]:
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "grader.run", "id": "x", **headers},
        "properties": {"delivery_tag": "t", "body_encoding": "base64"},
    }


def test_messages_of_this_system_get_through() -> None:
    check(message())
    check(message(eta="2026-01-01T00:00:00+00:00", retries=2, group="g", timelimit=[None, None]))
    check({**message(b'{"method": "ping"}'), "headers": {"clock": 1}})


@pytest.mark.parametrize("part", ["body", "headers", "properties"])
@given(value=PARTS)
def test_a_part_of_another_shape_never_does_harm(part: str, value: Any) -> None:
    try:
        check({**message(), part: value})
    except BROKEN:
        return
    assert part == "headers"
    assert "task" not in value  # no task: an operator's message to the workers


@given(value=PARTS | st.dictionaries(st.sampled_from(KEYS), PARTS))
def test_nothing_that_is_no_message_gets_through(value: Any) -> None:
    with pytest.raises(BROKEN):
        check(value)


@given(body=st.binary() | PARTS.map(lambda part: json.dumps(part).encode()))
def test_a_body_of_another_shape_does_not_get_through(body: bytes) -> None:
    try:
        check(message(body))
    except BROKEN:
        return
    args, kwargs, _ = json.loads(body)
    assert (type(args), type(kwargs)) == (list, dict)


@pytest.mark.parametrize(
    "headers", [{"task": "os.system"}, {"task": 5}, {"id": None}, {"compression": "application/x-gzip"}]
)
def test_headers_that_nobody_here_sends_do_not(headers: dict[str, Any]) -> None:
    with pytest.raises(Unwanted):
        check(message(**headers))


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_the_queue_reads_with_this_transport(scheme: str) -> None:
    app = celery_app(f"{scheme}://:p@localhost:1/0?ssl_cert_reqs=required", 1200)
    with app.connection_for_read() as connection:
        assert connection.transport_cls == scheme
        assert type(connection.get_transport_cls()) is type
        assert connection.get_transport_cls().__module__ == "grading.broker.kombu_transport"
    app.close()
