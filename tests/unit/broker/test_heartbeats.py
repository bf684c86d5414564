"""Heartbeats as machines write them: every field is checked, those for routing by their types."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from grading.broker.heartbeats import NEEDED, SHAPES, Heartbeat, read_heartbeats
from grading.broker.machine_status import peer
from grading.scheduling.cluster_view import Peer, RoutingFacts

PLAIN: dict[str, Any] = {
    "process": "p",
    "machine": "one",
    "slots": 4,
    "busy": 0,
    "at": 100.0,
    "stages": {"analysis": {"engine": "mlx", "model": "m"}},
}
TOLD: dict[str, Any] = {
    "joins_after_s": 3.0,
    "reserved": "batch",
    "running": {"analysis": 2},
    "remaining": {"analysis": 1.5},
    "load_s": {"analysis": 20.0},
}
HOSTILE: list[Any] = [
    None,
    [],
    [1],
    {"analysis": []},
    {"analysis": {"x": 1}},
    {"analysis": None},
    [{}],
    float("nan"),
]


def read(**more: Any) -> Heartbeat:
    (found,) = read_heartbeats({"one": [json.dumps({**PLAIN, **more})]}, 101.0)
    return found


def test_each_field_has_a_shape() -> None:
    assert SHAPES.keys() == {one.name for one in fields(Heartbeat)}
    assert SHAPES.keys() > get_type_hints(RoutingFacts).keys() | NEEDED


def test_what_is_told_for_routing_reaches_who_decides() -> None:
    assert TOLD.keys() == get_type_hints(RoutingFacts).keys()
    assert peer(read(**TOLD)) == Peer("one", 4, ("analysis",), **TOLD)


@pytest.mark.parametrize("name", sorted(TOLD))
def test_a_fact_of_another_type_is_not_heard(name: str) -> None:
    blank = getattr(read(), name)
    others = [value for value in TOLD.values() if type(value) is not type(TOLD[name])]
    for value in [*HOSTILE, *others]:
        assert getattr(read(**{name: value}), name) == blank, value


@pytest.mark.parametrize(
    "row", [{"analysis": []}, {"analysis": {"engine": ["mlx"]}}, {"analysis": {"source": 1}}, []]
)
def test_places_of_stages_are_texts(row: Any) -> None:
    assert read(stages=row).stages == {}
