"""Who grades which submission by a criterion now, on a real Redis."""

from __future__ import annotations

from cli.dev.embedded_redis import free_port
from grading.broker import criterion_claims
from grading.broker.connections import connect
from grading.broker.criterion_claims import claim
from grading.broker.dispatch import open_dispatch
from grading.config.settings import parse

ONE = {"name": "one", "stages": {"analysis": {"engine": "instant", "model": "m"}}}


def test_two_people_never_claim_the_same(redis_url: str) -> None:
    with connect(redis_url) as client:
        assert claim(client, 1, "c", 7, ["a", "b"]) == "a"
        assert claim(client, 1, "c", 8, ["a", "b"]) == "b"
        assert claim(client, 1, "c", 9, ["a", "b"]) is None
        assert claim(client, 1, "d", 9, ["a", "b"]) == "a"
        assert claim(client, 1, "c", 7, ["c"]) == "c"  # and "a" is free
        assert claim(client, 1, "c", 9, ["b", "a"]) == "a"
        assert claim(client, 1, "c", 9, []) is None
        key = f"{criterion_claims.CLAIMS}1:c"
        assert 0 < int(client.ttl(key)) <= criterion_claims.CLAIM_S  # type: ignore[arg-type]
        client.hset(key, "b", "8 1")
        assert claim(client, 1, "c", 9, ["b"]) == "b"


def test_the_first_is_taken_while_redis_is_away() -> None:
    config = parse({"redis": {"url": f"redis://127.0.0.1:{free_port()}/0"}, "machines": [ONE]})
    dispatch = open_dispatch(config)
    assert dispatch.claim_criterion(1, "c", 7, ["a", "b"]) == "a"
    assert dispatch.claim_criterion(1, "c", 7, []) is None
