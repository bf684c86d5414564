"""Who views a submission, on a real Redis."""

from __future__ import annotations

from cli.dev.embedded_redis import free_port
from grading.broker import viewers
from grading.broker.connections import connect
from grading.broker.dispatch import open_dispatch
from grading.config.settings import parse

ONE = {"name": "one", "stages": {"analysis": {"engine": "instant", "model": "m"}}}


def test_others_are_told_for_a_while(redis_url: str) -> None:
    with connect(redis_url) as client:
        assert viewers.view(client, "s", 1) == ()
        assert viewers.view(client, "s", 2) == (1,)
        assert viewers.view(client, "s", 1) == (2,)
        assert viewers.view(client, "another", 3) == ()
        key = viewers.VIEWERS + "s"
        assert 0 < int(client.ttl(key)) <= viewers.VIEWS_S  # type: ignore[arg-type]
        client.zincrby(key, -viewers.VIEWS_S - 1, "2")
        assert viewers.view(client, "s", 1) == ()


def test_nobody_is_told_while_redis_is_away() -> None:
    config = parse({"redis": {"url": f"redis://127.0.0.1:{free_port()}/0"}, "machines": [ONE]})
    assert open_dispatch(config).view("s", 1) == ()
